//! perftest between the two guests, over `rdma_rxe` on their NICs.

use serde_json::{Value, json};

use super::Load;
use crate::LabError;
use crate::nics::bench::Bench;

/// The port that perftest's servers listen on.
const PORT: u16 = 18_515;
/// The server's address, and the client's.
const IPS: [&str; 2] = ["10.77.0.1", "10.77.0.2"];
/// perftest counts MB of 2^20 bytes.
const MEGABYTE: f64 = 1_048_576.0;
/// Work requests that a stream posts at once, as ours does.
pub(super) const LIST: u32 = 16;
/// Messages of a run that shows what beginning and ending takes: a list.
const FEWEST: u32 = LIST;
/// How often a run is begun whose clock perftest cannot judge: beside a disturbance it takes the processor's rate as zero,
/// and then every figure is zero or endless.
const TRIES: u32 = 3;

/// A program of perftest.
pub(super) struct PerftestProgram {
    pub(super) program: &'static str,
    name: &'static str,
    is_latency: bool,
}

const fn test(program: &'static str, name: &'static str, is_latency: bool) -> PerftestProgram {
    PerftestProgram { program, name, is_latency }
}

pub(super) const TESTS: [PerftestProgram; 5] = [
    test("ib_send_lat", "send_lat", true),
    test("ib_write_lat", "write_lat", true),
    test("ib_send_bw", "send_bw", false),
    test("ib_write_bw", "write_bw", false),
    test("ib_read_bw", "read_bw", false),
];

pub(super) fn measure(bench: &mut Bench, loads: &[Load], round: u32) -> Result<(), LabError> {
    for end in [0, 1] {
        bench.run(end, &bring_up(end))?;
    }
    for test in &TESTS {
        let idle = if test.is_latency { 0.0 } else { run(bench, test, loads[0].bytes, FEWEST)?.busy_s };
        for load in loads {
            let count = if test.is_latency { load.pings } else { load.stream };
            println!("{}", measured(bench, test, load.bytes, count, idle, round)?);
        }
    }
    for end in [0, 1] {
        bench.run(end, "rdma link delete rxe0")?;
    }
    Ok(())
}

/// A row of results, of the first run that has figures.
fn measured(
    bench: &mut Bench,
    test: &PerftestProgram,
    bytes: u64,
    count: u32,
    idle: f64,
    round: u32,
) -> Result<Value, LabError> {
    let mut tries = 1;
    loop {
        let ran = run(bench, test, bytes, count)?;
        match row(test, bytes, count, &ran, idle, round) {
            Err(_) if tries < TRIES => tries += 1,
            row => return row,
        }
    }
}

/// An address for the NIC, whatever the kernel calls it now, and rxe on it.
fn bring_up(end: usize) -> String {
    let mac = Bench::mac(end);
    let find = format!("for i in /sys/class/net/*; do [ \"$(cat $i/address)\" != {mac} ] || n=${{i##*/}}; done");
    let up = format!("ip address replace {}/24 dev $n && ip link set $n up", IPS[end]);
    format!("{find}; {up} && rdma link add rxe0 type rxe netdev $n")
}

/// What a run printed, and how long the guests' processors were busy with it.
struct Ran {
    output: String,
    busy_s: f64,
}

fn run(bench: &mut Bench, test: &PerftestProgram, bytes: u64, count: u32) -> Result<Ran, LabError> {
    let before = busy_seconds(bench)?;
    let words = words(test, &bytes.to_string(), &count.to_string());
    bench.run(0, &format!("{words} >/run/server 2>&1 & {}", wait_for_server()))?;
    let output = bench.run(1, &format!("{words} {} 2>&1", IPS[0]))?;
    let busy_s = busy_seconds(bench)? - before;
    Ok(Ran { output, busy_s })
}

/// The command of both ends; the client's names the server behind.
pub(super) fn words(test: &PerftestProgram, bytes: &str, count: &str) -> String {
    let list = if test.is_latency { String::new() } else { format!(" -l {LIST}") };
    format!("{} -d rxe0 -x 1 -F -s {bytes} -n {count}{list}", test.program)
}

/// Until something listens on the port; a server that does not is the client's to report.
fn wait_for_server() -> String {
    let is_there = format!("grep -q ':{PORT:04X} .* 0A ' /proc/net/tcp /proc/net/tcp6");
    format!("n=0; until {is_there} || [ $n -ge 100 ]; do sleep 0.1; n=$((n + 1)); done")
}

