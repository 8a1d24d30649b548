//! Frames that came early and wait for their turn.

use std::collections::BTreeMap;

use roci_protocol::Qpn;
use roci_protocol::rc::Held;

use crate::link::HELD_FRAMES;

/// The frames themselves, as the link gave them: nothing is copied.
pub(super) struct HeldFrames<F> {
    frames: BTreeMap<(Qpn, Held), F>,
}

impl<F> HeldFrames<F> {
    pub(super) const fn new() -> Self {
        Self { frames: BTreeMap::new() }
    }

    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.frames.len() >= HELD_FRAMES
    }

    pub(super) fn keep(&mut self, qpn: Qpn, held: Held, frame: F) {
        self.frames.insert((qpn, held), frame);
    }

    pub(super) fn take(&mut self, qpn: Qpn, held: Held) -> Option<F> {
        self.frames.remove(&(qpn, held))
    }

    /// The queue pair is gone, and what it kept with it.
    pub(super) fn forget(&mut self, qpn: Qpn) {
        if !self.frames.is_empty() {
            self.frames.retain(|&(holder, _), _| holder != qpn);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_kept_by_queue_pair_and_name_up_to_a_limit() {
        let mut held = HeldFrames::new();
        let (one, other) = (Qpn::new(1), Qpn::new(2));
        held.keep(one, Held::Request(7), 'a');
        held.keep(one, Held::Response(7), 'b');
        held.keep(other, Held::Request(7), 'c');
        assert_eq!(held.take(one, Held::Request(7)), Some('a'));
        assert_eq!(held.take(one, Held::Request(7)), None);
        held.forget(one);
        assert_eq!(held.take(one, Held::Response(7)), None);
        (0..HELD_FRAMES as u32).for_each(|psn| held.keep(one, Held::Request(psn), 'd'));
        assert!(held.is_full());
        held.forget(one);
        assert_eq!(held.take(other, Held::Request(7)), Some('c'));
    }
}
