//! The two ends of a flow: queue pairs whose memory is imagined.

use std::collections::{BTreeMap, VecDeque};

use super::link::time_of;
use crate::rc::{
    AtomicOperation, Config, Denied, Env, Held, Payload, Quantum, RcCompletion, RcQueuePair, SendOp, SendRequest,
    State, Stats, TxError,
};
use crate::wire::{Headers, Packet, icrc};
use crate::{Access, Nanos, Rkey};

/// Work requests that an end keeps posted.
const POSTED: usize = 16;
/// Packets that wait in a sender's port.
const PORT_PACKETS: usize = 4;
/// Packets that an end keeps when they come early: as many as a queue pair alone may have on an engine.
const HELD_LIMIT: usize = 1024;
/// Preamble, Ethernet, IPv4, UDP, ICRC, frame check sequence and the gap between frames.
const ENVELOPE: usize = 8 + 14 + 20 + 8 + icrc::LEN + 4 + 12;
const ZEROS: [u8; 4096] = [0; 4096];
/// The longest body of an answer: a map of what has arrived, and how long the answer waited.
const BODY: usize = 256 + 4;

/// A packet on its way.
#[derive(Clone, Copy)]
pub(super) struct SimPacket {
    headers: Headers,
    len: usize,
    /// What an answer carries; of requests the length alone matters.
    body: Option<[u8; BODY]>,
}

impl SimPacket {
    fn new<B>(headers: &Headers, payload: &Payload<'_, B>) -> Self {
        let (len, body) = match *payload {
            Payload::None => (0, None),
            Payload::Local { len, .. } | Payload::Remote { len, .. } => (len, None),
            Payload::Bytes(bytes) => {
                let mut body = [0; BODY];
                body[..bytes.len()].copy_from_slice(bytes);
                (bytes.len(), Some(body))
            }
        };
        Self { headers: *headers, len, body }
    }

    /// What it occupies of a link.
    pub(super) fn wire_bytes(&self) -> u64 {
        (ENVELOPE + self.headers.wire_len() + self.len) as u64
    }

    fn packet(&self) -> Packet<'_> {
        let bytes = self.body.as_ref().map_or(&ZEROS[..], |body| body);
        Packet { headers: self.headers, payload: &bytes[..self.len] }
    }
}

/// One end of a flow: a queue pair behind a port.
pub(super) struct FlowEnd {
    qp: RcQueuePair<()>,
    port: SimPort,
    work: Option<Work>,
    /// The one wake-up that counts: earlier plans may have been overtaken.
    wake_at: Option<Nanos>,
}

/// What an end posts.
pub(super) struct Work {
    pub(super) op: SendOp,
    /// The length of a message.
    pub(super) message: u32,
    /// Bytes not yet posted.
    pub(super) left: u64,
}

impl Work {
    fn next(&mut self) -> Option<SendRequest<()>> {
        let len = u64::from(self.message).min(self.left) as u32;
        self.left -= u64::from(len);
        let Self { op, .. } = *self;
        (len > 0).then_some(SendRequest {
            wr_id: 0,
            op,
            buffer: (),
            len,
            signaled: true,
            solicited: false,
            fence: false,
            ack_req: true,
        })
    }
}

/// A host's port, with its own rate.
struct SimPort {
    /// Bits per second; `None` for a port that is never the limit.
    rate: Option<u64>,
    free_at: Nanos,
    /// When each packet in the port will have left.
    leaving: VecDeque<Nanos>,
    sent: Vec<(Nanos, SimPacket)>,
    now: Nanos,
    /// Bytes that were written here or read to here.
    arrived: u64,
    held: BTreeMap<Held, SimPacket>,
    /// The packet that the queue pair is looking at.
    current: Option<SimPacket>,
}

impl SimPort {
    fn has_room(&mut self) -> bool {
        while self.leaving.front().is_some_and(|&at| at <= self.now) {
            self.leaving.pop_front();
        }
        self.leaving.len() < PORT_PACKETS
    }
}

impl FlowEnd {
    pub(super) fn new(config: Config, rate: Option<u64>, work: Option<Work>) -> Self {
        let mut qp = RcQueuePair::new(config);
        for state in [State::Rtr, State::Rts] {
            qp.modify(state).expect("the way up is in the table");
        }
        let port = SimPort {
            rate,
            free_at: 0,
            leaving: VecDeque::with_capacity(PORT_PACKETS),
            sent: Vec::new(),
            now: 0,
            arrived: 0,
            held: BTreeMap::new(),
            current: None,
        };
        Self { qp, port, work, wake_at: Some(0) }
    }

