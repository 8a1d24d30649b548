//! `roci stat` beside running jobs.

mod common;

use std::io::{Read as _, Write as _};
use std::process::{Child, Command, Stdio};

use common::{alone, children, command, finish, rank_pid, roci, wait_for};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// What clears a terminal.
const CLEAR: &str = "\x1b[2J\x1b[H";

/// What the workers of these processes publish, once each does.
fn published(pids: &[u32]) -> Vec<Value> {
    wait_for("figures of all", || {
        let all: Vec<Value> = serde_json::from_str(&roci(&["stat", "--json"]).succeeded().stdout).expect("an array");
        let ours: Vec<_> =
            all.into_iter().filter(|row| row["pid"].as_u64().is_some_and(|pid| pids.contains(&(pid as u32)))).collect();
        let are_under_way = ours.iter().all(|row| {
            let counters = &row["counters"];
            let figures =
                [&counters["worker"]["tx_eager"], &counters["engine"]["rx_frames"], &counters["round_trip_ns"]["sum"]];
            figures.iter().all(|figure| figure.as_u64() > Some(0))
        });
        (ours.len() == pids.len() && are_under_way).then_some(ours)
    })
}

fn soak(options: &[&str]) -> (Child, Vec<u32>) {
    let arguments = [&["run", "-n", "2"], options, &["roci", "soak", "--seconds", "100"]].concat();
    let job = command(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("roci starts");
    let ranks = (0..2).map(|rank| rank_pid(job.id(), rank)).collect();
    (job, ranks)
}

fn end(job: Child) {
    let pid = Pid::from_raw(job.id().cast_signed()).expect("a process");
    kill_process(pid, Signal::TERM).expect("it runs");
    finish(job);
}

#[test]
fn a_running_job_is_seen_with_its_counters_rates_and_what_it_waits_for() {
    let _alone = alone();
    let (job, ranks) = soak(&[]);
    let rows = published(&ranks);
    for (rank, row) in rows.iter().map(|row| (row["rank"].as_u64(), row)) {
        assert_eq!((&row["size"], &row["device"]), (&2.into(), &"memif".into()), "{row}");
        assert_eq!(rank.map(|rank| ranks[rank as usize]), row["pid"].as_u64().map(|pid| pid as u32), "{row}");
        assert!(row["counters"]["engine"]["rx_frames"].as_u64() > Some(0), "{row}");
        assert!(row["counters"]["port0"]["tx_bytes"].as_u64() > Some(0), "{row}");
        assert!(row["report"][0].as_str().is_some_and(|line| line.contains("requests under way")), "{row}");
    }
    let pid = ranks[0].to_string();
    let page = wait_for("a rate", || {
        let page = roci(&["stat", &pid]).succeeded().stdout;
        let cells: Vec<_> = page.lines().nth(1).expect("a row").split_whitespace().collect();
        assert_eq!(cells[..4], [pid.as_str(), "0/2", "roci", "memif"], "{page}");
        // None where no rank has run for a second.
        cells[4].parse::<u64>().is_ok_and(|rate| rate > 0).then_some(page)
    });
    assert!(page.contains("rank 1: connected"), "{page}");
    assert!(page.contains(&format!("\n{pid} rank 0: peers, those that wait first\n")), "{page}");
    end(job);
    let line = roci(&["stat", &pid]).failed_with_one_line();
    assert!(line.contains(&format!("process {pid} publishes nothing")), "{line}");
}

/// The bound of a bucket and its count, as Prometheus has them of a worker.
fn buckets(metrics: &str, metric: &str, pid: u32) -> Vec<(String, u64)> {
    let of_worker = format!("roci_{metric}_bucket{{pid=\"{pid}\",");
    let lines = metrics.lines().filter(|line| line.starts_with(&of_worker));
    lines.map(|line| parse_bucket(line).unwrap_or_else(|| panic!("no bucket: {line}"))).collect()
}

fn parse_bucket(line: &str) -> Option<(String, u64)> {
    let (bound, count) = line.split_once("le=\"")?.1.split_once("\"} ")?;
    Some((bound.to_owned(), count.parse().ok()?))
}

/// A figure of a worker, as Prometheus has it.
fn metric(metrics: &str, metric: &str, pid: u32, last_label: &str) -> Option<u64> {
    let of_worker = format!("roci_{metric}{{pid=\"{pid}\",");
    let mut lines = metrics.lines().filter(|line| line.starts_with(&of_worker));
    lines.find_map(|line| line.split_once(&format!("{last_label}}} "))?.1.parse().ok())
}

#[test]
fn peers_memory_and_histograms_are_data_in_json_and_for_prometheus() {
    let _alone = alone();
    let (job, ranks) = soak(&[]);
    for row in published(&ranks) {
        let counters = &row["counters"];
        let peer = &counters[if row["rank"] == 0 { "peer1" } else { "peer0" }];
        assert_eq!((&peer["connected"], &peer["gone"]), (&1.into(), &0.into()), "{row}");
        assert!(peer["credits_granted"].as_u64() > Some(0) && peer["retransmitted_packets"].is_u64(), "{row}");
        assert_eq!((&counters["peers"]["known"], &counters["peers"]["left_out"]), (&1.into(), &0.into()), "{row}");
        assert!(counters["registration"]["misses"].is_u64(), "{row}");
        let sizes = counters["message_bytes"].as_object().expect("a histogram");
        let (mut count, mut most) = (0, 0);
        for (bound, bucket) in sizes.iter().filter(|(bound, _)| *bound != "sum") {
            count += bucket.as_u64().expect("a count");
            most += bucket.as_u64().expect("a count") * bound.parse::<u64>().expect("a bound");
        }
        let sum = sizes["sum"].as_u64().expect("a sum");
        assert!(count > 0 && sum > 0 && sum <= most, "{row}");
        assert!(counters["round_trip_ns"]["sum"].as_u64() > Some(0), "{row}");
    }
    let metrics = roci(&["stat", "--prometheus"]).succeeded().stdout;
    for &pid in &ranks {
        assert!(metric(&metrics, "worker_tx_eager_total", pid, "").is_some_and(|count| count > 0), "{metrics}");
        for histogram in ["message_bytes", "round_trip_ns"] {
            let buckets = buckets(&metrics, histogram, pid);
            assert!(buckets.windows(2).all(|pair| pair[0].1 <= pair[1].1), "{buckets:?}");
            let (bound, all) = buckets.last().expect("there are buckets");
            assert!(bound == "+Inf" && *all > 0, "{buckets:?}");
            assert_eq!(metric(&metrics, &format!("{histogram}_count"), pid, ""), Some(*all), "{metrics}");
            assert!(metric(&metrics, &format!("{histogram}_sum"), pid, "") > Some(*all), "{metrics}");
        }
    }
    assert!(metric(&metrics, "peer_credits_granted", ranks[0], "peer=\"1\"") > Some(0), "{metrics}");
    assert!(metrics.contains("# TYPE roci_peer_credits gauge\n"), "{metrics}");
    end(job);
}

/// On a terminal of few rows a page is drawn again and again, each no longer than the terminal.
#[test]
fn on_a_terminal_the_page_is_drawn_again_until_it_is_interrupted() {
    let _alone = alone();
    // Who runs the tests in the background may ignore the signal, and that would be inherited.
    let roci = concat!("env --default-signal=INT ", env!("CARGO_BIN_EXE_roci"));
    let line = format!("stty rows 4 cols 80; exec {roci} stat --wide --interval 1");
    let mut script = Command::new("script");
    script.args(["-qec", &line, "/dev/null"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let Ok(mut script) = script.spawn() else {
        println!("SKIPPED: script(1) is not installed");
        return;
    };
    let (job, _) = soak(&[]);
    let mut shown = String::new();
    let mut out = script.stdout.take().expect("a pipe");
    // Each page begins with what clears the terminal: two are whole once the third has begun.
    while shown.matches(CLEAR).count() < 3 {
        let mut bytes = [0; 4096];
        let count = out.read(&mut bytes).expect("a pipe");
        assert!(count > 0, "it has ended: {shown}");
        shown.push_str(&String::from_utf8_lossy(&bytes[..count]));
    }
    // Who types Control-C interrupts it.
    script.stdin.take().expect("a pipe").write_all(b"\x03").expect("a terminal");
    script.wait().expect("a child of ours");
    end(job);
    let pages: Vec<_> = shown.split(CLEAR).skip(1).take(2).collect();
    for page in pages {
        let lines: Vec<_> = page.lines().collect();
        assert!(lines[0].trim_start().starts_with("PID ") && lines.len() < 4, "{page:?}");
    }
}

#[test]
fn a_killed_rank_is_seen_no_more_and_leaves_nothing_behind() {
    let _alone = alone();
    let (job, ranks) = soak(&["--exit-timeout", "60"]);
    published(&ranks);
    let victim = Pid::from_raw(ranks[0].cast_signed()).expect("a process");
    kill_process(victim, Signal::KILL).expect("it runs");
    wait_for("it is killed", || (!children(job.id()).contains(&ranks[0])).then_some(()));
    roci(&["stat", &ranks[0].to_string()]).failed_with_one_line();
    let left = std::fs::read_dir("/dev/shm").expect("shared memory").flatten();
    let left: Vec<_> = left.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    let of_victim = format!("-{}-", ranks[0]);
    assert!(!left.iter().any(|name| name.starts_with("roci-stat-") && name.contains(&of_victim)), "{left:?}");
    end(job);
}

#[test]
fn who_wants_to_publish_nothing_does_not() {
    let _alone = alone();
    let mut job = command(&["run", "-n", "2", "roci", "soak", "--seconds", "1"]);
    job.env("ROCI_STATS_MS", "0").stdout(Stdio::piped()).stderr(Stdio::piped());
    let job = job.spawn().expect("roci starts");
    let rank = rank_pid(job.id(), 0);
    roci(&["stat", &rank.to_string()]).failed_with_one_line();
    finish(job).succeeded();
}
