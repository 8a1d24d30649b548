//! Clear to send: the terms that each end tells the other first, and what becomes of terms that do not fit.

use arrayvec::ArrayVec;
use roci_driver::QueuePair;
use roci_driver::link::Link;
use roci_protocol::msg::{self, Capabilities, ClearToSend, Header, MAX_QUEUES, Message, QueueTerms};

use super::Misfit;
use super::stage::{Stage, Step};
use crate::Rank;
use crate::core::credit::{Credits, Rule};
use crate::core::peer::{Endpoint, Lane};
use crate::core::rx::{Arrived, protocol_error};
use crate::receive_queues::{Kind, ReceiveQueues};
use crate::services::tag::request::OpError;
use crate::worker::Worker;

/// Polls after which an acknowledgement of ours has left for certain.
const PARTING_POLLS: u32 = 16;

impl<L: Link> Worker<L> {
    /// The queue pairs are up at both ends: our terms go out.
    pub(super) fn greet(&mut self, peer: Rank) {
        let Some(endpoint) = self.endpoint(peer).filter(|endpoint| !endpoint.lanes.is_empty()) else { return };
        endpoint.owes_greeting = true;
        self.step(peer, Step::Up);
        self.send_greeting(peer);
    }

    /// Sends our terms, or does so later where all vbufs are on their way to others.
    pub(crate) fn send_greeting(&mut self, peer: Rank) {
        if !self.has_room(peer, 0, 1, true) {
            return;
        }
        let Some(endpoint) = self.endpoint(peer) else { return };
        endpoint.owes_greeting = false;
        let missing = endpoint.lanes.iter_mut().map(|lane| lane.credits.missing()).collect();
        let mut bytes = [0; ClearToSend::LEN];
        terms(self.rank, self.rules.ours, &self.queues, missing).emit(&mut bytes);
        self.post_vbuf(peer, 0, Header::new(Message::ClearToSend), &bytes);
    }

    /// A vbuf has left for a peer: the first one is our clear-to-send.
    #[inline]
    pub(crate) fn on_greeting_sent(&mut self, peer: Rank) {
        let waits = |endpoint: &mut Endpoint| matches!(endpoint.stage, Stage::Greeting | Stage::Welcomed);
        if self.endpoint(peer).is_some_and(waits) {
            self.step(peer, Step::Sent);
        }
    }

    /// The first message of a peer must be its terms.
    pub(crate) fn on_clear_to_send(&mut self, peer: Rank, arrived: Arrived) {
        let Arrived { lane, header, vbuf } = arrived;
        if self.endpoint(peer).is_some_and(|endpoint| endpoint.stage.has_terms()) {
            self.give_receive_vbuf(lane, vbuf);
            return self.fail_peer(peer, protocol_error(peer, "it told its terms twice".into()));
        }
        let verdict = match header.message {
            Message::ClearToSend if lane > 0 => Err("its terms came over another lane".into()),
            Message::ClearToSend => self.judge_terms(peer, &vbuf),
            _ => Err("its first message is not its terms".into()),
        };
        // The small receive is not posted again, nor is one that terms have no right to.
        self.give_receive_vbuf(lane, vbuf);
        match verdict {
            Ok(()) => self.step(peer, Step::Terms),
            Err(what) => self.part(peer, what),
        }
        self.go_on(peer);
    }

    /// The terms of a peer do not fit. It finds that out by ours, and they must reach it first; or by itself, and then it
    /// must hear that its own have arrived.
    fn part(&mut self, peer: Rank, what: String) {
        let since = self.calls;
        if let Some(endpoint) = self.endpoint(peer) {
            endpoint.misfit.get_or_insert(Misfit { what, since });
        }
    }

