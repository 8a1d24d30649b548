//! The sending half: copies into staging buffers, and writes them into the peer's ring.

use roci_driver::link::Link;
use roci_driver::{Buffer, Engine, SendWr};

use super::Channel;
use super::error::ChannelError;
use super::payload::{Payload, Payloads, Place};
use super::peer::{Core, Lent, Peer, Way, Work, wrapped};
use super::wire::{ANNOUNCEMENT, Announcement, Header, News};
use crate::Rank;

impl<L: Link> Channel<L> {
    /// Puts bytes into the pipe to rank `to`, as many as there is room for now, and returns how many those are.
    /// Makes progress where there is room for none.
    pub fn put(&mut self, to: Rank, bytes: &[u8]) -> Result<usize, ChannelError> {
        let taken = self.put_now(to, bytes)?;
        if taken > 0 || bytes.is_empty() {
            return Ok(taken);
        }
        self.progress();
        self.put_now(to, bytes)
    }

    fn put_now(&mut self, to: Rank, bytes: &[u8]) -> Result<usize, ChannelError> {
        let (core, peer) = self.core_and_peer(to)?;
        if peer.out.lent.is_some() {
            return Err(ChannelError::PutPending(to));
        }
        Ok(peer.send(core, bytes.len(), |_, at, into| into.copy_from_slice(&bytes[at..at + into.len()])))
    }

    /// Puts a whole payload into the pipe to rank `to`. Answers 0 as long as it is under way, and then, once, its
    /// length: so the call is repeated until then. Meanwhile nothing else can be put to this peer, and the payload
    /// can neither be written nor released.
    ///
    /// From the threshold on the peer fetches it from where it is; below, or where zero-copy is off, it is copied
    /// through the ring. An empty payload is never under way.
    pub fn put_payload(&mut self, to: Rank, payload: Payload) -> Result<usize, ChannelError> {
        let len = self.put_payload_now(to, payload)?;
        if len > 0 {
            return Ok(len);
        }
        self.progress();
        self.put_payload_now(to, payload)
    }

    fn put_payload_now(&mut self, to: Rank, payload: Payload) -> Result<usize, ChannelError> {
        let peer = self.live_peer(to)?;
        match &peer.out.lent {
            Some(lent) if lent.payload != payload => return Err(ChannelError::PutPending(to)),
            Some(Lent { way: Way::Fetched(end), .. }) => {
                let is_over = peer.out.tail >= *end;
                return if is_over { self.end_payload(to, payload) } else { Ok(0) };
            }
            Some(Lent { way: Way::Copied(copied), .. }) => {
                let copied = *copied;
                return self.copy_payload(to, payload, copied);
            }
            None => {}
        }
        let len = self.payloads.len(payload)?;
        if self.live_peer(to)?.keys.is_none() || len == 0 {
            return Ok(0);
        }
        if self.core.config.zero_copy.is_some_and(|threshold| len >= threshold) {
            return self.announce(to, payload, len);
        }
        self.copy_payload(to, payload, 0)
    }

    /// Registers a payload and announces it.
    fn announce(&mut self, to: Rank, payload: Payload, len: usize) -> Result<usize, ChannelError> {
        let (core, peer, payloads) = self.parts(to)?;
        if !peer.has_room_for_announcement(core) {
            core.stats.ring_stalls += 1;
            return Ok(0);
        }
        let region = payloads.register(payload, &mut core.engine, core.pd, &mut core.stats)?;
        let Some(region) = region else { return Ok(0) };
        payloads.begin_put(payload)?;
        peer.announce(core, Announcement { rkey: region.rkey(), len: len as u64 });
        peer.out.lent = Some(Lent { payload, way: Way::Fetched(peer.out.head) });
        core.stats.tx_announcements += 1;
        core.stats.tx_bytes += len as u64;
        Ok(0)
    }

    /// Copies what the ring has room for, beginning behind what is copied already.
    fn copy_payload(&mut self, to: Rank, payload: Payload, copied: usize) -> Result<usize, ChannelError> {
        let (core, peer, payloads) = self.parts(to)?;
        let len = payloads.len(payload)?;
        if copied == 0 && peer.out.lent.is_none() {
            payloads.begin_put(payload)?;
        }
        let taken = send_payload(core, peer, payloads, payload, copied)?;
        peer.out.lent = Some(Lent { payload, way: Way::Copied(copied + taken) });
        if copied + taken == len { self.end_payload(to, payload) } else { Ok(0) }
    }

    fn end_payload(&mut self, to: Rank, payload: Payload) -> Result<usize, ChannelError> {
        let (_, peer, payloads) = self.parts(to)?;
        peer.out.lent = None;
        payloads.end_put(payload);
        payloads.len(payload)
    }
}

fn send_payload<L: Link>(
    core: &mut Core<L>,
    peer: &mut Peer,
    payloads: &Payloads,
    payload: Payload,
    from: usize,
) -> Result<usize, ChannelError> {
    let left = payloads.len(payload)? - from;
    Ok(match payloads.place(payload)? {
        Place::Buffer(buffer) => peer.send(core, left, |_, at, into| {
            into.copy_from_slice(&buffer[from + at..from + at + into.len()]);
        }),
        Place::Region(region) => {
            let pd = core.pd;
            peer.send(core, left, |engine: &Engine<L>, at, into| {
                let copied = engine.read_region(pd, region, from + at, into);
                debug_assert!(copied.is_some(), "the region is as long as the payload");
            })
        }
    })
}

