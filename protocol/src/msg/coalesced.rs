//! Several eager messages in one SEND: the sender coalesces short ones that wait for the same doorbell.
//!
//! Each has a header of its own. All but the last say that another one lies behind them, at the next multiple of [`ALIGN`] from the
//! SEND's beginning; so the receiver can cut its buffer between any two of them. Their credits are those of the first.

use zerocopy::FromBytes;

use super::{BadMessage, EAGER, Header, LEN, MODE, MORE, Mode, View, WholeEager};

/// Messages of one SEND begin at multiples of this.
pub const ALIGN: usize = 64;

/// Returns the distance from the beginning of an eager message of `len` bytes to that of the one behind it.
#[inline]
pub const fn span(len: usize) -> usize {
    (LEN + len).next_multiple_of(ALIGN)
}

/// Whether a message of `len` bytes that says so leaves room for the header of another one, in so many bytes.
pub(super) fn check(len: u64, bytes: usize) -> Result<(), BadMessage> {
    // Both in 64 bits, and the length first: it is the sender's.
    let fits = len < bytes as u64 && span(len as usize) + LEN <= bytes;
    if fits { Ok(()) } else { Err(BadMessage::Length { announced: len, brought: bytes - LEN }) }
}

/// The messages of one SEND that has several, all of them in standard mode and whole: it ends early where one is not so.
#[derive(Clone, Debug)]
pub struct Coalesced<'a> {
    rest: &'a [u8],
    has_more: bool,
}

impl<'a> Coalesced<'a> {
    /// Those of a SEND; `None` where its first message says that there is no other.
    #[inline]
    pub fn of(bytes: &'a [u8]) -> Option<Self> {
        let has_more = bytes.len() > LEN && bytes[0] == EAGER && bytes[1] & MORE != 0;
        has_more.then_some(Self { rest: bytes, has_more })
    }

    /// The header of the next message.
    #[inline]
    pub fn peek(&self) -> Option<WholeEager> {
        self.clone().next().map(|(header, _)| header)
    }

    /// Whether the last message was returned: there are no more, and nothing is wrong.
    #[inline]
    pub fn is_over(&self) -> bool {
        !self.has_more
    }
}

impl<'a> Iterator for Coalesced<'a> {
    type Item = (WholeEager, &'a [u8]);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if !self.has_more {
            return None;
        }
        let (view, behind) = View::ref_from_prefix(self.rest).ok()?;
        let (len, data) = view.eager_len_and_data();
        if (view.kind, view.flags & MODE) != (EAGER, Mode::Standard as u8) {
            return None;
        }
        let has_more = view.flags & MORE != 0;
        let payload = if has_more {
            check(len, self.rest.len()).ok()?;
            &behind[..len as usize]
        } else if len == behind.len() as u64 {
            behind
        } else {
            return None;
        };
        let next = if has_more { span(payload.len()) } else { self.rest.len() };
        *self = Self { rest: &self.rest[next..], has_more };
        Some((view.whole_eager(data), payload))
    }
}

impl Header {
    /// Marks the eager message at the front of `bytes`: another one lies behind it.
    ///
    /// # Panics
    /// It is no eager message.
    #[inline]
    pub fn mark_more(bytes: &mut [u8]) {
        assert_eq!(bytes[0], EAGER, "only eager messages have others behind them");
        bytes[1] |= MORE;
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Label, Message};
    use super::*;

    /// A SEND of messages of these lengths, whose tags and payloads are their places.
    fn packet(lens: &[usize]) -> Vec<u8> {
        let mut packet = Vec::new();
        for (place, &len) in lens.iter().enumerate() {
            let at = packet.len().next_multiple_of(ALIGN);
            packet.resize(at + LEN, 0xee);
            let label = Label { context: 7, tag: place as u64, data: (place % 2 == 1).then_some(u64::MAX) };
            let message = Message::Eager { label, len: len as u64, id: 9, mode: Mode::Standard };
            let header = Header { sequence: place as u16, credits: 3, ..Header::new(message) };
            Header { has_more: place + 1 < lens.len(), ..header }.emit(&mut packet[at..]);
            packet.resize(at + LEN + len, place as u8);
        }
        packet
    }

    #[test]
    fn messages_come_out_as_they_went_in() {
        for lens in [&[0, 0][..], &[24, 25, 23, 0], &[100, 0, 1, 4000], &[8; 40]] {
            let packet = packet(lens);
            let mut messages = Coalesced::of(&packet).expect("there are several");
            for (place, &len) in lens.iter().enumerate() {
                let (header, payload) = messages.next().expect("it is there");
                assert_eq!((header.label.tag, header.sequence), (place as u64, place as u16));
                assert_eq!(payload, vec![place as u8; len]);
            }
            assert!(messages.is_over() && messages.next().is_none());
        }
        assert!(Coalesced::of(&packet(&[64])).is_none());
    }

    #[test]
    fn each_is_read_as_its_header_is() {
        let packet = packet(&[24, 100, 7]);
        let mut at = 0;
        for (whole, payload) in Coalesced::of(&packet).expect("there are several") {
            let (header, behind) = Header::parse(&packet[at..]).expect("it is sound");
            let Message::Eager { label, len, .. } = header.message else { panic!("{header:?}") };
            assert_eq!((whole.label, whole.sequence, whole.credits), (label, header.sequence, header.credits));
            assert_eq!(payload, &behind[..len as usize]);
            assert_eq!(header.has_more, at + span(len as usize) < packet.len());
            at += span(len as usize);
        }
    }

    #[test]
    fn what_is_cut_short_or_lies_ends_early() {
        let whole = packet(&[24, 100, 7]);
        for len in 0..whole.len() {
            let Some(mut messages) = Coalesced::of(&whole[..len]) else { continue };
            messages.by_ref().for_each(drop);
            assert!(!messages.is_over(), "of {len} bytes");
        }
        for len in [u64::MAX, u64::MAX - 63, 1 << 32, 240] {
            let mut lie = whole.clone();
            lie[24..32].copy_from_slice(&len.to_be_bytes());
            assert_eq!(Coalesced::of(&lie).expect("it says so").count(), 0, "of {len} bytes");
            let brought = whole.len() - LEN;
            assert_eq!(Header::parse(&lie), Err(BadMessage::Length { announced: len, brought }));
        }
        let mut other_mode = whole;
        other_mode[span(24) + 1] |= Mode::Synchronous as u8;
        assert_eq!(Coalesced::of(&other_mode).expect("there are several").count(), 1);
    }

    proptest::proptest! {
        /// Whatever a peer sends, what is read lies in it, and the two ways to read it agree.
        #[test]
        fn arbitrary_bytes_are_read_within_their_bounds(mut bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..4 * ALIGN), lens in proptest::collection::vec(0..70u8, 4)) {
            for (at, len) in (0..bytes.len().saturating_sub(LEN)).step_by(ALIGN).zip(lens) {
                (bytes[at], bytes[at + 1]) = (EAGER, bytes[at + 1] & MORE);
                bytes[at + 24..at + 32].copy_from_slice(&u64::from(len).to_be_bytes());
            }
            let mut at = 0;
            for (whole, payload) in Coalesced::of(&bytes).into_iter().flatten() {
                let (header, behind) = Header::parse(&bytes[at..]).expect("it was read before");
                proptest::prop_assert_eq!((whole.sequence, payload), (header.sequence, &behind[..payload.len()]));
                at += span(payload.len());
            }
        }
    }
}
