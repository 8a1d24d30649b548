//! One node: a queue pair, its memory, and an environment that speaks real frames.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::network::{MARKED, SimNetwork};
use crate::rc::{
    AtomicOperation, Config, Denied, Env, Held, Payload, Quantum, RcCompletion, RcQueuePair, RecvRequest, SendOp,
    SendRequest, TxError, WcStatus,
};
use crate::wire::{Flow, Frame, FrameLayers, Headers, Ip, MacAddr, Malformed, Packet, icrc};
use crate::{Access, Nanos, Psn, Rkey};

/// Bytes that the peer may write.
pub(super) const WRITABLE: usize = 64 << 10;
/// Bytes that the peer may read; nothing writes them, so that a READ has one right answer.
pub(super) const READABLE: usize = 64 << 10;
pub(super) const WRITE_KEY: Rkey = Rkey(0x5757_0001);
pub(super) const READ_KEY: Rkey = Rkey(0x5252_0002);
/// 8-byte words that only the peer's atomics change.
pub(super) const WORDS: usize = 4;
pub(super) const WORD_KEY: Rkey = Rkey(0x4141_0003);

/// Early frames that a host keeps; small, so that the limit is reached.
const HELD_LIMIT: usize = 24;

/// Frames that wait for an end that does not poll; a NIC drops what comes then.
const INBOX_LIMIT: usize = 64;

pub(super) struct Node {
    pub(super) qp: RcQueuePair<Vec<u8>>,
    pub(super) host: NodeState,
    /// It does not poll until then.
    asleep_until: Nanos,
    inbox: VecDeque<Vec<u8>>,
    /// It tries the fast path first.
    has_fast_path: bool,
}

/// The state of a node that its queue pair acts on.
pub(super) struct NodeState {
    pub(super) index: usize,
    flow: Flow,
    pub(super) writable: Vec<u8>,
    pub(super) readable: Vec<u8>,
    pub(super) words: [u64; WORDS],
    /// Memory windows that are valid.
    pub(super) windows: BTreeSet<u32>,
    /// Receives that queue pairs share.
    pub(super) shared: VecDeque<RecvRequest<Vec<u8>>>,
    pub(super) completions: Vec<RcCompletion<Vec<u8>>>,
    pub(super) dropped: u64,
    /// The region that the peer reads is there no more.
    pub(super) is_revoked: bool,
    /// Frames that came early and are kept.
    held: BTreeMap<Held, Vec<u8>>,
}

/// Bytes that tell where they come from: no two packets of them are alike, whatever the path MTU.
fn pattern(index: usize) -> Vec<u8> {
    let mut bytes = vec![0; READABLE];
    StdRng::seed_from_u64(index as u64).fill(&mut bytes[..]);
    bytes
}

impl Node {
    pub(super) fn new(index: usize, config: Config, has_fast_path: bool) -> Self {
        let address = |index: usize| [10, 0, 0, 1 + index as u8].into();
        let ip = Ip::between(address(index), address(1 - index)).expect("both are IPv4");
        let mac = |index: usize| MacAddr([2, 0, 0, 0, 0, index as u8]);
        let host = NodeState {
            index,
            flow: Flow::new(mac(index), mac(1 - index), None, ip, 0xc000),
            writable: vec![0; WRITABLE],
            readable: pattern(index),
            words: [0; WORDS],
            windows: BTreeSet::new(),
            shared: VecDeque::new(),
            completions: Vec::new(),
            dropped: 0,
            is_revoked: false,
            held: BTreeMap::new(),
        };
        Self { qp: RcQueuePair::new(config), host, asleep_until: 0, inbox: VecDeque::new(), has_fast_path }
    }

    /// Stops polling until then.
    pub(super) fn sleep(&mut self, until: Nanos) {
        self.asleep_until = until;
    }

    pub(super) fn is_awake(&self, now: Nanos) -> bool {
        self.asleep_until <= now
    }

    /// When it next does something by itself.
    pub(super) fn next_event(&self, now: Nanos) -> Option<Nanos> {
        if self.is_awake(now) { self.qp.deadline() } else { Some(self.asleep_until) }
    }

    /// Delivers a frame, which waits if the node does not poll.
    pub(super) fn arrive(&mut self, now: Nanos, frame: Vec<u8>, network: &mut SimNetwork) {
        if self.is_awake(now) {
            self.receive(now, &frame, network);
        } else if self.inbox.len() < INBOX_LIMIT {
            self.inbox.push_back(frame);
        }
    }

