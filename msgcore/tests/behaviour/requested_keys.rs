//! Memory that is exposed under keys of the owner's choice: peers know the number, and nothing else.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, Ordering};

use roci_msgcore::active::HandlerId;
use roci_msgcore::one_sided::{AtomicOp, AtomicWidth, RemoteAccess, RemoteAddress, Segment, SegmentKey, Signal};
use roci_msgcore::{Buffer, CallError, OpError, Request, Source, Tag, UserMemory, WorkerEvent};
use roci_testkit::World as _;

use super::common::{World, pattern};

const FAULTS: (&str, &str) = ("faults", "loss=0.03,dup=0.03,reorder=0.03,corrupt=0.01,seed=7");
/// RDMA at both ends, at one, and gets by the target.
const MEANS: [[&[(&str, &str)]; 2]; 4] = [
    [&[FAULTS], &[FAULTS]],
    [&[FAULTS, ("rdma", "off")], &[FAULTS]],
    [&[FAULTS], &[FAULTS, ("rdma", "off")]],
    [&[FAULTS, ("rdma_gets", "off")], &[FAULTS]],
];
const LENGTHS: [usize; 10] = [0, 1, 8, 1023, 1024, 1025, 8_152, 8_153, 65_537, 300_001];
const SEGMENT: usize = 300_100;
/// Where addresses begin: at 0, or where memory might lie.
const BASES: [u64; 2] = [0, 0x7fff_1234_5000];
const KEY: u64 = 0xfeed_0000_0000_0001;

fn filled(world: &World, who: usize, bytes: &[u8]) -> Buffer {
    let mut buffer = world.workers[who].buffer(bytes.len()).expect("memory");
    buffer.copy_from_slice(bytes);
    buffer
}

fn expose(world: &mut World, who: usize, (key, base): (u64, u64), bytes: &[u8]) -> Segment {
    let buffer = filled(world, who, bytes);
    world.workers[who].expose_as(key, base, buffer, RemoteAccess::ReadWrite).expect("the key is free")
}

fn content(world: &mut World, who: usize, segment: Segment) -> Vec<u8> {
    let mut bytes = vec![0; segment.len()];
    world.workers[who].read_segment(segment, 0, &mut bytes).expect("it is there");
    bytes
}

/// An address under a key that a peer has chosen. It has travelled.
fn at(key: u64, address: u64) -> RemoteAddress {
    SegmentKey::from_bytes(&SegmentKey::requested(key).to_bytes()).expect("it is one").at(address as usize)
}

fn begin_put(world: &mut World, who: usize, to: usize, bytes: &[u8], at: RemoteAddress) -> Request {
    let source = filled(world, who, bytes);
    world.workers[who].put_with(to.into(), source, at, None).expect("accepted")
}

fn begin_get(world: &mut World, who: usize, from: usize, len: usize, at: RemoteAddress) -> Request {
    let room = filled(world, who, &vec![0; len]);
    world.workers[who].get_from(from.into(), room, at).expect("accepted")
}

fn put(world: &mut World, to: usize, bytes: &[u8], at: RemoteAddress) -> Result<(), OpError> {
    let put = begin_put(world, 0, to, bytes, at);
    world.wait(0, put).map(|done| assert!(done.buffer[..] == *bytes, "the buffer is handed back as it was"))
}

fn get(world: &mut World, from: usize, len: usize, at: RemoteAddress) -> Result<Vec<u8>, OpError> {
    let get = begin_get(world, 0, from, len, at);
    world.wait(0, get).map(|done| done.buffer.to_vec())
}

fn denied<T>(peer: usize) -> Result<T, OpError> {
    Err(OpError::Denied { peer: peer.into() })
}

