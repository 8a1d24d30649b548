//! Put, get and atomics on memory that is offered and not registered: Firehose carries them, by every means.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, Ordering};

use roci_driver::WcStatus;
use roci_msgcore::firehose::FirehoseStats;
use roci_msgcore::one_sided::{AtomicOp, AtomicWidth, OfferedMemory, SegmentKey, Signal};
use roci_msgcore::{Buffer, CallError, OpError, Request, Tag, UserMemory};
use roci_testkit::World as _;

use super::common::{World, pattern};

const PAGE: usize = 4096;
/// Firehoses to a peer, which is as many victims as stay registered.
const FIREHOSES: usize = (1 << 20) / PAGE;
const SMALL: [(&str, &str); 3] = [("firehose_bucket", "4KiB"), ("firehose_m", "1"), ("firehose_maxvictim_m", "1")];
const FAULTS: (&str, &str) = ("faults", "loss=0.03,dup=0.03,reorder=0.03,corrupt=0.01,seed=9");
const LENGTHS: [usize; 11] = [0, 1, 8, 1023, 1024, 1025, 4095, 4096, 4097, 65_537, 300_001];

/// What the two ends can do: RDMA at both, at one, with gets by the target.
fn means() -> [[Vec<(&'static str, &'static str)>; 2]; 4] {
    let end = |more: &[(&'static str, &'static str)]| [&SMALL[..], &[FAULTS], more].concat();
    [
        [end(&[]), end(&[])],
        [end(&[("rdma", "off")]), end(&[])],
        [end(&[]), end(&[("rdma", "off")])],
        [end(&[("rdma_gets", "off")]), end(&[])],
    ]
}

fn world(means: &[Vec<(&str, &str)>; 2]) -> World {
    World::of(&[&means[0], &means[1]])
}

/// Bytes that everybody may access, for ever.
fn shared_bytes(bytes: &[u8]) -> &'static [AtomicU8] {
    bytes.iter().map(|&byte| AtomicU8::new(byte)).collect::<Vec<_>>().leak()
}

fn content(bytes: &[AtomicU8]) -> Vec<u8> {
    bytes.iter().map(|byte| byte.load(Ordering::Relaxed)).collect()
}

fn target(bytes: &'static [AtomicU8]) -> UserMemory {
    // SAFETY: they are mapped for ever, and all references to them are to atomics.
    unsafe { UserMemory::target(NonNull::from(bytes).cast(), bytes.len()) }
}

/// Offers bytes, which begin with a page.
fn offer(world: &mut World, who: usize, bytes: &[u8]) -> (&'static [AtomicU8], OfferedMemory, SegmentKey) {
    offer_within_page(world, who, bytes, 0)
}

/// Offers bytes, which begin so far into a page.
fn offer_within_page(
    world: &mut World,
    who: usize,
    bytes: &[u8],
    offset: usize,
) -> (&'static [AtomicU8], OfferedMemory, SegmentKey) {
    let room = shared_bytes(&[&[0; 2 * PAGE], bytes].concat());
    let ahead = room.as_ptr().align_offset(PAGE) + offset;
    let memory = &room[ahead..ahead + bytes.len()];
    memory.iter().zip(bytes).for_each(|(there, byte)| there.store(*byte, Ordering::Relaxed));
    let offer = world.workers[who].offer(target(memory)).expect("it can be registered");
    (memory, offer, SegmentKey::from_bytes(&offer.key().to_bytes()).expect("it is one"))
}

fn filled(world: &World, who: usize, bytes: &[u8]) -> Buffer {
    let mut buffer = world.workers[who].buffer(bytes.len()).expect("memory");
    buffer.copy_from_slice(bytes);
    buffer
}

fn put(world: &mut World, to: usize, bytes: &[u8], theirs: SegmentKey, offset: usize) -> Buffer {
    let source = filled(world, 0, bytes);
    let put = world.workers[0].put_with(to.into(), source, theirs.at(offset), None).expect("accepted");
    world.wait(0, put).expect("it arrives").buffer
}

fn get(world: &mut World, from: usize, len: usize, theirs: SegmentKey, offset: usize) -> Vec<u8> {
    let room = filled(world, 0, &vec![0; len]);
    let get = world.workers[0].get_from(from.into(), room, theirs.at(offset)).expect("accepted");
    world.wait(0, get).expect("it comes").buffer.to_vec()
}

