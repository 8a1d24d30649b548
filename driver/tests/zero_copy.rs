//! Payloads that leave from where they are, over real ports: every byte is right at every length, with loss and
//! duplication, and a payload that changes too early damages nothing but its own frame.

use std::path::Path;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use roci_driver::link::dpdk::{Attachment, Device, DpdkLink};
use roci_driver::link::faulty::Faulty;
use roci_driver::link::{Batch, Link, ZeroCopyError};
use roci_driver::{
    Access, Arena, Buffer, CompletionQueue, Dialect, Engine, MemoryRegion, PdId, QpParams, QueuePair, SendWr,
    WorkCompletion,
};
use roci_protocol::sim::Faults;
use roci_protocol::wire::{Malformed, icrc};
use tempfile::TempDir;

/// The longest message; more than a packet of 4096.
const LONGEST: usize = 3 * 4096 + 100;
/// No test waits longer: a hang is a failure.
const PATIENCE: Duration = Duration::from_mins(1);

/// Both ends of a port in this process.
fn ports(device: &Device, directory: &Path) -> [DpdkLink; 2] {
    let end = |is_server| {
        let mac = [2, 0, 0, 0, 0, 1 + u8::from(is_server)];
        Attachment::pair(device.clone(), &directory.join("s"), is_server, mac)
    };
    let links = DpdkLink::open_all(&[end(false), end(true)], PATIENCE, &mut || false).expect("ports");
    <[DpdkLink; 2]>::try_from(links).unwrap_or_else(|_| panic!("two ports"))
}

struct End {
    engine: Engine<Faulty<DpdkLink>>,
    pd: PdId,
    cq: CompletionQueue,
    qp: QueuePair,
}

/// Two engines whose queue pairs are connected; payloads of `zero_copy_from` bytes or more are sent without a copy.
fn connected(links: [DpdkLink; 2], zero_copy_from: usize, faults: Option<Faults>, dialect: Dialect) -> [End; 2] {
    let access = Access::REMOTE_READ.and(Access::REMOTE_WRITE);
    let params = QpParams { access, dialect, ack_timeout_ns: 500_000, retry_limit: 1000, ..QpParams::default() };
    let mut host = 0;
    let mut ends = links.map(|mut link| {
        host += 1;
        link.zero_copy_from(Some(zero_copy_from));
        let mut engine = Engine::new(8 << 20).expect("memory");
        let port = engine.add_port(Faulty::new(link, faults, host), [10, 0, 0, host as u8].into(), true);
        assert_eq!(engine.check_zero_copy(port), Ok(()));
        let (pd, cq) = (engine.alloc_pd(), engine.create_cq(64));
        let qp = engine.create_qp(port, pd, cq).expect("room");
        let address = engine.address_of(&qp, &params);
        Some((engine, pd, cq, qp, address))
    });
    let addresses = ends.each_ref().map(|end| end.as_ref().expect("made above").4);
    [0, 1].map(|index| {
        let (mut engine, pd, cq, qp, _) = ends[index].take().expect("made above");
        let qp = engine.connect(qp, &addresses[1 - index], &params).expect("one IP version");
        End { engine, pd, cq, qp }
    })
}

fn wait(ends: &mut [End; 2], who: usize) -> WorkCompletion {
    let start = Instant::now();
    loop {
        for end in ends.iter_mut() {
            end.engine.poll();
        }
        let End { engine, cq, .. } = &mut ends[who];
        if let Some(done) = engine.poll_cq(*cq) {
            assert!(done.status.is_success(), "{done:?}");
            return done;
        }
        assert!(start.elapsed() < PATIENCE, "no completion in sight");
    }
}

fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 13 + at / 251 + seed * 7) as u8).collect()
}

fn buffer(end: &End, bytes: &[u8]) -> Buffer {
    let mut buffer = end.engine.buffer(bytes.len()).expect("memory");
    buffer.copy_from_slice(bytes);
    buffer
}

