//! Operations of an end on its own memory, which are done at once.

use std::ops::Range;

use roci_driver::Buffer;
use roci_driver::link::Link;
use roci_protocol::Rkey;
use roci_protocol::msg::{AtomicOp, AtomicWidth};
use roci_protocol::rc::Denied;

use super::operation::{OneSidedCall, Signal, Then};
use super::reach::copy_of;
use super::window::BufferWindow;
use super::{RmaService, done};
use crate::core::Core;
use crate::core::completion::{Done, OpError};
use crate::core::peer::PeerId;
use crate::core::refused::{CallError, Refused};
use crate::core::segment::RemoteAddress;

impl RmaService {
    /// Carries out an operation on memory of this end itself.
    ///
    /// # Errors
    /// It reaches beyond its segment.
    pub(crate) fn carry_out<L: Link>(
        &mut self,
        core: &mut Core<L>,
        oneself: PeerId,
        call: OneSidedCall,
    ) -> Result<Result<Done, OpError>, Refused<Buffer>> {
        if let Err(why) = call.check() {
            return Err(Refused::new(why, call.into_buffer()));
        }
        core.stats.tx_one_sided += 1;
        let outcome = self.act(core, call);
        Ok(outcome.map(|(buffer, value)| done(buffer, oneself, value)).map_err(|_| OpError::Denied { peer: oneself }))
    }

    /// Does what an operation asks for. Returns the memory, and what a number was.
    fn act<L: Link>(&mut self, core: &mut Core<L>, call: OneSidedCall) -> Result<(Buffer, Option<u64>), CallError> {
        let pd = core.pd;
        match call {
            OneSidedCall::Put { mut buffer, at, then } => {
                let mut copy = None;
                if at.offered().is_some() && !BufferWindow::fits(&mut buffer) {
                    copy = Some(copy_of(core, &buffer)?);
                }
                self.put_own(core, at, copy.as_mut().unwrap_or(&mut buffer))?;
                if let Some(Then::Signal { at, signal, .. }) = then.map(|then| *then) {
                    let op = match signal {
                        Signal::Set(value) => AtomicOp::Swap(value),
                        Signal::Add(value) => AtomicOp::Add(value),
                    };
                    self.update_own(core, at, op, AtomicWidth::U64)?;
                }
                Ok((buffer, None))
            }
            OneSidedCall::Get { mut buffer, at } => {
                let len = buffer.len();
                self.each_part(core, at, len, |core, place, part| {
                    core.engine.read_by_key(pd, place, (&mut buffer, part))
                })?;
                Ok((buffer, None))
            }
            OneSidedCall::Atomic { buffer, at, op, width } => {
                let before = self.update_own(core, at, op, width)?;
                Ok((buffer, Some(before)))
            }
        }
    }

    fn put_own<L: Link>(
        &mut self,
        core: &mut Core<L>,
        at: RemoteAddress,
        source: &mut Buffer,
    ) -> Result<(), CallError> {
        let pd = core.pd;
        if at.offered().is_none() {
            return self.each_part(core, at, source.len(), |core, place, _| {
                core.engine.write_buffer_by_key(pd, place, source)
            });
        }
        let window = BufferWindow::of(source);
        self.each_part(core, at, source.len(), |core, place, part| {
            window.show(source, part);
            core.engine.write_buffer_by_key(pd, place, source)
        })?;
        window.show_all(source);
        Ok(())
    }

    fn update_own<L: Link>(
        &mut self,
        core: &mut Core<L>,
        at: RemoteAddress,
        op: AtomicOp,
        width: AtomicWidth,
    ) -> Result<u64, CallError> {
        let mut before = 0;
        self.each_part(core, at, width.len(), |core, place, _| core.update(place, op, width).map(|was| before = was))?;
        Ok(before)
    }

    /// Acts on memory of this end under its key; where it is offered, on bucket after bucket, each of which is registered for that if
    /// it is not already.
    fn each_part<L: Link>(
        &mut self,
        core: &mut Core<L>,
        at: RemoteAddress,
        len: usize,
        mut act: impl FnMut(&mut Core<L>, (Rkey, u64), Range<usize>) -> Result<(), Denied>,
    ) -> Result<(), CallError> {
        let denied = |_| CallError::NoSegment;
        let (mut rkey, va) = at.resolve(len)?;
        if let Some(key) = at.requested() {
            rkey = core.regions.chosen.find(key).ok_or(CallError::NoSegment)?;
        }
        if at.offered().is_none() {
            return act(core, (rkey, va), 0..len).map_err(denied);
        }
        let limits = self.firehose.limits();
        let mut from = 0;
        while from < len {
            let va = va + from as u64;
            let bucket = limits.grain().bucket_of(va);
            let end = (bucket.0 + 1).saturating_mul(limits.grain().bytes());
            let part = from..len.min(from + (end - va) as usize);
            from = part.end;
            let registered = self.firehose.key(bucket);
            let key = match registered {
                Some(key) => key,
                None => self.offers.pin(core, &limits, bucket).map_err(|_| CallError::NoSegment)?,
            };
            let outcome = act(core, (key, va), part);
            if registered.is_none() {
                self.offers.unpin(core, bucket);
            }
            outcome.map_err(denied)?;
        }
        Ok(())
    }
}
