//! What comes in for the connection manager (datagrams, its time, first packets), what it says and asks for.

use std::net::IpAddr;

use roci_protocol::cm::{self, ConnId, Terms};
use roci_protocol::rc::WcStatus;
use roci_protocol::wire::cm::{ATTR_REQ, RejReason};
use roci_protocol::wire::{Bth, Deth, Extensions, Flow, Frame, Headers, Ip, MadHeader, Opcode, mad};
use roci_protocol::{Mtu, Nanos, Qpn};

use super::Engine;
use crate::cm::{Beyond, CmConnection, CmEvent, CmRoute, Half, OwnRequest, PeerRequest, TagSender};
use crate::engine::connection::{largest_mtu, source_port};
use crate::engine::poll::ECN;
use crate::handles::{CmChannel, QueuePair};
use crate::link::{Full, Link};
use crate::neighbour::Interface;
use crate::qp::QpParams;

impl<L: Link> Engine<L> {
    /// A datagram for the management queue pair, on an address of this host.
    pub(in crate::engine) fn on_management(&mut self, port: usize, now: Nanos, frame: &Frame<'_>) {
        let Headers { bth, ext } = &frame.packet.headers;
        let is_management = bth.opcode == Opcode::UdSendOnly
            && ext.deth.is_some_and(|deth| deth.qkey == mad::QKEY)
            && self.ports[port].pkey.hears(bth.pkey);
        if !is_management {
            self.stats.rx_bad_management += 1;
            return;
        }
        let (ours, vlan) = (frame.ip.destination(), frame.ethernet.vlan_id());
        let is_ours = |interface: &Interface| interface.ip == ours && interface.vlan == vlan;
        let Some(address) = self.ports[port].interfaces.iter().position(is_ours) else {
            self.stats.rx_wrong_address += 1;
            return;
        };
        self.stats.rx_delivered += 1;
        let (theirs, mac) = (frame.ip.source(), frame.ethernet.source);
        let traffic_class = frame.ip.traffic_class() & !ECN;
        let priority = (frame.ethernet.vlan.unwrap_or(0) >> 13) as u8;
        let pkey = self.ports[port].pkey;
        let mtu = self.mtu_for(port, theirs, frame.packet.payload);
        let place = (port as u16, address as u16);
        let way = CmRoute { place, ours, theirs, vlan, mac, pkey, traffic_class, priority, mtu };
        self.cm.machine.on_mad(now, way, frame.packet.payload);
        self.serve_cm();
    }

    /// What a peer may ask for. To know what the way to it carries takes system calls: only those that ask are worth them.
    fn mtu_for(&self, port: usize, theirs: IpAddr, datagram: &[u8]) -> Mtu {
        let link = &self.ports[port].link;
        let is_request = MadHeader::parse(datagram).is_ok_and(|(header, _)| header.attr_id == ATTR_REQ);
        let carried = if is_request { link.max_frame_to(theirs) } else { link.max_frame() };
        largest_mtu(carried).unwrap_or(Mtu::Mtu256)
    }

    pub(in crate::engine) fn cm_is_due(&self, now: Nanos) -> bool {
        self.cm.machine.deadline().is_some_and(|at| at <= now)
    }

    pub(in crate::engine) fn on_cm_timer(&mut self, now: Nanos) {
        self.cm.machine.on_timer(now);
        self.serve_cm();
    }

    /// A packet came in on a passive connection's queue pair: the peer has received our answer.
    pub(in crate::engine) fn on_first_packet(&mut self, qp: QueuePair) {
        let now = self.now();
        if let Some(id) = self.cm.connection_of(qp) {
            self.cm.machine.on_communication_established(now, id);
            self.serve_cm();
        }
    }

    /// The application destroys a connection's queue pair: the connection ends with it.
    pub(in crate::engine) fn leave_connection(&mut self, qp: QueuePair) {
        let Some(id) = self.cm.connection_of(qp) else { return };
        // It may have ended before.
        let _ = self.cm_disconnect(id, &[]);
        if let Some(attempt) = self.cm.attempts.get_mut(&id) {
            attempt.half = Half::Gone;
        }
    }

    /// Sends what the connection manager has to say, and does what it asks for.
    pub(super) fn serve_cm(&mut self) {
        while let Some((way, datagram)) = self.cm.machine.poll_transmit() {
            self.send_mad(way, &datagram);
        }
        while self.cm.takes_event()
            && let Some(event) = self.cm.machine.poll_event()
        {
            self.on_cm_event(&event);
        }
        // What the events set off.
        while let Some((way, datagram)) = self.cm.machine.poll_transmit() {
            self.send_mad(way, &datagram);
        }
    }

    fn on_cm_event(&mut self, event: &cm::ConnectionEvent) {
        let channel = self.channel_of_event(event);
        let reported = match *event {
            cm::ConnectionEvent::Request { .. } => self.on_request(channel, event),
            cm::ConnectionEvent::Reply { id, remote, private_data } => self.on_reply(id, remote, private_data),
            cm::ConnectionEvent::Established { id } => self.cm.qp_of(id).map(|qp| CmEvent::Established { id, qp }),
            cm::ConnectionEvent::Rejected { id, reason, private_data } => {
                self.fail_attempt(id);
                self.drop_attempt(id);
                Some(CmEvent::Rejected { id, reason, private_data })
            }
            cm::ConnectionEvent::Unreachable { id } => {
                self.fail_attempt(id);
                self.drop_attempt(id);
                Some(CmEvent::Unreachable { id })
            }
            cm::ConnectionEvent::Disconnected { id, ending } => {
                self.fail_attempt(id);
                Some(CmEvent::Disconnected { id, ending })
            }
            cm::ConnectionEvent::TimewaitExit { id } => {
                self.drop_attempt(id);
                Some(CmEvent::TimewaitExit { id })
            }
            cm::ConnectionEvent::SidrResolved { id, qpn, qkey } => Some(CmEvent::ServiceResolved { id, qpn, qkey }),
            cm::ConnectionEvent::SidrFailed { id, failure } => Some(CmEvent::ServiceFailed { id, failure }),
        };
        self.cm.report(channel, reported);
    }

