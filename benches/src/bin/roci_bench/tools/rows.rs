//! Rows of `roci perf --json`, and of those programs that print the same.

use serde_json::Value;

use crate::failure::NoReadings;
use crate::machine::time_stamp_hz;
use crate::reading::{Metric, Point, Reading};

/// Messages up to this length are counted; of longer ones it is bytes that matter.
const COUNTED: u64 = 4096;
/// Bytes from which on a stream's processor time is reported: shorter ones mostly measure how they begin and end.
const WEIGHED: u64 = 64 << 10;
/// Packets of this length are one a message in any place.
const CYCLES_OF: u64 = 64;

/// The readings of a row each line; `series` names a row's.
pub(crate) fn readings(text: &str, series: impl Fn(&Value) -> String) -> Result<Vec<Reading>, NoReadings> {
    let mut all = Vec::new();
    for line in text.lines().filter(|line| line.starts_with('{')) {
        let row: Value =
            serde_json::from_str(line).map_err(|error| NoReadings::NotJson { error, line: line.into() })?;
        check_payloads(&row)?;
        all.extend(of_row(&row, &series(&row))?);
    }
    if all.is_empty() { Err(NoReadings::NoRow) } else { Ok(all) }
}

/// A wrong payload spoils a measurement. Bare frames may be lost, and are not sent again.
fn check_payloads(row: &Value) -> Result<(), NoReadings> {
    let errors = row["errors"].as_u64().unwrap_or(0);
    if errors > 0 && !test(row).starts_with("raw_") {
        let (test, bytes) = (test(row).to_owned(), row["bytes"].to_string());
        return Err(NoReadings::WrongPayloads { test, bytes, errors });
    }
    Ok(())
}

/// Whether something was lost or wrong.
pub(crate) fn has_losses(text: &str) -> bool {
    rows(text).any(|row| row["errors"].as_u64().is_some_and(|errors| errors > 0))
}

/// How many rows there are of a test and a size.
pub(crate) fn count(text: &str, of: &str, bytes: u64) -> usize {
    rows(text).filter(|row| test(row) == of && row["bytes"] == bytes).count()
}

fn rows(text: &str) -> impl Iterator<Item = Value> {
    text.lines().filter_map(|line| serde_json::from_str(line).ok())
}

fn of_row(row: &Value, series: &str) -> Result<Vec<Reading>, NoReadings> {
    let without = |field: &str| NoReadings::NoField { field: field.into(), row: row.to_string() };
    let number = |value: &Value, field: &str| value.as_f64().ok_or_else(|| without(field));
    let bytes = row["bytes"].as_u64().ok_or_else(|| without("bytes"))?;
    let size = Point::Size(bytes);
    let reading = |metric, value| Reading::new(series, metric, size, value);
    if test(row).ends_with("_lat") {
        let median = reading(Metric::Latency, number(&row["lat_us"]["p50"], "p50")?);
        let tail = row["lat_us"]["p99"].as_f64().map(|us| reading(Metric::Tail, us));
        return Ok([Some(median), tail].into_iter().flatten().collect());
    }
    let rate = number(&row["mmsgs"], "mmsgs")?;
    if let Some(count) = row["connections"].as_u64() {
        return Ok(of_connections(row, series, count, rate));
    }
    let bandwidth = number(&row["bw_gigabytes_per_s"], "bandwidth")?;
    if let Some(depth) = row["depth"].as_u64() {
        return Ok(vec![Reading::new(
            format!("{series} of {size}"),
            Metric::Bandwidth,
            Point::Depth(depth),
            bandwidth,
        )]);
    }
    let mut readings = vec![reading(Metric::Bandwidth, bandwidth)];
    if bytes <= COUNTED {
        readings.push(reading(Metric::Rate, rate));
    }
    let gigabytes = row["iters"].as_f64().unwrap_or(0.0) * bytes as f64 / 1e9;
    if let Some(seconds) = row["cpu_s"].as_f64().filter(|_| bytes >= WEIGHED && gigabytes > 0.0) {
        readings.push(reading(Metric::Cpu, seconds / gigabytes));
    }
    // Only rows of a port are about packets.
    let is_packet = row["device"].is_string() && bytes == CYCLES_OF;
    if let Some(hz) = time_stamp_hz().filter(|_| is_packet && rate > 0.0) {
        readings.push(reading(Metric::Cycles, hz / (rate * 1e6)));
    }
    Ok(readings)
}

