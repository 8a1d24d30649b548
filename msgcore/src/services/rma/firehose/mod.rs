//! Firehose: which memory of which rank is pinned, so that one-sided transfers find it pinned without asking.
//!
//! Memory that a peer reads or writes by RDMA must be pinned. To pin all of it is often impossible, and to ask for each
//! transfer costs a round trip and a registration. Firehose (Bell and Bonachea, "A New DMA Registration Strategy for
//! Pinning-Based High Performance Networks", 2003; GASNet's `other/firehose`) does neither. Each rank puts M bytes aside
//! for its peers, in equal shares. A share is F *firehoses*, each of which leads to one bucket of memory, and it is the
//! peer that decides which: while a firehose leads to a bucket, the bucket is pinned, and the peer has its key. So a
//! transfer to where firehoses lead already is a *hit* and costs the target nothing. Otherwise firehoses that are not in use
//! are moved, the one that was not used for longest first: one request, one answer. Memory is unpinned as late as
//! possible, at both ends.
//!
//! This is the engine alone. It has no clock and no sockets; what it wants done it asks of an [`Environment`].
//!
//! # Use
//! For each transfer: [`FirehoseEngine::acquire`] the peer's memory, transfer with the keys of [`FirehoseEngine::pieces`], and
//! [`FirehoseEngine::release`] it. The first call grants a [`Hold`] at once, or `None`, and the environment hears of its end. What
//! peers send goes to [`FirehoseEngine::on_message`]. The memory at this end of a transfer is the registration cache's.
//!
//! # No deadlock
//! An operation takes all it needs at once or nothing, and one that finds too little waits in line, so that none holds
//! a part and waits for the rest, and none is overtaken for ever. Answers never wait: a target pins within M, which is
//! the peers' own. So everything ends, if an operation that has acquired memory of peers releases it without waiting for
//! more.
//!
//! # Two races
//! GASNet's notes describe both. *A bucket is given up, and wanted again before the peer has answered*: the second
//! request may overtake the first, because a peer is several queue pairs, and the peer would unpin what is in use. Here
//! such a bucket is [`Standing::Leaving`] until that answer, and an operation that wants it waits in line. *A bucket
//! that was not in use is used again, and stays among the victims*: here it leaves their queue in the very step that
//! counts its use, and all code that counts goes through that step.
//!
//! # Limits
//! F firehoses to each peer; MAXVICTIM; 2^16 operations; [`MAX_BUCKETS`] buckets for one operation, so
//! that its move fits one message. Each ends in an error by name or in waiting.
//!
//! # Threads and cleanup
//! An engine belongs to one thread. Dropping it unpins nothing: memory is closed with the environment's key table.
//!
//! # Non-goals
//! Virtual memory that is unmapped while it is pinned, regions of several sizes (GASNet's other flavour), and protection
//! of the ranks of a job from each other: a key opens a bucket to any rank that has it, also to a rank that has moved its
//! firehose elsewhere, as long as the bucket stays pinned.

mod acquire;
mod answer;
mod bucket;
mod environment;
mod error;
mod failure;
mod firehoses;
mod invariants;
mod limits;
mod moves;
mod operations;
mod pin_error;
mod pins;
mod release;
mod serve;
pub mod sim;
mod standing;
mod state;
mod stats;
mod table;
#[cfg(test)]
mod tests;
mod wire;

use std::collections::VecDeque;

use hashbrown::{HashMap, HashSet};
use roci_protocol::Rkey;

use crate::core::peer_id::PeerId;
use crate::core::slab::{KeySource, Slab};
use firehoses::Firehoses;
use moves::Move;
use operations::{FirehoseOperation, MOST_OPERATIONS, OperationId};
use pins::Pins;

pub use bucket::{BadSpan, Bucket, Grain, Region, Span};
pub use environment::Environment;
pub use error::{AcquireError, Failed, FirehoseBreach};
pub use firehoses::TableViolation;
pub use invariants::FirehoseViolation;
pub use limits::{BadLimits, FirehoseShare, Limits, Pinnable, Settings};
pub use operations::Hold;
pub use pin_error::PinError;
pub use pins::{PinCounts, PinViolation};
pub use standing::{IllegalTurn, Standing, Turn};
pub use state::{BucketEvent, BucketState, Illegal};
pub use stats::FirehoseStats;
pub(crate) use wire::is_answer;
pub use wire::{BadFirehoseMessage, MAX_BUCKETS, MAX_MESSAGE};

/// A part of an operation's memory that one key opens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Where.
    pub span: Span,
    /// The key to it.
    pub key: Rkey,
}