/// Sends, writes and reads `len` bytes, and compares them all. A payload's memory is written over as soon as it is back.
fn exchange(ends: &mut [End; 2], region: MemoryRegion, len: usize) {
    let sent = pattern(len, len);
    let message = buffer(&ends[0], &sent);
    let room = buffer(&ends[1], &vec![0; len]);
    let [near, far] = ends;
    far.engine.post_recv(far.qp, 1, room).expect("accepted");
    near.engine.post_send(near.qp, SendWr::send(2, message)).expect("accepted");
    let received = wait(ends, 1);
    assert!(received.len == len && received.buffer[..len] == sent, "SEND of {len} bytes");
    wait(ends, 0).buffer.fill(0xee);

    let written = pattern(len, len + 1);
    let message = buffer(&ends[0], &written);
    post(&mut ends[0], SendWr::write(3, message, region.rkey(), 0));
    wait(ends, 0).buffer.fill(0xee);
    let room = buffer(&ends[0], &vec![0; len]);
    post(&mut ends[0], SendWr::read(4, room, region.rkey(), 0));
    assert!(*wait(ends, 0).buffer == written, "WRITE and READ of {len} bytes");
}

/// The same with lists of pieces: packets that lie in one are sent without a copy, and those that begin in one and end in the next
/// are not.
fn exchange_lists(ends: &mut [End; 2], region: MemoryRegion, len: usize) {
    let list = |end: &End, bytes: &[u8]| {
        let pieces = [&bytes[..len / 3], &bytes[len / 3..len - len / 9], &bytes[len - len / 9..]];
        Buffer::list(pieces.map(|piece| buffer(end, piece)).into()).expect("three")
    };
    let sent = pattern(len, len + 2);
    let (message, room) = (list(&ends[0], &sent), list(&ends[1], &vec![0; len]));
    let [near, far] = ends;
    far.engine.post_recv(far.qp, 1, room).expect("accepted");
    near.engine.post_send(near.qp, SendWr::send(2, message)).expect("accepted");
    let (received, expected) = (wait(ends, 1), list(&ends[0], &sent));
    assert!(received.len == len && received.buffer == expected, "SEND of {len} bytes");
    wait(ends, 0).buffer.into_pieces().iter_mut().for_each(|piece| piece.fill(0xee));
    post(&mut ends[0], SendWr::write(3, expected, region.rkey(), 0));
    wait(ends, 0).buffer.into_pieces().iter_mut().for_each(|piece| piece.fill(0xee));
    let room = list(&ends[0], &vec![0; len]);
    post(&mut ends[0], SendWr::read(4, room, region.rkey(), 0));
    assert!(wait(ends, 0).buffer == list(&ends[0], &sent), "WRITE and READ of {len} bytes");
}

fn post(end: &mut End, wr: SendWr) {
    end.engine.post_send(end.qp, wr).expect("accepted");
}

fn zero_copy_frames(end: &End) -> u64 {
    end.engine.link_stats(0).tx_zero_copy
}

/// All lengths around the ends of packets, and some between.
fn lengths() -> impl Iterator<Item = usize> {
    let edges = [4096, 8192, 12_288].into_iter().flat_map(|edge| edge - 5..edge + 6);
    (1..40).chain((40..4090).step_by(97)).chain(edges).chain([LONGEST])
}

fn run(zero_copy_from: usize, faults: Option<Faults>, dialect: Dialect) -> [End; 2] {
    let directory = TempDir::new().expect("a directory");
    run_over(ports(&Device::Memif, directory.path()), zero_copy_from, faults, dialect)
}

fn run_over(links: [DpdkLink; 2], zero_copy_from: usize, faults: Option<Faults>, dialect: Dialect) -> [End; 2] {
    let mut ends = connected(links, zero_copy_from, faults, dialect);
    let far = &mut ends[1];
    let memory = far.engine.buffer(LONGEST).expect("memory");
    let access = Access::REMOTE_READ.and(Access::REMOTE_WRITE);
    let region = far.engine.register(far.pd, memory, access).expect("a key");
    lengths().for_each(|len| exchange(&mut ends, region, len));
    lengths().for_each(|len| exchange_lists(&mut ends, region, len));
    ends
}

#[test]
fn every_byte_is_right_at_every_length_from_the_first_byte_on() {
    let ends = run(1, None, Dialect::Verbs);
    assert!(ends.iter().all(|end| zero_copy_frames(end) > 100), "requests and READ responses were sent without a copy");
    let wrong = ends.iter().map(|end| end.engine.stats().malformed(Malformed::Icrc)).sum::<u64>();
    assert_eq!(wrong, 0, "no ICRC was wrong");
}