    /// Takes what has waited, and looks at the clock.
    pub(super) fn wake(&mut self, now: Nanos, network: &mut SimNetwork) {
        if !self.is_awake(now) {
            return;
        }
        while let Some(frame) = self.inbox.pop_front() {
            self.receive(now, &frame, network);
        }
        if self.qp.deadline().is_some_and(|at| at <= now) {
            self.qp.on_timeout(now, &mut NodeEnv { now, host: &mut self.host, network, current: None });
        }
    }

    /// Drops what came early, as an engine does that needs the places.
    pub(super) fn give_back_held(&mut self) {
        self.qp.give_back_held();
        self.host.held.clear();
    }

    /// Fails by a fault of its own.
    pub(super) fn fail(&mut self, now: Nanos, network: &mut SimNetwork) {
        let mut scene = NodeEnv { now, host: &mut self.host, network, current: None };
        self.qp.fail(WcStatus::LocQpOpErr, &mut scene);
    }

    /// A frame is looked at: anything but a good frame is dropped.
    pub(super) fn receive(&mut self, now: Nanos, bytes: &[u8], network: &mut SimNetwork) {
        self.receive_one(now, bytes, network);
        while let Some(held) = self.qp.take_held() {
            let bytes = self.host.held.remove(&held).expect("what the machine keeps is kept here");
            let frame = Frame::parse(&bytes).expect("it was good when it came");
            let mut scene = NodeEnv { now, host: &mut self.host, network, current: None };
            self.qp.on_held_packet(now, &frame.packet, &mut scene);
        }
    }

    fn receive_one(&mut self, now: Nanos, bytes: &[u8], network: &mut SimNetwork) {
        let frame = Frame::parse(bytes).and_then(|frame| frame.verify_icrc().map(|()| frame));
        let mut scene = NodeEnv { now, host: &mut self.host, network, current: Some(bytes) };
        match frame {
            Ok(frame) => {
                let psn = frame.packet.headers.bth.psn;
                let is_marked = frame.ip.traffic_class() & MARKED == MARKED;
                let is_common = self.has_fast_path && !is_marked;
                if is_common && self.qp.on_whole(now, frame.transport(), &mut scene).is_some() {
                    return;
                }
                if self.qp.on_packet(now, &frame.packet, &mut scene) && is_marked {
                    self.qp.on_congestion_mark(now, psn);
                }
            }
            Err(Malformed::UnknownOpcode) => {
                if let Some(psn) = psn_of_good(bytes) {
                    self.qp.on_unknown_opcode(psn, &mut scene);
                }
            }
            Err(_) => self.host.dropped += 1,
        }
    }

    /// Posts a request and sends what may leave, as an application's call does.
    pub(super) fn post_and_send(&mut self, now: Nanos, request: SendRequest<Vec<u8>>, network: &mut SimNetwork) {
        let mut scene = NodeEnv { now, host: &mut self.host, network, current: None };
        let request = if self.has_fast_path && self.qp.is_clear_for(now, &request) {
            match self.qp.send_at_once(now, request, &mut scene) {
                Ok(_) => return,
                Err(request) => request,
            }
        } else {
            request
        };
        self.qp.post_send(request).expect("fewer than the depth are outstanding");
        let mut quantum = Quantum::UNLIMITED;
        let _ = self.qp.pump_requests(now, &mut quantum, &mut scene);
    }

    /// Lets the queue pair send.
    pub(super) fn pump(&mut self, now: Nanos, network: &mut SimNetwork) {
        let mut scene = NodeEnv { now, host: &mut self.host, network, current: None };
        // As if by chance: what could wait has waited long enough.
        if now.is_multiple_of(2) {
            self.qp.hasten_acknowledgement();
        }
        // Busy is no error: the world pumps again after the next event.
        let mut quantum = Quantum::UNLIMITED;
        let _ = self.qp.pump_replies(now, &mut quantum, &mut scene);
        let _ = self.qp.pump_requests(now, &mut quantum, &mut scene);
    }
}

/// The PSN of a packet whose opcode means nothing, and whose ICRC is right.
fn psn_of_good(bytes: &[u8]) -> Option<Psn> {
    let layers = FrameLayers::parse(bytes).ok()?;
    icrc::verify(layers.datagram).ok()?;
    let &[p0, p1, p2] = layers.transport.get(9..12)?.first_chunk()?;
    Some(Psn::new(u32::from_be_bytes([0, p0, p1, p2])))
}

