//! What the ends of a stream write to each other: offers, immediate data, headers, announcements.
//!
//! Numbers are little-endian.

use roci_driver::Rkey;

use super::config::{HEADER, StreamConfig};

/// Bytes of an announcement.
pub(super) const ANNOUNCEMENT: usize = 16;
/// Bytes of a head or a tail.
pub(super) const WORD: usize = 8;
/// Bytes of an offer.
pub(super) const OFFER: usize = 48;

/// "rocb", and the version of what is written here.
const MAGIC: u32 = 0x626f_6372;
const VERSION: u16 = 1;

const PIGGYBACK: u16 = 1;
const TAIL_DELAY: u16 = 2;
const PIPELINING: u16 = 4;
const ZERO_COPY: u16 = 8;

/// What immediate data is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum News {
    /// The head is further on, and what lies before it is data.
    Data = 1,
    /// The head is further on by one announcement.
    Announcement = 2,
    /// The tail is further on.
    Tail = 3,
}

/// Bits of a position that fit beside the news.
const POSITION_BITS: u32 = 28;
const POSITION_MASK: u32 = (1 << POSITION_BITS) - 1;

impl News {
    /// The immediate data that says this of a position.
    #[inline]
    pub(super) const fn immediate(self, position: u64) -> u32 {
        (self as u32) << POSITION_BITS | position as u32 & POSITION_MASK
    }

    /// What immediate data says: the news, and how far beyond `known` the position is. `None` for nonsense.
    #[inline]
    pub(super) const fn parse(immediate: u32, known: u64) -> Option<(Self, u64)> {
        let news = match immediate >> POSITION_BITS {
            1 => Self::Data,
            2 => Self::Announcement,
            3 => Self::Tail,
            _ => return None,
        };
        let advance = immediate.wrapping_sub(known as u32) & POSITION_MASK;
        Some((news, advance as u64))
    }

    /// Whether immediate data is about the tail, as far as it makes sense at all.
    #[inline]
    pub(super) const fn is_tail(immediate: u32) -> bool {
        immediate >> POSITION_BITS == Self::Tail as u32
    }
}

/// What a chunk begins with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ChunkHeader {
    /// The chunk's number in the stream, from 0; its low bits.
    pub(super) number: u32,
    /// Bytes behind the header.
    pub(super) len: u32,
    /// The tail of the way back.
    pub(super) tail: u64,
}

impl ChunkHeader {
    #[inline]
    pub(super) fn emit(&self, into: &mut [u8]) {
        into[..4].copy_from_slice(&self.number.to_le_bytes());
        into[4..8].copy_from_slice(&self.len.to_le_bytes());
        into[8..HEADER].copy_from_slice(&self.tail.to_le_bytes());
    }

    #[inline]
    pub(super) fn parse(bytes: &[u8; HEADER]) -> Self {
        Self { number: u32_at(bytes, 0), len: u32_at(bytes, 4), tail: u64_at(bytes, 8) }
    }
}

/// A payload that waits at the sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Announcement {
    pub(super) rkey: Rkey,
    pub(super) len: u64,
}

impl Announcement {
    pub(super) fn emit(&self) -> [u8; ANNOUNCEMENT] {
        let mut bytes = [0; ANNOUNCEMENT];
        bytes[..4].copy_from_slice(&self.rkey.0.to_le_bytes());
        bytes[8..].copy_from_slice(&self.len.to_le_bytes());
        bytes
    }

    pub(super) fn parse(bytes: &[u8; ANNOUNCEMENT]) -> Self {
        Self { rkey: Rkey(u32_at(bytes, 0)), len: u64_at(bytes, 8) }
    }
}

/// The keys to a peer's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct StreamKeys {
    /// To its ring.
    pub(super) ring: Rkey,
    /// To its replicas of head and tail.
    pub(super) words: Rkey,
}

/// What the peer must know of an end: how it works, and the keys to its memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct StreamOffer {
    pub(super) config: StreamConfig,
    pub(super) keys: StreamKeys,
}

