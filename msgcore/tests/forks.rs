//! Forks of a process with a worker. Where that lives on a thread of its own, which is at work, the child has no thread. The parent
//! has everything.

#[path = "workers/ranks.rs"]
mod ranks;

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ranks::{Member, config, run_ranks};
use roci_driver::{ArenaError, UserMemory};
use roci_msgcore::active::{ActiveMessage, HandlerContext, HandlerId};
use roci_msgcore::collectives::Collectives as _;
use roci_msgcore::dedicated::Arming;
use roci_msgcore::one_sided::{AtomicOp, AtomicWidth, OfferedMemory, Segment};
use roci_msgcore::stream::{StreamError, Streams as _};
use roci_msgcore::{
    Buffer, CallError, ClaimedMessage, DedicatedWorker, Dropped, Messaging, OpError, Pattern, Rank, Refused, Request,
    SendOptions, Tag, Worker,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Forks, each in the middle of an exchange: the thread is found at many of its works.
const FORKS: u64 = 30;
/// Eager in one vbuf, in several, and by a rendezvous.
const SIZES: [usize; 4] = [1, 4_000, 40_000, (1 << 20) + 3];
/// Never sent.
const IDLE: Tag = Tag::new(1000);
/// Claimed, and received at the end.
const CLAIMED: Tag = Tag::new(1001);
/// Seconds after which a child hangs.
const PATIENCE: u32 = 20;

fn byte(at: usize, from: Rank, round: u64) -> u8 {
    (at * 31 + at / 251 + from * 101) as u8 ^ (round as u8).wrapping_mul(77)
}

/// One message of each length to the other rank, and one from it.
fn begin(worker: &mut DedicatedWorker, round: u64) -> Vec<(Request, Request)> {
    let (us, other) = (worker.rank(), 1 - worker.rank());
    let begin_one = |(tag, &len): (Tag, &usize)| {
        let room = worker.buffer(len).expect("memory");
        let receive = worker.recv(other, tag, room).expect("accepted");
        let mut payload = worker.buffer(len).expect("memory");
        payload.iter_mut().enumerate().for_each(|(at, slot)| *slot = byte(at, us, round));
        (worker.send(other, tag, payload).expect("accepted"), receive)
    };
    (0..).map(Tag::new).zip(&SIZES).map(begin_one).collect()
}

fn finish(worker: &mut DedicatedWorker, round: u64, tickets: Vec<(Request, Request)>) {
    let other = 1 - worker.rank();
    for ((send, receive), len) in tickets.into_iter().zip(SIZES) {
        let received = worker.wait(receive).expect("it comes");
        assert_eq!((received.len, received.peer), (len, other.into()));
        let wrong = received.buffer.iter().enumerate().find(|&(at, &got)| got != byte(at, other, round));
        assert_eq!(wrong, None, "{len} bytes in round {round}");
        worker.wait(send).expect("it goes");
    }
}

/// What the parent had when the child was forked.
struct Inherited {
    worker: DedicatedWorker,
    receive: Request,
    message: ClaimedMessage,
    buffer: Buffer,
}

/// How the child parts from the worker.
#[derive(Clone, Copy, PartialEq)]
enum Parting {
    Drop,
    Close,
    Abort,
}

/// The first call that is not refused as it should be.
fn unrefused_call(inherited: Inherited, parting: Parting) -> Option<&'static str> {
    let Inherited { mut worker, receive, message, buffer } = inherited;
    let pattern = Pattern::new(1, IDLE);
    let (buffer, of_sends) = begin_calls(&mut worker, buffer, message);
    let mut memory = [0u8; 64];
    // SAFETY: the memory is looked at by nobody else, and outlives the buffer, which is not made here.
    let memory_of_user = unsafe { UserMemory::new(NonNull::from(&mut memory).cast(), memory.len()) };
    worker.cancel(receive);
    worker.detach(receive);
    worker.give_back(buffer);
    worker.acknowledge();
    let calls = [
        ("is_forked", worker.is_forked() && (worker.rank(), worker.size()) == (0, 2)),
        ("buffer", matches!(worker.buffer(1), Err(ArenaError::Forked))),
        ("free_bytes", worker.free_bytes() == 0),
        ("send_buffered", {
            let begun = worker.send_buffered(1, IDLE, &[1], SendOptions::default());
            matches!(begun, Err(CallError::Forked))
        }),
        ("send_bytes", matches!(worker.send_bytes(1, IDLE, &[1]), Err(CallError::Forked))),
        ("recv_in_place", matches!(worker.recv_in_place(pattern), Err(CallError::Forked))),
        ("test", matches!(worker.test(receive), Some(Err(OpError::Forked)))),
        ("wait", matches!(worker.wait(receive), Err(OpError::Forked))),
        ("wait_all", worker.wait_all([receive]).is_err_and(|some| some.to_string().contains("forked"))),
        ("poll_event", worker.poll_event().is_none()),
        ("probe", matches!(worker.probe(pattern), Err(OpError::Forked))),
        ("claim", matches!(worker.claim(pattern), Err(OpError::Forked))),
        ("wait_probe", matches!(worker.wait_probe(pattern), Err(CallError::Forked))),
        ("wait_claim", matches!(worker.wait_claim(pattern), Err(CallError::Forked))),
        ("adopt", matches!(worker.adopt(memory_of_user), Err(CallError::Forked))),
        ("registration_stats", matches!(worker.registration_stats(), Err(OpError::Forked))),
        ("connect", matches!(worker.connect(1), Err(CallError::Forked))),
        ("is_connected", matches!(worker.is_connected(1), Err(OpError::Forked))),
        ("stats", matches!(worker.stats(), Err(OpError::Forked))),
        ("engine_stats", matches!(worker.engine_stats(), Err(OpError::Forked))),
        ("barrier", worker.barrier() == Err(OpError::Forked)),
        ("queue_completion", worker.queue_completion(receive, 1) == Err(OpError::Forked)),
        ("poll_completion", worker.poll_completion().is_none()),
        ("wait_completion", matches!(worker.wait_completion(), Err(OpError::Forked))),
        ("arm", worker.arm() == Err(OpError::Forked)),
        ("stream", matches!(worker.stream(1), Err(StreamError::Forked))),
        ("put_bytes", worker.put_bytes(1.into(), &[1]) == Err(StreamError::Forked)),
        ("get_bytes", worker.get_bytes(1.into(), &mut [1]) == Err(StreamError::Forked)),
    ];
    let is_parting_right = match parting {
        Parting::Drop => {
            drop(worker);
            true
        }
        Parting::Close => worker.close().is_err_and(|error| error.why == OpError::Forked),
        Parting::Abort => worker.abort() == Err(OpError::Forked),
    };
    let all = of_sends.into_iter().chain(calls).chain([("the parting", is_parting_right)]);
    all.into_iter().find_map(|(name, is_refused)| (!is_refused).then_some(name))
}

