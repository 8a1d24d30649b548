//! The sending half: copies into staging buffers, and writes them into the peer's ring.

use roci_driver::Buffer;
use roci_driver::link::Link;

use super::StreamService;
use super::end::{PayloadPut, PutBy, StreamContext, StreamEnd, wrapped};
use super::error::StreamError;
use super::payload::{Bytes, Payloads, StreamPayload};
use super::wire::{ANNOUNCEMENT, Announcement, ChunkHeader, News};
use crate::core::Core;
use crate::core::peer::Peer;

impl StreamService {
    /// Puts bytes into the stream, as many as there is room for now, and returns how many those are.
    pub(crate) fn put<L: Link>(
        &mut self,
        core: &mut Core<L>,
        peer: &mut Peer,
        bytes: &[u8],
    ) -> Result<usize, StreamError> {
        let (mut cx, end, _) = self.live_parts(core, peer)?;
        if end.tx.payload.is_some() {
            return Err(StreamError::PutPending(cx.peer.id));
        }
        Ok(end.send(&mut cx, bytes.len(), |_, at, into| into.copy_from_slice(&bytes[at..at + into.len()])))
    }

    /// Puts a whole payload into the stream. Returns 0 as long as it is under way, and then, once, its length.
    pub(crate) fn put_payload<L: Link>(
        &mut self,
        core: &mut Core<L>,
        peer: &mut Peer,
        payload: StreamPayload,
    ) -> Result<usize, StreamError> {
        let (mut cx, end, payloads) = self.live_parts(core, peer)?;
        match &end.tx.payload {
            Some(put) if put.payload != payload => return Err(StreamError::PutPending(cx.peer.id)),
            Some(PayloadPut { by: PutBy::Fetched(tail), .. }) => {
                return if end.tx.tail >= *tail { end_payload(end, payloads, payload) } else { Ok(0) };
            }
            Some(PayloadPut { by: PutBy::Copied(copied), .. }) => {
                let copied = *copied;
                return copy_payload(&mut cx, end, payloads, (payload, copied));
            }
            None => {}
        }
        let len = payloads.len(payload)?;
        if !end.is_open() || len == 0 {
            return Ok(0);
        }
        if cx.config.zero_copy.is_some_and(|threshold| len >= threshold) {
            return announce(&mut cx, end, payloads, (payload, len));
        }
        payloads.begin_put(payload)?;
        copy_payload(&mut cx, end, payloads, (payload, 0))
    }
}

/// Registers a payload and announces it.
fn announce<L: Link>(
    cx: &mut StreamContext<'_, L>,
    end: &mut StreamEnd,
    payloads: &mut Payloads,
    (payload, len): (StreamPayload, usize),
) -> Result<usize, StreamError> {
    if !end.has_room_for_announcement(cx) {
        cx.stats.ring_stalls += 1;
        return Ok(0);
    }
    let region = payloads.register(payload, cx.core, cx.stats)?;
    let Some(region) = region else { return Ok(0) };
    payloads.begin_put(payload)?;
    end.announce(cx, Announcement { rkey: region.rkey(), len: len as u64 });
    end.tx.payload = Some(PayloadPut { payload, by: PutBy::Fetched(end.tx.head) });
    cx.stats.tx_announcements += 1;
    cx.stats.tx_bytes += len as u64;
    Ok(0)
}

/// Copies what the ring has room for, beginning behind what is copied already.
fn copy_payload<L: Link>(
    cx: &mut StreamContext<'_, L>,
    end: &mut StreamEnd,
    payloads: &mut Payloads,
    (payload, copied): (StreamPayload, usize),
) -> Result<usize, StreamError> {
    let len = payloads.len(payload)?;
    let left = len - copied;
    let taken = match payloads.bytes(payload)? {
        Bytes::Buffer(buffer) => end.send(cx, left, |_, at, into| {
            buffer.copy_out(copied + at, into);
        }),
        Bytes::Region(region) => end.send(cx, left, |core, at, into| {
            let is_copied = core.engine.read_region(core.pd, region, copied + at, into);
            debug_assert!(is_copied.is_some(), "the region is as long as the payload");
        }),
    };
    end.tx.payload = Some(PayloadPut { payload, by: PutBy::Copied(copied + taken) });
    if copied + taken == len { end_payload(end, payloads, payload) } else { Ok(0) }
}

fn end_payload(end: &mut StreamEnd, payloads: &mut Payloads, payload: StreamPayload) -> Result<usize, StreamError> {
    end.tx.payload = None;
    payloads.end_put(payload);
    payloads.len(payload)
}