impl StreamOffer {
    pub(super) fn emit(&self) -> [u8; OFFER] {
        let Self { config, keys } = self;
        let switch = |is_on: bool, flag: u16| if is_on { flag } else { 0 };
        let flags = switch(config.piggyback, PIGGYBACK)
            | switch(config.tail_delay, TAIL_DELAY)
            | switch(config.pipelining, PIPELINING)
            | switch(config.zero_copy.is_some(), ZERO_COPY);
        let mut bytes = [0; OFFER];
        bytes[..4].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[4..6].copy_from_slice(&VERSION.to_le_bytes());
        bytes[6..8].copy_from_slice(&flags.to_le_bytes());
        let sizes = [config.ring, config.chunk, config.zero_copy.unwrap_or(0), config.registrations];
        for (field, size) in bytes[8..40].chunks_exact_mut(8).zip(sizes) {
            field.copy_from_slice(&(size as u64).to_le_bytes());
        }
        bytes[40..44].copy_from_slice(&keys.ring.0.to_le_bytes());
        bytes[44..].copy_from_slice(&keys.words.0.to_le_bytes());
        bytes
    }

    /// Reads an offer; `None` where it is none of this version.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; OFFER] = bytes.try_into().ok()?;
        let flags = u32_at(bytes, 4) >> 16;
        let has = |flag: u16| flags & u32::from(flag) != 0;
        if u32_at(bytes, 0) != MAGIC || u32_at(bytes, 4) & 0xffff != u32::from(VERSION) {
            return None;
        }
        let size = |at| usize::try_from(u64_at(bytes, at)).ok();
        let config = StreamConfig {
            ring: size(8)?,
            chunk: size(16)?,
            piggyback: has(PIGGYBACK),
            tail_delay: has(TAIL_DELAY),
            pipelining: has(PIPELINING),
            zero_copy: size(24).filter(|_| has(ZERO_COPY)),
            registrations: size(32)?,
        };
        Some(Self { config, keys: StreamKeys { ring: Rkey(u32_at(bytes, 40)), words: Rkey(u32_at(bytes, 44)) } })
    }
}

#[inline]
fn u32_at<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[inline]
fn u64_at<const N: usize>(bytes: &[u8; N], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

#[cfg(test)]
mod tests {
    use super::super::config::StreamStep;
    use super::*;

    #[test]
    fn an_offer_has_the_whole_configuration() {
        let keys = StreamKeys { ring: Rkey(0x1234_5678), words: Rkey(0x9abc_def0) };
        for step in [StreamStep::Basic, StreamStep::Piggyback, StreamStep::Pipelining, StreamStep::ZeroCopy] {
            let config = StreamConfig { registrations: 5, ..StreamConfig::of(step) };
            let offer = StreamOffer { config, keys };
            assert_eq!(StreamOffer::parse(&offer.emit()), Some(offer));
        }
    }

    #[test]
    fn an_offer_of_another_length_version_or_kind_is_none() {
        let keys = StreamKeys { ring: Rkey(1), words: Rkey(2) };
        let bytes = StreamOffer { config: StreamConfig::default(), keys }.emit();
        assert_eq!(StreamOffer::parse(&bytes[1..]), None);
        assert_eq!(StreamOffer::parse(&[]), None);
        for at in 0..6 {
            let mut wrong = bytes;
            wrong[at] ^= 1;
            assert_eq!(StreamOffer::parse(&wrong), None, "byte {at}");
        }
    }

    #[test]
    fn positions_are_known_by_their_low_bits() {
        for known in [0, 5, (1 << 28) - 1, 1 << 28, (1 << 40) + 7, u64::MAX - 100] {
            for advance in [0, 1, 99] {
                let immediate = News::Data.immediate(known + advance);
                assert_eq!(News::parse(immediate, known), Some((News::Data, advance)));
            }
        }
        assert!(News::is_tail(News::Tail.immediate(3)) && !News::is_tail(News::Data.immediate(3)));
        for nonsense in [0, 0x0fff_ffff, 0x4000_0000, u32::MAX] {
            assert_eq!(News::parse(nonsense, 0), None);
        }
    }

    #[test]
    fn headers_and_announcements_are_read_as_they_were_written() {
        let header = ChunkHeader { number: 7, len: 0x1_0001, tail: 1 << 40 };
        let mut bytes = [0xee; HEADER];
        header.emit(&mut bytes);
        assert_eq!(ChunkHeader::parse(&bytes), header);
        let announcement = Announcement { rkey: Rkey(0xdead_beef), len: (5 << 32) | 9 };
        assert_eq!(Announcement::parse(&announcement.emit()), announcement);
    }
}
