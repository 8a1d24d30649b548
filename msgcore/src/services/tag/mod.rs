//! Tagged messages: what MPI's point-to-point layer needs. Small ones leave at once ([`eager`]), long ones when a receive
//! waits for them ([`rendezvous`]); [`select`] says which; [`matching`] brings receives and messages together.

pub(crate) mod cancel;
pub(crate) mod cancels;
pub(crate) mod claims;
mod coalesced;
pub(crate) mod completion_list;
pub(crate) mod eager;
pub(crate) mod inject;
pub(crate) mod kept_packets;
pub(crate) mod matching;
pub(crate) mod multi;
pub(crate) mod operation;
pub(crate) mod receive;
pub(crate) mod rendezvous;
pub(crate) mod requests;
pub mod select;
pub(crate) mod send;
pub(crate) mod send_queue;
pub(crate) mod stored;

use std::collections::BTreeMap;

use roci_driver::link::Link;

use self::claims::Claims;
use self::kept_packets::KeptPackets;
use self::matching::Matching;
use self::operation::TagOperation;
use self::rendezvous::{ProcessCopies, Staging};
use self::requests::Requests;
use self::select::Rules;
use self::send_queue::PeerSendQueue;
use self::stored::{Series, UnexpectedBody};
use crate::core::Core;
use crate::core::completion::OpError;
use crate::core::peer::PeerId;
use crate::core::request::Request;

/// The longest message: one RDMA READ fetches it.
pub(crate) const MAX_MESSAGE: usize = 1 << 31;

/// The tagged messages of one end.
pub(crate) struct TagService {
    pub(crate) matching: Matching<Request, UnexpectedBody>,
    pub(crate) requests: Requests,
    /// Eager messages whose vbufs have not all come, by sender and its name for them.
    series: BTreeMap<(PeerId, u64), Series>,
    /// Messages that have come together, and have no receive yet.
    kept_packets: KeptPackets,
    pub(crate) claims: Claims,
    staging: Staging,
    pub(crate) copies: ProcessCopies,
    pub(crate) rules: Rules,
    buffered_limit: usize,
    /// What waits to be sent, by peer.
    queues: Vec<PeerSendQueue>,
    oneself: PeerId,
}

impl TagService {
    /// A service for `count` ends, of which this is number `oneself`.
    pub(crate) fn new(
        (oneself, count): (PeerId, usize),
        requests: Requests,
        rules: Rules,
        staging: Staging,
        buffered_limit: usize,
    ) -> Self {
        Self {
            matching: Matching::default(),
            requests,
            series: BTreeMap::new(),
            kept_packets: KeptPackets::default(),
            claims: Claims::default(),
            staging,
            copies: ProcessCopies::default(),
            rules,
            buffered_limit,
            queues: (0..count).map(|_| PeerSendQueue::default()).collect(),
            oneself,
        }
    }

    /// Returns the memory that messages without a receive take, those that are claimed among them.
    #[inline]
    pub(crate) fn stored_bytes(&self) -> usize {
        self.matching.unexpected_bytes() + self.claims.bytes() + self.kept_packets.bytes()
    }

    /// Whether vbufs with several messages fit the messages in them.
    pub(crate) fn are_kept_packets_sound(&self) -> bool {
        self.kept_packets.is_sound(self.matching.unexpected_len() + self.claims.len())
    }

    /// A peer is gone: whatever needs it ends with `error`.
    pub(crate) fn on_peer_down<L: Link>(&mut self, core: &mut Core<L>, peer: PeerId, error: &OpError) {
        self.queues[peer.slot()] = PeerSendQueue::default();
        for request in self.requests.depending_on(peer) {
            self.abandon(core, request, error);
        }
        self.lose_messages(core, peer, error);
    }

    fn abandon<L: Link>(&mut self, core: &mut Core<L>, request: Request, error: &OpError) {
        match self.requests.replace(request, TagOperation::Ended(Err(error.clone()))) {
            Some(TagOperation::Exposed(exposed)) => drop(core.deregister(exposed.region)),
            Some(TagOperation::Opened(opened)) => drop(core.deregister(opened.region)),
            Some(TagOperation::Piped(pipe)) => self.abandon_pipe(core, *pipe),
            // The send was over before; only whether it could be taken back will never be known.
            Some(TagOperation::Withdrawing { done, .. }) => self.requests.end(request, Ok(done)),
            _ => {}
        }
        self.requests.settle(request);
    }

    /// Receives that wait for this peer alone end; payloads that waited with it are lost; what it sent in full stays.
    fn lose_messages<L: Link>(&mut self, core: &mut Core<L>, peer: PeerId, error: &OpError) {
        let series = &self.series;
        let is_lost = |body: &UnexpectedBody| match body {
            UnexpectedBody::Series { id, .. } => series.get(&(peer, *id)).is_none_or(|series| !series.is_complete()),
            UnexpectedBody::Remote(_) => true,
            UnexpectedBody::Whole { .. } | UnexpectedBody::Kept { .. } | UnexpectedBody::Local { .. } => false,
        };
        let orphans = self.matching.forget(peer, is_lost);
        for request in orphans {
            self.requests.fail_receive(request, error.clone());
        }
        let of_peer = self.series.range((peer, 0)..=(peer, u64::MAX));
        let lost: Vec<_> = of_peer.filter(|(_, series)| !series.is_complete()).map(|(&(_, id), _)| id).collect();
        for id in lost {
            self.discard_series(core, peer, id);
            self.series.remove(&(peer, id));
        }
        self.note_less_stored(core);
    }

    /// Whether a message that was claimed can no longer be received where its sender has gone: the rest of it went, too.
    pub(crate) fn is_lost_with_its_sender(&self, source: PeerId, body: &UnexpectedBody) -> bool {
        match body {
            UnexpectedBody::Series { id, .. } => !self.series.contains_key(&(source, *id)),
            UnexpectedBody::Remote(_) => true,
            UnexpectedBody::Whole { .. } | UnexpectedBody::Kept { .. } | UnexpectedBody::Local { .. } => false,
        }
    }

    /// Messages without a receive may take less memory than before.
    fn note_less_stored<L: Link>(&self, core: &mut Core<L>) {
        core.unexpected_budget.note_stored(self.stored_bytes());
        if core.unexpected_budget.is_withholding() {
            core.ready.note_less_stored();
        }
    }
}
