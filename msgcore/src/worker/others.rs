//! The other endpoints of a worker's domain: what is done for them while the application uses one.

use std::collections::VecDeque;
use std::mem;

use roci_driver::link::Link;

use super::Worker;
use crate::endpoint::address::EndpointAddress;
use crate::endpoint::parked::ParkedEndpoint;
use crate::published::StatsWriter;

/// The name of an endpoint in its domain. No other endpoint ever has it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EndpointId(u32);

impl EndpointId {
    /// The endpoint that a domain begins with.
    pub(super) const FIRST: Self = Self(0);

    /// The endpoint before which so many were opened.
    pub(super) const fn opened_after(others: u32) -> Self {
        Self(others)
    }
}

/// An endpoint of a domain that is not the one at hand.
pub(super) struct OtherEndpoint<L: Link> {
    pub(super) id: EndpointId,
    pub(super) state: ParkedEndpoint<L>,
    pub(super) published: Option<Box<StatsWriter>>,
}

/// The other endpoints of a worker's domain.
pub(super) struct Others<L: Link> {
    /// The name of the one at hand.
    pub(super) at_hand: EndpointId,
    pub(super) parked: Vec<OtherEndpoint<L>>,
    /// Texts of endpoints that are closed, which the application has yet to carry.
    pub(super) farewells: VecDeque<(EndpointAddress, String)>,
}

impl<L: Link> Default for Others<L> {
    fn default() -> Self {
        Self { at_hand: EndpointId::FIRST, parked: Vec::new(), farewells: VecDeque::new() }
    }
}

impl<L: Link> Worker<L> {
    /// Takes another endpoint in hand in place of the one that was.
    pub(super) fn exchange(&mut self, other: &mut OtherEndpoint<L>) {
        self.endpoint.exchange(&mut other.state);
        mem::swap(&mut self.published, &mut other.published);
    }

    /// Makes progress for the other endpoints: for each that has something to do, and at a look around for all.
    #[inline(never)]
    pub(super) fn progress_others(&mut self, is_look: bool) -> bool {
        let mut happened = false;
        let is_due =
            |worker: &Self, other: &OtherEndpoint<L>| is_look || other.state.is_due(&worker.endpoint.core.engine);
        self.for_others(is_due, |worker| {
            happened |= worker.endpoint.progress();
            if is_look || worker.endpoint.wireup.is_urgent() {
                happened |= worker.look_around(!happened);
            }
        });
        happened
    }

    /// Looks at the peers of the other endpoints.
    pub(super) fn look_at_others(&mut self) {
        self.for_others(
            |_, _| true,
            |worker| {
                worker.look_at_peers(true);
            },
        );
    }

    /// Memory was withdrawn that all endpoints had exposed under a key.
    pub(super) fn announce_withdrawn(&mut self, key: u64) {
        self.endpoint.announce_withdrawn(key);
        self.for_others(|_, _| true, |worker| worker.endpoint.announce_withdrawn(key));
    }

    /// Does something with each of the others that is due, which is at hand meanwhile, and has no others itself.
    fn for_others(&mut self, is_due: impl Fn(&Self, &OtherEndpoint<L>) -> bool, mut action: impl FnMut(&mut Self)) {
        let mut parked = mem::take(&mut self.others.parked);
        for other in &mut parked {
            if is_due(self, other) {
                self.exchange(other);
                action(self);
                self.exchange(other);
            }
        }
        debug_assert!(self.others.parked.is_empty(), "an endpoint is opened by the application");
        self.others.parked = parked;
    }
}
