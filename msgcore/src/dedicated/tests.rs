//! Dedicated workers of a job of one rank, which speaks to itself: rings, limits and ends, without any port.

use std::path::Path;
use std::time::Duration;

use roci_driver::UserMemory;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::thread::sched_getaffinity;

use super::rings::{COMMANDS, COMPLETIONS};
use super::*;
use crate::config::Origin;
use crate::core::refused::CallError;
use crate::worker::domain::DomainError;
use crate::{Pattern, Request, SendOptions, Source, Tag, TagMatch};
use roci_launcher::{Board, Token};

/// Longer than anything here takes: who waits so long waits for ever.
const PATIENCE: Duration = Duration::from_mins(1);
const ANYTHING: fn() -> Pattern = || Pattern::new(Source::Any, TagMatch::Any);

/// A launcher for one rank.
struct Alone {
    board: Board,
    config: Config,
    place: String,
    _directory: tempfile::TempDir,
}

impl Alone {
    fn new(knobs: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let place = directory.path().join("job").display().to_string();
        let board = Board::new(1, Token::default());
        board.serve_unix(Path::new(&place)).expect("a socket");
        let mut config = Config::default();
        for (name, value) in [("arena_size", "64MiB")].iter().chain(knobs) {
            config.set(name, value, Origin::Code).expect("in range");
        }
        Self { board, config, place, _directory: directory }
    }

    fn job(&self) -> Job {
        Job::connect(&self.place, &Token::default(), 0, 1, PATIENCE).expect("a board")
    }

    fn open(&self) -> DedicatedWorker {
        DedicatedWorker::spawn(&self.config, self.job()).expect("it opens")
    }
}

fn receive(worker: &mut DedicatedWorker, tag: u64) -> Request {
    let buffer = worker.buffer(64).expect("memory");
    worker.recv(0, Tag::new(tag), buffer).expect("accepted")
}

#[test]
fn a_message_goes_through_the_rings_and_a_probe_sees_it() {
    let mut worker = Alone::new(&[]).open();
    let send = worker.send_bytes(0, Tag::new(5), b"me").expect("accepted");
    let sent = worker.wait(send).expect("sent");
    assert_eq!(sent.len, 2);
    worker.give_back(sent.buffer);
    let envelope = worker.probe(ANYTHING()).expect("it lives").expect("it waits");
    assert_eq!((envelope.source, envelope.tag, envelope.len), (0.into(), Tag::new(5), 2));
    let message = worker.claim(ANYTHING()).expect("it lives").expect("it waits");
    assert_eq!(worker.probe(ANYTHING()).expect("it lives"), None);
    let buffer = worker.buffer(10).expect("memory");
    let receive = worker.recv_message(message, buffer).expect("accepted");
    let done = worker.wait(receive).expect("it fits");
    assert_eq!((&done.buffer[..done.len], done.peer, done.tag), (&b"me"[..], 0.into(), Tag::new(5)));
    assert_eq!(worker.wait(receive).expect_err("given"), OpError::NoRequest);
    worker.barrier().expect("no other rank");
    assert_eq!(worker.close().expect("no other rank"), crate::Dropped::default());
}

#[test]
fn more_than_the_rings_hold_waits_and_none_is_lost() {
    let mut worker = Alone::new(&[]).open();
    let count = 5 * COMMANDS.max(COMPLETIONS) as u64;
    // Each send ends at once, and the ends are not taken.
    let sends: Vec<_> =
        (0..count).map(|mark| worker.send_bytes(0, Tag::new(mark), &mark.to_le_bytes()).expect("accepted")).collect();
    let receives: Vec<_> = (0..count).map(|mark| receive(&mut worker, mark)).collect();
    for (mark, request) in (0..count).zip(receives) {
        let done = worker.wait(request).expect("it came");
        assert_eq!((&done.buffer[..done.len], done.tag), (&mark.to_le_bytes()[..], Tag::new(mark)));
    }
    assert_eq!(worker.wait_all(sends).expect("sent").len() as u64, count);
}

