//! A way to connect queue pairs with a peer's: one trait, and a file for each way.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::time::Duration;

use roci_driver::link::Link;
use roci_driver::{CompletionQueue, Engine, PdId, QpParams, QueuePair, SharedReceiveQueue, UnconnectedQp};

use crate::core::no_connection::NoConnection;
use crate::core::peer::PeerId;
use crate::core::peers::Peers;
use crate::core::stage::Stage;
use crate::endpoint::address::EndpointAddress;
use crate::endpoint::address_book::{AddressBook, PeerSession};
use crate::endpoint::locality::AttachedPorts;

/// Texts that wait for an application to carry them. The connections of others fail when they have taken too long.
const TEXT_LIMIT: usize = 1 << 14;

/// What a method works on.
pub(crate) struct Site<'a, L: Link> {
    pub(crate) peers: &'a mut Peers,
    pub(crate) book: &'a mut AddressBook,
    pub(crate) arrivals: &'a mut Arrivals,
    pub(crate) engine: &'a mut Engine<L>,
    pub(crate) pd: PdId,
    pub(crate) cq: CompletionQueue,
    pub(crate) texts: &'a mut Texts,
    /// One for each lane: how its queue pair behaves, and the receives that it shares.
    pub(crate) lanes: &'a [LanePlan],
    /// Whether all peers are behind the first port; otherwise each has its own, in the order of slots.
    pub(crate) is_shared_port: bool,
    /// The ports of those peers that have one of their own beside it.
    pub(crate) attached: &'a AttachedPorts,
    /// How long a peer may take to answer: it may compute.
    pub(crate) patience: Duration,
}

/// Texts of connections that are being made.
#[derive(Debug, Default)]
pub(crate) struct Texts {
    /// Those that are to be carried to peers.
    pub(crate) outbox: VecDeque<OutgoingText>,
    /// Those that were carried from them.
    pub(crate) inbox: VecDeque<(PeerId, String)>,
}

/// A text that is to be carried.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct OutgoingText {
    pub(crate) to: PeerId,
    /// Where that was when it was written, and the session with it.
    pub(crate) address: EndpointAddress,
    pub(crate) session: PeerSession,
    pub(crate) text: String,
}

/// Who has come while a method was at work.
#[derive(Debug)]
pub(crate) struct Arrivals {
    /// Peers that may come by themselves and not be inserted.
    pub(crate) limit: usize,
    /// Those that have.
    pub(crate) admitted: Vec<PeerId>,
    /// Peers in whose place another endpoint is now.
    pub(crate) replaced: Vec<PeerId>,
}

/// Whom a peer means: the endpoint of an incarnation, in a session of the two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Meant {
    pub(crate) incarnation: u64,
    /// As the peer knows it.
    pub(crate) session: PeerSession,
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
    Asked(PeerId, AskedOver),
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

/// Which port a peer asks over, and will be behind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AskedOver {
    /// The one that the configuration names.
    Network,
    /// The one between this end and the peer alone.
    Local,
}

/// Why there is no connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    /// Both have asked, and the peer's own request goes on.
    Crossed,
    /// It was asked for over a local port that the peer does not have.
    NoLocalPort,
    /// Anything else.
    Because(NoConnection),
}

impl From<NoConnection> for Refusal {
    fn from(why: NoConnection) -> Self {
        Self::Because(why)
    }
}

