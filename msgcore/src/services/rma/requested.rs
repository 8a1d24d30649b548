//! Keys of 64 bits that the memory's owner chooses, which peers know without being given them (libfabric's requested keys, without
//! `FI_MR_PROV_KEY`).
//!
//! RDMA takes a key of 32 bits that the owner's engine has given, and a stale one ends the connection. But a key that was chosen may be
//! withdrawn and given to other memory while peers go on to use it. So they ask the owner once which key it stands for, remember that
//! until the owner says that the memory was withdrawn, and send their operations as messages, which the owner denies alone. What was
//! under way meanwhile, and so was denied, asks once more: the news is on its way before the denial. A get is still written by the
//! owner with RDMA, where there is any.

use std::collections::BTreeSet;

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use roci_driver::Buffer;
use roci_driver::link::Link;
use roci_protocol::Rkey;
use roci_protocol::msg::Message;

use super::RmaService;
use crate::core::Core;
use crate::core::breach::Breach;
use crate::core::completion::OpError;
use crate::core::peer::{Peer, PeerId};
use crate::core::slab::Key;
use crate::core::transfer::{Direction, Transfer};
use crate::core::tx::OneSidedWork;

/// Keys of peers that are remembered. One more, and all are asked for again.
const REMEMBERED: usize = 1 << 14;
/// How often an operation may be denied: the second time it ends.
const DENIALS: u8 = 2;

/// Keys that were chosen, here and at peers.
#[derive(Default)]
pub(crate) struct RequestedKeys {
    /// This end's, and the peers that remember them, which learn of their end in an order that replays.
    known_to: HashMap<u64, BTreeSet<PeerId>>,
    at_peers: HashMap<(PeerId, u64), KeyAtPeer>,
}

/// What is known of a key that a peer has chosen.
enum KeyAtPeer {
    /// It stood for this one.
    Known(Rkey),
    /// The peer was asked. These operations wait for the answer.
    Asked(Vec<Key>),
}

/// An operation on memory under a key that its peer has chosen.
#[derive(Debug)]
pub(super) struct Requested {
    key: u64,
    va: u64,
    direction: Direction,
    /// Its memory, unless a transfer has it.
    memory: Option<Buffer>,
    /// The key that was used last.
    tried: Option<Rkey>,
    denials: u8,
}

impl RequestedKeys {
    /// A key of this end's stands for nothing any more. Returns the peers that remember it.
    pub(crate) fn take_known_to(&mut self, requested: u64) -> BTreeSet<PeerId> {
        self.known_to.remove(&requested).unwrap_or_default()
    }

    /// A peer asks what a key of this end's stands for, and remembers the answer.
    fn on_find_key(&mut self, peer: &mut Peer, key: u64, rkey: Option<Rkey>) {
        if rkey.is_some() {
            self.known_to.entry(key).or_default().insert(peer.id);
        }
        peer.queue_control(Message::KeyFound { key, rkey });
    }

    /// Returns what a peer's key stands for; or has the operation wait for it, and asks.
    fn find(&mut self, peer: &mut Peer, requested: u64, operation: Key) -> Option<Rkey> {
        match self.at_peers.entry((peer.id, requested)) {
            Entry::Occupied(mut known) => match known.get_mut() {
                KeyAtPeer::Known(rkey) => return Some(*rkey),
                KeyAtPeer::Asked(waiting) => waiting.push(operation),
            },
            Entry::Vacant(unknown) => {
                unknown.insert(KeyAtPeer::Asked(vec![operation]));
                peer.queue_control(Message::FindKey { key: requested });
            }
        }
        None
    }

    /// Forgets what a peer's key stood for, if that is known.
    fn forget_known(&mut self, peer: PeerId, requested: u64) {
        if let Entry::Occupied(known) = self.at_peers.entry((peer, requested))
            && matches!(known.get(), KeyAtPeer::Known(_))
        {
            known.remove();
        }
    }

    /// A peer has answered. Returns the operations that have waited for that; none where it was not asked.
    fn take_waiting(&mut self, peer: PeerId, requested: u64) -> Option<Vec<Key>> {
        match self.at_peers.entry((peer, requested)) {
            Entry::Occupied(asked) if matches!(asked.get(), KeyAtPeer::Asked(_)) => match asked.remove() {
                KeyAtPeer::Asked(waiting) => Some(waiting),
                KeyAtPeer::Known(_) => None,
            },
            _ => None,
        }
    }

    fn remember(&mut self, peer: PeerId, requested: u64, rkey: Rkey) {
        if self.at_peers.len() >= REMEMBERED {
            self.at_peers.retain(|_, key| matches!(key, KeyAtPeer::Asked(_)));
        }
        self.at_peers.insert((peer, requested), KeyAtPeer::Known(rkey));
    }

    /// A peer is gone.
    pub(super) fn forget(&mut self, peer: PeerId) {
        self.at_peers.retain(|(of, _), _| *of != peer);
        self.known_to.retain(|_, known_to| {
            known_to.remove(&peer);
            !known_to.is_empty()
        });
    }
}

