//! The terms of a connection, which each end sends to the other in its first message.

use arrayvec::ArrayVec;
use static_assertions::const_assert_eq;
use thiserror::Error;
use zerocopy::byteorder::network_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Receive queues of one connection.
pub const MAX_QUEUES: usize = 8;
/// The version of the messaging core's protocol, and of the dialect that its queue pairs speak. Since 3 READs are sent in
/// parts and have no message number, and maps of what is kept have any length. Since 4 several eager messages may come in one SEND.
const VERSION: u16 = 4;

/// The layout of the terms.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct TermsView {
    version: U16,
    capabilities: U16,
    rank: U32,
    queues: [QueueView; MAX_QUEUES],
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
struct QueueView {
    kind: u8,
    reserve: u8,
    credits: U16,
    size: U32,
    missing: U16,
    unused: U16,
}
const_assert_eq!(size_of::<TermsView>(), ConnectionTerms::LEN);

/// What an end can do beyond messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Capabilities {
    /// Its memory can be read and written by RDMA, and it can read and write.
    pub rdma: bool,
}

/// One receive queue of the sender of these terms.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueTerms {
    /// Shared by all its peers, or for this one alone.
    pub is_shared: bool,
    /// Matched messages (of a queue for one peer: messages of any kind) that the receiver of these terms may send before
    /// some are given back.
    pub credits: u16,
    /// So many of those have no receive yet, for want of memory: they may not be spent, and are given back once they have.
    pub missing: u16,
    /// Receives beyond those, for messages of nothing but credits; more than 255 are sent as 255.
    pub reserve: u8,
    /// Bytes of a receive buffer.
    pub size: u32,
}

/// The first message, which each end sends to the other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConnectionTerms {
    /// Who it is.
    pub rank: u32,
    /// What it can do.
    pub capabilities: Capabilities,
    /// Its receive queues.
    pub queues: ArrayVec<QueueTerms, MAX_QUEUES>,
}

/// Why bytes are no terms.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum BadTerms {
    /// They are cut short.
    #[error("its terms have {0} bytes")]
    Short(usize),
    /// Another release of the protocol.
    #[error("it speaks version {0} of the messaging protocol, and this is version {VERSION}")]
    Version(u16),
    /// A queue makes no sense.
    #[error("its receive queue {0} makes no sense")]
    Queue(usize),
}

impl ConnectionTerms {
    /// Their length in bytes.
    pub const LEN: usize = 8 + 12 * MAX_QUEUES;

    /// Reads them.
    pub fn parse(bytes: &[u8]) -> Result<Self, BadTerms> {
        let (view, _) = TermsView::ref_from_prefix(bytes).map_err(|_| BadTerms::Short(bytes.len()))?;
        if view.version.get() != VERSION {
            return Err(BadTerms::Version(view.version.get()));
        }
        let mut queues = ArrayVec::new();
        for (index, queue) in view.queues.iter().enumerate().filter(|(_, queue)| queue.kind != 0) {
            let (credits, missing, size) = (queue.credits.get(), queue.missing.get(), queue.size.get());
            let is_sound = index == queues.len() && queue.kind <= 2 && credits > 0 && size as usize > super::LEN;
            if !is_sound || missing > credits {
                return Err(BadTerms::Queue(index));
            }
            queues.push(QueueTerms { is_shared: queue.kind == 2, credits, missing, reserve: queue.reserve, size });
        }
        let capabilities = Capabilities { rdma: view.capabilities.get() & 1 != 0 };
        Ok(Self { rank: view.rank.get(), capabilities, queues })
    }

    /// Writes them to the front of `bytes`, which must hold [`ConnectionTerms::LEN`].
    pub fn emit(&self, bytes: &mut [u8]) {
        let (none, nothing) = (U16::ZERO, U32::ZERO);
        let nothing = QueueView { kind: 0, reserve: 0, credits: none, size: nothing, missing: none, unused: none };
        let mut queues = [nothing; MAX_QUEUES];
        for (view, queue) in queues.iter_mut().zip(&self.queues) {
            let &QueueTerms { is_shared, credits, missing, reserve, size } = queue;
            let (kind, credits, missing) = (1 + u8::from(is_shared), credits.into(), missing.into());
            *view = QueueView { kind, reserve, credits, size: size.into(), missing, unused: none };
        }
        let capabilities = u16::from(self.capabilities.rdma).into();
        let view = TermsView { version: VERSION.into(), capabilities, rank: self.rank.into(), queues };
        bytes[..Self::LEN].copy_from_slice(view.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms() -> ConnectionTerms {
        let queues = [(false, 64, 24, 256), (true, 8, 0, 1 << 20)];
        let queues = queues.map(|(is_shared, credits, missing, size)| QueueTerms {
            is_shared,
            credits,
            missing,
            reserve: 9,
            size,
        });
        let capabilities = Capabilities { rdma: true };
        ConnectionTerms { rank: 0x1_0203, capabilities, queues: queues.into_iter().collect() }
    }

    #[test]
    fn terms_round_trip() {
        let mut bytes = [0; ConnectionTerms::LEN];
        terms().emit(&mut bytes);
        assert_eq!(ConnectionTerms::parse(&bytes), Ok(terms()));
    }

    #[test]
    fn bad_terms_are_refused_by_name() {
        let mut bytes = [0; ConnectionTerms::LEN];
        terms().emit(&mut bytes);
        assert_eq!(ConnectionTerms::parse(&bytes[1..]), Err(BadTerms::Short(ConnectionTerms::LEN - 1)));
        for (at, value, error) in [
            (1, 1, BadTerms::Version(1)),
            (8, 3, BadTerms::Queue(0)),
            (8, 0, BadTerms::Queue(1)),
            (11, 0, BadTerms::Queue(0)),
            (17, 65, BadTerms::Queue(0)),
        ] {
            let mut bytes = bytes;
            bytes[at] = value;
            assert_eq!(ConnectionTerms::parse(&bytes), Err(error));
        }
        bytes[12..16].copy_from_slice(&(super::super::LEN as u32).to_be_bytes());
        assert_eq!(ConnectionTerms::parse(&bytes), Err(BadTerms::Queue(0)));
    }
}
