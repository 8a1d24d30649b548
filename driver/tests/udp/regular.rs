//! Peers that most packets are exchanged with have sockets of their own: others do not notice, and what stands on the wire is right.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::thread::sleep;
use std::time::{Duration, Instant};

use roci_driver::link::udp::{UdpLink, station};
use roci_driver::link::{Batch, Link};
use roci_driver::{QpParams, SendWr, WcStatus};
use roci_protocol::wire::{Bth, Flow, Frame, Headers, Ip, Opcode, identification};
use roci_protocol::{Mtu, Psn, Qpn};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, sockopt};

use super::{
    End, PATIENCE, assert_is_refused, at, connected, has_ipv6, loopback, namespace, params, pattern, six, wait,
};

/// More than make a peer a regular one.
const MANY: u32 = 1500;
/// A peer stays a regular one for so long at least.
const STAYS: Duration = Duration::from_millis(110);

/// A link, and the frames that came in at it.
struct Station {
    link: UdpLink,
    /// PSN, identification and class.
    seen: Vec<(u32, u16, u8)>,
    /// The class of what it sends.
    class: u8,
}

impl Station {
    fn new(link: UdpLink) -> Self {
        Self { link, seen: Vec::new(), class: 0 }
    }

    fn sends_from(&self) -> SocketAddr {
        SocketAddr::new(self.link.own().ip(), self.link.source_port().expect("it has one"))
    }

    /// Sends packets with these numbers, one by one, and receives them there.
    fn send(&mut self, to: &mut Self, numbers: std::ops::Range<u32>) {
        for number in numbers {
            self.transmit(to.link.own(), number);
            if number % 64 == 0 {
                to.receive();
            }
        }
        let until = Instant::now() + Duration::from_millis(200);
        while Instant::now() < until && to.receive() {}
    }

    /// Sends a packet with this number.
    fn transmit(&mut self, to: SocketAddr, number: u32) {
        self.queue(to, number);
        self.link.flush();
    }

    fn queue(&mut self, to: SocketAddr, number: u32) {
        let ip = Ip::between(self.link.own().ip(), to.ip()).expect("one version").with_traffic_class(self.class);
        let mac = station::of_port(to.port());
        let mut flow = Flow::new(self.link.mac(), mac, None, ip, self.sends_from().port());
        let headers = Headers::plain(Bth::new(Opcode::RcSendOnly, Qpn::new(7), Psn::new(number)));
        let len = flow.frame_len(&headers, 100);
        self.link.transmit(len, |frame| flow.emit(frame, &headers, 100, |payload| payload.fill(1))).expect("room");
    }

    /// Receives until several looks have found nothing. Whether one found something.
    fn receive(&mut self) -> bool {
        let (mut empty, before) = (0, self.seen.len());
        while empty < 40 {
            let mut batch = Batch::new();
            self.link.receive(&mut batch);
            empty = if batch.is_empty() { empty + 1 } else { 0 };
            for frame in batch {
                let frame = Frame::parse(frame.as_ref()).expect("it was sent so");
                let id = match frame.ip {
                    Ip::V4(_) => identification::find(frame.datagram).expect("its ICRC is right"),
                    Ip::V6(_) => frame.verify_icrc().map(|()| 0).expect("its ICRC is right"),
                };
                self.seen.push((frame.packet.headers.bth.psn.get(), id, frame.ip.traffic_class()));
            }
        }
        self.seen.len() > before
    }

    /// What came in since the last time: it must have these numbers, in order.
    fn take(&mut self, numbers: std::ops::Range<u32>) -> Vec<u16> {
        let seen: Vec<_> = self.seen.iter().map(|&(number, ..)| number).collect();
        let ids = std::mem::take(&mut self.seen).into_iter().map(|(_, id, _)| id).collect();
        assert!(seen.iter().copied().eq(numbers.clone()), "{} came of {numbers:?}", seen.len());
        ids
    }
}

