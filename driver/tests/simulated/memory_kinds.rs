//! Memory that an engine shares with the application: sources that many requests send from, and targets that the application
//! and peers use at once; over a simulated wire with and without faults.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use roci_driver::{Access, Buffer, MemoryKind, RegionError, SendWr, UserMemory, WcStatus, WrongKind};
use roci_protocol::sim::Faults;

use crate::common::{Wire, pattern};

const FAULTS: Faults = Faults { loss: 0.1, dup: 0.1, reorder: 0.1, corrupt: 0.05, seed: 3 };
/// Bytes of the shared memory.
const LEN: usize = 20_000;

/// Numbers that everybody may change, for ever.
fn numbers() -> &'static [AtomicU64] {
    (0..LEN as u64 / 8).map(|_| AtomicU64::new(0)).collect::<Vec<_>>().leak()
}

fn source(wire: &mut Wire, who: usize, bytes: &'static [u8]) -> Buffer {
    wire.ends[who].engine.adopt(bytes.into()).expect("it is mapped")
}

/// `len` bytes of the numbers, from `at` on.
fn target(wire: &mut Wire, who: usize, numbers: &'static [AtomicU64], (at, len): (usize, usize)) -> Buffer {
    assert!(at + len <= size_of_val(numbers));
    let start = NonNull::from(numbers).cast::<u8>();
    // SAFETY: they are mapped for ever, and all references to them are to atomics, which may be written through.
    let memory = unsafe { UserMemory::target(start.add(at), len) };
    assert_eq!(memory.kind(), MemoryKind::Target);
    wire.ends[who].engine.adopt(memory).expect("it is mapped")
}

fn content(buffer: &Buffer) -> Vec<u8> {
    let mut bytes = vec![0; buffer.len()];
    buffer.copy_out(0, &mut bytes);
    bytes
}

#[test]
fn many_requests_send_from_the_same_bytes() {
    let bytes: &'static [u8] = pattern(LEN).leak();
    let mut wire = Wire::new(Some(FAULTS));
    let parts = [0..LEN, 1..LEN, 100..LEN - 100, 5_000..5_001, 0..0, 0..LEN];
    for part in &parts {
        wire.post_recv(1, LEN);
        let part = source(&mut wire, 0, &bytes[part.clone()]);
        wire.post(0, SendWr::send(1, part));
    }
    for part in parts {
        let (sent, came) = (wire.wait(0), wire.wait(1));
        assert_eq!((sent.status, came.status), (WcStatus::Success, WcStatus::Success));
        assert!(sent.buffer.kind() == MemoryKind::Source && came.buffer[..came.len] == bytes[part]);
    }
}

#[test]
fn messages_and_answers_arrive_in_targets_at_any_alignment() {
    let mut wire = Wire::new(Some(FAULTS));
    let (ours, theirs) = (numbers(), numbers());
    let bytes = pattern(LEN - 1);
    let read = Access::REMOTE_READ;
    let region = wire.buffer(0, &bytes);
    let end = &mut wire.ends[0];
    let region = end.engine.register_at(end.pd, region, read, 0x7000).expect("a free key");
    for at in [0, 1, 7] {
        let part = (at, LEN - 1 - at);
        let room = target(&mut wire, 1, theirs, part);
        let end = &mut wire.ends[1];
        end.engine.post_recv(end.qp, 5, room).expect("accepted");
        let payload = wire.buffer(0, &bytes[at..]);
        wire.post(0, SendWr::send(1, payload));
        assert_eq!(wire.wait(0).status, WcStatus::Success);
        let came = wire.wait(1);
        assert!(came.len == LEN - 1 - at && content(&came.buffer) == bytes[at..]);
        let room = target(&mut wire, 1, ours, part);
        wire.post(1, SendWr::read(2, room, region.rkey(), region.base() + at as u64));
        let read = wire.wait(1);
        assert!(read.status == WcStatus::Success && content(&read.buffer) == bytes[at..]);
    }
}

