//! The connection manager on the management queue pair, and the queue pairs that it connects.

use std::net::SocketAddr;

use roci_protocol::cm::{self, CmError, CmStats, ConnId, Offer, SidrId, Terms};
use roci_protocol::rc::{self, Dialect, WcStatus};
use roci_protocol::wire::cm::{PortSpace, RejReason, ServiceId};
use roci_protocol::wire::{Bth, Deth, Extensions, Flow, Frame, Headers, Ip, Opcode, mad};
use roci_protocol::{Mtu, Nanos, Psn, Qpn};

use super::Engine;
use super::connection::{largest_mtu, source_port};
use crate::cm::{Attempt, Beyond, CmCallError, CmEvent, Half, Tag, Way};
use crate::link::{Full, Link};
use crate::neighbour::Resolution;
use crate::qp::{QpParams, QueuePair, UnconnectedQp};

/// Events that wait to be polled.
const MAX_EVENTS: usize = 256;
/// Endless RNR retries, as three bits say it.
const RNR_FOR_EVER: u8 = 7;
/// Retries fit three bits.
const MAX_RETRIES: u32 = 7;

impl<L: Link> Engine<L> {
    /// Takes connections for `service`. On a port that several engines share, the one with the lowest queue is asked for
    /// all; the others hear nothing.
    pub fn cm_listen(&mut self, service: ServiceId) -> Result<(), cm::ListenError> {
        self.cm.listen(service)
    }

    /// Takes no more connections for `service`; `false` where it took none.
    pub fn cm_unlisten(&mut self, service: ServiceId) -> bool {
        self.cm.unlisten(service)
    }

    /// Asks `peer` for a connection of `qp`, with at most 56 bytes for its application (48 where the parameters want the
    /// dialect of this stack's own or no ICRC, which is asked for in front of them). The peer's station must be known:
    /// where it is not, the queue pair comes back, and [`CmCallError::Resolving`] asks to poll and to call again.
    pub fn cm_connect(
        &mut self,
        qp: UnconnectedQp,
        peer: SocketAddr,
        params: &QpParams,
        private_data: &[u8],
    ) -> Result<ConnId, (CmCallError, UnconnectedQp)> {
        let way = match self.way_to(&qp, peer.ip()) {
            Ok(way) => way,
            Err(error) => return Err((error, qp)),
        };
        let offer = match self.offer(&qp, params) {
            Ok(offer) => offer,
            Err(error) => return Err((error, qp)),
        };
        let service = ServiceId::of_port(PortSpace::Tcp, peer.port());
        let private_data = Beyond::wanted(params).tagged(Tag::Asks, private_data);
        let request = cm::Request { service, source_port: self.ephemeral_port(), offer, private_data: &private_data };
        let now = self.now();
        match self.cm.connect(now, way, request) {
            Ok(id) => {
                let (params, beyond) = (params.clone(), Beyond::NOTHING);
                let attempt = Attempt { params, terms: None, beyond, half: Half::Unconnected(qp) };
                self.attempts.insert(id, attempt);
                self.serve_cm();
                Ok(id)
            }
            Err(error) => Err((error.into(), qp)),
        }
    }

    /// Connects `qp` to the peer that asked for `id`. Post its receives, then call [`Engine::cm_accept`].
    pub fn cm_prepare(&mut self, id: ConnId, qp: UnconnectedQp, params: &QpParams) -> Result<QueuePair, CmCallError> {
        let (Some(attempt), Some(way)) = (self.attempts.get(&id), self.cm.route(id)) else {
            self.discard_qp(qp);
            return Err(CmError::UnknownConnection.into());
        };
        let (terms, beyond) = (attempt.terms, attempt.beyond.with(Beyond::wanted(params)));
        let is_absent = matches!(attempt.half, Half::Absent);
        let Some(terms) = terms.filter(|_| is_absent) else {
            self.discard_qp(qp);
            return Err(CmCallError::NotPrepared);
        };
        if (qp.port, qp.ip, qp.vlan) != (way.port, way.ours, way.vlan) {
            self.discard_qp(qp);
            return Err(CmCallError::OtherAddress);
        }
        let connected = self.join(qp, way, terms, beyond, params)?;
        let (params, half) = (params.clone(), Half::Connected(connected));
        self.attempts.insert(id, Attempt { params, terms: Some(terms), beyond, half });
        Ok(connected)
    }