/// One rank's end of all firehoses.
pub struct FirehoseEngine {
    limits: Limits,
    peers: HashMap<PeerId, FirehosePeer>,
    pins: Pins,
    operations: Slab<FirehoseOperation>,
    moves: Slab<Move>,
    stats: FirehoseStats,
    /// Room for a message, for its keys, and for its buckets in order.
    message: Vec<u8>,
    keys: Vec<Rkey>,
    buckets: Vec<Bucket>,
    /// What new peers are made with.
    #[cfg(test)]
    mistake: Option<firehoses::Mistake>,
}

/// What there is between this rank and another.
#[derive(Default)]
struct FirehosePeer {
    /// What it gives this end, once that is known.
    share: Option<FirehoseShare>,
    /// Firehoses to it.
    firehoses: Firehoses,
    /// Acquires that wait: the first one until it can have all it needs, the others behind it.
    line: VecDeque<OperationId>,
    /// Moves that it has not answered.
    open_moves: usize,
    /// Buckets of this rank that it holds firehoses to.
    granted: HashSet<u64>,
}

impl FirehoseEngine {
    /// An engine that gives its peers so much.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            peers: HashMap::new(),
            pins: Pins::new(limits.victims(), limits.held()),
            operations: Slab::new(KeySource::new(MOST_OPERATIONS)),
            moves: Slab::new(KeySource::new(u32::MAX as usize)),
            stats: FirehoseStats::default(),
            message: Vec::new(),
            keys: Vec::new(),
            buckets: Vec::new(),
            #[cfg(test)]
            mistake: None,
        }
    }

    /// What operations did so far.
    pub fn stats(&self) -> FirehoseStats {
        self.stats
    }

    /// What it gives its peers.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// The parts of an operation's memory, bucket by bucket, with the key to each. Nothing, where the peer is gone.
    pub fn pieces(&self, hold: &Hold) -> impl Iterator<Item = Piece> {
        self.operations.get(hold.0).into_iter().flat_map(move |operation| {
            operation.region.buckets().filter_map(move |bucket| self.piece_in(operation, bucket))
        })
    }

    /// The part of an operation's memory that lies in the bucket of an address. Nothing, where the peer is gone.
    pub fn piece_at(&self, hold: &Hold, va: u64) -> Option<Piece> {
        let operation = self.operations.get(hold.0)?;
        let grain = self.peers.get(&operation.peer)?.share?.grain;
        self.piece_in(operation, grain.bucket_of(va))
    }

    fn piece_in(&self, operation: &FirehoseOperation, bucket: Bucket) -> Option<Piece> {
        let there = self.peers.get(&operation.peer)?;
        Some(Piece { span: there.share?.grain.part(operation.span, bucket), key: there.firehoses.key(bucket)? })
    }

    /// Buckets are not offered any more. They are closed at once; peers that hold them learn it by an error, and those that ask for
    /// them anew are refused.
    pub fn withdraw(&mut self, env: &mut impl Environment, region: Region) {
        region.buckets().for_each(|bucket| self.pins.withdraw(env, &mut self.stats, bucket));
    }

    /// How many operations hold memory or wait for it; nothing while a move is under way, whose operations may have ended.
    pub(crate) fn settled_operations(&self) -> Option<usize> {
        (self.moves.iter().next().is_none()).then(|| self.operations.iter().count())
    }

    /// How much of this rank's memory is pinned, and why.
    pub fn pin_counts(&self) -> PinCounts {
        self.pins.counts()
    }

    /// What a bucket of this rank is.
    pub fn state(&self, bucket: Bucket) -> BucketState {
        self.pins.state(bucket)
    }

    /// The key to a bucket of this rank, if it is pinned.
    pub fn key(&self, bucket: Bucket) -> Option<Rkey> {
        self.pins.key(bucket)
    }

    /// Where this rank's firehoses to a peer lead, as far as the peer has said so, by bucket.
    pub fn firehoses_to(&self, peer: PeerId) -> Vec<(Bucket, Rkey)> {
        self.peers.get(&peer).map_or_else(Vec::new, |peer| peer.firehoses.granted_keys())
    }

    /// Whether a peer holds a firehose to a bucket of this rank.
    pub fn has_granted(&self, peer: PeerId, bucket: Bucket) -> bool {
        self.peers.get(&peer).is_some_and(|peer| peer.granted.contains(&bucket.0))
    }

    fn peer_mut(&mut self, peer: PeerId) -> &mut FirehosePeer {
        self.peers.get_mut(&peer).expect("the caller has met it")
    }
}
