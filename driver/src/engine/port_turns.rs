//! Which ports a poll looks at. A look that is a system call takes time that the other ports lack: so while frames come in at some
//! ports, those of that kind at which none has come in for long are looked at less often. Where all are quiet each poll looks at all.

/// Polls after the last frame of all for which some ports are still busy: the wait for an answer is a part of an exchange.
const BUSY: u32 = 1 << 12;
/// Polls without a frame after which a port is quiet: a few milliseconds of a socket's.
const QUIET: u32 = 1 << 12;
/// Of so many polls one looks at a quiet port; a power of two. A look at a socket takes as long as dozens of looks at shared memory.
const SELDOM: u32 = 1 << 7;

/// Counts polls, and remembers the last at which frames came in at any port.
#[derive(Debug, Default)]
pub(super) struct PortTurns {
    poll: u32,
    busy: u32,
}

/// The last poll at which frames came in at a port.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LastFrames(u32);

impl PortTurns {
    /// A poll begins.
    #[inline]
    pub(super) fn begin(&mut self) {
        self.poll = self.poll.wrapping_add(1);
    }

    /// Whether this poll leaves a port out.
    #[inline]
    pub(super) fn skips(&self, index: usize, last: LastFrames) -> bool {
        self.poll.wrapping_sub(self.busy) < BUSY
            && self.poll.wrapping_sub(last.0) >= QUIET
            && self.poll.wrapping_add(index as u32) & (SELDOM - 1) != 0
    }

    /// Polls are so seldom that each looks at all, until frames come in again.
    pub(super) fn look_at_all(&mut self) {
        self.busy = self.poll.wrapping_sub(BUSY);
    }

    /// Frames have come in at a port.
    #[inline]
    pub(super) fn note(&mut self, last: &mut LastFrames) {
        self.busy = self.poll;
        last.0 = self.poll;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quiet_port_is_looked_at_seldom_while_another_is_busy_and_always_otherwise() {
        let mut turns = PortTurns::default();
        let (mut busy, mut quiet) = (LastFrames::default(), LastFrames::default());
        let looks = |turns: &mut PortTurns, busy: Option<&mut LastFrames>, quiet: LastFrames| {
            turns.begin();
            if let Some(busy) = busy {
                turns.note(busy);
            }
            u32::from(!turns.skips(1, quiet))
        };
        let first: u32 = (0..QUIET).map(|_| looks(&mut turns, Some(&mut busy), quiet)).sum();
        assert!(first >= QUIET - 1, "it is not quiet yet: {first}");
        let then: u32 = (0..80 * SELDOM).map(|_| looks(&mut turns, Some(&mut busy), quiet)).sum();
        assert_eq!(then, 80);
        assert!(!turns.skips(0, busy), "the busy one is looked at each time");
        // A frame at last.
        turns.note(&mut quiet);
        assert_eq!((0..100).map(|_| looks(&mut turns, Some(&mut busy), quiet)).sum::<u32>(), 100);
        // Polls are seldom.
        assert!((0..2 * QUIET).map(|_| looks(&mut turns, Some(&mut busy), quiet)).sum::<u32>() < 2 * QUIET);
        assert_eq!(looks(&mut turns, None, quiet), 0);
        turns.look_at_all();
        assert_eq!((0..100).map(|_| looks(&mut turns, None, quiet)).sum::<u32>(), 100);
        turns.note(&mut busy);
        // All are quiet.
        assert!((0..BUSY).map(|_| looks(&mut turns, None, quiet)).sum::<u32>() > 0);
        assert_eq!((0..100).map(|_| looks(&mut turns, None, quiet)).sum::<u32>(), 100);
    }
}
