//! What an engine makes of reports that frames have not arrived: over a simulated wire, with reports that say whatever the test wants.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;

use roci_driver::link::sim::{Clock, SimLink};
use roci_driver::link::udp::station;
use roci_driver::link::{Batch, FailedFrame, FrameFailure, Full, Link, LinkState, LinkStats};
use roci_driver::{Address, Engine, Mtu, QpParams, QueuePair, SendWr, State};
use roci_protocol::wire::{Bth, MacAddr, Opcode};
use roci_protocol::{Nanos, Psn, Qpn};

/// A peer that the way to carries shorter packets than the link.
const NARROW: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 3));

/// Reports that wait, and what the engine has shortened the link to.
#[derive(Default)]
struct Reports {
    waiting: VecDeque<FailedFrame>,
    shortened: Option<usize>,
}

/// A link whose peer's station is a socket, and that reports what it is given.
struct Reporting {
    inner: SimLink,
    reports: Rc<RefCell<Reports>>,
}

impl Link for Reporting {
    type Frame = Vec<u8>;

    fn now(&self) -> Nanos {
        self.inner.now()
    }

    fn max_frame(&self) -> usize {
        self.inner.max_frame()
    }

    fn max_frame_to(&self, peer: IpAddr) -> usize {
        if peer == NARROW { 1514 } else { self.max_frame() }
    }

    fn mac(&self) -> MacAddr {
        self.inner.mac()
    }

    fn take_failed(&mut self) -> Option<FailedFrame> {
        self.reports.borrow_mut().waiting.pop_front()
    }

    fn shorten_packets(&mut self, _now: Nanos, bytes: usize) {
        self.reports.borrow_mut().shortened = Some(bytes);
    }

    fn receive(&mut self, batch: &mut Batch<Vec<u8>>) {
        self.inner.receive(batch);
    }

    fn transmit(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> Result<(), Full> {
        self.inner.transmit(len, fill)
    }

    fn flush(&mut self) {
        self.inner.flush();
    }

    fn maintain(&mut self, now: Nanos) -> LinkState {
        self.inner.maintain(now)
    }

    fn stats(&self) -> LinkStats {
        self.inner.stats()
    }
}

/// An engine with one connection to a silent peer, and one SEND under way.
fn waiting() -> (Engine<Reporting>, QueuePair, Rc<RefCell<Reports>>, FailedFrame) {
    let (inner, _) = SimLink::pair(&Clock::default());
    let reports = Rc::new(RefCell::new(Reports::default()));
    let mut engine = Engine::new(1 << 20).expect("memory");
    engine.add_port(Reporting { inner, reports: reports.clone() }, [10, 0, 0, 1].into(), false);
    let (pd, cq) = (engine.alloc_pd(), engine.create_cq(16));
    let qp = engine.create_qp(0, pd, cq).expect("a number is free");
    let ours = engine.address_of(&qp, &QpParams::default());
    let (ip, qpn) = ([10, 0, 0, 2].into(), Qpn::new(0x77));
    let peer = Address { ip, mac: station::of_port(17_000), qpn, psn: Psn::new(9), mtu: Mtu::Mtu1024, ..ours };
    let qp = engine.connect(qp, &peer, &QpParams::default()).expect("they agree");
    let message = engine.buffer(8).expect("memory");
    engine.post_send(qp, SendWr::send(1, message)).expect("accepted");
    let mut quote = [0; 12];
    Bth::new(Opcode::RcSendOnly, qpn, ours.psn).emit(&mut quote);
    let report = FailedFrame { ip, station: peer.mac, quote, failure: FrameFailure::Refused };
    (engine, qp, reports, report)
}

fn quoting(report: FailedFrame, qpn: u32, psn: u32) -> FailedFrame {
    let mut quote = [0; 12];
    Bth::new(Opcode::RcSendOnly, Qpn::new(qpn), Psn::new(psn)).emit(&mut quote);
    FailedFrame { quote, ..report }
}

#[test]
fn a_refused_packet_that_is_waited_for_ends_its_connection() {
    let (mut engine, qp, reports, report) = waiting();
    reports.borrow_mut().waiting.push_back(report);
    engine.poll();
    assert_eq!((engine.qp_state(qp), engine.stats().peers_refused), (Some(State::Error), 1));
}

/// Each names one thing wrong.
#[test]
fn a_report_that_quotes_no_packet_that_is_waited_for_changes_nothing() {
    let (mut engine, qp, reports, report) = waiting();
    let (bth, _) = Bth::parse(&report.quote).expect("it is one");
    let psn = bth.psn.get();
    let forged = [
        quoting(report, 0x77, psn.wrapping_add(1) & 0xff_ffff),
        quoting(report, 0x77, psn.wrapping_sub(1) & 0xff_ffff),
        quoting(report, 0x78, psn),
        FailedFrame { ip: [10, 0, 0, 3].into(), ..report },
        FailedFrame { station: station::of_port(17_001), ..report },
        FailedFrame { quote: [0xff; 12], ..report },
    ];
    for failure in [FrameFailure::Refused, FrameFailure::TooLong(600)] {
        reports.borrow_mut().waiting.extend(forged.map(|forged| FailedFrame { failure, ..forged }));
        engine.poll();
        assert!(reports.borrow().waiting.is_empty(), "all were looked at");
        assert_eq!((engine.qp_state(qp), engine.stats().peers_refused), (Some(State::Rts), 0));
        assert_eq!(reports.borrow().shortened, None);
    }
}

#[test]
fn a_packet_that_was_too_long_shortens_the_link_and_ends_nothing() {
    let (mut engine, qp, reports, report) = waiting();
    reports.borrow_mut().waiting.push_back(FailedFrame { failure: FrameFailure::TooLong(1280), ..report });
    engine.poll();
    assert_eq!((engine.qp_state(qp), reports.borrow().shortened), (Some(State::Rts), Some(1280)));
}

#[test]
fn a_queue_pair_keeps_to_what_the_way_to_its_peer_carries() {
    let (mut engine, ..) = waiting();
    let (pd, cq) = (engine.alloc_pd(), engine.create_cq(16));
    let mtu_towards = |engine: &mut Engine<Reporting>, ip: IpAddr| {
        let mut qp = engine.create_qp(0, pd, cq).expect("a number is free");
        engine.fit_path(&mut qp, ip);
        let params = QpParams { mtu: Mtu::Mtu8192, ..QpParams::default() };
        let ours = engine.address_of(&qp, &params);
        let peer = Address { ip, qpn: Qpn::new(0x78), ..ours };
        let qp = engine.connect(qp, &Address { mtu: Mtu::Mtu8192, ..peer }, &params).expect("they agree");
        assert_eq!(engine.path_mtu(qp), Some(ours.mtu), "what the peer was given, and what is connected");
        ours.mtu
    };
    assert_eq!(mtu_towards(&mut engine, [10, 0, 0, 2].into()), Mtu::Mtu8192);
    assert_eq!(mtu_towards(&mut engine, NARROW), Mtu::Mtu1024);
}