impl StreamEnd {
    /// Sends up to `len` bytes, which `fill` copies piece by piece from an offset on; returns how many.
    fn send<L: Link>(
        &mut self,
        cx: &mut StreamContext<'_, L>,
        len: usize,
        fill: impl Fn(&Core<L>, usize, &mut [u8]),
    ) -> usize {
        if !self.is_open() || self.must_wait(cx, len) {
            return 0;
        }
        let mut taken = 0;
        while taken < len {
            let Some(mut buffer) = self.take_staging(cx) else { break };
            let room = self.contiguous_room(cx);
            let part = room.min(len - taken);
            let data = cx.sizes.header;
            buffer.set_len(data + part);
            fill(cx.core, taken, &mut buffer[data..]);
            self.stage(cx, buffer, part);
            taken += part;
            if cx.config.pipelining {
                self.post_staged(cx, News::Data);
            }
        }
        self.post_staged(cx, News::Data);
        cx.stats.tx_bytes += taken as u64;
        taken
    }

    /// Without pipelining, a put that takes more than a piece waits until everything before it has arrived.
    fn must_wait<L: Link>(&self, cx: &mut StreamContext<'_, L>, len: usize) -> bool {
        let has_unacknowledged = self.tx.staging.len() < cx.sizes.slots;
        let waits = !cx.config.pipelining && len > cx.sizes.piece && has_unacknowledged;
        cx.stats.send_stalls += u64::from(waits);
        waits
    }

    /// A staging buffer, where the ring has room and the send queue a place for it.
    #[inline]
    fn take_staging<L: Link>(&mut self, cx: &mut StreamContext<'_, L>) -> Option<Buffer> {
        if self.tx.head - self.tx.tail >= cx.sizes.capacity {
            cx.stats.ring_stalls += 1;
            return None;
        }
        // Of what is staged each takes a place, and a receive where it brings its own news; else one head does.
        let staged = self.tx.staged.len();
        let has_place = if cx.config.piggyback {
            self.has_room(cx.peer, staged + 1, 0)
        } else {
            self.has_room(cx.peer, 1, staged + 1)
        };
        let buffer = if has_place { self.tx.staging.pop() } else { None };
        cx.stats.send_stalls += u64::from(buffer.is_none());
        buffer
    }

    /// How much can be written at the head in one piece.
    #[inline]
    fn contiguous_room<L: Link>(&self, cx: &StreamContext<'_, L>) -> usize {
        let (ring, piece) = (cx.config.ring, cx.sizes.piece);
        if cx.config.piggyback {
            return piece;
        }
        let free = ring - (self.tx.head - self.tx.tail) as usize;
        free.min(ring - self.tx.head_at).min(piece)
    }

    /// Notes a filled staging buffer of `part` bytes as the next thing to be written at the head.
    #[inline]
    fn stage<L: Link>(&mut self, cx: &mut StreamContext<'_, L>, mut buffer: Buffer, part: usize) {
        let (positions, bytes) = if cx.config.piggyback {
            let tail = self.take_tail(cx.stats);
            ChunkHeader { number: self.tx.head as u32, len: part as u32, tail }.emit(&mut buffer);
            (1, cx.config.chunk)
        } else {
            (part as u64, part)
        };
        self.tx.staged.push_back((buffer, self.tx.head_at as u64));
        self.tx.head += positions;
        assert!(self.tx.head - self.tx.tail <= cx.sizes.capacity, "the caller has seen to room");
        self.tx.head_at = wrapped(self.tx.head_at, bytes, cx.config.ring);
    }

    /// Writes what is staged, and the news of it.
    #[inline]
    fn post_staged<L: Link>(&mut self, cx: &mut StreamContext<'_, L>, news: News) {
        let Some(keys) = self.keys else { return };
        if self.tx.staged.is_empty() {
            return;
        }
        // With piggybacking each is a chunk, and positions are counted in chunks.
        let mut position = self.tx.head - self.tx.staged.len() as u64;
        while let Some((buffer, va)) = self.tx.staged.pop_front() {
            cx.stats.tx_data += 1;
            position += 1;
            let immediate = cx.config.piggyback.then(|| news.immediate(position));
            self.post_data(cx, (buffer, keys, va), immediate);
        }
        if !cx.config.piggyback {
            cx.stats.tx_heads += 1;
            self.post_word(cx, news, self.tx.head);
        }
    }

    fn has_room_for_announcement<L: Link>(&self, cx: &StreamContext<'_, L>) -> bool {
        let needed = if cx.config.piggyback { 1 } else { ANNOUNCEMENT as u64 };
        // Where the ring ends in the middle of it, it takes two buffers.
        self.tx.head - self.tx.tail + needed <= cx.sizes.capacity
            && self.tx.staging.len() >= 2
            && self.has_room(cx.peer, 1, 2)
    }

    /// Writes an announcement into the ring. The caller has seen to room for it.
    fn announce<L: Link>(&mut self, cx: &mut StreamContext<'_, L>, announcement: Announcement) {
        let bytes = announcement.emit();
        let mut written = 0;
        while written < bytes.len() {
            let Some(mut buffer) = self.tx.staging.pop() else { return };
            let part = self.contiguous_room(cx).min(bytes.len() - written);
            let data = cx.sizes.header;
            buffer.set_len(data + part);
            buffer[data..].copy_from_slice(&bytes[written..written + part]);
            self.stage(cx, buffer, part);
            written += part;
        }
        self.post_staged(cx, News::Announcement);
    }
}