fn of_connections(row: &Value, series: &str, count: u64, rate: f64) -> Vec<Reading> {
    let point = Point::Connections(count);
    let mut readings = vec![Reading::new(series, Metric::Rate, point, rate)];
    // The first ones pay for the pools that all use.
    if let Some(bytes) = row["memory_growth_bytes"].as_f64().filter(|_| count >= 64) {
        readings.push(Reading::new(series, Metric::Memory, point, bytes / count as f64));
    }
    readings
}

/// The same readings; of a stream whose frames are lost their place is by loss, and their size is part of their name.
pub(crate) fn at_loss(readings: Vec<Reading>, hundredths: Option<u32>) -> Vec<Reading> {
    let Some(hundredths) = hundredths else { return readings };
    let place = |reading: Reading| Reading {
        series: format!("{} of {}", reading.series, reading.point),
        point: Point::Loss(hundredths),
        ..reading
    };
    readings.into_iter().map(place).collect()
}

/// The name of a row's test.
pub(crate) fn test(row: &Value) -> &str {
    row["test"].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATENCY: &str = r#"{"bw_gbps":0.07,"bw_gigabytes_per_s":0.0088,"bytes":8,"stream":null,"cpu_s":0.004,"device":"memif","engine":null,"errors":0,"iters":2000,"lat_us":{"min":0.721,"p50":0.879,"p99":1.139,"p999":3.439},"mmsgs":1.1,"test":"send_lat"}"#;
    const STREAM: &str = r#"{"bw_gbps":16.0,"bw_gigabytes_per_s":2.0,"bytes":1048576,"stream":null,"cpu_s":1.5,"device":"memif","engine":null,"errors":0,"iters":1000,"lat_us":null,"mmsgs":0.0019,"test":"send_bw"}"#;
    const MANY: &str = r#"{"bw_gbps":0.5,"bw_gigabytes_per_s":0.1,"bytes":64,"stream":null,"connections":1024,"cpu_s":0.17,"device":"memif","engine":null,"errors":0,"iters":20000,"lat_us":null,"memory_growth_bytes":1048576,"mmsgs":1.5,"test":"send_rate"}"#;

    fn named(row: &Value) -> String {
        test(row).to_owned()
    }

    #[test]
    fn rows_of_roci_perf_become_readings() {
        let few = STREAM.replace("\"stream\":null", "\"depth\":4");
        let text = [LATENCY, STREAM, MANY, &few].join("\n");
        let size = |bytes| Point::Size(bytes);
        let expected = [
            Reading::new("send_lat", Metric::Latency, size(8), 0.879),
            Reading::new("send_lat", Metric::Tail, size(8), 1.139),
            Reading::new("send_bw", Metric::Bandwidth, size(1 << 20), 2.0),
            Reading::new("send_bw", Metric::Cpu, size(1 << 20), 1.5 / 1.048_576),
            Reading::new("send_rate", Metric::Rate, Point::Connections(1024), 1.5),
            Reading::new("send_rate", Metric::Memory, Point::Connections(1024), 1024.0),
            Reading::new("send_bw of 1 MiB", Metric::Bandwidth, Point::Depth(4), 2.0),
        ];
        assert_eq!(readings(&text, named).expect("rows"), expected);
    }

    #[test]
    fn a_wrong_payload_spoils_a_measurement_and_a_lost_frame_does_not() {
        let wrong = STREAM.replace("\"errors\":0", "\"errors\":2");
        let trouble = readings(&wrong, named).expect_err("two were wrong").to_string();
        assert_eq!(trouble, "send_bw of 1048576 B: 2 payloads were wrong");
        let lost = wrong.replace("send_bw", "raw_bw");
        assert!(readings(&lost, named).is_ok());
        assert!(has_losses(&lost) && !has_losses(STREAM) && !has_losses("roci: no memory"));
    }

    #[test]
    fn rows_are_counted_by_test_and_size() {
        let text = [LATENCY, STREAM, MANY, MANY, "noise"].join("\n");
        assert_eq!((count(&text, "send_lat", 8), count(&text, "send_rate", 64)), (1, 2));
        assert_eq!((count(&text, "send_lat", 64), count(&text, "send_bw", 8)), (0, 0));
    }

    #[test]
    fn what_is_no_row_is_refused() {
        for text in ["", "hello", "{", "{\"test\":\"x_bw\"}", &LATENCY.replace("\"p50\":0.879,", "")] {
            assert!(readings(text, named).is_err(), "{text}");
        }
    }
}