fn stats(world: &mut World, who: usize) -> FirehoseStats {
    world.workers[who].firehose_stats().expect("it lives")
}

/// The outcome's number.
fn value(world: &mut World, request: Request) -> u64 {
    world.wait(0, request).expect("it ends well").data.expect("an atomic has a number")
}

#[test]
fn puts_and_gets_of_every_length_and_place_are_exact_and_touch_nothing_else() {
    for means in means() {
        for to in [0, 1] {
            let mut world = world(&means);
            let mut expected = pattern(300_100, 3);
            let (memory, offer, theirs) = offer(&mut world, to, &expected);
            for (round, len) in LENGTHS.into_iter().enumerate() {
                for offset in [0, 1, 61, 4090] {
                    let offset = offset.min(expected.len() - len);
                    let bytes = pattern(len, 10 + round);
                    let source = put(&mut world, to, &bytes, theirs, offset);
                    assert!(source[..] == bytes[..], "the buffer is handed back as it was");
                    expected[offset..offset + len].copy_from_slice(&bytes);
                    assert!(content(memory) == expected, "{means:?}: {len} bytes at {offset}");
                    let from = (offset + 1).min(expected.len() - len);
                    let got = get(&mut world, to, len, theirs, from);
                    assert!(got[..] == expected[from..][..len], "{means:?}: {len} bytes from {from}");
                }
            }
            world.workers[to].retract(offer).expect("it is there");
            assert!(matches!(world.workers[to].retract(offer), Err(CallError::NoSegment)));
            assert!(content(memory) == expected);
        }
    }
}

#[test]
fn eight_megabytes_are_more_buckets_than_there_are_firehoses() {
    const LEN: usize = 8 << 20;
    for means in means() {
        let mut world = world(&means);
        let bytes = pattern(LEN, 1);
        let (memory, _, theirs) = offer(&mut world, 1, &vec![0; LEN + 2]);
        put(&mut world, 1, &bytes, theirs, 1);
        let there = content(memory);
        assert!(there[0] == 0 && there[1..=LEN] == bytes[..] && there[LEN + 1] == 0, "{means:?}");
        assert!(get(&mut world, 1, LEN, theirs, 2)[..] == there[2..], "{means:?}");
        let (here, there) = (stats(&mut world, 0), stats(&mut world, 1));
        assert!(here.replaced as usize > LEN / PAGE, "{here:?}");
        assert!(there.unpins + there.repins > 1000, "most were unregistered meanwhile: {there:?}");
    }
}

/// A working set that is twice what can be registered, in no order: what was unregistered meanwhile is registered again.
#[test]
fn what_was_unregistered_meanwhile_is_right_all_the_same() {
    let mut world = world(&means()[0]);
    let mut expected = pattern(4 * FIREHOSES * PAGE, 3);
    let (memory, _, theirs) = offer(&mut world, 1, &expected);
    let mut at = 1;
    for round in 0..1500 {
        at = (at * 1_103_515_245 + 12_345) % (expected.len() - 200);
        if round % 3 == 0 {
            assert!(get(&mut world, 1, 200, theirs, at)[..] == expected[at..at + 200], "round {round}");
        } else {
            let bytes = pattern(100, round);
            put(&mut world, 1, &bytes, theirs, at);
            expected[at..at + 100].copy_from_slice(&bytes);
        }
    }
    assert!(content(memory) == expected);
    let there = stats(&mut world, 1);
    assert!(there.repins + there.unpins > 300 && there.victim_reuses > 50, "{there:?}");
}

#[test]
fn a_hit_costs_the_target_nothing() {
    let mut world = World::pair(&SMALL);
    let (_, _, theirs) = offer(&mut world, 1, &pattern(10 * PAGE, 1));
    put(&mut world, 1, &[1; 100], theirs, 5);
    assert_eq!((stats(&mut world, 0).misses, stats(&mut world, 1).moves_served), (1, 1));
    for _ in 0..10 {
        put(&mut world, 1, &[2; 100], theirs, 500);
        assert_eq!(get(&mut world, 1, 100, theirs, 500), [2; 100]);
    }
    let (here, there) = (stats(&mut world, 0), stats(&mut world, 1));
    assert_eq!((here.hits, here.misses, there.moves_served, there.pins), (20, 1, 1, 1));
    assert_eq!(world.workers[0].stats().tx_by_message, 0, "all of them went by RDMA");
    put(&mut world, 1, &vec![3; 9 * PAGE], theirs, 7);
    assert_eq!(stats(&mut world, 1).moves_served, 2, "one request for all buckets");
}

