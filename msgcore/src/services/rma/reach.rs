//! Operations on memory that a peer offers and has not registered. Firehoses must lead to its buckets first ([`super::firehose`]); then
//! one bucket after the other is a transfer like any other. A short get goes with the request for its memory, and its bytes come
//! with the answer.

use roci_driver::link::Link;
use roci_driver::{ArenaError, Buffer};
use roci_protocol::msg::{self, GetOnMiss};

use super::RmaService;
use super::firehose::{Failed, FirehoseShare, FirehoseViolation, Grain, Hold, MAX_BUCKETS, PinError, Span, is_answer};
use super::surroundings::Surroundings;
use super::window::BufferWindow;
use crate::core::Core;
use crate::core::breach::Breach;
use crate::core::completion::OpError;
use crate::core::peer::{Peer, PeerId};
use crate::core::segment::OfferTerms;
use crate::core::slab::Key;
use crate::core::transfer::{Direction, Transfer};
use crate::core::tx::OneSidedWork;

/// The longest get that goes with the request for its memory: what a vbuf holds, mostly.
const LONGEST_ON_MISS: usize = 8 << 10;
/// Bytes that every peer's receives have room for, before more is known of them.
const LEAST_ROOM: usize = 128 - msg::LEN;
/// Bytes of a request to move firehoses, and of each region in it.
const REQUEST: usize = 16;
const REGION: usize = 12;

/// An operation on memory that its peer offers.
#[derive(Debug)]
pub(super) struct Reach {
    direction: Direction,
    va: u64,
    share: FirehoseShare,
    /// Its memory, unless a transfer has it.
    memory: Option<Buffer>,
    window: BufferWindow,
    /// What it is a copy of, or is to be copied to, where that cannot be transferred part by part.
    original: Option<Buffer>,
    /// Bytes that were transferred.
    done: usize,
    /// Up to where firehoses lead, or are asked to.
    reached: usize,
    hold: Option<Hold>,
    on_miss: OnMiss,
}

/// How far a get is that went with the request for its memory. It ends when both answers are there, so that its memory is held, and
/// its place with Firehose taken, no longer than it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum OnMiss {
    /// It is none.
    No,
    /// Its bytes have not come.
    Asked,
    /// They have.
    Filled,
    /// The peer cannot register its memory, and so has no bytes either.
    NotPinned,
}

impl RmaService {
    /// Begins to transfer a buffer to or from memory that the peer offers.
    pub(super) fn reach<L: Link>(
        &mut self,
        core: &mut Core<L>,
        peer: &mut Peer,
        key: Key,
        (mut memory, va, terms): (Buffer, u64, OfferTerms),
        direction: Direction,
    ) {
        let mut original = None;
        if !BufferWindow::fits(&mut memory) {
            let Ok(copy) = copy_of(core, &memory) else {
                let why = OpError::NoMemory { peer: peer.id, len: memory.len() as u64 };
                return self.end_transfer(core, peer, key, Err(why), None);
            };
            original = Some(std::mem::replace(&mut memory, copy));
        }
        let window = BufferWindow::of(&mut memory);
        let grain = Grain::new(1 << terms.bucket_bits).expect("a power of two");
        let share = FirehoseShare { grain, firehoses: terms.firehoses.into() };
        let memory = Some(memory);
        let reach = Reach {
            direction,
            va,
            share,
            memory,
            window,
            original,
            done: 0,
            reached: 0,
            hold: None,
            on_miss: OnMiss::No,
        };
        if let Some(operation) = self.operations.get_mut(key) {
            operation.reach = Some(Box::new(reach));
        }
        peer.tx.transfers.begin_partial();
        self.advance(core, peer, key);
        self.settle(core, peer);
    }

