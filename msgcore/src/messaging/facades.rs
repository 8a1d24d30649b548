//! What both workers are: each call of the trait is the worker's own.

use std::time::Duration;

use roci_driver::{ArenaError, Buffer, EngineStats, UserMemory};

use super::Messaging;
use crate::core::completion::{Completion, Done, Envelope, OpError, SomeFailed};
use crate::core::refused::{CallError, Refused};
use crate::core::request::Request;
use crate::core::stats::WorkerStats;
use crate::dedicated::EngineHost;
use crate::services::tag::claims::ClaimedMessage;
use crate::services::tag::matching::Pattern;
use crate::services::tag::send::SendOptions;
use crate::worker::Dropped;
use crate::worker::closing::CloseError;
use crate::worker::flush::FlushError;
use crate::{DedicatedWorker, PeerId, Rank, Tag, Worker, WorkerEvent};

/// The methods that have the same name, arguments and result in both.
macro_rules! same {
    () => {
        fn rank(&self) -> Rank {
            self.rank()
        }

        fn size(&self) -> usize {
            self.size()
        }

        fn is_forked(&self) -> bool {
            self.is_forked()
        }

        fn buffer(&self, len: usize) -> Result<Buffer, ArenaError> {
            self.buffer(len)
        }

        fn give_back(&mut self, buffer: Buffer) {
            self.give_back(buffer);
        }

        fn progress(&mut self) -> bool {
            self.progress()
        }

        fn connect(&mut self, peer: PeerId) -> Result<(), CallError> {
            self.connect(peer)
        }

        #[inline]
        fn send_with(
            &mut self,
            to: PeerId,
            tag: Tag,
            payload: Buffer,
            options: SendOptions,
        ) -> Result<Request, Refused<Buffer>> {
            self.send_with(to, tag, payload, options)
        }

        fn send_bytes(&mut self, to: PeerId, tag: Tag, bytes: &[u8]) -> Result<Request, CallError> {
            self.send_bytes(to, tag, bytes)
        }

        fn send_buffered(
            &mut self,
            to: PeerId,
            tag: Tag,
            bytes: &[u8],
            options: SendOptions,
        ) -> Result<Request, CallError> {
            self.send_buffered(to, tag, bytes, options)
        }

        #[inline]
        fn inject(&mut self, to: PeerId, tag: Tag, bytes: &[u8], options: SendOptions) -> Result<(), CallError> {
            self.inject(to, tag, bytes, options)
        }

        fn inject_size(&self) -> usize {
            self.inject_size()
        }

        #[inline]
        fn recv_with(&mut self, pattern: Pattern, buffer: Buffer) -> Result<Request, Refused<Buffer>> {
            self.recv_with(pattern, buffer)
        }

        fn recv_multi(
            &mut self,
            pattern: Pattern,
            buffer: Buffer,
            least: usize,
            context: u64,
        ) -> Result<Request, Refused<Buffer>> {
            self.recv_multi(pattern, buffer, least, context)
        }

        fn recv_in_place(&mut self, pattern: Pattern) -> Result<Request, CallError> {
            self.recv_in_place(pattern)
        }

        fn recv_message(
            &mut self,
            message: ClaimedMessage,
            buffer: Buffer,
        ) -> Result<Request, Refused<(ClaimedMessage, Buffer)>> {
            self.recv_message(message, buffer)
        }

        fn wait_probe(&mut self, pattern: Pattern) -> Result<Envelope, CallError> {
            self.wait_probe(pattern)
        }

        fn wait_claim(&mut self, pattern: Pattern) -> Result<ClaimedMessage, CallError> {
            self.wait_claim(pattern)
        }

        fn discard(&mut self, message: ClaimedMessage) {
            self.discard(message);
        }

        fn cancel(&mut self, request: Request) {
            self.cancel(request);
        }

        fn detach(&mut self, request: Request) {
            self.detach(request);
        }

        #[inline]
        fn test(&mut self, request: Request) -> Option<Result<Done, OpError>> {
            self.test(request)
        }

        #[inline]
        fn wait(&mut self, request: Request) -> Result<Done, OpError> {
            self.wait(request)
        }

        fn wait_all(&mut self, requests: Vec<Request>) -> Result<Vec<Done>, SomeFailed> {
            self.wait_all(requests)
        }

        fn wait_any(&mut self, requests: &[Request]) -> Result<(usize, Result<Done, OpError>), OpError> {
            self.wait_any(requests)
        }

        fn queue_completion(&mut self, request: Request, context: u64) -> Result<(), OpError> {
            self.queue_completion(request, context)
        }

        #[inline]
        fn poll_completion(&mut self) -> Option<Completion> {
            self.poll_completion()
        }

        fn wait_completion(&mut self) -> Result<Completion, OpError> {
            self.wait_completion()
        }

        fn poll_event(&mut self) -> Option<WorkerEvent> {
            self.poll_event()
        }

        fn barrier(&mut self) -> Result<(), OpError> {
            self.barrier()
        }

        fn flush(&mut self, to: Option<PeerId>, timeout: Duration) -> Result<(), FlushError> {
            self.flush(to, timeout)
        }

        fn free_bytes(&self) -> usize {
            self.free_bytes()
        }

        fn close(self) -> Result<Dropped, CloseError> {
            self.close()
        }
    };
}