impl Peer {
    /// Sends up to `len` bytes, which `fill` copies piece by piece from an offset on; returns how many.
    fn send<L: Link>(&mut self, core: &mut Core<L>, len: usize, fill: impl Fn(&Engine<L>, usize, &mut [u8])) -> usize {
        if self.keys.is_none() || self.must_wait(core, len) {
            return 0;
        }
        let mut taken = 0;
        while taken < len {
            let Some(mut buffer) = self.take_staging(core) else { break };
            let room = self.contiguous_room(core);
            let part = room.min(len - taken);
            let data = core.sizes.header;
            buffer.set_len(data + part);
            fill(&core.engine, taken, &mut buffer[data..]);
            self.stage(core, buffer, part);
            taken += part;
            if core.config.pipelining {
                self.post_staged(core, News::Data);
            }
        }
        self.post_staged(core, News::Data);
        core.stats.tx_bytes += taken as u64;
        taken
    }

    /// Without pipelining, a put that takes more than a piece waits until everything before it has arrived.
    fn must_wait<L: Link>(&self, core: &mut Core<L>, len: usize) -> bool {
        let has_unacknowledged = self.out.staging.len() < core.sizes.slots;
        let waits = !core.config.pipelining && len > core.sizes.piece && has_unacknowledged;
        core.stats.send_stalls += u64::from(waits);
        waits
    }

    /// A staging buffer, where the ring has room and the send queue a place for it.
    #[inline]
    fn take_staging<L: Link>(&mut self, core: &mut Core<L>) -> Option<Buffer> {
        if self.out.head - self.out.tail >= core.sizes.capacity {
            core.stats.ring_stalls += 1;
            return None;
        }
        // Of what is staged each takes a place, and a receive where it brings its own news; else one head does.
        let staged = self.out.staged.len();
        let has_place =
            if core.config.piggyback { self.has_place(staged + 1, 0) } else { self.has_place(1, staged + 1) };
        let buffer = if has_place { self.out.staging.pop() } else { None };
        core.stats.send_stalls += u64::from(buffer.is_none());
        buffer
    }

    /// How much can be written at the head in one piece.
    #[inline]
    fn contiguous_room<L: Link>(&self, core: &Core<L>) -> usize {
        let (ring, piece) = (core.config.ring, core.sizes.piece);
        if core.config.piggyback {
            return piece;
        }
        let free = ring - (self.out.head - self.out.tail) as usize;
        free.min(ring - self.out.head_at).min(piece)
    }

    /// Notes a filled staging buffer of `part` bytes as the next thing to be written at the head.
    #[inline]
    fn stage<L: Link>(&mut self, core: &mut Core<L>, mut buffer: Buffer, part: usize) {
        let (positions, bytes) = if core.config.piggyback {
            let tail = self.take_tail(&mut core.stats);
            Header { number: self.out.head as u32, len: part as u32, tail }.emit(&mut buffer);
            (1, core.config.chunk)
        } else {
            (part as u64, part)
        };
        self.out.staged.push_back((buffer, self.out.head_at as u64));
        self.out.head += positions;
        self.out.head_at = wrapped(self.out.head_at, bytes, core.config.ring);
    }

    /// Writes what is staged, and the news of it.
    #[inline]
    fn post_staged<L: Link>(&mut self, core: &mut Core<L>, news: News) {
        let Some(keys) = self.keys else { return };
        if self.out.staged.is_empty() {
            return;
        }
        // With piggybacking each is a chunk, and positions are counted in chunks.
        let mut position = self.out.head - self.out.staged.len() as u64;
        while let Some((buffer, va)) = self.out.staged.pop_front() {
            core.stats.tx_data += 1;
            let write = SendWr::write(Work::Data.name(self.rank), buffer, keys.ring, va);
            if core.config.piggyback {
                position += 1;
                self.post(core, write.with_imm(news.immediate(position)), true);
            } else {
                self.post(core, write, false);
            }
        }
        if !core.config.piggyback {
            core.stats.tx_heads += 1;
            self.post_word(core, news, self.out.head);
        }
    }

    fn has_room_for_announcement<L: Link>(&self, core: &Core<L>) -> bool {
        let needed = if core.config.piggyback { 1 } else { ANNOUNCEMENT as u64 };
        // Where the ring ends in the middle of it, it takes two buffers.
        self.out.head - self.out.tail + needed <= core.sizes.capacity
            && self.out.staging.len() >= 2
            && self.has_place(1, 2)
    }

    /// Writes an announcement into the ring. The caller has seen to room for it.
    fn announce<L: Link>(&mut self, core: &mut Core<L>, announcement: Announcement) {
        let bytes = announcement.emit();
        let mut written = 0;
        while written < bytes.len() {
            let Some(mut buffer) = self.out.staging.pop() else { return };
            let part = self.contiguous_room(core).min(bytes.len() - written);
            let data = core.sizes.header;
            buffer.set_len(data + part);
            buffer[data..].copy_from_slice(&bytes[written..written + part]);
            self.stage(core, buffer, part);
            written += part;
        }
        self.post_staged(core, News::Announcement);
    }
}
