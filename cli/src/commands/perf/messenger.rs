//! What a measurement of tagged messages needs of a worker besides its messages.

use std::time::Instant;

use roci_msgcore::{DedicatedWorker, Messaging, Worker};
use roci_protocol::Nanos;

/// A worker on this thread or on one of its own.
pub(super) trait Messenger: Messaging {
    /// Returns nanoseconds of a monotonic clock.
    fn now(&self, since: Instant) -> Nanos;
}

impl Messenger for Worker {
    fn now(&self, _: Instant) -> Nanos {
        self.now()
    }
}

impl Messenger for DedicatedWorker {
    /// The ports' clock is on the other thread.
    fn now(&self, since: Instant) -> Nanos {
        since.elapsed().as_nanos() as Nanos
    }
}
