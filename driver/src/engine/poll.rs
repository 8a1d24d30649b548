//! The poll loop: receive, act, answer, keep time.

use roci_protocol::rc::{Held, WcStatus};
use roci_protocol::wire::{Frame, FrameLayers, Ip, Malformed, Packet, WordPacket, icrc, mad};
use roci_protocol::{Nanos, Psn, Qpn};

use super::Engine;
use super::deferred_acks::due_since;
use super::identifications::IcrcCheck;
use super::port::Port;
use super::sink::{NoSink, Sink};
use crate::handles::{QueuePair, SharedReceiveQueue};
use crate::link::{Batch, Full, Link, LinkState};
use crate::neighbour::NeighbourVerdict;
use crate::qp::ConnectedQp;

/// IP's ECN field, and its value "congestion experienced" (RFC 3168).
pub(super) const ECN: u8 = 3;
/// An acknowledgement that waits for company is sent once it speaks for this many packets.
pub(super) const ACK_COALESCE: u32 = 16;

/// A received packet that is valid, and the queue pair that it is for.
pub(super) struct RxPacket<'a> {
    qp: QueuePair,
    shared: Option<SharedReceiveQueue>,
    /// It is the first of its connection.
    is_first: bool,
    /// Somebody on the way was about to drop it.
    is_marked: bool,
    check: IcrcCheck,
    /// BTH to ICRC.
    transport: &'a [u8],
}

impl<'a> RxPacket<'a> {
    /// A packet of a connection whose frames have looked like this one's before.
    pub(super) fn recognized(slot: &ConnectedQp, transport: &'a [u8], check: IcrcCheck) -> Self {
        Self { qp: slot.qp, shared: slot.shared, is_first: false, is_marked: false, check, transport }
    }
}

impl<L: Link> Engine<L> {
    /// Does what is due on every port, and returns how many frames came in. Never blocks.
    ///
    /// An acknowledgement alone is not sent by the poll that received its packets but by the next idle one, so
    /// that an application's answer goes first.
    ///
    /// In a forked child nothing is done: see [`Engine::is_forked`].
    #[inline]
    pub fn poll(&mut self) -> usize {
        self.poll_into(&mut NoSink)
    }

    /// The same, and offers to `sink` each message of one packet before it fills a receive, and the memory of each SEND and
    /// WRITE that ended well. Nothing overtakes: messages are offered only where no receive waits in the completion queue, memory only
    /// where nothing does, and neither where an event was asked for or [`Engine::offer_to_sinks`] says otherwise. Receives that all queue
    /// pairs share are filled as ever.
    #[inline]
    pub fn poll_into(&mut self, sink: &mut impl Sink) -> usize {
        if self.is_forked() {
            return 0;
        }
        let mut frames = 0;
        self.ring_for_poll();
        self.schedule.port_turns.begin();
        let is_one_of_several = self.ports.len() > 1;
        for port in 0..self.ports.len() {
            let &Port { is_dear, last_frames, .. } = &self.ports[port];
            if !(is_one_of_several && is_dear && self.schedule.port_turns.skips(port, last_frames)) {
                frames += self.poll_port(port, sink);
            }
        }
        let may_wait = self.schedule.polled(frames);
        let acknowledge_from = if may_wait { ACK_COALESCE } else { 1 };
        if self.schedule.deferred.are_alone(frames) {
            self.hasten_deferred(Nanos::MAX);
        }
        if self.schedule.is_due(may_wait) {
            self.look_after_listed(acknowledge_from);
        }
        if !self.datagrams.is_empty() {
            self.look_after_datagrams();
        }
        for port in &mut self.ports {
            port.link.flush();
        }
        frames
    }

    #[inline]
    fn poll_port(&mut self, index: usize, sink: &mut impl Sink) -> usize {
        let port = &mut self.ports[index];
        let now = port.link.now();
        let state = port.link.maintain(now);
        let failed = port.link.take_failed();
        if state != port.state {
            self.link_changed(index, state);
        }
        if let Some(failed) = failed {
            self.on_failed_frames(index, now, failed);
        }
        let mut batch = Batch::new();
        self.ports[index].link.receive(&mut batch);
        let count = batch.len();
        if count > 0 {
            self.on_batch(index, now, &mut batch, sink);
        }
        if self.schedule.has_ticked(now) {
            self.on_tick(now);
        }
        count
    }

