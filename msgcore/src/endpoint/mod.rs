//! One end of all conversations: its peers, what goes on with them, and the services that stand on it.
//!
//! Whatever comes in, from the wire or from the application, finds its peer once, here. What a service does for that peer it
//! does with the core and that one peer; what becomes possible for others meanwhile is done in [`Endpoint::settle`].

pub(crate) mod address;
mod address_book;
pub(crate) mod buffer_checks;
mod dispatch;
mod expected;
pub(crate) mod failure;
pub(crate) mod invariants;
mod keepalive;
pub(crate) mod locality;
mod one_sided;
mod open;
pub(crate) mod parked;
mod progress;
pub(crate) mod receiving;
mod sending;
pub(crate) mod strangers;
pub(crate) mod streams;
pub(crate) mod wireup;

use std::collections::VecDeque;

use roci_driver::Buffer;
use roci_driver::link::Link;
use roci_protocol::msg::{Label, Mode};

use self::buffer_checks::{check_payload, check_room};
use self::failure::EndpointEvent;
use self::keepalive::Keepalive;
use self::sending::{advance, go_on};
use self::strangers::LeavingPeers;
use self::wireup::Wireup;
use crate::core::Core;
use crate::core::completion::{Envelope, OpError};
use crate::core::peer::{Peer, PeerId};
use crate::core::peers::Peers;
use crate::core::refused::{CallError, Refused};
use crate::core::request::Request;
use crate::services::Services;
use crate::services::tag::cancel::Cancellation;
use crate::services::tag::claims::ClaimedMessage;
use crate::services::tag::matching::Pattern;
use crate::services::tag::receive::Met;
use crate::services::tag::send::SendOptions;
use crate::{Source, Tag};

pub(crate) use open::{Identity, Neighbourhood, Parts};

/// One end of all conversations.
pub(crate) struct Endpoint<L: Link> {
    pub(crate) core: Core<L>,
    pub(crate) peers: Peers,
    pub(crate) services: Services,
    pub(crate) wireup: Wireup<L>,
    keepalive: Keepalive,
    events: VecDeque<EndpointEvent>,
    leaving: LeavingPeers,
    /// Calls of progress.
    calls: u32,
}

impl<L: Link> Endpoint<L> {
    /// Whether this process was forked from the one that opened the endpoint, to which all belongs.
    pub(crate) fn is_forked(&self) -> bool {
        self.core.engine.is_forked()
    }

    /// Sends a message, as the request of this name.
    #[inline]
    pub(crate) fn send(
        &mut self,
        request: Request,
        (to, tag): (PeerId, Tag),
        payload: Buffer,
        options: SendOptions,
    ) -> Result<(), Refused<Buffer>> {
        if let Err(why) = check_payload(&payload) {
            return Err(Refused::new(why, payload));
        }
        if to == self.peers.oneself() {
            self.services.tag.send_to_self(&mut self.core, request, options.label(tag), payload);
            self.settle();
            return Ok(());
        }
        if let Err(why) = self.check_peer(to) {
            return Err(Refused::new(why, payload));
        }
        let Self { core, services, peers, .. } = self;
        let peer = peers.entry(to);
        if let Some(failure) = &peer.failure {
            return Err(Refused::new(failure.clone(), payload));
        }
        if services.tag.send(core, peer, request, options.label(tag), payload)? {
            let is_open = peer.is_open();
            advance(core, services, peer);
            if !is_open {
                self.ensure_connecting(to);
            }
        }
        Ok(())
    }

    /// Sends a short message that no operation stands for, if it can leave at once; returns whether it did.
    ///
    /// # Errors
    /// There is no such peer, or it is gone.
    #[inline]
    pub(crate) fn inject(&mut self, to: PeerId, (label, mode): (Label, Mode), bytes: &[u8]) -> Result<bool, CallError> {
        if to == self.peers.oneself() {
            return Ok(false);
        }
        self.check_peer(to)?;
        let Self { core, services, peers, .. } = self;
        let Some(peer) = peers.get_mut(to) else { return Ok(false) };
        match &peer.failure {
            Some(failure) => Err(failure.clone().into()),
            None => Ok(services.tag.inject(core, peer, (label, mode), bytes)),
        }
    }

