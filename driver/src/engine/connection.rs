//! Connected queue pairs: made, connected, posted to, drained, ended.

use roci_protocol::Mtu;
use std::net::IpAddr;

use roci_protocol::rc::{self, RecvRequest, State, WcStatus};
use roci_protocol::wire::{Flow, Inflow, Ip, MacAddr};

use super::post_error::check_kind;
use super::turns::turn_of;
use super::{Engine, PostError};
use crate::Refused;
use crate::address::Address;
use crate::attendance::Attendance;
use crate::handles::{CmChannel, CompletionQueue, QueuePair, SharedReceiveQueue};
use crate::link::Link;
use crate::mem::{Buffer, PdId};
use crate::qp::ConnectError;
use crate::qp::{ConnectedQp, QpParams, Reported, UnconnectedQp};
use crate::wr::SendWr;

impl<L: Link> Engine<L> {
    /// A queue pair without a peer, on the first address of a port. Give [`Engine::address_of`] to the peer, then
    /// [`Engine::connect`].
    pub fn create_qp(&mut self, port: usize, pd: PdId, cq: CompletionQueue) -> Result<UnconnectedQp, ConnectError> {
        self.create_qp_at(port, 0, pd, cq)
    }

    /// A queue pair without a peer, on the address of a port with this index.
    pub fn create_qp_at(
        &mut self,
        port: usize,
        address: usize,
        pd: PdId,
        cq: CompletionQueue,
    ) -> Result<UnconnectedQp, ConnectError> {
        let interface = &self.ports[port].interfaces[address];
        let (ip, vlan) = (interface.ip, interface.vlan);
        let mtu = largest_mtu(self.ports[port].link.max_frame())?;
        let (qp, psn) = self.qps.reserve(self.ports[port].link.share()).ok_or(ConnectError::NoQueuePair)?;
        Ok(UnconnectedQp {
            qp,
            port,
            ip,
            vlan,
            pd,
            cq,
            psn,
            mtu,
            shared: None,
            station: None,
            channel: CmChannel::default(),
        })
    }

    /// Has the queue pair's packets be as short as the way to this peer needs them. Call it before [`Engine::address_of`], where the
    /// peer is known; a connection by RDMA-CM does so by itself.
    pub fn fit_path(&self, qp: &mut UnconnectedQp, peer: IpAddr) {
        let carried = largest_mtu(self.ports[qp.port].link.max_frame_to(peer));
        qp.mtu = qp.mtu.min(carried.unwrap_or(Mtu::Mtu256));
    }

    /// Lets the queue pair take its receives from `srq`, which must complete to the queue pair's completion queue.
    pub fn share_receives(&mut self, qp: &mut UnconnectedQp, srq: SharedReceiveQueue) -> Result<(), ConnectError> {
        if self.stocks[srq.0].cq != qp.cq {
            return Err(ConnectError::OtherCompletionQueue);
        }
        qp.shared = Some(srq);
        Ok(())
    }

    /// What the peer must know.
    pub fn address_of(&self, qp: &UnconnectedQp, params: &QpParams) -> Address {
        let link = &self.ports[qp.port].link;
        let mtu = qp.mtu.min(params.mtu);
        let max_rd_atomic = params.max_rd_atomic.min(u8::MAX.into()) as u8;
        let (mac, &QpParams { dialect, icrc, .. }) = (link.mac(), params);
        Address { mac, ip: qp.ip, qpn: qp.qp.0, psn: qp.psn, mtu, max_rd_atomic, dialect, icrc }
    }

    /// Connects to `peer`, whose address came out of band. Post receives before the peer may send.
    pub fn connect(&mut self, qp: UnconnectedQp, peer: &Address, params: &QpParams) -> Result<QueuePair, ConnectError> {
        let ours = self.address_of(&qp, params);
        let config = params.config(&ours, peer, qp.shared.is_some());
        let params = QpParams { icrc: ours.icrc || peer.icrc, ..params.clone() };
        self.establish(qp, peer.mac, peer.ip, config, &params)
    }

    /// Connects to a peer that everything is known of; of `params`, both have agreed on the ICRC.
    pub(super) fn establish(
        &mut self,
        qp: UnconnectedQp,
        mac: MacAddr,
        ip: IpAddr,
        config: rc::Config,
        params: &QpParams,
    ) -> Result<QueuePair, ConnectError> {
        if let Err(error) = params.check() {
            self.discard_qp(qp);
            return Err(error);
        }
        let Some(header) = Ip::between(qp.ip, ip) else {
            let ours = qp.ip;
            self.discard_qp(qp);
            return Err(ConnectError::IpVersion(ours, ip));
        };
        let link = &self.ports[qp.port].link;
        let hides_identification = link.hides_identification();
        let port = source_port(link, qp.qpn().get(), config.dest_qpn.get());
        let turn = turn_of(link, config.mtu);
        let flow = Flow::new(self.ports[qp.port].link.mac(), mac, params.tag(qp.vlan), params.header(header), port);
        let flow = if params.icrc { flow } else { flow.unsealed() };
        let mut rc = rc::RcQueuePair::new(rc::Config { pkey: self.ports[qp.port].pkey, ..config });
        for state in [State::Rtr, State::Rts] {
            rc.modify(state).expect("the way from Init to Rts is in the table");
        }
        let UnconnectedQp { qp, port, pd, cq, shared, .. } = qp;
        self.qps.occupy(ConnectedQp {
            rc,
            inflow: Inflow::new(flow.is_sealed(), hides_identification),
            flow,
            qp,
            port,
            pd,
            cq,
            shared,
            reported: Reported::default(),
            was_seen: false,
            attendance: Attendance::new(turn),
            cnp_class: params.cnp_traffic_class,
        });
        Ok(qp)
    }

