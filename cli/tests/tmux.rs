//! `roci run -debug` inside tmux: each rank has a window, with its environment, and the job ends with its status.

mod common;

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use common::alone;

/// A server of tmux's for this test alone, which ends with it.
struct Tmux(String);

impl Tmux {
    fn start() -> Option<Self> {
        let tmux = Self(format!("roci-test-{}", std::process::id()));
        let made = tmux.command(&["new-session", "-d", "-s", "main", "-x", "200", "-y", "50"]).output();
        made.is_ok_and(|made| made.status.success()).then_some(tmux)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("tmux");
        command.args(["-L", &self.0]).args(arguments).env("TERM", "xterm");
        command
    }

    fn screen(&self) -> String {
        let said = self.command(&["capture-pane", "-t", "main", "-p"]).output().expect("tmux runs");
        String::from_utf8_lossy(&said.stdout).into_owned()
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        let _ = self.command(&["kill-server"]).output();
    }
}

#[test]
fn each_rank_has_a_window_of_its_own() {
    let _alone = alone();
    let Some(tmux) = Tmux::start() else {
        println!("SKIPPED: tmux is not installed, or does not start");
        return;
    };
    let roci = env!("CARGO_BIN_EXE_roci");
    // The debugger is a command that puts two words before the program: rank 1's end is the job's.
    for (program, status) in [("exit 0", 0), ("exit $((ROCI_RANK * 7))", 7)] {
        let line = format!("{roci} run -n 2 -debug --debugger 'env MARK=1' sh -c '{program}'; echo ended=$?");
        tmux.command(&["send-keys", "-t", "main", "clear", "Enter"]).output().expect("tmux runs");
        tmux.command(&["send-keys", "-t", "main", &line, "Enter"]).output().expect("tmux runs");
        let start = Instant::now();
        while !tmux.screen().contains(&format!("ended={status}\n")) {
            assert!(start.elapsed() < Duration::from_mins(1), "{}", tmux.screen());
            thread::sleep(Duration::from_millis(100));
        }
    }
    let windows = tmux.command(&["list-windows", "-t", "main"]).output().expect("tmux runs").stdout;
    assert_eq!(String::from_utf8_lossy(&windows).lines().count(), 1, "the ranks' windows are gone");
}