#[test]
fn a_peer_that_sends_again_and_again_has_sockets_of_its_own_and_nothing_is_lost_or_overtaken() {
    let v4 = || [loopback(), loopback()];
    let v6 = || [Ipv6Addr::LOCALHOST; 2].map(|ip| at(&ip.to_string(), None).expect("there are ports"));
    let [mut near, mut far] = v4().map(Station::new);
    near.send(&mut far, 0..2 * MANY);
    let ids = far.take(0..2 * MANY);
    assert_eq!(near.link.regular_peers(), (None, Some(far.link.own())));
    assert_eq!(far.link.regular_peers(), (Some(near.sends_from()), None));
    let counted = ids.windows(2).filter(|ids| ids[1] == ids[0].wrapping_add(1)).count();
    assert!(counted > MANY as usize / 3 && ids[..1000].iter().all(|&id| id == 0), "{counted} counted up");
    if !has_ipv6() {
        return;
    }
    // The second at an address has a port of its own, to and from which everything goes by one socket.
    let _ours = six();
    let [mut near, mut far] = v6().map(Station::new);
    near.send(&mut far, 0..2 * MANY);
    far.send(&mut near, 0..2 * MANY);
    far.take(0..2 * MANY);
    near.take(0..2 * MANY);
    assert_eq!(near.link.regular_peers(), (Some(far.sends_from()), Some(far.link.own())));
    assert_eq!(far.link.regular_peers(), (None, None));
}

/// Sends so many bursts of packets, each received before the next.
fn bursts(near: &mut Station, far: &mut Station, number: &mut u32, packets: u32, bursts: u32) {
    for _ in 0..bursts {
        (0..packets).for_each(|at| near.queue(far.link.own(), *number + at));
        near.link.flush();
        far.receive();
        far.take(*number..*number + packets);
        *number += packets;
    }
}

/// Alone and in streams they are read by other calls, and what the kernel gathers is taken apart.
#[test]
fn packets_alone_and_trains_and_classes_come_whole_from_a_regular_peer() {
    let [mut near, mut far] = [loopback(), loopback()].map(Station::new);
    near.send(&mut far, 0..MANY);
    far.take(0..MANY);
    let own = far.link.own();
    let mut number = MANY;
    for _ in 0..3 {
        bursts(&mut near, &mut far, &mut number, 1, 700);
        bursts(&mut near, &mut far, &mut number, 64, 3);
        bursts(&mut near, &mut far, &mut number, 130, 20);
        bursts(&mut near, &mut far, &mut number, 3, 200);
    }
    // A train waits behind each packet at which the reading may change.
    for alone in 240..270 {
        bursts(&mut near, &mut far, &mut number, 130, 40);
        bursts(&mut near, &mut far, &mut number, 1, alone);
        near.transmit(own, number);
        (1..64).for_each(|at| near.queue(own, number + at));
        near.link.flush();
        far.receive();
        far.take(number..number + 64);
        number += 64;
    }
    bursts(&mut near, &mut far, &mut number, 1, 700);
    near.class = 0b10;
    for at in 0..200 {
        near.transmit(own, number + at);
        far.receive();
    }
    let classes: Vec<_> = far.seen.iter().map(|&(.., class)| class).collect();
    let seen_from = classes.iter().position(|&class| class == 0b10).expect("one is looked at");
    assert!(seen_from > 0, "no packet was read alone");
    assert!(classes[seen_from..].iter().all(|&class| class == 0b10), "and all behind it are");
    far.take(number..number + 200);
    assert_eq!(near.link.regular_peers().1, Some(own));
    assert!(far.link.regular_peers().0.is_some());
}

#[test]
fn others_get_through_and_may_become_regular_peers_in_turn() {
    let [mut near, mut other, mut far] = [loopback(), loopback(), loopback()].map(Station::new);
    for round in 0..3 {
        for sender in [&mut near, &mut other] {
            sender.send(&mut far, 0..MANY);
            far.take(0..MANY);
            assert_eq!(far.link.regular_peers().0, Some(sender.sends_from()), "round {round}");
            sleep(STAYS);
        }
    }
    // One that answers both.
    for _ in 0..2 {
        for receiver in [&mut near, &mut other] {
            far.send(receiver, 0..MANY);
            receiver.take(0..MANY);
            assert_eq!(far.link.regular_peers().1, Some(receiver.link.own()));
            sleep(STAYS);
        }
    }
}

/// What waits at a socket that is closed would be lost: of two that send, the first keeps its own.
#[test]
fn of_two_that_send_all_the_time_one_keeps_its_socket_and_nothing_of_either_is_lost() {
    let [mut near, mut other, mut far] = [loopback(), loopback(), loopback()].map(Station::new);
    near.send(&mut far, 0..MANY);
    far.take(0..MANY);
    let first = far.link.regular_peers().0;
    assert_eq!(first, Some(near.sends_from()));
    sleep(STAYS);
    let own = far.link.own();
    for number in 0..4 * MANY {
        near.transmit(own, number);
        other.transmit(own, (1 << 20) + number);
        if number % 32 == 0 {
            far.receive();
            assert_eq!(far.link.regular_peers().0, first, "at {number}");
        }
    }
    while far.receive() {}
    let (others, near): (Vec<_>, Vec<_>) =
        far.seen.iter().map(|&(number, ..)| number).partition(|number| number >> 20 > 0);
    assert!(near.into_iter().eq(0..4 * MANY) && others.into_iter().eq((1 << 20)..(1 << 20) + 4 * MANY));
}

