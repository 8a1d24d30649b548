//! Calls of the application for one-sided operations and active messages.

use roci_driver::link::Link;
use roci_driver::{Buffer, UserMemory};
use roci_protocol::msg::{ActiveKind, Message};

use super::Endpoint;
use super::dispatch::end_one_sided;
use super::sending::advance;
use crate::core::peer::PeerId;
use crate::core::refused::{CallError, Refused};
use crate::core::request::Request;
use crate::core::segment::{OfferedMemory, RemoteAccess, RemoteAddress, Segment};
use crate::core::tx::OneSidedWork;
use crate::services::am::handlers::{Handler, HandlerId};
use crate::services::am::{self, Active};
use crate::services::rma::offers::open_to_peers;
use crate::services::rma::operation::OneSidedCall;
use crate::services::tag::operation::TagOperation;

impl<L: Link> Endpoint<L> {
    /// Exposes memory to peers.
    pub(crate) fn expose(&mut self, buffer: Buffer) -> Result<Segment, Refused<Option<Buffer>>> {
        let region = open_to_peers(&mut self.core.engine, self.core.pd, buffer, 0, RemoteAccess::ReadWrite);
        region.map(Segment).map_err(|refused| Refused::new(refused.why, Some(refused.given)))
    }

    /// Exposes memory to peers under a key of the caller's choice, with addresses from `base` on.
    pub(crate) fn expose_as(
        &mut self,
        key: u64,
        base: u64,
        buffer: Buffer,
        access: RemoteAccess,
    ) -> Result<Segment, Refused<Option<Buffer>>> {
        if self.core.regions.chosen.is_taken(key) {
            return Err(Refused::new(CallError::KeyTaken(key), Some(buffer)));
        }
        match open_to_peers(&mut self.core.engine, self.core.pd, buffer, base, access) {
            Ok(region) => {
                self.core.regions.chosen.insert(key, region.rkey());
                Ok(Segment(region))
            }
            Err(refused) => Err(Refused::new(refused.why, Some(refused.given))),
        }
    }

    /// Offers memory to peers.
    pub(crate) fn offer(&mut self, memory: UserMemory) -> Result<OfferedMemory, Refused<UserMemory>> {
        match self.check_process() {
            Ok(()) => self.services.rma.offer(&mut self.core, memory),
            Err(why) => Err(Refused::new(why, memory)),
        }
    }

    /// Takes an offer back.
    pub(crate) fn retract(&mut self, offer: OfferedMemory) -> Result<UserMemory, CallError> {
        self.check_process()?;
        self.services.rma.retract(&mut self.core, offer).ok_or(CallError::NoSegment)
    }

    /// Segments and handlers are the parent's in a forked child.
    #[inline]
    fn check_process(&self) -> Result<(), CallError> {
        if self.is_forked() { Err(CallError::Forked) } else { Ok(()) }
    }

    /// Withdraws memory from peers. Returns it, and the key that was chosen for it, if one was: [`Endpoint::announce_withdrawn`] is due at
    /// each endpoint of the domain.
    pub(crate) fn withdraw(&mut self, segment: Segment) -> Result<(Buffer, Option<u64>), CallError> {
        self.check_process()?;
        let buffer = self.core.engine.deregister(segment.0).ok_or(CallError::NoSegment)?;
        Ok((buffer, self.core.regions.chosen.remove(segment.0.rkey())))
    }

    /// What a chosen key stood for was withdrawn: peers that remember the key learn of it.
    pub(crate) fn announce_withdrawn(&mut self, key: u64) {
        let Self { core, services, peers, .. } = self;
        for peer in services.rma.keys.take_known_to(key) {
            if let Some(peer) = peers.live_mut(peer) {
                peer.queue_control(Message::KeyGone { key });
                advance(core, services, peer);
            }
        }
        self.settle();
    }

    /// Copies bytes out of a segment.
    pub(crate) fn read_segment(&self, segment: Segment, offset: usize, into: &mut [u8]) -> Result<(), CallError> {
        self.check_process()?;
        self.core.engine.read_region(self.core.pd, segment.0, offset, into).ok_or(CallError::NoSegment)
    }

    /// Copies bytes into a segment.
    pub(crate) fn write_segment(&mut self, segment: Segment, offset: usize, from: &[u8]) -> Result<(), CallError> {
        self.check_process()?;
        self.core.engine.write_region(self.core.pd, segment.0, offset, from).ok_or(CallError::NoSegment)
    }

