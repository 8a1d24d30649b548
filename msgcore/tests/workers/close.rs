//! How workers close over what was not received: each rank on a thread of its own, over real memif ports, with workers
//! of both kinds. What is picked up before the last rank closes arrives; the rest is counted, once, at one end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use roci_launcher::Job;
use roci_msgcore::{Buffer, DedicatedWorker, Dropped, OpError, Rank, SendOptions, Source, Tag, TagMatch, Worker};

use crate::ranks::{Member, config, run_ranks};

const LONG: usize = 100_000;

/// What ranks do here.
trait Deeds: Member {
    fn enter(job: Job) -> Self {
        Self::join(&config(&[]), job).expect("it opens")
    }

    fn post_send(&mut self, to: Rank, payload: Buffer, options: SendOptions) {
        let _ = self.send_with(to.into(), TAG, payload, options).expect("accepted");
    }

    fn post_recv(&mut self) {
        let room = self.memory(8);
        let _ = self.recv(Source::Any, Tag::new(99), room).expect("accepted");
    }

    fn send_detached(&mut self, to: Rank, bytes: &[u8]) {
        let send = self.send_buffered(to.into(), TAG, bytes, SendOptions::default()).expect("accepted");
        self.detach(send);
    }

    fn receive(&mut self, source: Source, room: usize) -> Result<usize, OpError> {
        let room = self.memory(room);
        let receive = self.recv(source, TagMatch::Any, room).expect("accepted");
        self.wait(receive).map(|done| done.len)
    }
}

impl<W: Member> Deeds for W {}

const TAG: Tag = Tag::new(1);

/// What rank 0 does to rank 1 before it closes.
type Deed<W> = fn(&mut W);

fn long_message<W: Member>(worker: &mut W) {
    let payload = worker.memory(LONG);
    worker.post_send(1, payload, SendOptions::default());
}

fn synchronous<W: Member>(worker: &mut W) {
    let payload = worker.memory(3);
    worker.post_send(1, payload, SendOptions::default().synchronous());
}

/// More than there are credits: some of them become rendezvous.
fn buffered<W: Member>(worker: &mut W) {
    (0..200).for_each(|_| worker.send_detached(1, &[1; 100]));
}

/// Long ones besides: they wait behind the others in the queue.
fn flood<W: Member>(worker: &mut W) {
    buffered(worker);
    (0..100).for_each(|_| long_message(worker));
}

/// Rank 1 receives nothing of it: what both give up, when either is the later one.
fn close_over<W: Member>(deed: Deed<W>, late: Rank) -> [Dropped; 2] {
    let outcomes = run_ranks(2, move |job, _| {
        let mut worker = W::enter(job);
        if worker.rank() == 0 {
            deed(&mut worker);
        }
        if worker.rank() == late {
            thread::sleep(Duration::from_millis(300));
        }
        worker.close().expect("both are there")
    });
    outcomes.try_into().expect("two")
}

fn unreceived<W: Member>() {
    let nothing = Dropped::default();
    for late in [0, 1] {
        for deed in [long_message::<W>, synchronous] {
            assert_eq!(close_over(deed, late), [Dropped { sends: 1, ..nothing }, nothing]);
        }
        for (deed, sent) in [(buffered::<W> as Deed<W>, 200), (flood, 300)] {
            let [ours, theirs] = close_over(deed, late);
            // Those that left eagerly have arrived there; each of the others is taken back.
            assert_eq!(ours.sends + theirs.unexpected, sent);
            assert!(ours.sends >= sent - 200 && theirs.unexpected > 100, "{ours:?} {theirs:?}");
            assert_eq!([ours, theirs], [Dropped { sends: ours.sends, ..nothing }, Dropped { sends: 0, ..theirs }]);
        }
    }
}

#[test]
fn a_worker_closes_over_what_its_peer_never_receives() {
    unreceived::<Worker>();
}

#[test]
fn a_worker_with_a_thread_closes_over_what_its_peer_never_receives() {
    unreceived::<DedicatedWorker>();
}