#[test]
fn frames_that_are_lost_repeated_and_held_back_do_not_change_a_byte() {
    let faults = Faults { loss: 0.03, dup: 0.03, reorder: 0.03, corrupt: 0.01, seed: 11 };
    for dialect in [Dialect::Verbs, Dialect::Rocinante] {
        let ends = run(1, Some(faults), dialect);
        assert!(ends.iter().all(|end| zero_copy_frames(end) > 100));
        assert!(ends.iter().all(|end| end.engine.link_stats(0).injected_faults > 0));
    }
}

/// Runs as the super-user, who may make a network of two interfaces that goes with this thread.
#[test]
fn every_byte_is_right_over_a_packet_socket() {
    if let Err(why) = network_of_two() {
        eprintln!("skipped: {why}");
        return;
    }
    let ends = ["roci0", "roci1"].map(|name| Attachment::shared(Device::AfPacket(name.into())));
    let links = DpdkLink::open_all(&ends, PATIENCE, &mut || false).expect("ports");
    let links = <[DpdkLink; 2]>::try_from(links).unwrap_or_else(|_| panic!("two ports"));
    let ends = run_over(links, 1, Some(Faults { loss: 0.01, seed: 5, ..Faults::default() }), Dialect::Rocinante);
    assert!(ends.iter().all(|end| zero_copy_frames(end) > 100), "requests and READ responses were sent without a copy");
}

fn network_of_two() -> Result<(), String> {
    #[allow(deprecated)] // its successor is unsafe for the sake of descriptors, which are not unshared here
    rustix::thread::unshare(rustix::thread::UnshareFlags::NEWNET)
        .map_err(|error| format!("no network of its own: {error}"))?;
    for line in ["link add roci0 type veth peer name roci1", "link set roci0 up", "link set roci1 up"] {
        let status = std::process::Command::new("ip").args(line.split(' ')).status();
        let status = status.map_err(|error| format!("ip: {error}"))?;
        if !status.success() {
            return Err(format!("ip {line}: {status}"));
        }
    }
    Ok(())
}

#[test]
fn payloads_that_are_shorter_than_the_threshold_are_copied() {
    let ends = run(4097, None, Dialect::Verbs);
    assert_eq!(ends.each_ref().map(zero_copy_frames), [0, 0], "a packet holds no more than 4096");
}

#[test]
fn only_long_payloads_in_attached_memory_are_sent_without_a_copy() {
    let directory = TempDir::new().expect("a directory");
    let [mut link, _far] = ports(&Device::Memif, directory.path());
    link.zero_copy_from(Some(1000));
    let (arena, other) = (Arena::new(1 << 16).expect("memory"), Arena::new(1 << 16).expect("memory"));
    link.attach(arena.clone()).expect("memif copies");
    let (payload, elsewhere) = (arena.buffer(1000).expect("room"), other.buffer(1000).expect("room"));
    assert!(
        link.is_zero_copy(&payload, None)
            && !link.is_zero_copy(&payload[1..], None)
            && !link.is_zero_copy(&elsewhere, None)
    );
    link.attach(other).expect("memif copies");
    assert!(link.is_zero_copy(&elsewhere, None), "several arenas");
}

#[test]
fn a_payload_that_changes_before_its_frame_leaves_damages_that_frame_only_and_its_icrc_is_wrong() {
    let directory = TempDir::new().expect("a directory");
    let [mut near, mut far] = ports(&Device::Memif, directory.path());
    near.zero_copy_from(Some(1));
    let arena = Arena::new(1 << 20).expect("memory");
    near.attach(arena.clone()).expect("memif copies");
    let mut payload = arena.buffer(1024).expect("room");
    payload.fill(1);
    let frame = sealed(&payload);
    for is_late in [false, true] {
        // Head and tail are those of the payload as it is now.
        let (head, tail) = (&frame[..HEAD], &frame[HEAD + 1024..]);
        let queued = near.transmit_around(HEAD, &payload, None, tail.len(), |to_head, to_tail| {
            to_head.copy_from_slice(head);
            to_tail.copy_from_slice(tail);
        });
        queued.expect("room");
        payload.fill(if is_late { 2 } else { 1 });
        let arrived = pass(&mut near, &mut far);
        assert_eq!(icrc::verify_frame(&arrived).is_err(), is_late);
        assert!(arrived[HEAD..HEAD + 1024].iter().all(|&byte| byte == payload[0]));
    }
    assert_eq!(near.stats().tx_zero_copy, 2);
}

