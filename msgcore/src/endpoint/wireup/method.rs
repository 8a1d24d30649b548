//! A way to connect queue pairs with a peer's: one trait, and a file for each way.

use std::collections::VecDeque;

use roci_driver::link::Link;
use roci_driver::{CompletionQueue, Engine, PdId, QpParams, QueuePair, SharedReceiveQueue, UnconnectedQp};

use crate::core::no_connection::NoConnection;
use crate::core::peer::PeerId;

/// What a method works on.
pub(crate) struct Site<'a, L: Link> {
    pub(crate) oneself: PeerId,
    pub(crate) engine: &'a mut Engine<L>,
    pub(crate) pd: PdId,
    pub(crate) cq: CompletionQueue,
    /// Texts that are to be carried to peers, and that were carried from them.
    pub(crate) outbox: &'a mut VecDeque<(PeerId, String)>,
    pub(crate) inbox: &'a mut VecDeque<(PeerId, String)>,
    /// One for each lane: how its queue pair behaves, and the receives that it shares.
    pub(crate) lanes: &'a [LanePlan],
    /// Whether all peers are behind the first port; otherwise each has its own, in the order of slots.
    pub(crate) is_shared_port: bool,
}

/// How the queue pair of a lane is made.
#[derive(Clone, Debug)]
pub(crate) struct LanePlan {
    pub(crate) params: QpParams,
    pub(crate) srq: Option<SharedReceiveQueue>,
}

/// What has happened to attempts.
#[derive(Debug)]
pub(crate) enum MethodEvent {
    /// A peer asks. [`Method::prepare`] or [`Method::refuse`] answers.
    Asked(PeerId),
    /// The peer that serves this pair of ranks asks to be asked.
    Knocked(PeerId),
    /// A peer grants what was asked for. The endpoint posts its receives; then [`Method::confirm`].
    Granted(PeerId, Vec<QueuePair>),
    /// What was prepared is up at both ends.
    Established(PeerId),
    /// A peer refuses, or it cannot be had.
    Refused(PeerId, Refusal),
    /// A peer has ended what was connected, or was about to be, and says why.
    Gone(PeerId, String),
}

/// Why there is no connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    /// Both have asked, and the peer's own request goes on.
    Crossed,
    /// Anything else.
    Because(NoConnection),
}

/// A way to connect queue pairs. It posts nothing to them: that is for the endpoint.
pub(crate) trait Method<L: Link> {
    /// Asks a peer for a connection.
    fn ask(&mut self, site: &mut Site<'_, L>, peer: PeerId) -> Result<(), NoConnection>;

    /// Makes the queue pairs that a peer has asked for. The endpoint posts its receives; then [`Method::accept`].
    fn prepare(&mut self, site: &mut Site<'_, L>, peer: PeerId) -> Result<Vec<QueuePair>, NoConnection>;

    /// Grants what was prepared. `true` where that makes it established at once.
    fn accept(&mut self, site: &mut Site<'_, L>, peer: PeerId) -> Result<bool, NoConnection>;

    /// Opens what was granted.
    fn confirm(&mut self, site: &mut Site<'_, L>, peer: PeerId) -> Result<(), NoConnection>;

    /// Refuses what a peer has asked for.
    fn refuse(&mut self, site: &mut Site<'_, L>, peer: PeerId, why: &Refusal);

    /// Asks a peer to ask.
    fn knock(&mut self, site: &mut Site<'_, L>, peer: PeerId) -> Result<(), NoConnection>;

    /// Gives up an attempt of ours, or what is left of one.
    fn forget(&mut self, site: &mut Site<'_, L>, peer: PeerId);

    /// Notifies a peer that its connection has been given up, as far as that goes: without it that end might wait for ever.
    fn part(&mut self, site: &mut Site<'_, L>, peer: PeerId, why: &str);

    /// The next event.
    fn poll(&mut self, site: &mut Site<'_, L>) -> Result<Option<MethodEvent>, NoConnection>;
}

impl<L: Link> Site<'_, L> {
    /// The port behind which a peer is.
    pub(crate) fn port_of(&self, peer: PeerId) -> usize {
        if self.is_shared_port { 0 } else { peer.slot() - usize::from(peer > self.oneself) }
    }

    /// A queue pair for a lane to a peer.
    pub(crate) fn create_qp(&mut self, peer: PeerId, lane: usize) -> Result<UnconnectedQp, NoConnection> {
        let port = self.port_of(peer);
        let mut qp = self.engine.create_qp(port, self.pd, self.cq)?;
        if let Some(srq) = self.lanes[lane].srq {
            self.engine.share_receives(&mut qp, srq)?;
        }
        Ok(qp)
    }

    /// Has a text carried to a peer.
    pub(crate) fn send_mail(&mut self, peer: PeerId, text: &str) {
        self.outbox.push_back((peer, text.to_owned()));
    }
}