#[test]
fn operations_beyond_the_limit_are_refused_by_name_and_cancelled_ones_make_room() {
    let mut worker = Alone::new(&[]).open();
    let waiting: Vec<_> =
        (0..facts::LIMIT).map(|_| worker.recv_in_place(Pattern::new(0, Tag::new(1))).expect("accepted")).collect();
    let error = worker.recv_in_place(ANYTHING()).expect_err("too many").to_string();
    assert_eq!(error, "32768 operations wait already: wait for some of them first");
    for request in waiting {
        assert!(worker.test(request).is_none());
        worker.cancel(request);
        assert!(worker.wait(request).expect("taken back").is_cancelled);
    }
    let _never = worker.recv_in_place(ANYTHING()).expect("room");
    assert_eq!(worker.stats().expect("it lives").cancelled, facts::LIMIT as u64);
    assert_eq!(worker.abort().expect("it lives").receives, 1);
}

#[test]
fn misuse_is_refused_by_name() {
    let mut worker = Alone::new(&[]).open();
    let send = worker.send_bytes(1, Tag::new(0), b"").expect_err("no such rank");
    let buffer = worker.buffer(1).expect("memory");
    let receive = worker.recv(1, Tag::new(0), buffer).expect_err("no such rank");
    let connect = worker.connect(1).expect_err("no such rank");
    assert_eq!(receive.given.len(), 1);
    for error in [send, receive.why, connect] {
        assert_eq!(error.to_string(), "rank 1 is not in this job of 1");
    }
    assert!(worker.buffer(1 << 40).is_err());
    worker.send_bytes(0, Tag::new(1), b"x").map(drop).expect("accepted");
    let message = worker.claim(ANYTHING()).expect("it lives").expect("it waits");
    let mut other = Alone::new(&[]).open();
    let buffer = other.buffer(1).expect("memory");
    let refused = other.recv_message(message, buffer).expect_err("not its own");
    assert!(matches!(refused.why, CallError::NoMessage), "{refused}");
    let (message, buffer) = (refused.given.0, worker.buffer(1).expect("memory"));
    let receive = worker.recv_message(message, buffer).expect("its own");
    assert_eq!(*worker.wait(receive).expect("it fits").buffer, *b"x");
}

#[test]
fn memory_of_the_applications_goes_through_the_rings_and_comes_back() {
    let len = 10_000;
    let memory = |byte: u8| UserMemory::from(vec![byte; len].leak());
    for (pin, registered) in [("auto", 0), ("lock", 2)] {
        let mut worker = Alone::new(&[("dreg_pin", pin)]).open();
        let (room, payload) =
            (worker.adopt(memory(0)).expect("it is there"), worker.adopt(memory(7)).expect("it is there"));
        let places = [&room, &payload].map(|buffer| buffer.as_ptr().addr());
        let receive = worker.recv(0, Tag::new(1), room).expect("accepted");
        let send = worker.send(0, Tag::new(1), payload).expect("accepted");
        let (received, sent) = (worker.wait(receive).expect("it comes"), worker.wait(send).expect("it goes"));
        assert!(received.buffer.is_users() && sent.buffer.is_users(), "{pin}");
        assert_eq!([&received.buffer, &sent.buffer].map(|buffer| buffer.as_ptr().addr()), places);
        assert_eq!((&*received.buffer, received.len), (&[7; 10_000][..], len));
        let stats = worker.registration_stats().expect("it lives");
        assert_eq!((stats.adopted(), stats.adopted() - stats.bypassed), (2, registered), "{pin}: {stats:?}");
        worker.provoke_panic();
        assert!(matches!(worker.adopt(memory(0)), Err(CallError::Peer(OpError::EngineGone(_)))));
    }
}