#[test]
fn a_regular_peer_that_falls_silent_while_another_sends_costs_nothing_in_the_end() {
    let [mut near, mut others, mut far] = [loopback(), loopback(), loopback()].map(Station::new);
    near.send(&mut far, 0..MANY);
    far.take(0..MANY);
    assert_eq!(far.link.regular_peers().0, Some(near.sends_from()));
    // Not often enough to be a regular one.
    for number in 0..300 {
        others.send(&mut far, number..number + 1);
    }
    assert_eq!(far.seen.len(), 300);
    assert_eq!(far.link.regular_peers().0, None);
}

/// The address is shared for a moment, with ourselves: no other process gets a socket there.
#[test]
fn no_other_process_gets_a_socket_at_the_address_of_a_link() {
    let [mut near, mut far] = [loopback(), loopback()].map(Station::new);
    near.send(&mut far, 0..MANY);
    assert!(near.link.regular_peers().1.is_some() && far.link.regular_peers().0.is_some());
    for address in [near.sends_from(), near.link.own(), far.sends_from(), far.link.own()] {
        let thief = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None).expect("a socket");
        sockopt::set_socket_reuseport(&thief, true).expect("an option");
        sockopt::set_socket_reuseaddr(&thief, true).expect("an option");
        assert_eq!(rustix::net::bind(&thief, &address), Err(rustix::io::Errno::ADDRINUSE), "{address}");
    }
}

/// Sends so many small messages, one by one.
fn chat(ends: &mut [End; 2], messages: u32) {
    for number in 0..messages {
        ends[1].post_recv(8);
        let message = ends[0].buffer(&u64::from(number).to_le_bytes());
        ends[0].post(SendWr::send(1, message));
        let (sent, came) = (wait(ends, 0), wait(ends, 1));
        assert_eq!((sent.status, came.status), (WcStatus::Success, WcStatus::Success));
        assert_eq!(came.buffer[..], u64::from(number).to_le_bytes());
    }
}

#[test]
fn a_regular_peer_whose_socket_is_gone_ends_its_connection_at_once() {
    let patient = QpParams { ack_timeout_ns: 3_600_000_000_000, ack_timeout_max_ns: 3_600_000_000_000, ..params() };
    let mut ends = connected([loopback(), loopback()], [patient.clone(), patient]);
    chat(&mut ends, MANY);
    // What is still to be acknowledged is.
    let until = Instant::now() + Duration::from_millis(5);
    while Instant::now() < until {
        for end in &mut ends {
            end.engine.poll();
        }
    }
    let [mut ours, theirs] = ends;
    drop(theirs);
    assert_is_refused(&mut ours);
}

/// What is too long for the interface takes no number: the count is given up, and found out anew.
#[test]
fn a_regular_peer_is_one_again_after_an_error() {
    if !namespace::is_inside("regular::a_regular_peer_is_one_again_after_an_error") {
        return;
    }
    let long = || QpParams { mtu: Mtu::Mtu4096, ..params() };
    let mut ends = connected([loopback(), loopback()], [long(), long()]);
    for _ in 0..3 {
        chat(&mut ends, MANY);
        namespace::set_mtu(1400);
        ends[1].post_recv(8192);
        let message = ends[0].buffer(&pattern(8192));
        ends[0].post(SendWr::send(1, message));
        let (until, before) = (Instant::now() + PATIENCE, ends[0].engine.link_stats(0).tx_too_long);
        while ends[0].engine.link_stats(0).tx_too_long == before {
            ends[0].engine.poll();
            assert!(Instant::now() < until, "{:?}", ends[0].engine.link_stats(0));
        }
        namespace::set_mtu(65_536);
        let came = wait(&mut ends, 1);
        assert!(came.buffer[..] == pattern(8192) && wait(&mut ends, 0).status == WcStatus::Success);
        sleep(STAYS);
    }
    for end in &ends {
        assert!(end.engine.stats().is_balanced(), "{:?}", end.engine.stats());
    }
}

