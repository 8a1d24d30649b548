//! Two managers and a wire between them on which each message can be looked at, lost or forged.

mod active;
mod ending;
mod limits;
mod passive;
mod sidr;
mod time;

use std::net::{IpAddr, Ipv4Addr};

use super::*;
use crate::wire::cm::{Dreq, Mra, PortSpace, Rej, RejReason, Rep, Req, Rtu, Subject};
use crate::{Mtu, Psn, Qpn};

const MS: Nanos = 1_000_000;
const SERVICE: ServiceId = ServiceId::of_port(PortSpace::Tcp, 7174);

type Way = (IpAddr, IpAddr);
type Manager = ConnectionManager<Way>;

fn ip(last: u8) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, last).into()
}

/// From host 1 to host 2.
fn there() -> Way {
    (ip(1), ip(2))
}

/// From host 2 to host 1.
fn back() -> Way {
    (ip(2), ip(1))
}

fn config(guid: u64) -> CmConfig {
    CmConfig::new(guid, guid * 77)
}

fn offer(qpn: u32) -> Offer {
    Offer {
        qpn: Qpn::new(qpn),
        starting_psn: Psn::new(0xabc0 + qpn),
        responder_resources: 4,
        initiator_depth: 3,
        retry_count: 7,
        rnr_retry_count: 6,
        srq: false,
        end_to_end_credits: true,
        mtu: Mtu::Mtu4096,
        ack_timeout: 19,
        flow_label: 0x1_f4c5,
        traffic_class: 0,
        hop_limit: 64,
    }
}

fn request(qpn: u32) -> ConnectRequest<'static> {
    ConnectRequest { service: SERVICE, source_port: 999, offer: offer(qpn), private_data: b"hello" }
}

/// Host 1 connects, host 2 listens.
struct Pair {
    active: Manager,
    passive: Manager,
}

impl Pair {
    fn new() -> Self {
        let mut pair = Self { active: Manager::new(config(1)), passive: Manager::new(config(2)) };
        pair.passive.listen(SERVICE).expect("a free service");
        pair
    }

    /// Delivers everything until neither side sends more.
    fn settle(&mut self, now: Nanos) {
        loop {
            let (to_passive, to_active) = (sent(&mut self.active), sent(&mut self.passive));
            if to_passive.is_empty() && to_active.is_empty() {
                return;
            }
            for mad in to_passive {
                self.passive.on_mad(now, back(), &mad.emit());
            }
            for mad in to_active {
                self.active.on_mad(now, there(), &mad.emit());
            }
        }
    }

    /// A REQ has arrived: both names of the connection.
    fn requested(&mut self, qpn: u32) -> (ConnId, ConnId) {
        let ours = self.active.connect(0, there(), request(qpn)).expect("a connection");
        self.settle(0);
        match events(&mut self.passive)[..] {
            [ConnectionEvent::Request { id, .. }] => (ours, id),
            ref other => panic!("a request: {other:?}"),
        }
    }

    /// A REP has arrived.
    fn replied(&mut self) -> (ConnId, ConnId) {
        let (ours, theirs) = self.requested(0x11);
        self.passive.accept(0, theirs, offer(0x22), b"welcome").expect("a request");
        self.settle(0);
        assert!(matches!(events(&mut self.active)[..], [ConnectionEvent::Reply { .. }]));
        (ours, theirs)
    }

    fn established(&mut self) -> (ConnId, ConnId) {
        let (ours, theirs) = self.replied();
        self.active.confirm(0, ours).expect("a reply");
        self.settle(0);
        assert_eq!(events(&mut self.active), [ConnectionEvent::Established { id: ours }]);
        assert_eq!(events(&mut self.passive), [ConnectionEvent::Established { id: theirs }]);
        (ours, theirs)
    }
}

fn sent(manager: &mut Manager) -> Vec<Mad> {
    let datagrams = std::iter::from_fn(|| manager.poll_transmit());
    datagrams.map(|(_, datagram)| Mad::parse(&datagram).expect("a datagram of ours")).collect()
}

fn events(manager: &mut Manager) -> Vec<ConnectionEvent> {
    std::iter::from_fn(|| manager.poll_event()).collect()
}

/// The only message that was sent.
fn only(manager: &mut Manager) -> CmMessage {
    match sent(manager)[..] {
        [mad] => mad.message,
        ref other => panic!("one message: {other:?}"),
    }
}

fn only_rej(manager: &mut Manager) -> Rej {
    match only(manager) {
        CmMessage::Rej(rej) => rej,
        other => panic!("a REJ: {other:?}"),
    }
}

fn hand(manager: &mut Manager, now: Nanos, route: Way, message: CmMessage) {
    manager.on_mad(now, route, &Mad::new(7, message).emit());
}

/// A REQ as host 1 sends it for its queue pair `qpn`.
fn req(qpn: u32) -> Req {
    req_from(ip(1), qpn)
}

fn req_from(host: IpAddr, qpn: u32) -> Req {
    let mut active = Manager::new(CmConfig { seed: u64::from(qpn), ..config(1) });
    active.connect(0, (host, ip(2)), request(qpn)).expect("a connection");
    match only(&mut active) {
        CmMessage::Req(req) => req,
        other => panic!("a REQ: {other:?}"),
    }
}

/// The counters that are not zero, but those of every message.
fn counted(manager: &Manager) -> Vec<(&'static str, u64)> {
    let ordinary = ["rx_messages", "tx_messages", "established"];
    manager.stats().iter().filter(|&(name, count)| count > 0 && !ordinary.contains(&name)).collect()
}