#[test]
fn buffered_sends_are_bounded_by_bytes_until_they_have_left() {
    let mut worker = Alone::new(&[("buffered_limit", "100"), ("eager_threshold", "0")]).open();
    let send = |worker: &mut DedicatedWorker, len| {
        worker.send_buffered(0, Tag::new(1), &vec![7; len], SendOptions::default().synchronous())
    };
    let first = send(&mut worker, 60).expect("room");
    worker.detach(first);
    assert!(matches!(send(&mut worker, 41), Err(CallError::BufferFull { asked: 41, held: 60 })));
    let met = receive(&mut worker, 1);
    assert_eq!(worker.wait(met).expect("it came").buffer[..60], [7; 60]);
    // Its end may be reported after the receive's.
    while worker.outcomes.buffered_bytes() > 0 {
        worker.drain();
    }
    let second = send(&mut worker, 100).expect("room again");
    worker.cancel(second);
    assert!(worker.wait(second).expect("taken back").is_cancelled);
    assert_eq!(worker.outcomes.buffered_bytes(), 0);
}

/// An eager send is over when it has left. It can be taken back nevertheless, whether its end has been seen here or not.
#[test]
fn an_eager_send_that_has_left_is_taken_back_unless_it_was_received() {
    let mut worker = Alone::new(&[]).open();
    for is_seen in [false, true] {
        let send = worker.send_bytes(0, Tag::new(5), b"me").expect("accepted");
        while is_seen && !worker.drain() {}
        worker.cancel(send);
        worker.cancel(send);
        assert!(worker.wait(send).expect("it ends").is_cancelled);
        assert_eq!(worker.wait(send).expect_err("it was given"), OpError::NoRequest);
        assert_eq!(worker.probe(ANYTHING()).expect("it lives"), None);
        // One that was received stays sent.
        let send = worker.send_bytes(0, Tag::new(5), b"me").expect("accepted");
        let met = receive(&mut worker, 5);
        worker.wait(met).expect("it came");
        worker.cancel(send);
        assert!(!worker.wait(send).expect("it ends").is_cancelled);
    }
    assert_eq!(worker.stats().expect("it lives").cancelled, 2);
}

#[test]
fn a_probe_waits_until_a_message_comes_or_none_can() {
    let alone = Alone::new(&[]);
    let mut worker = alone.open();
    let send = worker.send_bytes(0, Tag::new(5), b"me").expect("accepted");
    let pattern = Pattern::new(0, Tag::new(5));
    assert_eq!(worker.wait_probe(pattern).expect("it comes").len, 2);
    let message = worker.wait_claim(pattern).expect("it comes");
    let buffer = worker.buffer(10).expect("memory");
    let receive = worker.recv_message(message, buffer).expect("accepted");
    assert_eq!(worker.wait(receive).expect("it fits").len, 2);
    worker.wait(send).expect("sent");
    assert!(matches!(worker.wait_probe(Pattern::new(1, Tag::new(5))), Err(CallError::NoRank { rank: 1, size: 1 })));
    let board = alone.board.clone();
    let ends = thread::spawn(move || {
        thread::sleep(Duration::from_millis(100));
        board.fail("rank 3 exited with status 1");
    });
    let error = worker.wait_claim(pattern).expect_err("none comes").to_string();
    assert!(error.contains("rank 3 exited"), "{error}");
    ends.join().expect("no panic");
}

