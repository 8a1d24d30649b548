//! Rows of `roci perf --json`, and the medians of several rounds.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// What is compared, in the order of the figure: the bare port, then the steps.
pub(crate) const SERIES: [(&str, &str); 5] = [
    ("raw", "bare frames"),
    ("basic", "basic"),
    ("piggyback", "+ piggyback"),
    ("pipelining", "+ pipelining"),
    ("zerocopy", "+ zero-copy"),
];

/// Latency or bandwidth.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Kind {
    /// Half a round trip, the median of a run, in microseconds.
    Latency,
    /// Gigabytes per second.
    Bandwidth,
}

/// The values of all rounds, in their order, by kind, series and size.
#[derive(Default)]
pub(crate) struct Rows {
    values: BTreeMap<(Kind, &'static str, u64), Vec<f64>>,
}

impl Rows {
    /// Reads one object a line. What is missing or wrong is an error: half a figure would mislead.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut rows = Self::default();
        for line in text.lines() {
            let row: Value = serde_json::from_str(line).map_err(|error| format!("{line}: {error}"))?;
            rows.add(&row).ok_or_else(|| format!("no row of this measurement, or one with errors: {line}"))?;
        }
        for kind in [Kind::Latency, Kind::Bandwidth] {
            let sizes = rows.sizes(kind);
            let has_all =
                |(name, _): &(&'static str, _)| sizes.iter().all(|&size| rows.median(kind, name, size).is_some());
            if sizes.is_empty() || !SERIES.iter().all(has_all) {
                return Err(format!("rows are missing for {kind:?}"));
            }
        }
        Ok(rows)
    }

    fn add(&mut self, row: &Value) -> Option<()> {
        let test = row["test"].as_str()?;
        let (of, what) = test.split_once('_')?;
        let name = if of == "raw" { "raw" } else { row["stream"].as_str()? };
        let (name, _) = SERIES.into_iter().find(|(known, _)| *known == name)?;
        let (kind, value) = match what {
            "lat" => (Kind::Latency, row["lat_us"]["p50"].as_f64()?),
            "bw" => (Kind::Bandwidth, row["bw_gigabytes_per_s"].as_f64()?),
            _ => return None,
        };
        if row["errors"].as_u64()? != 0 {
            return None;
        }
        self.values.entry((kind, name, row["bytes"].as_u64()?)).or_default().push(value);
        Some(())
    }

    /// The sizes of messages, rising.
    pub(crate) fn sizes(&self, kind: Kind) -> BTreeSet<u64> {
        self.values.keys().filter(|(of, ..)| *of == kind).map(|(.., size)| *size).collect()
    }

    /// The median of all rounds.
    pub(crate) fn median(&self, kind: Kind, series: &'static str, size: u64) -> Option<f64> {
        self.values.get(&(kind, series, size)).cloned().and_then(median)
    }

    /// The median of the ratios to the bare port, each within its round.
    pub(crate) fn ratio(&self, kind: Kind, series: &'static str, size: u64) -> Option<f64> {
        let (ours, raw) = (self.values.get(&(kind, series, size))?, self.values.get(&(kind, "raw", size))?);
        median(ours.iter().zip(raw).map(|(ours, raw)| ours / raw).collect())
    }

    /// How often each was measured.
    pub(crate) fn rounds(&self) -> usize {
        self.values.values().map(Vec::len).min().unwrap_or(0)
    }
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let upper = *values.get(values.len() / 2)?;
    let lower = values[(values.len() - 1) / 2];
    Some(f64::midpoint(lower, upper))
}

/// A size as people write it.
pub(crate) fn show(bytes: u64) -> String {
    match bytes {
        _ if bytes >= 1 << 20 => format!("{} MiB", bytes >> 20),
        _ if bytes >= 1 << 10 => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} B"),
    }
}
