//! Operations that are waited for together.

use roci_driver::Buffer;

use super::{AtomicOp, OneSided, RemoteAddress};
use crate::core::completion::{Done, OpError};
use crate::core::peer_id::PeerId;
use crate::core::refused::{CallError, Refused};
use crate::core::request::Request;

/// One-sided operations that are waited for together (GASNet's access region), or left alone together. Who drops it asks for none of
/// their outcomes any more, which the worker keeps all the same.
#[derive(Debug, Default)]
#[must_use = "its operations end only for who waits for them, or leaves them"]
pub struct AccessRegion {
    requests: Vec<Request>,
}

impl AccessRegion {
    /// Begins a put ([`OneSided::put`]).
    ///
    /// # Errors
    /// As there.
    pub fn put<W: OneSided>(
        &mut self,
        worker: &mut W,
        to: impl Into<PeerId>,
        buffer: Buffer,
        at: RemoteAddress,
    ) -> Result<(), Refused<Buffer>> {
        self.requests.push(worker.put(to, buffer, at)?);
        Ok(())
    }

    /// Begins a get ([`OneSided::get`]).
    ///
    /// # Errors
    /// As there.
    pub fn get<W: OneSided>(
        &mut self,
        worker: &mut W,
        from: impl Into<PeerId>,
        buffer: Buffer,
        at: RemoteAddress,
    ) -> Result<(), Refused<Buffer>> {
        self.requests.push(worker.get(from, buffer, at)?);
        Ok(())
    }

    /// Begins an atomic ([`OneSided::atomic`]).
    ///
    /// # Errors
    /// As there.
    pub fn atomic<W: OneSided>(
        &mut self,
        worker: &mut W,
        to: impl Into<PeerId>,
        op: AtomicOp,
        at: RemoteAddress,
    ) -> Result<(), CallError> {
        self.requests.push(worker.atomic(to, op, at)?);
        Ok(())
    }

    /// Leaves all alone: what they fill is lost, and what they write arrives all the same.
    pub fn leave<W: OneSided>(self, worker: &mut W) {
        self.requests.into_iter().for_each(|request| worker.leave_one_sided(request));
    }

    /// Returns how many operations it has.
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Waits until all are over, and returns their outcomes in the order in which they began.
    ///
    /// # Errors
    /// One has failed: the first error. Unless the job is over all have ended.
    pub fn wait<W: OneSided>(self, worker: &mut W) -> Result<Vec<Done>, OpError> {
        let outcomes: Vec<_> = self.requests.into_iter().map(|request| worker.wait_for_one_sided(request)).collect();
        outcomes.into_iter().collect()
    }
}
