//! The two ends of a flow: queue pairs whose memory is imagined.

use std::collections::{BTreeMap, VecDeque};

use super::Bottleneck;
use super::link::time_of;
use crate::rc::{
    AtomicOperation, Completion, Config, Denied, Env, Held, Payload, QueuePair, Remote, SendOp, SendRequest, State,
    Stats, TxError,
};
use crate::wire::{Headers, Packet, icrc};
use crate::{Access, Nanos, Rkey};

/// WRITEs that a sender keeps posted.
const POSTED: usize = 16;
/// Packets that wait in a sender's port.
const PORT_PACKETS: usize = 4;
/// Packets that a receiver keeps when they come early.
const HELD_LIMIT: usize = 256;
/// Preamble, Ethernet, IPv4, UDP, ICRC, frame check sequence and the gap between frames.
const ENVELOPE: usize = 8 + 14 + 20 + 8 + icrc::LEN + 4 + 12;
const ZEROS: [u8; 4096] = [0; 4096];
/// The longest body of an answer: a map of what has arrived.
const BODY: usize = 32;

/// A packet on its way.
#[derive(Clone, Copy)]
pub(super) struct Parcel {
    headers: Headers,
    len: usize,
    /// What an answer carries; of requests the length alone matters.
    body: Option<[u8; BODY]>,
}

impl Parcel {
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

/// A queue pair that always has something to write, behind a port.
pub(super) struct Sender {
    qp: QueuePair<()>,
    port: Port,
    message: u32,
    /// The one wake-up that counts: earlier plans may have been overtaken.
    wake_at: Option<Nanos>,
}

struct Port {
    rate: u64,
    free_at: Nanos,
    /// When each packet in the port will have left.
    leaving: VecDeque<Nanos>,
    sent: Vec<(Nanos, Parcel)>,
    now: Nanos,
}

impl Port {
    fn has_room(&mut self) -> bool {
        while self.leaving.front().is_some_and(|&at| at <= self.now) {
            self.leaving.pop_front();
        }
        self.leaving.len() < PORT_PACKETS
    }
}

impl Sender {
    pub(super) fn new(config: Config, plan: &Bottleneck) -> Self {
        let port =
            Port { rate: plan.rate, free_at: 0, leaving: VecDeque::with_capacity(PORT_PACKETS), sent: vec![], now: 0 };
        Self { qp: ready(config), port, message: plan.message, wake_at: Some(0) }
    }

    /// Whether a wake-up is the one that was planned last.
    pub(super) fn is_due(&self, now: Nanos) -> bool {
        self.wake_at.is_some_and(|at| at <= now)
    }

    pub(super) fn hear(&mut self, now: Nanos, parcel: &Parcel) {
        self.port.now = now;
        self.qp.on_packet(now, &parcel.packet(), &mut self.port);
    }

    /// Posts, minds the timers and sends; returns what leaves the port, and when.
    pub(super) fn work(&mut self, now: Nanos) -> impl Iterator<Item = (Nanos, Parcel)> + '_ {
        self.port.now = now;
        while self.qp.sends_outstanding() < POSTED {
            self.qp.post_send(write(self.message)).expect("fewer than the depth are outstanding");
        }
        if self.qp.deadline().is_some_and(|at| at <= now) {
            self.qp.on_timeout(now, &mut self.port);
        }
        let is_busy = self.qp.pump_requests(now, &mut self.port).is_err();
        let room_at = self.port.leaving.front().copied().filter(|_| is_busy);
        self.wake_at = self.qp.deadline().into_iter().chain(room_at).min();
        self.port.sent.drain(..)
    }

    /// When it wants to be woken, if nothing comes before.
    pub(super) fn next_wake(&self, now: Nanos) -> Option<Nanos> {
        self.wake_at.map(|at| at.max(now))
    }

    pub(super) fn state(&self) -> State {
        self.qp.state()
    }

