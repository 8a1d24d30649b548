//! The connection manager on the management queue pair: what applications ask of it.

mod management;
mod serve;
mod terms;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use roci_protocol::cm::{self, CmError, CmStats, ConnId, Offer, SidrId};
use roci_protocol::wire::MacAddr;
use roci_protocol::wire::cm::{PortSpace, RejReason, ServiceId};
use roci_protocol::{Mtu, Qpn};

use super::Engine;
use crate::cm::{Beyond, CmCallError, CmConnection, CmEvent, CmRoute, Grant, Half, OwnRequest, TagSender};
use crate::handles::{CmChannel, QueuePair};
use crate::link::Link;
use crate::neighbour::{Interface, Resolution};
use crate::qp::{QpParams, UnconnectedQp};
pub(super) use management::Management;
use terms::{as_asked, basic_offer, offer};

impl<L: Link> Engine<L> {
    /// Takes connections for `service`. On a port that several engines share, the one with the lowest queue is asked for
    /// all; the others hear nothing. Over a UDP socket the port must be RoCEv2's: see [`link::udp`](crate::link::udp).
    ///
    /// # Errors
    /// The service is listened on already, or too many are.
    pub fn cm_listen(&mut self, service: ServiceId) -> Result<(), cm::ListenError> {
        self.cm_listen_on(CmChannel::default(), service)
    }

    /// The same. Events of these connections go to `channel`.
    ///
    /// # Errors
    /// As for [`Engine::cm_listen`].
    pub fn cm_listen_on(&mut self, channel: CmChannel, service: ServiceId) -> Result<(), cm::ListenError> {
        self.cm.listen(channel, service)
    }

    /// Takes no more connections for `service`; `false` where it took none.
    pub fn cm_unlisten(&mut self, service: ServiceId) -> bool {
        self.cm.unlisten(service)
    }

    /// Makes a channel, whose events [`Engine::poll_cm_on`] returns: so several users of one engine have one each.
    pub fn cm_create_channel(&mut self) -> CmChannel {
        self.cm.create_channel()
    }

    /// Destroys a channel. Its services, its connections and the attempts to make some end with it: each peer is notified, and no event
    /// reports it here. Queue pairs that an event has named are the caller's to destroy.
    pub fn cm_destroy_channel(&mut self, channel: CmChannel) {
        let (connections, unnamed) = self.cm.close_channel(channel);
        for id in connections {
            // Where it has ended meanwhile there is nothing to end.
            let _ = self.cm_disconnect(id, &[]);
        }
        for qp in unnamed {
            self.destroy_qp(qp);
        }
    }

    /// Asks `peer` for a connection of `qp`. Its port names the service (`RDMA_PS_TCP`), as for `rdma_resolve_addr`, and is no
    /// UDP port. The application there gets at most 56 bytes of `private_data` (48 where the parameters want the dialect of this
    /// stack's own or no ICRC, which is asked for in front of them).
    ///
    /// [`Engine::poll_cm`] has the answer: [`CmEvent::Replied`], [`CmEvent::Rejected`] or [`CmEvent::Unreachable`]. The last one
    /// takes 55 seconds, as with Linux; who is less patient calls [`Engine::cm_disconnect`], and who is more so
    /// [`Engine::cm_be_patient`].
    ///
    /// # Errors
    /// The queue pair comes back with the reason. [`CmCallError::Resolving`] means that the peer's station is not known yet: poll,
    /// and call again.
    pub fn cm_connect(
        &mut self,
        mut qp: UnconnectedQp,
        peer: SocketAddr,
        params: &QpParams,
        private_data: &[u8],
    ) -> Result<ConnId, (CmCallError, UnconnectedQp)> {
        let way = match self.way_to(&qp, peer.ip(), params) {
            Ok(way) => way,
            Err(error) => return Err((error, qp)),
        };
        self.fit_path(&mut qp, peer.ip());
        let offer = match offer(&qp, params) {
            Ok(offer) => offer,
            Err(error) => return Err((error, qp)),
        };
        let service = ServiceId::of_port(PortSpace::Tcp, peer.port());
        let private_data = Beyond::wanted(params).tagged(TagSender::Asks, private_data);
        let request =
            cm::ConnectRequest { service, source_port: self.cm.ephemeral_port(), offer, private_data: &private_data };
        let now = self.now();
        match self.cm.machine.connect(now, way, request) {
            Ok(id) => {
                let (channel, params) = (qp.channel, params.clone());
                let half = Half::Asking(Box::new(OwnRequest { params, qp }));
                self.cm.attempts.insert(id, CmConnection { channel, half });
                self.serve_cm();
                Ok(id)
            }
            Err(error) => Err((error.into(), qp)),
        }
    }

