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

    /// How many packets of this length one message carries; `None` where it carries one.
    pub(super) fn packets_at_once(&self, packet: usize) -> Option<usize> {
        let packets = (MESSAGE / packet.max(1)).min(SEGMENTS);
        (self.is_train && packets > 1).then_some(packets)
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

    /// From now on each message has one packet.
    pub(super) fn send_single_packets(&mut self) {
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
    pub(super) fn messages(&mut self) -> (&mut [u8], impl Iterator<Item = TxMessage>) {
        (&mut self.bytes, self.trains.iter().map(|train| train.message))
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

#[cfg(test)]
mod tests {
    use super::*;

    const HEADERS: usize = 42;

    fn to(port: u16) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, 2], port))
    }

    /// Queues packets of these lengths, each full of its number, and returns the packets of each message: how many bytes they have, and
    /// how many there are.
    fn messages(packets: &[(usize, u16, u8)], is_train: bool) -> Vec<Vec<usize>> {
        let mut queue = TxQueue::new(is_train);
        for (number, &(len, port, traffic_class)) in packets.iter().enumerate() {
            let fill = |frame: &mut [u8]| frame.fill(number as u8);
            assert!(queue.has_room(HEADERS + len));
            assert!(queue.push(HEADERS + len, HEADERS, fill, |_| Some(Heading {
                to: to(port),
                traffic_class,
                is_v4: false
            })));
        }
        let (bytes, messages) = queue.messages();
        let mut number = 0;
        let of_message = |message: TxMessage| {
            let packets: Vec<_> =
                bytes[message.start..message.end].chunks(message.segment).map(<[u8]>::to_vec).collect();
            for packet in &packets {
                assert!(packet.iter().all(|&byte| byte == number), "packet {number} is whole, and at its place");
                number = number.wrapping_add(1);
            }
            packets.iter().map(Vec::len).collect()
        };
        messages.map(of_message).collect()
    }

    #[test]
    fn packets_of_one_length_to_one_place_go_in_one_message_and_a_shorter_one_ends_it() {
        let lens = [1000, 1000, 400, 1000, 1000, 1001, 7, 7];
        let packets = lens.map(|len| (len, 1, 0));
        let expected = [&[1000, 1000, 400][..], &[1000, 1000], &[1001, 7], &[7]];
        assert_eq!(messages(&packets, true), expected);
        assert_eq!(messages(&packets, false).len(), lens.len(), "one by one, where the kernel cuts nothing");
    }

    #[test]
    fn another_place_and_another_class_begin_a_message() {
        let packets = [(100, 1, 0), (100, 1, 0), (100, 2, 0), (100, 1, 0), (100, 1, 3), (100, 1, 3)];
        let counts: Vec<_> = messages(&packets, true).iter().map(Vec::len).collect();
        assert_eq!(counts, [2, 1, 1, 2]);
    }

    #[test]
    fn a_message_has_no_more_packets_and_bytes_than_the_kernel_takes() {
        let counts = |len: usize, packets: usize| -> Vec<_> {
            messages(&vec![(len, 1, 0); packets], true).iter().map(Vec::len).collect()
        };
        assert_eq!(counts(16, 130), [64, 64, 2]);
        assert_eq!(counts(9000, 15), [7, 7, 1]);
    }

    #[test]
    fn as_many_packets_leave_at_once_as_one_message_has() {
        for len in [16, 1040, 4112, 8208, 40_000] {
            let first = messages(&vec![(len, 1, 0); 100.min(200_000 / len)], true)[0].len();
            assert_eq!(TxQueue::new(true).packets_at_once(len).unwrap_or(1), first, "{len} bytes");
            assert_eq!(TxQueue::new(false).packets_at_once(len), None);
        }
    }

    #[test]
    fn what_is_sent_is_forgotten_and_makes_room() {
        let mut queue = TxQueue::new(true);
        let heading = |_: &[u8]| Some(Heading { to: to(1), traffic_class: 0, is_v4: true });
        let mut pushed = 0;
        while queue.has_room(9000) {
            assert!(queue.push(9000, HEADERS, |frame| frame.fill(1), heading));
            pushed += 1;
        }
        assert!(queue.is_due() && pushed > 20);
        let count = queue.messages().1.count();
        assert_eq!(queue.forget(count), (pushed, pushed * (9000 - HEADERS as u64)));
        assert!(queue.is_empty() && queue.has_room(9000));
        assert!(!queue.push(HEADERS - 1, HEADERS, |_| panic!("it is shorter than its headers"), heading));
        assert!(!queue.push(100, HEADERS, |frame| frame.fill(1), |_| None) && queue.is_empty());
    }
}
