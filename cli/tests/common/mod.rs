//! What the tests of the command share.
#![allow(dead_code, unreachable_pub)] // each test binary uses its part

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// No test's command runs longer: a hang is a failure, not a stuck suite.
const LIMIT: Duration = Duration::from_mins(2);

/// What a command left.
pub struct Ended {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    pub fn code(&self) -> Option<i32> {
        self.status.code()
    }

    #[track_caller]
    pub fn succeeded(self) -> Self {
        assert!(self.status.success(), "{}\nstdout: {}\nstderr: {}", self.status, self.stdout, self.stderr);
        self
    }

    /// It failed with exactly one line on stderr, which is returned.
    #[track_caller]
    pub fn failed_with_one_line(self) -> String {
        assert!(!self.status.success(), "it should have failed\nstdout: {}", self.stdout);
        let lines: Vec<_> = self.stderr.lines().collect();
        assert_eq!(lines.len(), 1, "one line on stderr: {lines:#?}");
        assert!(lines[0].starts_with("roci: "), "{}", lines[0]);
        lines[0].to_owned()
    }
}

/// Jobs fill the machine: one at a time.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

pub fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_roci"));
    command.args(arguments).stdin(Stdio::null());
    remove_settings(&mut command);
    command
}

/// Takes away whatever was set where the tests run.
pub fn remove_settings(command: &mut Command) {
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("ROCI_")) {
        command.env_remove(name);
    }
}

pub fn roci(arguments: &[&str]) -> Ended {
    finish(command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("roci starts"))
}

/// Waits for the end of a command whose output is piped.
pub fn finish(mut child: Child) -> Ended {
    let stdout = read_all(child.stdout.take());
    let stderr = read_all(child.stderr.take());
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("a child of ours") {
            break status;
        }
        if start.elapsed() > LIMIT {
            child.kill().expect("a child of ours");
            panic!("the command hangs");
        }
        thread::sleep(Duration::from_millis(5));
    };
    let text = |reader: thread::JoinHandle<String>| reader.join().expect("no panic");
    Ended { status, stdout: text(stdout), stderr: text(stderr) }
}

fn read_all(pipe: Option<impl std::io::Read + Send + 'static>) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            pipe.read_to_end(&mut bytes).expect("a readable pipe");
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// The processes that a process has started, and that have not ended.
pub fn children(pid: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>()).collect()
}

/// Looks until there is something to see: a busy machine takes its time.
pub fn wait_for<T>(what: &str, look: impl Fn() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(start.elapsed() < LIMIT, "never: {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// So many processes that `list` finds, as soon as there are.
pub fn wait_for_processes(count: usize, list: impl Fn() -> Vec<u32>) -> Vec<u32> {
    wait_for("so many processes", || Some(list()).filter(|found| found.len() == count))
}

/// Waits until none of these is alive.
pub fn wait_for_the_end_of(processes: &[u32]) {
    wait_for("the end of all", || (!processes.iter().any(|&process| is_alive(process))).then_some(()));
}

/// The process of a rank that a launcher has started, or starts soon.
pub fn rank_pid(launcher: u32, rank: usize) -> u32 {
    let is_rank = |pid: &u32| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let wanted = format!("ROCI_RANK={rank}");
        environment.split(|&byte| byte == 0).any(|variable| variable == wanted.as_bytes())
    };
    wait_for("the rank runs", || children(launcher).into_iter().find(is_rank))
}

/// Whether a process exists and is no zombie.
pub fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

pub fn vector(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../protocol/tests/vectors/rxe").join(name)
}

/// An example of another crate, built afresh: a stale one would not know this launcher.
pub fn example(name: &str) -> PathBuf {
    static BUILT: Once = Once::new();
    let target = Path::new(env!("CARGO_BIN_EXE_roci")).parent().expect("a directory");
    BUILT.call_once(|| {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--quiet", "--workspace", "--examples"]);
        if target.ends_with("release") {
            cargo.arg("--release");
        }
        let built = cargo.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("..")).status();
        assert!(built.is_ok_and(|status| status.success()), "the examples do not build");
    });
    target.join("examples").join(name)
}
