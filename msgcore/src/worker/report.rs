//! Who waits for whom, for what, since when: in words, for who looks at a job that does not move.
//!
//! A wait is reported after five seconds, and again as [`Reminder`](roci_launcher::Reminder) has it. All that a rank has
//! under way is reported when somebody asks, by SIGUSR1 to the rank or to its launcher.

use std::fmt::{self, Display, Formatter};
use std::time::Duration;

use roci_driver::link::Link;

use crate::core::peer::{Peer, PeerId};
use crate::core::request::Request;
use crate::services::tag::matching::Pattern;
use crate::services::tag::operation::TagOperation;
use crate::worker::Worker;
use crate::{Source, TagMatch};
use roci_launcher::Job;

/// Requests and peers that a report names.
const LINES: usize = 32;

/// What somebody waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Awaited<'a> {
    /// The end of a request.
    Request(Request),
    /// The end of one of several requests.
    AnyOf(&'a [Request]),
    /// The end of one of so many requests that go into the completion queue.
    Completion(usize),
    /// A message, to be looked at or claimed.
    Message(&'a Pattern),
    /// All ranks.
    Barrier,
    /// The connections of this rank.
    Connections,
    /// The end of what is under way, at the end of the worker.
    Rest,
    /// A number in a segment, which peers change.
    Change,
    /// A key that some rank is to publish.
    Key,
}

impl<L: Link> Worker<L> {
    /// Says how long somebody has waited for something, and what is known of the ranks that it depends on.
    #[cold]
    pub(crate) fn report_wait(&mut self, waited: Duration, awaited: Awaited<'_>) {
        let (what, peers) = self.describe_awaited(awaited);
        let peers: String =
            peers.into_iter().take(LINES).map(|peer| "; ".to_owned() + &self.describe_peer(peer)).collect();
        tracing::warn!("rank {} has waited {} s for {what}{peers}", self.rank, waited.as_secs());
    }

    /// Reports all that is under way, if somebody has asked for it.
    #[inline]
    pub(crate) fn report_if_asked(&mut self) {
        if self.job.as_mut().is_some_and(Job::take_report_wish) {
            self.report_all();
        }
    }

    #[cold]
    pub(crate) fn report_all(&self) {
        for line in self.report() {
            tracing::warn!("{line}");
        }
    }

    /// All that this rank has under way: its requests, receives that wait for messages, messages that wait for receives, and
    /// of each peer its connection and credits. A line each.
    pub fn report(&self) -> Vec<String> {
        let requests = self.endpoint.services.tag.requests.under_way();
        let mut lines = vec![format!(
            "rank {} of {}: {} requests under way, {} receives without a message, {} messages without a receive ({} bytes)",
            self.rank,
            self.size,
            requests.len(),
            self.endpoint.services.tag.matching.posted_len(),
            self.endpoint.services.tag.matching.unexpected_len(),
            self.endpoint.services.tag.matching.unexpected_bytes(),
        )];
        lines.extend(
            requests.iter().take(LINES).map(|&request| format!("  waits for {}", self.describe_request(request).0)),
        );
        if requests.len() > LINES {
            lines.push(format!("  and {} more", requests.len() - LINES));
        }
        let known = self.endpoint.peers.iter();
        lines.extend(known.map(|peer| format!("  {}", self.describe_peer(peer.id))));
        lines
    }

    fn describe_awaited(&mut self, awaited: Awaited<'_>) -> (String, Vec<PeerId>) {
        match awaited {
            Awaited::Request(request) => self.describe_request(request),
            Awaited::AnyOf([]) => ("nothing".to_owned(), Vec::new()),
            Awaited::AnyOf([first, others @ ..]) => {
                let (what, peers) = self.describe_request(*first);
                (if others.is_empty() { what } else { format!("{what}, or one of {} others", others.len()) }, peers)
            }
            Awaited::Completion(count) => {
                let plural = if count == 1 { "operation" } else { "operations" };
                (format!("a completion of {count} {plural}"), self.endpoint.services.tag.requests.peers().collect())
            }
            Awaited::Message(pattern) => (format!("a message {}", Shown(pattern)), self.sources(pattern)),
            Awaited::Barrier => (format!("all ranks at a barrier{}", self.absent()), Vec::new()),
            Awaited::Connections => {
                let missing = self.endpoint.peers.ids().filter(|&peer| !self.is_connected(peer)).collect();
                (format!("its connections{}", self.absent()), missing)
            }
            Awaited::Rest => {
                let busy = self.endpoint.peers.iter().filter(|peer| !self.is_quiet(peer));
                ("what is under way to arrive".to_owned(), busy.map(|peer| peer.id).collect())
            }
            Awaited::Key => ("a rank to publish a key".to_owned(), Vec::new()),
            Awaited::Change => ("a peer to change a number in its segment".to_owned(), Vec::new()),
        }
    }

    /// Which ranks the launcher misses.
    fn absent(&mut self) -> String {
        self.job.as_mut().and_then(|job| job.absent().ok()).unwrap_or_default().to_string()
    }

    /// The ranks that a message may come from, if they are few.
    fn sources(&self, pattern: &Pattern) -> Vec<PeerId> {
        match pattern.source {
            Source::Peer(peer) if peer != self.endpoint.peers.oneself() => vec![peer],
            _ => Vec::new(),
        }
    }

    /// A request, and the ranks that it depends on.
    fn describe_request(&self, request: Request) -> (String, Vec<PeerId>) {
        let Some(operation) = self.endpoint.services.tag.requests.get(request) else {
            return ("a request that is over".into(), Vec::new());
        };
        if let TagOperation::Waiting { .. } | TagOperation::Multi(_) = operation {
            let what = if matches!(operation, TagOperation::Multi(_)) { "multi-receive" } else { "receive" };
            let posted = operation.posted();
            let Some(pattern) = posted.and_then(|posted| self.endpoint.services.tag.matching.pattern_of(posted)) else {
                return (format!("a {what} that is being met"), Vec::new());
            };
            return (format!("a {what} {}", Shown(&pattern)), self.sources(&pattern));
        }
        let what = match operation {
            TagOperation::Outgoing { to, .. } => format!("a send to {to} that has not left"),
            TagOperation::Queued { to } => format!("a send to {to} that is leaving"),
            TagOperation::Unmatched { to, .. } => {
                format!("a synchronous send to {to}, which has no receive for it")
            }
            TagOperation::Withdrawing { to, .. } => format!("{to} to say whether a send can be taken back"),
            TagOperation::Asked(asked) => {
                let len = asked.payload.len();
                format!("a send of {len} bytes to {}, which has no receive for it", asked.to)
            }
            TagOperation::Exposed(exposed) => format!("{} to fetch the bytes of a send", exposed.to),
            TagOperation::Writing(out) => format!("a send to {} that is being written", out.to),
            TagOperation::Filling(filling) => {
                format!("a message from {}: {} of {} bytes have come", filling.from, filling.arrived, filling.len)
            }
            TagOperation::Fetching(fetching) => format!("a message of {} that is being fetched", fetching.from),
            TagOperation::Opened(opened) => format!("{} to write a message of {} bytes", opened.from, opened.len),
            TagOperation::Piped(pipe) => format!("{} to write a message in pieces", pipe.from),
            TagOperation::Elsewhere { peer } => {
                format!("a one-sided operation at {peer}, or its reply to an active message")
            }
            TagOperation::Waiting { .. } | TagOperation::Multi(_) | TagOperation::Ended(_) => {
                "a request that is over".to_owned()
            }
        };
        (what, operation.depends_on().into_iter().collect())
    }

    fn describe_peer(&self, id: PeerId) -> String {
        let state = match self.endpoint.peers.get(id) {
            None => "no connection was asked for".to_owned(),
            Some(Peer { failure: Some(failure), .. }) => format!("gone ({failure})"),
            Some(peer) if !peer.is_open() => format!("being connected ({:?})", peer.connection.stage()),
            Some(peer) => self.describe_connected(peer),
        };
        format!("{id}: {state}")
    }

    fn describe_connected(&self, peer: &Peer) -> String {
        let in_flight: usize = peer.lanes.iter().map(|lane| lane.in_flight.count()).sum();
        let waiting = self.endpoint.services.tag.outgoing_len(peer.id);
        let accounts = peer.lanes.iter().map(|lane| lane.credits.account()).filter(|account| account.granted > 0);
        let credits: String =
            accounts.map(|account| format!(", {} of {} credits", account.available, account.granted)).collect();
        let (transfers, replies, served) = peer.tx.transfers.counts();
        let others = peer.tx.control.len() + peer.tx.payloads.len() + transfers + served;
        let one_sided = if others + replies == 0 {
            String::new()
        } else {
            format!(", {others} one-sided and other messages wait to leave and {replies} for their answers")
        };
        format!(
            "connected, {in_flight} work requests unacknowledged, {waiting} messages wait to leave{one_sided}{credits}"
        )
    }
}

/// From whom, and under which tag.
struct Shown<'a>(&'a Pattern);

impl Display for Shown<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0.source {
            Source::Any => f.write_str("from anybody")?,
            Source::Peer(peer) => write!(f, "from {peer}")?,
        }
        match self.0.tag {
            TagMatch::Any => f.write_str(" with any tag"),
            TagMatch::Exact(tag) => write!(f, " with tag {}", tag.get()),
            TagMatch::Masked { tag, ignore } => write!(f, " with tag {:#x}, ignoring {ignore:#x}", tag.get()),
        }
    }
}
