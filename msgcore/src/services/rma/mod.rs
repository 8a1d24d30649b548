//! One-sided operations: put, get and atomics on memory that a peer has exposed, without a call of the peer's application.
//!
//! What a peer exposes is a segment, and what it offers is registered when somebody wants it ([`crate::core::segment`]); [`operation`]
//! is what the application asks for. Each is one or two transfers of the core ([`crate::core::transfer`]), which go by RDMA, or by
//! messages that the peer's engine acts upon; on memory that is offered it is one for each bucket ([`reach`]), and under a key that the
//! peer has chosen it goes by message ([`requested`]). Operations of an end on its own memory are done at once ([`own`]).

mod fence;
pub mod firehose;
pub(crate) mod offers;
pub(crate) mod operation;
mod own;
mod reach;
mod requested;
mod surroundings;
mod window;

use std::collections::VecDeque;

use hashbrown::HashMap;
use roci_driver::link::Link;
use roci_driver::{Buffer, UserMemory, WorkCompletion};
use roci_protocol::msg::{AtomicOp, AtomicWidth, Label};

use self::fence::BehindFence;
use self::firehose::{BadLimits, Failed, FirehoseEngine, FirehoseStats, Hold, Limits};
use self::offers::Offers;
use self::operation::{OneSidedCall, RmaOperation, SIGNAL, Signal, Then};
use self::requested::RequestedKeys;
use self::surroundings::Surroundings;
use crate::core::Core;
use crate::core::by_message::TransferEnd;
use crate::core::completion::{Done, OpError};
use crate::core::peer::{Peer, PeerId};
use crate::core::refused::{CallError, Refused};
use crate::core::request::{OperationEnded, Request};
use crate::core::segment::{OfferedMemory, RemoteAddress};
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
    /// Those that are over, and were not asked for yet.
    over: Vec<OperationEnded>,
    offers: Offers,
    /// Apart, because few endpoints have any.
    pub(crate) keys: Box<RequestedKeys>,
    firehose: FirehoseEngine,
    /// What this end may give its peers, or why it cannot.
    limits: Result<Limits, BadLimits>,
    /// What Firehose has granted and refused, and was not acted upon yet.
    ended: VecDeque<(u64, Result<Hold, Failed>)>,
    /// By peer: what waits behind a fence.
    behind: HashMap<PeerId, VecDeque<BehindFence>>,
}

impl RmaService {
    /// A service without operations.
    pub(crate) fn new(gets_by_rdma: bool, limits: Result<Limits, BadLimits>) -> Self {
        Self {
            operations: Slab::new(KeySource::new(LIMIT)),
            gets_by_rdma,
            over: Vec::new(),
            offers: Offers::default(),
            keys: Box::default(),
            firehose: FirehoseEngine::new(limits.unwrap_or(Limits::NOTHING)),
            limits,
            ended: VecDeque::new(),
            behind: HashMap::new(),
        }
    }

    /// Offers memory to peers.
    ///
    /// # Errors
    /// The configuration leaves nothing for that; the memory comes back.
    pub(crate) fn offer<L: Link>(
        &mut self,
        core: &mut Core<L>,
        memory: UserMemory,
    ) -> Result<OfferedMemory, Refused<UserMemory>> {
        match self.limits {
            Ok(limits) => Ok(self.offers.insert(memory, &limits, &mut core.regions.next_offer)),
            Err(why) => Err(Refused::new(CallError::CannotOffer(why.to_string()), memory)),
        }
    }

    /// Takes an offer back.
    pub(crate) fn retract<L: Link>(&mut self, core: &mut Core<L>, offer: OfferedMemory) -> Option<UserMemory> {
        let limits = self.firehose.limits();
        let region = self.offers.buckets_of(offer, &limits)?;
        let Self { offers, ended, firehose, .. } = self;
        firehose.withdraw(&mut Surroundings { core, peer: None, offers, limits, ended, get: None }, region);
        self.offers.remove(offer)
    }

    /// Returns what Firehose did so far.
    pub(crate) fn firehose_stats(&self) -> FirehoseStats {
        self.firehose.stats()
    }

    /// Returns an operation that is over, as long as there are any.
    #[inline]
    pub(crate) fn take_over(&mut self) -> Option<OperationEnded> {
        self.over.pop()
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
        let operation = RmaOperation::new(request, peer.id, number);
        let Some(key) = self.operations.insert(operation) else {
            return Err(Refused::new(CallError::TooMany(LIMIT), call.into_buffer()));
        };
        core.stats.tx_one_sided += 1;
        if self.behind.is_empty() {
            self.start(core, peer, key, call);
        } else {
            self.begin_or_wait(core, peer, key, call);
        }
        Ok(())
    }

