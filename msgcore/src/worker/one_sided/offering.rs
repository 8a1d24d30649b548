//! Offering memory to peers without registering it: Firehose, which was GASNet's.
//!
//! [`OneSided::expose`](super::OneSided::expose) registers memory whole, for as long as it is exposed: it takes a key, and pages that stay
//! where they are. Memory that is offered is registered in buckets, as peers want them, and for as long as they use them or their
//! place is not needed. So a rank may offer more than it can register, and what no peer reaches costs nothing. The keys are used
//! like those of segments, by all one-sided operations but long active messages.
//!
//! A peer has F *firehoses* into a rank's memory, each of which leads to one bucket. An operation to where they lead costs the target
//! nothing more; otherwise the firehoses that were used longest ago are moved there by a message and its answer. How many
//! there are, and how large a bucket is, follows from `firehose_m`, `firehose_maxvictim_m` and `firehose_bucket`; the counters
//! of [`FirehoseStats`] say how often which case was met.
//!
//! The application may use what it offers meanwhile, like a target ([`UserMemory::target`]), and reads what peers have put there by
//! itself. Where an operation fails since memory is not offered any more, or cannot be registered, it ends alone
//! ([`OpError::Denied`](crate::OpError::Denied), [`OpError::NotPinned`](crate::OpError::NotPinned)); but a peer that
//! uses what it had been given, after it was taken back, loses the connection as with a segment that was withdrawn.

use roci_driver::UserMemory;
use roci_driver::link::Link;

use super::OfferedMemory;
use crate::Worker;
use crate::core::refused::{CallError, Refused};
use crate::services::rma::firehose::FirehoseStats;

/// Memory of a worker that peers may reach, and that is registered when they do.
pub trait Offering {
    /// Offers the application's own memory to peers. What is exclusive is shared with them from here on, and a source may be read alone.
    /// Its maker's promises hold until it was taken back.
    ///
    /// # Errors
    /// The configuration leaves no memory or no keys for that. The memory comes back, unless it went with a dedicated worker's
    /// thread.
    fn offer(&mut self, memory: UserMemory) -> Result<OfferedMemory, Refused<Option<UserMemory>>>;

    /// Takes an offer back. Operations of peers that come later are denied.
    ///
    /// # Errors
    /// There is no such offer.
    fn retract(&mut self, offer: OfferedMemory) -> Result<UserMemory, CallError>;

    /// Returns what this worker's operations met at its peers, and what those of its peers met here.
    ///
    /// # Errors
    /// The thread of a dedicated worker has ended.
    fn firehose_stats(&mut self) -> Result<FirehoseStats, CallError>;
}

impl<L: Link> Offering for Worker<L> {
    fn offer(&mut self, memory: UserMemory) -> Result<OfferedMemory, Refused<Option<UserMemory>>> {
        self.endpoint.offer(memory).map_err(|Refused { why, given }| Refused { why, given: Some(given) })
    }

    fn retract(&mut self, offer: OfferedMemory) -> Result<UserMemory, CallError> {
        self.endpoint.retract(offer)
    }

    fn firehose_stats(&mut self) -> Result<FirehoseStats, CallError> {
        Ok(self.endpoint.services.rma.firehose_stats())
    }
}
