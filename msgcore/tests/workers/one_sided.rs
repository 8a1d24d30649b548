//! One-sided operations and active messages between ranks that run on threads of their own, over real memif ports that lose frames,
//! with workers of both kinds: what blocks, and what all ranks do together.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use roci_msgcore::active::{ActiveMessages as _, HandlerId};
use roci_msgcore::collectives::Collectives as _;
use roci_msgcore::one_sided::{
    AccessRegion, AtomicOp, AtomicWidth, NonContiguous as _, OneSided as _, RemoteAccess, RemoteAddress, SegmentKey,
    Signal,
};
use roci_msgcore::{CallError, DedicatedWorker, OpError, Source, Worker};

use crate::ranks::{Member, PATIENCE, config, run_ranks};

const LOSSY: (&str, &str) = ("faults", "loss=0.01,dup=0.01,reorder=0.01,seed=3");

/// What a pair of peers can do: RDMA, gets that the target answers, messages alone.
const MEANS: [&[(&str, &str)]; 3] = [&[LOSSY], &[LOSSY, ("rdma_gets", "off")], &[LOSSY, ("rdma", "off")]];

fn bytes(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 13 + seed * 29 + at / 256) as u8).collect()
}

/// Every rank writes to the next one and reads what it has written, in all forms.
fn everything_blocking<W: Member>() {
    const SEGMENT: usize = 1 << 20;
    const SIGNAL: usize = 900_000;
    for knobs in MEANS {
        run_ranks(3, move |job, _| {
            let mut worker = W::join(&config(knobs), job).expect("it opens");
            let (rank, next) = (worker.rank(), (worker.rank() + 1) % 3);
            let segment = worker.expose(worker.memory(SEGMENT)).expect("a key");
            worker.write_segment(segment, 0, &vec![0; SEGMENT]).expect("it is there");
            let theirs = worker.gather_keys(segment).expect("all are here")[next];
            worker.barrier().expect("all are here");

            for (round, len) in [0, 1, 8, 4095, 8192, 100_001].into_iter().enumerate() {
                let sent = bytes(len, round);
                worker.put_blocking(next, &sent, theirs.at(round)).expect("it arrives");
                let mut got = vec![0; len];
                worker.get_blocking(next, &mut got, theirs.at(round)).expect("it comes");
                assert!(got == sent, "{knobs:?}: {len} bytes");
            }
            worker.put_value(next, 77, theirs.at(8)).expect("accepted");
            worker.flush(Some(next.into()), PATIENCE).expect("it arrives");
            assert_eq!(worker.get_value(next, theirs.at(8)).expect("it comes"), 77);
            for number in 0..100 {
                assert_eq!(worker.fetch(next, AtomicOp::Add(2), theirs.at(8)).expect("it comes"), 77 + 2 * number);
            }
            worker.atomic_nbi(next, AtomicOp::Xor(u64::MAX), theirs.at(8)).expect("accepted");
            worker.fence(next).expect("it is there");
            assert_eq!(worker.fetch(next, AtomicOp::Swap(0), theirs.at(8)).expect("it comes"), !277);
            strided(&mut worker, next, theirs.at(200_000));
            assert!(worker.get_blocking(next, &mut [0; 9], theirs.at(SEGMENT - 8)).is_err());

            // A ring of signals: each waits for the one before it.
            let signal = |worker: &mut W, value| {
                let put = worker.put_with(
                    next.into(),
                    worker.memory(64),
                    theirs.at(SIGNAL - 64),
                    Some((value, theirs.at(SIGNAL))),
                );
                let put = put.expect("accepted");
                worker.wait(put).expect("it arrives");
            };
            for round in 1..=20 {
                if rank == 0 {
                    signal(&mut worker, Signal::Add(1));
                }
                assert_eq!(
                    worker.wait_for_at_least(((rank + 2) % 3).into(), segment, SIGNAL, round).expect("it comes"),
                    round
                );
                if rank > 0 {
                    signal(&mut worker, Signal::Add(1));
                }
            }
            worker.close().expect("all close");
        });
    }
}