    /// Grants the connection, with at most 196 bytes for the peer's application (188 where both ends agree on the dialect
    /// of this stack's own or on no ICRC).
    pub fn cm_accept(&mut self, id: ConnId, private_data: &[u8]) -> Result<(), CmCallError> {
        let Some(Attempt { params, terms, beyond, half: Half::Connected(qp) }) = self.attempts.get(&id) else {
            return Err(CmCallError::NotPrepared);
        };
        let slot = self.qps.get(qp.0).ok_or(CmCallError::NotPrepared)?;
        let config = slot.rc.config();
        let offer = Offer {
            qpn: qp.0,
            starting_psn: config.rq_psn,
            responder_resources: config.max_dest_rd_atomic as u8,
            initiator_depth: config.max_rd_atomic as u8,
            mtu: config.mtu,
            srq: slot.shared.is_some(),
            ..basic_offer(params, *terms)
        };
        let now = self.now();
        let private_data = beyond.tagged(Tag::Agrees, private_data);
        self.cm.accept(now, id, offer, &private_data)?;
        self.serve_cm();
        Ok(())
    }

    /// Refuses the connection that a peer asked for, with at most 148 bytes for its application.
    pub fn cm_reject(&mut self, id: ConnId, reason: RejReason, private_data: &[u8]) -> Result<(), CmCallError> {
        let now = self.now();
        self.cm.reject(now, id, reason, private_data)?;
        self.fail_attempt(id);
        self.drop_attempt(id);
        self.serve_cm();
        Ok(())
    }

    /// Opens the connection that the peer has granted: the receives of its queue pair are posted.
    pub fn cm_confirm(&mut self, id: ConnId) -> Result<(), CmCallError> {
        let now = self.now();
        self.cm.confirm(now, id)?;
        self.serve_cm();
        Ok(())
    }

    /// Ends a connection, or the attempt to make one. Its queue pair fails at once; [`CmEvent::Disconnected`] tells when the
    /// peer of an open connection knows.
    pub fn cm_disconnect(&mut self, id: ConnId, private_data: &[u8]) -> Result<(), CmCallError> {
        let now = self.now();
        match self.cm.state(id) {
            cm::State::ReqSent | cm::State::MraReqRcvd => self.cm.abandon(now, id)?,
            cm::State::RepRcvd => self.cm.refuse(now, id, RejReason::CONSUMER_DEFINED, private_data)?,
            _ => self.cm.disconnect(now, id, private_data)?,
        }
        self.fail_attempt(id);
        self.serve_cm();
        Ok(())
    }

    /// Answers for a datagram service.
    pub fn cm_offer_service(&mut self, service: ServiceId, qpn: Qpn, qkey: u32) -> Result<(), cm::ListenError> {
        self.cm.sidr_listen(service, qpn, qkey)
    }

    /// Answers no more for a datagram service; `false` where it did not.
    pub fn cm_withdraw_service(&mut self, service: ServiceId) -> bool {
        self.cm.sidr_unlisten(service)
    }

    /// Asks `peer`, from the address of a port with index `address`, for a datagram service.
    pub fn cm_find_service(
        &mut self,
        (port, address): (usize, usize),
        peer: SocketAddr,
        private_data: &[u8],
    ) -> Result<SidrId, CmCallError> {
        let interface = self.ports[port].interfaces[address];
        let mac = self.station(port, address, peer.ip())?;
        let way = Way { port, address, ours: interface.ip, theirs: peer.ip(), vlan: interface.vlan, mac };
        let service = ServiceId::of_port(PortSpace::Udp, peer.port());
        let (now, source) = (self.now(), self.ephemeral_port());
        let id = self.cm.sidr_resolve(now, way, service, source, private_data)?;
        self.serve_cm();
        Ok(id)
    }

    /// The next thing that happened to a connection.
    pub fn poll_cm(&mut self) -> Option<CmEvent> {
        let event = self.cm_events.pop_front();
        if event.is_some() {
            // There is room for another.
            self.serve_cm();
        }
        event
    }

