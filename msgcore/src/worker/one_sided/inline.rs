//! One-sided operations of a worker whose engine runs inside its calls.

use roci_driver::Buffer;
use roci_driver::link::Link;

use super::{AtomicOp, AtomicWidth, NUMBER, OneSided, RemoteAccess, RemoteAddress, Segment, Signal};
use crate::Source;
use crate::backoff::Backoff;
use crate::core::completion::{Done, OpError};
use crate::core::peer_id::PeerId;
use crate::core::refused::{CallError, Refused};
use crate::core::request::Request;
use crate::core::segment::AwaitedNumber;
use crate::services::rma::operation::OneSidedCall;
use crate::services::tag::requests::LIMIT;
use crate::worker::Worker;
use crate::worker::report::Awaited;

impl<L: Link> OneSided for Worker<L> {
    fn expose(&mut self, buffer: Buffer) -> Result<Segment, Refused<Option<Buffer>>> {
        self.endpoint.expose(buffer)
    }

    fn expose_as(
        &mut self,
        key: u64,
        base: u64,
        buffer: Buffer,
        access: RemoteAccess,
    ) -> Result<Segment, Refused<Option<Buffer>>> {
        self.endpoint.expose_as(key, base, buffer, access)
    }

    fn withdraw(&mut self, segment: Segment) -> Result<Buffer, CallError> {
        let (buffer, key) = self.endpoint.withdraw(segment)?;
        if let Some(key) = key {
            self.announce_withdrawn(key);
        }
        Ok(buffer)
    }

    fn read_segment(&mut self, segment: Segment, offset: usize, into: &mut [u8]) -> Result<(), CallError> {
        self.endpoint.read_segment(segment, offset, into)
    }

    fn write_segment(&mut self, segment: Segment, offset: usize, from: &[u8]) -> Result<(), CallError> {
        self.endpoint.write_segment(segment, offset, from)
    }

    fn wait_for_change(&mut self, source: Source, segment: Segment, offset: usize, was: u64) -> Result<u64, CallError> {
        let awaited = AwaitedNumber { source, segment, offset, was };
        let mut backoff = Backoff::new(self.limits);
        self.endpoint.note_waits_for(Some(source));
        let changed = loop {
            let looked = self.look_for_change(&awaited).transpose();
            if let Some(outcome) = looked {
                break outcome;
            }
            if let Err(error) = self.progress_or_idle(&mut backoff, Awaited::Change) {
                break Err(error.into());
            }
        };
        self.endpoint.note_waits_for(None);
        changed
    }

    fn put_with(
        &mut self,
        to: PeerId,
        buffer: Buffer,
        at: RemoteAddress,
        signal: Option<(Signal, RemoteAddress)>,
    ) -> Result<Request, Refused<Buffer>> {
        let call = OneSidedCall::put(buffer, at, signal, |len| self.memory_for_one_sided(len));
        call.and_then(|call| self.begin_one_sided(to, call))
    }

    fn get_from(&mut self, from: PeerId, buffer: Buffer, at: RemoteAddress) -> Result<Request, Refused<Buffer>> {
        self.begin_one_sided(from, OneSidedCall::Get { buffer, at })
    }

    fn atomic_with(
        &mut self,
        to: PeerId,
        op: AtomicOp,
        width: AtomicWidth,
        at: RemoteAddress,
    ) -> Result<Request, CallError> {
        let buffer = self.buffer(NUMBER)?;
        Ok(self.begin_one_sided(to, OneSidedCall::Atomic { buffer, at, op, width })?)
    }

    #[inline]
    fn put_copy(&mut self, to: PeerId, bytes: &[u8], at: RemoteAddress) -> Result<(), CallError> {
        if self.is_forked() {
            return Err(CallError::Forked);
        }
        if self.endpoint.put_copy(to, bytes, at)? {
            return Ok(());
        }
        let buffer = self.endpoint.core.copy_of(bytes)?;
        let request = self.begin_one_sided(to, OneSidedCall::Put { buffer, at, then: None })?;
        self.detach(request);
        Ok(())
    }

    fn fence_to(&mut self, to: PeerId) -> Result<(), CallError> {
        self.endpoint.fence(to)
    }

    fn wait_for_one_sided(&mut self, request: Request) -> Result<Done, OpError> {
        self.wait(request)
    }

    fn leave_one_sided(&mut self, request: Request) {
        self.detach(request);
    }

    fn memory_for_one_sided(&self, len: usize) -> Result<Buffer, CallError> {
        Ok(self.buffer(len)?)
    }
}

impl<L: Link> Worker<L> {
    /// Returns a number in a segment, if it is another than it was.
    ///
    /// # Errors
    /// There is no such number, or its source is gone.
    pub(crate) fn look_for_change(&self, awaited: &AwaitedNumber) -> Result<Option<u64>, CallError> {
        let &AwaitedNumber { source, segment, offset, was } = awaited;
        if !offset.is_multiple_of(NUMBER) {
            return Err(CallError::Misaligned { offset: offset as u64, len: NUMBER });
        }
        let mut bytes = [0; NUMBER];
        self.endpoint.read_segment(segment, offset, &mut bytes)?;
        let now = u64::from_ne_bytes(bytes);
        if now != was {
            return Ok(Some(now));
        }
        let gone = match source {
            Source::Any => self.reason_against_wildcards(),
            Source::Peer(_) => self.endpoint.cannot_come(source),
        };
        gone.map_or(Ok(None), |error| Err(error.into()))
    }

    /// Returns how many one-sided operations more may be under way. Who begins several that belong together looks first, so that not
    /// some of them alone begin.
    pub fn one_sided_room(&self) -> usize {
        self.endpoint.services.rma.room()
    }

    pub(in crate::worker) fn begin_one_sided(
        &mut self,
        to: PeerId,
        call: OneSidedCall,
    ) -> Result<Request, Refused<Buffer>> {
        let Some(request) = self.mint() else {
            return Err(Refused::new(CallError::TooMany(LIMIT), call.into_buffer()));
        };
        let begun = self.begin_one_sided_as(request, to, call);
        self.named(request, begun)
    }

    /// The same, under a name that is made elsewhere.
    pub(crate) fn begin_one_sided_as(
        &mut self,
        request: Request,
        to: PeerId,
        call: OneSidedCall,
    ) -> Result<(), Refused<Buffer>> {
        let begun = self.endpoint.begin_one_sided(request, to, call);
        self.carry_mail_if_any();
        begun
    }
}
