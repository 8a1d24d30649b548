//! Sleeping on a dedicated worker's descriptor, in poll(2) and epoll(7): nothing is slept through, and nothing is written for who
//! does not sleep.

use std::fs;
use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use roci_msgcore::dedicated::Arming;
use roci_msgcore::{Completion, DedicatedWorker, OpError, Pattern, Rank, Request, Tag, WorkerEvent};
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::io::{Errno, FdFlags, fcntl_getfd, read};

use crate::ranks::{config, run_ranks};

const DATA: Tag = Tag::new(1);
/// Against an engine that has nothing else to do.
const ROUNDS: u64 = 100_000;
/// Between two ranks.
const ROUND_TRIPS: u64 = 5_000;
/// Longer than any sleep here lasts: who sleeps so long was not woken.
const AT_MOST: Timespec = Timespec { tv_sec: 20, tv_nsec: 0 };
/// Long enough for a thread that does not wait for anything to fall asleep.
const A_WHILE: Duration = Duration::from_millis(50);

/// Sleeps until the descriptor is readable.
fn sleep(worker: &DedicatedWorker) {
    let woken = poll(&mut [PollFd::new(worker, PollFlags::IN)], Some(&AT_MOST)).expect("it is polled");
    assert_eq!(woken, 1, "the wakeup was lost");
}

/// How often the descriptor was written since it was last read.
fn written(worker: &DedicatedWorker) -> u64 {
    let mut count = [0; 8];
    match read(worker, &mut count) {
        Ok(_) => u64::from_ne_bytes(count),
        Err(errno) => {
            assert_eq!(errno, Errno::AGAIN, "it does not block");
            0
        }
    }
}

fn arm(worker: &mut DedicatedWorker) -> Arming {
    worker.arm().expect("no fork")
}

/// How often arming was followed by a sleep, and how often something was there.
#[derive(Default, Debug)]
struct Armings {
    slept: u64,
    pending: u64,
}

/// Waits for a completion by sleeping.
fn next_by(worker: &mut DedicatedWorker, armings: &mut Armings, sleep: impl Fn(&DedicatedWorker)) -> Completion {
    loop {
        if let Some(completion) = worker.poll_completion() {
            return completion;
        }
        if arm(worker) == Arming::Armed {
            sleep(worker);
            worker.acknowledge();
            armings.slept += 1;
        } else {
            armings.pending += 1;
        }
    }
}

/// Takes all that there is, until nothing new comes.
fn settle(worker: &mut DedicatedWorker) {
    // The engine wakes a sleeper after it has said what came: once it has answered, it has.
    worker.stats().expect("it lives");
    while arm(worker) == Arming::Pending {
        while worker.poll_completion().is_some() || worker.poll_event().is_some() {}
    }
    worker.acknowledge();
}

fn receive(worker: &mut DedicatedWorker, from: Rank) -> Request {
    worker.recv_in_place(Pattern::new(from, DATA)).expect("accepted")
}

fn receive_queued(worker: &mut DedicatedWorker, from: Rank, context: u64) {
    let request = receive(worker, from);
    worker.queue_completion(request, context).expect("it is under way, or over");
}

/// Sends, and waits until that is over.
fn send(worker: &mut DedicatedWorker, to: Rank, value: u64) {
    let send = worker.send_bytes(to, DATA, &value.to_le_bytes()).expect("accepted");
    let done = worker.wait(send).expect("sent");
    worker.give_back(done.buffer);
}

/// Runs a rank that is alone in its job.
fn run_alone(rank: impl Fn(DedicatedWorker) + Clone + Send + 'static) {
    run_ranks(1, move |job, _| rank(DedicatedWorker::spawn(&config(&[]), job).expect("it opens")));
}

