//! One node: a queue pair, its memory, and an environment that speaks real frames.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::network::Network;
use crate::rc::{
    AtomicOperation, Completion, Config, Denied, Env, Held, Payload, QueuePair, RecvRequest, SendOp, TxError,
};
use crate::wire::{Flow, Frame, Headers, Ip, MacAddr};
use crate::{Access, Nanos, Rkey};

/// Bytes that the peer may write.
pub(super) const WRITABLE: usize = 64 << 10;
/// Bytes that the peer may read; nobody writes them, so that a READ has one right answer.
pub(super) const READABLE: usize = 64 << 10;
pub(super) const WRITE_KEY: Rkey = Rkey(0x5757_0001);
pub(super) const READ_KEY: Rkey = Rkey(0x5252_0002);
/// 8-byte words that only the peer's atomics change.
pub(super) const WORDS: usize = 4;
pub(super) const WORD_KEY: Rkey = Rkey(0x4141_0003);

/// Early frames that a host keeps; small, so that the limit is reached.
const HELD_LIMIT: usize = 24;

pub(super) struct Node {
    pub(super) qp: QueuePair<Vec<u8>>,
    pub(super) host: Host,
}

/// Everything of a node that its queue pair acts on.
pub(super) struct Host {
    pub(super) index: usize,
    flow: Flow,
    pub(super) writable: Vec<u8>,
    pub(super) readable: Vec<u8>,
    pub(super) words: [u64; WORDS],
    /// Memory windows that are valid.
    pub(super) windows: BTreeSet<u32>,
    /// Receives that queue pairs share.
    pub(super) shared: VecDeque<RecvRequest<Vec<u8>>>,
    pub(super) completions: Vec<Completion<Vec<u8>>>,
    pub(super) dropped: u64,
    /// Frames that came early and are kept.
    held: BTreeMap<Held, Vec<u8>>,
}

impl Node {
    pub(super) fn new(index: usize, config: Config) -> Self {
        let address = |index: usize| [10, 0, 0, 1 + index as u8].into();
        let ip = Ip::between(address(index), address(1 - index)).expect("both are IPv4");
        let mac = |index: usize| MacAddr([2, 0, 0, 0, 0, index as u8]);
        let host = Host {
            index,
            flow: Flow::new(mac(index), mac(1 - index), None, ip, 0xc000),
            writable: vec![0; WRITABLE],
            readable: (0..READABLE).map(|at| (at * 7 + index) as u8).collect(),
            words: [0; WORDS],
            windows: BTreeSet::new(),
            shared: VecDeque::new(),
            completions: Vec::new(),
            dropped: 0,
            held: BTreeMap::new(),
        };
        Self { qp: QueuePair::new(config), host }
    }

    /// A frame arrives: anything but a good frame is dropped.
    pub(super) fn receive(&mut self, now: Nanos, bytes: &[u8], network: &mut Network) {
        self.receive_one(now, bytes, network);
        while let Some(held) = self.qp.take_held() {
            let frame = self.host.held.remove(&held).expect("what the machine keeps is kept here");
            self.receive_one(now, &frame, network);
        }
    }

    fn receive_one(&mut self, now: Nanos, bytes: &[u8], network: &mut Network) {
        let frame = Frame::parse(bytes).and_then(|frame| frame.verify_icrc().map(|()| frame));
        let Ok(frame) = frame else {
            self.host.dropped += 1;
            return;
        };
        let current = Some((Held::of(&frame.packet), bytes));
        self.qp.on_packet(now, &frame.packet, &mut Scene { now, host: &mut self.host, network, current });
    }

    /// Lets the queue pair send.
    pub(super) fn pump(&mut self, now: Nanos, network: &mut Network) {
        let mut scene = Scene { now, host: &mut self.host, network, current: None };
        // Busy is no error: the world pumps again after the next event.
        let _ = self.qp.pump_replies(&mut scene);
        let _ = self.qp.pump_requests(now, &mut scene);
    }

    pub(super) fn on_timeout(&mut self, now: Nanos, network: &mut Network) {
        self.qp.on_timeout(now, &mut Scene { now, host: &mut self.host, network, current: None });
    }
}

struct Scene<'a> {
    now: Nanos,
    host: &'a mut Host,
    network: &'a mut Network,
    /// The frame that the queue pair is looking at.
    current: Option<(Held, &'a [u8])>,
}

impl Host {
    fn readable_slice(&self, rkey: Rkey, va: u64, len: usize) -> Option<&[u8]> {
        let start = usize::try_from(va).ok().filter(|_| rkey == READ_KEY)?;
        self.readable.get(start..start.checked_add(len)?)
    }
}

impl Env for Scene<'_> {
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
        if rkey == key && inside { Ok(()) } else { Err(Denied) }
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

    fn hold(&mut self) -> bool {
        let Some((held, frame)) = self.current.filter(|_| self.host.held.len() < HELD_LIMIT) else { return false };
        self.host.held.insert(held, frame.to_vec());
        true
    }

    fn complete(&mut self, completion: Completion<Vec<u8>>) {
        self.host.completions.push(completion);
    }
}
