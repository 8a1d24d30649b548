//! Responder resources (IBTA 9.7.4.1.6): the READs and atomics that the peer has asked for, their answers, and what
//! it takes to give them again.
//!
//! A READ is repeated from memory; an atomic is never executed twice, so its result is stored.

use std::collections::VecDeque;

use crate::wire::{AtomicEth, Headers, Opcode, Reth};
use crate::{Mtu, Psn};

/// Requests that were executed, and responses that are to be sent. Their memory grows with the first ones, up to the limit.
pub(super) struct Resources {
    /// How many the peer may have outstanding.
    limit: usize,
    /// The requests that the peer may still send again, oldest first.
    remembered: VecDeque<Resource>,
    /// The responses to be sent, in the order of PSNs.
    streams: VecDeque<ResponseStream>,
}

#[derive(Clone, Copy)]
struct Resource {
    first: Psn,
    packets: u32,
    answer: FetchRequest,
}

/// A remembered request whose response carries data: a READ, or an atomic.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum FetchRequest {
    /// Memory.
    Read(Reth),
    /// The value that an atomic found.
    Atomic { opcode: Opcode, request: AtomicEth, original: u64 },
}

/// The rest of a request's responses.
struct ResponseStream {
    resource: Resource,
    next: u32,
    /// The packet that starts this run of responses carries FIRST or ONLY.
    start: u32,
    end: u32,
    /// The peer (or the network) asked again for what had been answered in full, or for a part.
    is_replay: bool,
}

/// One response packet.
pub(super) struct Response {
    pub(super) opcode: Opcode,
    pub(super) psn: Psn,
    pub(super) body: ResponseBody,
}

/// What a response packet carries.
pub(super) enum ResponseBody {
    /// Where its payload starts, under the READ's key, and how long it is.
    Memory(Reth),
    /// An atomic's result.
    Original(u64),
}

