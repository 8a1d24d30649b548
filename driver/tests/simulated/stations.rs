//! A peer that moves to another station is followed, where the network says that it did.

use roci_driver::link::Link;
use roci_driver::link::sim::{Clock, SimLink};
use roci_driver::{Address, CompletionQueue, Engine, Mtu, QpParams, QueuePair, SendWr};
use roci_protocol::wire::{Bth, Flow, Frame, Headers, Ip, MacAddr, Opcode};
use roci_protocol::{Psn, Qpn};
use roci_testkit::ScriptedPeer;

const OURS: [u8; 4] = [10, 0, 0, 2];
const THEIRS: [u8; 4] = [10, 0, 0, 1];
/// Where the peer is first, and later.
const OLD: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const NEW: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);
const BROADCAST: MacAddr = MacAddr([0xff; 6]);
const PSN: Psn = Psn::new(100);
const ACK_TIMEOUT: u64 = 1_000_000;

/// Where a frame of ours goes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sent {
    Packet(Opcode, MacAddr),
    /// An ARP question, for whom all is.
    Question(MacAddr),
}

/// An engine, and a peer made by hand.
struct Scene {
    clock: Clock,
    peer: ScriptedPeer,
    engine: Engine<SimLink>,
    qp: QueuePair,
    cq: CompletionQueue,
}

impl Scene {
    fn new(is_point_to_point: bool) -> Self {
        let clock = Clock::default();
        let (wire, link) = SimLink::pair(&clock);
        let mut engine = roci_testkit::engine(1 << 20, 1);
        engine.add_port(link, OURS.into(), is_point_to_point);
        let (pd, cq) = (engine.alloc_pd(), engine.create_cq(64));
        let params = QpParams { ack_timeout_ns: ACK_TIMEOUT, ack_timeout_max_ns: ACK_TIMEOUT, ..QpParams::default() };
        let peer = Address {
            mac: OLD,
            ip: THEIRS.into(),
            qpn: Qpn::new(0x123),
            psn: PSN,
            mtu: Mtu::Mtu1024,
            max_rd_atomic: 1,
            dialect: params.dialect,
            icrc: true,
        };
        let qp = engine.create_qp(0, pd, cq).expect("room");
        let qp = engine.connect(qp, &peer, &params).expect("one IP version");
        let buffer = engine.buffer(64).expect("memory");
        engine.post_recv(qp, 1, buffer).expect("accepted");
        Self { clock, peer: ScriptedPeer::new(wire), engine, qp, cq }
    }

    fn post_send(&mut self) {
        let buffer = self.engine.buffer(8).expect("memory");
        self.engine.post_send(self.qp, SendWr::send(2, buffer)).expect("accepted");
    }

    /// The peer's first SEND, from this station.
    fn hear_send_from(&mut self, station: MacAddr) {
        let ip = Ip::between(THEIRS.into(), OURS.into()).expect("one version");
        let mut flow = Flow::new(station, self.engine.link(0).mac(), None, ip, 0xc000);
        let mut headers = Headers::plain(Bth::new(Opcode::RcSendOnly, self.qp.qpn(), PSN));
        headers.bth.ack_req = true;
        self.peer.send(&ScriptedPeer::packet(&mut flow, &headers, 0, 0));
    }

    /// ARP (RFC 826): `station` asks or answers `whom`, and says that it has the peer's address.
    fn hear_arp(&mut self, is_answer: bool, station: MacAddr, whom: [u8; 4]) {
        let to = if is_answer { self.engine.link(0).mac() } else { BROADCAST };
        let operation = [0, 1 + u8::from(is_answer)];
        let head = [&to.0[..], &station.0, &[0x08, 0x06, 0, 1, 0x08, 0, 6, 4], &operation].concat();
        self.peer.send(&[&head[..], &station.0, &THEIRS, &to.0, &whom, &[0; 18]].concat());
    }

