//! One-sided transfers by message: the peer's processor does what RDMA would, under the same keys. What is denied changes nothing
//! and ends no connection, unlike RDMA: the answer says so.
//!
//! Numbers are changed here and by RDMA atomics in one step each, because one engine does both.

use roci_driver::link::Link;
use roci_driver::{Access, Buffer, Denied, MemoryRegion, Rkey};
use roci_protocol::msg::{AtomicOp, AtomicWidth, Header, Message};

use super::Core;
use super::breach::Breach;
use super::peer::{Peer, PeerId};
use super::transfer::{Direction, ServedGet, Transfer, WaitingTransfer};
use super::tx::OneSidedWork;

/// Gets that a peer may have asked for and that were not sent: an honest one has no more transfers under way.
const SERVED_LIMIT: usize = 1 << 16;

/// Transfers that have left by message, by the names that peers know them by.
#[derive(Debug, Default)]
pub(crate) struct AwaitedReplies {
    entries: Vec<Option<AwaitedReply>>,
    free: Vec<u32>,
}

/// A transfer that has left by message.
#[derive(Debug)]
struct AwaitedReply {
    peer: PeerId,
    operation: u64,
    memory: AwaitedMemory,
}

#[derive(Debug)]
enum AwaitedMemory {
    /// Of a put, and of an atomic.
    Sent(Buffer),
    /// Of a get, and how much of it has come.
    Filling(Buffer, usize),
    /// Of a get that the peer writes.
    Open(MemoryRegion),
}

/// A transfer that went by message has ended.
#[derive(Debug)]
pub(crate) struct TransferEnd {
    pub(crate) operation: u64,
    pub(crate) buffer: Buffer,
    /// What the number was, of an atomic.
    pub(crate) value: u64,
    pub(crate) is_denied: bool,
}

impl AwaitedReplies {
    /// Returns the name of the next one.
    fn next_name(&self) -> u32 {
        self.free.last().copied().unwrap_or(self.entries.len() as u32)
    }

    fn insert(&mut self, reply: AwaitedReply) {
        let index = self.free.pop().unwrap_or_else(|| {
            self.entries.push(None);
            self.entries.len() as u32 - 1
        });
        self.entries[index as usize] = Some(reply);
    }

    /// Returns what a peer speaks of, if it was sent to that peer.
    fn get_mut(&mut self, peer: PeerId, name: u64) -> Option<&mut AwaitedReply> {
        let entry = self.entries.get_mut(usize::try_from(name).ok()?)?;
        entry.as_mut().filter(|awaited| awaited.peer == peer)
    }

    fn remove(&mut self, name: u64) -> Option<AwaitedReply> {
        let entry = self.entries.get_mut(usize::try_from(name).ok()?)?.take()?;
        self.free.push(name as u32);
        Some(entry)
    }
}

impl<L: Link> Core<L> {
    /// Sends the next transfer, or a part of it, as a message, where it goes by message and may go; returns whether it did.
    pub(crate) fn post_by_message(&mut self, peer: &mut Peer) -> bool {
        let Some(next) = peer.tx.transfers.waiting.front() else { return false };
        let (direction, is_fenced) = (next.transfer.direction, next.is_fenced && next.sent == 0);
        if self.has_rdma_with(peer) && !next.transfer.needs_message() || is_fenced && peer.tx.transfers.awaits_replies()
        {
            return false;
        }
        let admitted = peer.lanes[0].admits_requests();
        if !self.has_send_room(peer, 0, 1, admitted) {
            return false;
        }
        let Some(next) = peer.tx.transfers.take_waiting() else { return false };
        match direction {
            Direction::Write { then } => self.post_put_part(peer, next, then, is_fenced),
            Direction::Read => self.post_get(peer, next.transfer, is_fenced),
            Direction::Atomic { op, width } => self.post_atomic(peer, next.transfer, (op, width), is_fenced),
        }
        true
    }