    /// Peers whose terms do not fit are given up once they can know it.
    pub(super) fn part_from_misfits(&mut self) {
        let calls = self.calls;
        let is_told = |endpoint: &Endpoint| {
            let polls = endpoint.misfit.as_ref().map(|misfit| calls.wrapping_sub(misfit.since));
            endpoint.stage == Stage::Greeted && polls.is_some_and(|polls| polls > PARTING_POLLS)
        };
        let peers = self.wireup.under_way.keys().copied();
        let told = |peer: &Rank| self.endpoints[*peer].as_deref().is_some_and(is_told);
        for peer in peers.filter(told).collect::<Vec<_>>() {
            // What is noted says why.
            self.fail_peer(peer, OpError::NobodyLeft);
        }
    }

    fn judge_terms(&mut self, peer: Rank, bytes: &[u8]) -> Result<(), String> {
        let terms = ClearToSend::parse(bytes).map_err(|bad| bad.to_string())?;
        if terms.rank as Rank != peer {
            return Err(format!("it says that it is rank {}", terms.rank));
        }
        if let Some(why) = mismatch(&self.queues, &terms) {
            return Err(why);
        }
        // One is for control messages alone: nothing else would ever leave.
        if terms.queues.iter().any(|queue| !queue.is_shared && queue.credits < 2) {
            return Err("it grants too few credits to send anything".into());
        }
        let (queues, notify, preserve) = (self.queues.clone(), self.notify, self.preserve);
        let Some(endpoint) = self.endpoint(peer).filter(|endpoint| !endpoint.stage.has_terms()) else {
            return Err("it told its terms twice".into());
        };
        endpoint.capabilities = terms.capabilities;
        for ((lane, theirs), ours) in endpoint.lanes.iter_mut().zip(&terms.queues).zip(&queues) {
            let rule = Rule::of(ours.kind, theirs.reserve.into(), notify, preserve);
            lane.credits.open(theirs.credits, theirs.missing, rule);
        }
        Ok(())
    }
}

impl Lane {
    pub(super) fn new(qp: QueuePair, queue: &crate::receive_queues::ReceiveQueue) -> Self {
        Self {
            qp,
            credits: Credits::new(queue.kind.granted()),
            is_shared: matches!(queue.kind, Kind::Shared { .. }),
            payload: queue.size - msg::LEN,
            in_flight: 0,
            posted: 0,
            unposted: Vec::new(),
            missing: 0,
            series: None,
        }
    }
}

/// What we tell a peer first; of the credits of each queue so many have no receive yet.
fn terms(
    rank: Rank,
    capabilities: Capabilities,
    queues: &ReceiveQueues,
    missing: ArrayVec<u16, MAX_QUEUES>,
) -> ClearToSend {
    let of_queue = |(queue, missing): (&crate::receive_queues::ReceiveQueue, u16)| {
        let (is_shared, reserve) = match queue.kind {
            Kind::PerPeer { reserve, .. } => (false, reserve.min(255) as u8),
            Kind::Shared { .. } => (true, 0),
        };
        QueueTerms { is_shared, credits: queue.kind.granted(), missing, reserve, size: queue.size as u32 }
    };
    ClearToSend { rank: rank as u32, capabilities, queues: queues.iter().zip(missing).map(of_queue).collect() }
}

/// Why our queues and a peer's do not fit; `None` where they do. Counts may differ.
fn mismatch(ours: &ReceiveQueues, theirs: &ClearToSend) -> Option<String> {
    if ours.len() != theirs.queues.len() {
        return Some(format!("{} receive queues here, {} at the peer", ours.len(), theirs.queues.len()));
    }
    let mut both = (1..).zip(ours.iter().zip(&theirs.queues));
    both.find_map(|(number, (ours, theirs))| {
        let is_shared = matches!(ours.kind, Kind::Shared { .. });
        let name = |is_shared| if is_shared { "shared" } else { "per peer" };
        if is_shared != theirs.is_shared {
            let (ours, theirs) = (name(is_shared), name(theirs.is_shared));
            return Some(format!("receive queue {number} is {ours} here and {theirs} at the peer"));
        }
        let differs = ours.size != theirs.size as usize;
        let (ours, theirs) = (ours.size, theirs.size);
        differs.then(|| format!("receive queue {number} has buffers of {ours} bytes here and of {theirs} at the peer"))
    })
}
