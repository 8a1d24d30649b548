//! Put, get and atomics, by every means: RDMA, messages where an end has none, and gets that the target answers by a put.

use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use roci_driver::WcStatus;
use roci_msgcore::active::{ActiveMessage, HandlerContext, HandlerId};
use roci_msgcore::one_sided::{AtomicOp, AtomicWidth, Segment, SegmentKey, Signal};
use roci_msgcore::{Buffer, CallError, OpError, PeerId, Request, Source, Tag, UserMemory, WorkerEvent};
use roci_testkit::World as _;

use super::common::{World, pattern};

const FAULTS: &str = "loss=0.03,dup=0.03,reorder=0.03,corrupt=0.01,seed=7";
/// What the two ends can do: RDMA at both, at one, with gets by the target.
const MEANS: [[&[(&str, &str)]; 2]; 4] = [
    [&[("faults", FAULTS)], &[("faults", FAULTS)]],
    [&[("faults", FAULTS), ("rdma", "off")], &[("faults", FAULTS)]],
    [&[("faults", FAULTS)], &[("faults", FAULTS), ("rdma", "off")]],
    [&[("faults", FAULTS), ("rdma_gets", "off")], &[("faults", FAULTS)]],
];
/// Around nothing, a vbuf, a packet, and what takes many of them.
const LENGTHS: [usize; 12] = [0, 1, 7, 8, 1023, 1024, 1025, 8_151, 8_152, 8_153, 65_537, 300_001];
const SEGMENT: usize = 300_100;

fn expose(world: &mut World, who: usize, bytes: &[u8]) -> (Segment, SegmentKey) {
    let buffer = filled(world, who, bytes);
    let segment = world.workers[who].expose(buffer).expect("a key is left");
    let key = segment.key().to_bytes();
    (segment, SegmentKey::from_bytes(&key).expect("it is one"))
}

fn filled(world: &World, who: usize, bytes: &[u8]) -> Buffer {
    let mut buffer = world.workers[who].buffer(bytes.len()).expect("memory");
    buffer.copy_from_slice(bytes);
    buffer
}

fn content(world: &mut World, who: usize, segment: Segment) -> Vec<u8> {
    let mut bytes = vec![0; segment.len()];
    world.workers[who].read_segment(segment, 0, &mut bytes).expect("it is there");
    bytes
}

/// The outcome's number.
fn value(world: &mut World, who: usize, request: Request) -> u64 {
    world.wait(who, request).expect("it ends well").data.expect("an atomic has a number")
}

fn number(world: &mut World, who: usize, segment: Segment, offset: usize) -> u64 {
    let mut bytes = [0; 8];
    world.workers[who].read_segment(segment, offset, &mut bytes).expect("it is there");
    u64::from_ne_bytes(bytes)
}