    /// Sends the next part of a put.
    fn post_put_part(&mut self, peer: &mut Peer, mut next: WaitingTransfer, then: Option<Message>, is_fenced: bool) {
        let room = peer.lanes[0].payload;
        let Transfer { operation, ref buffer, rkey, va, .. } = next.transfer;
        let (from, all) = (next.sent, buffer.len());
        let (va, to) = (va + from as u64, all.min(from + room));
        let id = (to == all).then(|| u64::from(self.awaited.next_name()));
        let header = Header::new(Message::Put { rkey, va, id });
        self.post_transfer_message(peer, header, (buffer, from..to), is_fenced);
        if to < all {
            next.sent = to;
            return peer.tx.transfers.put_back(next);
        }
        self.await_reply(peer, operation, AwaitedMemory::Sent(next.transfer.buffer));
        if let Some(message) = then {
            peer.queue_control(message);
        }
    }

    /// Asks for what a get is to fill its buffer with.
    fn post_get(&mut self, peer: &mut Peer, transfer: Transfer, is_fenced: bool) {
        let Transfer { operation, buffer, rkey, va, .. } = transfer;
        let (len, id) = (buffer.len() as u32, u64::from(self.awaited.next_name()));
        let opened =
            if self.has_rdma_with(peer) && len > 0 { self.register(buffer, Access::REMOTE_WRITE) } else { Err(buffer) };
        let into = opened.as_ref().ok().map(MemoryRegion::rkey);
        self.post_bare_message(peer, Header::new(Message::Get { rkey, va, len, into, id }), is_fenced);
        let memory = opened.map_or_else(|buffer| AwaitedMemory::Filling(buffer, 0), AwaitedMemory::Open);
        self.await_reply(peer, operation, memory);
    }

    /// Asks for a change of a number.
    fn post_atomic(
        &mut self,
        peer: &mut Peer,
        transfer: Transfer,
        (op, width): (AtomicOp, AtomicWidth),
        is_fenced: bool,
    ) {
        let Transfer { operation, buffer, rkey, va, .. } = transfer;
        let header = Header::new(Message::Atomic { rkey, va, op, width, id: self.awaited.next_name() });
        self.post_bare_message(peer, header, is_fenced);
        self.await_reply(peer, operation, AwaitedMemory::Sent(buffer));
    }

    /// Returns the name that the next transfer by message will have.
    pub(crate) fn next_reply(&self) -> u64 {
        self.awaited.next_name().into()
    }

    /// The next transfer by message has left, with a message of its service's: the peer sends what is to fill this buffer.
    pub(crate) fn await_filling(&mut self, peer: &mut Peer, operation: u64, buffer: Buffer) {
        self.await_reply(peer, operation, AwaitedMemory::Filling(buffer, 0));
    }

    fn await_reply(&mut self, peer: &mut Peer, operation: u64, memory: AwaitedMemory) {
        peer.tx.transfers.replies_due += 1;
        self.awaited.insert(AwaitedReply { peer: peer.id, operation, memory });
        self.stats.tx_by_message += 1;
    }

    /// A peer wants something done with this end's memory.
    ///
    /// # Errors
    /// It asks for more than may wait.
    pub(crate) fn serve(&mut self, peer: &mut Peer, message: Message, payload: &[u8]) -> Result<(), Breach> {
        match message {
            Message::Put { rkey, va, id } => self.on_put(peer, (rkey, va), id, payload),
            Message::Atomic { rkey, va, op, width, id } => self.on_atomic(peer, (rkey, va), op, width, id),
            Message::Get { rkey, va, len, into, id } => self.on_get(peer, (rkey, va), len as usize, into, id)?,
            other => unreachable!("it is no message of one-sided transfers: {other:?}"),
        }
        Ok(())
    }

    /// A part of a put has come.
    fn on_put(&mut self, peer: &mut Peer, to: (Rkey, u64), id: Option<u64>, bytes: &[u8]) {
        let written = self.engine.write_by_key(self.pd, to, bytes);
        peer.rx.is_put_denied |= written.is_err();
        if let Some(reply) = id {
            let is_denied = std::mem::take(&mut peer.rx.is_put_denied);
            self.answer(peer, reply, 0, is_denied);
        }
    }