#[test]
fn a_sleeper_wakes_for_a_completion_and_for_an_end_that_it_asks_for_by_name() {
    let is_armed = Arc::new(AtomicBool::new(false));
    run_ranks(2, move |job, _| {
        let mut worker = DedicatedWorker::spawn(&config(&[]), job).expect("it opens");
        if worker.rank() == 0 {
            for value in 0..2 {
                worker.barrier().expect("both are here");
                while !is_armed.swap(false, Ordering::SeqCst) {
                    thread::yield_now();
                }
                thread::sleep(A_WHILE);
                send(&mut worker, 1, value);
            }
        } else {
            receive_queued(&mut worker, 0, 5);
            worker.barrier().expect("both are here");
            settle(&mut worker);
            // An event may come late: that a peer is connected.
            while arm(&mut worker) == Arming::Pending {
                while worker.poll_event().is_some() {}
            }
            is_armed.store(true, Ordering::SeqCst);
            sleep(&worker);
            assert_eq!(next_by(&mut worker, &mut Armings::default(), sleep).context, 5);
            let by_name = receive(&mut worker, 0);
            worker.barrier().expect("both are here");
            settle(&mut worker);
            let mut outcome = worker.test(by_name);
            while outcome.is_none() {
                if arm(&mut worker) == Arming::Armed {
                    is_armed.store(true, Ordering::SeqCst);
                    sleep(&worker);
                    worker.acknowledge();
                }
                outcome = worker.test(by_name);
            }
            assert_eq!(outcome.expect("just seen").expect("it comes").buffer[..8], 1u64.to_le_bytes());
        }
        worker.close().expect("both are there");
    });
}

#[test]
fn arming_says_at_once_what_is_there_and_each_end_by_name_once() {
    run_alone(|mut worker| {
        let by_name = receive(&mut worker, 0);
        receive_queued(&mut worker, 0, 7);
        let last = receive(&mut worker, 0);
        (0..3).for_each(|value| send(&mut worker, 0, value));
        // Messages of one rank are received in their order, so that the others are over, and this is all.
        worker.wait(last).expect("it comes");
        worker.stats().expect("it lives, and has woken all that slept");
        assert_eq!(arm(&mut worker), Arming::Pending, "an end by name, and a completion");
        assert_eq!(arm(&mut worker), Arming::Pending, "a completion, until it is taken");
        assert_eq!(worker.poll_completion().expect("it is there").context, 7);
        assert_eq!(arm(&mut worker), Arming::Armed, "the end by name was said before");
        assert!(worker.test(by_name).is_some());
        assert_eq!(written(&worker), 0, "nothing has come since");
        // What ends by name while another is tested is said as well.
        let (early, late) = (receive(&mut worker, 0), receive(&mut worker, 0));
        assert!(worker.test(early).is_none());
        worker.acknowledge();
        (0..2).for_each(|value| send(&mut worker, 0, value));
        while worker.test(late).is_none() {}
        assert_eq!(arm(&mut worker), Arming::Pending);
        assert!(worker.test(early).is_some());
        assert_eq!(arm(&mut worker), Arming::Armed);
        worker.close().expect("no other rank");
    });
}

#[test]
fn an_event_wakes_once_whether_it_is_taken_or_not() {
    run_ranks(2, |job, _| {
        let mut worker = DedicatedWorker::spawn(&config(&[]), job).expect("it opens");
        if worker.rank() == 0 {
            worker.barrier().expect("both are here");
            return;
        }
        settle(&mut worker);
        worker.barrier().expect("both are here");
        let mut is_gone = false;
        while !is_gone {
            while arm(&mut worker) == Arming::Armed {
                sleep(&worker);
                worker.acknowledge();
            }
            // There are two at most: that the peer was connected, and that it is gone.
            assert!((0..2).any(|_| arm(&mut worker) == Arming::Armed), "what was said before is said again");
            worker.acknowledge();
            while let Some(event) = worker.poll_event() {
                is_gone |= matches!(event, WorkerEvent::PeerGone { peer, .. } if peer == 0);
            }
        }
    });
}

/// The engine ends each receive at any moment of the arming and of the falling asleep.
#[test]
fn no_wakeup_is_lost_however_an_end_meets_the_falling_asleep() {
    run_alone(|mut worker| {
        let mut armings = Armings::default();
        for round in 0..ROUNDS {
            receive_queued(&mut worker, 0, round);
            let send = worker.send_bytes(0, DATA, &round.to_le_bytes()).expect("accepted");
            worker.detach(send);
            // Some ends come before the arming, some in the middle of it.
            (0..round % 128).for_each(|_| std::hint::spin_loop());
            let completion = next_by(&mut worker, &mut armings, sleep);
            let done = completion.outcome.expect("it comes");
            assert_eq!((completion.context, &done.buffer[..8]), (round, &round.to_le_bytes()[..]));
            worker.give_back(done.buffer);
        }
        println!("{ROUNDS} rounds: {armings:?}");
        assert!(armings.slept > ROUNDS / 100, "{armings:?}: this has shown little");
        worker.close().expect("no other rank");
    });
}