/// A stranger on the wire sees the identification that the kernel wrote, and finds each ICRC right: of packets alone and in trains, to a
/// regular peer and to others.
#[test]
fn every_icrc_is_right_on_the_wire() {
    if !namespace::is_inside("regular::every_icrc_is_right_on_the_wire") {
        return;
    }
    namespace::cut_trains();
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let everything = rustix::net::Protocol::from_raw(0x0300.try_into().expect("not 0"));
    let wire = rustix::net::socket_with(AddressFamily::PACKET, SocketType::RAW, flags, Some(everything));
    let wire = wire.expect("this namespace is ours");
    sockopt::set_socket_recv_buffer_size_force(&wire, 64 << 20).ok();
    let (mut ids, mut bytes) = (Vec::new(), vec![0; 1 << 16]);
    let mut look = |wire: &rustix::fd::OwnedFd| {
        while let Ok((len, _)) = rustix::net::recv(wire, &mut bytes[..], RecvFlags::empty()) {
            let Ok(frame) = Frame::parse(&bytes[..len]) else { continue };
            assert_eq!(frame.verify_icrc(), Ok(()), "{:?}", frame.ip);
            if let (Ip::V4(ip), IpAddr::V4(_)) = (frame.ip, frame.ip.source()) {
                ids.push(ip.id);
            }
        }
    };
    let mut ends = connected([loopback(), loopback()], [params(), params()]);
    for _ in 0..15 {
        chat(&mut ends, MANY / 10);
        look(&wire);
    }
    for len in [1, 1000, 1024, 5000, 64 * 1024, 200_000] {
        ends[1].post_recv(len);
        let message = ends[0].buffer(&pattern(len));
        ends[0].post(SendWr::send(1, message));
        let came = wait(&mut ends, 1);
        assert!(came.buffer[..] == pattern(len) && wait(&mut ends, 0).status == WcStatus::Success);
        look(&wire);
    }
    let stats = ends.each_ref().map(|end| end.engine.stats());
    assert!(stats.iter().all(|stats| stats.malformed(roci_protocol::wire::Malformed::Icrc) == 0), "{stats:?}");
    let in_trains = ids.windows(3).filter(|ids| ids[2] == ids[0].wrapping_add(2) && ids[0] > 64).count();
    let (alone, counted) = (ids.iter().filter(|&&id| id == 0).count(), ids.iter().filter(|&&id| id > 64).count());
    assert!(
        alone > 1000 && counted > 1000 && in_trains > 100,
        "{alone} alone, {counted} counted, {in_trains} in trains"
    );
}

/// The next call brings the error of a packet before, and sends nothing: what it was to send goes by another socket, as it was at first.
#[test]
fn what_is_not_sent_for_an_error_before_is_sent_as_it_was() {
    let [mut near, mut far] = [loopback(), loopback()].map(Station::new);
    near.send(&mut far, 0..MANY);
    let own = far.link.own();
    assert_eq!(near.link.regular_peers().1, Some(own));
    drop(far);
    // No process has the port, and its host says so.
    near.transmit(own, 0);
    let mut far = Station::new(at(&own.ip().to_string(), None).expect("it is free again"));
    near.transmit(own, 1);
    near.transmit(own, 2);
    far.receive();
    assert_eq!(far.take(1..3), [0; 2]);
    assert_eq!(near.link.regular_peers().1, None);
}

/// The device's queue is full: such a packet takes a number, or does not.
#[test]
fn a_full_queue_of_the_device_does_not_leave_a_wrong_count() {
    if !namespace::is_inside("regular::a_full_queue_of_the_device_does_not_leave_a_wrong_count") {
        return;
    }
    let [mut near, mut far] = [loopback(), loopback()].map(Station::new);
    near.send(&mut far, 0..MANY);
    far.take(0..MANY);
    let own = far.link.own();
    assert_eq!(near.link.regular_peers().1, Some(own));
    if let Err(refusal) = namespace::set_queue(Some("tbf rate 1mbit burst 400 limit 400")) {
        eprintln!("SKIPPED: a full queue: {refusal}");
        return;
    }
    let mut number = MANY;
    while near.link.regular_peers().1.is_some() {
        near.transmit(own, number);
        number += 1;
        assert!(number < 10_000, "the queue was never full");
    }
    namespace::set_queue(None).expect("it was set");
    near.link.flush();
    far.receive();
    far.seen.clear();
    near.transmit(own, number);
    far.receive();
    assert_eq!(far.take(number..number + 1), [0]);
}
