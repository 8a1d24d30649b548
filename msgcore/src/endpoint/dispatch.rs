//! What has come from a peer: a completion, and in it a message, which goes to the service that it is for.

use roci_driver::link::Link;
use roci_driver::{Buffer, Operation, WorkCompletion};
use roci_protocol::msg::{self, Header, Message};

use super::Endpoint;
use super::sending::go_on;
use crate::core::Core;
use crate::core::breach::Breach;
use crate::core::completion::OpError;
use crate::core::lane::SEND_QUEUE;
use crate::core::peer::{Arrived, Peer, PeerId};
use crate::core::receive_buffers::Cost;
use crate::core::request::Request;
use crate::core::rx::{Due, Outcome};
use crate::core::tx::{OneSidedWork, lane_and_slot, stream_work_slot};
use crate::services::Services;
use crate::services::am::Active;
use crate::services::rma::RmaService;
use crate::services::tag::rendezvous::ClearToSend;
use crate::services::tag::stored::RemotePayload;

/// Control messages that may wait for a peer which asks for more: an honest one has no more operations under way.
const ANSWERS_LIMIT: usize = 1 << 17;

impl<L: Link> Endpoint<L> {
    /// Acts on the end of a work request. Sends mostly end many at once: what the end of one makes possible is done when another
    /// kind ends, or another peer's, or nothing more. `run` is the peer whose sends have ended, and so is what comes back.
    #[inline]
    pub(super) fn on_completion(&mut self, run: Option<PeerId>, done: WorkCompletion) -> Option<PeerId> {
        let Some((id, lane)) = self.lane_of(&done) else {
            self.drop_stray(done);
            return run;
        };
        if done.operation == Operation::Send && done.status.is_success() {
            if run != Some(id) {
                self.after_run(run);
            }
            self.core.send_pools[lane].give(done.buffer);
            let peer = self.peers.get_mut(id)?;
            peer.lanes[lane].in_flight.end();
            return Some(id);
        }
        self.after_run(run);
        self.on_other_completion(id, lane, done);
        None
    }

    #[inline]
    fn on_other_completion(&mut self, id: PeerId, lane: usize, done: WorkCompletion) {
        if !done.status.is_success() {
            return self.on_failure(id, lane, done);
        }
        match done.operation {
            Operation::Recv => self.on_receive(id, lane, done),
            Operation::RecvRdmaWithImm => self.on_write(id, lane, done),
            // Nothing else is posted.
            _ => {
                self.on_transferred(id, done);
                if let Some(peer) = self.peers.get_mut(id) {
                    peer.lanes[lane].in_flight.end();
                }
                self.after_work(id);
            }
        }
    }

    /// A run of sends has ended, if there was one.
    #[inline]
    pub(super) fn after_run(&mut self, run: Option<PeerId>) {
        if let Some(id) = run {
            self.after_sends(id);
        }
    }

    /// Sends to a peer have ended.
    pub(super) fn after_sends(&mut self, id: PeerId) {
        self.on_terms_sent(id);
        self.after_work(id);
    }

    /// A READ or WRITE of a service's has ended well.
    #[inline]
    fn on_transferred(&mut self, id: PeerId, done: WorkCompletion) {
        let Self { core, services, peers, .. } = self;
        let Some(peer) = peers.get_mut(id) else { return };
        if let Some(work) = OneSidedWork::from_name(done.wr_id) {
            services.rma.on_work_done(core, peer, work, done);
            return end_one_sided(core, services, peer.id);
        }
        let Some(done) = services.stream.on_work_done(core, peer, done) else { return };
        if peer.failure.is_some() {
            return;
        }
        peer.tx.transfers.end(done.buffer.len());
        let request = Request::from_wire(done.wr_id);
        match done.operation {
            Operation::Read => services.tag.on_read(peer, request, done.buffer),
            _ => services.tag.on_write_done(request, done.buffer),
        }
    }