#[test]
fn a_short_get_comes_with_the_answer_to_its_miss() {
    let mut world = World::pair(&SMALL);
    let bytes = pattern(10 * PAGE, 1);
    let (_, _, theirs) = offer(&mut world, 1, &bytes);
    assert!(get(&mut world, 1, 3000, theirs, 5)[..] == bytes[5..3005]);
    assert_eq!((stats(&mut world, 0).misses, world.workers[0].stats().tx_by_message), (1, 1));
    // The firehose has come all the same, and is in no use now.
    assert!(get(&mut world, 1, 3000, theirs, 6)[..] == bytes[6..3006]);
    assert_eq!((stats(&mut world, 0).hits, world.workers[0].stats().tx_by_message), (1, 1));
    // What lies in two buckets waits for them.
    assert!(get(&mut world, 1, 3000, theirs, 3 * PAGE - 8)[..] == bytes[3 * PAGE - 8..][..3000]);
    assert_eq!((stats(&mut world, 0).misses, world.workers[0].stats().tx_by_message), (2, 1));
    // Many at once, of which only the first misses.
    let gets: Vec<_> = (0..50)
        .map(|number| {
            let room = filled(&world, 0, &[0; 60]);
            world.workers[0].get_from(1.into(), room, theirs.at(5 * PAGE + 64 * number)).expect("accepted")
        })
        .collect();
    for (number, get) in gets.into_iter().enumerate() {
        let got = world.wait(0, get).expect("it comes").buffer;
        assert!(got[..] == bytes[5 * PAGE + 64 * number..][..60], "get {number}");
    }
    assert_eq!((stats(&mut world, 0).misses, stats(&mut world, 0).pending_hits), (3, 49));
}

#[test]
fn atomics_and_signals_reach_what_is_offered() {
    for means in means() {
        for to in [0, 1] {
            let mut world = world(&means);
            let (memory, _, theirs) = offer(&mut world, to, &vec![0; 3 * PAGE]);
            let number = |at: usize| u64::from_ne_bytes(content(&memory[at..at + 8]).try_into().expect("8 bytes"));
            let worker = &mut world.workers[0];
            let add =
                worker.atomic_with(to.into(), AtomicOp::Add(5), AtomicWidth::U64, theirs.at(8)).expect("accepted");
            assert_eq!(value(&mut world, add), 0);
            let worker = &mut world.workers[0];
            let or = worker.atomic_with(to.into(), AtomicOp::Or(8), AtomicWidth::U32, theirs.at(8)).expect("accepted");
            assert_eq!((value(&mut world, or), number(8)), (5, 13));
            for (round, signal) in [Signal::Set(7), Signal::Add(3)].into_iter().enumerate() {
                let bytes = pattern(2 * PAGE, round);
                let source = filled(&world, 0, &bytes);
                let signal = Some((signal, theirs.at(2 * PAGE + 800)));
                let put = world.workers[0].put_with(to.into(), source, theirs.at(16), signal).expect("accepted");
                world.wait(0, put).expect("it arrives");
                assert!(content(&memory[16..16 + 2 * PAGE]) == bytes);
                assert_eq!(number(2 * PAGE + 800), [7, 10][round], "{means:?}");
            }
            // Between what is offered and what is exposed.
            let buffer = world.workers[to].buffer(16).expect("memory");
            let segment = world.workers[to].expose(buffer).expect("a key is left");
            let source = filled(&world, 0, &[9; 32]);
            let signal = Some((Signal::Set(1), segment.key().at(8)));
            let put = world.workers[0].put_with(to.into(), source, theirs.at(64), signal).expect("accepted");
            world.wait(0, put).expect("it arrives");
            let mut there = [0; 8];
            world.workers[to].read_segment(segment, 8, &mut there).expect("it is there");
            assert_eq!((u64::from_ne_bytes(there), content(&memory[64..96])), (1, vec![9; 32]));
        }
    }
}

