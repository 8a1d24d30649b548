//! A worker under test, which is one of both kinds, and what tests look at inside it.

use std::ops::{Deref, DerefMut};

use roci_driver::EngineStats;
use roci_driver::link::faulty::Faulty;
use roci_driver::link::sim::SimLink;
use roci_msgcore::dedicated::SteppedEngine;
use roci_msgcore::stream::{Stream, StreamError};
use roci_msgcore::{
    Buffer, CallError, ClaimedMessage, CloseError, Config, DedicatedWorker, Done, Dropped, EndpointAddress, Envelope,
    Messaging, OpError, Pattern, PeerId, Rank, Refused, Request, SomeFailed, Source, Tag, TagMatch, Worker,
    WorkerStats,
};

type Link = Faulty<SimLink>;

/// A worker whose engine runs inside its calls, at once or behind the rings of a dedicated one. What it does is
/// [`Messaging`]; what a test sees of its inside is the worker's.
pub(crate) enum TestWorker {
    Inline(Box<Worker<Link>>),
    Dedicated(Box<DedicatedWorker<SteppedEngine<Link>>>),
}

impl TestWorker {
    pub(crate) fn inline(worker: Worker<Link>) -> Self {
        Self::Inline(Box::new(worker))
    }

    pub(crate) fn dedicated(worker: Worker<Link>, config: &Config) -> Self {
        Self::Dedicated(Box::new(DedicatedWorker::stepped(worker, config)))
    }

    pub(crate) fn is_dedicated(&self) -> bool {
        matches!(self, Self::Dedicated(_))
    }

    pub(crate) fn abort(self) -> Dropped {
        match self {
            Self::Inline(worker) => worker.abort(),
            Self::Dedicated(worker) => worker.abort().expect("it lives"),
        }
    }

    pub(crate) fn close(self) -> Result<Dropped, CloseError> {
        match self {
            Self::Inline(worker) => worker.close(),
            Self::Dedicated(worker) => worker.close(),
        }
    }

    /// The worker itself.
    pub(crate) fn inside(&self) -> &Worker<Link> {
        match self {
            Self::Inline(worker) => worker,
            Self::Dedicated(worker) => worker.worker().expect("it lives"),
        }
    }

    pub(crate) fn next_exchange(&mut self) -> Option<(EndpointAddress, String)> {
        (**self).next_exchange().expect("it lives")
    }

    pub(crate) fn stream(&mut self, peer: impl Into<PeerId>) -> Result<Stream<'_, dyn Messaging + '_>, StreamError> {
        Stream::open(&mut **self, peer)
    }

    /// Bytes that are the application's to use, and those that the worker made buffers of.
    pub(crate) fn memory(&self) -> usize {
        self.free_bytes() + self.inside().vbuf_bytes()
    }

    /// Bytes that are the application's to use, those that a dedicated worker's handle keeps for it among them.
    pub(crate) fn free_bytes(&self) -> usize {
        let kept = match self {
            Self::Inline(_) => 0,
            Self::Dedicated(worker) => worker.kept_bytes(),
        };
        self.inside().free_bytes() + kept
    }

    pub(crate) fn stats(&self) -> WorkerStats {
        self.inside().stats()
    }

    pub(crate) fn engine_stats(&self) -> EngineStats {
        self.inside().engine_stats()
    }

    pub(crate) fn injected_faults(&self) -> u64 {
        self.inside().injected_faults()
    }

    pub(crate) fn is_connected(&self, peer: impl Into<PeerId>) -> bool {
        self.inside().is_connected(peer)
    }

    pub(crate) fn probe(&mut self, pattern: Pattern) -> Option<Envelope> {
        (**self).probe(pattern).expect("it lives")
    }

    pub(crate) fn claim(&mut self, pattern: Pattern) -> Option<ClaimedMessage> {
        (**self).claim(pattern).expect("it lives")
    }

    /// Whether a request is over once the engine has taken its turn, which an inline one takes in the calls.
    pub(crate) fn test_in_turn(&mut self, request: Request) -> Option<Result<Done, OpError>> {
        self.take_turn();
        self.test(request)
    }

    /// Lets a dedicated worker's engine carry out the calls that were made.
    pub(crate) fn take_turn(&mut self) {
        if self.is_dedicated() {
            self.progress();
        }
    }

    /// Why a message to a peer that is gone is not sent. A dedicated worker's engine knows it, not its handle.
    pub(crate) fn send_error(&mut self, to: Rank, bytes: &[u8]) -> OpError {
        match self.send_bytes(to.into(), Tag::new(1), bytes) {
            Err(CallError::Peer(error)) => error,
            Err(other) => panic!("{other}"),
            Ok(request) => {
                self.test_in_turn(request).expect("refused at once").map(|done| done.len).expect_err("it is gone")
            }
        }
    }

    pub(crate) fn recv(
        &mut self,
        source: impl Into<Source>,
        tag: impl Into<TagMatch>,
        buffer: Buffer,
    ) -> Result<Request, Refused<Buffer>> {
        self.recv_with(Pattern::new(source, tag), buffer)
    }

    pub(crate) fn wait_all(&mut self, requests: impl IntoIterator<Item = Request>) -> Result<Vec<Done>, SomeFailed> {
        (**self).wait_all(requests.into_iter().collect())
    }
}

impl Deref for TestWorker {
    type Target = dyn Messaging;

    fn deref(&self) -> &Self::Target {
        match self {
            Self::Inline(worker) => &**worker,
            Self::Dedicated(worker) => &**worker,
        }
    }
}

impl DerefMut for TestWorker {
    fn deref_mut(&mut self) -> &mut Self::Target {
        match self {
            Self::Inline(worker) => &mut **worker,
            Self::Dedicated(worker) => &mut **worker,
        }
    }
}
