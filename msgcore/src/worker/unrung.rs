//! Sends that are over and have not left: their doorbell waits for company.
//!
//! A short send is over as soon as it is copied, and an application that sees this may compute next. So the doorbell rings when it
//! asks for one of these, and not when it asks for an earlier one, as a program does that keeps a window of sends open.

use roci_driver::link::Link;

use super::Worker;
use crate::core::request::Request;
use crate::endpoint::Endpoint;

/// So many sends wait at most.
const MOST: usize = 32;

/// The names of sends since all that was sent left for the last time.
#[derive(Default)]
pub(super) struct UnrungSends {
    names: Vec<Request>,
    departures: u64,
}

impl<L: Link> Worker<L> {
    /// Has what was sent before leave now: for who computes next, and neither makes progress nor waits nor asks how the last of the
    /// sends has ended.
    ///
    /// The first short message since a call that makes progress leaves at once. Those behind it leave together, when they fill a packet,
    /// or with the next such call: that is several times as fast.
    #[inline]
    pub fn ring_doorbell(&mut self) {
        let Endpoint { core, peers, .. } = &mut self.endpoint;
        core.ring_doorbell(peers);
    }

    /// A send has begun.
    #[inline]
    pub(super) fn note_send(&mut self, request: Request) {
        let core = &self.endpoint.core;
        if !core.awaits_doorbell() {
            return;
        }
        let UnrungSends { names, departures } = &mut self.unrung;
        if *departures != core.departures() {
            *departures = core.departures();
            names.clear();
        }
        // Sends that wait for something else are among them.
        names.push(request);
        if names.len() == MOST {
            self.ring_doorbell();
        }
    }

    /// The application is about to see that an operation is over.
    #[inline]
    pub(super) fn ring_for(&mut self, request: Request) {
        let core = &self.endpoint.core;
        let UnrungSends { names, departures } = &self.unrung;
        if core.awaits_doorbell() && *departures == core.departures() && names.contains(&request) {
            self.ring_doorbell();
        }
    }
}