    /// Waits at least so long for the answer to what has just been sent for `id`: a request, or its acceptance. A peer answers where
    /// its application makes progress, which may compute for longer than 55 seconds.
    pub fn cm_be_patient(&mut self, id: ConnId, at_least: Duration) {
        self.cm.machine.be_patient(id, u64::try_from(at_least.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Connects `qp` to the peer that asked for `id`. It must have been made at the request's `place`
    /// ([`Engine::create_qp_at`]). Post its receives, then call [`Engine::cm_accept`].
    ///
    /// # Errors
    /// The queue pair is gone, and the peer waits still: call [`Engine::cm_reject`].
    pub fn cm_prepare(&mut self, id: ConnId, qp: UnconnectedQp, params: &QpParams) -> Result<QueuePair, CmCallError> {
        let (Some(attempt), Some(way)) = (self.cm.attempts.get(&id), self.cm.machine.route(id)) else {
            self.discard_qp(qp);
            return Err(CmError::UnknownConnection.into());
        };
        let channel = attempt.channel;
        let Half::Asked(asked) = &attempt.half else {
            self.discard_qp(qp);
            return Err(CmCallError::NotPrepared);
        };
        let (terms, beyond) = (asked.terms, asked.beyond.with(Beyond::wanted(params)));
        if (qp.port, qp.ip, qp.vlan) != (way.port(), way.ours, way.vlan) {
            self.discard_qp(qp);
            return Err(CmCallError::OtherAddress);
        }
        let qp = self.join(qp, way, terms, beyond, &as_asked(params, terms))?;
        let grant = Grant { qp, offer: basic_offer(params, Some(terms)), beyond };
        self.cm.attempts.insert(id, CmConnection { channel, half: Half::Prepared(Box::new(grant)) });
        Ok(qp)
    }

    /// Grants the connection, with at most 196 bytes for the peer's application (188 where both ends agree on the dialect
    /// of this stack's own or on no ICRC). [`CmEvent::Established`] says that the peer has confirmed it.
    ///
    /// # Errors
    /// The connection is over, or was not prepared; or there is too much private data.
    pub fn cm_accept(&mut self, id: ConnId, private_data: &[u8]) -> Result<(), CmCallError> {
        let now = self.now();
        let Some(CmConnection { half, .. }) = self.cm.attempts.get_mut(&id) else {
            return Err(CmCallError::NotPrepared);
        };
        let Half::Prepared(grant) = half else { return Err(CmCallError::NotPrepared) };
        let Grant { qp, offer, beyond } = **grant;
        let slot = self.qps.get(qp.0).ok_or(CmCallError::NotPrepared)?;
        let config = slot.rc.config();
        let offer = Offer {
            qpn: qp.0,
            starting_psn: config.rq_psn,
            responder_resources: config.max_dest_rd_atomic as u8,
            initiator_depth: config.max_rd_atomic as u8,
            mtu: config.mtu,
            srq: slot.shared.is_some(),
            ..offer
        };
        let private_data = beyond.tagged(TagSender::Agrees, private_data);
        self.cm.machine.accept(now, id, offer, &private_data)?;
        *half = Half::Connected(qp);
        self.serve_cm();
        Ok(())
    }

    /// Refuses the connection that a peer asked for, with at most 148 bytes for its application.
    ///
    /// # Errors
    /// The connection is over, or open; or there is too much private data.
    pub fn cm_reject(&mut self, id: ConnId, reason: RejReason, private_data: &[u8]) -> Result<(), CmCallError> {
        let now = self.now();
        self.cm.machine.reject(now, id, reason, private_data)?;
        self.fail_attempt(id);
        self.drop_attempt(id);
        self.serve_cm();
        Ok(())
    }

    /// Opens the connection that the peer has granted: the receives of its queue pair are posted. From here on it may send.
    ///
    /// # Errors
    /// No peer has granted it, or it is over.
    pub fn cm_confirm(&mut self, id: ConnId) -> Result<(), CmCallError> {
        let now = self.now();
        self.cm.machine.confirm(now, id)?;
        self.serve_cm();
        Ok(())
    }

    /// Ends a connection, or the attempt to make one. Its queue pair fails at once; [`CmEvent::Disconnected`] reports
    /// when the peer of an open connection knows. A process that is killed ends none: see [`CmEvent::Disconnected`].
    ///
    /// # Errors
    /// There is no such connection, or no more: the peer was faster.
    pub fn cm_disconnect(&mut self, id: ConnId, private_data: &[u8]) -> Result<(), CmCallError> {
        let now = self.now();
        match self.cm.machine.state(id) {
            cm::CmState::ReqSent | cm::CmState::MraReqRcvd => self.cm.machine.abandon(now, id)?,
            // The peer has asked, and was not answered.
            cm::CmState::ReqRcvd => return self.cm_reject(id, RejReason::CONSUMER_DEFINED, private_data),
            cm::CmState::RepRcvd => self.cm.machine.refuse(now, id, RejReason::CONSUMER_DEFINED, private_data)?,
            _ => self.cm.machine.disconnect(now, id, private_data)?,
        }
        self.fail_attempt(id);
        self.serve_cm();
        Ok(())
    }

    /// Ends every connection, and every attempt to make one: each peer is notified (DREQ, or REJ), instead of finding
    /// out by a timeout. Poll until [`Engine::cm_disconnecting`] says 0 to know that all have. Dropping the engine does
    /// this too, but does not wait.
    pub fn cm_disconnect_all(&mut self) {
        for id in self.cm.attempts.keys().copied().collect::<Vec<_>>() {
            // Where it has ended meanwhile there is nothing to end.
            let _ = self.cm_disconnect(id, &[]);
        }
    }

    /// Connections that this side has ended, and whose peer has not confirmed that yet.
    pub fn cm_disconnecting(&self) -> usize {
        self.cm.attempts.keys().filter(|&&id| self.cm.machine.state(id) == cm::CmState::DreqSent).count()
    }

    /// Answers for a datagram service.
    pub fn cm_offer_service(&mut self, service: ServiceId, qpn: Qpn, qkey: u32) -> Result<(), cm::ListenError> {
        self.cm.machine.sidr_listen(service, qpn, qkey)
    }

    /// Answers no more for a datagram service; `false` where it did not.
    pub fn cm_withdraw_service(&mut self, service: ServiceId) -> bool {
        self.cm.machine.sidr_unlisten(service)
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
        let (ours, vlan, pkey) = (interface.ip, interface.vlan, self.ports[port].pkey);
        let way = CmRoute {
            place: (port as u16, address as u16),
            ours,
            theirs: peer.ip(),
            vlan,
            mac,
            pkey,
            traffic_class: 0,
            priority: 0,
            mtu: Mtu::Mtu4096,
        };
        let service = ServiceId::of_port(PortSpace::Udp, peer.port());
        let (now, source) = (self.now(), self.cm.ephemeral_port());
        let id = self.cm.machine.sidr_resolve(now, way, service, source, private_data)?;
        self.serve_cm();
        Ok(id)
    }

    /// The next thing that happened to a connection. [`Engine::poll`] makes it happen.
    pub fn poll_cm(&mut self) -> Option<CmEvent> {
        self.poll_cm_on(CmChannel::default())
    }

    /// The next event of a channel. Channels share one queue of bounded length: a channel that is never polled fills it, and then no
    /// channel has new connections.
    pub fn poll_cm_on(&mut self, channel: CmChannel) -> Option<CmEvent> {
        let event = self.cm.next_event(channel);
        if event.is_some() {
            // There is room for another.
            self.serve_cm();
        }
        event
    }

    /// The connection manager's counters.
    pub fn cm_stats(&self) -> &CmStats {
        self.cm.machine.stats()
    }

    fn way_to(&mut self, qp: &UnconnectedQp, theirs: IpAddr, params: &QpParams) -> Result<CmRoute, CmCallError> {
        let is_its = |interface: &Interface| interface.ip == qp.ip && interface.vlan == qp.vlan;
        let address = self.ports[qp.port].interfaces.iter().position(is_its).ok_or(CmCallError::OtherAddress)?;
        let mac = match qp.station {
            Some(station) if !self.is_forked() => station,
            _ => self.station(qp.port, address, theirs)?,
        };
        let &QpParams { traffic_class, priority, .. } = params;
        let &UnconnectedQp { port, ip: ours, vlan, .. } = qp;
        let (place, pkey, mtu) = ((port as u16, address as u16), self.ports[port].pkey, qp.mtu);
        Ok(CmRoute { place, ours, theirs, vlan, mac, pkey, traffic_class, priority, mtu })
    }

    fn station(&mut self, port: usize, address: usize, ip: IpAddr) -> Result<MacAddr, CmCallError> {
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
}
