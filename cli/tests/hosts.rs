//! Jobs on several hosts. `env` serves as the remote shell: it runs its command here, so that every host is this one; what is
//! tested is all but the way. scripts/test-launchers has real ones, over ssh.

mod common;

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{Ended, alone, children, command, finish, is_alive, roci, wait_for_processes, wait_for_the_end_of};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::Value;

fn pid_of(process: u32) -> Pid {
    Pid::from_raw(process.cast_signed()).expect("a process")
}

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
    assert!(line.contains("cannot start ranks on ") && line.contains(": cannot enter /nonexistent"), "{line}");
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

/// More than every pipe on the way holds, and a reader that takes its time.
#[test]
fn no_output_is_lost_however_slowly_it_is_read() {
    let _alone = alone();
    let mut job = command(&on_two(&["-n", "8", "--exit-timeout", "0", "seq", "1", "20000"]));
    let mut job = job.stdout(Stdio::piped()).spawn().expect("roci starts");
    let mut out = job.stdout.take().expect("piped");
    std::thread::sleep(Duration::from_secs(1));
    let (mut lines, mut chunk) = (0, [0; 4096]);
    loop {
        let count = out.read(&mut chunk).expect("a pipe");
        if count == 0 {
            break;
        }
        lines += String::from_utf8_lossy(&chunk[..count]).matches('\n').count();
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_eq!((lines, job.wait().expect("a child of ours").code()), (160_000, Some(0)));
}

#[test]
fn a_rank_whose_output_has_no_reader_ends_and_a_full_disk_is_reported() {
    let _alone = alone();
    let mut job = command(&on_two(&["-n", "1", "yes"]))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("roci starts");
    let mut line = [0; 2];
    job.stdout.as_mut().expect("piped").read_exact(&mut line).expect("it writes");
    drop(job.stdout.take());
    assert_eq!(finish(job).code(), Some(141), "SIGPIPE");
    let full = command(&on_two(&["-n", "1", "echo", "hi"]))
        .stdout(std::fs::File::options().write(true).open("/dev/full").expect("a device"))
        .stderr(Stdio::piped())
        .spawn();
    let ended = finish(full.expect("roci starts"));
    assert!(ended.stderr.contains("cannot write the output of rank 0: No space left"), "{}", ended.stderr);
    let line = roci(&on_two(&["-n", "2", "--output", "/nonexistent/%r", "true"])).failed_with_one_line();
    assert!(line.contains("cannot write a rank's output: /nonexistent/0"), "{line}");
}

/// A terminal sends its signals to the whole group: the ranks get them from the launcher, and may end as they like.
#[test]
fn an_interrupt_at_the_terminal_leaves_ranks_time_to_end() {
    let _alone = alone();
    let trap = "trap 'echo cleaned up; exit 3' INT; echo x; while :; do sleep 0.05; done";
    let mut job = command(&on_two(&["-n", "2", "--exit-timeout", "60", "bash", "-c", trap]));
    job.process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut job = job.spawn().expect("roci starts");
    let mut said = [0; 4];
    job.stdout.as_mut().expect("piped").read_exact(&mut said).expect("both ranks run");
    kill_process_group(pid_of(job.id()), Signal::INT).expect("it runs");
    let ended = finish(job);
    assert_eq!(ended.code(), Some(130), "{}", ended.stderr);
    assert_eq!(ended.stdout.matches("cleaned up").count(), 2, "{}", ended.stdout);
}

#[test]
fn a_launcher_ends_whatever_its_hosts_do() {
    let _alone = alone();
    // A shell that never starts anything.
    let shell = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(shell.path(), "exec sleep 600\n").expect("room on the disk");
    let shell_command = format!("sh {}", shell.path().display());
    let mut job = command(&["run", "--remote-shell", &shell_command, "-hosts", "red", "-n", "1", "true"]);
    let job = job.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("roci starts");
    // It knows what to do with a signal before it starts anything.
    wait_for_processes(1, || children(job.id()));
    kill_process(pid_of(job.id()), Signal::TERM).expect("it runs");
    assert_eq!(finish(job).code(), Some(143));
    // An agent that is stopped.
    let mut job = command(&on_two(&["-n", "2", "--exit-timeout", "0", "sh", "-c", "echo x; exec sleep 600"]));
    let mut job = job.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("roci starts");
    let mut said = [0; 4];
    job.stdout.as_mut().expect("piped").read_exact(&mut said).expect("both ranks run");
    let agents = children(job.id());
    kill_process(pid_of(agents[0]), Signal::STOP).expect("it runs");
    kill_process(pid_of(job.id()), Signal::TERM).expect("it runs");
    assert_eq!(finish(job).code(), Some(143));
    assert!(!agents.iter().any(|&agent| is_alive(agent)));
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
    wait_for_the_end_of(&[agents, ranks].concat());
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
    kill_process(pid_of(agents[0]), Signal::KILL).expect("it runs");
    let ended = finish(job);
    assert_eq!(ended.code(), Some(255));
    assert!(ended.stderr.contains(" is lost: the remote shell has ended"), "{}", ended.stderr);
}