fn settings(means: [&'static [(&'static str, &'static str)]; 2]) -> World {
    World::of(&means)
}

#[test]
fn puts_and_gets_of_every_length_and_place_are_exact_and_touch_nothing_else() {
    for means in MEANS {
        for to in [0, 1] {
            let mut world = settings(means);
            let mut expected = pattern(SEGMENT, 3);
            let (segment, theirs) = expose(&mut world, to, &expected);
            for (round, len) in LENGTHS.into_iter().enumerate() {
                for offset in [0, 1, 8, 61] {
                    let bytes = pattern(len, 10 + round);
                    let source = filled(&world, 0, &bytes);
                    let put = world.workers[0].put_with(to.into(), source, theirs.at(offset), None).expect("accepted");
                    let done = world.wait(0, put).expect("it arrives");
                    assert!(done.buffer[..] == bytes[..] && done.len == len, "the buffer is handed back as it was");
                    expected[offset..offset + len].copy_from_slice(&bytes);
                    assert!(content(&mut world, to, segment) == expected, "{means:?}: {len} bytes at {offset}");

                    let room = filled(&world, 0, &vec![0; len]);
                    let get = world.workers[0].get_from(to.into(), room, theirs.at(offset + 1)).expect("accepted");
                    let done = world.wait(0, get).expect("it comes");
                    assert!(done.buffer[..] == expected[offset + 1..][..len], "{means:?}: {len} bytes from {offset}");
                }
            }
            let memory = world.workers[to].withdraw(segment).expect("it is there");
            assert!(memory[..] == expected[..]);
        }
    }
}

#[test]
fn eight_megabytes_are_put_and_got_by_every_means() {
    const LEN: usize = 8 << 20;
    for means in MEANS {
        let mut world = settings(means);
        let bytes = pattern(LEN, 1);
        let (segment, theirs) = expose(&mut world, 1, &vec![0; LEN + 2]);
        let source = filled(&world, 0, &bytes);
        let put = world.workers[0].put_with(1.into(), source, theirs.at(1), None).expect("accepted");
        let source = world.wait(0, put).expect("it arrives").buffer;
        let there = content(&mut world, 1, segment);
        assert!(there[0] == 0 && there[1..=LEN] == bytes[..] && there[LEN + 1] == 0, "{means:?}");
        let get = world.workers[0].get_from(1.into(), source, theirs.at(2)).expect("accepted");
        assert!(world.wait(0, get).expect("it comes").buffer[..] == there[2..], "{means:?}");
    }
}

#[test]
fn copied_puts_need_nothing_of_the_caller_and_all_arrive() {
    for means in MEANS {
        let mut world = settings(means);
        let (segment, theirs) = expose(&mut world, 1, &vec![0; 64 * 1024]);
        for number in 0..1024_u64 {
            // The first of them before there is a connection.
            world.workers[0]
                .put_copy(1.into(), &number.to_ne_bytes(), theirs.at(number as usize * 64))
                .expect("accepted");
        }
        world.find("all are there", |world| (number(world, 1, segment, 1023 * 64) == 1023).then_some(()));
        world.steps(100_000);
        let there = content(&mut world, 1, segment);
        let numbers = there.chunks(64).map(|line| u64::from_ne_bytes(line[..8].try_into().expect("8 bytes")));
        assert!(numbers.eq(0..1024), "{means:?}");
        assert_eq!(world.workers[0].stats().tx_one_sided, 1024);
    }
}

#[test]
fn atomics_do_what_they_say_with_numbers_of_both_lengths() {
    let ops = [
        AtomicOp::Add(u64::MAX - 4),
        AtomicOp::CompareSwap { compare: 1, swap: 2 },
        AtomicOp::CompareSwap { compare: 0xffff_ffff_0000_0100, swap: 0x0102_0304_0506_0708 },
        AtomicOp::Swap(0xdead_beef_0000_0100),
        AtomicOp::And(0x00ff_00ff_00ff_00ff),
        AtomicOp::Or(1 << 63 | 1 << 31),
        AtomicOp::Xor(0x8000_0001_8000_0001),
        AtomicOp::Min(7),
        AtomicOp::Max(u64::MAX - 1),
        AtomicOp::SignedMin(3),
        AtomicOp::SignedMax(9),
    ];
    for means in MEANS {
        for to in [0, 1] {
            let mut world = settings(means);
            let (segment, theirs) = expose(&mut world, to, &[0x55; 40]);
            let guard = u64::from_ne_bytes([0x55; 8]);
            let (mut long, mut short) = (0x0000_0001_0000_0100_u64, 0x0000_0100_u32);
            world.workers[to].write_segment(segment, 8, &long.to_ne_bytes()).expect("it is there");
            world.workers[to].write_segment(segment, 36, &short.to_ne_bytes()).expect("it is there");
            for op in ops {
                let request =
                    world.workers[0].atomic_with(to.into(), op, AtomicWidth::U64, theirs.at(8)).expect("accepted");
                assert_eq!(value(&mut world, 0, request), long, "{op:?}");
                long = op.apply(long);
                let request =
                    world.workers[0].atomic_with(to.into(), op, AtomicWidth::U32, theirs.at(36)).expect("accepted");
                assert_eq!(value(&mut world, 0, request), u64::from(short), "{op:?}");
                short = op.apply_to_u32(short);
                let there = content(&mut world, to, segment);
                assert_eq!(there[8..16], long.to_ne_bytes(), "{means:?}: {op:?}");
                assert_eq!(there[36..40], short.to_ne_bytes(), "{means:?}: {op:?}");
                assert_eq!(
                    (there[..8].to_vec(), there[16..36].to_vec()),
                    (guard.to_ne_bytes().to_vec(), vec![0x55; 20])
                );
            }
        }
    }
}

/// RDMA atomics of one peer, those by message of another, and the owner's own change one number at once. None is lost.
#[test]
fn atomics_of_both_kinds_and_the_owners_are_one_step_each() {
    const EACH: u64 = 200;
    let faults: &[(&str, &str)] = &[("faults", FAULTS)];
    let mut world = World::of(&[faults, &[("faults", FAULTS), ("rdma", "off")], faults]);
    let (segment, theirs) = expose(&mut world, 2, &[0; 16]);
    let mut requests = Vec::new();
    for round in 0..EACH {
        for who in 0..3 {
            let request = world.workers[who].atomic_with(
                2.into(),
                AtomicOp::Add(1 << (20 * who)),
                AtomicWidth::U64,
                theirs.at(8),
            );
            requests.push((who, request.expect("accepted")));
        }
        world.steps(round as usize % 7);
    }
    let mut seen: Vec<u64> = requests.into_iter().map(|(who, request)| value(&mut world, who, request)).collect();
    assert_eq!(number(&mut world, 2, segment, 8), EACH * (1 | 1 << 20 | 1 << 40));
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len() as u64, 3 * EACH, "each has found another number");
}

