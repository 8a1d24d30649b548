//! Waiting: for the end of requests, and for the other ranks.

use roci_driver::link::Link;

use crate::backoff::{self, Backoff, Look};
use crate::job::JobError;
use crate::request::{Done, OpError, Request, SomeFailed};
use crate::worker::Worker;

/// Sleeps of a wait between two questions whether the job goes on.
const JOB_CHECKS: u32 = 64;

impl<L: Link> Worker<L> {
    /// The outcome of a request that is over, or `None` while it is not. Does not make progress.
    pub fn test(&mut self, request: Request) -> Option<Result<Done, OpError>> {
        self.requests.close(request)
    }

    /// Waits until a request is over. That a rank has gone ends only what concerns it, by name. A receive from any source
    /// may have been for that rank: once one has failed, its wait ends with [`OpError::Job`] when nothing has happened for
    /// a second, and once all peers have gone with [`OpError::NobodyLeft`]; it can still be met, by a message of this rank
    /// to itself too, waited for again, or taken back.
    pub fn wait(&mut self, request: Request) -> Result<Done, OpError> {
        let mut backoff = Backoff::new(self.limits);
        loop {
            if let Some(outcome) = self.requests.close(request) {
                return outcome;
            }
            if self.progress_or_idle(&mut backoff)? {
                self.check_wildcard(request)?;
            }
        }
    }

    /// Waits until all requests are over. Where some have failed the error has the ends of all.
    pub fn wait_all(&mut self, requests: impl IntoIterator<Item = Request>) -> Result<Vec<Done>, SomeFailed> {
        SomeFailed::unless_all_are_good(requests.into_iter().map(|request| self.wait(request)).collect())
    }

    /// Waits until every rank has called this; ends with [`OpError::Job`] as soon as one has gone. Messages sent before may still be under way.
    pub fn barrier(&mut self) -> Result<(), OpError> {
        let ended = |error: JobError| OpError::Job(error.to_string());
        if self.engine.is_forked() {
            return Err(OpError::Forked);
        }
        let Some(job) = &mut self.job else { return Ok(()) };
        job.start_barrier().map_err(ended)?;
        backoff::wait_until(self.limits, || {
            if let Some(job) = &mut self.job
                && job.poll_barrier().map_err(ended)?
            {
                return Ok(Look::Over);
            }
            Ok(if self.progress() { Look::Busy } else { Look::Idle })
        })
    }

    /// Returns whether nothing has happened for long.
    pub(crate) fn progress_or_idle(&mut self, backoff: &mut Backoff) -> Result<bool, OpError> {
        if self.engine.is_forked() {
            return Err(OpError::Forked);
        }
        if self.progress() {
            backoff.reset();
        } else if backoff.idle() {
            self.check_job()?;
            return Ok(true);
        }
        Ok(false)
    }

    /// A rank whose job is over, or whose peers have fallen silent, must not wait for ever.
    pub(crate) fn check_job(&mut self) -> Result<(), OpError> {
        self.job_checks += 1;
        if !self.job_checks.is_multiple_of(JOB_CHECKS) {
            return Ok(());
        }
        // Between sleeps the calls of progress are too few to come to it.
        self.look_at_peers();
        self.job.as_mut().map_or(Ok(()), |job| job.check().map_err(|error| OpError::Job(error.to_string())))
    }
}