/// Those calls that hand back what they are given.
fn begin_calls(
    worker: &mut DedicatedWorker,
    buffer: Buffer,
    message: ClaimedMessage,
) -> (Buffer, [(&'static str, bool); 5]) {
    let is_forked = |why: &CallError| matches!(why, CallError::Forked);
    let Refused { why: send, given } = worker.send(1, IDLE, buffer).expect_err("the child sends nothing");
    let refused = worker.send_with(1, IDLE, given, SendOptions::default().synchronous());
    let Refused { why: send_with, given } = refused.expect_err("the child sends nothing");
    let Refused { why: recv, given } = worker.recv(1, IDLE, given).expect_err("the child receives nothing");
    let refused = worker.recv_with(Pattern::new(1, IDLE), given);
    let Refused { why: recv_with, given } = refused.expect_err("the child receives nothing");
    let refused = worker.recv_message(message, given).expect_err("the child receives nothing");
    let calls = [
        ("send", is_forked(&send)),
        ("send_with", is_forked(&send_with)),
        ("recv", is_forked(&recv)),
        ("recv_with", is_forked(&recv_with)),
        ("recv_message", is_forked(&refused.why)),
    ];
    (refused.given.1, calls)
}

/// Runs `child` in a forked child, which says whether all is well and why not.
fn fork(child: impl FnOnce() -> Option<&'static str>) {
    // SAFETY: the child calls what may be called after a fork of a process with threads, as glibc has it: the allocator
    // works. It ends without running anybody's destructors, by an alarm if it hangs.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "{}", std::io::Error::last_os_error());
    if pid == 0 {
        // SAFETY: it changes nothing but the child's own timer.
        unsafe { libc::alarm(PATIENCE) };
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child)).unwrap_or(Some("a panic"));
        if let Some(name) = outcome {
            let text = format!("in the child: {name}\n");
            // SAFETY: the bytes are the text's. No lock of the parent's is taken.
            unsafe { libc::write(2, text.as_ptr().cast(), text.len()) };
        }
        // SAFETY: it ends the child.
        unsafe { libc::_exit(i32::from(outcome.is_some())) };
    }
    let mut status = 0;
    // SAFETY: the child is ours, and has not been waited for.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    assert!(!libc::WIFSIGNALED(status), "the child hung, or died: signal {}", libc::WTERMSIG(status));
    assert_eq!(libc::WEXITSTATUS(status), 0, "the child says what was not refused");
}