    /// Gives up a queue pair that was never connected.
    pub fn discard_qp(&mut self, qp: UnconnectedQp) {
        self.qps.vacate(qp.qp);
    }

    /// Flushes a queue pair and forgets it. Its completions stay in the completion queue.
    pub fn destroy_qp(&mut self, qp: QueuePair) {
        // A datagram queue pair's number is not for this call.
        let Some(slot) = self.qps.get_mut(qp.0) else { return };
        // No failure event for a queue pair that the application destroys.
        slot.reported.fail();
        self.leave_connection(qp);
        self.fail_qp(qp, WcStatus::WrFlushErr);
        self.memory.keys.shut_windows_of(qp.0);
        if let Some(slot) = self.qps.vacate(qp) {
            self.stats.ended.add(slot.rc.stats());
            self.events.forget(qp);
        }
    }

    /// Puts a queue pair into the error state: the oldest send ends with `status`, the rest is flushed.
    pub fn fail_qp(&mut self, qp: QueuePair, status: WcStatus) {
        self.held.forget(qp.0);
        self.with_qp(qp, |rc, scene| {
            // Requests that it has executed are acknowledged now, because a repetition would find no queue pair that
            // answers. Where the link is full, nothing can be sent.
            rc.hasten_acknowledgement();
            let _ = rc.pump_acknowledgement(scene.link.now(), scene);
            scene.link.flush();
            rc.fail(status, scene);
        });
    }

    /// Finishes the messages that have begun and starts no other. [`crate::Event::SendQueueDrained`] reports when
    /// nothing is outstanding. `false` where the queue pair is not ready to send.
    pub fn drain_qp(&mut self, qp: QueuePair) -> bool {
        let Some(slot) = self.qps.get_mut(qp.0) else { return false };
        slot.reported.drain_again();
        let is_draining = self.with_qp(qp, |rc, _| rc.modify(State::Sqd).is_ok());
        is_draining == Some(true)
    }

    /// Goes on sending after [`Engine::drain_qp`], which may have been the time to change how patient it is.
    pub fn resume_qp(&mut self, qp: QueuePair) -> bool {
        let is_ready = self.with_qp(qp, |rc, _| rc.state() == State::Sqd && rc.modify(State::Rts).is_ok());
        self.pump(qp);
        is_ready == Some(true)
    }

    /// Posts to the send queue and sends what the window allows: the device is notified of it when the call returns.
    #[inline]
    pub fn post_send(&mut self, qp: QueuePair, wr: SendWr) -> Result<(), Refused<SendWr, PostError>> {
        match self.send_at_once(qp, wr, L::now) {
            Ok(()) => {
                self.ring();
                Ok(())
            }
            Err(wr) => self.post_to_queue(qp, wr),
        }
    }

    /// Posts as [`Engine::post_send`] does, and leaves it to the engine when the device is notified of a short request: at once where
    /// it is the first since a poll, else with a batch of others, by the next poll, or by [`Engine::ring_doorbell`].
    #[inline]
    pub fn queue_send(&mut self, qp: QueuePair, wr: SendWr) -> Result<(), Refused<SendWr, PostError>> {
        let bytes = wr.0.buffer.len();
        match self.send_at_once(qp, wr, L::now) {
            Ok(()) => {
                self.ring_by_rule(bytes);
                Ok(())
            }
            Err(wr) => self.post_to_queue(qp, wr),
        }
    }

    /// The same for what cannot leave at once.
    #[inline(never)]
    fn post_to_queue(&mut self, qp: QueuePair, wr: SendWr) -> Result<(), Refused<SendWr, PostError>> {
        self.enqueue(qp, wr)?;
        self.pump(qp);
        Ok(())
    }

    /// Posts one after the other, as `ibv_post_send` does a list, and then sends what the window allows: the device is
    /// notified once and not for each request, which speeds up streams of short messages.
    ///
    /// The first that is refused comes back; those before it are posted, and those behind it still in `wrs`.
    #[inline]
    pub fn post_sends(
        &mut self,
        qp: QueuePair,
        wrs: &mut impl Iterator<Item = SendWr>,
    ) -> Result<(), Refused<SendWr, PostError>> {
        let now = self.qps.get(qp.0).map_or(0, |slot| self.ports[slot.port].link.now());
        let outcome = wrs.try_for_each(|wr| match self.send_at_once(qp, wr, |_| now) {
            Ok(()) => Ok(()),
            Err(wr) => self.enqueue(qp, wr),
        });
        self.pump(qp);
        outcome
    }