    /// Whether a wake-up is the one that was planned last.
    pub(super) fn is_due(&self, now: Nanos) -> bool {
        self.wake_at.is_some_and(|at| at <= now)
    }

    /// Takes a packet, and what it makes ready of those that were kept.
    pub(super) fn receive(&mut self, now: Nanos, parcel: &SimPacket, is_marked: bool) {
        self.port.now = now;
        self.port.current = Some(*parcel);
        let packet = parcel.packet();
        let is_of_use = self.qp.on_packet(now, &packet, &mut self.port);
        if is_marked && is_of_use {
            self.qp.on_congestion_mark(now, packet.headers.bth.psn);
        }
        while let Some(held) = self.qp.take_held() {
            let parcel = self.port.held.remove(&held).expect("what the machine keeps is kept here");
            self.qp.on_held_packet(now, &parcel.packet(), &mut self.port);
        }
    }

    /// Posts, minds the timers and sends; returns what leaves the port, and when.
    pub(super) fn work(&mut self, now: Nanos) -> impl Iterator<Item = (Nanos, SimPacket)> + '_ {
        self.port.now = now;
        while self.qp.sends_outstanding() < POSTED
            && let Some(request) = self.work.as_mut().and_then(Work::next)
        {
            self.qp.post_send(request).expect("fewer than the depth are outstanding");
        }
        if self.qp.deadline().is_some_and(|at| at <= now) {
            self.qp.on_timeout(now, &mut self.port);
        }
        let mut quantum = Quantum::UNLIMITED;
        let is_busy = self.qp.pump_replies(now, &mut quantum, &mut self.port).is_err()
            || self.qp.pump_requests(now, &mut quantum, &mut self.port).is_err();
        let room_at = self.port.leaving.front().copied().filter(|_| is_busy);
        self.wake_at = self.qp.deadline().into_iter().chain(room_at).min();
        self.port.sent.drain(..)
    }

    /// When it wants to be woken, if nothing comes before.
    pub(super) fn next_wake(&self, now: Nanos) -> Option<Nanos> {
        self.wake_at.map(|at| at.max(now))
    }

    /// Whether everything that it was to do is done.
    pub(super) fn is_done(&self) -> bool {
        self.work.as_ref().is_none_or(|work| work.left == 0) && self.qp.sends_outstanding() == 0
    }

    /// Bytes that were written here or read to here.
    pub(super) fn arrived(&self) -> u64 {
        self.port.arrived
    }

    pub(super) fn state(&self) -> State {
        self.qp.state()
    }

    pub(super) fn stats(&self) -> &Stats {
        self.qp.stats()
    }
}

impl Env for SimPort {
    type Buffer = ();

    fn transmit(&mut self, headers: &Headers, payload: Payload<'_, ()>) -> Result<(), TxError> {
        if !self.has_room() {
            return Err(TxError::Busy);
        }
        let parcel = SimPacket::new(headers, &payload);
        match self.rate {
            None => self.sent.push((self.now, parcel)),
            Some(rate) => {
                self.free_at = self.free_at.max(self.now) + time_of(parcel.wire_bytes(), rate);
                self.leaving.push_back(self.free_at);
                self.sent.push((self.free_at, parcel));
            }
        }
        Ok(())
    }

    fn place(&mut self, (): &mut (), _: usize, bytes: &[u8]) {
        self.arrived += bytes.len() as u64;
    }

    fn authorize(&self, _: Rkey, _: u64, _: u64, _: Access) -> Result<(), Denied> {
        Ok(())
    }

    fn place_remote(&mut self, _: Rkey, _: u64, bytes: &[u8]) -> Result<(), Denied> {
        self.arrived += bytes.len() as u64;
        Ok(())
    }

    fn atomic(&mut self, _: Rkey, _: u64, _: AtomicOperation) -> Result<u64, Denied> {
        Err(Denied)
    }

    fn invalidate(&mut self, _: Rkey) -> Result<(), Denied> {
        Err(Denied)
    }

    fn execute_local(&mut self, _: SendOp) -> Result<(), Denied> {
        Err(Denied)
    }

    fn hold(&mut self, held: Held) -> bool {
        let Some(parcel) = self.current.filter(|_| self.held.len() < HELD_LIMIT) else { return false };
        self.held.insert(held, parcel);
        true
    }

    fn release(&mut self, held: Held) {
        self.held.remove(&held);
    }

    fn complete(&mut self, _: RcCompletion<()>) {}
}