#[test]
fn a_source_may_be_read_and_not_written() {
    for means in means() {
        let is_by_message = means.iter().any(|end| end.contains(&("rdma", "off")));
        let mut world = world(&means);
        let source: &'static [u8] = pattern(2 * PAGE, 5).leak();
        let theirs = world.workers[1].offer(source.into()).expect("it can be registered").key();
        assert!(get(&mut world, 1, 2 * PAGE, theirs, 0)[..] == *source);
        let put = filled(&world, 0, &[1; 10]);
        let put = world.workers[0].put_with(1.into(), put, theirs.at(0), None).expect("accepted");
        let error = world.wait(0, put).expect_err("it is read only");
        let gone = OpError::PeerGone { peer: 1.into(), status: WcStatus::RemAccessErr };
        assert_eq!(error, if is_by_message { OpError::Denied { peer: 1.into() } } else { gone });
    }
}

#[test]
fn what_is_not_offered_any_more_is_denied_and_the_connection_lives() {
    for means in means() {
        let mut world = world(&means);
        let (memory, gone, theirs) = offer(&mut world, 1, &vec![9; 3 * PAGE]);
        let (_, _, others) = offer(&mut world, 1, &vec![8; PAGE]);
        world.workers[1].retract(gone).expect("it is there");
        let denied = OpError::Denied { peer: 1.into() };
        for len in [1, 3 * PAGE] {
            let buffer = filled(&world, 0, &vec![7; len]);
            let put = world.workers[0].put_with(1.into(), buffer, theirs.at(0), None).expect("accepted");
            assert_eq!(world.wait(0, put).expect_err("it is not offered"), denied);
            let buffer = filled(&world, 0, &vec![7; len]);
            let get = world.workers[0].get_from(1.into(), buffer, theirs.at(0)).expect("accepted");
            assert_eq!(world.wait(0, get).expect_err("it is not offered"), denied);
        }
        assert!(content(memory).iter().all(|&byte| byte == 9));
        assert_eq!(get(&mut world, 1, 100, others, 7), [8; 100]);
        // An end's own.
        let (_, gone, ours) = offer(&mut world, 0, &[1; 100]);
        world.workers[0].retract(gone).expect("it is there");
        let room = filled(&world, 0, &[0; 10]);
        let get = world.workers[0].get_from(0.into(), room, ours.at(0)).expect("accepted");
        assert_eq!(world.wait(0, get).expect_err("it is not offered"), OpError::Denied { peer: 0.into() });
    }
}

/// What was held before is gone as a withdrawn segment is.
#[test]
fn what_was_taken_back_is_closed_at_once() {
    let mut world = World::pair(&SMALL);
    let (memory, gone, theirs) = offer(&mut world, 1, &vec![9; PAGE]);
    put(&mut world, 1, &[1; 10], theirs, 0);
    world.workers[1].retract(gone).expect("it is there");
    let buffer = filled(&world, 0, &[7; 10]);
    let put = world.workers[0].put_with(1.into(), buffer, theirs.at(0), None).expect("accepted");
    let error = world.wait(0, put).expect_err("it is closed");
    assert_eq!(error, OpError::PeerGone { peer: 1.into(), status: WcStatus::RemAccessErr });
    assert_eq!(content(&memory[..10]), [1; 10], "nothing was written");
}

/// Another peer's key was at hand, and is given to no other.
#[test]
fn what_was_taken_back_is_given_to_no_other_peer() {
    let ends = SMALL;
    let mut world = World::of(&[&ends, &ends, &ends]);
    let (_, gone, theirs) = offer(&mut world, 2, &vec![9; 2 * PAGE]);
    let (_, _, others) = offer(&mut world, 2, &vec![8; PAGE]);
    let (held, victim) = (theirs.at(0), theirs.at(PAGE));
    for at in [held, victim] {
        let source = filled(&world, 1, &[1; 10]);
        let put = world.workers[1].put_with(2.into(), source, at, None).expect("accepted");
        world.wait(1, put).expect("it arrives");
    }
    world.workers[2].retract(gone).expect("it is there");
    for at in [held, victim] {
        let source = filled(&world, 0, &[1; 10]);
        let put = world.workers[0].put_with(2.into(), source, at, None).expect("accepted");
        assert_eq!(world.wait(0, put).expect_err("it is not offered"), OpError::Denied { peer: 2.into() });
    }
    assert_eq!(get(&mut world, 2, 100, others, 7), [8; 100], "the connection lives");
}