#[test]
fn after_a_panic_of_the_engine_every_call_says_so() {
    let mut worker = Alone::new(&[]).open();
    let (tested, waited) = (receive(&mut worker, 1), receive(&mut worker, 2));
    let queued = [receive(&mut worker, 3), receive(&mut worker, 4)];
    for (context, request) in (7..).zip(queued) {
        worker.queue_completion(request, context).expect("it is under way");
    }
    let gone = OpError::EngineGone("it panicked: as was asked for".into());
    assert_eq!(worker.provoke_panic(), gone);
    assert_eq!(worker.test(tested).expect("over").expect_err("gone"), gone);
    assert_eq!(worker.wait(waited).expect_err("gone"), gone);
    assert_eq!(worker.wait(waited).expect_err("given"), OpError::NoRequest);
    let first = worker.poll_completion().expect("over");
    assert_eq!((first.context, first.outcome.expect_err("gone")), (7, gone.clone()));
    let second = worker.wait_completion().expect("over");
    assert_eq!((second.context, second.outcome.expect_err("gone")), (8, gone.clone()));
    assert!(worker.poll_completion().is_none());
    assert_eq!(worker.wait_completion().expect_err("none is left"), OpError::NoRequest);
    assert_eq!(worker.probe(ANYTHING()).expect_err("gone"), gone);
    assert_eq!(worker.stats().expect_err("gone"), gone);
    assert_eq!(worker.barrier().expect_err("gone"), gone);
    let refused = |outcome: Result<Request, CallError>| match outcome {
        Err(CallError::Peer(error)) => assert_eq!(error, gone),
        other => panic!("{other:?}"),
    };
    refused(worker.send_bytes(0, Tag::new(1), b"x"));
    refused(worker.send_buffered(0, Tag::new(1), b"x", SendOptions::default()));
    refused(worker.recv_in_place(ANYTHING()));
    assert!(matches!(worker.connect(0), Err(CallError::Peer(error)) if error == gone));
    assert!(matches!(worker.wait_probe(ANYTHING()), Err(CallError::Peer(error)) if error == gone));
    worker.cancel(waited);
    assert_eq!(worker.outcomes.buffered_bytes(), 0);
    assert_eq!(worker.poll_event(), None);
    assert_eq!(worker.close().expect_err("gone"), gone.into());
}

#[test]
fn a_panic_of_the_engine_wakes_who_sleeps_on_the_descriptor() {
    let mut worker = Alone::new(&[]).open();
    let never = receive(&mut worker, 1);
    while worker.arm().expect("no fork") == Arming::Pending {}
    assert!(worker.post(Command::Ask(rings::Question::Panic)).is_ok());
    let at_most = Timespec { tv_sec: 20, tv_nsec: 0 };
    assert_eq!(poll(&mut [PollFd::new(&worker, PollFlags::IN)], Some(&at_most)), Ok(1), "it wakes");
    worker.acknowledge();
    assert_eq!(worker.arm(), Ok(Arming::Pending));
    assert!(matches!(worker.test(never), Some(Err(OpError::EngineGone(_)))));
    assert_eq!(worker.arm(), Ok(Arming::Pending), "nothing would wake a sleeper any more");
}

#[test]
fn a_wait_ends_when_the_job_has_failed() {
    let alone = Alone::new(&[]);
    let mut worker = alone.open();
    let never = receive(&mut worker, 1);
    alone.board.fail("rank 3 exited with status 1");
    let over = OpError::Job("the job has failed: rank 3 exited with status 1".into());
    assert_eq!(worker.wait(never).expect_err("no rank sends"), over);
    assert_eq!(worker.barrier().expect_err("gone"), over);
}

#[test]
fn a_dropped_handle_ends_its_thread_whatever_is_under_way() {
    let mut worker = Alone::new(&[]).open();
    drop((receive(&mut worker, 1), worker.send_bytes(0, Tag::new(2), b"x")));
    let rings = worker.rings.clone();
    assert!(!rings.is_over());
    drop(worker);
    assert!(rings.is_over());
    assert_eq!(Arc::strong_count(&rings), 1, "no other handle has them");
}