impl<L: roci_driver::link::Link> Messaging for Worker<L> {
    same!();

    #[inline]
    fn ring_doorbell(&mut self) {
        self.ring_doorbell();
    }

    fn adopt(&mut self, memory: UserMemory) -> Result<Buffer, CallError> {
        Ok(self.adopt(memory)?)
    }

    fn is_connected(&mut self, peer: PeerId) -> Result<bool, OpError> {
        if Worker::is_forked(self) { Err(OpError::Forked) } else { Ok(Worker::is_connected(self, peer)) }
    }

    fn probe(&mut self, pattern: Pattern) -> Result<Option<Envelope>, OpError> {
        if Worker::is_forked(self) { Err(OpError::Forked) } else { Ok(self.probe(pattern)) }
    }

    fn claim(&mut self, pattern: Pattern) -> Result<Option<ClaimedMessage>, OpError> {
        if Worker::is_forked(self) { Err(OpError::Forked) } else { Ok(self.claim(pattern)) }
    }

    fn stats(&mut self) -> Result<WorkerStats, OpError> {
        Ok(Worker::stats(self))
    }

    fn engine_stats(&mut self) -> Result<EngineStats, OpError> {
        Ok(Worker::engine_stats(self))
    }

    fn injected_faults(&mut self) -> Result<u64, OpError> {
        Ok(Worker::injected_faults(self))
    }

    fn abort(self) -> Result<Dropped, OpError> {
        Ok(self.abort())
    }
}

impl<H: EngineHost> Messaging for DedicatedWorker<H> {
    same!();

    fn adopt(&mut self, memory: UserMemory) -> Result<Buffer, CallError> {
        self.adopt(memory)
    }

    fn is_connected(&mut self, peer: PeerId) -> Result<bool, OpError> {
        self.is_connected(peer)
    }

    fn probe(&mut self, pattern: Pattern) -> Result<Option<Envelope>, OpError> {
        self.probe(pattern)
    }

    fn claim(&mut self, pattern: Pattern) -> Result<Option<ClaimedMessage>, OpError> {
        self.claim(pattern)
    }

    fn stats(&mut self) -> Result<WorkerStats, OpError> {
        self.stats()
    }

    fn engine_stats(&mut self) -> Result<EngineStats, OpError> {
        self.engine_stats()
    }

    fn injected_faults(&mut self) -> Result<u64, OpError> {
        self.injected_faults()
    }

    fn abort(self) -> Result<Dropped, OpError> {
        self.abort()
    }
}
