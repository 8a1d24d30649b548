//! Connections without an ICRC: only where both ends have agreed, and never at the cost of another connection.

use roci_driver::link::Link;
use roci_driver::link::sim::{Clock, SimLink};
use roci_driver::{Address, CompletionQueue, Dialect, Engine, Mtu, PdId, QpParams, QueuePair, SendWr};
use roci_protocol::wire::{Bth, Flow, Headers, Ip, MacAddr, Malformed, Opcode, udp};
use roci_protocol::{Psn, Qpn};

use crate::common::{Wire, pattern};

const PSN: u32 = 100;
const PAYLOAD: [u8; 16] = *b"sixteen of bytes";
/// Where a frame of IPv4 has the queue pair's number.
const NUMBER: usize = 14 + 20 + udp::LEN + 5;

/// An engine, and a peer that writes its frames by hand.
struct Victim {
    engine: Engine<SimLink>,
    pd: PdId,
    cq: CompletionQueue,
    wire: SimLink,
    mac: MacAddr,
}

impl Victim {
    fn new() -> Self {
        let (wire, link) = SimLink::pair(&Clock::default());
        let mut engine = Engine::new(1 << 20).expect("memory");
        let mac = link.mac();
        engine.add_port(link, [10, 0, 0, 2].into(), false);
        let (pd, cq) = (engine.alloc_pd(), engine.create_cq(64));
        Self { engine, pd, cq, wire, mac }
    }

    /// A connection of which each side wants an ICRC or does not.
    fn connect(&mut self, ours: bool, theirs: bool) -> QueuePair {
        let Self { engine, pd, cq, wire, .. } = self;
        let params = QpParams { icrc: ours, ..QpParams::default() };
        let peer = Address {
            mac: wire.mac(),
            ip: [10, 0, 0, 1].into(),
            qpn: Qpn::new(0x123),
            psn: Psn::new(PSN),
            mtu: Mtu::Mtu1024,
            max_rd_atomic: 1,
            dialect: Dialect::Verbs,
            icrc: theirs,
        };
        let qp = engine.create_qp(0, *pd, *cq).expect("room");
        let qp = engine.connect(qp, &peer, &params).expect("one IP version");
        let buffer = engine.buffer(64).expect("memory");
        engine.post_recv(qp, 7, buffer).expect("accepted");
        qp
    }

    /// A SEND to a queue pair, with an ICRC or the mark of one that is left out.
    fn frame(&self, to: Qpn, is_sealed: bool) -> Vec<u8> {
        self.frame_from(1, to, is_sealed)
    }

    fn frame_from(&self, host: u8, to: Qpn, is_sealed: bool) -> Vec<u8> {
        let ip = Ip::between([10, 0, 0, host].into(), [10, 0, 0, 2].into()).expect("both are IPv4");
        let flow = Flow::new(self.wire.mac(), self.mac, None, ip, 0xc000);
        let mut flow = if is_sealed { flow } else { flow.unsealed() };
        let headers = Headers::plain(Bth::new(Opcode::RcSendOnly, to, Psn::new(PSN)));
        let mut bytes = vec![0; flow.frame_len(&headers, PAYLOAD.len())];
        flow.emit(&mut bytes, &headers, PAYLOAD.len(), |into| into.copy_from_slice(&PAYLOAD));
        bytes
    }

    /// Whether the frame fills a receive; if it does not, it must be counted as one with a wrong ICRC.
    fn takes(&mut self, frame: &[u8]) -> bool {
        let before = self.engine.stats().malformed(Malformed::Icrc);
        self.wire.transmit(frame.len(), |bytes| bytes.copy_from_slice(frame)).expect("room");
        self.wire.flush();
        self.engine.poll();
        let dropped = self.engine.stats().malformed(Malformed::Icrc) - before;
        let taken = self.engine.poll_cq(self.cq).is_some_and(|done| done.status.is_success());
        assert!(self.engine.stats().is_balanced());
        assert_eq!(dropped, u64::from(!taken));
        taken
    }
}

#[test]
fn a_frame_without_one_is_taken_where_both_ends_have_agreed_and_nowhere_else() {
    for [ours, theirs] in [[true, true], [true, false], [false, true], [false, false]] {
        let is_checked = ours || theirs;
        for is_sealed in [false, true] {
            let mut victim = Victim::new();
            let qp = victim.connect(ours, theirs);
            assert_eq!(victim.engine.has_icrc(qp), Some(is_checked));
            let frame = victim.frame(qp.qpn(), is_sealed);
            assert_eq!(victim.takes(&frame), is_sealed || !is_checked, "{ours} {theirs} {is_sealed}");
            assert_eq!(victim.engine.stats().rx_unchecked, u64::from(!is_sealed && !is_checked));
        }
    }
}

