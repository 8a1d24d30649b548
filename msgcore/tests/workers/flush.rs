//! Short messages whose sends are over, and a sender that goes: each rank on a thread of its own, over real memif ports that lose
//! frames, with workers of both kinds.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use roci_msgcore::active::{ActiveMessage, HandlerContext, HandlerId};
use roci_msgcore::collectives::Collectives as _;
use roci_msgcore::one_sided::Signal;
use roci_msgcore::{CallError, DedicatedWorker, FlushError, PeerId, SendOptions, Tag, Worker};

use crate::ranks::{Member, PATIENCE, config, run_ranks};

const TAG: Tag = Tag::new(1);
const MESSAGES: usize = 50;
const LOSSY: (&str, &str) = ("faults", "loss=0.1,seed=5");
/// As long as the peer may take that the kernel does not run.
const LINGER: (&str, &str) = ("linger_ms", "60000");

/// How a rank goes whose sends are all over.
type Parting<W> = fn(W);

/// Of what the first rank has sent before it went, how many messages the second one receives.
fn received_of<W: Member>(knobs: &'static [(&'static str, &'static str)], part: Parting<W>) -> usize {
    let counts = run_ranks(2, move |job, _| {
        let mut worker = W::join(&config(knobs), job).expect("it opens");
        if worker.rank() == 0 {
            for number in 0..MESSAGES {
                let send = worker.send_bytes(1.into(), TAG, &[number as u8; 8]).expect("accepted");
                worker.wait(send).expect("over");
            }
            part(worker);
            return 0;
        }
        let receives: Vec<_> =
            (0..MESSAGES).map(|_| worker.recv(0, TAG, worker.memory(8)).expect("accepted")).collect();
        let ends = receives.into_iter().map(|receive| worker.wait(receive)).zip(0..);
        let came = ends.take_while(|(end, number)| end.as_ref().is_ok_and(|done| *done.buffer == [*number; 8])).count();
        // If it went before the sender, a lost acknowledgement of the last message would have none to repeat it.
        let after = worker.recv(0, TAG, worker.memory(8));
        after.map(|receive| worker.wait(receive).expect_err("the sender goes")).ok();
        came
    });
    counts[1]
}

fn nothing_is_lost<W: Member>() {
    let flushed: Parting<W> = |mut worker| {
        worker.flush(Some(1.into()), PATIENCE).expect("it arrives");
        worker.abort().expect("it lives");
    };
    assert_eq!(received_of::<W>(&[LOSSY, LINGER], drop), MESSAGES, "dropped");
    assert_eq!(received_of::<W>(&[LOSSY, ("linger_ms", "0")], flushed), MESSAGES, "flushed, and aborted");
}

#[test]
fn a_worker_that_goes_leaves_nothing_on_its_way() {
    nothing_is_lost::<Worker>();
}

#[test]
fn a_worker_with_a_thread_that_goes_leaves_nothing_on_its_way() {
    nothing_is_lost::<DedicatedWorker>();
}

/// What is injected is over at once, also where the peer has no credit for it and must fetch it: who goes waits for that.
fn injected_is_fetched<W: Member>() {
    let counts = run_ranks(2, |job, _| {
        let mut worker =
            W::join(&config(&[("credits", "4"), ("coalesce_threshold", "0"), LINGER]), job).expect("it opens");
        if worker.rank() == 0 {
            for number in 0..MESSAGES {
                worker.inject(1.into(), TAG, &[number as u8; 8], SendOptions::default()).expect("accepted");
            }
            return usize::from(worker.stats().expect("it lives").fallback_credit > 0);
        }
        // All that can come is here before a receive is.
        let late = Instant::now() + Duration::from_millis(50);
        while Instant::now() < late {
            worker.progress();
        }
        let mut came = 0;
        for number in 0..MESSAGES {
            let receive = worker.recv(0, TAG, worker.memory(8)).expect("accepted");
            came += usize::from(worker.wait(receive).is_ok_and(|done| *done.buffer == [number as u8; 8]));
        }
        came
    });
    assert_eq!(counts, [1, MESSAGES]);
}

