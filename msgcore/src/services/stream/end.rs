//! One end of a stream: the ring into which the peer writes, what is known of the peer's ring, and what is under way.

use std::collections::VecDeque;
use std::mem;

use roci_driver::link::Link;
use roci_driver::{Access, Buffer, MemoryRegion, Rkey, SendWr};

use super::config::{Sizes, StreamConfig};
use super::error::StreamError;
use super::payload::StreamPayload;
use super::stats::StreamStats;
use super::wire::{News, StreamKeys, StreamOffer, WORD};
use crate::core::Core;
use crate::core::peer::{Peer, PeerId};
use crate::core::tx::{stream_work, stream_work_kind};

/// WRITEs that use up a receive of the peer's and are not acknowledged, of one stream at most.
const NOTICES: usize = 64;

/// Where the peer writes its head, and where the tail of what it has got.
pub(super) const HEAD_WORD: usize = 0;
pub(super) const TAIL_WORD: usize = WORD;
const WORDS: usize = 2 * WORD;

/// What a work request is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum StreamWork {
    /// A staging buffer, written to the peer's ring.
    Data,
    /// A head or a tail.
    Word,
    /// A part of a payload, or all of it.
    Read,
}

impl StreamWork {
    fn name(self, peer: PeerId) -> u64 {
        stream_work(peer, self as u8)
    }

    /// Returns what a work request of this name is for; none where it is another service's.
    #[inline]
    pub(super) fn of(name: u64) -> Option<Self> {
        const DATA: u8 = StreamWork::Data as u8;
        const WORD: u8 = StreamWork::Word as u8;
        const READ: u8 = StreamWork::Read as u8;
        match stream_work_kind(name)? {
            DATA => Some(Self::Data),
            WORD => Some(Self::Word),
            READ => Some(Self::Read),
            _ => None,
        }
    }
}

/// What a stream works with: the core, its peer, and what all streams share.
pub(super) struct StreamContext<'a, L: Link> {
    pub(super) core: &'a mut Core<L>,
    pub(super) peer: &'a mut Peer,
    pub(super) config: &'a StreamConfig,
    pub(super) sizes: &'a Sizes,
    pub(super) stats: &'a mut StreamStats,
}

/// One end of a stream.
pub(super) struct StreamEnd {
    /// The peer knows of this end.
    pub(super) is_offered: bool,
    /// The keys to the peer's memory, once it has offered its end.
    pub(super) keys: Option<StreamKeys>,
    /// Why nothing more is sent or comes.
    pub(super) failure: Option<StreamError>,
    pub(super) tx: StreamTx,
    pub(super) rx: StreamRx,
    /// Work requests posted and not complete, and those of them that use up a receive of the peer's.
    pub(super) in_flight: usize,
    pub(super) notices: usize,
    /// Buffers for heads and tails.
    words: Vec<Buffer>,
}

/// What goes to the peer.
pub(super) struct StreamTx {
    /// What was written, and what the peer has got of it: bytes, or chunks where the ring is cut into them.
    pub(super) head: u64,
    pub(super) tail: u64,
    /// Where the head lies in the ring.
    pub(super) head_at: usize,
    /// The staging ring, in pieces: buffers move into work requests whole.
    pub(super) staging: Vec<Buffer>,
    /// Staging buffers that are filled and not yet posted, each with its address in the ring.
    pub(super) staged: VecDeque<(Buffer, u64)>,
    pub(super) payload: Option<PayloadPut>,
}

/// A payload that is being put.
pub(super) struct PayloadPut {
    pub(super) payload: StreamPayload,
    pub(super) by: PutBy,
}

/// How a payload gets to the peer.
pub(super) enum PutBy {
    /// Through the ring; so much of it is copied.
    Copied(usize),
    /// By the peer's READ, which is done when the tail has passed this position.
    Fetched(u64),
}

/// What comes from the peer.
pub(super) struct StreamRx {
    pub(super) ring: MemoryRegion,
    pub(super) words: MemoryRegion,
    /// What has come, what was got, and what was reported to the peer of that.
    pub(super) head: u64,
    pub(super) tail: u64,
    pub(super) reported: u64,
    /// Where the head lies in the ring and, where that is not cut into chunks, the tail.
    pub(super) head_at: usize,
    pub(super) tail_at: usize,
    /// The tail is to be reported as soon as there is room for that.
    pub(super) is_due: bool,
    /// What has come and was not got, in order.
    pub(super) unread: VecDeque<Unread>,
    pub(super) read: PayloadRead,
    /// Where parts of payloads are read to.
    pub(super) stage: Option<Buffer>,
}

/// Something that has come and was not got.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Unread {
    /// `left` bytes of the ring; in a ring of chunks from address `at` on.
    Bytes { at: usize, left: usize },
    /// A payload of which `left` bytes were not read.
    Payload { rkey: Rkey, len: u64, left: u64 },
}

