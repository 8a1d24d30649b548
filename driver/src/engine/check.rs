//! What holds of an engine between any two polls. Simulations check it after every step.

use std::collections::BTreeSet;

use super::Engine;
use crate::link::Link;

impl<L: Link> Engine<L> {
    /// Asserts the invariants, those of every queue pair among them. It looks at everything: for tests and simulations, not
    /// for the data path.
    ///
    /// # Panics
    /// Where one does not hold: a bug of this engine.
    pub fn check(&self) {
        let listed: BTreeSet<_> = self.schedule.iter().collect();
        assert_eq!(listed.len(), self.schedule.len(), "a queue pair is listed twice");
        let deferred: BTreeSet<_> = self.schedule.deferred.iter().collect();
        for slot in self.qps.iter() {
            assert!(!slot.attendance.is_deferred() || deferred.contains(&slot.qp), "{:?} is not deferred", slot.qp);
            slot.rc.check();
            assert_eq!(
                slot.attendance.is_listed(),
                listed.contains(&slot.qp),
                "{:?} is listed, or is not, and says otherwise",
                slot.qp
            );
            assert!(
                slot.attendance.is_deferred() || !slot.rc.owes_acknowledgement_later(),
                "{:?} owes an acknowledgement, and is not looked after",
                slot.qp
            );
            let is_awaited = |deadline| slot.attendance.is_awaited_by(deadline);
            assert!(slot.rc.deadline().is_none_or(is_awaited), "no timer fires for {:?} at its deadline", slot.qp);
        }
        self.held.check(|qpn| self.qps.get(qpn).is_some());
        for queue in &self.cqs {
            queue.check();
        }
    }
}