#[test]
fn puts_and_gets_of_every_length_and_place_are_exact_and_touch_nothing_else() {
    for means in MEANS {
        for (to, base) in [(0, BASES[1]), (1, BASES[0]), (1, BASES[1])] {
            let mut world = World::of(&means);
            let mut expected = pattern(SEGMENT, 3);
            let segment = expose(&mut world, to, (KEY, base), &expected);
            for (round, len) in LENGTHS.into_iter().enumerate() {
                for offset in [0, 1, 61] {
                    let (bytes, place) = (pattern(len, 10 + round), base + offset as u64);
                    put(&mut world, to, &bytes, at(KEY, place)).expect("it arrives");
                    expected[offset..offset + len].copy_from_slice(&bytes);
                    assert!(content(&mut world, to, segment) == expected, "{means:?}: {len} bytes at {offset}");
                    let got = get(&mut world, to, len, at(KEY, place + 1)).expect("it comes");
                    assert!(got[..] == expected[offset + 1..][..len], "{means:?}: {len} bytes from {offset}");
                }
            }
            // Nothing lies before and behind it.
            let end = base + SEGMENT as u64;
            assert_eq!(put(&mut world, to, &[1; 9], at(KEY, end - 8)), denied(to));
            if let Some(before) = base.checked_sub(1) {
                assert_eq!(get(&mut world, to, 1, at(KEY, before)), denied(to));
            }
            let memory = world.workers[to].withdraw(segment).expect("it is there");
            assert!(memory[..] == expected[..]);
        }
    }
}

#[test]
fn eight_megabytes_are_put_and_got() {
    const LEN: usize = 8 << 20;
    for means in MEANS {
        let mut world = World::of(&means);
        let bytes = pattern(LEN, 1);
        let segment = expose(&mut world, 1, (7, 0), &vec![0; LEN + 2]);
        put(&mut world, 1, &bytes, at(7, 1)).expect("it arrives");
        let there = content(&mut world, 1, segment);
        assert!(there[0] == 0 && there[1..=LEN] == bytes[..] && there[LEN + 1] == 0, "{means:?}");
        assert!(get(&mut world, 1, LEN, at(7, 2)).expect("it comes") == there[2..], "{means:?}");
    }
}

#[test]
fn atomics_and_signals_reach_it() {
    for means in MEANS {
        for to in [0, 1] {
            let mut world = World::of(&means);
            let base = BASES[1];
            let segment = expose(&mut world, to, (KEY, base), &[0; 4096]);
            for (round, (op, width)) in [
                (AtomicOp::Add(5), AtomicWidth::U64),
                (AtomicOp::CompareSwap { compare: 5, swap: 9 }, AtomicWidth::U64),
                (AtomicOp::Or(6), AtomicWidth::U32),
            ]
            .into_iter()
            .enumerate()
            {
                let atomic = world.workers[0].atomic_with(to.into(), op, width, at(KEY, base + 8)).expect("accepted");
                assert_eq!(world.wait(0, atomic).expect("it ends").data, Some([0, 5, 9][round]), "{means:?}");
            }
            for (round, signal) in [Signal::Set(7), Signal::Add(3)].into_iter().enumerate() {
                let bytes = pattern(3000, round);
                let source = filled(&world, 0, &bytes);
                let signal = Some((signal, at(KEY, base + 16)));
                let put = world.workers[0].put_with(to.into(), source, at(KEY, base + 100), signal).expect("accepted");
                world.wait(0, put).expect("it arrives");
                let there = content(&mut world, to, segment);
                assert!(there[100..3100] == bytes[..]);
                assert_eq!(there[8..24], [15_u64.to_ne_bytes(), [7_u64, 10][round].to_ne_bytes()].concat());
            }
        }
    }
}

#[test]
fn a_key_that_stands_for_nothing_is_denied_and_the_connection_lives() {
    for means in MEANS {
        let mut world = World::of(&means);
        expose(&mut world, 1, (KEY, 0), &[9; 100]);
        for key in [0, 1, KEY + 1, KEY << 32, u64::MAX] {
            assert_eq!(put(&mut world, 1, &[1; 10], at(key, 0)), denied(1));
            assert_eq!(get(&mut world, 1, 10, at(key, 0)), denied(1));
            assert_eq!(get(&mut world, 0, 10, at(key, 0)), denied(0));
            world.workers[0].put_copy(1.into(), &[1; 10], at(key, 0)).expect("accepted");
            world.find("the news", |world| {
                (world.workers[0].poll_event()? == WorkerEvent::Denied { peer: 1.into() }).then_some(())
            });
        }
        assert_eq!(get(&mut world, 1, 100, at(KEY, 0)), Ok(vec![9; 100]));
        // That a key was not there is not remembered.
        expose(&mut world, 1, (1, 0), &[8; 100]);
        assert_eq!(get(&mut world, 1, 100, at(1, 0)), Ok(vec![8; 100]));
        let payload = filled(&world, 0, &[1; 10]);
        let request = world.workers[0].send_active_long(1.into(), HandlerId::of("any"), 1, payload, at(1, 0));
        assert!(matches!(request.map_err(|refused| refused.why), Err(CallError::OnlyOffered)));
    }
}

