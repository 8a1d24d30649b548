//! Fences before operations that are not all transfers yet: on memory that a peer offers, and with a signal that waits for its put. A
//! fence among transfers would not hold them: what follows it waits until they are over.

use std::collections::VecDeque;

use roci_driver::Buffer;
use roci_driver::link::Link;

use super::RmaService;
use super::operation::OneSidedCall;
use crate::core::Core;
use crate::core::peer::{Peer, PeerId};
use crate::core::slab::Key;

/// What waits for operations to be over.
#[derive(Debug)]
pub(super) enum BehindFence {
    /// Another fence.
    Fence,
    Operation(Key, OneSidedCall),
}

impl RmaService {
    /// Has the next operation to a peer wait for those before it.
    pub(crate) fn fence(&mut self, peer: &mut Peer) {
        if peer.tx.transfers.partial() > 0 || self.is_fenced(peer.id) {
            self.behind.entry(peer.id).or_default().push_back(BehindFence::Fence);
        } else {
            peer.tx.transfers.fence();
        }
    }

    /// Whether operations to a peer wait behind a fence.
    #[inline]
    pub(crate) fn is_fenced(&self, peer: PeerId) -> bool {
        !self.behind.is_empty() && self.behind.contains_key(&peer)
    }

    /// Begins an operation, or has it wait behind a fence.
    pub(super) fn begin_or_wait<L: Link>(&mut self, core: &mut Core<L>, peer: &mut Peer, key: Key, call: OneSidedCall) {
        match self.behind.get_mut(&peer.id) {
            Some(behind) => behind.push_back(BehindFence::Operation(key, call)),
            None => self.start(core, peer, key, call),
        }
    }

    /// Begins what waits behind a fence, if what is before it is over, up to the next one.
    pub(super) fn go_behind_fence<L: Link>(&mut self, core: &mut Core<L>, peer: &mut Peer) {
        if peer.tx.transfers.partial() > 0 {
            return;
        }
        let Some(mut behind) = self.behind.remove(&peer.id) else { return };
        while let Some(next) = behind.front() {
            if matches!(next, BehindFence::Fence) {
                if peer.tx.transfers.partial() > 0 {
                    break;
                }
                peer.tx.transfers.fence();
            }
            if let Some(BehindFence::Operation(key, call)) = behind.pop_front() {
                self.start(core, peer, key, call);
            }
        }
        if !behind.is_empty() {
            self.behind.insert(peer.id, behind);
        }
    }

    /// A peer is gone. Returns the memory of what waited for it.
    pub(super) fn forget_behind_fence(&mut self, peer: PeerId) -> Vec<Buffer> {
        let behind: VecDeque<_> = self.behind.remove(&peer).unwrap_or_default();
        let operations = behind.into_iter().filter_map(|waiting| match waiting {
            BehindFence::Fence => None,
            BehindFence::Operation(_, call) => Some(call.into_buffer()),
        });
        operations.collect()
    }
}