/// Processor time of both guests that was not idle, in seconds.
fn busy_seconds(bench: &mut Bench) -> Result<f64, LabError> {
    let mut ticks = 0;
    for end in [0, 1] {
        let stat = bench.run(end, "cat /proc/stat")?;
        ticks += busy_ticks(&stat).ok_or_else(|| format!("guest {end}: an odd /proc/stat: {stat}"))?;
    }
    Ok(ticks as f64 / 100.0)
}

/// All of the first line but idle and waiting for disks; ticks are hundredths of a second.
fn busy_ticks(stat: &str) -> Option<u64> {
    let words = stat.lines().next()?.strip_prefix("cpu ")?.split_whitespace();
    let ticks: Option<Vec<u64>> = words.take(8).map(|word| word.parse().ok()).collect();
    let ticks = ticks.filter(|ticks| ticks.len() == 8)?;
    Some(ticks.iter().sum::<u64>() - ticks[3] - ticks[4])
}

/// In the form of `roci perf --json`.
fn row(test: &PerftestProgram, bytes: u64, count: u32, ran: &Ran, idle: f64, round: u32) -> Result<Value, LabError> {
    let figures = figures(&ran.output, bytes).ok_or_else(|| format!("{}: {}", test.program, ran.output.trim()))?;
    let mut row =
        json!({"stack": "rdma_rxe", "round": round, "test": test.name, "bytes": bytes, "iters": count, "errors": 0});
    if test.is_latency {
        // The third is what it calls typical: the median.
        row["lat_us"] = json!({"min": figures[0], "p50": figures[2]});
    } else {
        row["bw_gigabytes_per_s"] = (figures[1] * MEGABYTE / 1e9).into();
        row["mmsgs"] = figures[2].into();
        row["cpu_s"] = (ran.busy_s - idle).max(0.0).into();
    }
    Ok(row)
}

/// The numbers behind size and count, in the row below perftest's heading: each of them above zero, and of some end.
fn figures(output: &str, bytes: u64) -> Option<Vec<f64>> {
    let mut lines = output.lines().skip_while(|line| !line.trim_start().starts_with("#bytes"));
    let mut words = lines.nth(1)?.split_whitespace();
    words.next().filter(|word| word.parse() == Ok(bytes))?;
    let numbers: Option<Vec<f64>> = words.skip(1).map(|word| word.parse().ok()).collect();
    numbers
        .filter(|numbers| numbers.len() >= 3 && numbers[..3].iter().all(|&number| number > 0.0 && number.is_finite()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of perftest 4.5, without what it says before.
    const LATENCY: &str = " local address: LID 0000 QPN 0x0012\n\
        ---------------------------------------------------------------------------------------\n \
        #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] \n \
        64      400          301.50         2210.11      415.25   \t       431.10         88.01   \t\t812.00 \t\t2210.11\n\
        ---------------------------------------------------------------------------------------\n";
    const STREAM: &str = " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]\n \
        65536      200              16.01              12.50 \t\t   0.000200\n";

    #[test]
    fn what_perftest_prints_is_read() {
        assert_eq!(figures(LATENCY, 64).map(|figures| figures[2].to_string()).as_deref(), Some("415.25"));
        let ran = Ran { output: STREAM.into(), busy_s: 3.0 };
        let row = row(&TESTS[3], 65536, 200, &ran, 0.5, 2).expect("a row");
        assert_eq!(row["bw_gigabytes_per_s"], 0.013_107_2);
        assert_eq!((&row["mmsgs"], &row["cpu_s"], &row["round"]), (&0.0002.into(), &2.5.into(), &2.into()));
    }

    #[test]
    fn what_is_no_row_of_that_size_is_refused() {
        for output in ["", "Couldn't connect to 10.77.0.1:18515\n", " #bytes\n", &STREAM.replace("65536", "64")] {
            assert_eq!(figures(output, 65536), None, "{output}");
        }
    }

    #[test]
    fn figures_by_a_clock_of_rate_zero_are_none() {
        let stopped = STREAM.replace("12.50", "0.00").replace("0.000200", "0.000000");
        assert_eq!(figures(&stopped, 65536), None);
        assert_eq!(figures(&LATENCY.replace("415.25", "inf"), 64), None);
    }

    #[test]
    fn a_processor_is_busy_when_it_neither_idles_nor_waits() {
        assert_eq!(busy_ticks("cpu  10 1 20 1000 500 3 4 2 0 0\ncpu0 10\n"), Some(40));
        for stat in ["", "cpu  1 2", "intr 5", "cpu  a b c d e f g h"] {
            assert_eq!(busy_ticks(stat), None, "{stat}");
        }
    }
}
