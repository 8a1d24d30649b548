//! The layout of the messaging core's own header, which every message between two of its workers starts with.

use static_assertions::const_assert_eq;
use thiserror::Error;
use zerocopy::byteorder::network_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::Rkey;

/// The header's length.
pub const LEN: usize = 32;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct HeaderView {
    kind: u8,
    reserved: u8,
    credits: U16,
    rkey: U32,
    tag: U64,
    len: U64,
    id: U64,
}
const_assert_eq!(size_of::<HeaderView>(), LEN);

/// What a message is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// The payload follows.
    Eager = 1,
    /// Rendezvous: the payload waits at the sender, to be fetched by RDMA READ.
    ReadyToSend = 2,
    /// Rendezvous: the payload was fetched, or never will be.
    Finished = 3,
    /// Nothing but credits.
    Credit = 4,
}

/// A message header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// What follows.
    pub kind: Kind,
    /// Receive buffers that the sender of this header gives back to its peer.
    pub credits: u16,
    /// Rendezvous: the key to the payload.
    pub rkey: Rkey,
    /// The message's tag.
    pub tag: u64,
    /// The payload's length in bytes.
    pub len: u64,
    /// Rendezvous: the sender's name for the operation.
    pub id: u64,
}

/// Why bytes are no message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum BadMessage {
    /// Shorter than a header.
    #[error("a message of {0} bytes is shorter than its header")]
    Short(usize),
    /// The kind is unknown.
    #[error("a message of unknown kind {0}")]
    Kind(u8),
    /// An eager payload has not the announced length.
    #[error("an eager message announces {announced} bytes and brings {brought}")]
    Length {
        /// In the header.
        announced: u64,
        /// Behind the header.
        brought: usize,
    },
}

impl Header {
    /// A header with nothing but a kind.
    pub const fn new(kind: Kind) -> Self {
        Self { kind, credits: 0, rkey: Rkey(0), tag: 0, len: 0, id: 0 }
    }

    /// Reads the header and returns the payload.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), BadMessage> {
        let (view, payload) = HeaderView::ref_from_prefix(bytes).map_err(|_| BadMessage::Short(bytes.len()))?;
        let kind = match view.kind {
            1 => Kind::Eager,
            2 => Kind::ReadyToSend,
            3 => Kind::Finished,
            4 => Kind::Credit,
            unknown => return Err(BadMessage::Kind(unknown)),
        };
        let (announced, brought) = (view.len.get(), payload.len());
        if kind == Kind::Eager && announced != brought as u64 {
            return Err(BadMessage::Length { announced, brought });
        }
        let header = Self {
            kind,
            credits: view.credits.get(),
            rkey: Rkey(view.rkey.get()),
            tag: view.tag.get(),
            len: announced,
            id: view.id.get(),
        };
        Ok((header, payload))
    }

    /// Writes the header to the front of `bytes`, which must hold 32.
    #[inline]
    pub fn emit(&self, bytes: &mut [u8]) {
        let view = HeaderView {
            kind: self.kind as u8,
            reserved: 0,
            credits: self.credits.into(),
            rkey: self.rkey.0.into(),
            tag: self.tag.into(),
            len: self.len.into(),
            id: self.id.into(),
        };
        bytes[..LEN].copy_from_slice(view.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_round_trip() {
        for kind in [Kind::Eager, Kind::ReadyToSend, Kind::Finished, Kind::Credit] {
            let len = if kind == Kind::Eager { 0 } else { 1 << 40 };
            let header = Header { kind, credits: 7, rkey: Rkey(0xdead_beef), tag: u64::MAX, len, id: 3 };
            let mut bytes = [0; LEN];
            header.emit(&mut bytes);
            assert_eq!(Header::parse(&bytes), Ok((header, &[][..])));
        }
    }

    #[test]
    fn bad_messages_are_refused_by_name() {
        assert_eq!(Header::parse(&[1; 31]), Err(BadMessage::Short(31)));
        assert_eq!(Header::parse(&[9; 32]), Err(BadMessage::Kind(9)));
        let mut bytes = [0; LEN + 5];
        Header { len: 6, ..Header::new(Kind::Eager) }.emit(&mut bytes);
        assert_eq!(Header::parse(&bytes), Err(BadMessage::Length { announced: 6, brought: 5 }));
    }
}
