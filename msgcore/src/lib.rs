//! Tagged messages between the ranks of a job, over the driver's queue pairs: what MPI's point-to-point layer needs.
//!
//! Small messages are sent eagerly, long ones by rendezvous (see [`select`]); credits see to it that a receiver never
//! runs out of posted buffers; matching follows MPI's rules, with contexts, wildcards, probes, and sends that can be
//! taken back. Connections are made at the start or at the first message. Beside the tagged
//! messages a [`Worker`] has byte streams: see [`stream`].
//!
//! # Quick start
//! ```no_run
//! use roci_msgcore::{Config, Source, Tag, Worker};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Rank, size and peers come from the launcher: `roci run -n 2 PROGRAM`.
//! let mut worker = Worker::open(&Config::load(None)?)?;
//! let next = (worker.rank() + 1) % worker.size();
//! let receive = worker.recv(Source::Any, Tag::new(7), worker.buffer(64)?)?;
//! let send = worker.send_bytes(next, Tag::new(7), b"hello")?;
//! let message = worker.wait(receive)?;
//! assert_eq!(&message.buffer[..message.len], b"hello");
//! worker.wait(send)?;
//! worker.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! # Threads
//! A [`Worker`] is used by one thread at a time. It makes progress only inside its own calls: an application that computes
//! for long calls [`Worker::progress`] now and then, or its peers wait. A [`DedicatedWorker`] lives on a thread of its
//! own and serves them meanwhile: see [`dedicated`]. Who wants to sleep in epoll or an async runtime until something comes
//! takes a [`DedicatedWorker`], which has a descriptor for it. Without a job, several endpoints may share an engine and its port: see
//! [`Domain`]. A process may have several of either, each a rank of its own: [`Worker::open_job`] may be called on several threads. Either may move from thread to thread, so several threads can
//! share it behind a lock. A [`Worker`] is fastest on the thread that opened it: DPDK keeps a cache of packet buffers for that one.
//!
//! # Cleanup
//! [`Worker::close`] waits until every rank closes and all that was received has arrived, everywhere. What was not
//! received by then is given up, and counted ([`Dropped`]), in its error too ([`CloseError`]). Dropping a worker waits for
//! no rank, but lingers until what was sent is in its peers' memory (`linger_ms`), as [`Worker::flush`] does at any time; its
//! peers see it go, and what was under way ends with [`OpError::PeerGone`]. Everything else goes on; [`Worker::poll_event`] reports it.
//!
//! # Non-goals
//! An MPI library, a wire protocol for anybody but ourselves above the verbs, links that are driven by interrupts.
#![forbid(unsafe_code)]

mod backoff;
pub mod config;
mod core;
pub mod dedicated;
mod endpoint;
#[doc(hidden)]
pub mod internals;
mod messaging;
mod published;
pub mod receive_queues;
mod sentence;
mod services;
mod sync;
mod units;
mod worker;

pub use crate::core::stats::WorkerStats;
pub use config::{Config, ConfigError};
pub use dedicated::DedicatedWorker;
pub use endpoint::address::{BadEndpointAddress, EndpointAddress};
pub use endpoint::failure::EndpointEvent as WorkerEvent;
pub use endpoint::invariants::{InvariantViolation, LaneViolation};
pub use endpoint::strangers::InsertError;

pub use crate::core::breach::Breach;
pub use crate::core::completion::{Completion, Done, Envelope, MultiReceiveFailed, OpError, SomeFailed, Truncated};
pub use crate::core::credits::CreditAccount;
pub use crate::core::no_connection::{NoConnection, NoReceives};
pub use crate::core::peer_id::PeerId;
pub use crate::core::refused::{CallError, Refused};
pub use crate::core::request::Request;
pub use crate::core::stage::IllegalStep;
pub use messaging::{Messaging, PeerAddressing, collectives};
pub use published::PublishedStats;
pub use roci_driver::{
    AdoptError, Buffer, ListError, MAX_PIECES, MemoryKind, MonitorChoice, Pin, RegistrationInfo, RegistrationStats,
    UserMemory, WrongKind,
};
pub use roci_launcher::{Job, JobError, Rank};
pub use roci_protocol::msg::Capabilities;
pub use services::rma::firehose;
pub use services::tag::claims::ClaimedMessage;
pub use services::tag::matching::Pattern;
pub use services::tag::select;
pub use services::tag::send::SendOptions;
pub use worker::active;
pub use worker::alone::ExchangeError;
pub use worker::closing::CloseError;
pub use worker::domain::{Domain, DomainError};
pub use worker::fabric::Fabric;
pub use worker::flush::FlushError;
pub use worker::one_sided;
pub use worker::others::EndpointId;
pub use worker::ports;
pub use worker::ports::{LiveLink, Ports};
pub use worker::protocols::{Circumstances, ProtocolRange, protocol_ranges};
pub use worker::stream;
pub use worker::wireup_error::WireupError;
pub use worker::{Dropped, Worker};

/// What a receive chooses messages by, besides their sender.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Tag(u64);

impl Tag {
    /// A tag.
    pub const fn new(value: u64) -> Self {
        Self(value)
    }

    /// Its value.
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// Which communicator a message belongs to; never a wildcard.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Context(u32);

impl Context {
    /// The context of collectives ([`collectives`]): an application that calls them has no messages of its own there.
    pub const COLLECTIVE: Self = Self(u32::MAX);

    /// A context.
    pub const fn new(value: u32) -> Self {
        Self(value)
    }

    /// Its value.
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// Whose messages a receive takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// Any peer's (`MPI_ANY_SOURCE`).
    Any,
    /// One peer's.
    Peer(PeerId),
}

/// Which tags a receive takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TagMatch {
    /// All (`MPI_ANY_TAG`).
    Any,
    /// One.
    Exact(Tag),
    /// All that agree with `tag` in the bits that `ignore` does not set (libfabric's ignore mask).
    Masked {
        /// What those bits must be.
        tag: Tag,
        /// The bits that do not count.
        ignore: u64,
    },
}

impl TagMatch {
    /// Returns the bits of a tag that do not count.
    #[inline]
    pub(crate) const fn ignore(self) -> u64 {
        match self {
            Self::Any => u64::MAX,
            Self::Exact(_) => 0,
            Self::Masked { ignore, .. } => ignore,
        }
    }

    /// Whether it takes this tag.
    pub(crate) const fn takes(self, tag: Tag) -> bool {
        match self {
            Self::Any => true,
            Self::Exact(its) => its.0 == tag.0,
            Self::Masked { tag: its, ignore } => (its.0 ^ tag.0) & !ignore == 0,
        }
    }
}

impl From<Tag> for TagMatch {
    fn from(tag: Tag) -> Self {
        Self::Exact(tag)
    }
}

impl From<PeerId> for Source {
    fn from(peer: PeerId) -> Self {
        Self::Peer(peer)
    }
}

impl From<Rank> for Source {
    fn from(rank: Rank) -> Self {
        Self::Peer(rank.into())
    }
}

/// README's own program, compiled as a test of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