    /// The connection manager's counters.
    pub fn cm_stats(&self) -> &CmStats {
        self.cm.stats()
    }

    /// A datagram for the management queue pair, on an address of this host.
    pub(super) fn on_management(&mut self, port: usize, now: Nanos, frame: &Frame<'_>) {
        let Headers { bth, ext } = &frame.packet.headers;
        let is_management = bth.opcode == Opcode::UdSendOnly
            && ext.deth.is_some_and(|deth| deth.qkey == mad::QKEY)
            && bth.is_default_partition();
        if !is_management {
            self.stats.rx_bad_management += 1;
            return;
        }
        let (ours, vlan) = (frame.ip.destination(), frame.ethernet.vlan_id());
        let is_ours = |interface: &crate::neighbour::Interface| interface.ip == ours && interface.vlan == vlan;
        let Some(address) = self.ports[port].interfaces.iter().position(is_ours) else {
            self.stats.rx_wrong_address += 1;
            return;
        };
        self.stats.rx_delivered += 1;
        let (theirs, mac) = (frame.ip.source(), frame.ethernet.source);
        self.cm.on_mad(now, Way { port, address, ours, theirs, vlan, mac }, frame.packet.payload);
        self.serve_cm();
    }

    pub(super) fn cm_is_due(&self, now: Nanos) -> bool {
        self.cm.deadline().is_some_and(|at| at <= now)
    }

    pub(super) fn on_cm_timer(&mut self, now: Nanos) {
        self.cm.on_timer(now);
        self.serve_cm();
    }

    /// A packet came in on a passive connection's queue pair: the peer has heard our answer.
    pub(super) fn on_first_packet(&mut self, qp: QueuePair) {
        let now = self.now();
        if let Some(id) = self.connection_of(qp) {
            self.cm.on_communication_established(now, id);
            self.serve_cm();
        }
    }

    /// The application destroys a connection's queue pair: the connection ends with it.
    pub(super) fn leave_connection(&mut self, qp: QueuePair) {
        let Some(id) = self.connection_of(qp) else { return };
        // It may have ended before.
        let _ = self.cm_disconnect(id, &[]);
        if let Some(attempt) = self.attempts.get_mut(&id) {
            attempt.half = Half::Absent;
        }
    }

    /// Sends what the connection manager has to say, and does what it asks for.
    fn serve_cm(&mut self) {
        while let Some((way, datagram)) = self.cm.poll_transmit() {
            self.send_mad(way, &datagram);
        }
        // Where nobody polls, the manager's own limit stops new connections.
        while self.cm_events.len() < MAX_EVENTS
            && let Some(event) = self.cm.poll_event()
        {
            self.on_cm_event(&event);
        }
        // What the events set off.
        while let Some((way, datagram)) = self.cm.poll_transmit() {
            self.send_mad(way, &datagram);
        }
    }

    fn on_cm_event(&mut self, event: &cm::Event) {
        let told = match *event {
            cm::Event::Request { id, service, remote, source, private_data, .. } => {
                let Some(way) = self.cm.route(id) else { return };
                let (beyond, private_data) = Beyond::untagged(Tag::Asks, private_data);
                let (params, half) = (QpParams::default(), Half::Absent);
                let attempt = Attempt { params, terms: Some(remote), beyond, half };
                self.attempts.insert(id, attempt);
                let place = (way.port, way.address);
                Some(CmEvent::Request { id, service, place, terms: remote, source, private_data })
            }
            cm::Event::Reply { id, remote, private_data } => self.on_reply(id, remote, private_data),
            cm::Event::Established { id } => self.qp_of(id).map(|qp| CmEvent::Established { id, qp }),
            cm::Event::Rejected { id, reason, private_data } => {
                self.fail_attempt(id);
                self.drop_attempt(id);
                Some(CmEvent::Rejected { id, reason, private_data })
            }
            cm::Event::Unreachable { id } => {
                self.fail_attempt(id);
                self.drop_attempt(id);
                Some(CmEvent::Unreachable { id })
            }
            cm::Event::Disconnected { id, ending } => {
                self.fail_attempt(id);
                Some(CmEvent::Disconnected { id, ending })
            }
            cm::Event::TimewaitExit { id } => {
                self.drop_attempt(id);
                Some(CmEvent::TimewaitExit { id })
            }
            cm::Event::SidrResolved { id, qpn, qkey } => Some(CmEvent::ServiceResolved { id, qpn, qkey }),
            cm::Event::SidrFailed { id, failure } => Some(CmEvent::ServiceFailed { id, failure }),
        };
        self.cm_events.extend(told);
    }