    /// A peer has written with immediate data, which has used up a receive.
    fn on_write(&mut self, id: PeerId, lane: usize, done: WorkCompletion) {
        let Self { core, services, peers, .. } = self;
        let WorkCompletion { buffer: vbuf, len, imm, .. } = done;
        let Some(peer) = peers.get_mut(id) else { return core.give_receive_vbuf(lane, vbuf) };
        if let Some(lane) = peer.lanes.get_mut(lane) {
            lane.posted = lane.posted.saturating_sub(1);
        }
        if peer.failure.is_some() {
            // It came before its sender's end, and is seen after it.
            return core.give_receive_vbuf(lane, vbuf);
        }
        let outcome = match imm.filter(|_| lane == 0) {
            Some(immediate) => services.stream.on_write(core, peer, (immediate, len)),
            None => Err(Breach::UnaskedWrite),
        };
        let cost = if peer.lanes[lane].is_shared { Cost::Nothing } else { Cost::Returned };
        match outcome.and(core.repost(peer, lane, Some(vbuf), cost)) {
            Ok(()) => go_on(core, services, peer),
            Err(breach) => self.fail_peer(id, breach_of(id, breach)),
        }
    }

    /// Returns the peer and lane of a completion: vbufs are named after them, but for those that any peer may fill, and so is the
    /// work of streams, which is the first lane's.
    #[inline]
    fn lane_of(&self, done: &WorkCompletion) -> Option<(PeerId, usize)> {
        if matches!(done.operation, Operation::Recv | Operation::Send | Operation::RecvRdmaWithImm) {
            let (lane, slot) = lane_and_slot(done.wr_id);
            if slot != PeerId::NONE.slot() {
                return Some((self.peers.id_at(slot)?, lane));
            }
        } else if let Some(slot) = stream_work_slot(done.wr_id) {
            return Some((self.peers.id_at(slot)?, 0));
        }
        match OneSidedWork::from_name(done.wr_id) {
            Some(OneSidedWork::Copied(slot) | OneSidedWork::Served(slot)) => return Some((self.peers.id_at(slot)?, 0)),
            Some(OneSidedWork::Named(key)) if let Some(id) = self.services.rma.peer_of(key) => return Some((id, 0)),
            _ => {}
        }
        self.peers.of_qp(done.qp)
    }

    /// The end of a work request of a queue pair that is no peer's any more.
    fn drop_stray(&mut self, done: WorkCompletion) {
        if matches!(done.operation, Operation::Recv | Operation::RecvRdmaWithImm) {
            let (lane, _) = lane_and_slot(done.wr_id);
            self.core.give_receive_vbuf(lane, done.buffer);
        }
    }

    fn on_failure(&mut self, id: PeerId, lane: usize, done: WorkCompletion) {
        let status = done.status;
        let Self { core, services, peers, .. } = self;
        let peer = peers.get_mut(id);
        match done.operation {
            Operation::Recv | Operation::RecvRdmaWithImm => {
                if let Some(lane) = peer.and_then(|peer| peer.lanes.get_mut(lane)) {
                    lane.posted = lane.posted.saturating_sub(1);
                }
                core.give_receive_vbuf(lane, done.buffer);
            }
            operation => {
                if let Some(peer) = peer {
                    debug_assert!((1..=SEND_QUEUE).contains(&peer.lanes[lane].in_flight.count()));
                    peer.lanes[lane].in_flight.end();
                    if matches!(operation, Operation::Send) {
                        core.send_pools[lane].give(done.buffer);
                    } else if let Some(work) = OneSidedWork::from_name(done.wr_id) {
                        RmaService::on_work_failed(core, peer, work, done.buffer);
                    } else {
                        // Of tagged messages the end of the peer ends the operation.
                        drop(services.stream.on_work_done(core, peer, done));
                    }
                }
            }
        }
        if self.peers.live_mut(id).is_some_and(|peer| peer.connection.stage().is_under_way()) {
            // The peer may have said why there is no connection.
            self.tend_wireup();
        }
        self.fail_peer(id, OpError::PeerGone { peer: id, status });
        self.wake_the_starved();
    }

    /// Work requests of a peer have ended: there is room for others, maybe other peers'.
    #[inline]
    fn after_work(&mut self, id: PeerId) {
        let Self { core, services, peers, .. } = self;
        if let Some(peer) = peers.live_mut(id) {
            go_on(core, services, peer);
        }
        if self.core.ready.starved() > 0 {
            self.wake_the_starved();
        }
    }