#[test]
fn a_worker_that_cannot_be_opened_says_why() {
    let alone = Alone::new(&[]);
    let start = |open: fn() -> Result<Domain, WireupError>| DedicatedWorker::start(&alone.config, open).err();
    let error = start(|| Err(OpError::NobodyLeft.into())).expect("refused").to_string();
    assert_eq!(error, OpError::NobodyLeft.to_string());
    let error = start(|| panic!("at the start")).expect("refused").to_string();
    assert_eq!(error, "the worker's thread is gone: it panicked: at the start");
    // No machine that runs this has so many.
    let pinned = Alone::new(&[("engine_cpu", "1023")]);
    let error = DedicatedWorker::spawn(&pinned.config, pinned.job()).err().expect("refused").to_string();
    assert!(error.contains("on processor 1023 (ROCI_ENGINE_CPU)"), "{error}");
}

#[test]
fn a_pinned_thread_runs_on_its_processor_and_the_others_go_on_as_before() {
    let allowed = || sched_getaffinity(None).expect("it is our own");
    let before = allowed();
    let cpu = (0..1024).rfind(|&cpu| before.is_set(cpu)).expect("we run somewhere");
    let pinned = thread::spawn(move || progress_thread::pin(Some(cpu)).map(|()| allowed()));
    let pinned = pinned.join().expect("no panic").expect("it is allowed");
    assert!(pinned.is_set(cpu) && pinned.count() == 1);
    assert!(allowed() == before);
    let mut worker = Alone::new(&[("engine_cpu", &cpu.to_string())]).open();
    worker.barrier().expect("it works");
    assert!(allowed() == before);
}

#[test]
fn a_claimed_message_comes_back_from_a_call_that_is_refused() {
    let mut worker = Alone::new(&[]).open();
    worker.send_bytes(0, Tag::new(2), b"claimed").map(drop).expect("accepted");
    let message = worker.claim(Pattern::new(0, Tag::new(2))).expect("it lives").expect("it waits");
    let mut waiting: Vec<_> = std::iter::from_fn(|| worker.recv_in_place(Pattern::new(0, Tag::new(1))).ok()).collect();
    let buffer = worker.buffer(7).expect("memory");
    let refused = worker.recv_message(message, buffer).expect_err("too many");
    assert!(matches!(refused.why, CallError::TooMany(facts::LIMIT)), "{refused}");
    for request in waiting.drain(..3) {
        worker.cancel(request);
        assert!(worker.wait(request).expect("taken back").is_cancelled);
    }
    let (message, buffer) = refused.given;
    let receive = worker.recv_message(message, buffer).expect("room again");
    assert_eq!(*worker.wait(receive).expect("it fits").buffer, *b"claimed");
    worker.send_bytes(0, Tag::new(2), b"more").map(drop).expect("accepted");
    let message = worker.claim(Pattern::new(0, Tag::new(2))).expect("it lives").expect("it waits");
    worker.provoke_panic();
    let buffer = worker.buffer(4).expect("memory");
    let refused = worker.recv_message(message, buffer).expect_err("gone");
    assert!(matches!(refused.why, CallError::Peer(OpError::EngineGone(_))), "{refused}");
    assert_eq!((refused.given.0.envelope().len, refused.given.1.len()), (4, 4));
}

#[test]
fn a_rank_opens_no_other_endpoint() {
    let mut worker = Alone::new(&[]).open();
    assert!(matches!(worker.open_endpoint().err().expect("refused"), DomainError::Rank));
    worker.close().expect("it goes on");
}

/// Every handle of a thread learns why it is gone.
#[test]
fn a_panic_ends_all_handles_of_the_thread_by_name() {
    let mut config = Config::default();
    for (name, value) in [("device", "udp:127.96.0.1"), ("arena_size", "64MiB"), ("peers", "8")] {
        config.set(name, value, Origin::Code).expect("in range");
    }
    let mut first = DedicatedWorker::open_alone(&config).expect("the loopback interface is up");
    let mut others = [first.open_endpoint().expect("there is room"), first.open_endpoint().expect("there is room")];
    let words = first.provoke_panic().to_string();
    assert!(words.contains("as was asked for"), "{words}");
    for other in &mut others {
        assert_eq!(other.stats().expect_err("it is gone").to_string(), words);
    }
    assert!(others[0].open_endpoint().is_err());
}
