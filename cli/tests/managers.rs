//! Ranks that somebody else's launcher has started: a process manager that speaks PMI-1, and Slurm without one. Both are played
//! here; scripts/test-launchers has the real ones.

mod common;

use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;

use common::{alone, command, finish};
use serde_json::Value;

const SOAK: [&str; 4] = ["soak", "--seconds", "1", "--json"];

/// A process manager of so many ranks: the values that they have left, and where they wait for each other.
struct Manager {
    values: Mutex<Vec<(String, String)>>,
    barrier: Barrier,
}

impl Manager {
    /// Serves one rank until it takes leave; returns whether it has.
    fn serve(&self, stream: UnixStream) -> bool {
        let mut lines = BufReader::new(stream.try_clone().expect("a descriptor")).lines();
        while let Some(Ok(line)) = lines.next() {
            let field = |name: &str| {
                line.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('=')).unwrap_or("").to_owned()
            };
            let answer = match field("cmd").as_str() {
                "init" => "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0".into(),
                "get_maxes" => "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024".into(),
                "get_my_kvsname" => "cmd=my_kvsname kvsname=kvs".into(),
                "put" => {
                    self.values.lock().expect("no panic").push((field("key"), field("value")));
                    "cmd=put_result rc=0 msg=success".into()
                }
                "barrier_in" => {
                    self.barrier.wait();
                    "cmd=barrier_out rc=0".into()
                }
                "get" => {
                    let values = self.values.lock().expect("no panic");
                    let value = values.iter().find(|(key, _)| *key == field("key")).map_or("", |(_, value)| value);
                    format!("cmd=get_result rc=0 msg=success value={value}")
                }
                "finalize" => "cmd=finalize_ack rc=0".into(),
                other => panic!("no command of PMI-1's: {other}"),
            };
            writeln!(&stream, "{answer}").expect("a rank");
            if answer.starts_with("cmd=finalize") {
                return true;
            }
        }
        false
    }
}

/// Starts a rank whose manager is at descriptor 5.
fn start(rank: usize, size: usize, arguments: &[&str]) -> (Child, UnixStream) {
    let (ours, theirs) = UnixStream::pair().expect("sockets");
    let roci = command(arguments);
    let mut shell = Command::new("sh");
    shell.args(["-c", "exec \"$0\" \"$@\" 5<&0 </dev/null"]).arg(roci.get_program()).args(roci.get_args());
    for (name, value) in roci.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    shell.env("PMI_FD", "5").env("PMI_RANK", rank.to_string()).env("PMI_SIZE", size.to_string());
    shell.stdin(OwnedFd::from(theirs)).stdout(Stdio::piped()).stderr(Stdio::piped());
    (shell.spawn().expect("a shell"), ours)
}

#[test]
fn ranks_that_a_process_manager_started_exchange_verified_messages() {
    let _alone = alone();
    const RANKS: usize = 3;
    let manager = Arc::new(Manager { values: Mutex::default(), barrier: Barrier::new(RANKS) });
    let ranks: Vec<_> = (0..RANKS).map(|rank| start(rank, RANKS, &SOAK)).collect();
    let ends: Vec<_> = ranks
        .into_iter()
        .map(|(child, stream)| {
            let manager = manager.clone();
            let serving = thread::spawn(move || manager.serve(stream));
            (child, serving)
        })
        .collect();
    let mut outputs = Vec::new();
    for (child, serving) in ends {
        outputs.push(finish(child).succeeded().stdout);
        assert!(serving.join().expect("no panic"), "it takes leave, or the manager takes its end for a failure");
    }
    let row: Value = serde_json::from_str(&outputs[0]).expect("an object");
    assert_eq!((&row["ranks"], &row["errors"]), (&RANKS.into(), &0.into()), "{row}");
    assert!(outputs[1..].iter().all(String::is_empty), "one rank reports");
}

#[test]
fn a_manager_that_is_none_is_named() {
    let complaint = |name: &str, value: &str| {
        let mut roci = command(&SOAK);
        roci.env("PMI_FD", "5").env("PMI_RANK", "0").env("PMI_SIZE", "1").env(name, value);
        finish(roci.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("roci starts")).failed_with_one_line()
    };
    assert!(complaint("PMI_FD", "77").contains("descriptor 77 of PMI_FD is no open socket"));
    assert!(
        complaint("PMI_FD", "0").contains("descriptor 0 of PMI_FD is no open socket"),
        "standard input is no manager"
    );
    assert!(complaint("PMI_FD", "x").contains("PMI_FD=x is no number"));
    assert!(complaint("PMI_RANK", "1").contains("PMI_RANK=1"));
    // It hangs up.
    let (child, stream) = start(0, 1, &SOAK);
    drop(stream);
    let line = finish(child).failed_with_one_line();
    assert!(line.contains("cannot talk to the process manager"), "{line}");
}

/// A task of a step of Slurm's, with what `srun --mpi=none` sets.
fn task(rank: usize, size: usize, nodes: &str, temporary: &std::path::Path) -> Command {
    let mut roci = command(&SOAK);
    roci.env("SLURM_PROCID", rank.to_string()).env("SLURM_STEP_NUM_TASKS", size.to_string());
    roci.env("SLURM_JOB_ID", "77").env("SLURM_STEP_ID", "3").env("SLURM_STEP_NODELIST", nodes);
    roci.env("TMPDIR", temporary).stdout(Stdio::piped()).stderr(Stdio::piped());
    roci
}

#[test]
fn tasks_of_slurm_on_one_node_meet_without_a_plugin_and_leave_nothing_behind() {
    let _alone = alone();
    let directory = tempfile::tempdir().expect("a directory");
    // The last one first: the board need not be there yet.
    let tasks: Vec<_> = (0..3)
        .rev()
        .map(|rank| {
            let child = task(rank, 3, "node7", directory.path()).spawn().expect("roci starts");
            thread::sleep(std::time::Duration::from_millis(100));
            child
        })
        .collect();
    let outputs: Vec<_> = tasks.into_iter().map(|task| finish(task).succeeded().stdout).collect();
    let row: Value = serde_json::from_str(&outputs[2]).expect("an object");
    assert_eq!((&row["ranks"], &row["errors"]), (&3.into(), &0.into()), "{row}");
    assert_eq!(std::fs::read_dir(directory.path()).expect("a directory").count(), 0);
}

/// The end of its own session is all that a rank alone waits for.
#[test]
fn a_task_alone_leaves_nothing_behind_either() {
    let _alone = alone();
    let directory = tempfile::tempdir().expect("a directory");
    for _ in 0..5 {
        finish(task(0, 1, "node7", directory.path()).spawn().expect("roci starts")).succeeded();
        assert_eq!(std::fs::read_dir(directory.path()).expect("a directory").count(), 0);
    }
}

#[test]
fn tasks_of_slurm_on_several_nodes_need_a_secret() {
    let directory = tempfile::tempdir().expect("a directory");
    let child = task(0, 2, "node[7-8]", directory.path()).spawn().expect("roci starts");
    let line = finish(child).failed_with_one_line();
    assert!(line.contains("export ROCI_TOKEN=$(openssl rand -hex 16)"), "{line}");
    // With one, the board is at the first node, here by the name that this host has for itself.
    let _alone = alone();
    let tasks = [1, 0].map(|rank| {
        let mut task = task(rank, 2, "localhost,node8", directory.path());
        task.env("ROCI_TOKEN", "secret").spawn().expect("roci starts")
    });
    let outputs = tasks.map(|task| finish(task).succeeded().stdout);
    assert!(outputs[1].contains("\"errors\":0"), "{}", outputs[1]);
}