    /// A vbuf has been filled.
    #[inline]
    fn on_receive(&mut self, id: PeerId, lane: usize, done: WorkCompletion) {
        let Self { core, services, peers, .. } = self;
        let WorkCompletion { buffer: mut vbuf, len, .. } = done;
        let Some(peer) = peers.get_mut(id) else { return core.give_receive_vbuf(lane, vbuf) };
        if let Some(lane) = peer.lanes.get_mut(lane) {
            lane.posted = lane.posted.saturating_sub(1);
        }
        if peer.failure.is_some() {
            // It came before its sender's end, and is seen after it.
            return core.give_receive_vbuf(lane, vbuf);
        }
        vbuf.set_len(len);
        let outcome = match Header::parse(&vbuf).map(|(header, _)| header) {
            Ok(mut header) => {
                vbuf.skip_front(msg::LEN);
                if header.has_more
                    && let Err(breach) = peer.skip_taken(lane, &mut header, &mut vbuf)
                {
                    core.give_receive_vbuf(lane, vbuf);
                    return self.fail_peer(id, breach_of(id, breach));
                }
                let arrived = Arrived { lane, header, vbuf };
                if header.message == Message::Terms || !peer.connection.stage().has_terms() {
                    return self.on_terms(id, arrived);
                }
                on_message(core, services, peer, arrived)
            }
            Err(bad) => {
                core.give_receive_vbuf(lane, vbuf);
                Err(bad.into())
            }
        };
        if let Err(breach) = outcome {
            self.fail_peer(id, breach_of(id, breach));
        }
    }
}

/// A message has come from a peer whose terms are known. It is acted upon now, or when those before it have come.
#[inline]
fn on_message<L: Link>(
    core: &mut Core<L>,
    services: &mut Services,
    peer: &mut Peer,
    arrived: Arrived,
) -> Result<(), Breach> {
    match peer.admit(&arrived.header) {
        Ok(Due::Now) => {
            act(core, services, peer, arrived)?;
            while !peer.rx.reorder.is_empty()
                && let Some(next) = peer.next_in_turn()
            {
                act(core, services, peer, next)?;
            }
        }
        Ok(Due::Later) => {
            let lane = arrived.lane;
            peer.rx.reorder.push(arrived);
            // What it waits for may need a receive of the same queue, or be behind a message that does.
            core.refill_srq(lane);
        }
        Err(breach) => {
            core.give_receive_vbuf(arrived.lane, arrived.vbuf);
            return Err(breach);
        }
    }
    go_on(core, services, peer);
    Ok(())
}

/// Acts on a message whose turn has come, and posts its receive again.
#[inline]
fn act<L: Link>(core: &mut Core<L>, services: &mut Services, peer: &mut Peer, arrived: Arrived) -> Result<(), Breach> {
    let Arrived { lane, header, vbuf } = arrived;
    let costs = peer.lanes[lane].charges(&header.message);
    let (vbuf, cost) = match dispatch(core, services, peer, lane, &header, vbuf) {
        Ok(Outcome::Used(vbuf)) => (vbuf, Cost::Returned),
        Ok(Outcome::Copied(vbuf)) => (Some(vbuf), Cost::Withheld),
        Ok(Outcome::Stored) => {
            if !core.receives.pools[lane].has_one() {
                // Others are about to be made.
                let growth = core.receives.pools[lane].growth();
                core.note_growth(growth);
            }
            (None, Cost::Withheld)
        }
        Err(breach) => {
            core.receives.pools[lane].write_off();
            return Err(breach);
        }
    };
    core.repost(peer, lane, vbuf, if costs { cost } else { Cost::Nothing })
}