    pub(super) fn stats(&self) -> &Stats {
        self.qp.stats()
    }
}

fn write(len: u32) -> SendRequest<()> {
    let remote = Remote { va: 0, rkey: Rkey(1) };
    let op = SendOp::Write { remote, imm: None };
    SendRequest { wr_id: 0, op, buffer: (), len, signaled: true, solicited: false, fence: false }
}

fn ready(config: Config) -> QueuePair<()> {
    let mut qp = QueuePair::new(config);
    for state in [State::Rtr, State::Rts] {
        qp.modify(state).expect("the way up is in the table");
    }
    qp
}

/// The other end.
pub(super) struct Receiver {
    qp: QueuePair<()>,
    desk: Desk,
}

/// Where a receiver keeps what it has.
#[derive(Default)]
struct Desk {
    executed: u64,
    answers: Vec<Parcel>,
    held: BTreeMap<Held, Parcel>,
    /// The packet that the queue pair is looking at.
    current: Option<Parcel>,
}

impl Receiver {
    pub(super) fn new(config: Config) -> Self {
        Self { qp: ready(config), desk: Desk::default() }
    }

    /// Bytes written so far.
    pub(super) fn executed(&self) -> u64 {
        self.desk.executed
    }

    /// Takes a packet; returns what is answered.
    pub(super) fn receive(&mut self, now: Nanos, parcel: Parcel, is_marked: bool) -> impl Iterator<Item = Parcel> + '_ {
        if is_marked {
            self.qp.on_congestion_mark(now);
        }
        self.take(now, parcel);
        while let Some(held) = self.qp.take_held() {
            let parcel = self.desk.held.remove(&held).expect("what the machine keeps is kept here");
            self.take(now, parcel);
        }
        if self.qp.owes_reply(1) {
            self.qp.pump_replies(&mut self.desk).expect("the way back is never full");
        }
        self.desk.answers.drain(..)
    }

    fn take(&mut self, now: Nanos, parcel: Parcel) {
        self.desk.current = Some(parcel);
        self.qp.on_packet(now, &parcel.packet(), &mut self.desk);
    }

    pub(super) fn stats(&self) -> &Stats {
        self.qp.stats()
    }
}

/// What neither end does: nobody reads, fetches, binds or posts a receive.
macro_rules! writes_only {
    () => {
        type Buffer = ();

        fn place(&mut self, (): &mut (), _: usize, _: &[u8]) {}

        fn authorize(&self, _: Rkey, _: u64, _: u64, _: Access) -> Result<(), Denied> {
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

        fn complete(&mut self, _: Completion<()>) {}
    };
}

impl Env for Port {
    writes_only!();

    fn transmit(&mut self, headers: &Headers, payload: Payload<'_, ()>) -> Result<(), TxError> {
        if !self.has_room() {
            return Err(TxError::Busy);
        }
        let parcel = Parcel::new(headers, &payload);
        self.free_at = self.free_at.max(self.now) + time_of(parcel.wire_bytes(), self.rate);
        self.leaving.push_back(self.free_at);
        self.sent.push((self.free_at, parcel));
        Ok(())
    }

    fn place_remote(&mut self, _: Rkey, _: u64, _: &[u8]) -> Result<(), Denied> {
        Err(Denied)
    }
}

impl Env for Desk {
    writes_only!();

    fn transmit(&mut self, headers: &Headers, payload: Payload<'_, ()>) -> Result<(), TxError> {
        self.answers.push(Parcel::new(headers, &payload));
        Ok(())
    }

    fn place_remote(&mut self, _: Rkey, _: u64, bytes: &[u8]) -> Result<(), Denied> {
        self.executed += bytes.len() as u64;
        Ok(())
    }

    fn hold(&mut self) -> bool {
        let Some(parcel) = self.current.filter(|_| self.held.len() < HELD_LIMIT) else { return false };
        self.held.insert(Held::of(&parcel.packet()), parcel);
        true
    }
}
