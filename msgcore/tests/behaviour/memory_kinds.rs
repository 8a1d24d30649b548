//! Messages from sources, which any number of sends may share, into targets, which the application may access meanwhile.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, Ordering};

use roci_msgcore::stream::StreamError;
use roci_msgcore::{
    Buffer, CallError, MemoryKind, Pattern, Refused, Request, Source, Tag, TagMatch, UserMemory, WrongKind,
};
use roci_testkit::World as _;

use super::common::{World, pattern};

const FAULTS: &str = "loss=0.03,dup=0.03,reorder=0.03,corrupt=0.01,seed=5";
/// Of the protocols, and of what they need registered.
const WAYS: [(&str, &str); 6] =
    [("r3", "auto"), ("rget", "auto"), ("rput", "auto"), ("pipeline", "auto"), ("rget", "lock"), ("pipeline", "lock")];
const LONGEST: usize = 300_001;

/// Bytes that everybody may access, for ever.
fn shared_bytes(len: usize) -> &'static [AtomicU8] {
    (0..len).map(|_| AtomicU8::new(0)).collect::<Vec<_>>().leak()
}

fn source(world: &mut World, who: usize, bytes: &'static [u8]) -> Buffer {
    world.workers[who].adopt(bytes.into()).expect("it is there")
}

fn target(world: &mut World, who: usize, bytes: &'static [AtomicU8]) -> Buffer {
    // SAFETY: they are mapped for ever, and all references to them are to atomics.
    let memory = unsafe { UserMemory::target(NonNull::from(bytes).cast(), bytes.len()) };
    world.workers[who].adopt(memory).expect("it is there")
}

fn content(bytes: &[AtomicU8]) -> Vec<u8> {
    bytes.iter().map(|byte| byte.load(Ordering::Relaxed)).collect()
}

/// Four messages from overlapping parts of the same bytes, two of them before they are received, to `to`.
fn share(world: &mut World, to: usize) {
    let bytes: &'static [u8] = pattern(LONGEST, 1).leak();
    let room = shared_bytes(LONGEST + 64);
    for len in [0, 1, 63, 8_153, 65_537, LONGEST] {
        let parts = [0..len, len / 2..len, len / 3..len, 0..len];
        let mut sends: Vec<Request> = Vec::new();
        for (tag, part) in parts.iter().enumerate() {
            if tag == 2 {
                world.steps(200);
            }
            let payload = source(world, 0, &bytes[part.clone()]);
            sends.push(world.workers[0].send(to.into(), Tag::new(tag as u64), payload).expect("accepted"));
        }
        for (tag, part) in parts.into_iter().enumerate() {
            let buffer = target(world, to, &room[13..13 + part.len() + 3]);
            let receive = world.workers[to].recv(Source::Any, Tag::new(tag as u64), buffer).expect("accepted");
            let done = world.wait(to, receive).expect("it comes");
            assert_eq!((done.len, done.buffer.kind()), (part.len(), MemoryKind::Target));
            assert!(content(&room[13..13 + part.len()]) == bytes[part.clone()], "{part:?}: the bytes differ");
            assert!(content(&room[13 + part.len()..][..3]) == [0; 3] && content(&room[..13]) == [0; 13]);
            for byte in room {
                byte.store(0, Ordering::Relaxed);
            }
        }
        for send in sends {
            let sent = world.wait(0, send).expect("it goes");
            assert_eq!(sent.buffer.kind(), MemoryKind::Source);
        }
    }
}

#[test]
fn every_protocol_carries_overlapping_sources_into_targets() {
    for (protocol, pin) in WAYS {
        let chunk = ("pipeline_chunk", "64KiB");
        let settings =
            [("rndv_protocol", protocol), chunk, ("dreg_pin", pin), ("faults", FAULTS), ("ack_timeout_us", "100")];
        share(&mut World::pair(&settings), 1);
    }
}

#[test]
fn a_message_to_oneself_goes_from_a_source_into_a_target() {
    share(&mut World::pair(&[]), 0);
}

/// With so few keys that pieces are staged, and copied into the target from there.
#[test]
fn pieces_are_staged_for_a_target_that_cannot_be_registered() {
    let settings =
        [("rndv_protocol", "pipeline"), ("pipeline_chunk", "64KiB"), ("dreg_pin", "lock"), ("ndreg_entries", "0")];
    share(&mut World::pair(&settings), 1);
}