    /// A peer asks for a connection.
    fn on_request(&mut self, channel: CmChannel, request: &cm::ConnectionEvent) -> Option<CmEvent> {
        let &cm::ConnectionEvent::Request { id, service, remote, source, private_data, .. } = request else {
            return None;
        };
        if !self.cm.is_open(channel) {
            // The service is gone. The request was there a moment ago, so it can be refused.
            let _ = self.cm.machine.reject(self.now(), id, RejReason::INVALID_SERVICE_ID, &[]);
            return None;
        }
        let way = self.cm.machine.route(id)?;
        let (beyond, private_data) = Beyond::untagged(TagSender::Asks, private_data);
        let half = Half::Asked(Box::new(PeerRequest { terms: remote, beyond }));
        self.cm.attempts.insert(id, CmConnection { channel, half });
        let (place, station) = ((way.port(), way.place.1.into()), way.mac);
        Some(CmEvent::Request { id, service, place, terms: remote, source, station, private_data })
    }

    /// The channel that an event goes to. Questions for datagram services have the default one.
    fn channel_of_event(&self, event: &cm::ConnectionEvent) -> CmChannel {
        match *event {
            cm::ConnectionEvent::Request { service, .. } => self.cm.channel_of_service(service),
            cm::ConnectionEvent::Reply { id, .. }
            | cm::ConnectionEvent::Established { id }
            | cm::ConnectionEvent::Rejected { id, .. }
            | cm::ConnectionEvent::Unreachable { id }
            | cm::ConnectionEvent::Disconnected { id, .. }
            | cm::ConnectionEvent::TimewaitExit { id } => self.cm.channel_of(id),
            cm::ConnectionEvent::SidrResolved { .. } | cm::ConnectionEvent::SidrFailed { .. } => CmChannel::default(),
        }
    }

    /// The peer's terms are known: the queue pair is connected.
    fn on_reply(&mut self, id: ConnId, terms: Terms, private_data: cm::PrivateData) -> Option<CmEvent> {
        let way = self.cm.machine.route(id)?;
        let attempt = self.cm.attempts.get_mut(&id)?;
        let Half::Asking(asking) = std::mem::replace(&mut attempt.half, Half::Gone) else { return None };
        let OwnRequest { params, qp } = *asking;
        let wanted = Beyond::wanted(&params);
        let (beyond, private_data) = match wanted {
            Beyond::NOTHING => (wanted, private_data),
            _ => Beyond::untagged(TagSender::Agrees, private_data),
        };
        match self.join(qp, way, terms, beyond.with(wanted), &params) {
            Ok(qp) => {
                self.cm.attempts.get_mut(&id)?.half = Half::Connected(qp);
                Some(CmEvent::Replied { id, qp, private_data })
            }
            Err(error) => {
                let now = self.now();
                // It is in the state that a refusal needs: a reply has just come.
                let _ = self.cm.machine.refuse(now, id, RejReason::UNSUPPORTED, &[]);
                Some(CmEvent::Failed { id, error })
            }
        }
    }

    pub(super) fn fail_attempt(&mut self, id: ConnId) {
        if let Some(qp) = self.cm.qp_of(id) {
            self.fail_qp(qp, WcStatus::WrFlushErr);
        }
    }

    pub(super) fn drop_attempt(&mut self, id: ConnId) {
        if let Some(CmConnection { half: Half::Asking(asking), .. }) = self.cm.attempts.remove(&id) {
            self.discard_qp(asking.qp);
        }
    }

    /// A lost message is sent again by the connection manager: a full link is no matter.
    fn send_mad(&mut self, way: CmRoute, datagram: &[u8]) {
        if self.is_forked() {
            self.stats.tx_management_lost += 1;
            return;
        }
        let Some(ip) = Ip::between(way.ours, way.theirs) else { return };
        let link = &mut self.ports[way.port()].link;
        let params = QpParams { traffic_class: way.traffic_class, priority: way.priority, ..QpParams::default() };
        let source_port = source_port(link, 1, 1);
        let mut flow = Flow::new(link.mac(), way.mac, params.tag(way.vlan), params.header(ip), source_port);
        let bth = Bth { pkey: way.pkey, ..Bth::new(Opcode::UdSendOnly, Qpn::new(mad::QPN), self.cm.next_psn()) };
        let deth = Deth { qkey: mad::QKEY, source_qpn: Qpn::new(mad::QPN), reserved: 0 };
        let headers = Headers { bth, ext: Extensions { deth: Some(deth), ..Extensions::default() } };
        let len = flow.frame_len(&headers, datagram.len());
        let sent = link.transmit(len, |frame| {
            flow.emit(frame, &headers, datagram.len(), |bytes| bytes.copy_from_slice(datagram));
        });
        match sent {
            Ok(()) => link.flush(),
            Err(Full) => self.stats.tx_management_lost += 1,
        }
    }
}
