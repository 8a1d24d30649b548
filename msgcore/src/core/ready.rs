//! What is to go on once no peer is borrowed: work that a message of one peer makes possible for others.

use std::collections::VecDeque;

use super::coalescing::Coalescing;
use super::peer::PeerId;

/// Work for peers other than the one that is borrowed.
#[derive(Debug)]
pub(crate) struct Ready {
    /// Short messages that wait for others, to leave with them.
    pub(super) coalescing: Coalescing,
    /// Peers that have found no send buffer, in the order in which they looked. Each is in it once.
    starved: VecDeque<PeerId>,
    /// Peers to which messages have waited for credits, of which the log is to say when some have come. Each is in it once.
    stalled: Vec<PeerId>,
    /// A receive buffer has come back while somewhere a receive lacks one.
    has_receive_buffers: bool,
    /// Messages without a receive take less memory than before.
    has_less_stored: bool,
    /// Peers whose messages or vbufs were taken while the engine polled, and for whom something may be sent.
    to_go_on: Vec<PeerId>,
    /// Peers that have denied an operation, each time.
    denied: Vec<PeerId>,
    /// Operations that waited for something which is there now, by the names of their service.
    operations: VecDeque<u64>,
}

impl Ready {
    /// Nothing yet. Messages of no more than `coalesce_threshold` bytes leave together, and none if that is 0.
    pub(crate) fn new(coalesce_threshold: usize) -> Self {
        Self {
            coalescing: Coalescing::new(coalesce_threshold),
            starved: VecDeque::new(),
            stalled: Vec::new(),
            has_receive_buffers: false,
            has_less_stored: false,
            to_go_on: Vec::new(),
            denied: Vec::new(),
            operations: VecDeque::new(),
        }
    }

    /// A peer has found no send buffer, and is not in the queue: it tries again in its turn.
    pub(super) fn push_starved(&mut self, peer: PeerId) {
        self.starved.push_back(peer);
    }

    /// Returns the peer that has waited for a send buffer for longest, and takes it out of the queue.
    pub(super) fn pop_starved(&mut self) -> Option<PeerId> {
        self.starved.pop_front()
    }

    /// Returns how many peers wait for a send buffer.
    #[inline]
    pub(crate) fn starved(&self) -> usize {
        self.starved.len()
    }

    /// Messages to a peer wait for credits, and it is not in the list.
    pub(super) fn note_stalled(&mut self, peer: PeerId) {
        self.stalled.push(peer);
    }

    /// Whether the log is to say of a peer when credits have come.
    #[inline]
    pub(crate) fn are_stalled(&self) -> bool {
        !self.stalled.is_empty()
    }

    /// Keeps those that still wait.
    pub(super) fn retain_stalled(&mut self, mut waits: impl FnMut(PeerId) -> bool) {
        self.stalled.retain(|&peer| waits(peer));
    }

    /// A receive buffer has come back, and somewhere a receive lacks one.
    pub(crate) fn note_receive_buffer(&mut self) {
        self.has_receive_buffers = true;
    }

    /// Messages without a receive take less memory.
    pub(crate) fn note_less_stored(&mut self) {
        self.has_less_stored = true;
    }

    /// A peer goes on once the engine has polled. Of one poll it may be named again, as often as it sent frames.
    #[inline]
    pub(crate) fn note_to_go_on(&mut self, peer: PeerId) {
        if self.to_go_on.last() != Some(&peer) {
            self.to_go_on.push(peer);
        }
    }

    /// Whether a peer is to go on.
    #[inline]
    pub(crate) fn are_to_go_on(&self) -> bool {
        !self.to_go_on.is_empty()
    }

    /// Returns the next peer that goes on.
    pub(crate) fn next_to_go_on(&mut self) -> Option<PeerId> {
        self.to_go_on.pop()
    }

    /// A peer has denied an operation.
    pub(crate) fn note_denied(&mut self, peer: PeerId) {
        self.denied.push(peer);
    }

    /// Returns a peer that has denied an operation.
    pub(crate) fn next_denied(&mut self) -> Option<PeerId> {
        self.denied.pop()
    }

    /// An operation goes on when no peer is borrowed. The caller names it once.
    pub(crate) fn defer(&mut self, operation: u64) {
        self.operations.push_back(operation);
    }

    /// Whether anything but send buffers is to be looked at.
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        self.has_receive_buffers || self.has_less_stored || !(self.operations.is_empty() && self.denied.is_empty())
    }

    /// Returns whether receives that lack a buffer may have one, and whether withheld credits may be released.
    pub(crate) fn take_due(&mut self) -> (bool, bool) {
        (std::mem::take(&mut self.has_receive_buffers), std::mem::take(&mut self.has_less_stored))
    }

    /// Returns the next operation that goes on.
    pub(crate) fn next_operation(&mut self) -> Option<u64> {
        self.operations.pop_front()
    }
}