#[test]
fn a_key_is_exposed_once_at_a_time_and_what_is_refused_comes_back() {
    let mut world = World::pair(&[]);
    let first = expose(&mut world, 0, (KEY, 0), &[1; 10]);
    let second = filled(&world, 0, &[2; 20]);
    let refused = world.workers[0].expose_as(KEY, 0, second, RemoteAccess::ReadWrite).expect_err("it is taken");
    assert!(matches!(refused.why, CallError::KeyTaken(KEY)));
    assert_eq!(refused.given.expect("it comes back")[..], [2; 20]);
    let high = filled(&world, 0, &[3; 20]);
    let refused = world.workers[0]
        .expose_as(5, u64::MAX - 10, high, RemoteAccess::ReadWrite)
        .expect_err("it would end beyond all addresses");
    assert!(refused.given.is_some_and(|buffer| buffer[..] == [3; 20]), "{}", refused.why);
    assert_eq!(world.workers[0].withdraw(first).expect("it is there")[..], [1; 10]);
    assert!(matches!(world.workers[0].withdraw(first), Err(CallError::NoSegment)));
    let again = expose(&mut world, 0, (KEY, 0), &[4; 10]);
    assert_ne!(first.key(), again.key());
    // Its other key opens it, too.
    assert_eq!(get(&mut world, 0, 10, again.key().at(0)), Ok(vec![4; 10]));
}

#[test]
fn memory_may_be_exposed_under_several_keys_that_overlap() {
    let bytes: &'static [AtomicU8] = (0..1000).map(|_| AtomicU8::new(0)).collect::<Vec<_>>().leak();
    let mut world = World::pair(&[FAULTS]);
    for (key, range) in [(1, 0..1000), (2, 500..900), (3, 501..502)] {
        let part = &bytes[range.clone()];
        // SAFETY: they are mapped for ever, and all references to them are to atomics.
        let memory = unsafe { UserMemory::target(NonNull::from(part).cast(), part.len()) };
        let buffer = world.workers[1].adopt(memory).expect("it is there");
        world.workers[1].expose_as(key, range.start as u64, buffer, RemoteAccess::ReadWrite).expect("the key is free");
    }
    for key in 1..=3 {
        put(&mut world, 1, &[key as u8], at(key, 501)).expect("it arrives");
        for other in 1..=3 {
            assert_eq!(get(&mut world, 1, 1, at(other, 501)), Ok(vec![key as u8]));
        }
    }
    assert_eq!(bytes[501].load(Ordering::Relaxed), 3);
    assert_eq!(put(&mut world, 1, &[1], at(3, 500)), denied(1), "each ends where it does");
}

/// So is memory that is exposed for reading alone, though its owner may write it.
#[test]
fn what_is_exposed_read_only_may_be_read_and_not_changed() {
    for means in MEANS {
        let mut world = World::of(&means);
        let bytes = pattern(5000, 6);
        let buffer = filled(&world, 1, &bytes);
        let segment = world.workers[1].expose_as(KEY, 0, buffer, RemoteAccess::ReadOnly).expect("the key is free");
        assert_eq!(put(&mut world, 1, &[1; 10], at(KEY, 0)), denied(1));
        let added =
            world.workers[0].atomic_with(1.into(), AtomicOp::Add(1), AtomicWidth::U64, at(KEY, 8)).expect("accepted");
        assert_eq!(world.wait(0, added).map(|done| done.data), denied(1));
        assert!(get(&mut world, 1, 5000, at(KEY, 0)).expect("it comes") == bytes);
        assert!(content(&mut world, 1, segment) == bytes);
    }
}