/// Every bit from the number to the ICRC.
#[test]
fn a_damaged_frame_of_a_connection_with_an_icrc_is_dropped_beside_connections_without() {
    let mut victim = Victim::new();
    let [sealed, open] = [true, false].map(|icrc| victim.connect(icrc, icrc));
    let frame = victim.frame(sealed.qpn(), true);
    let before = victim.engine.stats().rx_delivered;
    for bit in (NUMBER * 8)..(frame.len() * 8) {
        let mut damaged = frame.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(!victim.takes(&damaged), "bit {bit}");
    }
    let mut astray = frame.clone();
    astray[NUMBER..NUMBER + 3].copy_from_slice(&open.qpn().get().to_be_bytes()[1..]);
    assert!(!victim.takes(&astray), "its ICRC is checked at a connection without one, too");
    assert_eq!(victim.engine.stats().rx_delivered, before);
    assert!(victim.takes(&frame));
}

#[test]
fn a_frame_without_one_that_goes_astray_is_dropped() {
    let mut victim = Victim::new();
    let [sealed, open, other] = [true, false, false].map(|icrc| victim.connect(icrc, icrc));
    let frame = victim.frame(open.qpn(), false);
    for astray in [sealed.qpn(), other.qpn(), Qpn::new(0x77_7777), Qpn::new(1)] {
        let mut damaged = frame.clone();
        damaged[NUMBER..NUMBER + 3].copy_from_slice(&astray.get().to_be_bytes()[1..]);
        assert!(!victim.takes(&damaged), "{astray:?}");
        // Even where the mark is that of the number.
        let marked = victim.frame(astray, false);
        assert_eq!(victim.takes(&marked), astray == other.qpn(), "{astray:?}");
    }
    assert!(victim.takes(&frame));
    assert_eq!(victim.engine.stats().rx_unchecked, 2);
}

#[test]
fn a_frame_without_one_from_elsewhere_is_dropped() {
    let mut victim = Victim::new();
    let open = victim.connect(false, false);
    let frame = victim.frame(open.qpn(), false);
    let elsewhere = victim.frame_from(3, open.qpn(), false);
    assert!(!victim.takes(&elsewhere), "from another host");
    let tagged = [&frame[..12], &[0x81, 0, 0, 5], &frame[12..]].concat();
    assert!(!victim.takes(&tagged), "on a VLAN that is not the connection's");
    assert!(victim.takes(&frame));
}

#[test]
fn a_packet_that_makes_no_sense_is_not_counted_as_one_without_an_icrc() {
    let mut victim = Victim::new();
    let open = victim.connect(false, false);
    let frame = victim.frame(open.qpn(), false);
    let mut nonsense = frame.clone();
    nonsense[NUMBER - 5] = 0x1f;
    // The first, one that is remembered, one that is recognized; and each time one that only looks like them.
    for count in 1..=3 {
        for bytes in [&frame, &nonsense] {
            victim.wire.transmit(bytes.len(), |into| into.copy_from_slice(bytes)).expect("room");
            victim.wire.flush();
            victim.engine.poll();
        }
        let stats = victim.engine.stats();
        let counts = [stats.rx_unchecked, stats.rx_delivered, stats.malformed(Malformed::UnknownOpcode)];
        assert_eq!((counts, stats.is_balanced()), ([count; 3], true));
    }
}

#[test]
fn everything_that_a_connection_sends_goes_without_where_both_ends_have_agreed() {
    for [near, far] in [[false, false], [true, false], [false, true]] {
        let params = [near, far].map(|icrc| QpParams { icrc, ..QpParams::default() });
        let mut wire = Wire::between(None, params);
        exchange(&mut wire);
        for end in &wire.ends {
            let stats = end.engine.stats();
            let unchecked = if near || far { 0 } else { stats.rx_delivered };
            assert!(stats.rx_delivered > 2);
            assert_eq!((stats.rx_unchecked, stats.malformed(Malformed::Icrc)), (unchecked, 0));
        }
    }
}

/// A SEND of several packets each way, with the acknowledgements.
fn exchange(wire: &mut Wire) {
    let bytes = pattern(5000);
    for who in [0, 1] {
        wire.post_recv(1 - who, bytes.len());
        let buffer = wire.buffer(who, &bytes);
        wire.post(who, SendWr::send(1, buffer));
        let received = wire.wait(1 - who);
        assert_eq!(&received.buffer[..], bytes);
        assert!(wire.wait(who).status.is_success());
    }
}
