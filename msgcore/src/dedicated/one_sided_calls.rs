//! Calls of one-sided operations and active messages that the engine answers.

use roci_driver::link::Link;
use roci_driver::{Buffer, UserMemory};

use crate::active::{ActiveMessages as _, Handler, HandlerId};
use crate::core::refused::{CallError, Refused};
use crate::firehose::FirehoseStats;
use crate::one_sided::{KeyNames as _, OfferedMemory, Offering as _, OneSided as _, RemoteAccess, Segment, SegmentKey};
use crate::services::am::Active;
use crate::{PeerId, Worker};

/// A call for the engine. Bytes come back with the answer, for the next call.
pub(super) enum OneSidedQuestion {
    Expose(Buffer),
    ExposeAs((u64, u64, Buffer, RemoteAccess)),
    Offer(UserMemory),
    Retract(OfferedMemory),
    FirehoseStats,
    Publish((String, SegmentKey)),
    Find(String),
    Withdraw(Segment),
    Read((Segment, usize, Vec<u8>)),
    Write((Segment, usize, Vec<u8>)),
    Fence(PeerId),
    Register((String, Handler)),
    Send((PeerId, Active, Vec<u8>)),
}

/// The engine's answer to the call of the same name.
pub(super) enum OneSidedAnswer {
    Expose(Result<Segment, Refused<Option<Buffer>>>),
    ExposeAs(Result<Segment, Refused<Option<Buffer>>>),
    Offer(Result<OfferedMemory, Refused<Option<UserMemory>>>),
    Retract(Result<UserMemory, CallError>),
    FirehoseStats(Box<Result<FirehoseStats, CallError>>),
    Publish(Result<(), CallError>),
    Find(Result<SegmentKey, CallError>),
    Withdraw(Result<Buffer, CallError>),
    Read((Result<(), CallError>, Vec<u8>)),
    Write((Result<(), CallError>, Vec<u8>)),
    Fence(Result<(), CallError>),
    Register(Result<HandlerId, CallError>),
    Send((Result<(), CallError>, Vec<u8>)),
}

/// Carries a call of the application's out, at the engine's side.
pub(super) fn carry_out<L: Link>(worker: &mut Worker<L>, call: OneSidedQuestion) -> OneSidedAnswer {
    match call {
        OneSidedQuestion::Expose(buffer) => OneSidedAnswer::Expose(worker.expose(buffer)),
        OneSidedQuestion::ExposeAs((key, base, buffer, access)) => {
            OneSidedAnswer::ExposeAs(worker.expose_as(key, base, buffer, access))
        }
        OneSidedQuestion::Offer(memory) => OneSidedAnswer::Offer(worker.offer(memory)),
        OneSidedQuestion::Retract(offer) => OneSidedAnswer::Retract(worker.retract(offer)),
        OneSidedQuestion::FirehoseStats => OneSidedAnswer::FirehoseStats(Box::new(worker.firehose_stats())),
        OneSidedQuestion::Publish((name, key)) => OneSidedAnswer::Publish(worker.publish_key(&name, key)),
        OneSidedQuestion::Find(name) => OneSidedAnswer::Find(worker.find_key(&name)),
        OneSidedQuestion::Withdraw(segment) => OneSidedAnswer::Withdraw(worker.withdraw(segment)),
        OneSidedQuestion::Read((segment, offset, mut room)) => {
            OneSidedAnswer::Read((worker.read_segment(segment, offset, &mut room), room))
        }
        OneSidedQuestion::Write((segment, offset, bytes)) => {
            OneSidedAnswer::Write((worker.write_segment(segment, offset, &bytes), bytes))
        }
        OneSidedQuestion::Fence(to) => OneSidedAnswer::Fence(worker.fence_to(to)),
        OneSidedQuestion::Register((name, handler)) => {
            OneSidedAnswer::Register(worker.register_handler(&name, handler))
        }
        OneSidedQuestion::Send((to, active, payload)) => {
            OneSidedAnswer::Send((worker.send_active_as(to, active, &payload), payload))
        }
    }
}
