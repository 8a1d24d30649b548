//! Several engines on one port, each with a queue of its own.
//!
//! The port is DPDK's net_ring, whose transmit queues lead to the receive queues of the same number: every frame comes in
//! at its sender's queue, and has to be handed to the engine that it is for. DPDK starts with it, once in a process: so
//! there is one test, of several scenes.

mod common;

use std::net::IpAddr;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use common::traffic::{Exchange, Talker, Traffic};
use roci_driver::link::dpdk::{Attachment, Device, DpdkLink, PortError};
use roci_driver::link::{BURST, Batch, Link, LinkStats};
use roci_driver::{Address, Engine};
use roci_protocol::wire::{Bth, Extensions, Flow, Headers, Ip, MacAddr, Opcode};
use roci_protocol::{Psn, Qpn};

const QUEUES: u16 = 3;
const LINE: &str = "--vdev net_ring0 --no-pci --no-huge -m 512";
const PATIENCE: Duration = Duration::from_secs(10);
/// Frames that wait for an engine at most.
const HANDOVER: u64 = 512;
/// A station that is not ours: frames for it go out.
const ELSEWHERE: MacAddr = MacAddr([2, 0, 0, 0, 0, 99]);
const IP: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
const TRAFFIC: Traffic = Traffic { messages: 5_000, depth: 16, len: 3_000 };

fn attachment() -> Attachment {
    Attachment::shared(Device::Eal(LINE.into())).with_queues(QUEUES)
}

fn open(attachment: Attachment) -> Result<DpdkLink, PortError> {
    DpdkLink::open_all(&[attachment], PATIENCE, &mut || false).map(|mut links| links.remove(0))
}

#[test]
fn engines_share_a_port() {
    let mut first = open(attachment()).expect("net_ring");
    assert_eq!(first.description().queue, (0, QUEUES));
    other_settings_are_refused();
    a_frame_reaches_its_queue_wherever_it_came_in(&mut first);
    a_full_ring_loses_frames_and_counts_them(&mut first);
    queues_without_an_engine_are_emptied(&mut first);
    for to in [ELSEWHERE, first.mac()] {
        first = engines_exchange_every_byte(first, to);
    }
    drop(first);
    // The port was closed with its last link, and DPDK starts once.
    assert!(matches!(open(attachment()), Err(PortError::Eal(_))));
}

fn other_settings_are_refused() {
    let device = || format!("eal:{LINE}");
    let other = Attachment::shared(Device::Eal(LINE.into())).with_queues(2);
    assert_eq!(open(other).err(), Some(PortError::OtherSettings(device())));
    let both = DpdkLink::open_all(&[attachment(), attachment()], PATIENCE, &mut || false);
    assert_eq!(both.err(), Some(PortError::NotAlone(device())));
}