/// An edge of the descriptor is enough, as tokio asks for them.
#[test]
fn two_ranks_that_sleep_in_epoll_wake_each_other() {
    run_ranks(2, |job, _| {
        let mut worker = DedicatedWorker::spawn(&config(&[]), job).expect("it opens");
        let (us, peer) = (worker.rank() as u64, 1 - worker.rank());
        let set = epoll::create(epoll::CreateFlags::CLOEXEC).expect("a set");
        let interest = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&set, &worker, epoll::EventData::new_u64(us), interest).expect("it is added");
        let sleep_in_epoll = |_: &DedicatedWorker| {
            let mut events = [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(9) }];
            assert_eq!(epoll::wait(&set, &mut events, Some(&AT_MOST)).expect("it waits"), 1, "the wakeup was lost");
            let data = events[0].data;
            assert_eq!(data.u64(), us);
        };
        let mut armings = Armings::default();
        for round in 0..ROUND_TRIPS {
            receive_queued(&mut worker, peer, round);
            for turn in 0..2 {
                if turn == us {
                    let send = worker.send_bytes(peer, DATA, &round.to_le_bytes()).expect("accepted");
                    worker.detach(send);
                } else {
                    let completion = next_by(&mut worker, &mut armings, sleep_in_epoll);
                    let done = completion.outcome.expect("it comes");
                    assert_eq!((completion.context, &done.buffer[..8]), (round, &round.to_le_bytes()[..]));
                    worker.give_back(done.buffer);
                }
            }
        }
        assert!(armings.slept > ROUND_TRIPS / 100, "{armings:?}: this has shown little");
        worker.close().expect("both are there");
    });
}

#[test]
fn a_sleeper_wakes_when_the_engine_ends_and_what_waits_ends_with_it() {
    run_ranks(1, |job, board| {
        let mut worker = DedicatedWorker::spawn(&config(&[]), job).expect("it opens");
        receive_queued(&mut worker, 0, 3);
        settle(&mut worker);
        assert_eq!(arm(&mut worker), Arming::Armed);
        board.fail("rank 3 exited with status 1");
        sleep(&worker);
        worker.acknowledge();
        for _ in 0..2 {
            assert_eq!(arm(&mut worker), Arming::Pending, "nothing would wake a sleeper any more");
        }
        let completion = worker.poll_completion().expect("over");
        let error = completion.outcome.map(drop).expect_err("no rank sends");
        assert_eq!((completion.context, matches!(error, OpError::Job(_))), (3, true), "{error}");
    });
}

#[test]
fn a_descriptor_that_is_not_armed_is_not_written_and_one_that_is_once() {
    run_alone(|mut worker| {
        let exchange = |worker: &mut DedicatedWorker| {
            for value in 0..1_000 {
                let receive = receive(worker, 0);
                send(worker, 0, value);
                worker.wait(receive).expect("it comes");
            }
        };
        exchange(&mut worker);
        assert_eq!(written(&worker), 0, "it was never armed");
        settle(&mut worker);
        assert_eq!(arm(&mut worker), Arming::Armed);
        exchange(&mut worker);
        assert_eq!(written(&worker), 1, "it was armed once");
        settle(&mut worker);
        exchange(&mut worker);
        assert_eq!(written(&worker), 0, "what was acknowledged is not armed");
        assert_eq!(arm(&mut worker), Arming::Pending);
        exchange(&mut worker);
        assert_eq!(written(&worker), 0, "what is pending is not armed");
        // An answer of the engine's goes to who waits for it.
        settle(&mut worker);
        assert_eq!(arm(&mut worker), Arming::Armed);
        worker.stats().expect("it lives");
        assert_eq!(written(&worker), 0);
        worker.close().expect("no other rank");
    });
}

#[test]
fn the_descriptor_goes_with_its_worker_and_is_closed_on_exec() {
    run_alone(|worker| {
        let flags = fcntl_getfd(&worker).expect("it is open");
        assert!(flags.contains(FdFlags::CLOEXEC));
        let link = format!("/proc/self/fd/{}", worker.as_raw_fd());
        let is_open = || fs::read_link(&link).is_ok_and(|what| what.to_string_lossy().contains("eventfd"));
        assert!(is_open());
        worker.close().expect("no other rank");
        assert!(!is_open());
    });
}