/// A way to connect queue pairs. It posts nothing to them: that is for the endpoint.
pub(crate) trait Method<L: Link>: Send {
    /// Asks a peer for a connection.
    fn ask(&mut self, site: &mut Site<'_, L>, peer: PeerId) -> Result<(), NoConnection>;

    /// Makes the queue pairs that a peer has asked for. The endpoint posts its receives; then [`Method::accept`].
    fn prepare(&mut self, site: &mut Site<'_, L>, peer: PeerId) -> Result<Vec<QueuePair>, NoConnection>;

    /// Grants what was prepared. It is established once the peer has opened it, too.
    fn accept(&mut self, site: &mut Site<'_, L>, peer: PeerId) -> Result<(), NoConnection>;

    /// Whether the peer's terms are what says that it has opened what was granted; else [`MethodEvent::Established`] does.
    fn is_established_by_terms(&self) -> bool;

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

    /// Lets no peer ask any more, and ends what it has of the engine.
    fn close(&mut self, engine: &mut Engine<L>);

    /// The next event.
    fn poll(&mut self, site: &mut Site<'_, L>) -> Result<Option<MethodEvent>, NoConnection>;
}

impl<L: Link> Site<'_, L> {
    /// The port behind which a peer is.
    pub(crate) fn port_of(&self, peer: PeerId) -> usize {
        match self.attached.port_of(peer) {
            Some(port) => port,
            None if self.is_shared_port => 0,
            None => peer.slot() - usize::from(peer > self.peers.oneself()),
        }
    }

    /// How long a peer may take to answer a request. Over a port between two ends alone, one that does not answer soon has given the port
    /// up.
    pub(crate) fn patience_over(&self, is_local: bool) -> Duration {
        if is_local { Duration::ZERO } else { self.patience }
    }

    /// Whether peers of this end may ask over a port: it is not the local port of another endpoint of the domain.
    ///
    /// # Errors
    /// It is.
    pub(crate) fn check_port(&self, port: usize) -> Result<(), NoConnection> {
        let is_anothers = self.is_shared_port && port != 0 && self.attached.peer_behind(port).is_none();
        if is_anothers { Err(NoConnection::NoRank) } else { Ok(()) }
    }

    /// Returns the peer that asks from an address for this end, which it takes for the endpoint of such an incarnation.
    /// It is one that was not known before where strangers may come: who comes from the address of a peer that has failed is
    /// another peer, and so is one that has removed this end and begins anew.
    ///
    /// # Errors
    /// It may not ask.
    pub(crate) fn identify(&mut self, from: EndpointAddress, meant: Meant) -> Result<PeerId, NoConnection> {
        let own = self.book.own();
        if meant.incarnation != own.incarnation {
            return Err(NoConnection::Replaced);
        }
        let may_come = self.peers.may_strangers_come();
        match self.book.at(from.place()) {
            Some((id, _)) if id == self.peers.oneself() => Err(NoConnection::NoRank),
            Some((id, _)) if !may_come => Ok(id),
            _ if !may_come => Err(NoConnection::NoRank),
            _ if from.place() == own.place() => Err(NoConnection::Anonymous),
            Some((id, address)) => {
                let is_gone = self.peers.get(id).is_none_or(|peer| peer.failure.is_some());
                if address.incarnation == from.incarnation && !is_gone {
                    match self.book.check_session(id, meant.session) {
                        Ordering::Equal => return Ok(id),
                        Ordering::Less => return Err(NoConnection::Gone),
                        // There is nothing of the session before that would have to end.
                        Ordering::Greater if self.is_unconnected(id) => {
                            self.book.note_session(id, meant.session.ours);
                            return Ok(id);
                        }
                        Ordering::Greater => {}
                    }
                }
                // It is over, whether there is room for what comes or not.
                self.arrivals.replaced.extend((!is_gone).then_some(id));
                self.admit(from, meant.session)
            }
            None => self.admit(from, meant.session),
        }
    }

    /// Whether there is nothing between a peer and this end but what the one or the other may have asked for.
    fn is_unconnected(&self, id: PeerId) -> bool {
        self.peers.get(id).is_none_or(|peer| peer.connection.stage() <= Stage::Asking)
    }

    /// Makes an entry for a peer that comes by itself.
    fn admit(&mut self, from: EndpointAddress, session: PeerSession) -> Result<PeerId, NoConnection> {
        if self.book.unknown() >= self.arrivals.limit {
            return Err(NoConnection::TooManyUnknown(self.arrivals.limit));
        }
        if let Some((before, _)) = self.book.at(from.place()) {
            self.book.vacate(before);
        }
        let id = self.peers.add();
        self.book.insert(id, from, false);
        self.book.check_session(id, PeerSession { theirs: 0, ..session });
        self.arrivals.admitted.push(id);
        Ok(id)
    }

    /// A queue pair for a lane to a peer.
    pub(crate) fn create_qp(&mut self, peer: PeerId, lane: usize) -> Result<UnconnectedQp, NoConnection> {
        let port = self.port_of(peer);
        let mut qp = self.engine.create_qp(port, self.pd, self.cq)?;
        if let Some(to) = self.book.address(peer) {
            self.engine.fit_path(&mut qp, to.ip);
        }
        if let Some(srq) = self.lanes[lane].srq {
            self.engine.share_receives(&mut qp, srq)?;
        }
        Ok(qp)
    }

    /// Has a text carried to a peer.
    pub(crate) fn send_mail(&mut self, peer: PeerId, text: &str) {
        // Who is not named any more has an address until it has been notified.
        let is_carried = !self.peers.may_strangers_come() || self.texts.outbox.len() < TEXT_LIMIT;
        if let Some(address) = self.book.address(peer).filter(|_| is_carried) {
            let session = self.book.session(peer);
            self.texts.outbox.push_back(OutgoingText { to: peer, address, session, text: text.to_owned() });
        }
    }
}