#[test]
fn what_a_signal_announces_is_there() {
    const LEN: usize = 20_000;
    for means in MEANS {
        let mut world = settings(means);
        let (segment, theirs) = expose(&mut world, 1, &vec![0; LEN + 16]);
        for round in 1..20_u64 {
            let (bytes, by_count) = (pattern(LEN, round as usize), round % 2 == 0);
            let signal = if by_count { Signal::Add(3) } else { Signal::Set(round << 32) };
            let offset = if by_count { LEN } else { LEN + 8 };
            let source = filled(&world, 0, &bytes);
            let put = world.workers[0].put_with(
                1.into(),
                source,
                theirs.at(0),
                Some((signal, theirs.at(LEN / 8 * 8 + offset - LEN))),
            );
            let put = put.expect("accepted");
            let before = number(&mut world, 1, segment, LEN / 8 * 8 + offset - LEN);
            world.find("the signal", |world| {
                (number(world, 1, segment, LEN / 8 * 8 + offset - LEN) != before).then_some(())
            });
            let there = content(&mut world, 1, segment);
            assert!(there[..LEN] == bytes[..], "{means:?}: the signal of round {round} came before its bytes");
            let expected = if by_count { before + 3 } else { round << 32 };
            assert_eq!(number(&mut world, 1, segment, LEN / 8 * 8 + offset - LEN), expected);
            assert!(world.wait(0, put).expect("it arrives").buffer[..] == bytes[..]);
        }
    }
}

/// An atomic by message is done when the target looks at its messages; a put by RDMA behind it is done as it arrives.
#[test]
fn a_fence_orders_what_goes_by_message_and_by_rdma() {
    for is_fenced in [false, true] {
        let mut overtaken = 0;
        for round in 0..40_usize {
            let mut world = World::pair(&[]);
            let (segment, theirs) = expose(&mut world, 1, &[0; 8]);
            let worker = &mut world.workers[0];
            let first =
                worker.atomic_with(1.into(), AtomicOp::Swap(1), AtomicWidth::U64, theirs.at(0)).expect("accepted");
            if is_fenced {
                worker.fence_to(1.into()).expect("it is there");
            }
            let source = filled(&world, 0, &2_u64.to_ne_bytes());
            let second = world.workers[0].put_with(1.into(), source, theirs.at(0), None).expect("accepted");
            world.steps(round);
            assert_eq!(value(&mut world, 0, first) == 2, number(&mut world, 1, segment, 0) == 1);
            world.wait(0, second).expect("it arrives");
            overtaken += usize::from(number(&mut world, 1, segment, 0) == 1);
        }
        assert_eq!(overtaken == 0, is_fenced, "{overtaken} of 40 puts have overtaken the atomic");
    }
}

