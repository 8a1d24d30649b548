//! Sends that are over and have not left: their doorbell waits for company.
//!
//! A short send is over as soon as it is copied, and an application that sees this may compute next. So the doorbell rings when it
//! asks for one of these, and not when it asks for an earlier one, as a program does that keeps a window of sends open.

use arrayvec::ArrayVec;
use roci_driver::link::Link;

use super::Worker;
use crate::core::request::Request;

/// More than the doorbell lets wait.
const MOST: usize = 16;

/// The names of sends since the doorbell rang for the `rings`th time.
#[derive(Default)]
pub(super) struct UnrungSends {
    names: ArrayVec<Request, MOST>,
    rings: u64,
}

impl<L: Link> Worker<L> {
    /// Has what was sent before leave now: for who computes next, and neither makes progress nor waits nor asks how the last of the
    /// sends has ended.
    ///
    /// The first short message since a call that makes progress leaves at once. Those behind it leave eight at a time, or with the next
    /// such call: that is several times as fast.
    #[inline]
    pub fn ring_doorbell(&mut self) {
        self.endpoint.core.engine.ring_doorbell();
    }

    /// A send has begun.
    #[inline]
    pub(super) fn note_send(&mut self, request: Request) {
        let engine = &mut self.endpoint.core.engine;
        if !engine.awaits_doorbell() {
            return;
        }
        let UnrungSends { names, rings } = &mut self.unrung;
        if *rings != engine.doorbell_rings() {
            *rings = engine.doorbell_rings();
            names.clear();
        }
        // Sends that wait for something else are among them.
        if names.try_push(request).is_err() {
            engine.ring_doorbell();
        }
    }

    /// The application is about to see that an operation is over.
    #[inline]
    pub(super) fn ring_for(&mut self, request: Request) {
        let engine = &mut self.endpoint.core.engine;
        let UnrungSends { names, rings } = &self.unrung;
        if engine.awaits_doorbell() && *rings == engine.doorbell_rings() && names.contains(&request) {
            engine.ring_doorbell();
        }
    }
}
