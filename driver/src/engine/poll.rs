//! The poll loop: receive, act, answer, keep time.

use roci_protocol::rc::{Held, WcStatus};
use roci_protocol::wire::inflow::glance;
use roci_protocol::wire::{Frame, Malformed, Packet, mad};
use roci_protocol::{Nanos, Qpn};

use super::Engine;
use super::env::Keep;
use super::port::Port;
use crate::link::{Batch, Full, Link, LinkState};
use crate::neighbour::Verdict;
use crate::qp::{QueuePair, Slot};
use crate::srq::SharedReceiveQueue;

/// IP's ECN field, and its value "congestion experienced" (RFC 3168).
const ECN: u8 = 3;
/// An acknowledgement that waits for company is sent once it speaks for this many packets.
const ACK_COALESCE: u32 = 16;
/// Polls that brought frames, of whomever, after which no acknowledgement waits any longer.
const ACK_PATIENCE: u32 = 8;

/// A good packet, and whose it is.
struct Arrival<'a> {
    qp: QueuePair,
    shared: Option<SharedReceiveQueue>,
    /// It is the first of its connection.
    is_first: bool,
    /// Somebody on the way was about to drop it.
    is_marked: bool,
    /// It has no ICRC, by agreement.
    is_unchecked: bool,
    /// BTH to ICRC.
    transport: &'a [u8],
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
        if self.is_forked() {
            return 0;
        }
        let mut frames = 0;
        for port in 0..self.ports.len() {
            frames += self.poll_port(port);
        }
        let busy_polls = self.busy_polls + 1;
        let may_wait = frames > 0 && busy_polls < ACK_PATIENCE;
        self.busy_polls = if may_wait { busy_polls } else { 0 };
        let acknowledge_from = if may_wait { ACK_COALESCE } else { 1 };
        if !self.listed.is_empty() {
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
    fn poll_port(&mut self, index: usize) -> usize {
        let port = &mut self.ports[index];
        let now = port.link.now();
        let state = port.link.maintain(now);
        if state != port.state {
            self.link_changed(index, state);
        }
        let mut batch = Batch::new();
        self.ports[index].link.receive(&mut batch);
        let count = batch.len();
        if count > 0 {
            self.on_batch(index, now, &mut batch);
        }
        if self.wheel.has_ticked(now) {
            self.on_tick(now);
        }
        count
    }

    /// Most polls find nothing: they are kept free of what this needs, down to the registers to be saved.
    #[inline(never)]
    fn on_batch(&mut self, port: usize, now: Nanos, batch: &mut Batch<L::Frame>) {
        for frame in batch.drain(..) {
            self.on_frame(port, now, frame);
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
    fn on_frame(&mut self, port: usize, now: Nanos, bytes: L::Frame) {
        self.stats.rx_frames += 1;
        let arrival = match self.recognize(port, bytes.as_ref()) {
            Some(arrival) => arrival,
            None => match self.examine(port, now, bytes.as_ref()) {
                Some(arrival) => arrival,
                None => return,
            },
        };
        let Arrival { qp, shared, is_first, is_marked, is_unchecked, transport } = arrival;
        // Read once, and not moved: what is written by the byte and moved by the word stalls.
        let parsed = Packet::parse(transport);
        let packet = match &parsed {
            Ok(packet) => packet,
            &Err(reason) => return self.on_other_frame(port, now, bytes.as_ref(), reason),
        };
        self.stats.rx_delivered += 1;
        self.stats.rx_unchecked += u64::from(is_unchecked);
        let keep = if self.held.is_full() { Keep::Impossible } else { Keep::Possible };
        let outcome = self.with_qp(qp, |rc, scene| {
            scene.keep = keep;
            if is_marked {
                rc.on_congestion_mark(now);
            }
            rc.on_packet(now, packet, scene);
            (scene.keep == Keep::Asked, rc.take_held())
        });
        let Some((is_kept, ready)) = outcome else { return };
        if is_kept {
            let name = Held::of(packet);
            self.held.keep(qp.0, name, bytes);
        }
        if ready.is_some() {
            self.deliver_held(now, qp, ready);
        }
        self.list(qp);
        if is_first {
            self.on_heard(qp);
        }
        if let Some(srq) = shared {
            self.look_at_stock(srq);
        }
    }

    /// A good packet of a connection whose frames have looked like this before.
    #[inline]
    fn recognize<'a>(&self, port: usize, bytes: &'a [u8]) -> Option<Arrival<'a>> {
        let slot = self.qps.get(glance(bytes)?).filter(|slot| slot.port == port)?;
        let transport = slot.inflow.recognize(bytes)?;
        let is_unchecked = !slot.flow.is_sealed();
        Some(Arrival { qp: slot.qp, shared: slot.shared, is_first: false, is_marked: false, is_unchecked, transport })
    }

    /// Any frame: it is read in full, and what is no packet of a connection's is dealt with.
    #[inline(never)]
    fn examine<'a>(&mut self, port: usize, now: Nanos, bytes: &'a [u8]) -> Option<Arrival<'a>> {
        let parsed = Frame::parse(bytes).and_then(|frame| Ok((self.goes_unchecked(port, &frame)?, frame)));
        let (is_unchecked, frame) = match parsed {
            Ok(parsed) => parsed,
            Err(reason) => {
                self.on_other_frame(port, now, bytes, reason);
                return None;
            }
        };
        let qpn = frame.packet.headers.bth.dest_qpn;
        let Some(slot) = self.qps.get_mut(qpn) else {
            self.on_unconnected(port, now, qpn, &frame);
            return None;
        };
        if !is_of_connection(slot, port, &frame) {
            self.stats.rx_wrong_address += 1;
            return None;
        }
        let is_marked = frame.ip.traffic_class() & ECN == ECN;
        let is_first = !slot.was_heard;
        if !is_marked && !is_first {
            slot.inflow.accept(bytes, &frame);
        }
        let transport = frame.transport();
        Some(Arrival { qp: slot.qp, shared: slot.shared, is_first, is_marked, is_unchecked, transport })
    }

    /// Checks the ICRC. It may only be missing, which this returns, where its connection, by number and both addresses, has
    /// agreed to that.
    fn goes_unchecked(&self, port: usize, frame: &Frame<'_>) -> Result<bool, Malformed> {
        if frame.omits_icrc() && self.goes_without_icrc(port, frame) {
            return Ok(true);
        }
        frame.verify_icrc().map(|()| false)
    }

    fn goes_without_icrc(&self, port: usize, frame: &Frame<'_>) -> bool {
        let slot = self.qps.get(frame.packet.headers.bth.dest_qpn);
        slot.is_some_and(|slot| !slot.flow.is_sealed() && is_of_connection(slot, port, frame))
    }

    /// A gap is closed: the packets that waited behind it are given to the queue pair in order.
    #[cold]
    fn deliver_held(&mut self, now: Nanos, qp: QueuePair, mut ready: Option<Held>) {
        while let Some(held) = ready {
            let Some(bytes) = self.held.take(qp.0, held) else { return };
            // It was good when it came.
            let Ok(frame) = Frame::parse(bytes.as_ref()) else { return };
            let next = self.with_qp(qp, |rc, scene| {
                rc.on_packet(now, &frame.packet, scene);
                rc.take_held()
            });
            ready = next.flatten();
        }
    }

    /// The first packet of a connection: its peer knows that it is open.
    #[cold]
    fn on_heard(&mut self, qp: QueuePair) {
        if let Some(slot) = self.qps.get_mut(qp.0) {
            slot.was_heard = true;
            self.on_first_packet(qp);
        }
    }

    /// A frame that is no good RoCEv2 packet: a neighbour may want something.
    #[cold]
    fn on_other_frame(&mut self, port: usize, now: Nanos, bytes: &[u8], reason: Malformed) {
        let Port { link, neighbours, .. } = &mut self.ports[port];
        let is_of_neighbour = matches!(reason, Malformed::NotIp | Malformed::NotUdp)
            && !matches!(neighbours.on_frame(now, bytes, |reply| send_copy(link, reply)), Verdict::Ignored(_));
        if is_of_neighbour {
            self.stats.rx_neighbour += 1;
        } else {
            self.stats.malformed[reason as usize] += 1;
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
        if let Some(slot) = self.qps.get_mut(qp.0)
            && !slot.is_listed
        {
            slot.is_listed = true;
            self.listed.push(qp);
        }
    }

    /// Sends what the listed queue pairs owe or hold back; those that are still not done stay listed.
    #[inline(never)]
    fn look_after_listed(&mut self, acknowledge_from: u32) {
        let mut at = 0;
        while at < self.listed.len() {
            let qp = self.listed[at];
            let is_done = self
                .with_qp(qp, |rc, scene| {
                    let mut is_busy = false;
                    if rc.owes_reply(acknowledge_from) {
                        is_busy |= rc.pump_replies(scene).is_err();
                    }
                    if rc.wants_pump() {
                        let now = scene.link.now();
                        is_busy |= rc.pump_requests(now, scene).is_err();
                    }
                    !is_busy && !rc.owes_reply(1)
                })
                .unwrap_or(true);
            if is_done {
                self.listed.swap_remove(at);
                if let Some(slot) = self.qps.get_mut(qp.0) {
                    slot.is_listed = false;
                }
            } else {
                at += 1;
            }
        }
    }

    /// A tick of the wheel has passed: whatever waits for time is looked at, and nothing of it on every poll.
    #[inline(never)]
    fn on_tick(&mut self, now: Nanos) {
        for Port { link, neighbours, .. } in &mut self.ports {
            if neighbours.deadline().is_some_and(|at| at <= now) {
                neighbours.on_timer(now, |question| send_copy(link, question));
            }
        }
        if self.cm_is_due(now) {
            self.on_cm_timer(now);
        }
        self.registrations.tend();
        self.on_timers(now);
    }

    fn on_timers(&mut self, now: Nanos) {
        let mut due = std::mem::take(&mut self.due);
        self.wheel.expire(now, &mut due);
        for (qpn, at) in due.drain(..) {
            self.on_timer(now, QueuePair(qpn), at);
        }
        self.due = due;
    }

    /// The time that a queue pair asked for has come; meanwhile it may want another, or be gone.
    fn on_timer(&mut self, now: Nanos, qp: QueuePair, at: Nanos) {
        if !self.qps.get_mut(qp.0).is_some_and(|slot| slot.wakes(at)) {
            return;
        }
        let is_due = self.with_qp(qp, |rc, scene| {
            let is_due = rc.deadline().is_some_and(|deadline| deadline <= now);
            if is_due {
                rc.on_timeout(now, scene);
            }
            is_due
        });
        if is_due == Some(true) {
            self.list(qp);
        }
    }

    /// Sends what a queue pair's window allows, at once.
    #[inline]
    pub(super) fn pump(&mut self, qp: QueuePair) {
        if self.is_forked() {
            return;
        }
        let outcome = self.with_qp(qp, |rc, scene| {
            let now = scene.link.now();
            let outcome = rc.pump_requests(now, scene);
            scene.link.flush();
            outcome
        });
        if outcome.is_some_and(|outcome| outcome.is_err()) {
            self.list(qp);
        }
    }
}

/// Whether the frame came the connection's way: a number alone is no proof.
#[inline]
fn is_of_connection(slot: &Slot, port: usize, frame: &Frame<'_>) -> bool {
    let Slot { flow, .. } = slot;
    slot.port == port
        && frame.ip.destination() == flow.source_ip()
        && frame.ip.source() == flow.destination_ip()
        && frame.ethernet.vlan_id() == flow.vlan_id()
}

/// Sends a frame that nobody misses where the link is full: whoever asked asks again.
fn send_copy<L: Link>(link: &mut L, frame: &[u8]) {
    let sent = link.transmit(frame.len(), |bytes| bytes.copy_from_slice(frame));
    if sent != Err(Full) {
        link.flush();
    }
}