/// The environment of a node's queue pair.
struct NodeEnv<'a> {
    now: Nanos,
    host: &'a mut NodeState,
    network: &'a mut SimNetwork,
    /// The frame that the queue pair is looking at.
    current: Option<&'a [u8]>,
}

impl NodeState {
    fn readable_slice(&self, rkey: Rkey, va: u64, len: usize) -> Option<&[u8]> {
        let start = usize::try_from(va).ok().filter(|_| rkey == READ_KEY && !self.is_revoked)?;
        self.readable.get(start..start.checked_add(len)?)
    }
}

impl Env for NodeEnv<'_> {
    type Buffer = Vec<u8>;

    fn transmit(&mut self, headers: &Headers, payload: Payload<'_, Vec<u8>>) -> Result<(), TxError> {
        if !self.network.has_room() {
            return Err(TxError::Busy);
        }
        let bytes = match payload {
            Payload::None => &[][..],
            Payload::Bytes(bytes) => bytes,
            Payload::Local { buffer, offset, len } => &buffer[offset..offset + len],
            Payload::Remote { rkey, va, len } => self.host.readable_slice(rkey, va, len).ok_or(TxError::Denied)?,
        };
        let mut flow = self.host.flow.clone();
        let mut frame = vec![0; flow.frame_len(headers, bytes.len())];
        flow.emit(&mut frame, headers, bytes.len(), |payload| payload.copy_from_slice(bytes));
        self.network.send(self.now, 1 - self.host.index, frame);
        Ok(())
    }

    fn place(&mut self, buffer: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
        buffer[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    fn authorize(&self, rkey: Rkey, va: u64, len: u64, access: Access) -> Result<(), Denied> {
        let (key, size) = match access {
            Access::REMOTE_WRITE => (WRITE_KEY, WRITABLE),
            _ => (READ_KEY, READABLE),
        };
        let inside = va.checked_add(len).is_some_and(|end| end <= size as u64);
        let is_revoked = key == READ_KEY && self.host.is_revoked;
        if rkey == key && inside && !is_revoked { Ok(()) } else { Err(Denied) }
    }

    fn place_remote(&mut self, rkey: Rkey, va: u64, bytes: &[u8]) -> Result<(), Denied> {
        self.authorize(rkey, va, bytes.len() as u64, Access::REMOTE_WRITE)?;
        self.host.writable[va as usize..][..bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn atomic(&mut self, rkey: Rkey, va: u64, operation: AtomicOperation) -> Result<u64, Denied> {
        let index = usize::try_from(va / 8).map_err(|_| Denied)?;
        let word = self.host.words.get_mut(index).filter(|_| rkey == WORD_KEY).ok_or(Denied)?;
        let original = *word;
        *word = operation.apply(original);
        Ok(original)
    }

    fn invalidate(&mut self, rkey: Rkey) -> Result<(), Denied> {
        if self.host.windows.remove(&rkey.0) { Ok(()) } else { Err(Denied) }
    }

    fn execute_local(&mut self, operation: SendOp) -> Result<(), Denied> {
        match operation {
            SendOp::BindWindow { window, .. } => {
                let is_new = self.host.windows.insert(window.0);
                if is_new { Ok(()) } else { Err(Denied) }
            }
            SendOp::LocalInvalidate { rkey } => self.invalidate(rkey),
            _ => Err(Denied),
        }
    }

    fn take_shared_receive(&mut self) -> Option<RecvRequest<Vec<u8>>> {
        self.host.shared.pop_front()
    }

    fn hold(&mut self, held: Held) -> bool {
        let Some(frame) = self.current.filter(|_| self.host.held.len() < HELD_LIMIT) else { return false };
        self.host.held.insert(held, frame.to_vec());
        true
    }

    fn return_shared_receive(&mut self, receive: RecvRequest<Vec<u8>>) {
        self.host.shared.push_front(receive);
    }

    fn holds_same(&self, held: Held, packet: &Packet<'_>) -> bool {
        let frame = self.host.held.get(&held).and_then(|bytes| Frame::parse(bytes).ok());
        frame.is_some_and(|frame| held.agree(&frame.packet, packet))
    }

    fn release(&mut self, held: Held) {
        self.host.held.remove(&held);
    }

    fn complete(&mut self, completion: RcCompletion<Vec<u8>>) {
        self.host.completions.push(completion);
    }
}