    /// Receives a message as the request of this name, into a buffer or in the memory that it came in.
    #[inline]
    pub(crate) fn recv(
        &mut self,
        request: Request,
        pattern: Pattern,
        buffer: Option<Buffer>,
    ) -> Result<(), Refused<Option<Buffer>>> {
        if let Err(why) = self.check_source(&pattern).and_then(|()| check_room(buffer.as_ref())) {
            return Err(Refused::new(why, buffer));
        }
        if let Some(met) = self.services.tag.take_unexpected(&pattern) {
            self.services.tag.open_receive(request, buffer);
            self.note_met(&met);
            self.deliver_met(request, met);
        } else if let Some(error) = self.cannot_come(pattern.source) {
            self.services.tag.open_receive(request, buffer);
            self.services.tag.fail_receive(request, error);
        } else {
            self.services.tag.post_receive(request, pattern, buffer);
        }
        Ok(())
    }

    /// Returns what a message says of itself that such a receive would take, if one has come.
    pub(crate) fn peek(&mut self, pattern: &Pattern) -> Option<Envelope> {
        self.services.tag.peek(pattern)
    }

    /// Claims the message that such a receive would take, if one has come.
    pub(crate) fn claim(&mut self, pattern: &Pattern) -> Option<ClaimedMessage> {
        let met = self.services.tag.take_unexpected(pattern)?;
        self.note_met(&met);
        let message = self.services.tag.claim(&mut self.core, met);
        self.settle();
        Some(message)
    }

    /// Discards a claimed message, if it is one of this end's.
    pub(crate) fn discard(&mut self, message: &ClaimedMessage) {
        if !self.is_forked()
            && let Some(met) = self.services.tag.take_claimed(message)
        {
            self.discard_met(met);
        }
    }

    /// Discards the claimed messages that the application has dropped. In a forked child they are the parent's.
    #[cold]
    pub(crate) fn discard_dropped(&mut self) {
        if self.is_forked() || !self.services.tag.claims.is_any_dropped() {
            return;
        }
        for met in self.services.tag.claims.take_dropped() {
            self.discard_met(met);
        }
    }

    fn discard_met(&mut self, met: Met) {
        let Self { core, services, peers, .. } = self;
        match peers.live_mut(met.source()) {
            Some(peer) => {
                services.tag.discard(core, Some(&mut *peer), met);
                advance(core, services, peer);
            }
            None => services.tag.discard(core, None, met),
        }
        self.settle();
    }

    /// Takes an operation back, if it has met nothing yet.
    pub(crate) fn cancel(&mut self, request: Request) {
        let Self { core, services, peers, .. } = self;
        match services.tag.cancellation(request) {
            Cancellation::Receive => services.tag.cancel_receive(core, request),
            Cancellation::Queue(to, at) => services.tag.cancel_queued(core, to, at),
            Cancellation::Ask(to) if to == peers.oneself() => services.tag.cancel_local(core, request),
            Cancellation::Ask(to) => {
                if let Some(peer) = peers.live_mut(to) {
                    services.tag.ask_back(core, peer, request);
                    advance(core, services, peer);
                }
            }
            Cancellation::Late => {}
        }
        self.settle();
    }

    /// Why a receive from `source` can never be met.
    pub(crate) fn cannot_come(&self, source: Source) -> Option<OpError> {
        match source {
            Source::Peer(id) => self.peers.get(id).and_then(|peer| peer.failure.clone()),
            // This end itself, if no other: as in a job of one.
            Source::Any => None,
        }
    }

    /// Whether there is such a source, and this process may ask.
    #[inline]
    pub(crate) fn check_source(&self, pattern: &Pattern) -> Result<(), CallError> {
        if let Source::Peer(id) = pattern.source
            && !self.peers.has(id)
        {
            return Err(self.no_peer(id));
        }
        if self.is_forked() {
            return Err(CallError::Forked);
        }
        Ok(())
    }

