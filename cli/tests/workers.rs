//! Ranks that are threads of one process, at the queues of one port.

mod common;

use std::process::Stdio;

use common::{Ended, alone, command, finish, roci};
use serde_json::Value;

/// A port of DPDK's that needs no privilege and has several queues. It leads nowhere: what crosses it is for its own
/// station.
const RING: &str = "--vdev net_ring0 --no-pci --no-huge -m 512";

fn rows(ended: &Ended) -> Vec<Value> {
    ended.stdout.lines().map(|line| serde_json::from_str(line).expect("an object a line")).collect()
}

fn with_queues(queues: &str, arguments: &[&str]) -> Ended {
    let mut command = command(arguments);
    // The port is what is tested, and not what workers of one host have beside it.
    command.envs([("ROCI_QUEUES", queues), ("ROCI_ARENA_SIZE", "64MiB"), ("ROCI_LOCAL", "off")]);
    finish(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("roci starts"))
}

#[test]
fn workers_share_the_queues_of_a_port() {
    let _alone = alone();
    let soak = ["roci", "soak", "--seconds", "1", "--max-size", "64KiB", "--json"];
    let job = [&["run", "-n", "3", "--workers", "3", "--eal", RING][..], &soak].concat();
    let rows = rows(&with_queues("3", &job).succeeded());
    let (queues, soaks): (Vec<_>, Vec<_>) = rows.iter().partition(|row| row["test"] == "soak_queue");
    assert_eq!((&soaks[0]["errors"], &soaks[0]["ranks"]), (&0.into(), &3.into()), "{}", soaks[0]);
    assert!(soaks[0]["rss_end_bytes"].is_null(), "memory that is not one rank's alone is not judged");
    let mut seen: Vec<_> = queues.iter().map(|row| row["queue"].as_u64()).collect();
    seen.sort_unstable();
    assert_eq!(seen, [Some(0), Some(1), Some(2)]);
    for row in queues {
        let count = |name: &str| row[name].as_u64().unwrap_or_else(|| panic!("{name} is missing: {row}"));
        assert!(count("to_own_station") > 100 && count("taken_over") > 100, "{row}");
    }
}

#[test]
fn a_worker_without_a_queue_ends_its_process_and_says_why() {
    let _alone = alone();
    let job = ["run", "-n", "3", "--workers", "3", "--eal", RING, "roci", "soak", "--seconds", "1"];
    let ended = with_queues("2", &job);
    assert_eq!(ended.code(), Some(1));
    assert!(ended.stderr.contains("each of its 2 queues (ROCI_QUEUES) has an engine already"), "{}", ended.stderr);
    let by_cm = ["run", "-n", "2", "--workers", "2", "--eal", RING, "env", "ROCI_CONNECT_METHOD=rdma_cm"];
    let ended = with_queues("2", &[&by_cm[..], &[env!("CARGO_BIN_EXE_roci"), "soak"]].concat());
    assert!(ended.stderr.contains("is for ports of one worker"), "{}", ended.stderr);
}

#[test]
fn a_port_is_described() {
    let _alone = alone();
    let mut info = command(&["info", "--port", "--json"]);
    info.env("ROCI_QUEUES", "2").env("ROCI_EAL", RING);
    let ended = finish(info.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("roci starts")).succeeded();
    let row = &rows(&ended)[0];
    assert_eq!((&row["queues"], &row["spread"]), (&2.into(), &"no RSS: as the device likes".into()), "{row}");
    let line = roci(&["info", "--port"]).failed_with_one_line();
    assert!(line.contains("device memif"), "{line}");
}

#[test]
fn wrong_numbers_of_workers_are_refused() {
    let line = roci(&["run", "-n", "3", "--workers", "2", "roci", "soak"]).failed_with_one_line();
    assert!(line.contains("3 ranks do not fill processes of 2 each"), "{line}");
    let _alone = alone();
    let ended = roci(&["run", "-n", "2", "--workers", "2", "roci", "exchange"]);
    assert!(ended.stderr.contains("this program is one rank in each process"), "{}", ended.stderr);
}
