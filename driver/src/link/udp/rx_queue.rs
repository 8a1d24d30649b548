//! What has arrived: messages of one or more packets, which become frames one by one, where they lie.
//!
//! A packet arrives without its headers, and a frame begins with them. The packets of a train are mostly as long as those of the one
//! before: where they are long, the kernel leaves room for headers between them ([`RxRoom`]). All others are moved apart.

use std::ops::Range;
use std::sync::Arc;

use arrayvec::ArrayVec;

use super::rx_room::{MESSAGE, RxRoom};
use super::socket::{MESSAGES, RxMessage};
use super::train_length::TrainLength;
use super::tx_queue::MAX_HEADERS;

/// Packets of one message at most: the kernel gathers up to 64, and some day perhaps more.
const PACKETS: usize = 128;
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
    /// How the next messages are laid out.
    trains: TrainLength,
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
        let trains = TrainLength::default();
        Self { headers, chunks, trains, messages: ArrayVec::new(), message: 0, packet: 0, is_busy: false }
    }

    /// Whether all packets are taken.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.message == self.messages.len()
    }

    /// The memory that messages are to be received into: of one where nothing came the last time.
    #[inline]
    pub(super) fn room(&mut self) -> impl Iterator<Item = RxRoom<'_>> {
        debug_assert!(self.is_empty());
        let (headers, spread) = (self.headers, self.trains.foreseen());
        let count = if self.is_busy { MESSAGES } else { 1 };
        self.chunks[..count].iter_mut().map(move |chunk| {
            // Who keeps a frame keeps its chunk.
            if Arc::get_mut(chunk).is_none() {
                *chunk = Arc::new(Chunk::new());
            }
            let bytes = &mut Arc::get_mut(chunk).expect("no frame keeps it").0;
            RxRoom::new(&mut bytes[headers..], headers, spread)
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
        self.trains.note(&messages);
        (self.messages, self.message, self.packet) = (messages, 0, 0);
        for (message, chunk) in self.messages.iter().zip(&mut self.chunks) {
            let bytes = &mut Arc::get_mut(chunk).expect("no frame of it was made yet").0;
            let parts = Segments { headers: self.headers, message };
            parts.arrange(bytes);
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

    /// Moves each packet to its place, where it was not received there.
    #[inline]
    fn arrange(&self, chunk: &mut [u8]) {
        if self.message.spread == self.segment() {
            return;
        }
        if self.message.spread > 0 {
            self.move_together(chunk);
        }
        self.move_apart(chunk);
    }

    /// Closes the gaps that were left for packets of another length.
    #[cold]
    fn move_together(&self, chunk: &mut [u8]) {
        let RxMessage { len, spread, .. } = *self.message;
        for (place, start) in (0..len).step_by(spread).enumerate().skip(1) {
            let end = len.min(start + spread);
            let gaps = (place + 1) * self.headers;
            chunk.copy_within(start + gaps..end + gaps, start + self.headers);
        }
    }

    /// Makes room for headers between the packets, which lie behind each other: the last one is moved first.
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HEADERS: usize = 42;

    /// What the kernel does: puts a message's bytes into the pieces of its room, one after the other.
    fn receive(queue: &mut RxQueue, bytes: &[u8], segment: usize) -> RxMessage {
        let mut left = bytes;
        let room = queue.room().next().expect("room for one");
        let spread = room.spread();
        for piece in room.pieces() {
            let (here, rest) = left.split_at(left.len().min(piece.len()));
            piece[..here.len()].copy_from_slice(here);
            left = rest;
        }
        assert!(left.is_empty(), "a message has room");
        RxMessage { from: ([127, 0, 0, 1], 1).into(), len: bytes.len(), segment, spread, traffic_class: 0 }
    }

    /// The packets that a queue makes of a message, which has come as it is.
    fn packets_of(queue: &mut RxQueue, message: RxMessage) -> Vec<Vec<u8>> {
        queue.fill([message].into_iter().collect(), |packet| packet.headers.fill(0xee));
        let frames = std::iter::from_fn(|| queue.take());
        frames
            .map(|frame| {
                let (headers, packet) = frame.as_ref().split_at(HEADERS);
                assert_eq!(headers, [0xee; HEADERS]);
                packet.to_vec()
            })
            .collect()
    }

    fn pattern(len: usize, seed: usize) -> Vec<u8> {
        (0..len).map(|at| ((at * 7 + (at >> 8) + seed) % 251) as u8).collect()
    }

    proptest! {
        #[test]
        fn packets_are_those_that_came_however_long_the_ones_before_were(
            trains in prop::collection::vec((prop_oneof![1..2_000usize, 4_000..10_000usize], 1..=MESSAGE), 1..20),
        ) {
            let mut queue = RxQueue::new(HEADERS);
            for (seed, (segment, len)) in trains.into_iter().enumerate() {
                let len = len.min(segment * PACKETS);
                let bytes = pattern(len, seed);
                let message = receive(&mut queue, &bytes, segment);
                let packets = packets_of(&mut queue, message);
                prop_assert!(packets == bytes.chunks(segment).collect::<Vec<_>>(), "{len} bytes by {segment}");
            }
        }
    }

    #[test]
    fn a_train_of_other_packets_than_were_foreseen_is_put_right() {
        let mut queue = RxQueue::new(HEADERS);
        for segment in [8_000, 8_000, 5_000, 100, 8_000, 60_000, 60_000, 1_000, 8_000, MESSAGE] {
            let bytes = pattern(MESSAGE.min(segment * 1_000), segment);
            let message = receive(&mut queue, &bytes, segment);
            let packets = packets_of(&mut queue, message);
            assert!(packets == bytes.chunks(segment).take(PACKETS).collect::<Vec<_>>(), "packets of {segment} bytes");
        }
    }

    #[test]
    fn an_empty_message_is_one_packet() {
        let mut queue = RxQueue::new(HEADERS);
        for len in [0, 9_000, 0] {
            let message = receive(&mut queue, &pattern(len, 1), 4_500.min(len));
            assert_eq!(packets_of(&mut queue, message).len(), 1.max(len / 4_500));
        }
    }
}