    /// Whether there is such a peer, and this process may speak to it.
    #[inline]
    fn check_peer(&self, id: PeerId) -> Result<(), CallError> {
        if !self.peers.has(id) || id == self.peers.oneself() {
            return Err(self.no_peer(id));
        }
        if self.is_forked() {
            return Err(CallError::Forked);
        }
        Ok(())
    }

    #[cold]
    fn no_peer(&self, id: PeerId) -> CallError {
        match id.rank() {
            Some(rank) => CallError::NoRank { rank, size: self.peers.ranks() },
            None => CallError::NoPeer(id),
        }
    }

    /// Returns a peer that can be talked to.
    pub(crate) fn peer_or_error(&mut self, id: PeerId) -> Result<&mut Peer, CallError> {
        self.check_peer(id)?;
        let peer = self.peers.entry(id);
        match &peer.failure {
            Some(failure) => Err(failure.clone().into()),
            None => Ok(peer),
        }
    }

    /// A message that waited has been met.
    fn note_met(&mut self, met: &Met) {
        let Self { core, services, peers, .. } = self;
        if let Some(peer) = peers.live_mut(met.source()) {
            met.acknowledge(peer);
            advance(core, services, peer);
        }
    }

    /// Gives a message that waited to its receive.
    fn deliver_met(&mut self, request: Request, met: Met) {
        let Self { core, services, peers, .. } = self;
        match peers.live_mut(met.source()) {
            Some(peer) => {
                services.tag.deliver_met(core, Some(&mut *peer), request, met);
                advance(core, services, peer);
            }
            None => services.tag.deliver_met(core, None, request, met),
        }
        self.settle();
    }

    /// Why a message that was claimed can no longer be received.
    fn loss_of(&self, met: &Met) -> Option<OpError> {
        let source = met.source();
        let failure = match self.peers.get(source) {
            Some(peer) => peer.failure.clone()?,
            // It has even given up its slot; and what this end has sent itself is never lost.
            None => OpError::PeerRemoved { peer: source },
        };
        self.services.tag.is_lost(met).then_some(failure)
    }

    /// Does what a message or a call has made possible for other peers.
    #[inline]
    pub(crate) fn settle(&mut self) {
        if self.core.ready.is_due() {
            self.settle_all();
        }
    }

    #[cold]
    fn settle_all(&mut self) {
        while self.core.ready.is_due() {
            let (has_receive_buffers, has_less_stored) = self.core.ready.take_due();
            if has_receive_buffers {
                self.core.replace_missing(&mut self.peers);
            }
            if has_less_stored {
                self.core.release_withheld(&mut self.peers);
            }
            while let Some(peer) = self.core.ready.next_denied() {
                self.emit(EndpointEvent::Denied { peer });
            }
            while let Some(operation) = self.core.ready.next_operation() {
                self.resume(Request::from_wire(operation));
            }
        }
    }

    /// An operation goes on that waited for something which other peers had.
    fn resume(&mut self, request: Request) {
        let Self { core, services, peers, .. } = self;
        // It may have ended meanwhile, with its peer.
        if let Some(peer) = services.tag.resumes(request).and_then(|id| peers.live_mut(id)) {
            services.tag.resume(peer, request);
            advance(core, services, peer);
        }
        // What it did not need is for the next one.
        services.tag.serve_staging(core);
    }

    /// Send buffers are shared: peers that found none go on by turns, as far as there are any now.
    pub(crate) fn wake_the_starved(&mut self) {
        for _ in 0..self.core.ready.starved() {
            if !self.core.has_send_buffer() {
                return;
            }
            self.wake_next();
        }
    }

    /// The application may have given memory back for more of them: all that found none look again.
    fn wake_all_starved(&mut self) {
        for _ in 0..self.core.ready.starved() {
            self.wake_next();
        }
    }

    fn wake_next(&mut self) {
        let Self { core, services, peers, .. } = self;
        if let Some(peer) = core.next_starved(peers) {
            go_on(core, services, peer);
        }
    }
}