/// A READ of a payload.
pub(super) enum PayloadRead {
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

/// Returns the address in the ring that lies `by`, at most its length, behind `at`.
#[inline]
pub(super) const fn wrapped(at: usize, by: usize, ring: usize) -> usize {
    let sum = at + by;
    if sum >= ring { sum - ring } else { sum }
}

impl StreamEnd {
    /// Makes the rings of an end.
    ///
    /// # Errors
    /// There is no memory, or no key.
    pub(super) fn new<L: Link>(core: &mut Core<L>, config: &StreamConfig, sizes: &Sizes) -> Result<Self, StreamError> {
        let buffers =
            |core: &Core<L>, count, len| (0..count).map(|_| core.engine.buffer(len)).collect::<Result<Vec<_>, _>>();
        let (staging, words) = (buffers(core, sizes.slots, config.chunk)?, buffers(core, NOTICES, WORD)?);
        let stage = config.zero_copy.map(|_| core.engine.buffer(config.ring)).transpose()?;
        let ring = register(core, config.ring)?;
        let words_region = match register(core, WORDS) {
            Ok(region) => region,
            Err(error) => {
                drop(core.engine.deregister(ring));
                return Err(error);
            }
        };
        let staged = VecDeque::with_capacity(sizes.slots);
        let tx = StreamTx { head: 0, tail: 0, head_at: 0, staging, staged, payload: None };
        let rx = StreamRx {
            ring,
            words: words_region,
            head: 0,
            tail: 0,
            reported: 0,
            head_at: 0,
            tail_at: 0,
            is_due: false,
            unread: VecDeque::with_capacity(sizes.slots),
            read: PayloadRead::None,
            stage,
        };
        Ok(Self { is_offered: false, keys: None, failure: None, tx, rx, in_flight: 0, notices: 0, words })
    }

    /// Takes the peer's offer, which must be of the same configuration.
    pub(super) fn accept(&mut self, peer: PeerId, offer: StreamOffer, ours: &StreamConfig) {
        if offer.config == *ours {
            self.keys = Some(offer.keys);
        } else if self.failure.is_none() {
            // The connection stays: the peer finds the same when it has our offer.
            let (theirs, ours) = (Box::new(offer.config), Box::new(*ours));
            self.failure = Some(StreamError::OtherConfig { peer, theirs, ours });
        }
    }

    /// Returns what the peer must know of this end.
    pub(super) fn offer(&self, config: &StreamConfig) -> StreamOffer {
        let keys = StreamKeys { ring: self.rx.ring.rkey(), words: self.rx.words.rkey() };
        StreamOffer { config: *config, keys }
    }

    /// Whether puts can take something.
    #[inline]
    pub(super) fn is_open(&self) -> bool {
        self.is_offered && self.keys.is_some() && self.failure.is_none()
    }

    /// Whether so many more WRITEs that use up a receive of the peer's can be posted, and `others` that use up none before
    /// them.
    #[inline]
    pub(super) fn has_room(&self, peer: &Peer, notices: usize, others: usize) -> bool {
        self.notices + notices <= NOTICES && peer.has_room_for_work(notices + others, notices, false)
    }

    /// Whether a tail can be reported by itself.
    fn has_room_for_tail(&self, peer: &Peer) -> bool {
        self.notices < NOTICES && peer.has_room_for_work(1, 1, true)
    }

    /// Posts to the send queue. Where it is refused the queue pair has failed, and its completions say so.
    #[inline]
    pub(super) fn post<L: Link>(&mut self, cx: &mut StreamContext<'_, L>, wr: SendWr, uses_receive: bool) {
        if cx.core.post_work(cx.peer, wr, uses_receive).is_ok() {
            self.in_flight += 1;
            self.notices += usize::from(uses_receive);
        }
    }

    /// Writes a staging buffer to the peer's ring, with news of it where the ring is cut into chunks.
    #[inline]
    pub(super) fn post_data<L: Link>(
        &mut self,
        cx: &mut StreamContext<'_, L>,
        (buffer, keys, va): (Buffer, StreamKeys, u64),
        immediate: Option<u32>,
    ) {
        let write = SendWr::write(StreamWork::Data.name(cx.peer.id), buffer, keys.ring, va);
        match immediate {
            Some(immediate) => self.post(cx, write.with_imm(immediate), true),
            None => self.post(cx, write, false),
        }
    }

    /// Posts a READ from the peer's memory; hands the buffer back where the queue pair has failed.
    pub(super) fn post_read<L: Link>(
        &mut self,
        cx: &mut StreamContext<'_, L>,
        buffer: Buffer,
        (rkey, va): (Rkey, u64),
    ) -> Result<(), Buffer> {
        let len = buffer.len();
        let read = SendWr::read(StreamWork::Read.name(cx.peer.id), buffer, rkey, va);
        cx.core.post_work(cx.peer, read, false)?;
        cx.peer.tx.transfers.begin(len);
        self.in_flight += 1;
        Ok(())
    }