/// A view may begin 4 GiB behind its memory's beginning at most, and a later part of it would begin further on.
#[test]
fn a_buffer_whose_view_begins_far_on_is_put_and_filled() {
    const FAR: usize = (1 << 32) - 5000;
    let mut world = World::pair(&SMALL);
    let (memory, _, theirs) = offer(&mut world, 1, &vec![0; 3 * PAGE]);
    let (_, _, ours) = offer(&mut world, 0, &vec![0; 3 * PAGE]);
    let room: &'static mut [u8] = vec![0; FAR + 3 * PAGE].leak();
    let bytes = pattern(2 * PAGE, 8);
    room[FAR..FAR + bytes.len()].copy_from_slice(&bytes);
    let mut buffer = world.workers[0].adopt(room.into()).expect("it is there");
    buffer.skip_front(FAR);
    buffer.set_len(2 * PAGE);
    for (to, key) in [(1, theirs), (0, ours)] {
        let put = world.workers[0].put_with(to.into(), buffer, key.at(100), None).expect("accepted");
        buffer = world.wait(0, put).expect("it arrives").buffer;
        buffer.fill(0);
        let get = world.workers[0].get_from(to.into(), buffer, key.at(100)).expect("accepted");
        buffer = world.wait(0, get).expect("it comes").buffer;
        assert!(buffer[..] == bytes[..], "from {to}");
    }
    assert!(content(&memory[100..100 + bytes.len()]) == bytes);
}

#[test]
fn a_list_is_gathered_and_scattered() {
    let mut world = World::pair(&SMALL);
    let (memory, _, theirs) = offer(&mut world, 1, &vec![0; 3 * PAGE]);
    let bytes = pattern(PAGE + 700, 4);
    let pieces = vec![filled(&world, 0, &bytes[..100]), filled(&world, 0, &bytes[100..])];
    let list = Buffer::list(pieces).expect("a list");
    let put = world.workers[0].put_with(1.into(), list, theirs.at(5), None).expect("accepted");
    let list = world.wait(0, put).expect("it arrives").buffer;
    assert!(content(&memory[5..5 + bytes.len()]) == bytes && list.is_list());
    let pieces = [PAGE, 700].map(|len| filled(&world, 0, &vec![0; len]));
    let list = Buffer::list(pieces.into()).expect("a list");
    let get = world.workers[0].get_from(1.into(), list, theirs.at(5)).expect("accepted");
    let pieces = world.wait(0, get).expect("it comes").buffer.into_pieces();
    assert!(pieces[0][..] == bytes[..PAGE] && pieces[1][..] == bytes[PAGE..]);
}

/// What follows a fence waits, though what is before it became no transfer yet.
#[test]
fn a_fence_holds_behind_what_waits_for_its_memory() {
    for round in 0..30 {
        let mut world = World::pair(&SMALL);
        let (memory, _, theirs) = offer(&mut world, 1, &vec![0; 4 * PAGE]);
        let worker = &mut world.workers[0];
        let far = worker.put_copy(1.into(), &[1; 16], theirs.at(PAGE - 8));
        far.expect("accepted");
        worker.fence_to(1.into()).expect("it is there");
        worker.put_copy(1.into(), &[2; 8], theirs.at(2 * PAGE)).expect("accepted");
        worker.fence_to(1.into()).expect("it is there");
        let room = filled(&world, 0, &[0; 8]);
        let get = world.workers[0].get_from(1.into(), room, theirs.at(2 * PAGE)).expect("accepted");
        world.workers[0].fence_to(1.into()).expect("it is there");
        world.workers[0].put_copy(1.into(), &[3; 8], theirs.at(2 * PAGE)).expect("accepted");
        world.steps(round);
        let (first, second) = (content(&memory[PAGE - 8..PAGE + 8]), content(&memory[2 * PAGE..2 * PAGE + 8]));
        assert!(second == [0; 8] || first == [1; 16], "round {round}: {first:?} and {second:?}");
        assert_eq!(world.wait(0, get).expect("it comes").buffer[..], [2; 8], "between the two puts");
        world.until("the last one", |world| world.workers[0].inside().is_flushed(1));
        assert_eq!(content(&memory[2 * PAGE..2 * PAGE + 8]), [3; 8]);
    }
}