#[test]
fn what_reaches_beyond_a_segment_is_refused_and_nothing_is_lost() {
    let mut world = World::pair(&[]);
    let (_, theirs) = expose(&mut world, 1, &[0; 100]);
    let source = filled(&world, 0, &[7; 10]);
    let refused = world.workers[0].put_with(1.into(), source, theirs.at(91), None).expect_err("beyond");
    assert!(matches!(refused.why, CallError::BeyondSegment { offset: 91, len: 10, segment: 100 }));
    let refused = world.workers[0].get_from(1.into(), refused.given, theirs.at(usize::MAX)).expect_err("beyond");
    assert_eq!(refused.given[..], [7; 10]);
    let source = refused.given;
    let signal = Some((Signal::Set(1), theirs.at(96)));
    let refused = world.workers[0].put_with(1.into(), source, theirs.at(0), signal).expect_err("beyond");
    assert_eq!(refused.given[..], [7; 10]);
    for width in [AtomicWidth::U32, AtomicWidth::U64] {
        let atomic = world.workers[0].atomic_with(1.into(), AtomicOp::Add(1), width, theirs.at(97));
        assert!(matches!(atomic, Err(CallError::BeyondSegment { .. })));
    }
    assert!(matches!(
        world.workers[0].put_copy(1.into(), &[1; 101], theirs.at(0)),
        Err(CallError::BeyondSegment { .. })
    ));
    assert!(matches!(
        world.workers[0].atomic_with(9.into(), AtomicOp::Add(1), AtomicWidth::U64, theirs.at(0)),
        Err(CallError::NoRank { .. })
    ));
}

/// By RDMA a stale key ends the connection, as IBTA wants it; by message the operation alone.
#[test]
fn a_withdrawn_segment_is_denied() {
    for means in MEANS {
        let is_by_message = means.iter().any(|end| end.contains(&("rdma", "off")));
        let mut world = settings(means);
        let (segment, theirs) = expose(&mut world, 1, &vec![9; 20_000]);
        let memory = world.workers[1].withdraw(segment).expect("it is there");
        assert!(matches!(world.workers[1].withdraw(segment), Err(CallError::NoSegment)));
        let source = filled(&world, 0, &vec![7; 20_000]);
        let put = world.workers[0].put_with(1.into(), source, theirs.at(0), None).expect("accepted");
        let error = world.wait(0, put).expect_err("it is withdrawn");
        assert!(memory.iter().all(|&byte| byte == 9), "nothing was written");
        if !is_by_message {
            assert_eq!(error, OpError::PeerGone { peer: 1.into(), status: WcStatus::RemAccessErr });
            continue;
        }
        assert_eq!(error, OpError::Denied { peer: 1.into() });
        let room = filled(&world, 0, &[0; 10_000]);
        let get = world.workers[0].get_from(1.into(), room, theirs.at(0)).expect("accepted");
        assert_eq!(world.wait(0, get).expect_err("it is withdrawn"), OpError::Denied { peer: 1.into() });
        let atomic = world.workers[0].atomic_with(1.into(), AtomicOp::Add(1), AtomicWidth::U64, theirs.at(8));
        assert_eq!(
            world.wait(0, atomic.expect("accepted")).expect_err("it is withdrawn"),
            OpError::Denied { peer: 1.into() }
        );
        assert_eq!(world.workers[1].stats().rx_denied, 3);
        // The connection lives.
        let (_, theirs) = expose(&mut world, 1, &[9; 100]);
        let room = filled(&world, 0, &[0; 100]);
        let get = world.workers[0].get_from(1.into(), room, theirs.at(0)).expect("accepted");
        assert_eq!(world.wait(0, get).expect("it comes").buffer[..], [9; 100]);
    }
}

#[test]
fn a_source_may_be_read_and_a_target_is_shared_with_its_application() {
    let mut world = World::pair(&[]);
    let source: &'static [u8] = pattern(1000, 5).leak();
    let source_buffer = world.workers[1].adopt(source.into()).expect("it is there");
    let theirs = world.workers[1].expose(source_buffer).expect("a key is left").key();
    let room = filled(&world, 0, &[0; 1000]);
    let get = world.workers[0].get_from(1.into(), room, theirs.at(0)).expect("accepted");
    assert!(world.wait(0, get).expect("it comes").buffer[..] == *source);

    let shared: &'static [AtomicU8] = (0..1000).map(|_| AtomicU8::new(1)).collect::<Vec<_>>().leak();
    // SAFETY: they are mapped for ever, and all references to them are to atomics.
    let memory = unsafe { UserMemory::target(NonNull::from(shared).cast(), shared.len()) };
    let target = world.workers[1].adopt(memory).expect("it is there");
    let theirs = world.workers[1].expose(target).expect("a key is left").key();
    let put = filled(&world, 0, &[2; 500]);
    let put = world.workers[0].put_with(1.into(), put, theirs.at(100), None).expect("accepted");
    world.wait(0, put).expect("it arrives");
    let now: Vec<u8> = shared.iter().map(|byte| byte.load(Ordering::Relaxed)).collect();
    assert!(now[..100] == [1; 100] && now[100..600] == [2; 500] && now[600..] == [1; 400]);
    shared[100].store(7, Ordering::Relaxed);
    let room = filled(&world, 0, &[0; 2]);
    let get = world.workers[0].get_from(1.into(), room, theirs.at(99)).expect("accepted");
    assert_eq!(world.wait(0, get).expect("it comes").buffer[..], [1, 7]);
}

