//! Waiting: for the end of requests, and for the other ranks.

use std::time::{Duration, Instant};

use roci_driver::link::Link;

use crate::backoff::{Backoff, Idle};
use crate::core::completion::{Completion, Done, OpError, SomeFailed};
use crate::core::request::{Request, first_over};
use crate::services::tag::requests::Requests;
use crate::worker::Worker;
use crate::worker::report::Awaited;
use roci_launcher::JobError;

/// How often a wait looks at what links do not tell.
const GLANCE: Duration = Duration::from_millis(50);

impl<L: Link> Worker<L> {
    /// What need not be looked at in every call; returns whether anything happened.
    #[inline(never)]
    pub(super) fn look_around(&mut self, is_quiet: bool) -> bool {
        self.publish_if_due();
        self.endpoint.look_around() && self.look_at_peers(is_quiet)
    }

    /// Whether a peer asks for a connection, says that one is over, has gone, or has been silent for long.
    pub(crate) fn look_at_peers(&mut self, is_quiet: bool) -> bool {
        self.endpoint.discard_dropped();
        self.endpoint.keep_alive();
        self.report_if_asked();
        self.fetch_mail();
        let happened = self.endpoint.tend_wireup();
        self.part_from_departed(is_quiet);
        self.end_with_launcher();
        self.carry_mail();
        happened
    }

    /// The outcome of a request that is over, or `None` while it is not. Does not make progress.
    pub fn test(&mut self, request: Request) -> Option<Result<Done, OpError>> {
        let outcome = self.endpoint.services.tag.requests.close(request);
        match outcome {
            Some(_) => self.ring_for(request),
            None => self.ring_doorbell(),
        }
        outcome
    }

    /// Waits until a request is over. That a rank has gone ends only what concerns it, by name. A receive from any source
    /// may have been for that rank: once one has failed, its wait ends with [`OpError::Job`] when nothing has happened for
    /// a second, and once all peers have gone with [`OpError::NobodyLeft`]; it can still be met, by a message of this rank
    /// to itself too, waited for again, or taken back.
    #[inline]
    pub fn wait(&mut self, request: Request) -> Result<Done, OpError> {
        if !self.is_over(request) {
            self.wait_until_over(request)?;
        }
        self.ring_for(request);
        self.endpoint.services.tag.requests.close_over(request)
    }

    fn wait_until_over(&mut self, request: Request) -> Result<(), OpError> {
        let mut backoff = Backoff::new(self.limits);
        while !self.is_over(request) {
            self.ring_doorbell();
            if self.progress_or_idle(&mut backoff, Awaited::Request(request))? {
                self.check_wildcard(request)?;
            }
        }
        Ok(())
    }

    #[inline]
    fn is_over(&self, request: Request) -> bool {
        self.endpoint.services.tag.requests.is_over(request)
    }

    /// Waits until all requests are over. Where some have failed the error has the ends of all.
    pub fn wait_all(&mut self, requests: impl IntoIterator<Item = Request>) -> Result<Vec<Done>, SomeFailed> {
        SomeFailed::unless_all_are_good(requests.into_iter().map(|request| self.wait(request)).collect())
    }

    /// Waits until one of these requests is over, and returns which, and how it has ended (`MPI_Waitany`).
    ///
    /// # Errors
    /// As for [`Worker::wait`] of any of them, which all go on; or there is none.
    pub fn wait_any(&mut self, requests: &[Request]) -> Result<(usize, Result<Done, OpError>), OpError> {
        let mut backoff = Backoff::new(self.limits);
        loop {
            if let Some(over) = first_over(requests, |request| self.test(request))? {
                return Ok(over);
            }
            if self.progress_or_idle(&mut backoff, Awaited::AnyOf(requests))? {
                requests.iter().try_for_each(|&request| self.check_wildcard(request))?;
            }
        }
    }

    /// Has the outcome of an operation go into the completion queue, with `context`, unless it is taken by name before
    /// ([`Worker::test`]). One that is over goes there at once.
    ///
    /// # Errors
    /// There is no such operation.
    pub fn queue_completion(&mut self, request: Request, context: u64) -> Result<(), OpError> {
        if self.is_forked() {
            return Err(OpError::Forked);
        }
        let is_there = self.endpoint.services.tag.requests.queue_completion(request, context);
        if is_there { Ok(()) } else { Err(OpError::NoRequest) }
    }