#[test]
fn an_arena_stays_mapped_until_the_last_frame_that_needs_it_is_gone() {
    let directory = TempDir::new().expect("a directory");
    let [mut near, mut far] = ports(&Device::Memif, directory.path());
    near.zero_copy_from(Some(1));
    let arena = Arena::new(1 << 20).expect("memory");
    near.attach(arena.clone()).expect("memif copies");
    let mut payload = arena.buffer(4096).expect("room");
    payload.fill(7);
    near.transmit_around(64, &payload, None, 4, |head, tail| {
        head.fill(8);
        tail.fill(9);
    })
    .expect("room");
    let weak = Arc::downgrade(&arena);
    // Everybody but the link lets go; the frame is still queued.
    drop((payload, arena));
    assert!(weak.upgrade().is_some(), "the link keeps it");
    let arrived = pass(&mut near, &mut far);
    assert_eq!(arrived.len(), 64 + 4096 + 4);
    assert!(arrived[64..64 + 4096].iter().all(|&byte| byte == 7));
    drop(near);
    assert!(weak.upgrade().is_none(), "nothing keeps it any more");
}

#[test]
fn a_link_without_a_zero_copy_threshold_copies() {
    let directory = TempDir::new().expect("a directory");
    let arena = Arena::new(1 << 20).expect("memory");
    let [mut near, _far] = ports(&Device::Memif, directory.path());
    assert_eq!(near.attach(arena.clone()), Err(ZeroCopyError::Off));
    assert!(!near.is_zero_copy(&arena.buffer(4096).expect("room"), None));
}

#[test]
fn a_driver_that_loses_zero_copy_frames_copies() {
    let directory = TempDir::new().expect("a directory");
    let open = |is_server| {
        let end = Attachment::pair(Device::Vhost, &directory.path().join("v"), is_server, [2, 0, 0, 0, 0, 9]);
        let links = DpdkLink::open_all(&[end], PATIENCE, &mut || false).expect("a port");
        let mut link = links.into_iter().next().expect("one port");
        link.zero_copy_from(Some(1));
        (link.attach(Arena::new(1 << 20).expect("memory")), link)
    };
    // Each waits for the other, and keeps its end until both have met.
    let have_met = Barrier::new(2);
    std::thread::scope(|scope| {
        let server = scope.spawn(|| {
            let (attached, _link) = open(true);
            have_met.wait();
            attached
        });
        let (refused, _link) = open(false);
        have_met.wait();
        assert!(matches!(refused, Err(ZeroCopyError::Copies(_))), "virtio-user: {refused:?}");
        assert_eq!(server.join().expect("no panic"), Ok(()), "vhost");
    });
}

/// Ethernet, IPv4, UDP, BTH.
const HEAD: usize = 14 + 20 + 8 + 12;

/// A frame with a right ICRC around this payload.
fn sealed(payload: &[u8]) -> Vec<u8> {
    use roci_protocol::wire::{Bth, Flow, Headers, Ip, MacAddr, Opcode};
    use roci_protocol::{Psn, Qpn};
    let ip = Ip::between([10, 0, 0, 1].into(), [10, 0, 0, 2].into()).expect("one version");
    let mut flow = Flow::new(MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2]), None, ip, 0xc000);
    let headers = Headers::plain(Bth::new(Opcode::RcSendOnly, Qpn::new(7), Psn::new(1)));
    let mut frame = vec![0; flow.frame_len(&headers, payload.len())];
    flow.emit(&mut frame, &headers, payload.len(), |bytes| bytes.copy_from_slice(payload));
    frame
}

/// What is queued at one end and arrives at the other. A port may take nothing for a moment.
fn pass(near: &mut DpdkLink, far: &mut DpdkLink) -> Vec<u8> {
    let start = Instant::now();
    loop {
        near.flush();
        let mut batch = Batch::new();
        far.receive(&mut batch);
        if let Some(frame) = batch.first() {
            return frame.as_ref().to_vec();
        }
        for link in [&mut *near, &mut *far] {
            link.maintain(link.now());
        }
        assert!(start.elapsed() < PATIENCE, "no frame in sight");
    }
}