    /// The peer's terms are known: the queue pair is connected.
    fn on_reply(&mut self, id: ConnId, terms: Terms, private_data: cm::PrivateData) -> Option<CmEvent> {
        let way = self.cm.route(id)?;
        let attempt = self.attempts.remove(&id)?;
        let Half::Unconnected(qp) = attempt.half else { return None };
        let wanted = Beyond::wanted(&attempt.params);
        let (beyond, private_data) = match wanted {
            Beyond::NOTHING => (wanted, private_data),
            _ => Beyond::untagged(Tag::Agrees, private_data),
        };
        let beyond = beyond.with(wanted);
        let joined = self.join(qp, way, terms, beyond, &attempt.params);
        let half = match joined {
            Ok(qp) => Half::Connected(qp),
            Err(error) => {
                let now = self.now();
                // It is in the state that a refusal needs: a reply has just come.
                let _ = self.cm.refuse(now, id, RejReason::UNSUPPORTED, &[]);
                self.attempts.insert(id, Attempt { half: Half::Absent, ..attempt });
                return Some(CmEvent::Failed { id, error });
            }
        };
        self.attempts.insert(id, Attempt { half, terms: Some(terms), beyond, params: attempt.params });
        joined.ok().map(|qp| CmEvent::Replied { id, qp, private_data })
    }

    /// Connects a queue pair on terms that came in band.
    fn join(
        &mut self,
        qp: UnconnectedQp,
        way: Way,
        terms: Terms,
        beyond: Beyond,
        params: &QpParams,
    ) -> Result<QueuePair, CmCallError> {
        // A REP has no word for the MTU: the one in the REQ is what both use.
        let largest = largest_mtu(self.ports[qp.port].link.max_frame());
        let Some(mtu) = terms.mtu.filter(|&mtu| largest.is_ok_and(|largest| mtu <= largest)) else {
            self.discard_qp(qp);
            return Err(CmCallError::PathMtu);
        };
        let rnr_retry_limit = (terms.rnr_retry_count < RNR_FOR_EVER).then_some(terms.rnr_retry_count.into());
        let config = rc::Config {
            dest_qpn: terms.qpn,
            mtu,
            sq_psn: terms.starting_psn,
            rq_psn: qp.psn,
            max_rd_atomic: params.max_rd_atomic.min(terms.responder_resources.into()),
            max_dest_rd_atomic: params.max_rd_atomic.min(terms.initiator_depth.into()),
            dialect: beyond.dialect,
            rnr_retry_limit,
            retry_limit: retry_limit(beyond.dialect, params, terms),
            end_to_end_credits: params.end_to_end_credits && terms.end_to_end_credits,
            ..params.base(qp.shared.is_some())
        };
        let params = QpParams { icrc: beyond.icrc, ..params.clone() };
        Ok(self.establish(qp, way.mac, way.theirs, config, &params)?)
    }

    fn offer(&self, qp: &UnconnectedQp, params: &QpParams) -> Result<Offer, CmCallError> {
        Ok(Offer {
            qpn: qp.qp.0,
            starting_psn: qp.psn,
            mtu: self.mtu_of(qp, params)?,
            srq: qp.shared.is_some(),
            ..basic_offer(params, None)
        })
    }

    fn mtu_of(&self, qp: &UnconnectedQp, params: &QpParams) -> Result<Mtu, CmCallError> {
        let largest = largest_mtu(self.ports[qp.port].link.max_frame())?;
        Ok(largest.min(params.mtu).min(Mtu::Mtu4096))
    }

