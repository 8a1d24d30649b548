//! The first process of a PID namespace, as in a container: signals end it there, too. It needs namespaces, of root's or of users.

mod common;

use std::io::{self, BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

use common::{alone, children, finish};
use rustix::process::{Pid, Signal, kill_process};

/// Starts it there, or says why not.
fn start(arguments: &[&str]) -> io::Result<Child> {
    let space = ["--user", "--map-root-user", "--pid", "--fork", "--kill-child"];
    let tried = Command::new("unshare").args(space).arg("true").output()?;
    if !tried.status.success() {
        return Err(io::Error::other(String::from_utf8_lossy(&tried.stderr)));
    }
    let mut command = Command::new("unshare");
    command.args(space).arg(env!("CARGO_BIN_EXE_roci")).args(arguments).stdin(Stdio::null());
    common::remove_settings(&mut command);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()
}

/// Waits for a line that has these words, and sends the first process there a signal. Returns the status that it ends with, and
/// what it says after that line.
fn end_by(signal: Signal, words: &str, arguments: &[&str]) -> Option<(Option<i32>, String)> {
    let mut job = match start(arguments) {
        Ok(job) => job,
        Err(reason) => {
            eprintln!("SKIPPED: no PID namespace: {reason}");
            return None;
        }
    };
    let mut said = BufReader::new(job.stderr.take().expect("piped"));
    let mut line = String::new();
    while !line.contains(words) {
        line.clear();
        assert!(said.read_line(&mut line).expect("UTF-8") > 0, "it never says {words:?}");
    }
    let first = *children(job.id()).first().expect("the first process");
    kill_process(Pid::from_raw(first.cast_signed()).expect("a process"), signal).expect("it runs");
    let code = finish(job).code();
    let mut rest = String::new();
    said.read_to_string(&mut rest).expect("UTF-8");
    Some((code, rest))
}

#[test]
fn a_server_ends_by_a_signal() {
    for (signal, status) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129), (Signal::QUIT, 131)] {
        let ended = end_by(signal, "waiting for a client", &["perf", "tag_lat", "--listen", "127.0.0.1:0"]);
        assert!(ended.as_ref().is_none_or(|(code, _)| *code == Some(status)), "{signal:?}: {ended:?}");
    }
}

#[test]
fn a_job_ends_by_a_signal_after_its_ranks() {
    let _alone = alone();
    let rank = "trap 'sleep 0.2; echo asked >&2; exit 7' TERM; echo there >&2; while :; do sleep 0.1; done";
    let ended = end_by(Signal::TERM, "there", &["run", "-n", "1", "--exit-timeout", "60", "sh", "-c", rank]);
    assert!(ended.as_ref().is_none_or(|(code, said)| *code == Some(143) && said.contains("asked")), "{ended:?}");
}
