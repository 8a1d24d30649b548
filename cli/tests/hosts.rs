//! Jobs on several hosts. `env` serves as the remote shell: it runs its command here, so that every host is this one; what is
//! tested is all but the way. scripts/test-launchers has real ones, over ssh.

mod common;

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{Ended, alone, children, command, finish, is_alive, roci};
use serde_json::Value;

/// Words of a job on two hosts.
fn on_two<'a>(arguments: &[&'a str]) -> Vec<&'a str> {
    [&["run", "--remote-shell", "env HOST=%h", "-hosts", "red,blue"], arguments].concat()
}

fn with_input(mut command: Command, input: &'static [u8]) -> Ended {
    let mut job =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("roci starts");
    let mut stdin = job.stdin.take().expect("piped");
    let writer = std::thread::spawn(move || std::io::Write::write_all(&mut stdin, input));
    let ended = finish(job);
    writer.join().expect("no panic").expect("rank 0 reads");
    ended
}

#[test]
fn ranks_of_several_hosts_exchange_verified_messages() {
    let _alone = alone();
    let ended = roci(&on_two(&["-np", "4", "roci", "soak", "--seconds", "1", "--json"])).succeeded();
    let row: Value = serde_json::from_str(&ended.stdout).expect("an object");
    assert_eq!((&row["ranks"], &row["errors"]), (&4.into(), &0.into()), "{row}");
    assert!(row["messages"].as_u64() > Some(100), "{row}");
    let host = on_two(&["-n", "3", "--prefix", "sh", "-c", "echo $HOST $ROCI_RANK/$ROCI_SIZE"]);
    let ended = roci(&host).succeeded();
    let mut lines: Vec<_> = ended.stdout.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["[0] red 0/3", "[1] blue 1/3", "[2] red 2/3"], "the list begins again");
}

#[test]
fn rank_0_elsewhere_reads_the_launchers_input() {
    // More than a chunk, and more than a pipe holds.
    static INPUT: [u8; 300_000] = [b'x'; 300_000];
    let count = on_two(&["-n", "2", "--prefix", "wc", "-c"]);
    let ended = with_input(command(&count), &INPUT).succeeded();
    let mut lines: Vec<_> = ended.stdout.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["[0] 300000", "[1] 0"]);
}

#[test]
fn ranks_run_where_and_with_what_was_asked_for() {
    let words = [
        "-n",
        "2",
        "-x",
        "GIVEN=a b",
        "-x",
        "TAKEN",
        "-wdir",
        "/",
        "sh",
        "-c",
        "echo $GIVEN,$TAKEN,$HIDDEN,$SSH_X,$PWD",
    ];
    let mut job = command(&on_two(&words));
    job.env("TAKEN", "here")
        .env("HIDDEN", "forwarded")
        .env("SSH_X", "stays")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let ended = finish(job.spawn().expect("roci starts")).succeeded();
    // The `remote` shell is a child, and so hands the whole environment on.
    assert_eq!(ended.stdout, "a b,here,forwarded,stays,/\n".repeat(2));
    let line = roci(&["run", "-n", "1", "-x", "NOT_SET_ANYWHERE", "true"]).failed_with_one_line();
    assert!(line.contains("NOT_SET_ANYWHERE is not set here"), "{line}");
    let line = roci(&on_two(&["-n", "2", "-wdir", "/nonexistent", "true"])).failed_with_one_line();
    assert!(line.contains("cannot start ranks on red: cannot enter /nonexistent"), "{line}");
}

#[test]
fn output_goes_to_a_file_of_each_rank() {
    let directory = tempfile::tempdir().expect("a directory");
    let pattern = directory.path().join("out.%r").display().to_string();
    let run = ["-n", "2", "--output", &pattern, "sh", "-c", "echo out $ROCI_RANK; echo err >&2"];
    for arguments in [on_two(&run), [&["run"], &run[..]].concat()] {
        let ended = roci(&arguments).succeeded();
        assert_eq!(ended.stdout, "");
        for rank in 0..2 {
            let text = std::fs::read_to_string(directory.path().join(format!("out.{rank}"))).expect("a file");
            let mut lines: Vec<_> = text.lines().collect();
            lines.sort_unstable();
            assert_eq!(lines, ["err", &format!("out {rank}")]);
        }
    }
    let line = roci(&["run", "-n", "2", "--output", "/tmp/one", "true"]).failed_with_one_line();
    assert!(line.contains("put %r into its name"), "{line}");
    let line = roci(&["run", "-n", "1", "--output", "/nonexistent/file", "true"]).failed_with_one_line();
    assert!(line.contains("cannot write a rank's output: /nonexistent/file"), "{line}");
}

