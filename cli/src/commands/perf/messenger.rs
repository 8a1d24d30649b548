//! What a measurement of tagged messages needs of a worker, wherever that lives.

use std::time::Instant;

use roci_driver::{ArenaError, Buffer};
use roci_msgcore::{CallError, DedicatedWorker, Done, OpError, Rank, Request, Tag, Worker};
use roci_protocol::Nanos;

/// A worker on this thread or on one of its own.
pub(super) trait Messenger {
    /// What names an operation under way.
    type Name;

    fn rank(&self) -> Rank;

    /// Nanoseconds of a monotonic clock.
    fn now(&self, since: Instant) -> Nanos;

    fn buffer(&self, len: usize) -> Result<Buffer, ArenaError>;

    fn send(&mut self, to: Rank, tag: Tag, payload: Buffer) -> Result<Self::Name, CallError>;

    fn send_bytes(&mut self, to: Rank, tag: Tag, bytes: &[u8]) -> Result<Self::Name, CallError>;

    fn recv(&mut self, from: Rank, tag: Tag, buffer: Buffer) -> Result<Self::Name, CallError>;

    fn wait(&mut self, name: Self::Name) -> Result<Done, OpError>;

    fn barrier(&mut self) -> Result<(), OpError>;
}

/// The calls that have the same name and arguments in both.
macro_rules! messenger {
    ($worker:ty, $name:ty, $now:expr) => {
        impl Messenger for $worker {
            type Name = $name;

            fn rank(&self) -> Rank {
                self.rank()
            }

            fn now(&self, since: Instant) -> Nanos {
                $now(self, since)
            }

            fn buffer(&self, len: usize) -> Result<Buffer, ArenaError> {
                self.buffer(len)
            }

            fn send(&mut self, to: Rank, tag: Tag, payload: Buffer) -> Result<$name, CallError> {
                Ok(self.send(to, tag, payload)?)
            }

            fn send_bytes(&mut self, to: Rank, tag: Tag, bytes: &[u8]) -> Result<$name, CallError> {
                self.send_bytes(to, tag, bytes)
            }

            fn recv(&mut self, from: Rank, tag: Tag, buffer: Buffer) -> Result<$name, CallError> {
                Ok(self.recv(from, tag, buffer)?)
            }

            fn wait(&mut self, name: $name) -> Result<Done, OpError> {
                self.wait(name)
            }

            fn barrier(&mut self) -> Result<(), OpError> {
                self.barrier()
            }
        }
    };
}

messenger!(Worker, Request, |worker: &Worker, _| worker.now());
// The ports' clock is on the other thread.
messenger!(DedicatedWorker, Request, |_: &DedicatedWorker, since: Instant| since.elapsed().as_nanos() as Nanos);
