//! A rank is killed at a random moment; the other one lives, and says by name what happened.
//!
//! Each side a hundred times, over the default device, in full traffic.

mod common;

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use common::{alone, children, command, finish, is_alive, rank_pid, wait_for_processes, wait_for_the_end_of};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, connect, socket};
use rustix::process::{Pid, Signal, kill_process};

const TIMES: u64 = 100;

/// Where DPDK has started and the ranks are connected, give or take: some die during wire-up, most in traffic.
const EARLIEST_MS: u64 = 150;
const SPREAD_MS: u64 = 400;
/// By how much later the next ones die after one that died during wire-up.
const STEP_MS: u64 = 10;
/// Far longer than a rank takes to see that its launcher is gone.
const PATIENCE: Duration = Duration::from_secs(30);

#[test]
fn killing_the_server_rank_leaves_the_client_rank_alive() {
    kill_many_times(0);
}

#[test]
fn killing_the_client_rank_leaves_the_server_rank_alive() {
    kill_many_times(1);
}

fn kill_many_times(victim: usize) {
    let _alone = alone();
    let (mut named, mut later_ms) = (0, 0);
    for round in 0..TIMES {
        let delay = EARLIEST_MS + later_ms + (round * 7919 + victim as u64 * 104_729) % SPREAD_MS;
        if kill_once(victim, Duration::from_millis(delay)) {
            named += 1;
        } else {
            // A busy machine takes longer to come to its traffic.
            later_ms += STEP_MS;
        }
    }
    assert!(named > TIMES / 2, "only {named} of {TIMES} died in traffic: the moments are badly chosen");
}

/// Returns whether the survivor was in traffic, where the end of its peer is a completion with an error.
fn kill_once(victim: usize, delay: Duration) -> bool {
    let job =
        command(&["run", "-n", "2", "--exit-timeout", "60", "roci", "soak", "--seconds", "60", "--max-size", "64KiB"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("roci starts");
    std::thread::sleep(delay);
    let pid = Pid::from_raw(rank_pid(job.id(), victim).cast_signed()).expect("a process");
    kill_process(pid, Signal::KILL).expect("the rank is there to be killed");
    let ended = finish(job);
    let survivor = 1 - victim;
    let context = format!("killed after {delay:?}: {}", ended.stderr);
    assert_eq!(ended.code(), Some(137), "the killed rank's status is the worst; {context}");
    // Alive to the end: it exits by itself, with a status and not by a signal.
    assert!(ended.stderr.contains(&format!("rank {survivor} exited with status 1")), "{context}");
    // By its connection, or by the launcher where that shows nothing.
    let is_explained = ended.stderr.contains("IBV_WC_") || ended.stderr.contains("was killed by signal 9");
    let by_name = ended.stderr.contains(&format!("rank {victim} is gone: ")) && is_explained;
    let not_connected = format!("rank {victim} cannot be connected: ");
    let during_wireup = ended.stderr.contains("the job has failed") || ended.stderr.contains(&not_connected);
    assert!(by_name || during_wireup, "{context}");
    by_name
}

/// The launcher's own children die with it; what a shell among them has started must notice.
#[test]
fn ranks_behind_a_shell_end_when_their_launcher_is_killed() {
    let _alone = alone();
    for (wireup, method) in [("static", "oob"), ("lazy", "oob"), ("lazy", "rdma_cm")] {
        let script = concat!(env!("CARGO_BIN_EXE_roci"), " soak --seconds 600; :");
        let mut job = command(&["run", "-n", "3", "sh", "-c", script])
            .env("ROCI_WIREUP", wireup)
            .env("ROCI_CONNECT_METHOD", method)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("roci starts");
        // Each shell starts its rank.
        let ranks = wait_for_processes(3, || children(job.id()).into_iter().flat_map(children).collect());
        std::thread::sleep(Duration::from_millis(500));
        job.kill().expect("a child of ours");
        job.wait().expect("a child of ours");
        wait_for_the_end_of(&ranks);
    }
}

/// How many hang up while the server waits for its client.
const HANG_UPS: usize = 200;

/// What a client leaves that is killed, or gives up, between connect and hello.
#[test]
fn clients_that_hang_up_before_they_are_greeted_do_no_harm() {
    let _alone = alone();
    let directory = tempfile::tempdir().expect("a directory");
    let go = directory.path().join("go");
    // The client's rank waits until others have been there.
    let script = format!(
        "while [ $ROCI_RANK = 1 ] && ! [ -e {} ]; do sleep 0.05; done; exec {} soak --seconds 1",
        go.display(),
        env!("CARGO_BIN_EXE_roci")
    );
    let job = command(&["run", "-n", "2", "sh", "-c", &script])
        .env("TMPDIR", directory.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("roci starts");
    let deadline = Instant::now() + PATIENCE;
    let mut hung_up = 0;
    while hung_up < HANG_UPS && Instant::now() < deadline && is_alive(job.id()) {
        hung_up += usize::from(hangs_up_at_port(directory.path()));
        std::thread::sleep(Duration::from_millis(1));
    }
    std::fs::write(&go, "").expect("room on the disk");
    finish(job).succeeded();
    assert_eq!(hung_up, HANG_UPS, "the server was there to be asked");
}

/// Connects to the memif server of the job in this directory, if there is one, and hangs up at once.
fn hangs_up_at_port(directory: &Path) -> bool {
    let jobs = std::fs::read_dir(directory).expect("ours").flatten();
    let mut ports = jobs.map(|job| job.path().join("0-1")).filter(|port| port.exists());
    let Some(address) = ports.next().and_then(|port| SocketAddrUnix::new(&port).ok()) else { return false };
    let client = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).expect("a socket");
    connect(&client, &address).is_ok()
}
