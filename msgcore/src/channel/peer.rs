//! One peer: its connection, the rings of both ways, and what is known of them here.

use std::collections::VecDeque;

use roci_driver::link::Link;
use roci_driver::{Access, Buffer, CompletionQueue, Engine, MemoryRegion, PdId, QueuePair, SendWr};

use super::config::{ChannelConfig, Sizes};
use super::error::{ChannelError, OpenError};
use super::payload::Payload;
use super::stats::ChannelStats;
use super::wire::{HELLO, Keys, News, WORD, hello};
use crate::Rank;
use crate::core::lane::SEND_QUEUE;

/// Receives posted to a peer. Every connection holds as many, and so many messages that take one may be under way.
pub(super) const RECEIVES: usize = 64;

/// Where the peer writes its head, and where the tail of what it has got.
pub(super) const HEAD_WORD: usize = 0;
pub(super) const TAIL_WORD: usize = WORD;
const WORDS: usize = 2 * WORD;

/// What a work request was, as its name says below the peer's rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum Work {
    Receive,
    Hello,
    /// A staging buffer, written to the peer's ring.
    Data,
    /// A head or a tail.
    Word,
    /// A part of a payload, or all of it.
    Read,
}

impl Work {
    pub(super) const fn name(self, rank: Rank) -> u64 {
        (rank as u64) << 8 | self as u64
    }

    /// The rank and the work of a name that was given here.
    pub(super) const fn parse(name: u64) -> (Rank, Option<Self>) {
        let work = match name as u8 {
            0 => Some(Self::Receive),
            1 => Some(Self::Hello),
            2 => Some(Self::Data),
            3 => Some(Self::Word),
            4 => Some(Self::Read),
            _ => None,
        };
        ((name >> 8) as Rank, work)
    }
}

/// What all peers share.
pub(super) struct Core<L: Link> {
    pub(super) engine: Engine<L>,
    pub(super) pd: PdId,
    pub(super) cq: CompletionQueue,
    pub(super) config: ChannelConfig,
    pub(super) sizes: Sizes,
    pub(super) stats: ChannelStats,
}

/// A peer, as this end sees it.
pub(super) struct Peer {
    pub(super) rank: Rank,
    pub(super) qp: QueuePair,
    /// The keys to its memory, once its first message has come.
    pub(super) keys: Option<Keys>,
    /// Why there is nothing more to it.
    pub(super) failure: Option<ChannelError>,
    pub(super) out: Outbound,
    pub(super) inn: Inbound,
    /// Work requests posted and not complete, and those of them that take one of the peer's receives.
    pub(super) in_flight: usize,
    pub(super) notices: usize,
    /// Buffers for heads and tails.
    pub(super) words: Vec<Buffer>,
}

/// The way to the peer.
pub(super) struct Outbound {
    /// What was written, and what the peer has got of it: bytes, or chunks where the ring is cut into them.
    pub(super) head: u64,
    pub(super) tail: u64,
    /// Where the head lies in the ring.
    pub(super) head_at: usize,
    /// The staging ring, in pieces: buffers move into work requests whole.
    pub(super) staging: Vec<Buffer>,
    /// Staging buffers that are filled and not yet posted, each with its address in the ring.
    pub(super) staged: VecDeque<(Buffer, u64)>,
    pub(super) lent: Option<Lent>,
}

/// A payload that is being put.
pub(super) struct Lent {
    pub(super) payload: Payload,
    pub(super) way: Way,
}

/// How a payload gets to the peer.
pub(super) enum Way {
    /// Through the ring; so much of it is copied.
    Copied(usize),
    /// By the peer's READ, which is done when the tail has passed this position.
    Fetched(u64),
}

/// The way from the peer.
pub(super) struct Inbound {
    pub(super) ring: MemoryRegion,
    pub(super) words: MemoryRegion,
    /// What has come, what was got, and what the peer knows of that.
    pub(super) head: u64,
    pub(super) tail: u64,
    pub(super) told: u64,
    /// Where the head lies in the ring and, where that is not cut into chunks, the tail.
    pub(super) head_at: usize,
    pub(super) tail_at: usize,
    /// The peer is to be told of the tail as soon as there is a place in the send queue.
    pub(super) is_due: bool,
    /// What has come and was not got, in order.
    pub(super) arrivals: VecDeque<Arrival>,
    pub(super) fetch: Fetch,
    /// Where parts of payloads are fetched to.
    pub(super) stage: Option<Buffer>,
}

/// Something in the pipe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Arrival {
    /// `left` bytes of the ring; in a ring of chunks from address `at` on.
    Bytes { at: usize, left: usize },
    /// A payload of which `left` bytes were not fetched.
    Payload { rkey: roci_driver::Rkey, len: u64, left: u64 },
}

/// A READ of a payload.
pub(super) enum Fetch {
    None,
    /// On its way into the application's buffer, which had `room` bytes.
    Direct {
        room: usize,
    },
    /// There.
    Done {
        buffer: Buffer,
        len: usize,
    },
    /// On its way into the staging buffer.
    Staging {
        len: usize,
    },
    /// In the staging buffer, and `copied` bytes of it are got.
    Staged {
        buffer: Buffer,
        copied: usize,
    },
}

/// The address in the ring that lies `by`, at most its length, behind `at`.
#[inline]
pub(super) const fn wrapped(at: usize, by: usize, ring: usize) -> usize {
    let sum = at + by;
    if sum >= ring { sum - ring } else { sum }
}