/// A source may be read alone, and who writes to it is denied alone.
#[test]
fn a_source_may_be_read_and_not_written() {
    for means in MEANS {
        let mut world = World::of(&means);
        let source: &'static [u8] = pattern(5000, 5).leak();
        let buffer = world.workers[1].adopt(source.into()).expect("it is there");
        world.workers[1].expose_as(KEY, 0, buffer, RemoteAccess::ReadWrite).expect("the key is free");
        assert!(get(&mut world, 1, 5000, at(KEY, 0)).expect("it comes") == *source);
        assert_eq!(put(&mut world, 1, &[1; 10], at(KEY, 0)), denied(1));
        assert!(get(&mut world, 1, 5000, at(KEY, 0)).expect("it comes") == *source);
    }
}

/// The number goes from memory to memory. A peer that uses it all the time finds that which has it, as soon as it may know.
#[test]
fn a_key_that_is_given_to_other_memory_leads_there() {
    for means in MEANS {
        let mut world = World::of(&means);
        for round in 0..40_u8 {
            let segment = expose(&mut world, 1, (KEY, 0), &[round; 100]);
            world.steps(usize::from(round) % 4);
            assert_eq!(get(&mut world, 1, 100, at(KEY, 0)), Ok(vec![round; 100]), "{means:?}");
            put(&mut world, 1, &[round + 100; 50], at(KEY, 25)).expect("it arrives");
            assert_eq!(world.workers[1].withdraw(segment).expect("it is there")[25..75], [round + 100; 50]);
            if round % 3 == 0 {
                world.steps(usize::from(round));
                assert_eq!(put(&mut world, 1, &[1], at(KEY, 0)), denied(1));
            }
        }
    }
}

/// One peer learns from another that the key was given away, before the owner's own news has come.
#[test]
fn news_of_others_may_be_quicker_than_the_owners() {
    for seed in 0..20 {
        let faults = format!("loss=0.2,reorder=0.2,seed={seed}");
        let end: &[(&str, &str)] = &[("faults", &faults)];
        let mut world = World::of(&[end, end, end]);
        for round in 0..10_u8 {
            let segment = expose(&mut world, 1, (KEY, 0), &[round; 64]);
            let pass = |world: &mut World, from: usize, to: usize| {
                let sent = world.workers[from].send_bytes(to.into(), Tag::new(1), &[round]).expect("accepted");
                let room = world.workers[to].buffer(1).expect("memory");
                let received = world.workers[to].recv(Source::from(from), Tag::new(1), room).expect("accepted");
                world.wait(to, received).expect("it comes");
                world.wait(from, sent).expect("it goes");
            };
            pass(&mut world, 1, 2);
            pass(&mut world, 2, 0);
            assert_eq!(get(&mut world, 1, 64, at(KEY, 0)), Ok(vec![round; 64]), "seed {seed}, round {round}");
            world.workers[1].withdraw(segment).expect("it is there");
        }
    }
}

/// Operations under way when the key goes: each is done in the old memory or in the new, or denied, and none is lost.
#[test]
fn operations_under_way_when_the_key_goes_end_by_name() {
    for means in MEANS {
        let mut world = World::of(&means);
        let (mut outcomes, mut segment) = ([0; 2], expose(&mut world, 1, (KEY, 0), &vec![0; 20_000]));
        for round in 0..30 {
            let puts: Vec<_> = (0..5).map(|_| begin_put(&mut world, 0, 1, &vec![1; 20_000], at(KEY, 0))).collect();
            let gets: Vec<_> = (0..5).map(|_| begin_get(&mut world, 0, 1, 20_000, at(KEY, 0))).collect();
            world.steps(round);
            world.workers[1].withdraw(segment).expect("it is there");
            world.steps(round % 5);
            segment = expose(&mut world, 1, (KEY, 0), &vec![0; 20_000]);
            for request in puts.into_iter().chain(gets) {
                match world.wait(0, request) {
                    Ok(done) => outcomes[0] += done.buffer.len() / 20_000,
                    Err(error) => {
                        assert_eq!(error, OpError::Denied { peer: 1.into() });
                        outcomes[1] += 1;
                    }
                }
            }
        }
        assert!(outcomes[0] > 100, "{means:?}: {outcomes:?}");
        world.workers[0].inside().check_invariants().expect("sound");
    }
}

