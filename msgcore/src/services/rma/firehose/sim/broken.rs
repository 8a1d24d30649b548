//! What goes wrong in a world, as the oracle and the ranks notice it.

use roci_protocol::Rkey;
use thiserror::Error;

use super::plan::Plan;
use crate::Rank;
use crate::services::rma::firehose::{
    AcquireError, Bucket, BucketState, Failed, FirehoseBreach, FirehoseViolation, PinCounts, PinError,
};

/// The end of a world in which a promise was broken.
#[derive(PartialEq, Debug, Error)]
#[error("{promise}\nat {at} ns of {plan:?}")]
#[non_exhaustive]
pub struct BrokenWorld {
    /// The promise, and who broke it.
    #[source]
    pub promise: BrokenPromise,
    /// When, in nanoseconds.
    pub at: u64,
    /// What the world was like.
    pub plan: Plan,
}

/// A promise that was broken.
#[derive(PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum BrokenPromise {
    /// An RDMA finds memory that is not pinned, or not opened by its key.
    #[error("an RDMA of rank {from} with {key:?} lands at {bucket:?}, which is pinned as {pinned:?}")]
    Landing {
        /// Whose RDMA it is.
        from: Rank,
        /// The key that it has.
        key: Rkey,
        /// Where it lands.
        bucket: Bucket,
        /// The key that the bucket has, if it is pinned.
        pinned: Option<Rkey>,
    },
    /// A rank's counts contradict each other.
    #[error("rank {rank}: {violation}")]
    Counts {
        /// Which rank.
        rank: Rank,
        /// What contradicts what.
        #[source]
        violation: FirehoseViolation,
    },
    /// A rank's memory contradicts its counts.
    #[error("rank {rank} has {pinned} buckets pinned, and counts {counts:?}")]
    Pinned {
        /// Which rank.
        rank: Rank,
        /// Buckets that are pinned.
        pinned: usize,
        /// What it counts.
        counts: PinCounts,
    },
    /// A firehose leads to what its owner does not have pinned, or did not grant.
    #[error("rank {holder} has a firehose to {bucket:?} with {key:?}, which is in state {state:?}")]
    Led {
        /// Who holds it.
        holder: Rank,
        /// Where it leads.
        bucket: Bucket,
        /// The key that it has.
        key: Rkey,
        /// What the bucket is.
        state: BucketState,
    },
    /// What the ranks hold together is not what its owner counts.
    #[error("{held} firehoses lead to rank {owner}, and it counts {counted}")]
    Sum {
        /// Whose memory it is.
        owner: Rank,
        /// What the ranks hold.
        held: usize,
        /// What the owner counts.
        counted: u64,
    },
    /// A rank that keeps the protocol was said to break it.
    #[error("rank {rank} says that rank {from} broke the protocol: {breach}")]
    Breach {
        /// Who says it.
        rank: Rank,
        /// Of whom.
        from: Rank,
        /// What it is said to have done.
        #[source]
        breach: FirehoseBreach,
    },
    /// A transfer was not begun, for no reason that this world has.
    #[error("rank {rank}: {error}")]
    NotBegun {
        /// Whose transfer.
        rank: Rank,
        /// Why.
        #[source]
        error: AcquireError,
    },
    /// A transfer has failed, for no reason that this world has.
    #[error("rank {rank}: {error}")]
    Failed {
        /// Whose transfer.
        rank: Rank,
        /// Why.
        #[source]
        error: Failed,
    },
    /// Memory that refuses nothing has refused.
    #[error("rank {rank}: refused without a reason: {reason}")]
    Refused {
        /// Which rank was refused.
        rank: Rank,
        /// What it was given as the reason.
        #[source]
        reason: PinError,
    },
    /// A transfer has more keys, or fewer, than buckets.
    #[error("rank {rank}: {keys} keys to {wanted} buckets")]
    Keys {
        /// Whose transfer.
        rank: Rank,
        /// The keys that it has.
        keys: usize,
        /// Its buckets.
        wanted: u64,
    },
    /// Something ends that is not under way.
    #[error("the end of what was not begun")]
    UnknownEnd,
    /// Something ends twice.
    #[error("a second end")]
    SecondEnd,
    /// Nothing happens any more, and transfers are open.
    #[error("rank {rank}: {open} transfers never end; {complete} did, {failed} failed")]
    NeverEnds {
        /// Whose.
        rank: Rank,
        /// How many are open.
        open: usize,
        /// How many are complete.
        complete: u64,
        /// How many failed.
        failed: u64,
    },
}
