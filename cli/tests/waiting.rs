//! Ranks that live and do not answer: they are waited for, and who waits says for whom.

mod common;

use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use common::{Ended, alone, children, command, finish, rank_pid, wait_for_processes};
use rustix::process::{Pid, Signal, kill_process};

const ROCI: &str = env!("CARGO_BIN_EXE_roci");
/// Longer than a peer used to be waited for.
const LONG: Duration = Duration::from_secs(35);

fn start(command: &mut Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("roci starts")
}

fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid.cast_signed()).expect("a process"), signal).expect("it is there");
}

fn has_said(ended: &Ended, words: &[&str]) -> bool {
    ended.stderr.lines().any(|line| words.iter().all(|word| line.contains(word)))
}

#[track_caller]
fn says(ended: &Ended, words: &[&str]) {
    assert!(has_said(ended, words), "no line has {words:?}: {}", ended.stderr);
}

/// One rank is stopped in traffic; one of another job begins late. Both are waited for.
#[test]
fn ranks_that_stand_still_are_named_and_waited_for() {
    let _alone = alone();
    let late = format!("[ $ROCI_RANK = 0 ] || sleep 35; exec {ROCI} soak --seconds 1");
    let late = start(&mut command(&["run", "-n", "2", "sh", "-c", &late]));
    let job = start(&mut command(&["run", "-n", "2", "roci", "soak", "--seconds", "30"]));
    // A busy machine takes its time to connect them. It is stopped before the time is over, and goes on after that.
    sleep(Duration::from_secs(4));
    let ranks = [0, 1].map(|rank| rank_pid(job.id(), rank));
    signal(ranks[1], Signal::STOP);
    sleep(LONG / 2);
    // To the rank, and to all of them.
    signal(ranks[0], Signal::USR1);
    signal(job.id(), Signal::USR1);
    sleep(LONG / 2);
    signal(ranks[1], Signal::CONT);
    let job = finish(job).succeeded();
    for seconds in ["5 s", "10 s", "20 s"] {
        // Half of the traffic is received from any source.
        let is_said = ["rank 1", "anybody"].iter().any(|whom| has_said(&job, &["rank 0 has waited", seconds, whom]));
        assert!(is_said, "{seconds}: {}", job.stderr);
    }
    says(&job, &["rank 0 of 2:", "requests under way"]);
    says(&job, &["rank 1 of 2:", "requests under way"]);
    says(&job, &["rank 1: connected", "credits"]);
    let late = finish(late).succeeded();
    says(&late, &["rank 0 has waited 5 s", "not in the job yet: rank 1"]);
}

#[test]
fn a_signal_that_asks_for_a_report_ends_nothing_behind_a_shell_either() {
    let _alone = alone();
    let shell = format!("{ROCI} soak --seconds 4; exit $?");
    let job = start(&mut command(&["run", "-n", "2", "sh", "-c", &shell]));
    // It knows what to do with a signal before it starts anything; a rank is asked once it has joined.
    wait_for_processes(2, || children(job.id()));
    (0..30).for_each(|_| {
        signal(job.id(), Signal::USR1);
        sleep(Duration::from_millis(100));
    });
    let job = finish(job).succeeded();
    says(&job, &["rank 0 of 2:"]);
    says(&job, &["rank 1 of 2:"]);
}