    /// Most polls find nothing: they are kept free of what this needs, down to the registers to be saved.
    #[inline(never)]
    fn on_batch(&mut self, port: usize, now: Nanos, batch: &mut Batch<L::Frame>, sink: &mut impl Sink) {
        self.schedule.port_turns.note(&mut self.ports[port].last_frames);
        for frame in batch.drain(..) {
            self.on_frame(port, now, frame, sink);
        }
    }

    /// On a link with one peer, a link that goes down is that peer's end.
    #[cold]
    fn link_changed(&mut self, index: usize, state: LinkState) {
        self.ports[index].state = state;
        if state == LinkState::Up || !self.ports[index].is_point_to_point {
            return;
        }
        let gone: Vec<_> = self.qps.iter().filter(|slot| slot.port == index).map(|slot| slot.qp).collect();
        for qp in gone {
            self.fail_qp(qp, WcStatus::RetryExcErr);
        }
    }

    #[inline]
    fn on_frame(&mut self, port: usize, now: Nanos, bytes: L::Frame, sink: &mut impl Sink) {
        self.stats.rx_frames += 1;
        let bytes = bytes.as_ref();
        match self.on_whole(port, now, bytes, sink) {
            Ok(()) => {}
            Err(Some(recognized)) => self.on_packet(port, now, bytes, &recognized),
            Err(None) => self.on_unrecognized(port, now, bytes, sink),
        }
    }

    /// A frame that looks like none before: once it is found good, it does.
    #[inline(never)]
    fn on_unrecognized(&mut self, port: usize, now: Nanos, bytes: &[u8], sink: &mut impl Sink) {
        let Some(arrival) = self.examine(port, now, bytes) else { return };
        // Of other kinds a second look says nothing, and takes the ICRC of a long payload.
        let may_be_whole = !arrival.is_marked && !arrival.is_first && WordPacket::may_be(arrival.transport);
        if may_be_whole && self.on_whole(port, now, bytes, sink).is_ok() {
            return;
        }
        self.on_packet(port, now, bytes, &arrival);
    }

    /// Any packet of a connection's: it is read in full.
    fn on_packet(&mut self, port: usize, now: Nanos, bytes: &[u8], arrival: &RxPacket<'_>) {
        let &RxPacket { qp, shared, is_first, is_marked, check, transport } = arrival;
        // Read once, and not moved: what is written by the byte and moved by the word stalls.
        let parsed = Packet::parse(transport);
        let packet = match &parsed {
            Ok(packet) => packet,
            &Err(reason) => return self.on_other_frame(port, now, bytes, reason),
        };
        self.stats.rx_delivered += 1;
        self.stats.note_check(check);
        let before = self.counters_to_compare(qp);
        let outcome = self.with_packet(qp, transport, |rc, scene| {
            let is_of_use = rc.on_packet(now, packet, scene);
            if is_of_use && is_marked {
                rc.on_congestion_mark(now, packet.headers.bth.psn);
            }
            (is_of_use, rc.take_held(), rc.take_round_trip())
        });
        let Some((is_of_use, ready, round_trip)) = outcome else { return };
        self.stats.note_round_trip(round_trip);
        self.log_retransmissions(qp, before.as_ref());
        if !is_of_use {
            self.on_useless_packet(now, qp, bytes);
        }
        if ready.is_some() {
            self.deliver_held(now, qp, ready);
        }
        self.list(qp);
        if let Some(slot) = self.qps.get_mut(qp.0).filter(|slot| slot.rc.owes_acknowledgement_later()) {
            self.schedule.deferred.defer(slot, now);
        }
        if is_first {
            self.on_first_seen(qp);
        }
        if let Some(srq) = shared {
            self.look_at_stock(srq);
        }
    }