fn strided<W: Member>(worker: &mut W, next: usize, at: RemoteAddress) {
    let sent = bytes(1000, 5);
    worker.put_strided(next, &sent, at, 30, 47).expect("accepted");
    worker.flush(None, PATIENCE).expect("it arrives");
    let mut all = vec![0; 34 * 47];
    worker.get_blocking(next, &mut all, at).expect("it comes");
    for (index, block) in sent.chunks(30).enumerate() {
        let there = &all[index * 47..];
        assert!(
            there[..block.len()] == *block && there[block.len()..47].iter().all(|&byte| byte == 0),
            "block {index}"
        );
    }
    let mut got = vec![0; 1000];
    worker.get_strided(next, &mut got, at, 30, 47).expect("it comes");
    assert!(got == sent);
    let pieces = [(&sent[..10], at.plus(5000)), (&sent[10..10], at), (&sent[10..500], at.plus(6000))];
    worker.put_indexed(next, &pieces).expect("accepted");
    worker.flush(None, PATIENCE).expect("it arrives");
    let (mut first, mut second) = ([0; 10], [0; 490]);
    let pieces = vec![(&mut second[..], at.plus(6000)), (&mut first[..], at.plus(5000))];
    worker.get_indexed(next, pieces).expect("it comes");
    assert!(first[..] == sent[..10] && second[..] == sent[10..500]);
    let mut region = AccessRegion::default();
    for index in 0..50_usize {
        region.get(worker, next, worker.memory(8), at.plus(index * 47)).expect("accepted");
    }
    region.atomic(worker, next, AtomicOp::Or(0), at).expect("accepted");
    assert_eq!((region.len(), region.is_empty()), (51, false));
    let outcomes = region.wait(worker).expect("all end well");
    assert_eq!(outcomes[50].data, Some(u64::from_ne_bytes(sent[..8].try_into().expect("8"))));
    assert!(outcomes[..33].iter().zip(sent.chunks(30)).all(|(done, block)| done.buffer[..] == block[..8]));
}

#[test]
fn every_form_of_every_operation_between_ranks() {
    everything_blocking::<Worker>();
}

#[test]
fn every_form_of_every_operation_between_ranks_with_threads() {
    everything_blocking::<DedicatedWorker>();
}

/// Every rank offers more than firehoses lead to, and all read and write it, each its own part.
fn all_reach_what_is_offered<W: Member>() {
    const PART: usize = 2 << 20;
    for knobs in MEANS {
        run_ranks(3, move |job, _| {
            let firehoses = [("firehose_bucket", "4KiB"), ("firehose_m", "1"), ("firehose_maxvictim_m", "1")];
            let mut worker = W::join(&config(&[knobs, &firehoses].concat()), job).expect("it opens");
            let rank = worker.rank();
            let offer = worker.offer(vec![0; 3 * PART].leak().into()).expect("keys are left");
            let theirs = worker.gather_keys(offer).expect("all are here");
            let mut expected = vec![vec![0; PART]; 3];
            let mut at = rank + 1;
            for round in 0..300 {
                at = (at * 1_103_515_245 + 12_345) % (PART - 10_000);
                let (owner, len) = ((rank + round) % 3, [1, 100, 4096, 9000][round % 4]);
                let sent = bytes(len, round);
                worker.put_blocking(owner, &sent, theirs[owner].at(rank * PART + at)).expect("it arrives");
                expected[owner][at..at + len].copy_from_slice(&sent);
                let from = at.saturating_sub(500);
                let mut got = vec![0; len];
                worker.get_blocking(owner, &mut got, theirs[owner].at(rank * PART + from)).expect("it comes");
                assert!(got == expected[owner][from..from + len], "{knobs:?}: round {round}, {len} bytes");
            }
            for (owner, expected) in expected.iter().enumerate() {
                let mut all = vec![0; PART];
                worker.get_blocking(owner, &mut all, theirs[owner].at(rank * PART)).expect("it comes");
                assert!(all == *expected, "{knobs:?}: what {rank} has written at {owner}");
            }
            worker.barrier().expect("all are here");
            let stats = worker.firehose_stats().expect("it lives");
            assert!(stats.replaced > 500 && stats.repins + stats.unpins > 500, "{stats:?}");
            worker.close().expect("all close");
        });
    }
}

