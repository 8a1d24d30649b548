//! How many frames a poll takes.
//!
//! The application posts its next receives behind a poll. A poll that takes many frames of short messages brings more of them than
//! there are receives, and each of the others is stored, and copied again when its receive is posted. So while that happens polls
//! take few.

use roci_driver::Engine;
use roci_driver::link::{BURST, Link};

/// Frames that a poll takes while messages come that find no receive.
const FEW: usize = 4;
/// Polls in a row whose messages have all found one, until they take twice as many.
const CALM: u32 = 64;

#[derive(Debug)]
pub(crate) struct ReceivePace {
    frames: usize,
    /// Messages that have found no receive so far.
    unexpected: u64,
    calm_polls: u32,
}

impl ReceivePace {
    pub(crate) const fn new() -> Self {
        Self { frames: BURST, unexpected: 0, calm_polls: 0 }
    }

    /// Notes a poll that has taken frames, and how many messages have found no receive so far.
    #[inline]
    pub(crate) fn note_poll<L: Link>(&mut self, unexpected: u64, engine: &mut Engine<L>) {
        if unexpected != self.unexpected {
            (self.unexpected, self.calm_polls) = (unexpected, 0);
            self.set(FEW, engine);
        } else if self.frames < BURST {
            self.calm_polls += 1;
            if self.calm_polls == CALM {
                self.calm_polls = 0;
                self.set(self.frames * 2, engine);
            }
        }
    }

    /// Another endpoint of the domain has the engine from here on.
    pub(crate) fn hand_over<L: Link>(&self, other: &Self, engine: &mut Engine<L>) {
        if self.frames != other.frames {
            engine.receive_at_most(other.frames);
        }
    }

    #[inline]
    fn set<L: Link>(&mut self, frames: usize, engine: &mut Engine<L>) {
        debug_assert!((FEW..=BURST).contains(&frames));
        if self.frames != frames {
            self.frames = frames;
            engine.receive_at_most(frames);
        }
    }
}

#[cfg(test)]
mod tests {
    use roci_driver::link::sim::SimLink;

    use super::*;

    #[test]
    fn polls_take_few_frames_while_messages_find_no_receive_and_then_more_and_more() {
        let mut engine = Engine::<SimLink>::new(1 << 16).expect("memory");
        let mut pace = ReceivePace::new();
        pace.note_poll(0, &mut engine);
        assert_eq!(pace.frames, BURST);
        pace.note_poll(1, &mut engine);
        assert_eq!(pace.frames, FEW);
        let mut after = |polls: u32, unexpected: u64| {
            (0..polls).for_each(|_| pace.note_poll(unexpected, &mut engine));
            pace.frames
        };
        assert_eq!([CALM - 1, 1].map(|polls| after(polls, 1)), [FEW, 2 * FEW]);
        assert_eq!(after(10 * CALM, 1), BURST);
        assert_eq!(after(1, 2), FEW);
    }
}