    /// Returns how many operations more may be under way.
    pub(crate) fn room(&self) -> usize {
        LIMIT - self.operations.len()
    }

    fn start<L: Link>(&mut self, core: &mut Core<L>, peer: &mut Peer, key: Key, call: OneSidedCall) {
        match call {
            OneSidedCall::Put { buffer, at, then } => self.submit_put(core, peer, key, (buffer, at), then),
            OneSidedCall::Get { buffer, at } => {
                self.submit(core, peer, key, (buffer, at), Direction::Read);
            }
            OneSidedCall::Atomic { buffer, at, op, width } => {
                self.submit(core, peer, key, (buffer, at), Direction::Atomic { op, width });
            }
        }
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
            None => self.submit(core, peer, key, what, Direction::WRITE),
            Some(Then::Message(message)) => {
                self.submit(core, peer, key, what, Direction::Write { then: Some(message) });
            }
            Some(Then::Signal { buffer, at, signal }) => {
                let has_rkeys = what.1.has_rkey() && at.has_rkey();
                let goes_by_rdma = has_rkeys && peer.is_open() && core.has_rdma_with(peer);
                if let Some(operation) = self.operations.get_mut(key) {
                    operation.transfers = if goes_by_rdma { 2 } else { 1 };
                }
                if goes_by_rdma {
                    // A WRITE that is denied ends the connection, so what is behind it is not done.
                    self.submit(core, peer, key, what, Direction::WRITE);
                    self.submit(core, peer, key, (buffer, at), signal_direction(signal));
                } else {
                    // The put may be denied alone: the signal waits until it is done.
                    if let Some(operation) = self.operations.get_mut(key) {
                        operation.signal = Some(Box::new((buffer, at, signal)));
                        peer.tx.transfers.begin_partial();
                    }
                    self.submit(core, peer, key, what, Direction::WRITE);
                }
            }
        }
    }

    #[inline]
    fn submit<L: Link>(
        &mut self,
        core: &mut Core<L>,
        peer: &mut Peer,
        key: Key,
        (buffer, at): (Buffer, RemoteAddress),
        direction: Direction,
    ) {
        let (rkey, va) = at.resolve(direction.len_of(&buffer)).expect("the caller has checked it");
        if let Some(terms) = at.offered() {
            return self.reach(core, peer, key, (buffer, va, terms), direction);
        }
        if let Some(requested) = at.requested() {
            return self.submit_requested(core, peer, key, (buffer, va, requested), direction);
        }
        let operation = OneSidedWork::Named(key).to_name();
        let by_message = direction == Direction::Read && !self.gets_by_rdma;
        core.submit_transfer(peer, Transfer { operation, buffer, rkey, va, direction, by_message });
    }

    /// A READ, WRITE or atomic has ended well.
    pub(crate) fn on_work_done<L: Link>(
        &mut self,
        core: &mut Core<L>,
        peer: &mut Peer,
        work: OneSidedWork,
        done: WorkCompletion,
    ) {
        match work {
            OneSidedWork::Copied(_) => core.send_pools[0].give(done.buffer),
            OneSidedWork::Named(_) | OneSidedWork::Served(_) if peer.failure.is_some() => {}
            OneSidedWork::Served(_) => peer.tx.transfers.end_served(done.buffer.len()),
            OneSidedWork::Named(key) => {
                peer.tx.transfers.end(done.buffer.len());
                let Some(operation) = self.operations.get(key) else { return };
                let value = operation.number.map(|_| value_of(&done.buffer));
                self.on_transferred(core, peer, key, Ok(done.buffer), value);
            }
        }
    }

    /// A READ, WRITE or atomic has ended with its peer, whose end will end the operation.
    pub(crate) fn on_work_failed<L: Link>(core: &mut Core<L>, peer: &mut Peer, work: OneSidedWork, buffer: Buffer) {
        match work {
            OneSidedWork::Copied(_) => core.send_pools[0].give(buffer),
            OneSidedWork::Named(_) | OneSidedWork::Served(_) if peer.failure.is_some() => {}
            OneSidedWork::Served(_) => peer.tx.transfers.end_served(buffer.len()),
            OneSidedWork::Named(_) => peer.tx.transfers.end(buffer.len()),
        }
    }

    /// A transfer that went by message has ended.
    pub(crate) fn on_transfer_end<L: Link>(&mut self, core: &mut Core<L>, peer: &mut Peer, ended: TransferEnd) {
        let TransferEnd { operation, buffer, value, is_denied } = ended;
        let Some(OneSidedWork::Named(key)) = OneSidedWork::from_name(operation) else { return };
        let Some(operation) = self.operations.get(key) else { return };
        let value = operation.number.map(|_| value);
        if operation.requested.is_some() {
            return self.on_requested_end(core, peer, key, (buffer, value), is_denied);
        }
        let outcome = if is_denied { Err(OpError::Denied { peer: peer.id }) } else { Ok(buffer) };
        self.on_transferred(core, peer, key, outcome, value);
    }

    fn on_transferred<L: Link>(
        &mut self,
        core: &mut Core<L>,
        peer: &mut Peer,
        key: Key,
        outcome: Result<Buffer, OpError>,
        value: Option<u64>,
    ) {
        let is_part = self.operations.get(key).is_some_and(|operation| operation.reach.is_some());
        if is_part {
            self.on_part_done(core, peer, key, outcome, value);
        } else {
            self.end_transfer(core, peer, key, outcome, value);
        }
    }

    /// Returns the peer of a put of one transfer.
    #[inline]
    pub(crate) fn target_of_lone_put(&self, key: Key) -> Option<PeerId> {
        let operation = self.operations.get(key)?;
        let is_whole = operation.first.is_none() && operation.signal.is_none() && operation.is_plain();
        let is_alone = operation.transfers == 1 && is_whole;
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

    /// Returns how many operations with a peer are not all transfers yet.
    pub(crate) fn partial(&self, peer: PeerId) -> usize {
        let its = self.operations.iter().filter(|(_, operation)| operation.peer == peer);
        its.map(|(_, operation)| operation.partial()).sum()
    }

    fn end_transfer<L: Link>(
        &mut self,
        core: &mut Core<L>,
        peer: &mut Peer,
        key: Key,
        outcome: Result<Buffer, OpError>,
        value: Option<u64>,
    ) {
        let Some(operation) = self.operations.get_mut(key) else { return };
        let outcome = outcome.map(|buffer| done(buffer, peer.id, value));
        let outcome = match operation.first.take() {
            None => outcome,
            // The signal is the second; where it fails so does the put.
            Some(first) => outcome.and(first),
        };
        operation.transfers -= 1;
        if let Some(signal) = operation.signal.take() {
            if outcome.is_ok() {
                operation.transfers += 1;
                operation.first = Some(outcome);
                let (buffer, at, signal) = *signal;
                self.submit(core, peer, key, (buffer, at), signal_direction(signal));
                peer.tx.transfers.end_partial();
                return self.go_behind_fence(core, peer);
            }
            peer.tx.transfers.end_partial();
            self.go_behind_fence(core, peer);
        }
        let Some(operation) = self.operations.get_mut(key) else { return };
        if operation.transfers > 0 {
            operation.first = Some(outcome);
        } else if let Some(operation) = self.operations.remove(key) {
            self.over.push((operation.request, outcome));
        }
    }

    /// Nothing is offered to peers any more.
    pub(crate) fn close_offers<L: Link>(&mut self, core: &mut Core<L>) {
        self.offers.unpin_all(core);
        self.offers = Offers::default();
    }

    /// A peer is gone. Its operations end as all that depends on it does.
    pub(crate) fn on_peer_down<L: Link>(&mut self, core: &mut Core<L>, peer: PeerId) {
        let lost: Vec<_> =
            self.operations.iter().filter(|(_, operation)| operation.peer == peer).map(|(key, _)| key).collect();
        let lost: Vec<_> = lost.into_iter().filter_map(|key| self.operations.remove(key)).collect();
        let holds = lost.into_iter().filter_map(|operation| operation.reach?.into_hold()).collect();
        drop(self.forget_behind_fence(peer));
        self.keys.forget(peer);
        self.forget_firehoses(core, peer, holds);
        core.forget_awaited(peer);
    }
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

/// Returns the number in a buffer.
fn value_of(buffer: &Buffer) -> u64 {
    let mut bytes = [0; SIGNAL];
    buffer.copy_out(0, &mut bytes);
    u64::from_ne_bytes(bytes)
}