/// The application writes to all of a target while a message comes: its own bytes are lost or not, those around are not touched.
#[test]
fn an_application_may_write_to_a_target_while_a_message_comes() {
    let bytes: &'static [u8] = vec![1; LONGEST].leak();
    let room = shared_bytes(LONGEST + 2);
    let mut world = World::pair(&[("rndv_protocol", "rput")]);
    let buffer = target(&mut world, 1, &room[1..=LONGEST]);
    let receive = world.workers[1].recv(Source::Any, TagMatch::Any, buffer).expect("accepted");
    let payload = source(&mut world, 0, bytes);
    let send = world.workers[0].send(1.into(), Tag::new(1), payload).expect("accepted");
    let is_over = AtomicU8::new(0);
    let done = std::thread::scope(|scope| {
        let scribbler = scope.spawn(|| {
            while is_over.load(Ordering::Relaxed) == 0 {
                room[1..=LONGEST].iter().step_by(7).for_each(|byte| byte.store(2, Ordering::Relaxed));
            }
        });
        let done = world.wait(1, receive).expect("it comes");
        is_over.store(1, Ordering::Relaxed);
        scribbler.join().expect("it only writes");
        done
    });
    assert_eq!(done.len, LONGEST);
    world.wait(0, send).expect("it goes");
    let content = content(room);
    assert_eq!((content[0], content[LONGEST + 1]), (0, 0));
    assert!(content[1..=LONGEST].iter().enumerate().all(|(at, &byte)| byte == 1 || at % 7 == 0 && byte == 2));
}

/// What is left of a multi-receive's target is one, and so are its pieces.
#[test]
fn many_messages_lie_one_behind_the_other_in_a_target() {
    let mut world = World::pair(&[("eager_threshold", "1000")]);
    let room = shared_bytes(30_000);
    let buffer = target(&mut world, 1, room);
    let _ = world.workers[1].recv_multi(Pattern::new(Source::Any, TagMatch::Any), buffer, 10_000, 5).expect("accepted");
    let sends = [100, 20_000, 64].map(|len| world.send(0, 1, &pattern(len, len)));
    for is_last in [false, false, true] {
        let completion = world.find("a completion", |world| world.workers[1].poll_completion());
        assert_eq!(
            (completion.is_last, completion.outcome.expect("good").buffer.kind()),
            (is_last, MemoryKind::Target)
        );
    }
    assert!(content(&room[..100]) == pattern(100, 100) && content(&room[128..20_128]) == pattern(20_000, 20_000));
    let receive = world.recv(1, TagMatch::Any, 64);
    world.expect(1, receive, &pattern(64, 64));
    for send in sends {
        drop(world.wait(0, send).expect("sent"));
    }
}