    /// Returns the next completion; makes progress where there is none.
    pub fn poll_completion(&mut self) -> Option<Completion> {
        if self.is_forked() {
            return None;
        }
        self.next_completion().or_else(|| {
            self.progress();
            self.next_completion()
        })
    }

    /// Waits for a completion. A receive from any source that would be one ends where [`Worker::wait`] would end for it, with the
    /// same error.
    ///
    /// # Errors
    /// No operation is under way whose outcome would be a completion, or the job is over.
    pub fn wait_completion(&mut self) -> Result<Completion, OpError> {
        if self.is_forked() {
            return Err(OpError::Forked);
        }
        let mut backoff = Backoff::new(self.limits);
        loop {
            if let Some(completion) = self.next_completion() {
                return Ok(completion);
            }
            let open = self.endpoint.services.tag.requests.completions_open();
            if open == 0 {
                return Err(OpError::NoRequest);
            }
            if self.progress_or_idle(&mut backoff, Awaited::Completion(open))? {
                self.end_wildcards(Requests::is_queued);
            }
        }
    }

    /// Returns the next completion, if there is one already: makes no progress.
    pub fn next_completion(&mut self) -> Option<Completion> {
        let next = self.endpoint.services.tag.requests.next_completion();
        match &next {
            Some((request, _)) => self.ring_for(*request),
            None => self.ring_doorbell(),
        }
        next.map(|(_, completion)| completion)
    }

    /// Waits until every rank has called this; ends with [`OpError::Job`] as soon as one has gone. Messages sent before may still be under way.
    pub fn barrier(&mut self) -> Result<(), OpError> {
        let ended = |error: JobError| OpError::Job(error.to_string());
        if self.is_forked() {
            return Err(OpError::Forked);
        }
        let Some(job) = &mut self.job else { return Ok(()) };
        job.start_barrier().map_err(ended)?;
        let mut backoff = Backoff::new(self.limits);
        while let Some(job) = &mut self.job
            && !job.poll_barrier().map_err(ended)?
        {
            if self.progress() {
                backoff.reset();
            } else {
                backoff.idle();
                self.report_if_due(&mut backoff, Awaited::Barrier);
            }
        }
        Ok(())
    }

    /// Returns whether nothing has happened for long.
    pub(crate) fn progress_or_idle(&mut self, backoff: &mut Backoff, awaited: Awaited<'_>) -> Result<bool, OpError> {
        if self.is_forked() {
            return Err(OpError::Forked);
        }
        if self.progress() {
            backoff.reset();
            return Ok(false);
        }
        if backoff.is_to_rest() {
            self.endpoint.core.engine.acknowledge_now();
        }
        let idle = backoff.idle();
        self.report_if_due(backoff, awaited);
        self.look_after(idle)?;
        Ok(idle == Idle::Doubt)
    }

    /// Says what a long wait is for, when it is time, and what is under way, when somebody asks.
    #[inline]
    pub(crate) fn report_if_due(&mut self, backoff: &mut Backoff, awaited: Awaited<'_>) {
        if let Some(waited) = backoff.take_report() {
            self.report_wait(waited, awaited);
        }
        self.report_if_asked();
    }

    /// What a wait is to do besides waiting: a rank whose job is over, or whose peers have fallen silent, must not wait for
    /// ever. Where others have the processor in between, the calls of progress are too few to see it.
    #[inline]
    pub(crate) fn look_after(&mut self, idle: Idle) -> Result<(), OpError> {
        // Not by the engine's clock, which is a port's, and a job of one rank has none.
        if idle == Idle::Spin || self.last_glance.elapsed() < GLANCE {
            return Ok(());
        }
        self.last_glance = Instant::now();
        self.publish_if_due();
        self.look_at_peers(true);
        self.look_at_others();
        match &mut self.job {
            Some(job) if idle == Idle::Doubt => job.check().map_err(|error| OpError::Job(error.to_string())),
            _ => Ok(()),
        }
    }
}
