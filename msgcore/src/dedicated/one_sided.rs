//! One-sided operations and active messages of a dedicated worker. Operations with a name are commands; what has none, and what looks
//! at this end's own memory, is answered by the engine.

use std::mem;

use roci_driver::{Buffer, UserMemory};
use roci_protocol::msg::ActiveKind;

use super::calls::UNCHANGED;
use super::one_sided_calls::{OneSidedAnswer, OneSidedQuestion};
use super::questions::{ask, refused};
use super::rings::{Answer, Command, Question};
use super::{DedicatedWorker, EngineHost};
use crate::active::{ActiveMessages, Handler, HandlerId};
use crate::core::refused::{CallError, Refused};
use crate::core::segment::AwaitedNumber;
use crate::firehose::FirehoseStats;
use crate::one_sided::{
    AtomicOp, AtomicWidth, KeyNames, OfferedMemory, Offering, OneSided, RemoteAccess, RemoteAddress, Segment,
    SegmentKey, Signal,
};
use crate::services::rma::operation::OneSidedCall;
use crate::worker::active::{active_of, long_call};
use crate::{Done, OpError, PeerId, Request, Source};

/// Bytes of a number.
const NUMBER: usize = 8;

/// Asks the engine, and takes the answer of that kind.
macro_rules! call {
    ($worker:expr, $kind:ident $(($what:expr))?) => {
        match ask!($worker, OneSided(OneSidedQuestion::$kind $(($what))?)) {
            Ok(OneSidedAnswer::$kind(answer)) => Ok(answer),
            Ok(_) => unreachable!("a call has its own answer"),
            Err(error) => Err(refused(error)),
        }
    };
}

impl<H: EngineHost> OneSided for DedicatedWorker<H> {
    fn expose(&mut self, buffer: Buffer) -> Result<Segment, Refused<Option<Buffer>>> {
        if self.is_forked() {
            return Err(Refused::new(CallError::Forked, Some(buffer)));
        }
        call!(self, Expose(buffer)).unwrap_or_else(|why| Err(Refused::new(why, None)))
    }

    fn expose_as(
        &mut self,
        key: u64,
        base: u64,
        buffer: Buffer,
        access: RemoteAccess,
    ) -> Result<Segment, Refused<Option<Buffer>>> {
        if self.is_forked() {
            return Err(Refused::new(CallError::Forked, Some(buffer)));
        }
        call!(self, ExposeAs((key, base, buffer, access))).unwrap_or_else(|why| Err(Refused::new(why, None)))
    }

    fn withdraw(&mut self, segment: Segment) -> Result<Buffer, CallError> {
        call!(self, Withdraw(segment))?
    }

    fn read_segment(&mut self, segment: Segment, offset: usize, into: &mut [u8]) -> Result<(), CallError> {
        let mut room = mem::take(&mut self.one_sided.room);
        room.resize(into.len(), 0);
        let (read, room) = call!(self, Read((segment, offset, room)))?;
        if read.is_ok() {
            into.copy_from_slice(&room);
        }
        self.one_sided.keep(room);
        read
    }

    fn write_segment(&mut self, segment: Segment, offset: usize, from: &[u8]) -> Result<(), CallError> {
        let bytes = self.one_sided.copy_of(from);
        let (written, bytes) = call!(self, Write((segment, offset, bytes)))?;
        self.one_sided.keep(bytes);
        written
    }

    fn wait_for_change(&mut self, source: Source, segment: Segment, offset: usize, was: u64) -> Result<u64, CallError> {
        ask!(self, WaitChange(AwaitedNumber { source, segment, offset, was })).map_err(refused)?
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
        let buffer = self.copy_of(&[0; NUMBER])?;
        Ok(self.begin_one_sided(to, OneSidedCall::Atomic { buffer, at, op, width })?)
    }

    fn put_copy(&mut self, to: PeerId, bytes: &[u8], at: RemoteAddress) -> Result<(), CallError> {
        let buffer = self.copy_of(bytes)?;
        let request = self.begin_one_sided(to, OneSidedCall::Put { buffer, at, then: None })?;
        self.detach(request);
        Ok(())
    }