    /// Begins a one-sided operation, under this name.
    pub(crate) fn begin_one_sided(
        &mut self,
        request: Request,
        to: PeerId,
        call: OneSidedCall,
    ) -> Result<(), Refused<Buffer>> {
        if to == self.peers.oneself() {
            return self.carry_out(request, call);
        }
        if let Err(why) = self.peer_or_error(to) {
            return Err(Refused::new(why, call.into_buffer()));
        }
        let Self { core, services, peers, .. } = self;
        let peer = peers.entry(to);
        services.rma.begin(core, peer, request, call)?;
        services.tag.requests.open(request, || TagOperation::Elsewhere { peer: to });
        end_one_sided(core, services, to);
        let is_open = peer.is_open();
        advance(core, services, peer);
        if !is_open {
            self.ensure_connecting(to);
        }
        Ok(())
    }

    fn carry_out(&mut self, request: Request, call: OneSidedCall) -> Result<(), Refused<Buffer>> {
        if let Err(why) = self.check_process() {
            return Err(Refused::new(why, call.into_buffer()));
        }
        let Self { core, services, peers, .. } = self;
        let long = match &call {
            OneSidedCall::Put { then: Some(then), .. } => then.message().and_then(Active::of),
            _ => None,
        };
        if long.is_some()
            && let Err(why) = services.am.check_local_room()
        {
            return Err(Refused::new(why, call.into_buffer()));
        }
        let outcome = services.rma.carry_out(core, peers.oneself(), call)?;
        if let (Some(long), Ok(_)) = (long, &outcome) {
            services.am.run_soon(long);
        }
        services.tag.requests.open(request, || TagOperation::Elsewhere { peer: peers.oneself() });
        services.tag.requests.end(request, outcome);
        Ok(())
    }

    /// Writes bytes to a peer's memory at once, out of a copy, with no operation to wait for. Returns whether that was possible.
    #[inline]
    pub(crate) fn put_copy(&mut self, to: PeerId, bytes: &[u8], at: RemoteAddress) -> Result<bool, CallError> {
        let remote = at.resolve(bytes.len())?;
        if to == self.peers.oneself() || !at.has_rkey() || self.services.rma.is_fenced(to) {
            return Ok(false);
        }
        let Self { core, peers, .. } = self;
        let Some(peer) = peers.get_mut(to).filter(|peer| peer.failure.is_none()) else { return Ok(false) };
        let name = OneSidedWork::Copied(to.slot()).to_name();
        let is_posted = core.post_copied_put(peer, name, bytes, remote);
        core.stats.tx_one_sided += u64::from(is_posted);
        Ok(is_posted)
    }

    /// Has the next one-sided operation to a peer wait for those before it.
    pub(crate) fn fence(&mut self, to: PeerId) -> Result<(), CallError> {
        if to != self.peers.oneself() {
            self.peer_or_error(to)?;
            self.services.rma.fence(self.peers.entry(to));
        }
        Ok(())
    }

    /// Registers a handler of active messages.
    pub(crate) fn register_handler(&mut self, name: &str, handler: Handler) -> Result<HandlerId, CallError> {
        self.check_process()?;
        self.services.am.register(name, handler)
    }

    /// Sends an active message.
    #[inline]
    pub(crate) fn send_active(&mut self, to: PeerId, active: Active, payload: &[u8]) -> Result<(), CallError> {
        let limit = self.core.receives.queues.max_payload();
        if payload.len() > limit {
            return Err(CallError::TooLongForActive { len: payload.len(), limit });
        }
        if to == self.peers.oneself() {
            self.check_process()?;
            return self.services.am.send_to_self(&mut self.core, active, payload);
        }
        self.peer_or_error(to)?;
        let Self { core, services, peers, .. } = self;
        let peer = peers.entry(to);
        if am::send(core, peer, active, payload)? {
            let is_open = peer.is_open();
            advance(core, services, peer);
            if !is_open {
                self.ensure_connecting(to);
            }
        }
        Ok(())
    }

    /// Sends an active message whose handler replies, under this name.
    pub(crate) fn request_active(
        &mut self,
        request: Request,
        to: PeerId,
        active: Active,
        payload: &[u8],
    ) -> Result<(), CallError> {
        debug_assert_eq!(active.kind, ActiveKind::Request);
        if to == self.peers.oneself() {
            self.check_process()?;
        } else {
            self.peer_or_error(to)?;
        }
        let token = self.services.am.open_request(request, to)?;
        self.services.tag.requests.open(request, || TagOperation::Elsewhere { peer: to });
        let sent = self.send_active(to, Active { token, ..active }, payload);
        if sent.is_err() {
            self.services.am.close_request(token, to);
            self.services.tag.requests.forget(request);
        }
        sent
    }

    /// Runs the handlers of active messages that this end has sent itself; returns whether there were any. Those that they lead to
    /// wait for the next time.
    #[cold]
    pub(crate) fn run_local_handlers(&mut self) -> bool {
        if self.is_forked() {
            return false;
        }
        let Self { core, services, peers, .. } = self;
        for _ in 0..services.am.local_len() {
            if let Some((request, outcome)) = services.am.run_local(core, peers.oneself()) {
                services.tag.requests.end(request, outcome);
            }
        }
        true
    }
}
