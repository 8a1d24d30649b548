//! One-sided operations: put, get and atomics on memory that a peer has exposed, without a call of the peer's application.
//!
//! What a peer exposes is a segment ([`crate::core::segment`]); [`operation`] is what the application asks for. Each is one or two
//! transfers of the core ([`crate::core::transfer`]), which go by RDMA, or by messages that the peer's engine acts upon. Operations
//! of an end on its own memory are done at once.

pub mod firehose;
pub(crate) mod operation;

use roci_driver::link::Link;
use roci_driver::{Buffer, WorkCompletion};
use roci_protocol::msg::{AtomicOp, AtomicWidth, Label};

use self::operation::{OneSidedCall, RmaOperation, SIGNAL, Signal, Then};
use crate::core::Core;
use crate::core::by_message::TransferEnd;
use crate::core::completion::{Done, OpError};
use crate::core::peer::{Peer, PeerId};
use crate::core::refused::{CallError, Refused};
use crate::core::request::{OperationEnded, Request};
use crate::core::segment::RemoteAddress;
use crate::core::slab::{Key, KeySource, Slab};
use crate::core::transfer::{Direction, Transfer};
use crate::core::tx::OneSidedWork;

/// Operations of an end that have a name and are under way.
const LIMIT: usize = 1 << 16;

/// The one-sided operations of one end.
pub(crate) struct RmaService {
    operations: Slab<RmaOperation>,
    /// Gets are READs where both ends have RDMA; else the peer writes (GASNet's RDMA gets, on and off).
    gets_by_rdma: bool,
}

impl RmaService {
    /// A service without operations.
    pub(crate) fn new(gets_by_rdma: bool) -> Self {
        Self { operations: Slab::new(KeySource::new(LIMIT)), gets_by_rdma }
    }

    /// Begins an operation on a peer's memory, under this name.
    ///
    /// # Errors
    /// It reaches beyond its segment, or too many are under way.
    pub(crate) fn begin<L: Link>(
        &mut self,
        core: &mut Core<L>,
        peer: &mut Peer,
        request: Request,
        call: OneSidedCall,
    ) -> Result<(), Refused<Buffer>> {
        let number = match &call {
            OneSidedCall::Atomic { width, .. } => Some(*width),
            _ => None,
        };
        if let Err(why) = call.check() {
            return Err(Refused::new(why, call.into_buffer()));
        }
        let operation = RmaOperation { request, peer: peer.id, transfers: 1, first: None, signal: None, number };
        let Some(key) = self.operations.insert(operation) else {
            return Err(Refused::new(CallError::TooMany(LIMIT), call.into_buffer()));
        };
        core.stats.tx_one_sided += 1;
        match call {
            OneSidedCall::Put { buffer, at, then } => self.submit_put(core, peer, key, (buffer, at), then),
            OneSidedCall::Get { buffer, at } => {
                submit(core, peer, key, (buffer, at), Direction::Read { by_message: !self.gets_by_rdma });
            }
            OneSidedCall::Atomic { buffer, at, op, width } => {
                submit(core, peer, key, (buffer, at), Direction::Atomic { op, width });
            }
        }
        Ok(())
    }

    fn submit_put<L: Link>(
        &mut self,
        core: &mut Core<L>,
        peer: &mut Peer,
        key: Key,
        what: (Buffer, RemoteAddress),
        then: Option<Box<Then>>,
    ) {
        match then.map(|then| *then) {
            None => submit(core, peer, key, what, Direction::WRITE),
            Some(Then::Message(message)) => submit(core, peer, key, what, Direction::Write { then: Some(message) }),
            Some(Then::Signal { buffer, at, signal }) => {
                let goes_by_rdma = peer.is_open() && core.has_rdma_with(peer);
                if let Some(operation) = self.operations.get_mut(key) {
                    operation.transfers = if goes_by_rdma { 2 } else { 1 };
                }
                if goes_by_rdma {
                    // A WRITE that is denied ends the connection, so what is behind it is not done.
                    submit(core, peer, key, what, Direction::WRITE);
                    submit(core, peer, key, (buffer, at), signal_direction(signal));
                } else {
                    // A put by message may be denied alone: the signal waits until it is done.
                    if let Some(operation) = self.operations.get_mut(key) {
                        operation.signal = Some(Box::new((buffer, at, signal)));
                    }
                    submit(core, peer, key, what, Direction::WRITE);
                }
            }
        }
    }