impl Resources {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, remembered: VecDeque::new(), streams: VecDeque::new() }
    }

    /// Whether no response waits.
    #[inline]
    pub(super) fn is_idle(&self) -> bool {
        self.streams.is_empty()
    }

    /// Makes room for one more request; `false` where the peer has more outstanding than it was granted.
    pub(super) fn make_room(&mut self) -> bool {
        self.remembered.len() < self.limit || self.forget_oldest()
    }

    /// Takes a request that starts at `first`, for which there is room, and returns how many PSNs it takes.
    pub(super) fn accept(&mut self, first: Psn, answer: FetchRequest, mtu: Mtu) -> u32 {
        assert!(self.remembered.len() < self.limit, "the caller made room");
        let packets = match answer {
            FetchRequest::Read(reth) => mtu.packets(reth.len),
            FetchRequest::Atomic { .. } => 1,
        };
        let resource = Resource { first, packets, answer };
        self.remembered.push_back(resource);
        self.streams.push_back(ResponseStream { resource, next: 0, start: 0, end: packets, is_replay: false });
        packets
    }

    /// Asked again for a READ or an atomic: sends from there on. `false` where it is not remembered, or was another.
    pub(super) fn replay(&mut self, again: &Headers, mtu: Mtu) -> bool {
        let psn = again.bth.psn;
        // The newest first: PSNs wrap, and an old request may have had the same ones.
        let Some(found) = self.remembered.iter().rev().copied().find(|resource| resource.covers(psn)) else {
            return false;
        };
        let next = psn.since(found.first) as u32;
        let Some(end) = found.end_of(again, next, mtu) else { return false };
        let is_rest = end == found.packets;
        let under_way =
            |stream: &&mut ResponseStream| is_rest && stream.resource.first == found.first && stream.end == end;
        if let Some(stream) = self.streams.iter_mut().find(under_way) {
            (stream.next, stream.start) = (next, next);
        } else if self.streams.len() < 2 * self.limit {
            let at = self.streams.partition_point(|stream| stream.position().before(psn));
            self.streams.insert(at, ResponseStream { resource: found, next, start: next, end, is_replay: true });
        } else {
            return false;
        }
        true
    }

    /// The response that is to be sent next.
    pub(super) fn next_response(&self, mtu: Mtu) -> Option<Response> {
        let stream = self.streams.front()?;
        let psn = stream.position();
        Some(match stream.resource.answer {
            FetchRequest::Atomic { original, .. } => {
                Response { opcode: Opcode::RcAtomicAck, psn, body: ResponseBody::Original(original) }
            }
            FetchRequest::Read(reth) => {
                let offset = stream.next << mtu.shift();
                let len = (reth.len - offset).min(mtu.bytes() as u32);
                let source = Reth { va: reth.va.wrapping_add(offset.into()), rkey: reth.rkey, len };
                Response { opcode: stream.opcode(), psn, body: ResponseBody::Memory(source) }
            }
        })
    }

    /// The response that was next has been sent.
    pub(super) fn sent(&mut self) {
        if let Some(stream) = self.streams.front_mut() {
            stream.next += 1;
            self.streams.pop_front_if(|stream| stream.next == stream.end);
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

    /// Makes room for another request, if the peer can have all of the oldest.
    ///
    /// A peer that keeps to its limit sends a new request only when it has, so a replay of the oldest, set off
    /// by a late duplicate, is of no use to anybody.
    fn forget_oldest(&mut self) -> bool {
        if self.streams.is_empty() {
            return self.remembered.pop_front().is_some();
        }
        let Some(oldest) = self.remembered.front() else { return false };
        let first = oldest.first;
        let is_of_oldest = |stream: &ResponseStream| stream.resource.first == first;
        if self.streams.iter().any(|stream| is_of_oldest(stream) && !stream.is_replay) {
            return false;
        }
        self.streams.retain(|stream| !is_of_oldest(stream));
        self.remembered.pop_front();
        true
    }
}

impl Resource {
    fn covers(&self, psn: Psn) -> bool {
        !psn.before(self.first) && psn.before(self.first.plus(self.packets))
    }

    /// Where the responses end that `again` asks for, beginning with packet `next`: it must name this very request,
    /// or a part of this READ that ends where a packet or the READ does.
    fn end_of(&self, again: &Headers, next: u32, mtu: Mtu) -> Option<u32> {
        match (self.answer, again.ext.reth, again.ext.atomic) {
            (FetchRequest::Read(reth), Some(part), _) => {
                let offset = u64::from(next) << mtu.shift();
                let end = offset + u64::from(part.len);
                let is_part = part.rkey == reth.rkey && part.va == reth.va.wrapping_add(offset);
                let is_rest = end == u64::from(reth.len);
                let is_whole_packets =
                    part.len > 0 && end < u64::from(reth.len) && end.is_multiple_of(mtu.bytes() as u64);
                (is_part && (is_rest || is_whole_packets)).then(|| next + mtu.packets(part.len))
            }
            (FetchRequest::Atomic { opcode, request, .. }, _, Some(atomic)) => {
                (opcode == again.bth.opcode && request == atomic).then_some(1)
            }
            _ => None,
        }
    }
}

impl ResponseStream {
    fn position(&self) -> Psn {
        self.resource.first.plus(self.next)
    }

    fn opcode(&self) -> Opcode {
        match (self.next == self.start, self.next + 1 == self.end) {
            (true, true) => Opcode::RcReadResponseOnly,
            (true, false) => Opcode::RcReadResponseFirst,
            (false, false) => Opcode::RcReadResponseMiddle,
            (false, true) => Opcode::RcReadResponseLast,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Bth;
    use crate::{Qpn, Rkey};

    const MTU: Mtu = Mtu::Mtu256;

    fn reth(va: u64, packets: u32) -> Reth {
        Reth { va, rkey: Rkey(7), len: packets * MTU.bytes() as u32 }
    }

    /// Takes a READ of three packets, and answers it.
    fn answer(resources: &mut Resources, first: Psn, va: u64) {
        assert_eq!(resources.accept(first, FetchRequest::Read(reth(va, 3)), MTU), 3);
        (0..3).for_each(|_| resources.sent());
        assert!(resources.is_idle());
    }

    #[test]
    fn of_two_reads_with_the_same_psns_the_one_behind_the_wrap_is_repeated() {
        let (mut resources, first) = (Resources::new(2), Psn::new(500));
        answer(&mut resources, first, 0);
        answer(&mut resources, first, 4096);
        let mut again = Headers::plain(Bth::new(Opcode::RcReadRequest, Qpn::new(1), first.plus(1)));
        again.ext.reth = Some(reth(4096 + 256, 2));
        assert!(resources.replay(&again, MTU));
        let response = resources.next_response(MTU).expect("it is asked for");
        assert_eq!(response.psn, first.plus(1));
        assert!(matches!(response.body, ResponseBody::Memory(Reth { va: 4352, .. })));
    }
}
