//! A vbuf that short messages to one peer gather in, to leave as one SEND.

use roci_driver::Buffer;
use roci_protocol::msg::{self, Header};

/// A packet that short messages gather in.
#[derive(Debug)]
pub(crate) struct OpenPacket {
    pub(super) vbuf: Buffer,
    /// Where its last message begins.
    last: usize,
    /// How long it may become.
    room: usize,
}

impl OpenPacket {
    /// A vbuf with a first message, which may become so long.
    pub(super) fn new(vbuf: Buffer, room: usize) -> Self {
        Self { vbuf, last: 0, room }
    }

    /// Where the next message would begin.
    fn next(&self) -> usize {
        self.vbuf.len().next_multiple_of(msg::ALIGN)
    }

    /// Whether a message of `len` bytes fits behind the others.
    #[inline]
    pub(super) fn has_room_for(&self, len: usize) -> bool {
        self.next() + msg::LEN + len <= self.room
    }

    /// Writes a message behind the others.
    pub(super) fn append(&mut self, header: &Header, len: usize, fill: impl FnOnce(&mut [u8])) {
        let (end, at) = (self.vbuf.len(), self.next());
        self.vbuf.set_len(at + msg::LEN + len);
        // What was there before is nothing for this peer.
        self.vbuf[end..at].fill(0);
        header.emit(&mut self.vbuf[at..]);
        fill(&mut self.vbuf[at + msg::LEN..]);
        Header::mark_more(&mut self.vbuf[self.last..]);
        self.last = at;
    }
}

#[cfg(test)]
mod tests {
    use roci_driver::Arena;
    use roci_protocol::msg::{Coalesced, Label, Message, Mode};

    use super::*;

    fn header(tag: u64, len: usize) -> Header {
        let label = Label { context: 0, tag, data: None };
        Header {
            sequence: tag as u16,
            ..Header::new(Message::Eager { label, len: len as u64, id: 0, mode: Mode::Standard })
        }
    }

    /// A packet with a first message of `len` bytes, in memory that was used before.
    fn packet(len: usize, room: usize) -> OpenPacket {
        let mut vbuf = Arena::new(1 << 16).expect("memory").buffer(room).expect("room");
        vbuf.fill(0xee);
        vbuf.set_len(msg::LEN + len);
        header(0, len).emit(&mut vbuf);
        vbuf[msg::LEN..].fill(0);
        OpenPacket::new(vbuf, room)
    }

    #[test]
    fn a_packet_takes_messages_until_it_is_full_and_shows_nothing_of_what_was_there() {
        for len in [0, 1, 24, 25, 100] {
            let mut packet = packet(len, 1024);
            let mut count = 1;
            while packet.has_room_for(len) {
                packet.append(&header(count, len), len, |bytes| bytes.fill(count as u8));
                count += 1;
            }
            let left = 1024 - packet.vbuf.len();
            assert!(packet.vbuf.len() <= 1024 && left < msg::span(len) + msg::ALIGN, "{left} bytes are left");
            assert!(!packet.vbuf.contains(&0xee), "another peer's bytes");
            let mut messages = Coalesced::of(&packet.vbuf).expect("there are several");
            for at in 0..count {
                let (header, payload) = messages.next().expect("it is there");
                assert_eq!((header.label.tag, payload), (at, &vec![at as u8; len][..]));
            }
            assert!(messages.is_over());
        }
    }
}