/// What follows a fence waits, though it is exposed, and what is before it is not.
#[test]
fn a_fence_holds_between_what_is_offered_and_what_is_exposed() {
    for is_copied in [false, true] {
        let mut world = World::pair(&SMALL);
        let (memory, _, theirs) = offer(&mut world, 1, &vec![0; 4 * PAGE]);
        let buffer = world.workers[1].buffer(8).expect("memory");
        let segment = world.workers[1].expose(buffer).expect("a key is left");
        world.connect_all();
        world.workers[0].put_copy(1.into(), &[1; 16], theirs.at(PAGE - 8)).expect("accepted");
        world.workers[0].fence_to(1.into()).expect("it is there");
        if is_copied {
            world.workers[0].put_copy(1.into(), &[2; 8], segment.key().at(0)).expect("accepted");
        } else {
            let source = filled(&world, 0, &[2; 8]);
            let put = world.workers[0].put_with(1.into(), source, segment.key().at(0), None).expect("accepted");
            world.workers[0].leave_one_sided(put);
        }
        let mut there = [0; 8];
        world.find("the second put", |world| {
            world.workers[1].read_segment(segment, 0, &mut there).expect("it is there");
            (there == [2; 8]).then_some(())
        });
        assert_eq!(content(&memory[PAGE - 8..PAGE + 8]), [1; 16], "the first put was done before");
    }
}

/// A signal is sent once its put is done, and the fence is for it, too.
#[test]
fn a_fence_holds_behind_a_signal() {
    for (settings, is_offered) in [(&SMALL[..], true), (&[SMALL[0], ("rdma", "off")][..], false)] {
        let mut world = World::pair(settings);
        let (memory, _, theirs) = offer(&mut world, 1, &vec![0; PAGE]);
        let buffer = world.workers[1].buffer(100_000).expect("memory");
        let segment = world.workers[1].expose(buffer).expect("a key is left");
        world.workers[1].write_segment(segment, 0, &[0; 16]).expect("it is there");
        world.connect_all();
        let exposed = segment.key();
        let signal = (Signal::Set(1), if is_offered { theirs.at(0) } else { exposed.at(8) });
        let source = filled(&world, 0, &vec![7; 50_000]);
        let put = world.workers[0].put_with(1.into(), source, exposed.at(64), Some(signal)).expect("accepted");
        world.workers[0].fence_to(1.into()).expect("it is there");
        world.workers[0].put_copy(1.into(), &1_u64.to_ne_bytes(), exposed.at(0)).expect("accepted");
        let mut there = [0; 16];
        world.find("what follows the fence", |world| {
            world.workers[1].read_segment(segment, 0, &mut there).expect("it is there");
            (there[0] == 1).then_some(())
        });
        let signalled = if is_offered { content(&memory[..8]) } else { there[8..].to_vec() };
        assert_eq!(signalled, 1_u64.to_ne_bytes(), "offered: {is_offered}");
        world.wait(0, put).expect("it arrives");
    }
}

/// A get that goes with its request would overtake a put that goes in many messages.
#[test]
fn a_fence_holds_before_a_get_that_misses() {
    const LEN: usize = 300_000;
    for (is_fenced, is_overtaken) in [(false, true), (true, false)] {
        let settings = [&SMALL[..], &[("rdma", "off"), ("credits", "4")]].concat();
        let mut world = World::pair(&settings);
        let (memory, _, theirs) = offer(&mut world, 1, &vec![0; LEN]);
        let buffer = world.workers[1].adopt(target(memory)).expect("it is there");
        let exposed = world.workers[1].expose(buffer).expect("a key is left").key();
        world.connect_all();
        let source = filled(&world, 0, &vec![7; LEN]);
        let put = world.workers[0].put_with(1.into(), source, exposed.at(0), None).expect("accepted");
        if is_fenced {
            world.workers[0].fence_to(1.into()).expect("it is there");
        }
        let room = filled(&world, 0, &[0; 8]);
        let get = world.workers[0].get_from(1.into(), room, theirs.at(LEN - 8)).expect("accepted");
        let got = world.wait(0, get).expect("it comes").buffer;
        assert_eq!(got[..] == [0; 8], is_overtaken);
        world.wait(0, put).expect("it arrives");
    }
}