/// The peer adds to a number, and writes and reads what lies beside it, while a thread of the application does the same.
#[test]
fn a_region_is_the_applications_and_the_peers_at_once() {
    const ROUNDS: u64 = 300;
    let numbers = numbers();
    let mut wire = Wire::new(Some(FAULTS));
    let room = target(&mut wire, 1, numbers, (0, LEN));
    let all = Access::REMOTE_ATOMIC.and(Access::REMOTE_WRITE).and(Access::REMOTE_READ);
    let base = numbers.as_ptr().addr() as u64;
    let peer = &mut wire.ends[1];
    let region = peer.engine.register_at(peer.pd, room, all, base).expect("a free key");
    let is_over = AtomicBool::new(false);
    let ours = thread::scope(|scope| {
        let application = scope.spawn(|| {
            let mut count = 0;
            while !is_over.load(Ordering::Relaxed) {
                numbers[1].fetch_add(1, Ordering::Relaxed);
                numbers[100 + count as usize % 100].store(u64::MAX, Ordering::Relaxed);
                count += 1;
            }
            count
        });
        for round in 0..ROUNDS {
            let result = wire.buffer(0, &[0; 8]);
            wire.post(0, SendWr::fetch_add(1, result, region.rkey(), base + 8, 1 << 32));
            assert_eq!(wire.wait(0).status, WcStatus::Success);
            let payload = wire.buffer(0, &round.to_ne_bytes().repeat(200));
            wire.post(0, SendWr::write(2, payload, region.rkey(), base + 100 * 8));
            assert_eq!(wire.wait(0).status, WcStatus::Success);
            let room = wire.buffer(0, &[0; 8 * 200]);
            wire.post(0, SendWr::read(3, room, region.rkey(), base + 100 * 8));
            let read = wire.wait(0);
            assert_eq!(read.status, WcStatus::Success);
            let words = read.buffer.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word));
            for (at, word) in words.enumerate() {
                assert!(word == round || at < 100 && word == u64::MAX, "word {at} of round {round} is {word:x}");
            }
        }
        is_over.store(true, Ordering::Relaxed);
        application.join().expect("it only counts")
    });
    assert_eq!(numbers[1].load(Ordering::Relaxed), ROUNDS << 32 | ours);
    let mut last = [0; 8];
    let peer = &wire.ends[1];
    peer.engine.read_region(peer.pd, region, 199 * 8 + 800, &mut last).expect("inside");
    assert_eq!(u64::from_ne_bytes(last), ROUNDS - 1);
}

/// A region is a list, too: peers write, read and add to its pieces.
#[test]
fn lists_are_sent_filled_and_opened_to_peers() {
    let mut wire = Wire::new(Some(FAULTS));
    let bytes = pattern(LEN);
    let list = |wire: &Wire, who: usize, cuts: [usize; 2], bytes: &[u8]| {
        let pieces = [&bytes[..cuts[0]], &bytes[cuts[0]..cuts[1]], &bytes[cuts[1]..]];
        Buffer::list(pieces.map(|piece| wire.buffer(who, piece)).into()).expect("three")
    };
    let room = list(&wire, 1, [3_000, 12_345], &vec![0; LEN]);
    let all = Access::REMOTE_ATOMIC.and(Access::REMOTE_WRITE).and(Access::REMOTE_READ);
    let peer = &mut wire.ends[1];
    let region = peer.engine.register(peer.pd, room, all).expect("a free key");
    for cuts in [[0, 0], [1, LEN], [4_095, 4_097], [9_000, 9_001]] {
        let room = list(&wire, 1, [cuts[1] / 2, cuts[1]], &vec![0; LEN]);
        let end = &mut wire.ends[1];
        end.engine.post_recv(end.qp, 5, room).expect("accepted");
        let message = list(&wire, 0, cuts, &bytes);
        wire.post(0, SendWr::send(1, message));
        assert!(content(&wire.wait(1).buffer) == bytes && wire.wait(0).status == WcStatus::Success);
        let message = list(&wire, 0, cuts, &bytes[cuts[0]..].repeat(2)[..LEN]);
        let written = content(&message);
        wire.post(0, SendWr::write(2, message, region.rkey(), 0));
        assert_eq!(wire.wait(0).status, WcStatus::Success);
        let room = list(&wire, 0, cuts, &vec![0; LEN]);
        wire.post(0, SendWr::read(3, room, region.rkey(), 0));
        assert!(content(&wire.wait(0).buffer) == written, "{cuts:?}");
    }
    for (at, status) in [(3_000, WcStatus::Success), (12_344, WcStatus::RemAccessErr)] {
        let before = {
            let mut before = [0; 8];
            let peer = &wire.ends[1];
            peer.engine.read_region(peer.pd, region, at as usize, &mut before).expect("inside");
            before
        };
        let result = wire.buffer(0, &[0; 8]);
        wire.post(0, SendWr::fetch_add(1, result, region.rkey(), at, 1));
        let done = wire.wait(0);
        assert_eq!(done.status, status, "{at}");
        assert!(!status.is_success() || *done.buffer == before);
    }
}