fn is_wrong<T: std::fmt::Debug>(refused: Result<Request, Refused<T>>, kind: WrongKind) -> T {
    match refused {
        Err(Refused { why: CallError::Kind(its), given }) if its == kind => given,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_buffer_of_the_wrong_kind_comes_back_from_each_call() {
    let mut world = World::pair(&[]);
    world.connect_all();
    let anything = || Pattern::new(Source::Any, TagMatch::Any);
    for to in [0, 1] {
        let buffer = target(&mut world, 0, shared_bytes(64));
        let refused = world.workers[0].send(to.into(), Tag::new(1), buffer);
        assert_eq!(is_wrong(refused, WrongKind::Target).kind(), MemoryKind::Target);
    }
    let mut buffer = source(&mut world, 0, &[1; 64]);
    buffer = is_wrong(world.workers[0].recv(Source::Any, Tag::new(1), buffer), WrongKind::Source);
    buffer = is_wrong(world.workers[0].recv_with(anything(), buffer), WrongKind::Source);
    buffer = is_wrong(world.workers[0].recv_multi(anything(), buffer, 1, 1), WrongKind::Source);
    let send = world.send(1, 1, b"claimed");
    let message = world.find("a message", |world| world.workers[0].claim(anything()));
    let (message, buffer) = is_wrong(world.workers[0].recv_message(message, buffer), WrongKind::Source);
    assert_eq!(*buffer, [1; 64]);
    let room = world.workers[0].buffer(64).expect("memory");
    let receive = world.workers[0].recv_message(message, room).expect("it is still claimed");
    world.expect(0, receive, b"claimed");
    world.wait(1, send).expect("it goes");
    assert!(world.workers[0].inside().check_invariants().is_ok());
}

/// Puts a payload of these bytes, which is shorter or longer than what streams fetch without a copy, and takes it back.
fn put_payload(world: &mut World, buffer: Buffer, expected: &[u8]) {
    let payload = world.workers[0].adopt_payload(buffer).expect("it may be put");
    let (mut got, mut is_put) = (Vec::new(), false);
    world.find("the payload", |world| {
        is_put = is_put || world.workers[0].stream(1).expect("open").put_payload(payload).expect("it goes") > 0;
        let mut bytes = [0; 5_000];
        let count = world.workers[1].stream(0).expect("open").get(&mut bytes).expect("it comes");
        got.extend_from_slice(&bytes[..count]);
        (is_put && got.len() == expected.len()).then_some(())
    });
    assert!(got == expected, "{} bytes differ", expected.len());
    let refused = world.workers[0].write_payload(payload, 0, &[9]);
    assert!(matches!(refused, Ok(()) | Err(StreamError::Kind(WrongKind::Source))), "{refused:?}");
    world.workers[0].release_payload(payload).expect("it is put");
}

#[test]
fn payloads_of_streams_are_sources_and_lists_and_no_targets() {
    let bytes: &'static [u8] = pattern(700_000, 1).leak();
    let mut world = World::pair(&[]);
    for len in [10, 20_000, 700_000] {
        let payload = source(&mut world, 0, &bytes[..len]);
        put_payload(&mut world, payload, &bytes[..len]);
        let mut piece = world.workers[0].buffer(len - len / 3).expect("memory");
        piece.copy_in(0, &bytes[len / 3..len]);
        let first = source(&mut world, 0, &bytes[..len / 3]);
        let list = Buffer::list(vec![first, piece]).expect("two");
        put_payload(&mut world, list, &bytes[..len]);
    }
    let buffer = target(&mut world, 0, shared_bytes(10));
    let refused = world.workers[0].adopt_payload(buffer);
    assert!(matches!(refused, Err(StreamError::Kind(WrongKind::Target))), "{refused:?}");
}

/// It comes back to the caller, and the stream goes on.
#[test]
fn a_stream_is_not_read_into_what_cannot_be_borrowed() {
    let mut world = World::pair(&[]);
    let list = Buffer::list(vec![world.workers[1].buffer(10).expect("memory")]).expect("one");
    let kinds = [
        (source(&mut world, 1, &[1; 64]), WrongKind::Source),
        (target(&mut world, 1, shared_bytes(64)), WrongKind::NoView),
        (list, WrongKind::NoView),
    ];
    let mut sent = 0;
    world.find("all is taken", |world| {
        world.workers[1].stream(0).expect("both open it");
        sent += world.workers[0].stream(1).expect("open").put(&[7; 20][sent..]).expect("it goes");
        (sent == 20).then_some(())
    });
    world.steps(300);
    for (buffer, kind) in kinds {
        let mut slot = Some(buffer);
        let refused = world.workers[1].stream(0).expect("open").get_into(&mut slot);
        assert!(matches!(refused, Err(StreamError::Kind(its)) if its == kind), "{refused:?}");
        assert!(slot.is_some(), "it is the caller's");
    }
    let mut got = 0;
    world.find("all has come", |world| {
        got += world.workers[1].stream(0).expect("open").get(&mut [0; 20]).expect("it comes");
        (got == 20).then_some(())
    });
}

/// With registrations, which want memory that can be written; a literal cannot be.
#[test]
fn a_source_may_lie_where_nothing_can_be_written() {
    static LITERAL: [u8; 20_000] = [3; 20_000];
    let mut world = World::pair(&[("dreg_pin", "lock"), ("eager_threshold", "1000")]);
    for bytes in [&LITERAL[..], &LITERAL[..100]] {
        let receive = world.recv(1, Tag::new(1), bytes.len());
        let payload = source(&mut world, 0, bytes);
        let send = world.workers[0].send(1.into(), Tag::new(1), payload).expect("accepted");
        world.expect(1, receive, bytes);
        world.wait(0, send).expect("it goes");
    }
}