#[test]
fn offers_between_ranks_are_exact_by_all_means() {
    all_reach_what_is_offered::<Worker>();
}

#[test]
fn offers_between_ranks_are_exact_by_all_means_with_threads() {
    all_reach_what_is_offered::<DedicatedWorker>();
}

/// A rank waits for a key that another can publish only once it was served by the one that waits.
fn keys_travel_by_name<W: Member>() {
    run_ranks(3, move |job, _| {
        let mut worker = W::join(&config(&[("wireup", "lazy")]), job).expect("it opens");
        let segment = worker.expose(worker.memory(64)).expect("a key");
        worker.write_segment(segment, 0, &[worker.rank() as u8; 64]).expect("it is there");
        let rank = worker.rank();
        if rank == 0 {
            worker.publish_key("first", segment.key()).expect("room");
            assert!(matches!(worker.publish_key("first", segment.key()), Err(CallError::Peer(OpError::Job(_)))));
        } else if rank == 1 {
            let first = worker.find_key("first").expect("it is published");
            assert_eq!(worker.get_value(0, first.at(8)).expect("it comes"), 0);
            worker.publish_key("second/äöü", segment.key()).expect("room");
        }
        let second = worker.find_key("second/äöü").expect("it is published");
        assert_eq!(worker.get_value(1, second.at(8)).expect("it comes"), 0x0101_0101_0101_0101);
        for bad in ["", "two words", "a\nb", &"x".repeat(201)] {
            assert!(matches!(worker.find_key(bad), Err(CallError::BadName(_))), "{bad:?}");
            assert!(matches!(worker.publish_key(bad, segment.key()), Err(CallError::BadName(_))), "{bad:?}");
        }
        worker.close().expect("all close");
    });
}

#[test]
fn keys_travel_by_name_while_all_are_served() {
    keys_travel_by_name::<Worker>();
    keys_travel_by_name::<DedicatedWorker>();
}

/// All ranks count on one number of rank 0's, by RDMA and by message at once.
fn all_count<W: Member>() {
    const EACH: u64 = 500;
    run_ranks(3, move |job, _| {
        let knobs: &[(&str, &str)] = if job.rank() == 2 { &[LOSSY, ("rdma", "off")] } else { &[LOSSY] };
        let mut worker = W::join(&config(knobs), job).expect("it opens");
        let segment = worker.expose(worker.memory(64)).expect("a key");
        worker.write_segment(segment, 0, &[0; 64]).expect("it is there");
        let counter = worker.gather_keys(segment).expect("all are here")[0];
        worker.barrier().expect("all are here");
        for _ in 0..EACH {
            worker.atomic_nbi(0, AtomicOp::Add(1), counter.at(0)).expect("accepted");
            let short =
                worker.atomic_with(0.into(), AtomicOp::Add(1), AtomicWidth::U32, counter.at(12)).expect("accepted");
            worker.detach(short);
        }
        worker.flush(None, PATIENCE).expect("it arrives");
        worker.barrier().expect("all are here");
        if worker.rank() == 0 {
            let mut now = [0; 16];
            worker.read_segment(segment, 0, &mut now).expect("it is there");
            let (long, short) = (u64::from_ne_bytes(now[..8].try_into().expect("8")), &now[12..]);
            assert_eq!((long, u32::from_ne_bytes(short.try_into().expect("4"))), (3 * EACH, 3 * EACH as u32));
        }
        worker.close().expect("all close");
    });
}

