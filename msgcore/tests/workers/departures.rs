//! A rank goes, well or ill, and the launcher says so: what concerns it ends by name, and the others go on.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use roci_launcher::{Board, Job};
use roci_msgcore::{CallError, DedicatedWorker, Done, OpError, Pattern, Request, Source, Tag, Worker};

use crate::ranks::{PATIENCE, config, run_ranks};

const TAG: Tag = Tag::new(1);
/// Longer than it takes to hear of an end, and to believe it.
const LONG: Duration = Duration::from_secs(4);

fn open(job: Job) -> Worker {
    Worker::open_job(&config(&[]), job).expect("it opens")
}

fn pattern(source: impl Into<Source>) -> Pattern {
    Pattern::new(source, TAG)
}

type Ending = fn(&Board);

const WELL: (Ending, &str) = (|board| board.depart(1, "exited with status 0"), "exited with status 0");
const ILL: (Ending, &str) = (|board| board.fail_rank(1, "exited with status 3"), "exited with status 3");

/// Rank 1 is said to have gone; its link does not show it, because its worker is still there.
fn end_of_wait(end: Ending, wait: fn(&mut Worker, Request) -> Result<Done, OpError>) -> OpError {
    let is_over = Arc::new(AtomicBool::new(false));
    let outcomes = run_ranks(2, move |job, board| {
        let mut worker = open(job);
        if worker.rank() == 1 {
            end(board);
            while !is_over.load(Ordering::Acquire) {
                thread::sleep(Duration::from_millis(10));
            }
            return None;
        }
        let receive = worker.recv_in_place(pattern(1)).expect("accepted");
        let error = wait(&mut worker, receive).map(|done| done.len).expect_err("no rank sends");
        let refusal = worker.send_bytes(1, TAG, b"x").expect_err("it has gone").to_string();
        assert_eq!(refusal, error.to_string());
        is_over.store(true, Ordering::Release);
        Some(error)
    });
    outcomes.into_iter().flatten().next().expect("rank 0's")
}

fn test_until_it_is_over(worker: &mut Worker, request: Request) -> Result<Done, OpError> {
    let start = Instant::now();
    loop {
        worker.progress();
        if let Some(outcome) = worker.test(request) {
            return outcome;
        }
        assert!(start.elapsed() < PATIENCE, "it never looks");
    }
}

#[test]
fn what_needs_a_rank_that_has_gone_ends_in_waits_and_in_tests() {
    for (end, why) in [WELL, ILL] {
        for wait in [Worker::wait as fn(&mut Worker, Request) -> _, test_until_it_is_over] {
            assert_eq!(end_of_wait(end, wait), OpError::PeerLeft { peer: 1.into(), why: why.into() });
        }
    }
}

/// Rank 2 talks to rank 0 only long after rank 1 has failed.
#[test]
fn a_wait_for_a_rank_that_is_well_goes_on_after_another_has_failed() {
    let (fail, why) = ILL;
    // Of a job that has failed, who closes waits for a second only until the others have all that it has sent.
    let has_all = Arc::new(Barrier::new(2));
    run_ranks(3, move |job, board| {
        let mut worker = open(job);
        match worker.rank() {
            0 => {
                let theirs = worker.recv_in_place(pattern(1)).expect("accepted");
                let receive = worker.recv_in_place(pattern(2)).expect("accepted");
                assert_eq!(worker.wait(receive).map(|done| done.len), Ok(4));
                let end = worker.wait(theirs).expect_err("no rank sends");
                assert!(
                    matches!(end, OpError::PeerGone { peer, .. } | OpError::PeerLeft { peer, .. } if peer == 1),
                    "{end}"
                );
                // It may have been from the one that failed.
                let anybodys = worker.recv_in_place(pattern(Source::Any)).expect("accepted");
                let end = worker.wait(anybodys).expect_err("no rank sends");
                assert_eq!(end, OpError::Job(format!("the job has failed: {why}")));
                let probe = worker.wait_probe(pattern(Source::Any)).expect_err("no rank sends");
                assert!(matches!(&probe, CallError::Peer(error) if *error == end), "{probe}");
                let send = worker.send_bytes(2, TAG, b"thanks").expect("accepted");
                worker.wait(send).expect("sent");
                has_all.wait();
                worker.close().expect_err("not all are there");
            }
            1 => fail(board),
            _ => {
                thread::sleep(LONG);
                let send = worker.send_bytes(0, TAG, b"late").expect("accepted");
                worker.wait(send).expect("sent");
                let receive = worker.recv_in_place(pattern(0)).expect("accepted");
                assert_eq!(worker.wait(receive).map(|done| done.len), Ok(6));
                has_all.wait();
                worker.close().expect_err("not all are there");
            }
        }
    });
}

#[test]
fn a_worker_with_a_thread_goes_on_after_a_rank_has_failed() {
    let (fail, why) = ILL;
    // Of a job that has failed, who closes waits for a second only until the others have all that it has sent.
    let has_all = Arc::new(Barrier::new(2));
    run_ranks(3, move |job, board| {
        let rank = job.rank();
        let mut worker = DedicatedWorker::spawn(&config(&[]), job).expect("it opens");
        match rank {
            0 => {
                let anybodys = worker.recv_in_place(Pattern::new(Source::Any, Tag::new(9))).expect("accepted");
                let receive = worker.recv_in_place(pattern(2)).expect("accepted");
                assert_eq!(worker.wait(receive).map(|done| done.len), Ok(4));
                let end = worker.wait(anybodys).expect_err("no rank sends");
                assert_eq!(end, OpError::Job(format!("the job has failed: {why}")));
                has_all.wait();
                worker.close().expect_err("not all are there");
            }
            1 => fail(board),
            _ => {
                thread::sleep(LONG);
                let send = worker.send_bytes(0, TAG, b"late").expect("accepted");
                worker.wait(send).expect("sent");
                has_all.wait();
                worker.close().expect_err("not all are there");
            }
        }
    });
}
