//! A way to connect queue pairs with a peer's: one trait, and a file for each way.

use roci_driver::link::Link;
use roci_driver::{CompletionQueue, Engine, PdId, QpParams, QueuePair, SharedReceiveQueue, UnconnectedQp};

use crate::Rank;
use roci_launcher::Mail;

/// What a method works on.
pub(crate) struct Site<'a, L: Link> {
    pub(crate) rank: Rank,
    pub(crate) engine: &'a mut Engine<L>,
    pub(crate) pd: PdId,
    pub(crate) cq: CompletionQueue,
    pub(crate) mail: Option<&'a mut dyn Mail>,
    /// One for each lane: how its queue pair behaves, and the receives that it shares.
    pub(crate) lanes: &'a [LanePlan],
    /// Whether all peers are behind the first port; otherwise each has its own, in the order of ranks.
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
    Asked(Rank),
    /// The peer that serves this pair of ranks asks to be asked.
    Knocked(Rank),
    /// A peer grants what was asked for. The endpoint posts its receives; then [`Method::confirm`].
    Granted(Rank, Vec<QueuePair>),
    /// What was prepared is up at both ends.
    Established(Rank),
    /// A peer refuses, or it cannot be had.
    Refused(Rank, Refusal),
    /// A peer has ended what was connected, or was about to be, and says why.
    Gone(Rank, String),
}

/// Why there is no connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    /// Both have asked, and the peer's own request goes on.
    Crossed,
    /// Anything else.
    Because(String),
}

/// A way to connect queue pairs. It posts nothing to them: that is for the endpoint.
pub(crate) trait Method<L: Link> {
    /// Asks a peer for a connection.
    fn ask(&mut self, site: &mut Site<'_, L>, peer: Rank) -> Result<(), String>;

    /// Makes the queue pairs that a peer has asked for. The endpoint posts its receives; then [`Method::accept`].
    fn prepare(&mut self, site: &mut Site<'_, L>, peer: Rank) -> Result<Vec<QueuePair>, String>;

    /// Grants what was prepared. `true` where that makes it established at once.
    fn accept(&mut self, site: &mut Site<'_, L>, peer: Rank) -> Result<bool, String>;

    /// Opens what was granted.
    fn confirm(&mut self, site: &mut Site<'_, L>, peer: Rank) -> Result<(), String>;

    /// Refuses what a peer has asked for.
    fn refuse(&mut self, site: &mut Site<'_, L>, peer: Rank, why: &Refusal);

    /// Asks a peer to ask.
    fn knock(&mut self, site: &mut Site<'_, L>, peer: Rank) -> Result<(), String>;

    /// Gives up an attempt of ours, or what is left of one.
    fn forget(&mut self, site: &mut Site<'_, L>, peer: Rank);

    /// Tells a peer that its connection has been given up, as far as that goes: without it that end might wait for ever.
    fn part(&mut self, site: &mut Site<'_, L>, peer: Rank, why: &str);

    /// The next event.
    fn poll(&mut self, site: &mut Site<'_, L>) -> Result<Option<MethodEvent>, String>;
}

impl<L: Link> Site<'_, L> {
    /// The port behind which a peer is.
    pub(crate) fn port_of(&self, peer: Rank) -> usize {
        if self.is_shared_port { 0 } else { peer - usize::from(peer > self.rank) }
    }

    /// A queue pair for a lane to a peer.
    pub(crate) fn create_qp(&mut self, peer: Rank, lane: usize) -> Result<UnconnectedQp, String> {
        let port = self.port_of(peer);
        let mut qp = self.engine.create_qp(port, self.pd, self.cq).map_err(|error| error.to_string())?;
        match self.lanes[lane].srq {
            Some(srq) => self.engine.share_receives(&mut qp, srq).map(|()| qp).map_err(|error| error.to_string()),
            None => Ok(qp),
        }
    }

    /// Sends mail, where there is any.
    pub(crate) fn send_mail(&mut self, peer: Rank, text: &str) -> Result<(), String> {
        match self.mail.as_mut() {
            Some(mail) => mail.send(peer, text).map_err(|error| error.to_string()),
            None => Err("there is no launcher that carries mail".into()),
        }
    }
}
