//! Frames that wait to be sent, as trains that the kernel cuts: those to one place, all as long as the first, the last perhaps shorter.
//!
//! A frame is written with its headers, because its ICRC covers them, and only what follows them is sent. So each frame is written over
//! the end of the one before, and that is put back: packets lie behind each other without a gap.

use std::net::SocketAddr;
use std::ops::Range;

use arrayvec::ArrayVec;
use roci_protocol::wire::ethernet;

use super::changes::{IcrcChanges, SEGMENTS};
use super::socket::TxMessage;

/// The longest headers that are not sent: Ethernet, IPv6, UDP.
pub(super) const MAX_HEADERS: usize = 62;
/// Trains that wait at most.
const TRAINS: usize = 32;
/// The longest message: what IPv4 carries in one datagram.
const MESSAGE: usize = 65_507;
/// Bytes of packets that wait at most.
const CAPACITY: usize = 256 << 10;
/// From so many bytes on they should go, so that the peer has something to do meanwhile.
const EARLY: usize = 64 << 10;

pub(super) struct TxQueue {
    bytes: Box<[u8]>,
    /// The end of the last packet.
    end: usize,
    trains: ArrayVec<GsoTrain, TRAINS>,
    /// A message may carry several packets.
    is_train: bool,
    changes: IcrcChanges,
}

/// Packets that go in one message.
#[derive(Clone, Copy, Debug)]
struct GsoTrain {
    message: TxMessage,
    packets: usize,
    /// The last packet is shorter, so none follows.
    is_complete: bool,
}

/// What a frame's headers say of how to send it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Heading {
    pub(super) to: SocketAddr,
    /// DSCP and ECN.
    pub(super) traffic_class: u8,
    /// Its ICRC covers an identification.
    pub(super) is_v4: bool,
}

impl TxQueue {
    pub(super) fn new(is_train: bool) -> Self {
        Self {
            bytes: vec![0; MAX_HEADERS + CAPACITY].into(),
            end: MAX_HEADERS,
            trains: ArrayVec::new(),
            is_train,
            changes: IcrcChanges::new(),
        }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.trains.is_empty()
    }

    /// Whether a frame of this length, and a train of its own for it, have room.
    #[inline]
    pub(super) fn has_room(&self, len: usize) -> bool {
        !self.trains.is_full() && self.end + len <= self.bytes.len()
    }

    /// Whether what waits should go now.
    #[inline]
    pub(super) fn is_due(&self) -> bool {
        self.trains.is_full() || self.end >= MAX_HEADERS + EARLY
    }

    /// Messages with one packet each from now on: those that wait become such.
    pub(super) fn split(&mut self) {
        self.is_train = false;
    }

    /// Writes a frame of `len` bytes, `headers` of them headers, and keeps what follows them where `read` finds out from the frame how
    /// to send it. Whether it does.
    #[inline]
    pub(super) fn push(
        &mut self,
        len: usize,
        headers: usize,
        fill: impl FnOnce(&mut [u8]),
        read: impl FnOnce(&[u8]) -> Option<Heading>,
    ) -> bool {
        debug_assert!(self.has_room(len) && headers <= MAX_HEADERS);
        if len < headers {
            return false;
        }
        let start = self.end - headers;
        let before: [u8; MAX_HEADERS] = *self.bytes[..self.end].last_chunk().expect("headers precede the first packet");
        let frame = &mut self.bytes[start..start + len];
        fill(frame);
        let heading = read(frame);
        self.bytes[self.end - MAX_HEADERS..self.end].copy_from_slice(&before);
        let Some(heading) = heading else { return false };
        let packet = self.end..start + len;
        self.end = packet.end;
        self.couple(heading, packet, headers);
        true
    }

    /// Adds a packet to the last train, or begins one.
    #[inline]
    fn couple(&mut self, heading: Heading, packet: Range<usize>, headers: usize) {
        let len = packet.len();
        let Heading { to, traffic_class, is_v4 } = heading;
        let is_train = self.is_train;
        let fits = |train: &&mut GsoTrain| {
            let message = &train.message;
            is_train
                && !train.is_complete
                && train.packets < SEGMENTS
                && len <= message.segment
                && packet.end - message.start <= MESSAGE
                && message.traffic_class == traffic_class
                && message.to == to
        };
        let Some(train) = self.trains.last_mut().filter(fits) else {
            let message = TxMessage { to, start: packet.start, end: packet.end, segment: len, traffic_class };
            return self.trains.push(GsoTrain { message, packets: 1, is_complete: false });
        };
        let place = train.packets;
        train.packets += 1;
        train.message.end = packet.end;
        train.is_complete = len < train.message.segment;
        if is_v4 {
            self.changes.apply(headers - ethernet::LEN + len, place, &mut self.bytes[packet]);
        }
    }

    /// The messages to send, and where their packets lie.
    pub(super) fn messages(&self) -> (&[u8], impl Iterator<Item = TxMessage>) {
        (&self.bytes, self.trains.iter().map(|train| train.message))
    }

    /// Forgets the first messages: packets and bytes of them.
    pub(super) fn forget(&mut self, messages: usize) -> (u64, u64) {
        let mut gone = (0, 0);
        for train in self.trains.drain(..messages) {
            gone.0 += train.packets as u64;
            gone.1 += (train.message.end - train.message.start) as u64;
        }
        if self.trains.is_empty() {
            self.end = MAX_HEADERS;
        }
        gone
    }
}