/// Gives a message to the service that it is for; returns what it was.
fn dispatch<L: Link>(
    core: &mut Core<L>,
    services: &mut Services,
    peer: &mut Peer,
    lane: usize,
    header: &Header,
    vbuf: Buffer,
) -> Result<Outcome, Breach> {
    match header.message {
        Message::Eager { .. } if header.has_more => return services.tag.on_coalesced(core, peer, lane, header, vbuf),
        Message::Eager { label, len, id, mode } => {
            peer.advance_sequence();
            return services.tag.on_eager(core, peer, lane, (label, len, id, mode), vbuf);
        }
        Message::Fragment { offset, id } => return services.tag.on_fragment(peer, lane, id, offset, vbuf),
        Message::RequestToSend { label, len, id, protocol, rkey, address, mode } => {
            peer.advance_sequence();
            services.tag.on_request_to_send(
                core,
                peer,
                (label, mode),
                RemotePayload { protocol, rkey, address, len, data: label.data, id },
            )?;
        }
        Message::Data { reply, offset } => services.tag.on_data(peer, reply, offset, &vbuf)?,
        Message::ClearToSend { id, reply, protocol, rkey, va, len } => {
            let cts = ClearToSend { reply, protocol, rkey, va, len: len as usize };
            services.tag.on_clear_to_send(core, peer, id, cts)?;
        }
        Message::Written { reply, len } => services.tag.on_written(core, peer, reply, len)?,
        Message::Finished { id } => services.tag.on_finished(core, peer, id)?,
        Message::Matched { id } => services.tag.on_matched(peer, id)?,
        Message::Cancel { id } => services.tag.on_cancel(core, peer, id),
        Message::Cancelled { id, is_withdrawn } => services.tag.on_cancelled(core, peer, id, is_withdrawn)?,
        Message::Credit => {}
        Message::StreamOffer => services.stream.on_offer(peer, &vbuf)?,
        Message::Active { .. }
        | Message::Put { .. }
        | Message::Get { .. }
        | Message::Atomic { .. }
        | Message::Got { .. }
        | Message::Executed { .. }
        | Message::Firehose { .. }
        | Message::FindKey { .. }
        | Message::KeyFound { .. }
        | Message::KeyGone { .. } => act_for(core, services, peer, header.message, &vbuf)?,
        Message::Terms => return Err(Breach::TermsTwice),
    }
    Ok(Outcome::Used(Some(vbuf)))
}

/// Does what a peer asks for: a handler runs, memory of this end's is read, written or changed; or a peer has done so.
#[inline]
fn act_for<L: Link>(
    core: &mut Core<L>,
    services: &mut Services,
    peer: &mut Peer,
    message: Message,
    payload: &[u8],
) -> Result<(), Breach> {
    if let Some(active) = Active::of(message) {
        if let Some((request, outcome)) = services.am.on_active(core, peer, active, payload)? {
            services.tag.requests.end(request, outcome);
        }
        return Ok(());
    }
    if peer.tx.control.len() >= ANSWERS_LIMIT {
        return Err(Breach::TooManyAnswers);
    }
    let ended = match message {
        Message::Got { offset, reply } => core.on_got(peer, (reply, offset), payload)?,
        Message::Executed { reply, value, is_denied } => core.on_executed(peer, reply, value, is_denied)?,
        Message::Firehose { get } => {
            services.rma.on_firehose(core, peer, get, payload)?;
            None
        }
        Message::FindKey { .. } | Message::KeyFound { .. } | Message::KeyGone { .. } => {
            services.rma.on_key_message(core, peer, message)?;
            None
        }
        other => return core.serve(peer, other, payload),
    };
    if let Some(ended) = ended {
        services.rma.on_transfer_end(core, peer, ended);
    }
    end_one_sided(core, services, peer.id);
    Ok(())
}

/// Ends the requests of one-sided operations that are over.
#[inline]
pub(super) fn end_one_sided<L: Link>(core: &mut Core<L>, services: &mut Services, peer: PeerId) {
    while let Some((request, outcome)) = services.rma.take_over() {
        if matches!(outcome, Err(OpError::Denied { .. } | OpError::NotPinned { .. })) {
            core.ready.note_denied(peer);
        }
        services.tag.requests.end(request, outcome);
    }
}

/// The end of a peer that broke the protocol.
pub(super) fn breach_of(peer: PeerId, breach: Breach) -> OpError {
    OpError::PeerProtocol { peer, breach }
}
