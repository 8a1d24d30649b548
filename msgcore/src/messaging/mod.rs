//! What every worker can do, wherever its engine runs: one trait for both.

pub mod collectives;
mod facades;
mod peer_addressing;

use std::time::Duration;

use roci_driver::{ArenaError, Buffer, EngineStats, UserMemory};

use crate::core::completion::{Completion, Done, Envelope, OpError, SomeFailed};
use crate::core::refused::{CallError, Refused};
use crate::core::request::Request;
use crate::core::stats::WorkerStats;
use crate::services::tag::claims::ClaimedMessage;
use crate::services::tag::matching::Pattern;
use crate::services::tag::send::SendOptions;
use crate::worker::Dropped;
use crate::worker::active::ActiveMessages;
use crate::worker::closing::CloseError;
use crate::worker::flush::FlushError;
use crate::worker::one_sided::{KeyNames, Offering, OneSided};
use crate::worker::stream::Streams;
use crate::{PeerId, Rank, Source, Tag, TagMatch, WorkerEvent};

pub use peer_addressing::PeerAddressing;

/// Tagged messages between peers: ranks of a job, or workers alone, which [`PeerAddressing`] names.
///
/// A [`Worker`](crate::Worker) makes progress inside these calls; a [`DedicatedWorker`](crate::DedicatedWorker) does on a thread of its own.
/// A program that is generic over this trait, or takes a `&mut dyn Messaging`, runs on either; the methods are those of the types, which
/// say more. Byte streams are [`Streams`], one-sided operations [`OneSided`], [`Offering`] and [`KeyNames`], active messages
/// [`ActiveMessages`].
pub trait Messaging: PeerAddressing + Streams + OneSided + Offering + KeyNames + ActiveMessages {
    /// Returns this rank; 0 for a worker alone.
    fn rank(&self) -> Rank;

    /// Returns how many ranks there are; 1 for a worker alone.
    fn size(&self) -> usize;

    /// Whether this process was forked from the one that opened the worker.
    fn is_forked(&self) -> bool;

    /// Returns memory for messages.
    fn buffer(&self, len: usize) -> Result<Buffer, ArenaError>;

    /// Makes a buffer of the application's own memory.
    fn adopt(&mut self, memory: UserMemory) -> Result<Buffer, CallError>;

    /// Gives memory back that a receive has handed out, or any other that is not needed any more.
    fn give_back(&mut self, buffer: Buffer);

    /// Does what can be done now, without waiting; returns whether anything happened.
    fn progress(&mut self) -> bool;

    /// Begins to connect to a peer, which the first message would do too.
    fn connect(&mut self, peer: PeerId) -> Result<(), CallError>;

    /// Whether messages to a peer leave at once.
    fn is_connected(&mut self, peer: PeerId) -> Result<bool, OpError>;

    /// Sends in another mode or context than the usual ones.
    fn send_with(
        &mut self,
        to: PeerId,
        tag: Tag,
        payload: Buffer,
        options: SendOptions,
    ) -> Result<Request, Refused<Buffer>>;

    /// Sends a copy of `bytes`.
    fn send_bytes(&mut self, to: PeerId, tag: Tag, bytes: &[u8]) -> Result<Request, CallError>;

    /// Sends a copy of `bytes`, of which there is a bounded amount (`MPI_Ibsend`).
    fn send_buffered(&mut self, to: PeerId, tag: Tag, bytes: &[u8], options: SendOptions)
    -> Result<Request, CallError>;

    /// Sends `bytes`, which are the caller's again when the call returns, without an operation to wait for (`fi_tinject`).
    fn inject(&mut self, to: PeerId, tag: Tag, bytes: &[u8], options: SendOptions) -> Result<(), CallError>;

    /// Returns the longest message that may be injected, in bytes.
    fn inject_size(&self) -> usize;

    /// Has what was sent before leave now, for who computes next: see [`Worker::ring_doorbell`](crate::Worker::ring_doorbell). With a
    /// thread for progress it leaves anyway.
    fn ring_doorbell(&mut self) {}

    /// Receives a message of any context into `buffer`.
    fn recv_with(&mut self, pattern: Pattern, buffer: Buffer) -> Result<Request, Refused<Buffer>>;

    /// Receives messages into `buffer`, one behind the other, until less than `least` bytes of it are left (libfabric's
    /// `FI_MULTI_RECV`); each is a completion with `context`, and so is the end. [`Worker::recv_multi`](crate::Worker::recv_multi)
    /// says more.
    fn recv_multi(
        &mut self,
        pattern: Pattern,
        buffer: Buffer,
        least: usize,
        context: u64,
    ) -> Result<Request, Refused<Buffer>>;

    /// Receives a message in memory of the worker's.
    fn recv_in_place(&mut self, pattern: Pattern) -> Result<Request, CallError>;

    /// Receives a message that was claimed (`MPI_Imrecv`).
    fn recv_message(
        &mut self,
        message: ClaimedMessage,
        buffer: Buffer,
    ) -> Result<Request, Refused<(ClaimedMessage, Buffer)>>;

    /// Returns what a message says of itself that such a receive would take, if one has come (`MPI_Iprobe`).
    fn probe(&mut self, pattern: Pattern) -> Result<Option<Envelope>, OpError>;

    /// Waits until such a message has come (`MPI_Probe`).
    fn wait_probe(&mut self, pattern: Pattern) -> Result<Envelope, CallError>;

    /// Claims the message that such a receive would take, if one has come (`MPI_Improbe`).
    fn claim(&mut self, pattern: Pattern) -> Result<Option<ClaimedMessage>, OpError>;