    /// Any frame: it is read in full, and what is no packet of a connection's is dealt with.
    #[inline]
    fn examine<'a>(&mut self, port: usize, now: Nanos, bytes: &'a [u8]) -> Option<RxPacket<'a>> {
        let parsed = Frame::parse(bytes).and_then(|frame| Ok((self.check_icrc(port, &frame)?, frame)));
        let (check, frame) = match parsed {
            Ok(parsed) => parsed,
            Err(reason) => {
                self.on_other_frame(port, now, bytes, reason);
                return None;
            }
        };
        let qpn = frame.packet.headers.bth.dest_qpn;
        let Some(slot) = self.qps.get_mut(qpn) else {
            self.stats.note_check(check);
            self.on_unconnected(port, now, qpn, &frame);
            return None;
        };
        if !is_of_connection(slot, port, &frame) {
            self.stats.rx_wrong_address += 1;
            return None;
        }
        let is_marked = frame.ip.traffic_class() & ECN == ECN;
        let is_first = !slot.was_seen;
        if !is_marked && !is_first {
            slot.inflow.accept(bytes, &frame);
        }
        let transport = frame.transport();
        Some(RxPacket { qp: slot.qp, shared: slot.shared, is_first, is_marked, check, transport })
    }

    /// A gap is closed: the packets that waited behind it are given to the queue pair in order.
    #[cold]
    fn deliver_held(&mut self, now: Nanos, qp: QueuePair, mut ready: Option<Held>) {
        while let Some(held) = ready {
            let Some(bytes) = self.held.take(qp.0, held) else { return };
            // It was good when it came.
            let Ok(packet) = Packet::parse(&bytes) else { return };
            let next = self.with_qp(qp, |rc, scene| {
                rc.on_held_packet(now, &packet, scene);
                rc.take_held()
            });
            ready = next.flatten();
        }
    }

    /// The first packet of a connection: its peer knows that it is open.
    #[cold]
    fn on_first_seen(&mut self, qp: QueuePair) {
        if let Some(slot) = self.qps.get_mut(qp.0) {
            slot.was_seen = true;
            self.on_first_packet(qp);
        }
    }

    /// A frame that is no good RoCEv2 packet: a neighbour may want something.
    #[cold]
    fn on_other_frame(&mut self, port: usize, now: Nanos, bytes: &[u8], reason: Malformed) {
        if reason == Malformed::UnknownOpcode {
            self.on_unknown_opcode(port, bytes);
        }
        let Port { link, neighbours, .. } = &mut self.ports[port];
        let is_of_neighbour = matches!(reason, Malformed::NotIp | Malformed::NotUdp)
            && !matches!(neighbours.on_frame(now, bytes, |reply| send_copy(link, reply)), NeighbourVerdict::Ignored(_));
        if is_of_neighbour {
            self.stats.rx_neighbour += 1;
        } else {
            self.stats.malformed[reason as usize] += 1;
        }
    }

    /// Refuses a packet of a connection with an unknown opcode, and notifies the peer.
    fn on_unknown_opcode(&mut self, port: usize, bytes: &[u8]) {
        const RC: u8 = 0;
        let Ok(layers) = FrameLayers::parse(bytes) else { return };
        let Some(&[opcode, _, _, _, _, q0, q1, q2, _, p0, p1, p2]) = layers.transport.first_chunk() else { return };
        let number = |bytes: [u8; 3]| u32::from_be_bytes([0, bytes[0], bytes[1], bytes[2]]);
        let Some(slot) = self.qps.get(Qpn::new(number([q0, q1, q2]))) else { return };
        let is_of_connection = is_between(slot, port, &layers.ip, layers.ethernet.vlan_id());
        if opcode >> 5 == RC && is_of_connection && icrc::verify(layers.datagram).is_ok() {
            let qp = slot.qp;
            self.with_qp(qp, |rc, scene| rc.on_unknown_opcode(Psn::new(number([p0, p1, p2])), scene));
            self.list(qp);
        }
    }

    /// A packet for a queue pair without a connection.
    fn on_unconnected(&mut self, port: usize, now: Nanos, qpn: Qpn, frame: &Frame<'_>) {
        if qpn.get() == mad::QPN {
            return self.on_management(port, now, frame);
        }
        let Some(datagrams) = self.datagrams.get(&qpn) else {
            self.stats.rx_unknown_qpn += 1;
            return;
        };
        let is_for_us = datagrams.port == port
            && frame.ip.destination() == datagrams.ip
            && frame.ethernet.vlan_id() == datagrams.vlan;
        if is_for_us {
            self.stats.rx_delivered += 1;
            self.on_datagram(qpn, frame);
        } else {
            self.stats.rx_wrong_address += 1;
        }
    }

    /// Notes that a queue pair must be looked after at the end of this poll.
    #[inline]
    pub(super) fn list(&mut self, qp: QueuePair) {
        self.schedule.urge(true);
        if let Some(slot) = self.qps.get_mut(qp.0) {
            self.schedule.list(slot);
        }
    }

    /// A tick of the wheel has passed: whatever waits for time is looked at, and nothing of it on every poll.
    #[inline(never)]
    fn on_tick(&mut self, now: Nanos) {
        self.schedule.note_tick(now);
        for Port { link, neighbours, .. } in &mut self.ports {
            if neighbours.deadline().is_some_and(|at| at <= now) {
                neighbours.on_timer(now, |question| send_copy(link, question));
            }
        }
        if self.cm_is_due(now) {
            self.on_cm_timer(now);
        }
        self.memory.registrations.tend();
        if self.held.wants_sweep(now) {
            self.give_back_held(now);
        }
        self.on_timers(now);
        if self.schedule.deferred.are_due(now) {
            self.hasten_deferred(due_since(now));
        }
    }

    /// Sends every acknowledgement that is owed, though it could wait: for who will not poll for a while.
    pub fn acknowledge_now(&mut self) {
        if self.is_forked() || self.schedule.deferred.is_empty() {
            return;
        }
        self.hasten_deferred(Nanos::MAX);
        self.look_after_listed(1);
        self.ports.iter_mut().for_each(|port| port.link.flush());
    }

    /// Acknowledgements that could wait are due, where they have been owed since `due_since` or before. Of the others an earlier
    /// one was asked for and sent: they wait on.
    #[inline(never)]
    fn hasten_deferred(&mut self, due_since: Nanos) {
        let mut waiting = self.schedule.deferred.take();
        let mut oldest = Nanos::MAX;
        waiting.retain(|qp| {
            let Some(slot) = self.qps.get_mut(qp.0) else { return false };
            if let Some(since) = slot.rc.acknowledgement_waits_since().filter(|since| *since > due_since) {
                oldest = oldest.min(since);
                return true;
            }
            slot.attendance.undefer();
            slot.rc.hasten_acknowledgement();
            if slot.rc.owes_acknowledgement(1) {
                self.schedule.urge(true);
                self.schedule.list(slot);
            }
            false
        });
        self.schedule.deferred.keep(waiting, oldest);
    }

    /// Gives the places of packets that wait in vain to others.
    #[cold]
    fn give_back_held(&mut self, now: Nanos) {
        let qps = &self.qps;
        for qpn in self.held.sweep(now, |qpn| qps.get(qpn).map_or(0, |slot| slot.rc.config().ack_timeout_ns)) {
            self.held.forget(qpn);
            self.with_qp(QueuePair(qpn), |rc, _| rc.give_back_held());
            self.list(QueuePair(qpn));
        }
    }

    fn on_timers(&mut self, now: Nanos) {
        let Some(mut due) = self.schedule.take_due(now) else { return };
        for (qpn, at) in due.drain(..) {
            self.on_timer(now, QueuePair(qpn), at);
        }
        self.schedule.keep(due);
    }

    /// The time that a queue pair asked for has come; meanwhile it may want another, or be gone.
    fn on_timer(&mut self, now: Nanos, qp: QueuePair, at: Nanos) {
        if !self.qps.get_mut(qp.0).is_some_and(|slot| slot.wakes(at)) {
            return;
        }
        let counters = self.counters_to_compare(qp);
        let timeouts = self.with_qp(qp, |rc, scene| {
            let is_due = rc.deadline().is_some_and(|deadline| deadline <= now);
            let before = rc.stats().local_ack_timeout_err;
            if is_due {
                rc.on_timeout(now, scene);
            }
            is_due.then(|| rc.stats().local_ack_timeout_err - before)
        });
        self.log_retransmissions(qp, counters.as_ref());
        if let Some(Some(timeouts)) = timeouts {
            self.list(qp);
            if timeouts > 0 {
                self.follow_peer(now, qp);
            }
        }
    }
}

/// Whether the frame came the connection's way: a number alone is no proof.
#[inline]
pub(super) fn is_of_connection(slot: &ConnectedQp, port: usize, frame: &Frame<'_>) -> bool {
    is_between(slot, port, &frame.ip, frame.ethernet.vlan_id())
}

#[inline]
fn is_between(slot: &ConnectedQp, port: usize, ip: &Ip, vlan: Option<u16>) -> bool {
    let ConnectedQp { flow, .. } = slot;
    slot.port == port
        && ip.destination() == flow.source_ip()
        && ip.source() == flow.destination_ip()
        && vlan == flow.vlan_id()
}

/// Sends an answer that may be lost where the link is full: the station that asked asks again.
fn send_copy<L: Link>(link: &mut L, frame: &[u8]) {
    let sent = link.transmit(frame.len(), |bytes| bytes.copy_from_slice(frame));
    if sent != Err(Full) {
        link.flush();
    }
}
