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

/// Transfers of an end that peers have not answered.
const AWAITED_LIMIT: usize = 1 << 16;
/// Gets that a peer may have asked for and that were not sent: an honest one has no more transfers under way.
const SERVED_LIMIT: usize = AWAITED_LIMIT;

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
    fn has_room(&self) -> bool {
        !self.free.is_empty() || self.entries.len() < AWAITED_LIMIT
    }

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
    /// Sends the next transfer, or a part of it, as a message; returns whether there was room.
    pub(super) fn post_by_message(&mut self, peer: &mut Peer) -> bool {
        let admitted = peer.lanes[0].admits_requests();
        if !self.awaited.has_room() || !self.has_send_room(peer, 0, 1, admitted) {
            return false;
        }
        match peer.tx.transfers.next_direction() {
            Some(Direction::Write { then }) => self.post_put_part(peer, then),
            Some(Direction::Read { .. }) => self.post_get(peer),
            Some(Direction::Atomic { op, width }) => self.post_atomic(peer, op, width),
            None => {}
        }
        true
    }

    /// Sends the next part of a put.
    fn post_put_part(&mut self, peer: &mut Peer, then: Option<Message>) {
        let room = peer.lanes[0].payload;
        let Some(mut next) = peer.tx.transfers.take_waiting() else { return };
        let WaitingTransfer { transfer: Transfer { operation, buffer, rkey, va, .. }, sent, .. } = &next;
        let (rkey, operation, from, all) = (*rkey, *operation, *sent, buffer.len());
        let (va, to) = (va + from as u64, all.min(from + room));
        let id = (to == all).then(|| u64::from(self.awaited.next_name()));
        self.post_part(peer, 0, Header::new(Message::Put { rkey, va, id }), (buffer, from..to));
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
    fn post_get(&mut self, peer: &mut Peer) {
        let Some(next) = peer.tx.transfers.take_waiting() else { return };
        let Transfer { operation, buffer, rkey, va, .. } = next.transfer;
        let (len, id) = (buffer.len() as u32, u64::from(self.awaited.next_name()));
        let has_rdma = self.terms.capabilities.rdma && peer.connection.capabilities.rdma;
        let memory = if has_rdma && len > 0 {
            self.register(buffer, Access::REMOTE_WRITE)
                .map_or_else(|buffer| AwaitedMemory::Filling(buffer, 0), AwaitedMemory::Open)
        } else {
            AwaitedMemory::Filling(buffer, 0)
        };
        let into = if let AwaitedMemory::Open(region) = &memory { region.rkey() } else { Rkey(0) };
        self.post_vbuf(peer, 0, Header::new(Message::Get { rkey, va, len, into, id }), &[]);
        self.await_reply(peer, operation, memory);
    }

    /// Asks for a change of a number.
    fn post_atomic(&mut self, peer: &mut Peer, op: AtomicOp, width: AtomicWidth) {
        let Some(next) = peer.tx.transfers.take_waiting() else { return };
        let Transfer { operation, buffer, rkey, va, .. } = next.transfer;
        let id = self.awaited.next_name();
        self.post_vbuf(peer, 0, Header::new(Message::Atomic { rkey, va, op, width, id }), &[]);
        self.await_reply(peer, operation, AwaitedMemory::Sent(buffer));
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

    fn answer(&mut self, peer: &mut Peer, reply: u64, value: u64, is_denied: bool) {
        self.stats.rx_denied += u64::from(is_denied);
        peer.queue_control(Message::Executed { reply, value, is_denied });
    }

    /// A peer asks for memory of this end's. It is written to the peer where that has opened memory for it, and there is memory
    /// for a copy here; or sent in parts.
    fn on_get(
        &mut self,
        peer: &mut Peer,
        (rkey, va): (Rkey, u64),
        len: usize,
        into: Rkey,
        reply: u64,
    ) -> Result<(), Breach> {
        if peer.tx.transfers.served.len() == SERVED_LIMIT {
            return Err(Breach::TooManyAnswers);
        }
        if self.engine.check_read_by_key(self.pd, (rkey, va), len as u64).is_err() {
            self.answer(peer, reply, 0, true);
            return Ok(());
        }
        let copy = if into.0 == 0 { None } else { self.engine.buffer(len).ok() };
        let Some(mut buffer) = copy else {
            peer.tx.transfers.served.push_back(ServedGet { rkey, va, len, sent: 0, reply });
            return Ok(());
        };
        let read = self.engine.read_by_key(self.pd, (rkey, va), (&mut buffer, 0..len));
        debug_assert!(read.is_ok(), "it was just allowed");
        let then = Some(Message::Executed { reply, value: 0, is_denied: false });
        let operation = OneSidedWork::Served(peer.id.slot()).to_name();
        peer.tx.transfers.push(Transfer { operation, buffer, rkey: into, va: 0, direction: Direction::Write { then } });
        Ok(())
    }

    /// Sends the next part of what a peer has asked for, where there is any and it may go; returns whether it did.
    pub(crate) fn post_served(&mut self, peer: &mut Peer) -> bool {
        let Some(&ServedGet { rkey, va, len, sent, reply }) = peer.tx.transfers.served.front() else { return false };
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
        let message = Message::Got { offset: sent as u64, reply };
        self.post_bytes_by_key(peer, Header::new(message), from, part);
        match peer.tx.transfers.served.front_mut() {
            Some(next) if sent + part < len => next.sent += part,
            _ => drop(peer.tx.transfers.served.pop_front()),
        }
        true
    }

    /// A part of what this end has asked for has come. Returns the end of the transfer, if it is the last.
    pub(crate) fn on_got(
        &mut self,
        peer: &mut Peer,
        (reply, offset): (u64, u64),
        bytes: &[u8],
    ) -> Result<Option<TransferEnd>, Breach> {
        let unasked = Breach::UnaskedAnswer { reply };
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