    /// A peer asks for a change of a number.
    fn on_atomic(&mut self, peer: &mut Peer, at: (Rkey, u64), op: AtomicOp, width: AtomicWidth, id: u32) {
        let changed = self.update(at, op, width);
        self.answer(peer, id.into(), changed.unwrap_or(0), changed.is_err());
    }

    /// Changes a number of this end's, and returns what it was.
    pub(crate) fn update(&mut self, at: (Rkey, u64), op: AtomicOp, width: AtomicWidth) -> Result<u64, Denied> {
        match width {
            AtomicWidth::U32 => {
                self.engine.update_by_key(self.pd, at, |before: u32| op.apply_to_u32(before)).map(u64::from)
            }
            AtomicWidth::U64 => self.engine.update_by_key(self.pd, at, |before: u64| op.apply(before)),
        }
    }

    /// A peer is not given what it has asked for.
    pub(crate) fn deny(&mut self, peer: &mut Peer, reply: u64) {
        self.answer(peer, reply, 0, true);
    }

    fn answer(&mut self, peer: &mut Peer, reply: u64, value: u64, is_denied: bool) {
        self.stats.rx_denied += u64::from(is_denied);
        peer.queue_control(Message::Executed { reply, value, is_denied });
    }

    /// A peer asks for memory of this end's.
    ///
    /// # Errors
    /// It asks for more than may wait.
    pub(crate) fn on_get(
        &mut self,
        peer: &mut Peer,
        (rkey, va): (Rkey, u64),
        len: usize,
        into: Option<Rkey>,
        reply: u64,
    ) -> Result<(), Breach> {
        if peer.tx.transfers.served.len() == SERVED_LIMIT {
            return Err(Breach::TooManyAnswers);
        }
        if self.engine.check_read_by_key(self.pd, (rkey, va), len as u64).is_err() {
            self.answer(peer, reply, 0, true);
            return Ok(());
        }
        let into = into.filter(|_| self.has_rdma_with(peer));
        peer.tx.transfers.served.push_back(ServedGet { rkey, va, len, sent: 0, reply, into });
        Ok(())
    }

    /// Sends what a peer has asked for, or the next part of it, where there is any and it may go; returns whether it did. It is
    /// written to the peer where that has opened memory for it and there is enough here for a copy; or sent in parts.
    pub(crate) fn post_served(&mut self, peer: &mut Peer) -> bool {
        let Some(&ServedGet { rkey, va, len, sent, reply, into }) = peer.tx.transfers.served.front() else {
            return false;
        };
        if let Some(into) = into.filter(|_| sent == 0) {
            let has_room = peer.lanes[0].has_place_for_transfer() && peer.tx.transfers.fits(len);
            if !(has_room && peer.tx.transfers.may_serve(len)) {
                return false;
            }
            if let Some(copy) = self.copy_by_key((rkey, va), len) {
                return self.write_served(peer, copy, into, reply);
            }
        }
        let admitted = peer.lanes[0].admits_requests();
        if !self.has_send_room(peer, 0, 1, admitted) {
            return false;
        }
        let part = peer.lanes[0].payload.min(len - sent);
        let from = (rkey, va + sent as u64);
        // The memory may have been closed since it was asked for.
        if self.engine.check_read_by_key(self.pd, from, part as u64).is_err() {
            peer.tx.transfers.served.pop_front();
            self.answer(peer, reply, 0, true);
            return true;
        }
        self.post_bytes_by_key(peer, Header::new(Message::Got { offset: sent as u64, reply }), from, part);
        match peer.tx.transfers.served.front_mut() {
            Some(next) if sent + part < len => next.sent += part,
            _ => drop(peer.tx.transfers.served.pop_front()),
        }
        true
    }

    /// Returns a copy of what peers may read under a key; none where they may not any more, or it would leave too little memory.
    fn copy_by_key(&self, from: (Rkey, u64), len: usize) -> Option<Buffer> {
        let left = self.free_bytes().checked_sub(len).filter(|&left| self.unexpected_budget.has_room(left));
        let mut copy = left.and_then(|_| self.engine.buffer(len).ok())?;
        self.engine.read_by_key(self.pd, from, (&mut copy, 0..len)).is_ok().then_some(copy)
    }