fn a_frame_reaches_its_queue_wherever_it_came_in(first: &mut DpdkLink) {
    let mut second = open(attachment()).expect("a queue is free");
    let mut third = open(attachment()).expect("a queue is free");
    let full = open(attachment()).err();
    assert_eq!(full, Some(PortError::NoQueue { device: format!("eal:{LINE}"), queues: QUEUES }));
    for (queue, link) in [&*first, &second, &third].into_iter().enumerate() {
        assert_eq!((usize::from(link.share().queue()), link.share().bits()), (queue, 2));
    }
    // Each finds the frames that it sent itself: one for each queue, and one for a queue that there is not.
    let qpns = [0x00_4001, 0x40_4001, 0x80_4001, 0xc0_4001];
    for to in [ELSEWHERE, first.mac()] {
        let before = [&*first, &second, &third].map(Link::stats);
        for link in [&mut *first, &mut second, &mut third] {
            for qpn in qpns {
                send(link, &packet(to, qpn));
            }
        }
        // All look at their queues before any looks at what it was handed.
        let mut found = [&mut *first, &mut second, &mut third].map(receive_all);
        for (queue, link) in [&mut *first, &mut second, &mut third].into_iter().enumerate() {
            found[queue].extend(receive_all(link));
            found[queue].sort();
            let mut expected = vec![packet(to, qpns[queue]); 3];
            expected.push(packet(to, qpns[3]));
            assert_eq!(found[queue], expected, "queue {queue}");
        }
        for (link, before) in [&*first, &second, &third].into_iter().zip(before) {
            let counts = |of: fn(&LinkStats) -> u64| of(&link.stats()) - of(&before);
            assert_eq!(counts(|stats| stats.rx_frames), 4);
            let own = if to == ELSEWHERE { 0 } else { 4 };
            assert_eq!(counts(|stats| stats.tx_own_station), own);
            assert_eq!(counts(|stats| stats.rx_handed_over), if own == 0 { 2 } else { 0 });
            assert_eq!(counts(|stats| stats.rx_taken_over), if own == 0 { 2 } else { 4 });
            assert_eq!(counts(|stats| stats.handover_lost), 0);
        }
    }
    // A question about a neighbour, and a ping, are for the first; an answer for everyone.
    for (operation, expected) in [(1, [1, 0, 0]), (2, [1, 1, 1])] {
        send(&mut third, &arp(operation));
        let mut links = [&mut third, &mut second, &mut *first];
        let mut found = links.each_mut().map(|link| receive_all(link).len());
        links.iter_mut().zip(&mut found).for_each(|(link, found)| *found += receive_all(link).len());
        found.reverse();
        assert_eq!(found, expected, "operation {operation}");
    }
}

fn a_full_ring_loses_frames_and_counts_them(first: &mut DpdkLink) {
    let mut second = open(attachment()).expect("a queue is free");
    let (before, more) = (first.stats(), 100);
    for _ in 0..HANDOVER + more {
        send(first, &packet(ELSEWHERE, 0x40_4001));
        send(first, &packet(ELSEWHERE, 0x00_4001));
        assert_eq!(receive_all(first), [packet(ELSEWHERE, 0x00_4001)], "the finder's own frames go on");
    }
    let stats = first.stats();
    assert_eq!(stats.rx_handed_over - before.rx_handed_over, HANDOVER);
    assert_eq!(stats.handover_lost - before.handover_lost, more);
    let mut found = 0;
    while let frames @ 1.. = receive_all(&mut second).len() as u64 {
        found += frames;
    }
    assert_eq!(found, HANDOVER);
    // What waits when an engine goes is gone with it, and its buffers are back: this goes on for longer than they last.
    for _ in 0..20 {
        for _ in 0..HANDOVER {
            send(first, &packet(ELSEWHERE, 0x40_4001));
            receive_all(first);
        }
        drop(second);
        second = open(attachment()).expect("its queue is free again");
    }
    assert_eq!(receive_all(&mut second), Vec::<Vec<u8>>::new());
}

fn queues_without_an_engine_are_emptied(first: &mut DpdkLink) {
    let mut second = open(attachment()).expect("a queue is free");
    send(&mut second, &packet(ELSEWHERE, 0x00_4001));
    send(&mut second, &packet(ELSEWHERE, 0x40_4001));
    drop(second);
    // The second is for an engine that has gone: the engine that receives it counts it as unknown.
    let mut expected = [packet(ELSEWHERE, 0x00_4001), packet(ELSEWHERE, 0x40_4001)];
    let mut found = receive_all(first);
    expected.sort();
    found.sort();
    assert_eq!(found, expected);
}

fn send(link: &mut DpdkLink, frame: &[u8]) {
    link.transmit(frame.len(), |bytes| bytes.copy_from_slice(frame)).expect("room");
    link.flush();
}