    /// Writes a head or a tail to the peer's replica, with the news of it. The caller has seen to room.
    pub(super) fn post_word<L: Link>(&mut self, cx: &mut StreamContext<'_, L>, news: News, position: u64) {
        let (Some(mut buffer), Some(keys)) = (self.words.pop(), self.keys) else { return };
        buffer.set_len(WORD);
        buffer.copy_from_slice(&position.to_le_bytes());
        let va = if news == News::Tail { TAIL_WORD } else { HEAD_WORD };
        let write = SendWr::write(StreamWork::Word.name(cx.peer.id), buffer, keys.words, va as u64);
        self.post(cx, write.with_imm(news.immediate(position)), true);
    }

    /// Reports the tail to the peer if it has moved far enough, or at all where the peer waits for it.
    pub(super) fn report_tail<L: Link>(&mut self, cx: &mut StreamContext<'_, L>, is_urgent: bool) {
        assert!(self.rx.reported <= self.rx.tail && self.rx.tail <= self.rx.head, "what was got has come");
        let unreported = self.rx.tail - self.rx.reported;
        let is_due = unreported >= cx.sizes.patience || (unreported > 0 && (is_urgent || self.rx.is_due));
        if !is_due || self.failure.is_some() {
            return;
        }
        self.rx.is_due = !self.has_room_for_tail(cx.peer);
        if self.rx.is_due {
            // What makes room calls again.
            cx.peer.tx.stream_waits = true;
            return;
        }
        cx.stats.tx_tails += 1;
        self.rx.reported = self.rx.tail;
        self.post_word(cx, News::Tail, self.rx.tail);
    }

    /// Returns the tail for the next chunk's header, which reports it.
    #[inline]
    pub(super) fn take_tail(&mut self, stats: &mut StreamStats) -> u64 {
        stats.tx_tails_piggybacked += u64::from(self.rx.reported != self.rx.tail);
        self.rx.reported = self.rx.tail;
        self.rx.is_due = false;
        self.rx.tail
    }

    /// A work request is over: its buffer is free, and its room.
    #[inline]
    pub(super) fn on_work_done<L: Link>(
        &mut self,
        cx: &mut StreamContext<'_, L>,
        work: StreamWork,
        buffer: Buffer,
        has_worked: bool,
    ) {
        let uses_receive = match work {
            StreamWork::Data => cx.config.piggyback,
            StreamWork::Word => true,
            StreamWork::Read => false,
        };
        assert!(self.in_flight > 0 && self.notices >= usize::from(uses_receive), "a work request ends once");
        self.in_flight -= 1;
        self.notices -= usize::from(uses_receive);
        match work {
            StreamWork::Data => self.tx.staging.push(buffer),
            StreamWork::Word => self.words.push(buffer),
            StreamWork::Read => {
                if cx.peer.failure.is_none() {
                    cx.peer.tx.transfers.end(buffer.len());
                }
                self.on_read(cx, buffer, has_worked);
            }
        }
    }

    /// Whether everything that was put is in the peer's memory.
    pub(super) fn is_flushed(&self) -> bool {
        self.keys.is_some() && self.in_flight == 0 && self.tx.payload.is_none()
    }

    /// Whether what is known of both rings fits them.
    pub(super) fn is_sound(&self, sizes: &Sizes) -> bool {
        let tx = self.tx.tail <= self.tx.head && self.tx.head - self.tx.tail <= sizes.capacity;
        let rx = self.rx.reported <= self.rx.tail && self.rx.tail <= self.rx.head;
        tx && rx && self.rx.head - self.rx.tail <= sizes.capacity && self.notices <= NOTICES.min(self.in_flight)
    }
}

impl StreamRx {
    /// Whether a payload is on its way into a buffer of the application's, or there.
    pub(super) fn is_reading_for_application(&self) -> bool {
        matches!(self.read, PayloadRead::Direct { .. } | PayloadRead::Done { .. })
    }

    /// Returns the application's buffer, and how much was read into it, once that is over.
    pub(super) fn take_done(&mut self) -> Option<(Buffer, usize)> {
        match mem::replace(&mut self.read, PayloadRead::None) {
            PayloadRead::Done { buffer, len } => Some((buffer, len)),
            other => {
                self.read = other;
                None
            }
        }
    }
}

/// Opens memory of so many bytes, all 0, to the peer's WRITEs.
fn register<L: Link>(core: &mut Core<L>, len: usize) -> Result<MemoryRegion, StreamError> {
    let mut buffer = core.engine.buffer(len)?;
    buffer.fill(0);
    core.engine.register(core.pd, buffer, Access::REMOTE_WRITE).map_err(|_| StreamError::NoKey)
}