    /// A transfer of an operation has ended.
    pub(super) fn on_part_done<L: Link>(
        &mut self,
        core: &mut Core<L>,
        peer: &mut Peer,
        key: Key,
        outcome: Result<Buffer, OpError>,
        value: Option<u64>,
    ) {
        let Some(reach) = self.operations.get_mut(key).and_then(|operation| operation.reach.as_mut()) else { return };
        match outcome {
            Ok(buffer) => {
                reach.done += reach.direction.len_of(&buffer);
                assert!(reach.done <= reach.reached, "no more is transferred than firehoses lead to");
                reach.memory = Some(buffer);
                if reach.on_miss == OnMiss::Asked && reach.hold.is_none() {
                    // The answer about its memory comes yet.
                    reach.on_miss = OnMiss::Filled;
                    return;
                }
                self.release_and_go_on(core, peer, key, value);
            }
            Err(_) if reach.on_miss == OnMiss::NotPinned => {
                self.fail(core, peer, key, OpError::NotPinned { peer: peer.id });
            }
            Err(why) => self.fail(core, peer, key, why),
        }
        self.settle(core, peer);
    }

    fn advance_or_end<L: Link>(&mut self, core: &mut Core<L>, peer: &mut Peer, key: Key, value: Option<u64>) {
        let Some(operation) = self.operations.get_mut(key) else { return };
        let Some(reach) = operation.reach.as_mut().filter(|reach| reach.memory.is_some()) else { return };
        if reach.done < reach.all() {
            return self.advance(core, peer, key);
        }
        let buffer = operation.reach.take().and_then(|reach| reach.into_memory()).expect("it is here");
        peer.tx.transfers.end_partial();
        self.end_transfer(core, peer, key, Ok(buffer), value);
    }

    /// Has firehoses moved to what comes next, or transfers it.
    fn advance<L: Link>(&mut self, core: &mut Core<L>, peer: &mut Peer, key: Key) {
        let Some(reach) = self.operations.get_mut(key).and_then(|operation| operation.reach.as_mut()) else { return };
        if reach.done == reach.all() {
            return self.advance_or_end(core, peer, key, None);
        }
        if reach.done < reach.reached {
            return self.transfer_part(core, peer, key);
        }
        let span = reach.next_span(peer);
        let get = reach.get_on_miss(core, peer, span);
        let (share, context) = (reach.share, key.to_word());
        reach.reached += span.len as usize;
        let (id, limits) = (peer.id, self.firehose.limits());
        let Self { offers, ended, firehose, .. } = self;
        let mut around = Surroundings { core, peer: Some(&mut *peer), offers, limits, ended, get };
        let outcome = firehose.acquire(&mut around, id, share, span, context);
        let has_left = get.is_some() && around.get.is_none();
        let reach = self.operations.get_mut(key).and_then(|operation| operation.reach.as_mut()).expect("it is there");
        match outcome {
            Ok(Some(hold)) => {
                reach.hold = Some(hold);
                self.transfer_part(core, peer, key);
            }
            Ok(None) if has_left => {
                reach.on_miss = OnMiss::Asked;
                let buffer = reach.memory.take().expect("no transfer has it");
                core.await_filling(peer, OneSidedWork::Named(key).to_name(), buffer);
            }
            Ok(None) => {}
            Err(_) => self.fail(core, peer, key, OpError::Denied { peer: peer.id }),
        }
    }

    /// Gives back what was held, if all of it was transferred, and goes on.
    fn release_and_go_on<L: Link>(&mut self, core: &mut Core<L>, peer: &mut Peer, key: Key, value: Option<u64>) {
        let reach = self.operations.get_mut(key).and_then(|operation| operation.reach.as_mut());
        if let Some(hold) = reach.filter(|reach| reach.done == reach.reached).and_then(|reach| reach.hold.take()) {
            self.release(core, peer, hold);
        }
        self.advance_or_end(core, peer, key, value);
    }

    /// Transfers what lies in the next bucket.
    fn transfer_part<L: Link>(&mut self, core: &mut Core<L>, peer: &mut Peer, key: Key) {
        let Some(reach) = self.operations.get_mut(key).and_then(|operation| operation.reach.as_mut()) else { return };
        let va = reach.va + reach.done as u64;
        let piece = reach.hold.as_ref().and_then(|hold| self.firehose.piece_at(hold, va));
        let Some(piece) = piece else { return self.fail(core, peer, key, OpError::Denied { peer: peer.id }) };
        let mut buffer = reach.memory.take().expect("no transfer has it");
        if !matches!(reach.direction, Direction::Atomic { .. }) {
            reach.window.show(&mut buffer, reach.done..reach.done + piece.span.len as usize);
        }
        let (operation, direction) = (OneSidedWork::Named(key).to_name(), reach.direction);
        let by_message = direction == Direction::Read && !self.gets_by_rdma;
        core.submit_transfer(peer, Transfer { operation, buffer, rkey: piece.key, va, direction, by_message });
    }