#[test]
fn a_worker_that_goes_has_what_it_has_injected_fetched() {
    injected_is_fetched::<Worker>();
}

#[test]
fn a_worker_with_a_thread_that_goes_has_what_it_has_injected_fetched() {
    injected_is_fetched::<DedicatedWorker>();
}

/// What the tests above would miss if nothing was waited for.
#[test]
fn without_lingering_some_is_lost() {
    let aborted: Parting<Worker> = |worker| {
        worker.abort();
    };
    assert!(received_of::<Worker>(&[LOSSY, ("linger_ms", "0")], drop) < MESSAGES);
    assert!(received_of::<Worker>(&[LOSSY], aborted) < MESSAGES);
}

#[test]
fn a_peer_that_does_not_answer_is_named_in_time() {
    let (is_silent, has_given_up) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    run_ranks(2, move |job, _| {
        let mut worker = Worker::join(&config(&[]), job).expect("it opens");
        let other = 1 - worker.rank();
        is_silent.wait();
        if worker.rank() == 1 {
            // It computes: its first call comes when the other has given up.
            has_given_up.wait();
        } else {
            let _ = worker.send_bytes(other, TAG, &[1; 8]).expect("accepted");
            for to in [Some(1.into()), None] {
                let late = worker.flush(to, Duration::from_millis(100)).expect_err("it computes");
                assert!(matches!(&late, FlushError::Timeout { peers, .. } if *peers == [PeerId::from(1)]), "{late}");
                assert!(late.to_string().contains("has reached rank 1 after"), "{late}");
            }
            has_given_up.wait();
            worker.flush(Some(0.into()), Duration::ZERO).expect("this rank itself");
            let unknown = worker.flush(Some(2.into()), Duration::ZERO).expect_err("two ranks");
            assert!(matches!(unknown, FlushError::Peer(CallError::NoRank { rank: 2, size: 2 })), "{unknown}");
        }
        worker.flush(None, PATIENCE).expect("it arrives");
        worker.close().expect("both are there");
    });
}

/// A peer that is gone has nothing to wait for: the wait for all passes it by, and that for it alone says so.
fn gone<W: Member>() {
    run_ranks(2, |job, _| {
        let mut worker = W::join(&config(&[]), job).expect("it opens");
        if worker.rank() == 1 {
            worker.abort().expect("it lives");
            return;
        }
        let receive = worker.recv(1, TAG, worker.memory(8)).expect("accepted");
        worker.wait(receive).expect_err("it has gone");
        worker.flush(None, Duration::ZERO).expect("nothing is under way");
        let error = worker.flush(Some(1.into()), Duration::ZERO).expect_err("it has gone");
        assert!(matches!(error, FlushError::Peer(CallError::Peer(_))), "{error}");
    });
}

#[test]
fn a_peer_that_is_gone_is_not_waited_for() {
    gone::<Worker>();
}

#[test]
fn a_peer_that_is_gone_is_not_waited_for_by_a_thread() {
    gone::<DedicatedWorker>();
}

/// What a peer asks for without end is no part of what a rank has sent before.
fn a_flush_ends_beside_a_peer_that_asks_on_and_on<W: Member>() {
    const DEPTH: usize = 32;
    for means in [("rdma", "off"), ("rdma_gets", "off")] {
        run_ranks(2, move |job, _| {
            let mut worker = W::join(&config(&[means]), job).expect("it opens");
            let segment = worker.expose(worker.memory(1 << 16)).expect("a key");
            worker.write_segment(segment, 0, &[0; 8]).expect("it is there");
            let theirs = worker.gather_keys(segment).expect("all are here")[1 - worker.rank()];
            if worker.rank() == 0 {
                for round in 1..=50_u64 {
                    worker.put_value(1, round, theirs.at(8)).expect("accepted");
                    worker.flush(Some(1.into()), PATIENCE).expect("it arrives");
                    worker.flush(None, PATIENCE).expect("it arrives");
                }
                worker.put_value(1, 1, theirs.at(0)).expect("accepted");
            } else {
                let mut gets = VecDeque::new();
                let mut is_over = [0; 8];
                while is_over == [0; 8] {
                    while gets.len() < DEPTH {
                        gets.push_back(worker.get(0, worker.memory(4000), theirs.at(64)).expect("accepted"));
                    }
                    worker.wait(gets.pop_front().expect("there are some")).expect("it comes");
                    worker.read_segment(segment, 0, &mut is_over).expect("it is there");
                }
                for get in gets {
                    worker.wait(get).expect("it comes");
                }
            }
            worker.close().expect("all close");
        });
    }
}

