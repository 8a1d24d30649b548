//! `roci stat` beside running jobs.

mod common;

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use common::{alone, children, command, finish, rank_pid, roci};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// What the workers of these processes publish, once each does.
fn published(pids: &[u32]) -> Vec<Value> {
    let start = Instant::now();
    loop {
        let all: Vec<Value> = serde_json::from_str(&roci(&["stat", "--json"]).succeeded().stdout).expect("an array");
        let ours: Vec<_> =
            all.into_iter().filter(|row| row["pid"].as_u64().is_some_and(|pid| pids.contains(&(pid as u32)))).collect();
        let are_under_way = ours.iter().all(|row| row["counters"]["worker"]["tx_eager"].as_u64() > Some(0));
        if ours.len() == pids.len() && are_under_way {
            return ours;
        }
        assert!(start.elapsed() < Duration::from_secs(30), "{ours:?}");
    }
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
    let page = roci(&["stat", &pid]).succeeded().stdout;
    let cells: Vec<_> = page.lines().nth(1).expect("a row").split_whitespace().collect();
    assert_eq!(cells[..4], [pid.as_str(), "0/2", "roci", "memif"], "{page}");
    assert!(cells[4].parse::<u64>().is_ok_and(|rate| rate > 0), "messages a second: {page}");
    assert!(page.contains("rank 1: connected"), "{page}");
    let metrics = roci(&["stat", "--prometheus"]).succeeded().stdout;
    assert!(metrics.contains(&format!("roci_worker_tx_eager_total{{pid=\"{pid}\",rank=\"0\"")), "{metrics}");
    end(job);
    let line = roci(&["stat", &pid]).failed_with_one_line();
    assert!(line.contains(&format!("process {pid} publishes nothing")), "{line}");
}

#[test]
fn a_killed_rank_is_seen_no_more_and_leaves_nothing_behind() {
    let _alone = alone();
    let (job, ranks) = soak(&["--exit-timeout", "60"]);
    published(&ranks);
    let victim = Pid::from_raw(ranks[0].cast_signed()).expect("a process");
    kill_process(victim, Signal::KILL).expect("it runs");
    let start = Instant::now();
    while children(job.id()).contains(&ranks[0]) {
        assert!(start.elapsed() < Duration::from_secs(10), "it is killed");
    }
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