/// Fences hold, and a flush waits, while a key is asked for.
#[test]
fn fences_and_flushes_are_for_operations_whose_key_is_asked_for() {
    for round in 0..30 {
        let mut world = World::pair(&[("faults", "loss=0.2,seed=3")]);
        let first = expose(&mut world, 1, (1, 0), &[0; 64]);
        let second = expose(&mut world, 1, (2, 0), &[0; 64]);
        world.workers[0].put_copy(1.into(), &[1; 16], at(1, 0)).expect("accepted");
        world.workers[0].fence_to(1.into()).expect("it is there");
        world.workers[0].put_copy(1.into(), &[2; 8], at(2, 0)).expect("accepted");
        world.workers[0].fence_to(1.into()).expect("it is there");
        // By a key that needs not be asked for.
        let get = begin_get(&mut world, 0, 1, 8, second.key().at(0));
        world.workers[0].fence_to(1.into()).expect("it is there");
        world.workers[0].put_copy(1.into(), &[3; 8], at(2, 0)).expect("accepted");
        world.steps(round);
        let (before, behind) = (content(&mut world, 1, first), content(&mut world, 1, second));
        assert!(behind[..8] == [0; 8] || before[..16] == [1; 16], "round {round}: {before:?} and {behind:?}");
        assert_eq!(world.wait(0, get).expect("it comes").buffer[..], [2; 8], "between the two puts");
        world.workers[0].take_turn();
        world.until("it is flushed", |world| world.workers[0].inside().is_flushed(1));
        assert_eq!(content(&mut world, 1, second)[..8], [3; 8]);
    }
}

#[test]
fn operations_end_with_their_peer_and_nothing_is_lost() {
    for steps in [0, 1, 3, 10, 40] {
        let quick = [("retry_limit", "4"), ("ack_timeout_us", "100")];
        let mut world = World::pair(&quick);
        expose(&mut world, 1, (1, 0), &vec![0; 100_000]);
        put(&mut world, 1, &[1], at(1, 0)).expect("it arrives");
        let free = world.workers[0].memory();
        let requests: Vec<_> = (0..20)
            .flat_map(|number| {
                let place = at(number % 3, 0);
                [begin_put(&mut world, 0, 1, &vec![2; 60_000], place), begin_get(&mut world, 0, 1, 100, place)]
            })
            .collect();
        world.steps(steps);
        world.cut(1);
        for request in requests {
            let outcome = world.wait(0, request).map(|done| done.len);
            let is_known = matches!(outcome, Ok(_) | Err(OpError::PeerGone { .. } | OpError::Denied { .. }));
            assert!(is_known, "{outcome:?}");
        }
        world.steps(1000);
        world.workers[0].inside().check_invariants().expect("sound");
        assert_eq!(world.workers[0].memory(), free, "memory is lost");
        expose(&mut world, 0, (1, 0), &[7; 10]);
        assert_eq!(get(&mut world, 0, 10, at(1, 0)), Ok(vec![7; 10]), "and this end goes on");
    }
}

/// Peers that have asked for a key get a message when it goes, and no other does.
#[test]
fn only_those_that_asked_learn_that_it_is_gone() {
    let mut world = World::of(&[&[], &[], &[]]);
    let segment = expose(&mut world, 1, (KEY, 0), &[1; 8]);
    world.connect_all();
    assert_eq!(get(&mut world, 1, 8, at(KEY, 0)), Ok(vec![1; 8]));
    world.steps(100);
    let received = |world: &World, who: usize| world.workers[who].engine_stats().rx_delivered;
    let before = [received(&world, 0), received(&world, 2)];
    world.workers[1].withdraw(segment).expect("it is there");
    world.steps(100);
    assert!(received(&world, 0) > before[0] && received(&world, 2) == before[1]);
}