#[test]
fn operations_end_with_their_peer_and_their_memory_comes_back() {
    for means in MEANS {
        let means = means.map(|end| [end, &[("retry_limit", "4"), ("ack_timeout_us", "100")]].concat());
        let mut world = World::of(&[&means[0], &means[1]]);
        world.connect_all();
        let memory = world.workers[0].memory();
        let (_, theirs) = expose(&mut world, 1, &vec![0; 100_000]);
        world.cut(1);
        let mut requests = Vec::new();
        for _ in 0..50 {
            let (put, get) = (filled(&world, 0, &vec![1; 50_000]), filled(&world, 0, &vec![0; 50_000]));
            let worker = &mut world.workers[0];
            let peer = PeerId::from(1_usize);
            requests.push(
                worker.put_with(peer, put, theirs.at(0), Some((Signal::Add(1), theirs.at(60_000)))).expect("accepted"),
            );
            requests.push(worker.get_from(peer, get, theirs.at(0)).expect("accepted"));
            requests
                .push(worker.atomic_with(peer, AtomicOp::Xor(1), AtomicWidth::U32, theirs.at(0)).expect("accepted"));
            worker.put_copy(peer, &[3; 100], theirs.at(5)).expect("accepted");
        }
        for request in requests {
            assert!(matches!(world.wait(0, request), Err(OpError::PeerGone { peer, .. }) if peer == 1));
        }
        world.steps(1000);
        world.workers[0].inside().check_invariants().expect("sound");
        assert_eq!(world.workers[0].memory(), memory, "{means:?}: memory is lost");
        let late = world.workers[0].put_copy(1.into(), &[1], theirs.at(0));
        // The engine of a dedicated worker knows, not its handle.
        assert_eq!(matches!(late, Err(CallError::Peer(_))), !world.workers[0].is_dedicated());
    }
}

#[test]
fn completions_of_one_sided_operations_go_into_the_queue_among_the_others() {
    let mut world = World::pair(&[]);
    let (_, theirs) = expose(&mut world, 1, &[4; 100]);
    let room = filled(&world, 0, &[0; 100]);
    let get = world.workers[0].get_from(1.into(), room, theirs.at(0)).expect("accepted");
    world.workers[0].queue_completion(get, 77).expect("it is under way");
    let atomic =
        world.workers[0].atomic_with(1.into(), AtomicOp::Add(1), AtomicWidth::U32, theirs.at(0)).expect("accepted");
    world.workers[0].queue_completion(atomic, 78).expect("it is under way");
    let mut contexts = Vec::new();
    world.find("both have ended", |world| {
        contexts.extend(world.workers[0].poll_completion().map(|completion| {
            completion.outcome.expect("well");
            completion.context
        }));
        (contexts.len() == 2).then_some(())
    });
    contexts.sort_unstable();
    assert_eq!(contexts, [77, 78]);
}

/// The target writes a copy where it has memory for one, and else sends parts.
#[test]
fn gets_that_the_target_answers_need_no_memory_of_it() {
    let settings: &[(&str, &str)] = &[("rdma_gets", "off"), ("arena_size", "16MiB")];
    let mut world = World::pair(settings);
    world.connect_all();
    let shared: &'static [u8] = pattern(3 << 20, 5).leak();
    let memory = world.workers[1].adopt(shared.into()).expect("it is there");
    let theirs = world.workers[1].expose(memory).expect("a key is left").key();
    let mut hogs = Vec::new();
    while let Ok(hog) = world.workers[1].buffer(64 << 10) {
        hogs.push(hog);
    }
    let requests: Vec<_> = (0..3)
        .map(|at| {
            let room = world.workers[0].buffer(1 << 20).expect("memory");
            world.workers[0].get_from(1.into(), room, theirs.at(at << 20)).expect("accepted")
        })
        .collect();
    for (at, request) in requests.into_iter().enumerate() {
        let done = world.wait(0, request).expect("it comes");
        assert!(done.buffer[..] == shared[at << 20..][..1 << 20]);
    }
    drop(hogs);
    // However many are asked for at once, the target's own memory is left to it.
    let free = world.workers[1].free_bytes();
    let requests: Vec<_> = (0..1000)
        .map(|at| {
            let room = world.workers[0].buffer(8 << 10).expect("memory");
            world.workers[0].get_from(1.into(), room, theirs.at(at * 1000)).expect("accepted")
        })
        .collect();
    let mut least = free;
    for (at, request) in requests.into_iter().enumerate() {
        let done = world.find("it comes", |world| {
            least = least.min(world.workers[1].free_bytes());
            world.workers[0].test(request)
        });
        assert!(done.expect("well").buffer[..] == shared[at * 1000..][..8 << 10]);
    }
    assert!(free - least < 1 << 20, "{} bytes were taken for copies", free - least);
}

