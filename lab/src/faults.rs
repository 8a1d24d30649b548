//! Random faults of the wire in both directions: packets that are lost, repeated and overtaken.

use std::collections::VecDeque;

use roci_protocol::Nanos;
use roci_protocol::sim::{FaultInjector, Faults, Verdict};
use roci_protocol::wire::Opcode;

use crate::wire::FrameDirection;

/// How long a packet is held back where too few others overtake it. The guest takes a while for each.
const HOLD_NS: Nanos = 5_000_000;
/// Packets held back at once in one direction; one more passes instead.
const HELD_LIMIT: usize = 16;

/// What was done to packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Injected {
    pub(crate) lost: u64,
    pub(crate) repeated: u64,
    pub(crate) held_back: u64,
}

/// The frames that are held back in one direction of the wire.
pub(crate) struct FaultQueue<F> {
    held: VecDeque<DelayedFrame<F>>,
}

/// A frame that is held back.
struct DelayedFrame<F> {
    frame: F,
    /// Later frames that still have to pass.
    frames: u8,
    until: Nanos,
}

impl<F> FaultQueue<F> {
    pub(crate) fn new() -> Self {
        Self { held: VecDeque::new() }
    }

    pub(crate) fn has_room(&self) -> bool {
        self.held.len() < HELD_LIMIT
    }

    pub(crate) fn hold(&mut self, now: Nanos, frame: F, frames: u8) {
        self.held.push_back(DelayedFrame { frame, frames, until: now + HOLD_NS });
    }

    /// A frame has passed those that are held back.
    pub(crate) fn overtake(&mut self) {
        self.held.iter_mut().for_each(|held| held.frames = held.frames.saturating_sub(1));
    }

    /// The next frame whose time has come.
    pub(crate) fn release(&mut self, now: Nanos) -> Option<F> {
        let at = self.held.iter().position(|held| held.frames == 0 || held.until <= now)?;
        self.held.remove(at).map(|held| held.frame)
    }

    /// Puts a frame back that could not leave.
    pub(crate) fn put_back(&mut self, frame: F) {
        self.held.push_front(DelayedFrame { frame, frames: 0, until: 0 });
    }
}

/// Returns whether packets of a direction with an opcode are never held back.
pub(crate) type KeepsOrder = fn(FrameDirection, Opcode) -> bool;

/// The dice of both directions.
pub(crate) struct Dice {
    keeps_order: KeepsOrder,
    injectors: [FaultInjector; 2],
    /// What was done, by direction.
    pub(crate) injected: [Injected; 2],
}

impl Dice {
    pub(crate) fn new(faults: Faults, keeps_order: KeepsOrder) -> Self {
        Self {
            keeps_order,
            injectors: [0, 1].map(|stream| FaultInjector::new(faults, stream)),
            injected: Default::default(),
        }
    }

    /// What happens to the next packet of a direction.
    pub(crate) fn throw(&mut self, way: FrameDirection, opcode: Opcode) -> Verdict {
        let mut verdict = self.injectors[way as usize].throw();
        if matches!(verdict, Verdict::Hold(_)) && (self.keeps_order)(way, opcode) {
            verdict = Verdict::Pass;
        }
        let injected = &mut self.injected[way as usize];
        match verdict {
            Verdict::Pass | Verdict::Corrupt(_) => {}
            Verdict::Lose => injected.lost += 1,
            Verdict::Duplicate => injected.repeated += 1,
            Verdict::Hold(_) => injected.held_back += 1,
        }
        verdict
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_leaves_once_enough_others_have_passed_it_or_its_time_is_over() {
        let mut lane = FaultQueue::new();
        lane.hold(0, 'a', 2);
        lane.hold(0, 'b', 1);
        assert_eq!(lane.release(0), None);
        lane.overtake();
        assert_eq!((lane.release(0), lane.release(0)), (Some('b'), None));
        assert_eq!(lane.release(HOLD_NS), Some('a'));
    }

    #[test]
    fn a_frame_that_could_not_leave_is_the_next_one() {
        let mut lane = FaultQueue::new();
        lane.hold(0, 'a', 0);
        lane.put_back('b');
        assert_eq!((lane.release(0), lane.release(0)), (Some('b'), Some('a')));
    }

    #[test]
    fn each_direction_has_dice_and_counters_of_its_own() {
        let mut dice = Dice::new(Faults { loss: 0.2, dup: 0.2, reorder: 0.2, ..Faults::default() }, |_, _| false);
        let verdicts = [FrameDirection::Out, FrameDirection::In]
            .map(|way| (0..100).map(|_| dice.throw(way, Opcode::RcAck)).collect::<Vec<_>>());
        assert_ne!(verdicts[0], verdicts[1]);
        for (verdicts, injected) in verdicts.iter().zip(dice.injected) {
            let count =
                |is_meant: fn(&Verdict) -> bool| verdicts.iter().filter(|verdict| is_meant(verdict)).count() as u64;
            assert_eq!(count(|verdict| *verdict == Verdict::Lose), injected.lost);
            assert_eq!(count(|verdict| *verdict == Verdict::Duplicate), injected.repeated);
            assert_eq!(count(|verdict| matches!(verdict, Verdict::Hold(_))), injected.held_back);
        }
    }

    #[test]
    fn what_keeps_its_order_is_never_held_back() {
        let faults = Faults { reorder: 1.0, ..Faults::default() };
        let mut dice = Dice::new(faults, |way, opcode| way == FrameDirection::Out && opcode == Opcode::RcAck);
        assert_eq!(dice.throw(FrameDirection::Out, Opcode::RcAck), Verdict::Pass);
        assert!(matches!(dice.throw(FrameDirection::Out, Opcode::RcSendOnly), Verdict::Hold(_)));
        assert!(matches!(dice.throw(FrameDirection::In, Opcode::RcAck), Verdict::Hold(_)));
        assert_eq!(dice.injected.map(|injected| injected.held_back), [1, 1]);
    }
}