impl Peer {
    /// Makes rings and replicas, and posts the receives.
    pub(super) fn open<L: Link>(core: &mut Core<L>, rank: Rank, qp: QueuePair) -> Result<Self, OpenError> {
        let ChannelConfig { ring, chunk, zero_copy, .. } = core.config;
        let slots = core.sizes.slots;
        let mut register = |len| {
            let mut buffer = core.engine.buffer(len)?;
            buffer.fill(0);
            core.engine.register(core.pd, buffer, Access::REMOTE_WRITE).map_err(|_| OpenError::NoKey)
        };
        let (ring_region, words_region) = (register(ring)?, register(WORDS)?);
        let buffers = |count, len| (0..count).map(|_| core.engine.buffer(len)).collect::<Result<Vec<_>, _>>();
        let (staging, words, receives) = (buffers(slots, chunk)?, buffers(RECEIVES, WORD)?, buffers(RECEIVES, HELLO)?);
        let stage = zero_copy.map(|_| core.engine.buffer(ring)).transpose()?;
        for buffer in receives {
            let posted = core.engine.post_recv(qp, Work::Receive.name(rank), buffer);
            posted.map_err(|refused| OpenError::Post(rank, refused.reason))?;
        }
        let staged = VecDeque::with_capacity(slots);
        let out = Outbound { head: 0, tail: 0, head_at: 0, staging, staged, lent: None };
        let inn = Inbound {
            ring: ring_region,
            words: words_region,
            head: 0,
            tail: 0,
            told: 0,
            head_at: 0,
            tail_at: 0,
            is_due: false,
            arrivals: VecDeque::with_capacity(slots),
            fetch: Fetch::None,
            stage,
        };
        Ok(Self { rank, qp, keys: None, failure: None, out, inn, in_flight: 0, notices: 0, words })
    }

    /// Tells the peer how this end works, and the keys to its memory.
    pub(super) fn say_hello<L: Link>(&mut self, core: &mut Core<L>) -> Result<(), OpenError> {
        let keys = Keys { ring: self.inn.ring.rkey(), words: self.inn.words.rkey() };
        let mut buffer = core.engine.buffer(HELLO)?;
        buffer.copy_from_slice(&hello(&core.config, keys));
        let send = SendWr::send(Work::Hello.name(self.rank), buffer);
        core.engine.post_send(self.qp, send).map_err(|refused| OpenError::Post(self.rank, refused.reason))?;
        self.in_flight += 1;
        self.notices += 1;
        Ok(())
    }

    /// Whether one more message that takes a receive can be posted, and `others` that take none before it.
    ///
    /// A message is under way until it is acknowledged. The peer posts its receive again in the very call that
    /// polled it in, so the receives that are not posted belong to messages that it has not yet acknowledged: as
    /// long as those are no more than there are receives, it never runs out of them.
    #[inline]
    pub(super) fn has_place(&self, notices: usize, others: usize) -> bool {
        self.notices + notices <= RECEIVES && self.in_flight + notices + others <= SEND_QUEUE
    }

    /// Posts to the send queue. Where it is refused the queue pair has failed, and its receives say so.
    #[inline]
    pub(super) fn post<L: Link>(&mut self, core: &mut Core<L>, wr: SendWr, takes_receive: bool) {
        if core.engine.post_send(self.qp, wr).is_ok() {
            self.in_flight += 1;
            self.notices += usize::from(takes_receive);
        }
    }

    /// Writes a head or a tail to the peer's replica, with the news of it. The caller has seen to a place.
    pub(super) fn post_word<L: Link>(&mut self, core: &mut Core<L>, news: News, position: u64) {
        let (Some(mut buffer), Some(keys)) = (self.words.pop(), self.keys) else { return };
        buffer.set_len(WORD);
        buffer.copy_from_slice(&position.to_le_bytes());
        let va = if news == News::Tail { TAIL_WORD } else { HEAD_WORD };
        let write = SendWr::write(Work::Word.name(self.rank), buffer, keys.words, va as u64);
        self.post(core, write.with_imm(news.immediate(position)), true);
    }

    /// Tells the peer of the tail if it has moved far enough, or at all where somebody waits for it.
    pub(super) fn tell_tail<L: Link>(&mut self, core: &mut Core<L>, is_urgent: bool) {
        let untold = self.inn.tail - self.inn.told;
        let is_due = untold >= core.sizes.patience || (untold > 0 && (is_urgent || self.inn.is_due));
        if !is_due || self.failure.is_some() {
            return;
        }
        // A completed send tries again.
        self.inn.is_due = !self.has_place(1, 0);
        if !self.inn.is_due {
            core.stats.tx_tails += 1;
            self.inn.told = self.inn.tail;
            self.post_word(core, News::Tail, self.inn.tail);
        }
    }

    /// What the next chunk's header says of the way back.
    #[inline]
    pub(super) fn take_tail(&mut self, stats: &mut ChannelStats) -> u64 {
        stats.tx_tails_piggybacked += u64::from(self.inn.told != self.inn.tail);
        self.inn.told = self.inn.tail;
        self.inn.is_due = false;
        self.inn.tail
    }

    /// Whether everything that was put is in the peer's memory.
    pub(super) fn is_flushed(&self) -> bool {
        self.keys.is_some() && self.in_flight == 0 && self.out.lent.is_none()
    }

    /// Whether nothing of ours is under way to the peer, or ever will arrive. What a put has not taken is none of it.
    pub(super) fn is_quiet(&self) -> bool {
        let is_awaited = match self.out.lent {
            Some(Lent { way: Way::Fetched(end), .. }) => self.out.tail < end,
            _ => false,
        };
        self.failure.is_some() || (self.keys.is_some() && self.in_flight == 0 && !is_awaited)
    }
}
