//! The READs that the peer has asked for: their responses, and what it takes to give them again.

use std::collections::VecDeque;

use crate::wire::{Opcode, Reth};
use crate::{Mtu, Psn};

/// READs that were executed, and READ responses that are to be sent.
pub(super) struct Reads {
    /// How many the peer may have outstanding.
    limit: usize,
    /// The READs that the peer may still ask for again, oldest first.
    remembered: VecDeque<Read>,
    /// The responses to be sent, in the order of PSNs.
    streams: VecDeque<Stream>,
}

#[derive(Clone, Copy)]
struct Read {
    first: Psn,
    packets: u32,
    reth: Reth,
}

/// The rest of a READ's responses.
struct Stream {
    read: Read,
    next: u32,
    /// The packet that starts this run of responses carries FIRST or ONLY.
    start: u32,
    /// The peer (or the network) asked again for a READ that had been answered in full.
    is_replay: bool,
}

/// One response packet.
pub(super) struct Response {
    pub(super) opcode: Opcode,
    pub(super) psn: Psn,
    /// Where its payload starts, under the READ's key, and how long it is.
    pub(super) source: Reth,
}

impl Reads {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, remembered: VecDeque::with_capacity(limit), streams: VecDeque::with_capacity(limit) }
    }

    /// Whether no response waits.
    #[inline]
    pub(super) fn is_idle(&self) -> bool {
        self.streams.is_empty()
    }

    /// Takes a READ that starts at `first`; `None` where the peer has more outstanding than it was granted, else
    /// how many PSNs it takes.
    pub(super) fn accept(&mut self, first: Psn, reth: Reth, mtu: Mtu) -> Option<u32> {
        if self.remembered.len() == self.limit && !self.forget_oldest() {
            return None;
        }
        let read = Read { first, packets: mtu.packets(reth.len), reth };
        self.remembered.push_back(read);
        self.streams.push_back(Stream { read, next: 0, start: 0, is_replay: false });
        Some(read.packets)
    }

    /// Asked again for a READ: sends from there on. `false` where it is not remembered, or was another.
    pub(super) fn replay(&mut self, psn: Psn, again: &Reth, mtu: Mtu) -> bool {
        // The newest first: PSNs wrap, and an old READ may have had the same ones.
        let Some(read) = self.remembered.iter().rev().copied().find(|read| read.covers(psn)) else { return false };
        let next = psn.since(read.first) as u32;
        if !read.is_rest(again, u64::from(next) << mtu.shift()) {
            return false;
        }
        match self.streams.iter_mut().find(|stream| stream.read.first == read.first) {
            Some(stream) => (stream.next, stream.start) = (next, next),
            None => {
                let at = self.streams.partition_point(|stream| stream.read.first.before(read.first));
                self.streams.insert(at, Stream { read, next, start: next, is_replay: true });
            }
        }
        true
    }

    /// The response that is to be sent next.
    pub(super) fn next_response(&self, mtu: Mtu) -> Option<Response> {
        let stream = self.streams.front()?;
        let Read { first, reth, .. } = stream.read;
        let offset = stream.next << mtu.shift();
        let len = (reth.len - offset).min(mtu.bytes() as u32);
        let source = Reth { va: reth.va.wrapping_add(offset.into()), rkey: reth.rkey, len };
        Some(Response { opcode: stream.opcode(), psn: first.plus(stream.next), source })
    }

    /// The response that was next has been sent.
    pub(super) fn sent(&mut self) {
        if let Some(stream) = self.streams.front_mut() {
            stream.next += 1;
            self.streams.pop_front_if(|stream| stream.next == stream.read.packets);
        }
    }

    /// Gives up the responses that come next, if they only repeat what was sent before.
    pub(super) fn drop_replay(&mut self) -> bool {
        self.streams.pop_front_if(|stream| stream.is_replay).is_some()
    }

    /// Gives up all responses.
    pub(super) fn drop_all(&mut self) {
        self.streams.clear();
    }

    /// Makes room for another READ, if the peer can have all of the oldest.
    ///
    /// A peer that keeps to its limit asks for a new READ only when it has, so a replay of the oldest, set off
    /// by a late duplicate, is of no use to anybody.
    fn forget_oldest(&mut self) -> bool {
        let Some(oldest) = self.remembered.pop_front() else { return false };
        match self.streams.iter().position(|stream| stream.read.first == oldest.first) {
            Some(at) if !self.streams[at].is_replay => return false,
            Some(at) => drop(self.streams.remove(at)),
            None => {}
        }
        true
    }
}

impl Read {
    fn covers(&self, psn: Psn) -> bool {
        !psn.before(self.first) && psn.before(self.first.plus(self.packets))
    }

    /// Whether a request names this READ from `offset` to its end.
    fn is_rest(&self, again: &Reth, offset: u64) -> bool {
        again.rkey == self.reth.rkey
            && again.va == self.reth.va.wrapping_add(offset)
            && u64::from(again.len) + offset == u64::from(self.reth.len)
    }
}

impl Stream {
    fn opcode(&self) -> Opcode {
        match (self.next == self.start, self.next + 1 == self.read.packets) {
            (true, true) => Opcode::RcReadResponseOnly,
            (true, false) => Opcode::RcReadResponseFirst,
            (false, false) => Opcode::RcReadResponseMiddle,
            (false, true) => Opcode::RcReadResponseLast,
        }
    }
}
