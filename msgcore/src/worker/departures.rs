//! Ranks whose processes have ended, failed or not, as the launcher reports it: not every link shows that, least of all the end of a rank
//! whose work was done.

use std::collections::BTreeMap;

use roci_driver::link::Link;
use roci_protocol::Nanos;

use crate::core::completion::OpError;
use crate::core::request::Request;
use crate::services::tag::TagService;
use crate::services::tag::operation::TagOperation;
use crate::services::tag::requests::Requests;
use crate::worker::Worker;
use crate::{Rank, Source};
use roci_launcher::Job;

/// What a rank has sent before its end comes first, and its connection or the launcher may know better why it has ended.
const GRACE: Nanos = 250_000_000;
/// The same where something comes all the time, which may be of others.
const GRACE_MAX: Nanos = 1_000_000_000;

/// What the launcher has reported of ranks that have gone.
#[derive(Debug, Default)]
pub(crate) struct Departures {
    /// Those that are to be taken for gone, why, and since when that is known.
    pending: BTreeMap<Rank, (String, Nanos)>,
    /// Why the first one failed that did.
    failure: Option<String>,
    /// The launcher has gone.
    is_orphan: bool,
}

impl<L: Link> Worker<L> {
    /// Gives up the ranks that have gone, once nothing comes any more.
    pub(crate) fn part_from_departed(&mut self, is_quiet: bool) {
        let now = self.endpoint.core.engine.now();
        while let Some(departure) = self.job.as_mut().and_then(Job::take_departure) {
            let (rank, why) = (departure.rank, departure.why);
            if departure.is_ill {
                self.departures.failure.get_or_insert_with(|| why.clone());
            }
            // What is said last knows most.
            self.departures.pending.entry(rank).or_insert_with(|| (String::new(), now)).0 = why;
        }
        if self.departures.pending.is_empty() {
            return;
        }
        let grace = if is_quiet { GRACE } else { GRACE_MAX };
        let is_due = |_: &Rank, (_, since): &mut (String, Nanos)| *since + grace <= now;
        for (rank, (why, _)) in self.departures.pending.extract_if(.., is_due).collect::<Vec<_>>() {
            // Receives may wait for it though it was never spoken to.
            if rank != self.rank {
                self.endpoint.lose_peer(rank.into(), OpError::PeerLeft { peer: rank.into(), why });
            }
        }
    }

    /// Ends all that needs another rank once the launcher has gone: nothing waits for this rank, and nothing would end it.
    pub(crate) fn end_with_launcher(&mut self) {
        if self.departures.is_orphan || !self.job.as_ref().is_some_and(Job::is_over) {
            return;
        }
        let why = "the launcher is gone".to_owned();
        self.departures.is_orphan = true;
        self.departures.failure.get_or_insert_with(|| why.clone());
        for peer in self.endpoint.peers.ids().collect::<Vec<_>>() {
            self.endpoint.lose_peer(peer, OpError::Job(why.clone()));
        }
    }

    /// A receive from any rank may have waited for the one that has failed: its wait must end. And where all
    /// are gone this rank could send to itself, but not while it waits.
    pub(crate) fn check_wildcard(&self, request: Request) -> Result<(), OpError> {
        let Some(error) = self.reason_against_wildcards() else { return Ok(()) };
        let TagService { matching, requests, .. } = &self.endpoint.services.tag;
        let posted = requests.get(request).and_then(TagOperation::posted);
        let pattern = posted.and_then(|posted| matching.pattern_of(posted));
        let is_wildcard = pattern.is_some_and(|pattern| pattern.source == Source::Any);
        if is_wildcard { Err(error) } else { Ok(()) }
    }

    /// The same where one of several receives is waited for: those end.
    pub(crate) fn end_wildcards(&mut self, is_waited_for: impl Fn(&Requests, Request) -> bool) {
        let Some(error) = self.reason_against_wildcards() else { return };
        let TagService { matching, requests, .. } = &mut self.endpoint.services.tag;
        for request in matching.drain_wildcards(|request| is_waited_for(requests, request)) {
            requests.fail_receive(request, error.clone());
        }
    }

    /// Why nothing that may come from anybody is waited for any longer.
    pub(crate) fn reason_against_wildcards(&self) -> Option<OpError> {
        let failed = self.departures.failure.as_ref().map(|why| OpError::Job(format!("the job has failed: {why}")));
        failed.or_else(|| self.endpoint.peers.is_deserted().then_some(OpError::NobodyLeft))
    }
}