    #[inline]
    fn enqueue(&mut self, qp: QueuePair, wr: SendWr) -> Result<(), Refused<SendWr, PostError>> {
        let refuse = |why, given| Err(Refused { why, given });
        if self.is_forked() {
            return refuse(PostError::Forked, wr);
        }
        if wr.0.buffer.is_users()
            && let Err(kind) = check_kind(&wr)
        {
            return refuse(kind.into(), wr);
        }
        let Some(slot) = self.qps.get_mut(qp.0) else { return refuse(PostError::NoQueuePair, wr) };
        if !self.cqs[slot.cq.0].reserve() {
            return refuse(PostError::CompletionQueueFull, wr);
        }
        if let Err(rejected) = slot.rc.post_send(wr.0) {
            self.cqs[slot.cq.0].release();
            return refuse(rejected.reason.into(), SendWr(rejected.request));
        }
        Ok(())
    }

    /// Posts a receive; all of the buffer may be filled.
    #[inline]
    pub fn post_recv(&mut self, qp: QueuePair, wr_id: u64, buffer: Buffer) -> Result<(), Refused<Buffer, PostError>> {
        let refuse = |why, given| Err(Refused { why, given });
        if self.is_forked() {
            return refuse(PostError::Forked, buffer);
        }
        if let Err(kind) = buffer.check_filled() {
            return refuse(kind.into(), buffer);
        }
        let Some(slot) = self.qps.get_mut(qp.0) else { return refuse(PostError::NoQueuePair, buffer) };
        if !self.cqs[slot.cq.0].reserve() {
            return refuse(PostError::CompletionQueueFull, buffer);
        }
        let len = u32::try_from(buffer.len()).unwrap_or(u32::MAX);
        if let Err(rejected) = slot.rc.post_recv(RecvRequest { wr_id, buffer, len }) {
            self.cqs[slot.cq.0].release();
            return refuse(rejected.reason.into(), rejected.request.buffer);
        }
        if slot.rc.state() == State::Error {
            self.fail_qp(qp, WcStatus::WrFlushErr);
        }
        Ok(())
    }

    /// The state of a queue pair; `None` where it was destroyed.
    pub fn qp_state(&self, qp: QueuePair) -> Option<State> {
        self.qps.get(qp.0).map(|slot| slot.rc.state())
    }

    /// The dialect that a queue pair speaks with its peer; `None` where it was destroyed.
    pub fn dialect_of(&self, qp: QueuePair) -> Option<rc::Dialect> {
        self.qps.get(qp.0).map(|slot| slot.rc.config().dialect)
    }

    /// The path MTU of a queue pair; `None` where it was destroyed.
    pub fn path_mtu(&self, qp: QueuePair) -> Option<Mtu> {
        self.qps.get(qp.0).map(|slot| slot.rc.config().mtu)
    }

    /// Whether a queue pair's packets carry an ICRC; `None` where it was destroyed.
    pub fn has_icrc(&self, qp: QueuePair) -> Option<bool> {
        self.qps.get(qp.0).map(|slot| slot.flow.is_sealed())
    }

    /// Names the peer of a queue pair, for the log. A queue pair that was destroyed has no name.
    pub fn label_qp(&mut self, qp: QueuePair, label: &str) {
        self.qps.label(qp, label);
    }

    /// The counters of a queue pair; `None` where it was destroyed.
    pub fn qp_stats(&self, qp: QueuePair) -> Option<rc::Stats> {
        self.qps.get(qp.0).map(|slot| *slot.rc.stats())
    }

    /// Work requests of a queue pair's send queue that have not ended.
    pub fn sends_outstanding(&self, qp: QueuePair) -> usize {
        self.qps.get(qp.0).map_or(0, |slot| slot.rc.sends_outstanding())
    }
}

/// The largest path MTU whose full packets fit the link's frames.
pub(super) fn largest_mtu(max_frame: usize) -> Result<Mtu, ConnectError> {
    let fits = |mtu: &Mtu| mtu.bytes() + roci_protocol::wire::MAX_OVERHEAD <= max_frame;
    Mtu::ALL.into_iter().rev().find(fits).ok_or(ConnectError::LinkTooShort(max_frame))
}

/// The UDP source port: the link's where it has one, else entropy from both numbers, as Linux's `rdma_flow_label_to_udp_sport`
/// makes it.
pub(super) fn source_port(link: &impl Link, ours: u32, peers: u32) -> u16 {
    if let Some(port) = link.source_port() {
        return port;
    }
    let product = u64::from(ours) * u64::from(peers);
    let folded = product ^ product >> 20 ^ product >> 40;
    let label = (folded & 0xf_ffff) as u32;
    ((label & 0x3fff) ^ (label >> 14)) as u16 | 0xc000
}