impl RmaService {
    /// Transfers a buffer to or from memory under a key that the peer has chosen, once it is known what that stands for.
    pub(super) fn submit_requested<L: Link>(
        &mut self,
        core: &mut Core<L>,
        peer: &mut Peer,
        key: Key,
        (buffer, va, requested): (Buffer, u64, u64),
        direction: Direction,
    ) {
        let Some(operation) = self.operations.get_mut(key) else { return };
        let memory = Some(buffer);
        operation.requested =
            Some(Box::new(Requested { key: requested, va, direction, memory, tried: None, denials: 0 }));
        peer.tx.transfers.begin_partial();
        self.find_and_send(core, peer, key);
    }

    fn find_and_send<L: Link>(&mut self, core: &mut Core<L>, peer: &mut Peer, key: Key) {
        let requested = self.operations.get(key).and_then(|operation| operation.requested.as_ref());
        let Some(requested) = requested.map(|requested| requested.key) else { return };
        if let Some(rkey) = self.keys.find(peer, requested, key) {
            self.send_or_deny(core, peer, key, Some(rkey));
        }
    }

    /// Sends an operation whose key stands for this one. What was denied under it before is so again.
    fn send_or_deny<L: Link>(&mut self, core: &mut Core<L>, peer: &mut Peer, key: Key, rkey: Option<Rkey>) {
        let requested = self.operations.get_mut(key).and_then(|operation| operation.requested.as_mut());
        let Some(requested) = requested else { return };
        let Some(rkey) = rkey.filter(|rkey| requested.tried != Some(*rkey)) else {
            return self.end_requested(core, peer, key, Err(OpError::Denied { peer: peer.id }), None);
        };
        let buffer = requested.memory.take().expect("no transfer has it");
        requested.tried = Some(rkey);
        let (operation, va, direction) = (OneSidedWork::Named(key).to_name(), requested.va, requested.direction);
        core.submit_transfer(peer, Transfer { operation, buffer, rkey, va, direction, by_message: true });
    }

    /// A peer speaks of keys that were chosen.
    ///
    /// # Errors
    /// It answers what it was not asked.
    pub(crate) fn on_key_message<L: Link>(
        &mut self,
        core: &mut Core<L>,
        peer: &mut Peer,
        message: Message,
    ) -> Result<(), Breach> {
        match message {
            Message::FindKey { key } => self.keys.on_find_key(peer, key, core.regions.chosen.find(key)),
            Message::KeyFound { key, rkey } => self.on_key_found(core, peer, key, rkey)?,
            Message::KeyGone { key } => self.keys.forget_known(peer.id, key),
            other => unreachable!("it is no message of keys: {other:?}"),
        }
        Ok(())
    }

    /// A peer says what a key of its choice stands for.
    fn on_key_found<L: Link>(
        &mut self,
        core: &mut Core<L>,
        peer: &mut Peer,
        requested: u64,
        rkey: Option<Rkey>,
    ) -> Result<(), Breach> {
        let waiting = self.keys.take_waiting(peer.id, requested).ok_or(Breach::UnaskedAnswer { reply: requested })?;
        if let Some(rkey) = rkey {
            self.keys.remember(peer.id, requested, rkey);
        }
        for key in waiting {
            self.send_or_deny(core, peer, key, rkey);
        }
        Ok(())
    }

    /// The transfer of an operation has ended. What was denied may have had an old key: then the owner's news came before.
    pub(super) fn on_requested_end<L: Link>(
        &mut self,
        core: &mut Core<L>,
        peer: &mut Peer,
        key: Key,
        (buffer, value): (Buffer, Option<u64>),
        is_denied: bool,
    ) {
        let requested = self.operations.get_mut(key).and_then(|operation| operation.requested.as_mut());
        let Some(requested) = requested else { return };
        requested.denials += u8::from(is_denied);
        if is_denied && requested.denials < DENIALS {
            requested.memory = Some(buffer);
            return self.find_and_send(core, peer, key);
        }
        let outcome = if is_denied { Err(OpError::Denied { peer: peer.id }) } else { Ok(buffer) };
        self.end_requested(core, peer, key, outcome, value);
    }

    fn end_requested<L: Link>(
        &mut self,
        core: &mut Core<L>,
        peer: &mut Peer,
        key: Key,
        outcome: Result<Buffer, OpError>,
        value: Option<u64>,
    ) {
        if let Some(operation) = self.operations.get_mut(key) {
            operation.requested = None;
        }
        peer.tx.transfers.end_partial();
        self.end_transfer(core, peer, key, outcome, value);
        self.go_behind_fence(core, peer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_keys_are_remembered_than_may_be_and_what_was_asked_is_not_forgotten() {
        let mut keys = RequestedKeys::default();
        let (first, second) = (PeerId::from(1), PeerId::from(2));
        keys.at_peers.insert((second, 7), KeyAtPeer::Asked(Vec::new()));
        for requested in 0..2 * REMEMBERED as u64 + 5 {
            keys.remember(first, requested, Rkey(1));
            assert!(keys.at_peers.len() <= REMEMBERED + 1);
        }
        assert!(keys.take_waiting(second, 7).is_some() && keys.take_waiting(first, 2 * REMEMBERED as u64).is_none());
        keys.forget(first);
        assert!(keys.at_peers.is_empty());
    }
}