    fn way_to(&mut self, qp: &UnconnectedQp, theirs: std::net::IpAddr) -> Result<Way, CmCallError> {
        let is_its = |interface: &crate::neighbour::Interface| interface.ip == qp.ip && interface.vlan == qp.vlan;
        let address = self.ports[qp.port].interfaces.iter().position(is_its).ok_or(CmCallError::OtherAddress)?;
        let mac = self.station(qp.port, address, theirs)?;
        Ok(Way { port: qp.port, address, ours: qp.ip, theirs, vlan: qp.vlan, mac })
    }

    fn station(
        &mut self,
        port: usize,
        address: usize,
        ip: std::net::IpAddr,
    ) -> Result<roci_protocol::wire::MacAddr, CmCallError> {
        if self.is_forked() {
            return Err(CmCallError::Forked);
        }
        if !self.ports[port].link.hears_management() {
            return Err(CmCallError::OtherEngine);
        }
        match self.resolve(port, address, ip) {
            Resolution::Known(mac) => Ok(mac),
            Resolution::Pending => Err(CmCallError::Resolving),
            Resolution::Unreachable(why) => Err(CmCallError::Unreachable(why)),
        }
    }

    /// A port to connect from: it only has to differ from one connection to the next.
    fn ephemeral_port(&mut self) -> u16 {
        self.next_cm_port = self.next_cm_port.wrapping_add(1) | 0xc000;
        self.next_cm_port
    }

    fn connection_of(&self, qp: QueuePair) -> Option<ConnId> {
        let is_its = |attempt: &Attempt| matches!(attempt.half, Half::Connected(its) if its == qp);
        self.attempts.iter().find(|(_, attempt)| is_its(attempt)).map(|(&id, _)| id)
    }

    fn qp_of(&self, id: ConnId) -> Option<QueuePair> {
        match self.attempts.get(&id)?.half {
            Half::Connected(qp) => Some(qp),
            _ => None,
        }
    }

    fn fail_attempt(&mut self, id: ConnId) {
        if let Some(qp) = self.qp_of(id) {
            self.fail_qp(qp, WcStatus::WrFlushErr);
        }
    }

    fn drop_attempt(&mut self, id: ConnId) {
        if let Some(Attempt { half: Half::Unconnected(qp), .. }) = self.attempts.remove(&id) {
            self.discard_qp(qp);
        }
    }

    /// A lost message is sent again by the connection manager: a full link is no matter.
    fn send_mad(&mut self, way: Way, datagram: &[u8]) {
        if self.is_forked() {
            self.stats.tx_management_lost += 1;
            return;
        }
        let Some(ip) = Ip::between(way.ours, way.theirs) else { return };
        let link = &mut self.ports[way.port].link;
        let mut flow = Flow::new(link.mac(), way.mac, way.vlan, ip, source_port(1, 1));
        let bth = Bth::new(Opcode::UdSendOnly, Qpn::new(mad::QPN), self.next_mad_psn);
        self.next_mad_psn = self.next_mad_psn.plus(1);
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

/// Waits before the peer is given up. A REQ has three bits for that: between two ends of this stack's own dialect the
/// most that they can say means as many as each end wants.
fn retry_limit(dialect: Dialect, params: &QpParams, terms: Terms) -> u32 {
    match u32::from(terms.retry_count) {
        MAX_RETRIES if dialect == Dialect::Rocinante => params.retry_limit.max(MAX_RETRIES),
        asked => asked,
    }
}

/// What an offer says of the queue pair's behaviour.
fn basic_offer(params: &QpParams, terms: Option<Terms>) -> Offer {
    let depth = params.max_rd_atomic.min(u8::MAX.into()) as u8;
    Offer {
        qpn: Qpn::default(),
        starting_psn: Psn::default(),
        responder_resources: depth,
        initiator_depth: depth,
        retry_count: params.retry_limit.min(MAX_RETRIES) as u8,
        rnr_retry_count: params.rnr_retry_limit.map_or(RNR_FOR_EVER, |limit| limit.min(6) as u8),
        srq: false,
        end_to_end_credits: params.end_to_end_credits,
        mtu: params.mtu.min(Mtu::Mtu4096),
        ack_timeout: rc::ack_timeout_code(params.ack_timeout_ns),
        flow_label: terms.map_or(0, |terms| terms.flow_label),
        traffic_class: params.traffic_class,
        hop_limit: 64,
    }
}
