//! Several ranks in one process, each on a thread of its own, over real memif ports: workers that live on those
//! threads, and workers that have threads of their own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use roci_msgcore::{
    Buffer, DedicatedWorker, Done, Dropped, OpError, Pattern, Rank, SendOptions, Source, Tag, TagMatch, Worker,
};

use crate::ranks::{Member, PATIENCE, config, run_ranks};

const RANKS: usize = 4;
const ROUNDS: u64 = 3;
/// Eager in one vbuf; R3, RGET and PIPELINE by the thresholds of [`MIXED`].
const SIZES: [usize; 6] = [0, 8, 4_000, 20_000, 300_001, (1 << 20) + 3];
const MIXED: &[(&str, &str)] =
    &[("cma", "off"), ("r3_threshold", "64KiB"), ("pipeline_threshold", "1MiB"), ("pipeline_chunk", "256KiB")];
const RPUT: &[(&str, &str)] = &[("rndv_protocol", "rput")];
const DATA: Tag = Tag::new(1);
const LONG: usize = 4 << 20;
/// Progress calls after which what has not happened is not going to.
const CALLS: usize = 2_000;

/// A byte of the message from a rank to another one.
fn byte(at: usize, from: Rank, to: Rank, round: u64) -> u8 {
    (at * 31 + at / 251 + from * 101 + to * 59) as u8 ^ (round as u8).wrapping_mul(77)
}

fn filled(worker: &impl Member, to: Rank, len: usize, round: u64) -> Buffer {
    let mut payload = worker.memory(len);
    let from = worker.rank();
    payload.iter_mut().enumerate().for_each(|(at, slot)| *slot = byte(at, from, to, round));
    payload
}

fn check(done: &Done, len: usize, to: Rank, round: u64) {
    assert_eq!(done.len, len);
    let wrong = done.buffer[..len].iter().enumerate().find(|&(at, &got)| got != byte(at, done.peer.slot(), to, round));
    assert_eq!(wrong, None, "{len} bytes from {} to {to} in round {round}", done.peer);
}

/// Every rank sends messages of all sizes to every other one, at once.
fn all_to_all(worker: &mut impl Member) {
    let us = worker.rank();
    let peers: Vec<Rank> = (0..RANKS).filter(|&peer| peer != us).collect();
    for round in 0..ROUNDS {
        let (mut receives, mut sends) = (Vec::new(), Vec::new());
        for (tag, &len) in (0..).map(Tag::new).zip(&SIZES) {
            for &peer in &peers {
                let room = worker.memory(len);
                receives.push((len, peer, worker.recv(peer, tag, room).expect("accepted")));
                let payload = filled(worker, peer, len, round);
                sends.push(worker.send(peer.into(), tag, payload).expect("accepted"));
            }
        }
        for (len, peer, receive) in receives {
            let done = worker.wait(receive).expect("it came");
            assert_eq!(done.peer, peer);
            check(&done, len, us, round);
        }
        for send in sends {
            worker.wait(send).expect("sent");
        }
    }
}

fn ranks_exchange_all_sizes<W: Member>() {
    let peers = RANKS as u64 - 1;
    run_ranks(RANKS, move |job, _| {
        let mut worker = W::join(&config(MIXED), job).expect("it opens");
        all_to_all(&mut worker);
        let stats = worker.counters();
        let fallback = stats.fallback_credit + stats.fallback_registration;
        assert_eq!((stats.tx_rget, stats.tx_pipeline), (ROUNDS * peers, ROUNDS * peers), "{stats:?}");
        assert_eq!((stats.tx_r3, stats.tx_eager), (ROUNDS * peers + fallback, 3 * ROUNDS * peers - fallback));
        assert_eq!(worker.close().expect("all are there"), Dropped::default());
    });
    run_ranks(RANKS, move |job, _| {
        let mut worker = W::join(&config(&[]), job).expect("it opens");
        all_to_all(&mut worker);
        let stats = worker.counters();
        assert!((1..=3 * ROUNDS * peers).contains(&stats.tx_cma), "{stats:?}");
        assert_eq!(worker.close().expect("all are there"), Dropped::default());
    });
    run_ranks(RANKS, move |job, _| {
        let mut worker = W::join(&config(RPUT), job).expect("it opens");
        all_to_all(&mut worker);
        assert_eq!(worker.counters().tx_rput, 3 * ROUNDS * peers);
        assert_eq!(worker.close().expect("all are there"), Dropped::default());
    });
}

#[test]
fn four_ranks_on_four_threads_exchange_every_byte_by_every_protocol() {
    ranks_exchange_all_sizes::<Worker>();
}

#[test]
fn four_ranks_with_engines_of_their_own_exchange_every_byte_by_every_protocol() {
    ranks_exchange_all_sizes::<DedicatedWorker>();
}

/// Computes, and makes no call, until the other thread says so.
fn compute_until(is_so: &AtomicBool, what: &str) {
    let start = Instant::now();
    while !is_so.load(Ordering::Acquire) {
        std::hint::spin_loop();
        assert!(start.elapsed() < PATIENCE, "never: {what}");
    }
}