/// The sender is in its close long before the receiver asks for the first message.
fn everything_is_received<W: Member>() {
    for (deed, lens) in [
        (long_message::<W> as Deed<W>, vec![LONG]),
        (synchronous, vec![3]),
        (buffered, vec![100; 200]),
        (flood, [vec![100; 200], vec![LONG; 100]].concat()),
    ] {
        let outcomes = run_ranks(2, move |job, _| {
            let mut worker = W::enter(job);
            if worker.rank() == 0 {
                deed(&mut worker);
            } else {
                thread::sleep(Duration::from_millis(200));
                for &len in &lens {
                    assert_eq!(worker.receive(0.into(), LONG), Ok(len));
                }
            }
            worker.close().expect("both are there")
        });
        assert_eq!(outcomes, [Dropped::default(); 2]);
    }
}

#[test]
fn what_is_received_before_the_last_rank_closes_is_not_taken_back() {
    everything_is_received::<Worker>();
}

#[test]
fn what_is_received_before_the_last_rank_with_a_thread_closes_is_not_taken_back() {
    everything_is_received::<DedicatedWorker>();
}

/// A long message that has met its receive moves on, though neither end waits for it.
#[test]
fn what_has_met_its_receive_arrives_before_the_end() {
    let outcomes = run_ranks(2, |job, _| {
        let mut worker = Worker::open_job(&config(&[]), job).expect("it opens");
        let room = worker.buffer(LONG).expect("memory");
        let _ = if worker.rank() == 0 { worker.send(1, TAG, room) } else { worker.recv(0, TAG, room) };
        worker.close().expect("both are there")
    });
    assert_eq!(outcomes, [Dropped::default(); 2]);
}

#[test]
fn many_ranks_close_over_a_crowd_of_messages_that_are_not_received() {
    let outcomes = run_ranks(4, |job, _| {
        let mut worker = Worker::open_job(&config(&[]), job).expect("it opens");
        let us = worker.rank();
        for peer in (0..4).filter(|&peer| peer != us) {
            for _ in 0..20 {
                let _ = worker.send_bytes(peer, TAG, &vec![1; LONG]).expect("accepted");
                let _ = worker.send_bytes(peer, TAG, &[1; 10]).expect("accepted");
            }
        }
        worker.close().expect("all are there")
    });
    assert_eq!(outcomes, [Dropped { sends: 60, unexpected: 60, ..Dropped::default() }; 4]);
}

/// A job that failed is an error of the close, which names what was given up.
fn a_failed_job_says_what_was_given_up<W: Member>() {
    let closes = Arc::new(AtomicBool::new(false));
    let outcomes = run_ranks(2, move |job, board| {
        let mut worker = W::enter(job);
        worker.post_recv();
        if worker.rank() == 0 {
            long_message(&mut worker);
            closes.store(true, Ordering::Release);
            let error = worker.close().expect_err("rank 1 never comes");
            assert!(error.to_string().contains("; given up: 1 send, 1 receive"), "{error}");
            Some(error)
        } else {
            while !closes.load(Ordering::Acquire) {
                thread::sleep(Duration::from_millis(1));
            }
            thread::sleep(Duration::from_millis(300));
            board.fail("rank 1 exited with status 3");
            // It stays, and never calls again.
            thread::sleep(Duration::from_secs(3));
            drop(worker);
            None
        }
    });
    let error = outcomes[0].clone().expect("rank 0's");
    assert_eq!(error.dropped, Dropped { sends: 1, receives: 1, ..Dropped::default() });
    assert!(error.why.to_string().contains("rank 1 exited with status 3"), "{error}");
}

#[test]
fn a_worker_of_a_failed_job_says_what_it_gave_up() {
    a_failed_job_says_what_was_given_up::<Worker>();
}

#[test]
fn a_worker_with_a_thread_of_a_failed_job_says_what_it_gave_up() {
    a_failed_job_says_what_was_given_up::<DedicatedWorker>();
}