    /// Waits until such a message has come, and claims it (`MPI_Mprobe`).
    fn wait_claim(&mut self, pattern: Pattern) -> Result<ClaimedMessage, CallError>;

    /// Discards a message that was claimed: its memory is free again, and its sender's operation ends as if it had been
    /// received (libfabric's `FI_DISCARD`). A message that is dropped is discarded too, when its worker next looks around.
    fn discard(&mut self, message: ClaimedMessage);

    /// Takes an operation back, if it has met nothing yet (`MPI_Cancel`).
    fn cancel(&mut self, request: Request);

    /// Leaves an operation alone, whose outcome will not be asked for (`MPI_Request_free`).
    fn detach(&mut self, request: Request);

    /// Returns the outcome of an operation that is over, or `None` while it is not.
    fn test(&mut self, request: Request) -> Option<Result<Done, OpError>>;

    /// Waits until an operation is over.
    fn wait(&mut self, request: Request) -> Result<Done, OpError>;

    /// Waits until all operations are over.
    fn wait_all(&mut self, requests: Vec<Request>) -> Result<Vec<Done>, SomeFailed>;

    /// Waits until one of these operations is over, and returns which, and how it has ended (`MPI_Waitany`).
    fn wait_any(&mut self, requests: &[Request]) -> Result<(usize, Result<Done, OpError>), OpError>;

    /// Has the outcome of an operation go into the completion queue, with a value of the application's, unless it is taken by
    /// name before ([`Messaging::test`]).
    fn queue_completion(&mut self, request: Request, context: u64) -> Result<(), OpError>;

    /// Returns the next completion; makes progress where there is none.
    fn poll_completion(&mut self) -> Option<Completion>;

    /// Waits for a completion.
    fn wait_completion(&mut self) -> Result<Completion, OpError>;

    /// Takes up to `most` completions to the end of `into`, and returns how many those are (`ibv_poll_cq`, `fi_cq_read`).
    fn poll_completions(&mut self, into: &mut Vec<Completion>, most: usize) -> usize {
        let before = into.len();
        while into.len() - before < most
            && let Some(completion) = self.poll_completion()
        {
            into.push(completion);
        }
        into.len() - before
    }

    /// Returns what has happened to the worker as a whole.
    fn poll_event(&mut self) -> Option<WorkerEvent>;

    /// Waits until every rank has called this.
    fn barrier(&mut self) -> Result<(), OpError>;

    /// Waits until all that was sent to a peer, or to all, is in its memory, for `timeout` at most.
    fn flush(&mut self, to: Option<PeerId>, timeout: Duration) -> Result<(), FlushError>;

    /// Returns the worker's counters.
    fn stats(&mut self) -> Result<WorkerStats, OpError>;

    /// Returns the engine's counters.
    fn engine_stats(&mut self) -> Result<EngineStats, OpError>;

    /// Returns how many faults were injected on all ports.
    fn injected_faults(&mut self) -> Result<u64, OpError>;

    /// Returns the free bytes of the arena.
    fn free_bytes(&self) -> usize;

    /// Waits until every rank closes, and ends the worker.
    fn close(self) -> Result<Dropped, CloseError>
    where
        Self: Sized;

    /// Ends the worker without waiting for any rank.
    fn abort(self) -> Result<Dropped, OpError>
    where
        Self: Sized;

    /// Sends all of `payload` to peer `to`.
    fn send(&mut self, to: PeerId, tag: Tag, payload: Buffer) -> Result<Request, Refused<Buffer>> {
        self.send_with(to, tag, payload, SendOptions::default())
    }

    /// Receives a message into `buffer`.
    fn recv(
        &mut self,
        source: impl Into<Source>,
        tag: impl Into<TagMatch>,
        buffer: Buffer,
    ) -> Result<Request, Refused<Buffer>>
    where
        Self: Sized,
    {
        self.recv_with(Pattern::new(source, tag), buffer)
    }

    /// Sends a copy of `bytes`, and returns when the send is over (`MPI_Send`): at once for a short message, and for a long
    /// one when the receiver has it.
    ///
    /// # Errors
    /// The send was refused, or its peer is gone.
    fn send_from(&mut self, to: PeerId, tag: Tag, bytes: &[u8]) -> Result<(), CallError> {
        let request = self.send_bytes(to, tag, bytes)?;
        let done = self.wait_or_leave(request)?;
        self.give_back(done.buffer);
        Ok(())
    }

    /// Waits for a message, copies it to the front of `into`, and returns what it says of itself (`MPI_Recv`).
    ///
    /// # Errors
    /// The receive was refused; no message can come any more; or one came that is longer than `into`
    /// ([`OpError::Truncated`]), of which nothing was copied and which is gone.
    fn recv_into(&mut self, pattern: Pattern, into: &mut [u8]) -> Result<Envelope, CallError> {
        let buffer = self.buffer(into.len())?;
        let request = self.recv_with(pattern, buffer)?;
        let Done { buffer, len, peer: source, tag, data, .. } = self.wait_or_leave(request)?;
        into[..len].copy_from_slice(&buffer[..len]);
        self.give_back(buffer);
        Ok(Envelope { source, tag, len, data })
    }

    /// Waits until an operation is over whose name the caller will not have: where the wait ends before the operation does,
    /// it is taken back.
    #[doc(hidden)]
    fn wait_or_leave(&mut self, request: Request) -> Result<Done, OpError> {
        self.wait(request).inspect_err(|_| {
            self.cancel(request);
            self.detach(request);
        })
    }
}
