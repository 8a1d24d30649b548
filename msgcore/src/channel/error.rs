//! What can go wrong with a channel, by name.

use roci_driver::{ArenaError, PostError, WcStatus};
use thiserror::Error;

use super::config::{BadChannelConfig, ChannelConfig};
use crate::Rank;
use roci_launcher::JobError;

/// Why a channel was not opened.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] BadChannelConfig),
    /// There is no memory.
    #[error(transparent)]
    Arena(#[from] ArenaError),
    /// All keys are in use.
    #[error("no key is free for the channel's rings")]
    NoKey,
    /// A queue pair takes no work requests, or is in use already.
    #[error("rank {0}: {1}")]
    Post(Rank, PostError),
    /// The launcher or a peer is missing.
    #[error(transparent)]
    Job(#[from] JobError),
}

/// Why a call on a channel failed.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum ChannelError {
    /// No such peer; a rank is none of its own.
    #[error("rank {rank} is no peer in this job of {size}")]
    NoPeer {
        /// What was given.
        rank: Rank,
        /// How many ranks there are.
        size: usize,
    },
    /// The connection has failed.
    #[error("rank {rank} is gone: {status} ({})", .status.verbs_name())]
    PeerGone {
        /// Which.
        rank: Rank,
        /// How it was noticed.
        status: WcStatus,
    },
    /// The peer wrote what no peer writes; the connection was ended.
    #[error("rank {rank} broke the channel's protocol: {breach}")]
    PeerProtocol {
        /// Which.
        rank: Rank,
        /// What it did.
        breach: Breach,
    },
    /// The peer's channel was opened with another configuration.
    #[error("rank {rank} has another configuration: {theirs:?}, and here it is {ours:?}")]
    OtherConfig {
        /// Which.
        rank: Rank,
        /// Its configuration.
        theirs: Box<ChannelConfig>,
        /// This end's.
        ours: Box<ChannelConfig>,
    },
    /// A payload is being put to this peer: nothing else can be until its put has answered with its length.
    #[error("a payload is being put to rank {0}: repeat its put until it answers with its length")]
    PutPending(Rank),
    /// A payload is being fetched into a buffer that was given to an earlier call.
    #[error("a payload is being fetched from rank {0}: repeat get_into without a buffer until it answers")]
    GetPending(Rank),
    /// There is no buffer to get into, and no earlier one is in use.
    #[error("get_into was given no buffer, and has none of rank {0}'s")]
    NoBuffer(Rank),
    /// The handle's payload was released.
    #[error("no such payload")]
    NoPayload,
    /// The payload is being put to a peer, who may be reading it.
    #[error("the payload is being put to a peer")]
    PayloadInUse,
    /// The range does not lie in the payload.
    #[error("bytes {offset}..{offset}+{len} do not lie in a payload of {room} bytes")]
    PayloadRange {
        /// Where it was to begin.
        offset: usize,
        /// How long it was to be.
        len: usize,
        /// The payload's length.
        room: usize,
    },
    /// The payload is longer than one READ fetches.
    #[error("a payload of {0} bytes is longer than 2 GiB")]
    PayloadTooLong(usize),
    /// Too many payloads were adopted and not released.
    #[error("{0} payloads are adopted already: release some of them first")]
    TooManyPayloads(usize),
    /// All keys of the engine are in use.
    #[error("no key is free for the payload")]
    NoKey,
    /// The job has ended.
    #[error("the job is over: {0}")]
    Job(String),
}

/// What a peer did that no peer does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum Breach {
    /// Its first message is none, or a second one came.
    #[error("a first message that is none")]
    Hello,
    /// It wrote before its first message.
    #[error("news before the first message")]
    EarlyNews,
    /// The immediate data means nothing, or nothing in this configuration.
    #[error("immediate data {0:#010x}")]
    Immediate(u32),
    /// The head is not further on, or further than the ring is long.
    #[error("a head {advance} ahead, with room for {room}")]
    Head {
        /// How far it moved.
        advance: u64,
        /// How far it may.
        room: u64,
    },
    /// The head's word does not agree with the news of it.
    #[error("a head's word that says {0}")]
    HeadWord(u64),
    /// The tail is beyond the head, or behind what it was.
    #[error("a tail of {tail}, which lies outside {known}..={head}")]
    Tail {
        /// What it says.
        tail: u64,
        /// What it was.
        known: u64,
        /// What was sent.
        head: u64,
    },
    /// A chunk's header has another number, or another length than was written.
    #[error("a chunk of number {number} and length {len} in {written} bytes")]
    Header {
        /// Its number's low bits.
        number: u32,
        /// The length that it says.
        len: u32,
        /// Bytes that were written.
        written: usize,
    },
    /// A notice of a head or a tail is not a word long.
    #[error("a notice of {0} bytes")]
    Notice(usize),
    /// It announced a payload that is empty or longer than a READ, or is no announcement at all.
    #[error("an announcement of {0} bytes")]
    Announcement(u64),
    /// It announced a payload though zero-copy is off, or sent more before its announced payload was fetched.
    #[error("more data before the announced payload was fetched")]
    Unasked,
}