    /// A READ, WRITE or atomic has ended, well or with its peer. Returns the operation that is over with it.
    pub(crate) fn on_work_done<L: Link>(
        &mut self,
        core: &mut Core<L>,
        peer: &mut Peer,
        work: OneSidedWork,
        done: WorkCompletion,
    ) -> Option<OperationEnded> {
        match work {
            OneSidedWork::Copied(_) => core.send_pools[0].give(done.buffer),
            OneSidedWork::Named(_) | OneSidedWork::Served(_) if peer.failure.is_some() => {}
            OneSidedWork::Served(_) => peer.tx.transfers.end_served(done.buffer.len()),
            OneSidedWork::Named(key) => {
                peer.tx.transfers.end(done.buffer.len());
                let number = self.operations.get(key)?.number;
                let value = number.map(|_| value_of(&done.buffer));
                return self.end_transfer(core, peer, key, Ok(done.buffer), value);
            }
        }
        None
    }

    /// A transfer that went by message has ended. Returns the operation that is over with it.
    pub(crate) fn on_transfer_end<L: Link>(
        &mut self,
        core: &mut Core<L>,
        peer: &mut Peer,
        ended: TransferEnd,
    ) -> Option<OperationEnded> {
        let TransferEnd { operation, buffer, value, is_denied } = ended;
        let Some(OneSidedWork::Named(key)) = OneSidedWork::from_name(operation) else { return None };
        let number = self.operations.get(key)?.number;
        let outcome = if is_denied { Err(OpError::Denied { peer: peer.id }) } else { Ok(buffer) };
        self.end_transfer(core, peer, key, outcome, number.map(|_| value))
    }

    /// Returns the peer of a put of one transfer.
    #[inline]
    pub(crate) fn target_of_lone_put(&self, key: Key) -> Option<PeerId> {
        let operation = self.operations.get(key)?;
        let is_alone = operation.transfers == 1 && operation.first.is_none() && operation.signal.is_none();
        is_alone.then_some(operation.peer)
    }

    /// A put of one transfer has ended well.
    #[inline]
    pub(crate) fn end_lone_put(&mut self, key: Key, buffer: Buffer) -> (Request, Done) {
        let operation = self.operations.remove(key).expect("it was just there");
        (operation.request, done(buffer, operation.peer, None))
    }

    /// Returns the peer of an operation.
    pub(crate) fn peer_of(&self, key: Key) -> Option<PeerId> {
        self.operations.get(key).map(|operation| operation.peer)
    }

    fn end_transfer<L: Link>(
        &mut self,
        core: &mut Core<L>,
        peer: &mut Peer,
        key: Key,
        outcome: Result<Buffer, OpError>,
        value: Option<u64>,
    ) -> Option<OperationEnded> {
        let operation = self.operations.get_mut(key)?;
        let outcome = outcome.map(|buffer| done(buffer, peer.id, value));
        let outcome = match operation.first.take() {
            None => outcome,
            // The signal is the second; where it fails so does the put.
            Some(first) => outcome.and(first),
        };
        operation.transfers -= 1;
        if let Some(signal) = operation.signal.take_if(|_| outcome.is_ok()) {
            operation.transfers += 1;
            operation.first = Some(outcome);
            let (buffer, at, signal) = *signal;
            submit(core, peer, key, (buffer, at), signal_direction(signal));
            return None;
        }
        if operation.transfers > 0 {
            operation.first = Some(outcome);
            return None;
        }
        self.operations.remove(key).map(|operation| (operation.request, outcome))
    }