/// Moves all into the child, and all back in the parent.
fn fork_with(inherited: Inherited, parting: Parting) -> Inherited {
    let mut inherited = Some(inherited);
    fork(|| unrefused_call(inherited.take().expect("it was just put there"), parting));
    inherited.expect("only the child takes it")
}

/// A child of an inline worker drops a claimed message, and completions wait: both are the parent's, to whom nothing happens.
#[test]
fn a_child_of_an_inline_worker_ends_nothing_of_its_parents() {
    run_ranks(2, |job, _| {
        let mut worker = Worker::open_job(&config(&[]), job).expect("it opens");
        let payload = vec![7; 100_000];
        if worker.rank() == 1 {
            let send = worker.send_bytes(0, CLAIMED, &payload).expect("accepted");
            worker.wait(send).expect("it is received");
            assert_eq!(worker.close().expect("both are there"), Dropped::default());
            return;
        }
        let mut message = worker.wait_claim(Pattern::new(1, CLAIMED)).expect("it comes");
        let own = worker.send_bytes(0, IDLE, b"own").expect("accepted");
        worker.queue_completion(own, 3).expect("it is there");
        for parting in [Parting::Drop, Parting::Close, Parting::Abort] {
            let mut inherited = Some((worker, message));
            fork(|| {
                let (mut worker, message) = inherited.take().expect("it was just put there");
                worker.discard(message);
                let is_refused = matches!(worker.wait_completion(), Err(OpError::Forked))
                    && worker.poll_completion().is_none()
                    && worker.queue_completion(own, 4) == Err(OpError::Forked);
                let is_parting_right = match parting {
                    Parting::Drop => {
                        drop(worker);
                        true
                    }
                    Parting::Close => worker.close().is_err_and(|error| error.why == OpError::Forked),
                    Parting::Abort => {
                        let _ = worker.abort();
                        true
                    }
                };
                if !is_refused {
                    Some("completions")
                } else if !is_parting_right {
                    Some("the parting")
                } else {
                    None
                }
            });
            (worker, message) = inherited.expect("only the child takes it");
        }
        let buffer = worker.buffer(100_000).expect("memory");
        let receive = worker.recv_message(message, buffer).expect("it is still claimed");
        assert!(worker.wait(receive).expect("it comes").buffer[..] == payload[..]);
        let receive = worker.recv_in_place(Pattern::new(0, IDLE)).expect("accepted");
        assert_eq!(&worker.wait(receive).expect("it is there").buffer[..3], b"own");
        assert_eq!(worker.wait_completion().expect("it is over").context, 3);
        assert_eq!(worker.close().expect("both are there"), Dropped::default());
    });
}

/// Has the descriptor become readable.
fn ring(worker: &mut DedicatedWorker) {
    while worker.arm() == Ok(Arming::Pending) {}
    let send = worker.send_bytes(0, IDLE, b"own").expect("accepted");
    let receive = worker.recv_in_place(Pattern::new(0, IDLE)).expect("accepted");
    worker.wait_all([send, receive]).expect("it comes");
    // An outcome is there a little before the descriptor is.
    assert!(is_readable_within(10, worker));
}

fn is_readable(worker: &DedicatedWorker) -> bool {
    is_readable_within(0, worker)
}