/// Either answers what the other waits for, though its own put waits behind its own get.
#[test]
fn fences_at_both_ends_do_not_wait_for_each_other() {
    for means in [&[("rdma_gets", "off")][..], &[("rdma", "off")], &[]] {
        let mut world = World::pair(means);
        let mut requests = Vec::new();
        for who in 0..2 {
            let (_, theirs) = expose(&mut world, 1 - who, &vec![3; 100_000]);
            for _ in 0..5 {
                let room = filled(&world, who, &vec![0; 50_000]);
                let worker = &mut world.workers[who];
                requests.push((who, worker.get_from((1 - who).into(), room, theirs.at(0)).expect("accepted")));
                worker.fence_to((1 - who).into()).expect("it is there");
                let source = filled(&world, who, &vec![4; 50_000]);
                let put = world.workers[who].put_with((1 - who).into(), source, theirs.at(0), None);
                requests.push((who, put.expect("accepted")));
                world.workers[who].fence_to((1 - who).into()).expect("it is there");
            }
        }
        for (at, (who, request)) in requests.into_iter().enumerate() {
            let done = world.wait(who, request).expect("it ends");
            let expected = if at % 10 == 0 { 3 } else { 4 };
            assert!(done.buffer.iter().all(|&byte| byte == expected), "{means:?}: {at}");
        }
    }
}

/// Puts that never end leave room for messages both ways, and messages for them.
#[test]
fn neither_puts_nor_messages_keep_the_others_waiting() {
    for means in [&[][..], &[("rdma", "off")], &[("rdma", "off"), ("credits", "8")]] {
        let mut world = World::pair(means);
        world.connect_all();
        let (_, theirs) = expose(&mut world, 1, &vec![0; 1 << 20]);
        let mut puts = VecDeque::new();
        let mut ended = 0;
        for round in 0..60_u64 {
            let messages: Vec<_> = (0..2)
                .flat_map(|who| {
                    let receive = world.recv_from(1 - who, Source::Peer(who.into()), Tag::new(round), 3000);
                    let send = world.send(who, round, &pattern(3000, round as usize));
                    [(1 - who, receive), (who, send)]
                })
                .collect();
            for (who, request) in messages {
                world
                    .find("a message beside puts", |world| {
                        while puts.len() < 600 {
                            let source = filled(world, 0, &[7; 2000]);
                            let put = world.workers[0].put_with(1.into(), source, theirs.at(puts.len() * 1000), None);
                            puts.push_back(put.expect("accepted"));
                        }
                        while let Some(done) = world.workers[0].test(puts[0]) {
                            done.expect("well");
                            puts.pop_front();
                            ended += 1;
                        }
                        world.workers[who].test(request)
                    })
                    .expect("it ends well");
            }
        }
        assert!(ended > 0, "{means:?}: messages keep puts waiting");
        for put in puts {
            world.wait(0, put).expect("it arrives");
        }
    }
}