    fn release<L: Link>(&mut self, core: &mut Core<L>, peer: &mut Peer, hold: Hold) {
        let limits = self.firehose.limits();
        let Self { offers, ended, .. } = self;
        let peer = Some(peer);
        let mut around = Surroundings { core, peer, offers, limits, ended, get: None };
        self.firehose.release(&mut around, hold);
    }

    /// An operation ends with an error.
    fn fail<L: Link>(&mut self, core: &mut Core<L>, peer: &mut Peer, key: Key, why: OpError) {
        let reach = self.operations.get_mut(key).and_then(|operation| operation.reach.take());
        if let Some(hold) = reach.and_then(|reach| reach.hold) {
            self.release(core, peer, hold);
        }
        peer.tx.transfers.end_partial();
        self.end_transfer(core, peer, key, Err(why), None);
    }

    /// Acts on what Firehose has granted and refused, until there is nothing more; and begins what a fence kept back.
    fn settle<L: Link>(&mut self, core: &mut Core<L>, peer: &mut Peer) {
        while let Some((context, outcome)) = self.ended.pop_front() {
            let key = Key::from_word(context);
            let reach = self.operations.get_mut(key).and_then(|operation| operation.reach.as_mut());
            match (outcome, reach) {
                (Ok(hold), Some(reach)) => {
                    reach.hold = Some(hold);
                    match reach.on_miss {
                        OnMiss::No => self.transfer_part(core, peer, key),
                        OnMiss::Filled => self.release_and_go_on(core, peer, key, None),
                        OnMiss::Asked | OnMiss::NotPinned => {}
                    }
                }
                // A get whose bytes were denied.
                (Ok(hold), None) => self.release(core, peer, hold),
                (Err(Failed::Refused { reason, .. }), Some(reach)) => {
                    let peer_id = peer.id;
                    match (reach.on_miss, reason) {
                        (OnMiss::Asked, PinError::NotOffered) => {}
                        // The peer denies the bytes, too, and that ends it.
                        (OnMiss::Asked, _) => reach.on_miss = OnMiss::NotPinned,
                        (_, PinError::NotOffered) => self.fail(core, peer, key, OpError::Denied { peer: peer_id }),
                        _ => self.fail(core, peer, key, OpError::NotPinned { peer: peer_id }),
                    }
                }
                // The end of the peer ends the operation.
                (Err(Failed::PeerGone(_)), Some(_)) | (Err(_), None) => {}
            }
        }
        self.go_behind_fence(core, peer);
    }

    /// A peer speaks of firehoses.
    ///
    /// # Errors
    /// No peer says that, or it asks for more than may wait.
    pub(crate) fn on_firehose<L: Link>(
        &mut self,
        core: &mut Core<L>,
        peer: &mut Peer,
        get: Option<GetOnMiss>,
        bytes: &[u8],
    ) -> Result<(), Breach> {
        let limits = self.firehose.limits();
        if peer.tx.answers_waiting as u64 > limits.firehoses() {
            return Err(Breach::TooManyAnswers);
        }
        if get.is_some() && is_answer(bytes) {
            return Err(Breach::Firehoses);
        }
        let id = peer.id;
        let Self { offers, ended, firehose, .. } = self;
        let mut around = Surroundings { core, peer: Some(&mut *peer), offers, limits, ended, get: None };
        firehose.on_message(&mut around, id, bytes).map_err(|breach| {
            tracing::warn!("{id}: {breach}");
            Breach::Firehoses
        })?;
        if let Some(get) = get {
            self.serve_get_on_miss(core, peer, get)?;
        }
        self.settle(core, peer);
        Ok(())
    }

    /// A peer wants bytes of what it has just asked for.
    fn serve_get_on_miss<L: Link>(&self, core: &mut Core<L>, peer: &mut Peer, get: GetOnMiss) -> Result<(), Breach> {
        let GetOnMiss { va, len, id } = get;
        let bucket = self.firehose.limits().grain().bucket_of(va);
        let key = self.firehose.key(bucket).filter(|_| self.firehose.has_granted(peer.id, bucket));
        match key {
            Some(key) => core.on_get(peer, (key, va), len as usize, None, id),
            None => {
                core.deny(peer, id);
                Ok(())
            }
        }
    }