    fn fence_to(&mut self, to: PeerId) -> Result<(), CallError> {
        call!(self, Fence(to))?
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

impl<H: EngineHost> Offering for DedicatedWorker<H> {
    fn offer(&mut self, memory: UserMemory) -> Result<OfferedMemory, Refused<Option<UserMemory>>> {
        if self.is_forked() {
            return Err(Refused::new(CallError::Forked, Some(memory)));
        }
        call!(self, Offer(memory)).unwrap_or_else(|why| Err(Refused::new(why, None)))
    }

    fn retract(&mut self, offer: OfferedMemory) -> Result<UserMemory, CallError> {
        call!(self, Retract(offer))?
    }

    fn firehose_stats(&mut self) -> Result<FirehoseStats, CallError> {
        *call!(self, FirehoseStats)?
    }
}

impl<H: EngineHost> KeyNames for DedicatedWorker<H> {
    fn publish_key(&mut self, name: &str, key: SegmentKey) -> Result<(), CallError> {
        call!(self, Publish((name.to_owned(), key)))?
    }

    fn find_key(&mut self, name: &str) -> Result<SegmentKey, CallError> {
        call!(self, Find(name.to_owned()))?
    }
}

impl<H: EngineHost> ActiveMessages for DedicatedWorker<H> {
    fn register_handler(&mut self, name: &str, handler: Handler) -> Result<HandlerId, CallError> {
        call!(self, Register((name.to_owned(), handler)))?
    }

    fn max_active(&self) -> usize {
        self.constants.max_active
    }

    fn send_active(
        &mut self,
        to: PeerId,
        handler: HandlerId,
        arguments: &[u64],
        payload: &[u8],
    ) -> Result<(), CallError> {
        let active = active_of(ActiveKind::OneWay, handler, arguments)?;
        self.check_active(to, payload)?;
        let bytes = self.one_sided.copy_of(payload);
        let (sent, bytes) = call!(self, Send((to, active, bytes)))?;
        self.one_sided.keep(bytes);
        sent
    }

    fn request_active(
        &mut self,
        to: PeerId,
        handler: HandlerId,
        arguments: &[u64],
        payload: &[u8],
    ) -> Result<Request, CallError> {
        let active = Box::new(active_of(ActiveKind::Request, handler, arguments)?);
        self.check_active(to, payload)?;
        let payload = self.copy_of(payload)?;
        let request = self.mint()?;
        let command = Command::RequestActive { request, to, active, payload };
        self.begin(request, command).map_err(|(why, _)| why.into())
    }

    fn send_active_long(
        &mut self,
        to: PeerId,
        handler: HandlerId,
        argument: u64,
        buffer: Buffer,
        at: RemoteAddress,
    ) -> Result<Request, Refused<Buffer>> {
        long_call(handler, argument, buffer, at).and_then(|call| self.begin_one_sided(to, call))
    }
}

impl<H: EngineHost> DedicatedWorker<H> {
    fn begin_one_sided(&mut self, to: PeerId, call: OneSidedCall) -> Result<Request, Refused<Buffer>> {
        let request = match self.check_peer(to).and_then(|()| call.check()).and_then(|()| self.mint()) {
            Ok(request) => request,
            Err(why) => return Err(Refused::new(why, call.into_buffer())),
        };
        self.begin(request, Command::OneSided { request, to, call }).map_err(|(why, command)| match command {
            Command::OneSided { call, .. } => Refused::new(why, call.into_buffer()),
            _ => unreachable!("{UNCHANGED}"),
        })
    }

    fn check_active(&self, to: PeerId, payload: &[u8]) -> Result<(), CallError> {
        self.check_peer(to)?;
        let limit = self.constants.max_active;
        if payload.len() > limit {
            return Err(CallError::TooLongForActive { len: payload.len(), limit });
        }
        Ok(())
    }
}

/// What the handle keeps for bytes on their way between the threads.
#[derive(Default)]
pub(super) struct OneSidedHandle {
    room: Vec<u8>,
}

impl OneSidedHandle {
    /// Bytes that one call may leave room for in the handle.
    const MOST: usize = 256 << 10;

    fn copy_of(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut copy = mem::take(&mut self.room);
        copy.clear();
        copy.extend_from_slice(bytes);
        copy
    }

    fn keep(&mut self, mut room: Vec<u8>) {
        room.clear();
        room.shrink_to(Self::MOST);
        self.room = room;
    }
}