#[test]
fn a_flush_ends_beside_a_peer_that_asks_on_and_on_by_message() {
    a_flush_ends_beside_a_peer_that_asks_on_and_on::<Worker>();
    a_flush_ends_beside_a_peer_that_asks_on_and_on::<DedicatedWorker>();
}

/// How what was put with signals is reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reached {
    Exposed,
    /// The signals' numbers are in memory that is offered.
    SignalsOffered,
    Offered,
}

/// A rank puts with signals, sends long active messages, flushes and goes at once: the other one has all of it.
fn what_follows_a_put_is_flushed<W: Member>(
    knobs: &'static [(&'static str, &'static str)],
    reached: Reached,
    count: u64,
) {
    run_ranks(2, move |job, _| {
        let mut worker = W::join(&config(&[&[LOSSY], knobs].concat()), job).expect("it opens");
        let (rank, ran) = (worker.rank(), Arc::new(AtomicU64::new(0)));
        let ours = ran.clone();
        let handler = Box::new(move |_: &mut HandlerContext<'_>, _: ActiveMessage<'_>| {
            ours.fetch_add(1, Ordering::SeqCst);
        });
        worker.register_handler("count", handler).expect("a name");
        let segment = worker.expose(worker.memory(4096)).expect("a key");
        worker.write_segment(segment, 0, &[0; 4096]).expect("it is there");
        let offer = worker.offer(vec![0; 4096].leak().into()).expect("keys are left");
        let (exposed, offered) = (worker.gather_keys(segment).expect("all"), worker.gather_keys(offer).expect("all"));
        let puts = if reached == Reached::Offered { &offered } else { &exposed };
        let signals = if reached == Reached::Exposed { &exposed } else { &offered };
        worker.barrier().expect("all are here");
        if rank == 0 {
            for _ in 0..count {
                let memory = worker.memory(100);
                let long = worker.send_active_long(1.into(), HandlerId::of("count"), 0, memory, exposed[1].at(512));
                worker.leave_one_sided(long.expect("accepted"));
                let signal = (Signal::Add(1), signals[1].at(8));
                let put =
                    worker.put_with(1.into(), worker.memory(100), puts[1].at(64), Some(signal)).expect("accepted");
                worker.leave_one_sided(put);
            }
            worker.flush(Some(1.into()), PATIENCE).expect("it arrives");
            worker.abort().expect("it lives");
            return;
        }
        // The other one has gone.
        let receive = worker.recv(0, TAG, worker.memory(8)).expect("accepted");
        worker.wait(receive).expect_err("it goes");
        let counted = worker.get_value(1, signals[1].at(8)).expect("its own");
        assert_eq!((counted, ran.load(Ordering::SeqCst)), (count, count), "{knobs:?}, {reached:?}");
    });
}

#[test]
fn signals_and_long_messages_are_flushed_with_their_puts() {
    for reached in [Reached::Exposed, Reached::SignalsOffered, Reached::Offered] {
        for knobs in [&[][..], &[("rdma", "off")], &[("wireup", "lazy")]] {
            what_follows_a_put_is_flushed::<Worker>(knobs, reached, 300);
            what_follows_a_put_is_flushed::<DedicatedWorker>(knobs, reached, 300);
        }
    }
    // The last packet is one of ten that are lost.
    (0..30).for_each(|_| what_follows_a_put_is_flushed::<Worker>(&[], Reached::SignalsOffered, 3));
}
