//! A limit of descriptors that is too low is said before anything starts, with the one that will do.

mod common;

use std::process::{Command, Stdio};

use common::{Ended, alone, finish};

const ROCI: &str = env!("CARGO_BIN_EXE_roci");

/// A job in a shell; the limits stand in front of the launcher and of the ranks.
fn job(device: &str, launcher: &str, ranks: &str) -> Ended {
    let line = format!(
        "ulimit -S -n {launcher}; exec {ROCI} run --device {device} -n 2 sh -c 'ulimit -S -n {ranks}; exec {ROCI} soak --seconds 1'"
    );
    let mut shell = Command::new("sh");
    shell.args(["-c", &line]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    common::remove_settings(&mut shell);
    finish(shell.spawn().expect("a shell"))
}

/// The highest limit that an error has asked for.
fn wanted(ended: &Ended) -> Option<usize> {
    let words = ended.stderr.split("ulimit -n ").skip(1);
    words.filter_map(|rest| rest.lines().next()?.trim().parse().ok()).max()
}

#[test]
fn ranks_that_may_open_too_few_say_how_many_they_need_and_that_suffices() {
    let _alone = alone();
    for device in ["memif", "vhost"] {
        for limit in [6, 12, 16] {
            let ended = job(device, "1024", &limit.to_string());
            assert_eq!(ended.code(), Some(1), "{device} {limit}: {}", ended.stderr);
            assert!(wanted(&ended).is_some_and(|wanted| wanted > limit), "{device} {limit}: {}", ended.stderr);
        }
        // Each rank names its own need, and the first to fail may be the more modest.
        let mut limit = 16;
        for _ in 0..4 {
            let ended = job(device, "1024", &limit.to_string());
            let Some(more) = wanted(&ended) else {
                ended.succeeded();
                break;
            };
            assert!(more > limit, "{device}: {limit} were asked for and are too few: {}", ended.stderr);
            limit = more;
        }
    }
}

#[test]
fn a_launcher_that_may_open_too_few_says_how_many_it_needs_and_that_suffices() {
    let _alone = alone();
    for limit in [6, 9, 12] {
        let line = job("memif", &limit.to_string(), "1024").failed_with_one_line();
        assert!(line.starts_with("roci: for a job of 2 ranks: "), "{line}");
    }
    let wanted = wanted(&job("memif", "12", "1024")).expect("a number");
    job("memif", &wanted.to_string(), "1024").succeeded();
}
