//! Who is no rank of a job gets nowhere near it, and needs none to speak with others like it.

mod common;

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use common::{alone, command, finish};
use rustix::process::geteuid;

/// A user id that is not this user's.
const OTHER_USER: u32 = 65_534;

#[test]
fn only_this_user_may_enter_a_jobs_directory_whatever_the_umask() {
    let _alone = alone();
    let roci = env!("CARGO_BIN_EXE_roci");
    let line = format!("umask 000; exec {roci} run -n 1 sh -c 'stat -c %a $(dirname $ROCI_JOB)'");
    let started = Command::new("sh").args(["-c", &line]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    assert_eq!(finish(started.expect("a shell")).succeeded().stdout, "700\n");
}

/// Not through the directory, nor at the socket once the directory is open.
#[test]
fn another_user_is_kept_out_and_the_job_goes_on() {
    if !geteuid().is_root() {
        eprintln!("skipped: only root can be another user for a moment");
        return;
    }
    let _alone = alone();
    let script = "echo $ROCI_JOB $ROCI_TOKEN; read line; echo $line";
    let mut job = command(&["run", "-n", "1", "sh", "-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("roci starts");
    let mut output = BufReader::new(job.stdout.take().expect("piped"));
    let mut line = String::new();
    output.read_line(&mut line).expect("the rank says where it is");
    let (socket, token) = line.trim().split_once(' ').expect("two words");

    // Where the other user can run it.
    let directory = tempfile::tempdir_in("/tmp").expect("a directory");
    let program = directory.path().join("roci");
    fs::copy(env!("CARGO_BIN_EXE_roci"), &program).expect("room on the disk");
    open_to_all(directory.path());
    let knock = || {
        let mut other = Command::new(&program);
        other.arg("exchange").env("ROCI_JOB", socket).env("ROCI_TOKEN", token).env("ROCI_RANK", "0");
        other.env("ROCI_SIZE", "1").env("ROCI_CONNECT_TIMEOUT_S", "5").uid(OTHER_USER).gid(OTHER_USER);
        other.current_dir("/").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        finish(other.spawn().expect("it starts")).failed_with_one_line()
    };
    assert!(knock().contains("Permission denied"));
    let home = Path::new(socket).parent().expect("a directory");
    open_to_all(home);
    open_to_all(Path::new(socket));
    let said = knock();
    assert!(said.contains("the launcher refuses rank 0: the job is another user's"), "{said}");

    writeln!(job.stdin.take().expect("piped"), "well").expect("the rank reads");
    line.clear();
    output.read_line(&mut line).expect("the rank is well");
    assert_eq!(line, "well\n");
    finish(job).succeeded();
}

fn open_to_all(path: &Path) {
    fs::set_permissions(path, Permissions::from_mode(0o777)).expect("it is ours");
}

/// Processes of a user without any rights, which know each other's addresses from a directory: over sockets alone, and with a port of
/// shared memory for those that find out that they are on one host.
#[test]
fn strangers_without_rights_send_to_all_without_a_launcher() {
    const COUNT: usize = 3;
    let _alone = alone();
    for local in ["off", "memif"] {
        let directory = tempfile::tempdir_in("/tmp").expect("a directory");
        let program = directory.path().join("all_to_all");
        fs::copy(common::example("all_to_all"), &program).expect("room on the disk");
        open_to_all(directory.path());
        let start = |number: usize| {
            let mut stranger = Command::new("sh");
            stranger.args(["-c", "ulimit -l 64; exec ./all_to_all . $0 $1", &number.to_string(), &COUNT.to_string()]);
            common::remove_settings(&mut stranger);
            stranger.env("ROCI_DEVICE", format!("udp:127.0.0.{}", number + 1)).env("ROCI_LOCAL", local);
            stranger.env("ROCI_ARENA_SIZE", "128MiB").env("ROCI_FAULTS", "loss=0.02,dup=0.02,corrupt=0.01,seed=5");
            if geteuid().is_root() {
                stranger.uid(OTHER_USER).gid(OTHER_USER);
            }
            stranger.current_dir(directory.path()).stdin(Stdio::null());
            stranger.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a shell")
        };
        let running: Vec<_> = (0..COUNT).map(start).collect();
        for (number, ended) in running.into_iter().map(finish).enumerate() {
            assert_eq!(
                ended.succeeded().stdout.trim(),
                format!("process {number} of {COUNT}: 200 messages"),
                "{local}"
            );
        }
    }
}