/// Rank 1 posts its half of a long message and computes until rank 0's half is over.
fn overlap(rank_1_receives: bool) {
    let is_over = Arc::new(AtomicBool::new(false));
    run_ranks(2, move |job, _| {
        if job.rank() == 0 {
            let mut worker = Worker::open_job(&config(&[]), job).expect("it opens");
            let ours = if rank_1_receives {
                let payload = filled(&worker, 1, LONG, 0);
                worker.send(1, DATA, payload)
            } else {
                worker.recv(1, DATA, worker.buffer(LONG).expect("memory"))
            };
            let done = worker.wait(ours.expect("accepted")).expect("rank 1's engine serves it");
            is_over.store(true, Ordering::Release);
            if !rank_1_receives {
                check(&done, LONG, 0, 0);
            }
            worker.close().expect("both are there");
        } else {
            let mut worker = DedicatedWorker::spawn(&config(&[]), job).expect("it opens");
            let ours = if rank_1_receives {
                worker.recv(0, DATA, worker.buffer(LONG).expect("memory"))
            } else {
                let payload = filled(&worker, 0, LONG, 0);
                worker.send(0, DATA, payload)
            };
            compute_until(&is_over, "rank 0's half is over");
            let done = worker.wait(ours.expect("accepted")).expect("it is over at the other side");
            if rank_1_receives {
                check(&done, LONG, 1, 0);
            }
            worker.close().expect("both are there");
        }
    });
}

#[test]
fn a_long_message_is_fetched_while_its_receiver_computes() {
    overlap(true);
}

#[test]
fn a_long_message_is_read_from_its_sender_while_that_computes() {
    overlap(false);
}

/// The counterpart of the two above: what they show is the engine's doing.
#[test]
fn without_an_engine_of_its_own_a_long_message_waits_for_the_receivers_next_call() {
    let has_waited = Arc::new(AtomicBool::new(false));
    run_ranks(2, move |job, _| {
        let mut worker = Worker::open_job(&config(&[]), job).expect("it opens");
        if worker.rank() == 0 {
            let payload = filled(&worker, 1, LONG, 0);
            let send = worker.send(1, DATA, payload).expect("accepted");
            for _ in 0..CALLS {
                worker.progress();
                thread::yield_now();
            }
            assert!(worker.test(send).is_none(), "rank 1 makes no call");
            has_waited.store(true, Ordering::Release);
            worker.wait(send).expect("rank 1 calls");
        } else {
            let buffer = worker.buffer(LONG).expect("memory");
            let receive = worker.recv(0, DATA, buffer).expect("accepted");
            compute_until(&has_waited, "rank 0 has made its calls");
            assert!(worker.test(receive).is_none(), "no call has made progress here");
            check(&worker.wait(receive).expect("it comes now"), LONG, 1, 0);
        }
        worker.close().expect("both are there");
    });
}

#[test]
fn a_dropped_handle_is_a_rank_that_has_gone() {
    run_ranks(2, move |job, _| {
        let mut worker = DedicatedWorker::spawn(&config(&[]), job).expect("it opens");
        if worker.rank() == 0 {
            let receive = worker.recv_in_place(Pattern::new(1, DATA)).expect("accepted");
            let error = worker.wait(receive).expect_err("no rank sends");
            assert!(matches!(error, OpError::PeerGone { peer, .. } if peer == 1), "{error}");
        }
    });
}

/// Every call of MPI's point-to-point layer that has its own way to the engine: probes that wait, claims, eager sends that are
/// taken back when they have left, buffered sends with a request, requests that are left alone.
fn every_call_has_its_meaning<W: Member>() {
    run_ranks(2, move |job, _| {
        let mut worker = W::join(&config(&[]), job).expect("it opens");
        let anything = Pattern::new(Source::Any, TagMatch::Any);
        let pattern = Pattern::new(1 - worker.rank(), Tag::new(5));
        if worker.rank() == 0 {
            let send = worker.send_bytes(1.into(), Tag::new(5), b"probed").expect("accepted");
            assert!(!worker.wait(send).expect("sent").is_cancelled);
            // It is over, and rank 1 does not receive: that one gives it back.
            let send = worker.send_bytes(1.into(), Tag::new(6), b"taken back").expect("accepted");
            worker.barrier().expect("both are here");
            worker.cancel(send);
            assert!(worker.wait(send).expect("it ends").is_cancelled);
            let buffered = worker.send_buffered(1.into(), Tag::new(7), &vec![7; LONG], SendOptions::default());
            let detached =
                worker.send_buffered(1.into(), Tag::new(8), &vec![8; LONG], SendOptions::default()).expect("room");
            worker.detach(detached);
            worker.barrier().expect("both are here");
            assert_eq!(worker.wait(buffered.expect("room")).expect("sent").len, LONG);
            assert_eq!(worker.wait(detached).expect_err("it was left alone"), OpError::NoRequest);
        } else {
            assert_eq!(worker.wait_probe(pattern).expect("it comes").len, 6);
            let message = worker.wait_claim(pattern).expect("it comes");
            let buffer = worker.memory(6);
            let receive = worker.recv_message(message, buffer).expect("accepted");
            assert_eq!(*worker.wait(receive).expect("it fits").buffer, *b"probed");
            worker.barrier().expect("both are here");
            for (tag, byte) in [(7, 7), (8, 8)] {
                let buffer = worker.memory(LONG);
                let receive = worker.recv(0, Tag::new(tag), buffer).expect("accepted");
                let done = worker.wait(receive).expect("it comes");
                assert!(done.buffer.iter().all(|&each| each == byte));
            }
            assert_eq!(worker.probe(anything).expect("it lives"), None, "one was taken back");
            worker.barrier().expect("both are here");
        }
        assert_eq!(worker.close().expect("both close"), Dropped::default());
    });
}

#[test]
fn every_call_of_a_worker_has_its_meaning() {
    every_call_has_its_meaning::<Worker>();
}

#[test]
fn every_call_of_a_dedicated_worker_has_its_meaning() {
    every_call_has_its_meaning::<DedicatedWorker>();
}