/// What one call receives; nothing here fills a whole batch but what waits in a ring.
fn receive_all(link: &mut DpdkLink) -> Vec<Vec<u8>> {
    let mut batch = Batch::new();
    link.receive(&mut batch);
    assert!(batch.len() <= BURST);
    batch.iter().map(|frame| frame.as_ref().to_vec()).collect()
}

fn packet(to: MacAddr, qpn: u32) -> Vec<u8> {
    let mut flow = Flow::new(MacAddr([2; 6]), to, None, Ip::between(IP, IP).expect("one version"), 0xc001);
    let bth = Bth::new(Opcode::RcSendOnly, Qpn::new(qpn), Psn::new(7));
    let headers = Headers { bth, ext: Extensions::default() };
    let mut frame = vec![0; flow.frame_len(&headers, 32)];
    flow.emit(&mut frame, &headers, 32, |payload| payload.fill(9));
    frame
}

fn arp(operation: u8) -> Vec<u8> {
    let mut frame = vec![0xff; 12];
    frame.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, operation]);
    frame.resize(60, 0);
    frame
}

/// One end of a connection between two engines on the port; `station` is where the other is said to be.
fn talker(link: DpdkLink, station: MacAddr, to: &Sender<Address>, from: &Receiver<Address>) -> Talker<DpdkLink> {
    let mut engine = Engine::new(8 << 20).expect("memory");
    let share = link.share();
    engine.add_port(link, IP, false);
    Talker::connect(engine, TRAFFIC, |ours| {
        assert_eq!(share.owner(ours.qpn), share.queue());
        Address { mac: station, ..Exchange { to, from }.of(ours) }
    })
}

/// Two engines on two threads, with one address. The first engine's port is given back, opened anew.
fn engines_exchange_every_byte(first: DpdkLink, station: MacAddr) -> DpdkLink {
    let is_local = station == first.mac();
    let (ready, done, timeouts) = (Barrier::new(2), AtomicUsize::new(0), AtomicU64::new(0));
    let ((to_far, from_near), (to_near, from_far)) = (channel(), channel());
    let keeper = open(attachment()).expect("a queue is free");
    std::thread::scope(|scope| {
        let (ready, done, timeouts) = (&ready, &done, &timeouts);
        scope.spawn(move || {
            let link = open(attachment()).expect("a queue is free");
            assert_eq!(link.share().queue(), 2);
            let mut end = talker(link, station, &to_near, &from_near);
            end.exchange(1, ready);
            timeouts.fetch_add(timeouts_of(&end.engine), Ordering::SeqCst);
            end.settle(done);
            check(&end.engine.link_stats(0), is_local, timeouts.load(Ordering::SeqCst));
        });
        let mut end = talker(first, station, &to_far, &from_far);
        end.exchange(0, ready);
        timeouts.fetch_add(timeouts_of(&end.engine), Ordering::SeqCst);
        end.settle(done);
        check(&end.engine.link_stats(0), is_local, timeouts.load(Ordering::SeqCst));
    });
    // The queue of the first is free now, and that of `keeper` kept the port open.
    let again = open(attachment()).expect("a queue is free");
    assert_eq!((again.share().queue(), keeper.share().queue()), (0, 1));
    again
}

fn timeouts_of(engine: &Engine<DpdkLink>) -> u64 {
    let stats = engine.stats().queue_pairs;
    stats.local_ack_timeout_err + stats.tail_loss_probes
}

/// Every frame was another engine's. After a timeout an engine resolves its peer anew, and finds it at its own station: on a
/// slow machine what began on the wire may end there.
fn check(stats: &LinkStats, is_local: bool, timeouts: u64) {
    assert!(stats.rx_taken_over > TRAFFIC.messages, "{stats:?}");
    if is_local {
        assert!(stats.tx_own_station > TRAFFIC.messages, "{stats:?}");
    } else {
        let least = if timeouts > 0 { 0 } else { TRAFFIC.messages };
        assert!(stats.rx_handed_over > least, "{stats:?}");
    }
}