#[test]
fn atomics_of_all_ranks_on_one_number_are_all_there() {
    all_count::<Worker>();
    all_count::<DedicatedWorker>();
}

/// A rank that computes is written to, and runs handlers, where its engine has a thread.
#[test]
fn a_rank_with_a_thread_of_its_own_is_reached_while_it_computes() {
    let counts = run_ranks(2, move |job, board| {
        let mut worker = DedicatedWorker::join(&config(&[]), job).expect("it opens");
        let calls = Arc::new(AtomicU64::new(0));
        let ours = calls.clone();
        worker
            .register_handler(
                "count",
                Box::new(move |_, _| {
                    ours.fetch_add(1, Ordering::SeqCst);
                }),
            )
            .expect("free");
        let segment = worker.expose(worker.memory(64)).expect("a key");
        worker.write_segment(segment, 0, &[0; 64]).expect("it is there");
        let theirs = worker.gather_keys(segment).expect("all are here")[1];
        if worker.rank() == 0 {
            for _ in 0..1000 {
                worker.send_active(1.into(), HandlerId::of("count"), &[], &[]).expect("accepted");
            }
            // Only rank 1's engine answers: its application makes no call meanwhile.
            while worker.fetch(1, AtomicOp::Add(1), theirs.at(0)).expect("it comes") < 100 {}
        } else {
            while calls.load(Ordering::SeqCst) < 1000 {
                std::thread::yield_now();
            }
        }
        let _ = board;
        worker.close().expect("all close");
        calls.load(Ordering::SeqCst)
    });
    assert_eq!(counts, [0, 1000]);
}

#[test]
fn all_ranks_gather_and_one_broadcasts_however_many_there_are() {
    for size in 1..=5 {
        run_ranks(size, move |job, _| {
            let mut worker =
                Worker::join(&config(&[("wireup", "lazy"), ("arena_size", "32MiB")]), job).expect("it opens");
            let rank = worker.rank();
            for round in 0..3 {
                let mine = bytes(rank * 700 + round, rank);
                let all = worker.all_gather(&mine).expect("all are here");
                let expected: Vec<_> = (0..size).map(|rank| bytes(rank * 700 + round, rank)).collect();
                assert!(all == expected, "rank {rank} of {size}");
                for root in 0..size {
                    let given = if rank == root { bytes(3000 + root, round) } else { Vec::new() };
                    assert!(worker.broadcast(root, &given).expect("all are here") == bytes(3000 + root, round));
                }
            }
            worker.close().expect("all close");
        });
    }
}

/// Who waits for a rank that goes is not left waiting, though others are there; nor is who waits for any, once all have gone.
fn a_wait_for_a_change_ends<W: Member>() {
    run_ranks(3, move |job, _| {
        let mut worker = W::join(&config(&[]), job).expect("it opens");
        let segment = worker.expose(worker.memory(8)).expect("a key");
        worker.write_segment(segment, 0, &[0; 8]).expect("it is there");
        worker.gather_keys(segment).expect("all are here");
        if worker.rank() == 1 {
            worker.abort().expect("it lives");
            return;
        }
        let error = worker.wait_for_change(1.into(), segment, 0, 0).expect_err("it goes");
        assert!(matches!(error, CallError::Peer(OpError::PeerGone { .. } | OpError::PeerLeft { .. })), "{error}");
        if worker.rank() == 2 {
            worker.abort().expect("it lives");
            return;
        }
        let error = worker.wait_for_change(Source::Any, segment, 0, 0).expect_err("all go");
        assert!(matches!(error, CallError::Peer(OpError::NobodyLeft | OpError::Job(_))), "{error}");
    });
}

#[test]
fn a_wait_for_a_change_ends_with_who_would_make_it() {
    a_wait_for_a_change_ends::<Worker>();
    a_wait_for_a_change_ends::<DedicatedWorker>();
}

