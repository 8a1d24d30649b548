//! Messages that a probe has claimed (`MPI_Mprobe`): no receive but their own takes them. Each is charged to the memory of
//! unexpected messages until it is received; where the application drops it instead, it is discarded.

use std::sync::{Arc, Weak};

use hashbrown::HashMap;
use roci_driver::link::Link;

use super::TagService;
use super::matching::MatchLabel;
use super::receive::Met;
use super::stored::{OVERHEAD, UnexpectedBody};
use crate::core::Core;
use crate::core::completion::Envelope;

/// A message that a probe has claimed: no receive but [`recv_message`](crate::Worker::recv_message) takes it (`MPI_Message`).
/// One that is dropped is discarded: its memory is free again soon, and its sender's operation ends as if it had been received.
#[derive(Debug)]
#[must_use = "a message that was claimed is discarded where it is dropped"]
pub struct ClaimedMessage(Arc<HeldClaim>);

/// What the application holds of a claimed message. The worker sees when it goes.
#[derive(Debug)]
struct HeldClaim {
    number: u64,
    envelope: Envelope,
    /// Shared by all claims of one worker.
    home: Arc<()>,
}

/// Names the worker that has claimed messages.
#[derive(Clone, Debug)]
pub(crate) struct ClaimHome(Weak<()>);

/// The messages that are claimed and not received.
#[derive(Default)]
pub(crate) struct Claims {
    /// Held here, and by each message that the application holds.
    home: Arc<()>,
    open: HashMap<u64, OpenClaim>,
    /// What the messages cost together.
    bytes: usize,
    made: u64,
}

struct OpenClaim {
    label: MatchLabel,
    body: UnexpectedBody,
    held: Weak<HeldClaim>,
}

impl PartialEq for ClaimedMessage {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for ClaimedMessage {}

impl ClaimedMessage {
    /// What it says of itself.
    pub fn envelope(&self) -> Envelope {
        self.0.envelope
    }
}

impl ClaimHome {
    /// Whether a message was claimed by this worker.
    pub(crate) fn is_of(&self, message: &ClaimedMessage) -> bool {
        std::ptr::eq(self.0.as_ptr(), Arc::as_ptr(&message.0.home))
    }
}

impl Claims {
    /// Returns what names this worker.
    pub(crate) fn home(&self) -> ClaimHome {
        ClaimHome(Arc::downgrade(&self.home))
    }

    /// How many messages are claimed.
    pub(crate) fn len(&self) -> usize {
        self.open.len()
    }

    /// Returns the memory that they take.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Claims a message.
    pub(super) fn claim(&mut self, met: Met) -> ClaimedMessage {
        let claim = Arc::new(HeldClaim { number: self.made, envelope: met.envelope(), home: self.home.clone() });
        let Met { label, body } = met;
        self.made += 1;
        self.bytes += cost(&body);
        self.open.insert(claim.number, OpenClaim { label, body, held: Arc::downgrade(&claim) });
        ClaimedMessage(claim)
    }

    /// Takes a message that is to be received, where it was claimed here.
    pub(super) fn take(&mut self, message: &ClaimedMessage) -> Option<Met> {
        if Arc::ptr_eq(&self.home, &message.0.home) { self.remove(message.0.number) } else { None }
    }

    /// Whether the application has dropped a message.
    pub(crate) fn is_any_dropped(&self) -> bool {
        Arc::strong_count(&self.home) <= self.open.len()
    }

    /// Takes the messages that the application has dropped.
    pub(crate) fn take_dropped(&mut self) -> Vec<Met> {
        let dropped = self.open.iter().filter(|(_, open)| open.held.strong_count() == 0);
        let mut dropped: Vec<_> = dropped.map(|(&claim, _)| claim).collect();
        // The table's order is chance, and every simulation replays.
        dropped.sort_unstable();
        dropped.into_iter().filter_map(|claim| self.remove(claim)).collect()
    }

    fn take_all(&mut self) -> Vec<Met> {
        let mut all: Vec<_> = self.open.keys().copied().collect();
        all.sort_unstable();
        all.into_iter().filter_map(|claim| self.remove(claim)).collect()
    }

    fn remove(&mut self, claim: u64) -> Option<Met> {
        let OpenClaim { label, body, .. } = self.open.remove(&claim)?;
        assert!(cost(&body) <= self.bytes, "what is given back was charged");
        self.bytes -= cost(&body);
        Some(Met { label, body })
    }
}

impl TagService {
    /// Claims a message that was met by a probe.
    pub(crate) fn claim<L: Link>(&mut self, core: &mut Core<L>, met: Met) -> ClaimedMessage {
        let message = self.claims.claim(met);
        self.note_less_stored(core);
        message
    }

    /// Discards all that is claimed, of peers that are gone.
    pub(crate) fn discard_claims<L: Link>(&mut self, core: &mut Core<L>) {
        for met in self.claims.take_all() {
            self.discard(core, None, met);
        }
    }

    /// Takes a message that was claimed, if it is one of this service's.
    pub(crate) fn take_claimed(&mut self, message: &ClaimedMessage) -> Option<Met> {
        self.claims.take(message)
    }
}

fn cost(body: &UnexpectedBody) -> usize {
    OVERHEAD + body.cost()
}