    /// Writes a copy to the peer that has asked for it, for which there is room; returns whether its queue pair lives.
    fn write_served(&mut self, peer: &mut Peer, buffer: Buffer, into: Rkey, reply: u64) -> bool {
        peer.tx.transfers.served.pop_front();
        peer.tx.transfers.begin_served(buffer.len());
        let direction = Direction::Write { then: Some(Message::Executed { reply, value: 0, is_denied: false }) };
        let operation = OneSidedWork::Served(peer.id.slot()).to_name();
        self.post_rdma(peer, Transfer { operation, buffer, rkey: into, va: 0, direction, by_message: false }, false)
    }

    /// A part of what this end has asked for has come. Returns the end of the transfer, if it is the last.
    pub(crate) fn on_got(
        &mut self,
        peer: &mut Peer,
        (reply, offset): (u64, u64),
        bytes: &[u8],
    ) -> Result<Option<TransferEnd>, Breach> {
        let unasked = Breach::UnaskedAnswer { reply };
        self.close_awaited(peer.id, reply);
        let Some(AwaitedReply { memory: AwaitedMemory::Filling(buffer, got), .. }) =
            self.awaited.get_mut(peer.id, reply)
        else {
            return Err(unasked);
        };
        if offset != *got as u64 || bytes.len() > buffer.len() - *got {
            return Err(unasked);
        }
        buffer.copy_in(*got, bytes);
        *got += bytes.len();
        if *got < buffer.len() {
            return if bytes.is_empty() { Err(unasked) } else { Ok(None) };
        }
        Ok(self.end_awaited(peer, reply, 0, false))
    }

    /// Closes the memory of a get that the peer sends, though it might have written.
    fn close_awaited(&mut self, peer: PeerId, reply: u64) {
        let open = self.awaited.get_mut(peer, reply).and_then(|awaited| match awaited.memory {
            AwaitedMemory::Open(region) => Some(region),
            AwaitedMemory::Sent(_) | AwaitedMemory::Filling(..) => None,
        });
        let Some(region) = open else { return };
        let buffer = self.deregister(region);
        if let Some(awaited) = self.awaited.get_mut(peer, reply) {
            awaited.memory = AwaitedMemory::Filling(buffer, 0);
        }
    }

    /// A peer has answered. Returns the end of the transfer.
    pub(crate) fn on_executed(
        &mut self,
        peer: &mut Peer,
        reply: u64,
        value: u64,
        is_denied: bool,
    ) -> Result<Option<TransferEnd>, Breach> {
        match self.awaited.get_mut(peer.id, reply).map(|awaited| &awaited.memory) {
            None => Err(Breach::UnaskedAnswer { reply }),
            Some(AwaitedMemory::Filling(..)) if !is_denied => Err(Breach::UnaskedAnswer { reply }),
            Some(_) => Ok(self.end_awaited(peer, reply, value, is_denied)),
        }
    }

    fn end_awaited(&mut self, peer: &mut Peer, reply: u64, value: u64, is_denied: bool) -> Option<TransferEnd> {
        let AwaitedReply { operation, memory, .. } = self.awaited.remove(reply)?;
        peer.tx.transfers.replies_due -= 1;
        let buffer = self.memory_of(memory);
        Some(TransferEnd { operation, buffer, value, is_denied })
    }

    fn memory_of(&mut self, memory: AwaitedMemory) -> Buffer {
        match memory {
            AwaitedMemory::Sent(buffer) | AwaitedMemory::Filling(buffer, _) => buffer,
            AwaitedMemory::Open(region) => self.deregister(region),
        }
    }

    /// A peer is gone: it answers nothing any more.
    pub(crate) fn forget_awaited(&mut self, peer: PeerId) {
        for name in 0..self.awaited.entries.len() as u64 {
            if self.awaited.get_mut(peer, name).is_some()
                && let Some(awaited) = self.awaited.remove(name)
            {
                drop(self.memory_of(awaited.memory));
            }
        }
    }
}