/// One vbuf a round trip would be more than a thousand round trips; and messages to that peer never end meanwhile.
#[test]
fn a_fenced_put_by_message_is_not_slow_and_waits_for_no_silence() {
    let mut world = World::pair(&[("rdma", "off")]);
    world.connect_all();
    let (_, theirs) = expose(&mut world, 1, &vec![0; 8 << 20]);
    let log = Arc::new(AtomicU64::new(0));
    let ours = log.clone();
    let count = move |_: &mut HandlerContext<'_>, _: ActiveMessage<'_>| {
        ours.fetch_add(1, Ordering::Relaxed);
    };
    world.workers[1].register_handler("count", Box::new(count)).expect("free");
    let add =
        world.workers[0].atomic_with(1.into(), AtomicOp::Add(1), AtomicWidth::U64, theirs.at(0)).expect("accepted");
    world.workers[0].fence_to(1.into()).expect("it is there");
    let source = filled(&world, 0, &vec![1; 8 << 20]);
    let put = world.workers[0].put_with(1.into(), source, theirs.at(0), None).expect("accepted");
    let mut rounds = 0;
    world
        .find("the put beside messages", |world| {
            rounds += 1;
            world.workers[0].send_active(1.into(), HandlerId::of("count"), &[], &[]).ok();
            world.workers[0].test(put)
        })
        .expect("it arrives");
    assert_eq!(value(&mut world, 0, add), 0);
    assert!(rounds < 1500, "{rounds} rounds for 1029 messages");
}

#[test]
fn a_misaligned_atomic_is_refused_by_the_call() {
    for means in MEANS {
        let mut world = settings(means);
        let (segment, theirs) = expose(&mut world, 1, &[0; 64]);
        for (width, offset) in [(AtomicWidth::U64, 4), (AtomicWidth::U64, 9), (AtomicWidth::U32, 2)] {
            let refused = world.workers[0].atomic_with(1.into(), AtomicOp::Add(1), width, theirs.at(offset));
            assert!(matches!(refused, Err(CallError::Misaligned { .. })), "{width:?} at {offset}");
        }
        for signal in [Signal::Add(1), Signal::Set(1)] {
            let source = filled(&world, 0, &[1; 8]);
            let refused = world.workers[0].put_with(1.into(), source, theirs.at(0), Some((signal, theirs.at(12))));
            assert!(matches!(refused.expect_err("misaligned").why, CallError::Misaligned { .. }));
        }
        assert!(matches!(
            world.workers[1].wait_for_change(Source::Any, segment, 4, 7),
            Err(CallError::Misaligned { .. })
        ));
        let add = world.workers[0].atomic_with(1.into(), AtomicOp::Add(1), AtomicWidth::U64, theirs.at(56));
        assert_eq!(value(&mut world, 0, add.expect("accepted")), 0, "and the connection lives");
    }
}

/// By message the target denies the put alone; who waits for the signal must not take the bytes for there.
#[test]
fn a_put_that_is_denied_has_no_signal_and_no_handler() {
    let mut world = World::pair(&[("rdma", "off")]);
    let (gone, key) = expose(&mut world, 1, &[0; 64]);
    let (segment, theirs) = expose(&mut world, 1, &[0; 64]);
    world.workers[1].withdraw(gone).expect("it is there");
    let runs = Arc::new(AtomicU64::new(0));
    let ours = runs.clone();
    let run = move |_: &mut HandlerContext<'_>, _: ActiveMessage<'_>| {
        ours.fetch_add(1, Ordering::Relaxed);
    };
    world.workers[1].register_handler("run", Box::new(run)).expect("free");
    for round in 0..4 {
        let source = filled(&world, 0, &[1; 8]);
        let worker = &mut world.workers[0];
        let put = if round % 2 == 0 {
            worker.put_with(1.into(), source, key.at(0), Some((Signal::Set(1), theirs.at(8))))
        } else {
            worker.send_active_long(1.into(), HandlerId::of("run"), 1, source, key.at(0))
        };
        assert_eq!(world.wait(0, put.expect("accepted")).expect_err("denied"), OpError::Denied { peer: 1.into() });
    }
    world.steps(1000);
    assert_eq!((number(&mut world, 1, segment, 8), runs.load(Ordering::Relaxed)), (0, 0));
}

/// What waits for no operation's end is said in an event.
#[test]
fn a_denied_operation_without_a_name_is_an_event() {
    let mut world = World::pair(&[("rdma", "off")]);
    let (gone, key) = expose(&mut world, 1, &[0; 64]);
    world.workers[1].withdraw(gone).expect("it is there");
    world.workers[0].put_copy(1.into(), &[1; 8], key.at(0)).expect("accepted");
    let event = world.find("an event", |world| match world.workers[0].poll_event() {
        Some(WorkerEvent::Connected { .. }) => None,
        other => other,
    });
    assert_eq!(event, WorkerEvent::Denied { peer: 1.into() });
}