    /// Counts anew what Firehose counts.
    ///
    /// # Errors
    /// What contradicts it.
    pub(crate) fn check_firehoses(&self) -> Result<(), FirehoseViolation> {
        self.firehose.check_invariants()
    }

    /// Whether Firehose knows of no operation but those that there are.
    pub(crate) fn holds_what_it_needs(&self) -> bool {
        let reaches = self.operations.iter().filter_map(|(_, operation)| operation.reach.as_ref());
        let needed =
            reaches.filter(|reach| reach.hold.is_some() || reach.on_miss == OnMiss::No && reach.done < reach.reached);
        self.firehose.settled_operations().is_none_or(|count| count == needed.count())
    }

    /// A peer is gone: it holds nothing here any more, and nothing there is held.
    pub(super) fn forget_firehoses<L: Link>(&mut self, core: &mut Core<L>, peer: PeerId, holds: Vec<Hold>) {
        let limits = self.firehose.limits();
        let Self { offers, ended, firehose, .. } = self;
        // With what was granted before it was gone, and not acted upon.
        let granted: Vec<_> = ended.drain(..).filter_map(|(_, outcome)| outcome.ok()).collect();
        let mut around = Surroundings { core, peer: None, offers, limits, ended, get: None };
        firehose.peer_gone(&mut around, peer);
        for hold in holds.into_iter().chain(granted) {
            firehose.release(&mut around, hold);
        }
        ended.clear();
    }
}

/// Returns a copy of all of a buffer.
pub(super) fn copy_of<L: Link>(core: &Core<L>, memory: &Buffer) -> Result<Buffer, ArenaError> {
    let mut copy = core.engine.buffer(memory.len())?;
    copy.copy_from(0, memory, 0..memory.len());
    Ok(copy)
}

impl Reach {
    /// Returns how many bytes it moves.
    fn all(&self) -> usize {
        match self.direction {
            Direction::Atomic { width, .. } => width.len(),
            Direction::Read | Direction::Write { .. } => self.window.len,
        }
    }

    /// Returns what firehoses are to lead to next: as many buckets as one request may name, and the peer gives.
    fn next_span(&self, peer: &Peer) -> Span {
        let room = peer.lanes.iter().map(|lane| lane.payload).max().unwrap_or(LEAST_ROOM);
        // A request names each new bucket, and in its place an old one: at worst half as many regions of the former as of the latter.
        let fit = (room.saturating_sub(REQUEST) / (3 * REGION) * 2).max(1) as u64;
        let buckets = fit.min(MAX_BUCKETS).min(self.share.firehoses);
        let va = self.va + self.done as u64;
        let end = (self.share.grain.bucket_of(va).0 + buckets).saturating_mul(self.share.grain.bytes());
        Span { va, len: ((self.all() - self.done) as u64).min(end - va) }
    }

    /// Returns the get that may go with the request for its memory: short, alone in its bucket, and behind no fence.
    fn get_on_miss<L: Link>(&self, core: &Core<L>, peer: &Peer, span: Span) -> Option<GetOnMiss> {
        let is_short = self.done == 0 && span.len as usize == self.all() && self.all() <= LONGEST_ON_MISS;
        let is_alone = self.share.grain.cover(span).is_ok_and(|region| region.count() == 1);
        let is_get = matches!(self.direction, Direction::Read);
        (is_get && is_short && is_alone && peer.tx.transfers.may_be_overtaken()).then(|| GetOnMiss {
            va: span.va,
            len: span.len as u32,
            id: core.next_reply(),
        })
    }

    /// Returns its memory as it was given, and what was transferred in it.
    fn into_memory(mut self) -> Option<Buffer> {
        let mut buffer = self.memory.take()?;
        self.window.show_all(&mut buffer);
        match self.original {
            Some(mut original) => {
                if matches!(self.direction, Direction::Read) {
                    original.copy_from(0, &buffer, 0..buffer.len());
                }
                Some(original)
            }
            None => Some(buffer),
        }
    }

    /// Returns what it holds at the peer.
    pub(super) fn into_hold(self) -> Option<Hold> {
        self.hold
    }
}