#[test]
fn operations_end_with_their_peer_and_nothing_is_lost() {
    let quick = [&SMALL[..], &[("retry_limit", "4"), ("ack_timeout_us", "100")]].concat();
    let mut world = World::pair(&quick);
    let (_, _, theirs) = offer(&mut world, 1, &vec![0; 900 * PAGE]);
    put(&mut world, 1, &[1; 8], theirs, 0);
    let free = world.workers[0].memory();
    let (mut requests, mut ended) = (Vec::new(), 0);
    for number in 0..40 {
        let buffer = filled(&world, 0, &vec![0; 20 * PAGE]);
        let at = theirs.at(number * 20 * PAGE);
        requests.push(world.workers[0].put_with(1.into(), buffer, at, None).expect("accepted"));
        let buffer = filled(&world, 0, &[0; 100]);
        requests.push(world.workers[0].get_from(1.into(), buffer, at).expect("accepted"));
        if number == 30 {
            world.workers[0].fence_to(1.into()).expect("it is there");
        }
    }
    world.steps(20);
    world.cut(1);
    for request in requests {
        let outcome = world.wait(0, request);
        ended += usize::from(outcome.is_err_and(|error| matches!(error, OpError::PeerGone { .. })));
    }
    assert!(ended > 40, "{ended} have ended with the peer");
    world.steps(1000);
    world.workers[0].inside().check_invariants().expect("sound");
    assert_eq!(world.workers[0].memory(), free, "memory is lost");
    let (memory, _, ours) = offer(&mut world, 0, &vec![0; PAGE]);
    put(&mut world, 0, &[4; 10], ours, 3);
    assert_eq!(content(&memory[3..13]), [4; 10], "and this end goes on");
}

#[test]
fn what_cannot_be_offered_comes_back() {
    let mut world = World::pair(&[("ndreg_entries", "16000")]);
    let memory = target(shared_bytes(&[0; 100]));
    let refused = world.workers[0].offer(memory).expect_err("no keys are left for that");
    assert!(refused.why.to_string().contains("lower ndreg_entries"), "{}", refused.why);
    assert_eq!(refused.given.map(|memory| memory.len()), Some(100));
}

#[test]
fn offers_of_any_length_are_apart_from_each_other() {
    let mut world = World::pair(&SMALL);
    let offers: Vec<_> = [(100, 0), (5000, 24), (1, 4095), (4096, 1), (4097, 4000), (20_000, 8)]
        .map(|(len, offset)| offer_within_page(&mut world, 1, &vec![0; len], offset))
        .into();
    for (number, (memory, _, theirs)) in offers.iter().enumerate() {
        put(&mut world, 1, &vec![number as u8 + 1; memory.len()], *theirs, 0);
    }
    for (number, (memory, _, theirs)) in offers.iter().enumerate() {
        assert!(content(memory).iter().all(|&byte| byte == number as u8 + 1), "offer {number}");
        assert_eq!(get(&mut world, 1, 1, *theirs, memory.len() - 1), [number as u8 + 1]);
    }
}

/// A request names buckets that lie alone, and those in whose place they come: many, and it must fit a vbuf of 256 bytes.
#[test]
fn requests_fit_the_smallest_vbufs() {
    let settings = [&SMALL[..], &[("vbuf_size", "256")]].concat();
    let mut world = World::pair(&settings);
    let (memory, _, theirs) = offer(&mut world, 1, &vec![0; 4 * FIREHOSES * PAGE]);
    let bytes = pattern(2 * FIREHOSES * PAGE, 6);
    put(&mut world, 1, &bytes, theirs, 0);
    // Every other bucket of the second half.
    for bucket in (2 * FIREHOSES..4 * FIREHOSES).step_by(2) {
        put(&mut world, 1, &[1], theirs, bucket * PAGE);
    }
    put(&mut world, 1, &bytes, theirs, 2 * FIREHOSES * PAGE);
    let there = content(memory);
    assert!(there[..bytes.len()] == bytes[..] && there[bytes.len()..] == bytes[..]);
}