    /// Lets time pass, and returns what was sent meanwhile.
    fn pass(&mut self, time: u64) -> Vec<Sent> {
        self.clock.advance(time);
        for _ in 0..3 {
            self.engine.poll();
        }
        self.peer.receive().iter().map(|frame| sent(frame)).collect()
    }

    /// Lets so many timeouts pass, and returns what was sent.
    fn timeouts(&mut self, count: usize) -> Vec<Sent> {
        (0..2 * count).flat_map(|_| self.pass(ACK_TIMEOUT)).collect()
    }
}

fn sent(bytes: &[u8]) -> Sent {
    match Frame::parse(bytes) {
        Ok(frame) => {
            frame.verify_icrc().expect("a good frame");
            Sent::Packet(frame.packet.headers.bth.opcode, frame.ethernet.destination)
        }
        Err(_) => Sent::Question(MacAddr(bytes[..6].try_into().expect("a frame"))),
    }
}

#[test]
fn a_request_without_an_answer_follows_its_peer() {
    let mut scene = Scene::new(false);
    scene.post_send();
    assert_eq!(scene.pass(0), [Sent::Packet(Opcode::RcSendOnly, OLD)]);
    let silence = scene.timeouts(2);
    assert!(silence.contains(&Sent::Question(BROADCAST)), "it asks who has the peer's address: {silence:?}");
    assert!(!silence.contains(&Sent::Packet(Opcode::RcSendOnly, NEW)), "no station has announced it");
    scene.hear_arp(true, NEW, OURS);
    let later = scene.timeouts(2);
    assert_eq!(later.last(), Some(&Sent::Packet(Opcode::RcSendOnly, NEW)), "{later:?}");
    assert_eq!(scene.engine.stats().peers_followed, 1);
    assert!(scene.engine.poll_cq(scene.cq).is_none(), "the retries of a moment are not spent");
}

#[test]
fn an_announcement_is_enough_where_the_peer_is_known() {
    let mut scene = Scene::new(false);
    scene.hear_arp(false, OLD, OURS);
    scene.post_send();
    scene.pass(0);
    // Gratuitous: it asks for itself.
    scene.hear_arp(false, NEW, THEIRS);
    let later = scene.timeouts(1);
    assert_eq!(later.last(), Some(&Sent::Packet(Opcode::RcSendOnly, NEW)), "{later:?}");
}

#[test]
fn answers_follow_a_peer_that_repeats_its_request() {
    let mut scene = Scene::new(false);
    scene.hear_send_from(OLD);
    assert_eq!(scene.pass(0), [Sent::Packet(Opcode::RcAck, OLD)]);
    scene.hear_arp(false, NEW, OURS);
    scene.hear_send_from(NEW);
    let answers = scene.pass(0);
    assert!(answers.contains(&Sent::Packet(Opcode::RcAck, NEW)), "{answers:?}");
    assert_eq!(scene.engine.stats().peers_followed, 1);
}

#[test]
fn a_packet_from_another_station_alone_moves_nothing() {
    let mut scene = Scene::new(false);
    scene.hear_arp(false, OLD, OURS);
    scene.hear_send_from(OLD);
    scene.pass(0);
    for _ in 0..3 {
        scene.hear_send_from(NEW);
        let answers = scene.pass(0);
        assert!(answers.contains(&Sent::Packet(Opcode::RcAck, OLD)), "{answers:?}");
    }
    assert_eq!(scene.engine.stats().peers_followed, 0);
}

#[test]
fn at_the_end_of_a_cable_no_request_is_sent() {
    let mut scene = Scene::new(true);
    scene.post_send();
    scene.hear_arp(false, NEW, OURS);
    let sent = scene.timeouts(3);
    assert!(
        sent.iter().all(|sent| *sent == Sent::Packet(Opcode::RcSendOnly, OLD) || *sent == Sent::Question(NEW)),
        "{sent:?}"
    );
}