/// What peers call an aligned number must be one in memory, where the application may access it at the same time.
#[test]
fn atomics_on_a_target_are_at_numbers_that_are_aligned_in_memory() {
    let numbers = numbers();
    let mut wire = Wire::new(None);
    let room = target(&mut wire, 1, numbers, (1, 64));
    let peer = &mut wire.ends[1];
    let refused = peer.engine.register(peer.pd, room, Access::REMOTE_ATOMIC).expect_err("from 0 on they are not");
    assert_eq!(refused.why, RegionError::Misaligned);
    let region = peer.engine.register_at(peer.pd, refused.given, Access::REMOTE_ATOMIC, 1).expect("from 1 on they are");
    let result = wire.buffer(0, &[0; 8]);
    wire.post(0, SendWr::fetch_add(1, result, region.rkey(), 16, 5));
    assert_eq!(wire.wait(0).status, WcStatus::Success);
    assert_eq!(numbers[2].load(Ordering::Relaxed), 5);
}

#[test]
fn a_buffer_is_refused_where_it_is_of_the_wrong_kind_and_comes_back() {
    let mut wire = Wire::new(None);
    let bytes: &'static [u8] = pattern(64).leak();
    let (rkey, numbers) = (roci_protocol::Rkey(1), numbers());
    let make = [SendWr::send, |id, buffer| SendWr::write(id, buffer, roci_protocol::Rkey(1), 0)];
    for make in make {
        let wr = make(1, target(&mut wire, 0, numbers, (0, 64)));
        let end = &mut wire.ends[0];
        let refused = end.engine.post_send(end.qp, wr).expect_err("a target is not sent");
        assert_eq!((refused.why, refused.given.into_buffer().len()), (WrongKind::Target.into(), 64));
    }
    for which in 0..2 {
        let room = source(&mut wire, 0, &bytes[..8]);
        let wr = match which {
            0 => SendWr::read(1, room, rkey, 0),
            _ => SendWr::fetch_add(1, room, rkey, 0, 1),
        };
        let end = &mut wire.ends[0];
        let refused = end.engine.post_send(end.qp, wr).expect_err("a source is not filled");
        assert_eq!((refused.why, &*refused.given.into_buffer()), (WrongKind::Source.into(), &bytes[..8]));
    }
    let receives = [0; 3].map(|_| source(&mut wire, 0, bytes));
    let end = &mut wire.ends[0];
    let srq = end.engine.create_srq(4, end.cq);
    let ud = end.engine.create_datagram_qp((0, 0), end.cq, 1, 4).expect("room");
    let [one, two, three] = receives;
    for refused in [
        end.engine.post_recv(end.qp, 1, one),
        end.engine.post_srq_recv(srq, 1, two),
        end.engine.post_datagram_recv(ud, 1, three),
    ] {
        let refused = refused.expect_err("a source is not filled");
        assert_eq!((refused.why, &*refused.given), (WrongKind::Source.into(), bytes));
    }
    let written = source(&mut wire, 0, bytes);
    let end = &mut wire.ends[0];
    let refused = end.engine.register(end.pd, written, Access::REMOTE_WRITE).expect_err("read only");
    assert_eq!((refused.why, &*refused.given), (RegionError::ReadOnly, bytes));
    assert!(wire.ends[0].engine.poll_cq(wire.ends[0].cq).is_none());
}