/// What is flushed is there, though its memory was waited for.
#[test]
fn a_flush_waits_for_what_waits_for_its_memory() {
    for seed in 0..40 {
        let faults = format!("loss=0.3,seed={seed}");
        let settings = [&SMALL[..], &[("faults", &*faults)]].concat();
        let mut world = World::pair(&settings);
        let (memory, _, theirs) = offer(&mut world, 1, &vec![0; 2 * PAGE]);
        world.connect_all();
        world.workers[0].put_copy(1.into(), &[5; 16], theirs.at(PAGE - 8)).expect("accepted");
        world.workers[0].take_turn();
        world.until("it is flushed", |world| world.workers[0].inside().is_flushed(1));
        assert_eq!(content(&memory[PAGE - 8..PAGE + 8]), [5; 16], "seed {seed}");
    }
}

/// What waits in line is asked for as answers come. An end that gives its peers nothing says no more than it may.
#[test]
fn an_end_that_offers_nothing_reaches_others() {
    let mut world =
        World::of(&[&[("ndreg_entries", "16000"), ("credits", "4")], &[&SMALL[..], &[("credits", "4")]].concat()]);
    let (memory, _, theirs) = offer(&mut world, 1, &vec![0; 4 * FIREHOSES * PAGE]);
    let puts: Vec<_> = (0..4 * FIREHOSES)
        .map(|bucket| {
            let _ = world.workers[0].send_bytes(1.into(), Tag::new(1), &[1; 100]).expect("accepted");
            let source = filled(&world, 0, &[7; 16]);
            world.workers[0].put_with(1.into(), source, theirs.at(bucket * PAGE), None).expect("accepted")
        })
        .collect();
    for put in puts {
        world.wait(0, put).expect("it arrives");
    }
    assert!(stats(&mut world, 0).stalls > 500 && content(memory).chunks(PAGE).all(|page| page[..16] == [7; 16]));
}

/// Keys come by any way, and may be anything.
#[test]
fn a_key_that_was_never_given_is_denied_wherever_it_leads() {
    for base in [0, 4096, 1 << 40, u64::MAX - 9000, u64::MAX - (1 << 31)] {
        for (bits, firehoses) in [(12, 1), (30, u16::MAX), (12, u16::MAX)] {
            let mut world = World::pair(&SMALL);
            offer(&mut world, 1, &vec![0; PAGE]);
            let mut key = [0; SegmentKey::LEN];
            key[..8].copy_from_slice(&base.to_le_bytes());
            key[8..16].copy_from_slice(&9000_u64.to_le_bytes());
            key[20..22].copy_from_slice(&firehoses.to_le_bytes());
            key[22] = bits;
            let theirs = SegmentKey::from_bytes(&key).expect("it looks like one");
            for (to, len) in [(1, 8), (1, 9000), (0, 8), (0, 9000)] {
                let room = filled(&world, 0, &vec![0; len]);
                let get = world.workers[0].get_from(to.into(), room, theirs.at(9000 - len)).expect("accepted");
                let outcome = world.wait(0, get);
                // What the other offers begins in the page from 4096 on.
                assert!(outcome.is_err() || base <= 4096, "{base:#x}, {bits} bits, {firehoses} firehoses: {outcome:?}");
            }
        }
    }
}

/// Three ranks want more of one than it registers for all of them together.
#[test]
fn peers_share_what_is_registered() {
    let ends = [&SMALL[..], &[FAULTS]].concat();
    let mut world = World::of(&[&ends, &ends, &ends, &ends]);
    let bytes = pattern(4 * FIREHOSES * PAGE, 3);
    let (_, _, theirs) = offer(&mut world, 0, &bytes);
    let mut gets = Vec::new();
    for number in 0..400 {
        for who in 1..4 {
            let room = filled(&world, who, &[0; 5000]);
            let at = (number * 1_103_515 + who * 100) % (bytes.len() - 5000);
            gets.push((who, at, world.workers[who].get_from(0.into(), room, theirs.at(at)).expect("accepted")));
        }
    }
    for (who, at, get) in gets {
        assert!(world.wait(who, get).expect("it comes").buffer[..] == bytes[at..at + 5000]);
    }
    let there = stats(&mut world, 0);
    assert!(there.moves_served > 300 && there.unpins + there.repins > 200, "{there:?}");
}