fn is_readable_within(seconds: i64, worker: &DedicatedWorker) -> bool {
    let limit = Timespec { tv_sec: seconds, tv_nsec: 0 };
    poll(&mut [PollFd::new(worker, PollFlags::IN)], Some(&limit)).expect("it is polled") == 1
}

/// A message from rank 1 that is claimed and not received.
fn claim(worker: &mut DedicatedWorker) -> ClaimedMessage {
    loop {
        if let Some(message) = worker.claim(Pattern::new(1, CLAIMED)).expect("it lives") {
            return message;
        }
    }
}

#[test]
fn a_childs_calls_are_refused_by_name_while_the_parents_messages_go_on() {
    run_ranks(2, |job, _| {
        let mut worker = DedicatedWorker::spawn(&config(&[]), job).expect("it opens");
        if worker.rank() == 1 {
            let send = worker.send_bytes(0, CLAIMED, b"claimed").expect("accepted");
            for round in 0..FORKS {
                let tickets = begin(&mut worker, round);
                finish(&mut worker, round, tickets);
            }
            worker.wait(send).expect("it goes");
            assert_eq!(worker.close().expect("both are there"), Dropped::default());
            return;
        }
        let receive = worker.recv_in_place(Pattern::new(1, IDLE)).expect("accepted");
        let (message, buffer) = (claim(&mut worker), worker.buffer(100).expect("memory"));
        let mut inherited = Inherited { worker, receive, message, buffer };
        for round in 0..FORKS {
            let tickets = begin(&mut inherited.worker, round);
            let partings = [Parting::Drop, Parting::Close, Parting::Abort];
            ring(&mut inherited.worker);
            inherited = fork_with(inherited, partings[round as usize % 3]);
            assert!(is_readable(&inherited.worker), "a child has read its parent's descriptor");
            inherited.worker.acknowledge();
            finish(&mut inherited.worker, round, tickets);
        }
        let Inherited { mut worker, receive, message, buffer } = inherited;
        assert!(!worker.is_forked());
        let late = worker.recv_message(message, buffer).expect("it is still claimed");
        let done = worker.wait(late).expect("it fits");
        assert_eq!(&done.buffer[..done.len], b"claimed");
        worker.cancel(receive);
        assert!(worker.wait(receive).expect("taken back").is_cancelled);
        assert_eq!(worker.close().expect("both are there"), Dropped::default());
    });
}

/// The first call on memory of peers, or of its own, that is not refused as it should be.
fn unrefused_one_sided<W: Messaging>(worker: &mut W, segment: Segment, offer: OfferedMemory) -> Option<&'static str> {
    let (place, handler) = (segment.key().at(0), HandlerId::of("count"));
    let is_forked = |outcome: Result<(), CallError>| matches!(outcome, Err(CallError::Forked));
    let calls = [
        ("read_segment", is_forked(worker.read_segment(segment, 0, &mut [0; 8]))),
        ("write_segment", is_forked(worker.write_segment(segment, 0, &[1; 8]))),
        ("withdraw", is_forked(worker.withdraw(segment).map(drop))),
        ("offer", is_forked(worker.offer(vec![0; 8].leak().into()).map(drop).map_err(|refused| refused.why))),
        ("retract", is_forked(worker.retract(offer).map(drop))),
        ("get from what is offered", worker.get_value(0, offer.key().at(0)).is_err()),
        ("put_copy", is_forked(worker.put_copy(1.into(), &[1], place))),
        ("put_copy to oneself", is_forked(worker.put_copy(0.into(), &[1], place))),
        ("put_blocking", worker.put_blocking(1, &[1], place).is_err()),
        ("get_value", worker.get_value(0, place).is_err()),
        ("atomic", worker.atomic_with(1.into(), AtomicOp::Add(1), AtomicWidth::U32, place).is_err()),
        ("fetch", worker.fetch(0, AtomicOp::Add(1), place).is_err()),
        ("wait_for_change", is_forked(worker.wait_for_change(1.into(), segment, 0, 0).map(drop))),
        ("register_handler", worker.register_handler("late", Box::new(|_, _| {})).is_err()),
        ("send_active", is_forked(worker.send_active(1.into(), handler, &[], &[]))),
        ("send_active to oneself", is_forked(worker.send_active(0.into(), handler, &[], &[]))),
        ("request_active", is_forked(worker.request_active(0.into(), handler, &[], &[]).map(drop))),
    ];
    for _ in 0..1000 {
        worker.progress();
    }
    calls.into_iter().find_map(|(name, is_refused)| (!is_refused).then_some(name))
}