#[test]
fn the_worst_status_of_all_hosts_is_the_jobs() {
    let ended = roci(&on_two(&["-n", "2", "sh", "-c", "exit $((ROCI_RANK + 3))"]));
    assert_eq!(ended.code(), Some(4));
    assert!(
        ended.stderr.contains("rank 0 exited with status 3") && ended.stderr.contains("rank 1 exited with status 4")
    );
    let ended = roci(&on_two(&["-n", "2", "sh", "-c", "[ $ROCI_RANK = 0 ] || kill -9 $$"]));
    assert_eq!(ended.code(), Some(137));
    assert!(ended.stderr.contains("rank 1 was killed by signal 9"), "{}", ended.stderr);
    let ended =
        roci(&on_two(&["-n", "2", "--exit-timeout", "0", "sh", "-c", "[ $ROCI_RANK = 0 ] && exec sleep 600; exit 7"]));
    assert_eq!(ended.code(), Some(7), "a straggler ends: {}", ended.stderr);
}

#[test]
fn a_host_that_cannot_be_used_is_named_with_the_reason() {
    for (shell, reason) in [
        ("false %h", "the remote shell has ended (exit status: 1)"),
        ("echo Welcome to", "the remote shell said 'Welcome to red "),
        ("/nonexistent/shell", "cannot start /nonexistent/shell for red"),
        ("env -u %h true", "the remote shell has ended (exit status: 0)"),
    ] {
        let line = roci(&["run", "--remote-shell", shell, "-hosts", "red", "-n", "1", "true"]).failed_with_one_line();
        assert!(line.contains("red") && line.contains(reason), "{shell}: {line}");
    }
    let line = roci(&on_two(&["-n", "2", "--device", "memif", "true"])).failed_with_one_line();
    assert!(line.contains("device memif joins processes of one host only"), "{line}");
}

/// Whatever becomes of the launcher, its agents end, and their ranks.
#[test]
fn no_rank_of_any_host_outlives_the_launcher() {
    let _alone = alone();
    let mut job = command(&on_two(&["-n", "2", "sh", "-c", "echo x; exec sleep 600"]))
        .stdout(Stdio::piped())
        .spawn()
        .expect("roci starts");
    let mut said = [0; 4];
    job.stdout.take().expect("piped").read_exact(&mut said).expect("both ranks run");
    let agents = children(job.id());
    let ranks: Vec<_> = agents.iter().flat_map(|&agent| children(agent)).collect();
    assert_eq!((agents.len(), ranks.len()), (2, 2));
    job.kill().expect("a child of ours");
    job.wait().expect("a child of ours");
    let is_gone = (0..500).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        !agents.iter().chain(&ranks).any(|&pid| is_alive(pid))
    });
    assert!(is_gone, "agents {agents:?} or ranks {ranks:?} live on");
}

#[test]
fn an_agent_that_is_lost_fails_its_ranks() {
    let _alone = alone();
    let mut job = command(&on_two(&["-n", "2", "--exit-timeout", "0", "sh", "-c", "echo x; exec sleep 600"]))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("roci starts");
    let mut said = [0; 4];
    job.stdout.as_mut().expect("piped").read_exact(&mut said).expect("both ranks run");
    let agents = children(job.id());
    let pid = rustix::process::Pid::from_raw(agents[0].cast_signed()).expect("a process");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("it runs");
    let ended = finish(job);
    assert_eq!(ended.code(), Some(255));
    assert!(ended.stderr.contains(" is lost: the remote shell has ended"), "{}", ended.stderr);
}