/// Memory under a key of its owner's choice, whose first byte has the address that the owner chooses: peers reach all of it, and nothing
/// beside it.
fn a_requested_key_has_addresses_of_its_owners_choice<W: Member>() {
    const KEY: u64 = 1 << 63 | 7;
    const BASE: usize = 0x7fff_1234_5000;
    const LEN: usize = 20_000;
    run_ranks(2, |job, _| {
        let mut worker = W::join(&config(&[LOSSY]), job).expect("it opens");
        let (rank, other) = (worker.rank(), 1 - worker.rank());
        let mut memory = worker.memory(LEN);
        memory.copy_from_slice(&bytes(LEN, rank));
        let segment = worker.expose_as(KEY, BASE as u64, memory, RemoteAccess::ReadWrite).expect("the key is free");
        worker.barrier().expect("both are here");
        let theirs = SegmentKey::requested(KEY);
        let mut expected = bytes(LEN, other);
        for (round, (at, len)) in [(0, 1), (LEN - 1, 1), (3, 9_001), (0, LEN)].into_iter().enumerate() {
            let sent = bytes(len, 10 * round + rank);
            worker.put_blocking(other, &sent, theirs.at(BASE + at)).expect("it arrives");
            expected[at..][..len].copy_from_slice(&sent);
            let mut got = vec![0; LEN];
            worker.get_blocking(other, &mut got, theirs.at(BASE)).expect("it comes");
            assert!(got == expected, "round {round}");
        }
        for (at, len) in [(0, 1), (BASE - 1, 1), (BASE + LEN, 1), (BASE + LEN - 1, 2)] {
            let error = worker.put_blocking(other, &vec![7; len], theirs.at(at)).expect_err("it is elsewhere");
            assert!(matches!(error, CallError::Peer(OpError::Denied { .. })), "{error}");
            worker.get_blocking(other, &mut vec![0; len], theirs.at(at)).expect_err("it is elsewhere");
        }
        worker.barrier().expect("both are here");
        let mut ours = vec![0; LEN];
        worker.read_segment(segment, 0, &mut ours).expect("it is there");
        assert!(ours == bytes(LEN, 30 + other), "what the other one has put last");
        worker.close().expect("both are there");
    });
}

#[test]
fn a_requested_key_is_reached_at_its_addresses_alone() {
    a_requested_key_has_addresses_of_its_owners_choice::<Worker>();
    a_requested_key_has_addresses_of_its_owners_choice::<DedicatedWorker>();
}

/// A rank that goes while others operate on its memory, and wait for it: each of them hears why.
#[test]
fn operations_on_a_rank_that_goes_end_by_name() {
    run_ranks(2, move |job, _| {
        let mut worker = Worker::join(&config(&[]), job).expect("it opens");
        let segment = worker.expose(worker.memory(1 << 20)).expect("a key");
        worker.write_segment(segment, 0, &[0; 8]).expect("it is there");
        let theirs = worker.gather_keys(segment).expect("all are here")[1];
        if worker.rank() == 1 {
            worker.wait_for_at_least(0.into(), segment, 0, 1).expect("rank 0 lives");
            drop(worker);
            return;
        }
        worker.put_value(1, 1, theirs.at(0)).expect("accepted");
        let error = loop {
            let buffer = worker.memory((1 << 20) - 8);
            match worker.put(1, buffer, theirs.at(8)).map_err(|refused| refused.why) {
                Ok(put) => match worker.wait(put) {
                    Ok(_) => {}
                    Err(error) => break error,
                },
                Err(CallError::Peer(error)) => break error,
                Err(other) => panic!("{other}"),
            }
        };
        assert!(
            matches!(error, OpError::PeerGone { peer, .. } | OpError::PeerLeft { peer, .. } if peer == 1),
            "{error}"
        );
    });
}
