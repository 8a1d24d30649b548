//! What has arrived: messages of one or more packets, which become frames one by one, where they lie.
//!
//! A packet arrives without its headers, and a frame begins with them. The kernel puts the packets of a message behind each other, so
//! they are moved apart, the last one first, and each gets its headers in front of it.

use std::ops::Range;
use std::sync::Arc;

use arrayvec::ArrayVec;

use super::socket::{MESSAGES, RxMessage};
use super::tx_queue::MAX_HEADERS;

/// Packets of one message at most: the kernel gathers up to 64, and some day perhaps more.
const PACKETS: usize = 128;
/// The longest message.
const MESSAGE: usize = 65_535;
/// Bytes of a chunk: a message, and headers for each of its packets.
const CHUNK: usize = MESSAGE + PACKETS * MAX_HEADERS;

/// Memory that messages are received into. Its frames keep it, and it is used again once they are gone.
#[derive(Debug)]
pub(super) struct Chunk(Box<[u8]>);

/// A received frame.
#[derive(Debug)]
pub struct UdpFrame {
    chunk: Arc<Chunk>,
    range: Range<usize>,
}

impl AsRef<[u8]> for UdpFrame {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        &self.chunk.0[self.range.clone()]
    }
}

/// Messages whose packets are not all taken yet.
pub(super) struct RxQueue {
    /// How long headers are.
    headers: usize,
    chunks: Vec<Arc<Chunk>>,
    messages: ArrayVec<RxMessage, MESSAGES>,
    /// The message whose packets are taken, and the next of these.
    message: usize,
    packet: usize,
    /// Something came the last time.
    is_busy: bool,
}

/// A packet to be made a frame.
pub(super) struct BarePacket<'a> {
    pub(super) message: &'a RxMessage,
    /// Its place in its message.
    pub(super) place: usize,
    /// Room for the headers.
    pub(super) headers: &'a mut [u8],
    /// What follows them.
    pub(super) packet: &'a mut [u8],
}

impl RxQueue {
    pub(super) fn new(headers: usize) -> Self {
        let chunks = (0..MESSAGES).map(|_| Arc::new(Chunk::new())).collect();
        Self { headers, chunks, messages: ArrayVec::new(), message: 0, packet: 0, is_busy: false }
    }

    /// Whether all packets are taken.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.message == self.messages.len()
    }

    /// The memory that messages are to be received into: of one where nothing came the last time.
    #[inline]
    pub(super) fn room(&mut self) -> impl Iterator<Item = &mut [u8]> {
        debug_assert!(self.is_empty());
        let (headers, count) = (self.headers, if self.is_busy { MESSAGES } else { 1 });
        self.chunks[..count].iter_mut().map(move |chunk| {
            // Who keeps a frame keeps its chunk.
            if Arc::get_mut(chunk).is_none() {
                *chunk = Arc::new(Chunk::new());
            }
            &mut Arc::get_mut(chunk).expect("no frame keeps it").0[headers..][..MESSAGE]
        })
    }

    /// Nothing was received.
    #[inline]
    pub(super) fn fill_nothing(&mut self) {
        self.is_busy = false;
    }

    /// Takes what was received: `dress` writes the headers of each packet, before any is given away.
    #[inline]
    pub(super) fn fill(&mut self, messages: ArrayVec<RxMessage, MESSAGES>, mut dress: impl FnMut(BarePacket<'_>)) {
        self.is_busy = !messages.is_empty();
        (self.messages, self.message, self.packet) = (messages, 0, 0);
        for (message, chunk) in self.messages.iter().zip(&mut self.chunks) {
            let bytes = &mut Arc::get_mut(chunk).expect("no frame of it was made yet").0;
            let parts = Segments { headers: self.headers, message };
            parts.move_apart(bytes);
            for place in 0..parts.count() {
                let (headers, packet) = bytes[parts.range(place)].split_at_mut(self.headers);
                dress(BarePacket { message, place, headers, packet });
            }
        }
    }

    /// Takes the next frame.
    #[inline]
    pub(super) fn take(&mut self) -> Option<UdpFrame> {
        let message = self.messages.get(self.message)?;
        let parts = Segments { headers: self.headers, message };
        let frame = UdpFrame { chunk: self.chunks[self.message].clone(), range: parts.range(self.packet) };
        self.packet += 1;
        if self.packet == parts.count() {
            (self.message, self.packet) = (self.message + 1, 0);
        }
        Some(frame)
    }
}

/// How a message lies in its chunk: each packet behind room for its headers.
struct Segments<'a> {
    headers: usize,
    message: &'a RxMessage,
}

impl Segments<'_> {
    /// How long each packet is but the last.
    #[inline]
    fn segment(&self) -> usize {
        if self.message.segment == 0 { self.message.len } else { self.message.segment }
    }

    /// How many packets there are: one that is empty where nothing came but headers.
    #[inline]
    fn count(&self) -> usize {
        if self.message.len <= self.segment() { 1 } else { self.message.len.div_ceil(self.segment()).min(PACKETS) }
    }

    /// Where a frame lies.
    #[inline]
    fn range(&self, place: usize) -> Range<usize> {
        let start = place * (self.segment() + self.headers);
        let len = self.segment().min(self.message.len - place * self.segment());
        start..start + self.headers + len
    }

    /// Makes room for headers between the packets, which the kernel has put behind each other.
    #[inline]
    fn move_apart(&self, chunk: &mut [u8]) {
        for place in (1..self.count()).rev() {
            let Range { start, end } = self.range(place);
            let from = self.headers + place * self.segment();
            chunk.copy_within(from..from + (end - start - self.headers), start + self.headers);
        }
    }
}

impl Chunk {
    fn new() -> Self {
        Self(vec![0; CHUNK].into())
    }
}