    /// A peer is gone. Its operations end as all that depends on it does.
    pub(crate) fn on_peer_down<L: Link>(&mut self, core: &mut Core<L>, peer: PeerId) {
        let lost: Vec<_> =
            self.operations.iter().filter(|(_, operation)| operation.peer == peer).map(|(key, _)| key).collect();
        for key in lost {
            self.operations.remove(key);
        }
        core.forget_awaited(peer);
    }
}

/// Carries out an operation on memory of this end itself.
///
/// # Errors
/// It reaches beyond its segment.
pub(crate) fn carry_out<L: Link>(
    core: &mut Core<L>,
    oneself: PeerId,
    call: OneSidedCall,
) -> Result<Result<Done, OpError>, Refused<Buffer>> {
    if let Err(why) = call.check() {
        return Err(Refused::new(why, call.into_buffer()));
    }
    core.stats.tx_one_sided += 1;
    let outcome = act(core, call);
    Ok(outcome.map(|(buffer, value)| done(buffer, oneself, value)).map_err(|_| OpError::Denied { peer: oneself }))
}

/// How a signal changes its number.
fn signal_direction(signal: Signal) -> Direction {
    match signal {
        Signal::Set(_) => Direction::WRITE,
        Signal::Add(add) => Direction::Atomic { op: AtomicOp::Add(add), width: AtomicWidth::U64 },
    }
}

/// The end of an operation.
fn done(buffer: Buffer, peer: PeerId, value: Option<u64>) -> Done {
    let len = buffer.len();
    Done::new(buffer, len, peer, Label { data: value, ..Label::default() })
}

#[inline]
fn submit<L: Link>(
    core: &mut Core<L>,
    peer: &mut Peer,
    key: Key,
    (buffer, at): (Buffer, RemoteAddress),
    direction: Direction,
) {
    let len = match direction {
        Direction::Atomic { width, .. } => width.len(),
        Direction::Read { .. } | Direction::Write { .. } => buffer.len(),
    };
    let (rkey, va) = at.resolve(len).expect("the caller has checked it");
    let operation = OneSidedWork::Named(key).to_name();
    core.submit_transfer(peer, Transfer { operation, buffer, rkey, va, direction });
}

/// Returns the number in a buffer.
fn value_of(buffer: &Buffer) -> u64 {
    let mut bytes = [0; SIGNAL];
    buffer.copy_out(0, &mut bytes);
    u64::from_ne_bytes(bytes)
}

/// Does at once what an operation on this end's own memory asks for. Returns the memory, and what a number was.
fn act<L: Link>(core: &mut Core<L>, call: OneSidedCall) -> Result<(Buffer, Option<u64>), CallError> {
    let denied = |_| CallError::NoSegment;
    let pd = core.pd;
    match call {
        OneSidedCall::Put { buffer, at, then } => {
            core.engine.write_buffer_by_key(pd, at.resolve(buffer.len())?, &buffer).map_err(denied)?;
            if let Some(Then::Signal { at, signal, .. }) = then.map(|then| *then) {
                let op = match signal {
                    Signal::Set(value) => AtomicOp::Swap(value),
                    Signal::Add(value) => AtomicOp::Add(value),
                };
                core.update(at.resolve(SIGNAL)?, op, AtomicWidth::U64).map_err(denied)?;
            }
            Ok((buffer, None))
        }
        OneSidedCall::Get { mut buffer, at } => {
            let len = buffer.len();
            core.engine.read_by_key(pd, at.resolve(len)?, (&mut buffer, 0..len)).map_err(denied)?;
            Ok((buffer, None))
        }
        OneSidedCall::Atomic { buffer, at, op, width } => {
            let before = core.update(at.resolve(width.len())?, op, width).map_err(denied)?;
            Ok((buffer, Some(before)))
        }
    }
}