/// A message to oneself waits when the child is forked: its handler runs once, in the parent.
fn a_child_reaches_no_segment<W: Member>() {
    run_ranks(2, |job, _| {
        let mut worker = W::join(&config(&[]), job).expect("it opens");
        let runs = Arc::new(AtomicU64::new(0));
        let ours = runs.clone();
        let count = Box::new(move |_: &mut HandlerContext<'_>, _: ActiveMessage<'_>| {
            ours.fetch_add(1, Ordering::SeqCst);
        });
        worker.register_handler("count", count).expect("a name");
        let segment = worker.expose(worker.memory(64)).expect("a key");
        worker.write_segment(segment, 0, &[7; 64]).expect("it is there");
        let offer = worker.offer(vec![0; 64].leak().into()).expect("keys are left");
        if worker.rank() == 0 {
            worker.send_active(0.into(), HandlerId::of("count"), &[], &[]).expect("accepted");
            fork(|| {
                // The thread of the parent's may have run it just before.
                let before = runs.load(Ordering::SeqCst);
                let unrefused = unrefused_one_sided(&mut worker, segment, offer);
                let ran = runs.load(Ordering::SeqCst) - before;
                unrefused.or((ran > 0).then_some("a handler"))
            });
            while runs.load(Ordering::SeqCst) == 0 {
                worker.progress();
            }
            let mut bytes = [0; 64];
            worker.read_segment(segment, 0, &mut bytes).expect("it is there");
            assert_eq!((bytes, runs.load(Ordering::SeqCst)), ([7; 64], 1));
        }
        worker.close().expect("both are there");
    });
}

#[test]
fn a_child_reaches_no_segment_and_runs_no_handler() {
    a_child_reaches_no_segment::<Worker>();
    a_child_reaches_no_segment::<DedicatedWorker>();
}

/// A rank forks again and again, while its peer reads and writes what it offers, of which some is registered and some is not: the
/// parent's memory is what the peer sees, and the other way round.
fn offers_stay_the_parents<W: Member>() {
    const LEN: usize = 64 * 4096;
    run_ranks(2, |job, _| {
        let small =
            [("firehose_bucket", "4KiB"), ("firehose_m", "1"), ("firehose_maxvictim_m", "1"), ("dreg_pin", "lock")];
        let mut worker = W::join(&config(&small), job).expect("it opens");
        let memory: &'static [AtomicU64] = (0..LEN / 8).map(|_| AtomicU64::new(1)).collect::<Vec<_>>().leak();
        // SAFETY: they are mapped for ever, and all references to them are to atomics.
        let ours = unsafe { UserMemory::target(NonNull::from(memory).cast(), LEN) };
        let offer = worker.offer(ours).expect("keys are left");
        let theirs = worker.gather_keys(offer).expect("all are here")[1 - worker.rank()];
        for round in 1..=20_u64 {
            if worker.rank() == 0 {
                memory[1].store(round, Ordering::SeqCst);
                fork(|| {
                    memory[1].store(1 << 40, Ordering::SeqCst);
                    memory[600].store(1 << 40, Ordering::SeqCst);
                    None
                });
                worker.barrier().expect("all are here");
            } else {
                worker.barrier().expect("all are here");
                assert_eq!(worker.get_value(0, theirs.at(8)).expect("it comes"), round, "not the child's");
                for number in [600, 512 * (round as usize % 60)] {
                    worker.put_blocking(0, &(round + 100).to_ne_bytes(), theirs.at(8 * number)).expect("it arrives");
                }
            }
            worker.barrier().expect("all are here");
            if worker.rank() == 0 {
                let found = [600, 512 * (round as usize % 60)].map(|number| memory[number].load(Ordering::SeqCst));
                assert_eq!(found, [round + 100; 2], "round {round}");
            }
        }
        worker.close().expect("both are there");
    });
}

#[test]
fn a_peer_reaches_what_the_parent_offers_before_and_after_a_fork() {
    offers_stay_the_parents::<Worker>();
    offers_stay_the_parents::<DedicatedWorker>();
}
