//! Whether the process's memory stays flat while it works.
//!
//! The arena, the ports' rings and DPDK's pools are touched as they are used, so that a fresh process grows for a while:
//! the first reading is taken after a warm-up. The arena gives out its lowest free place, and between two rounds the soak holds
//! nothing; so it touches new memory only in a round that asks for more than any before. Sizes are drawn, and such a
//! round may come late: by how much it was larger is known, and allowed on top. What else grows is a leak.

use crate::failure::Failure;
use crate::resources::resident_bytes;

/// Growth that is none: the heap's and the pools' last pages. Together with a 20th of what was there.
const ALLOWANCE: u64 = 8 << 20;
const ALLOWED_PART: u64 = 20;
/// No process is warm before so many rounds, however long they took. Packet buffers are shared memory that becomes resident
/// when it is first used, of peers' over vhost too: 4 ranks go on to touch 18 MiB of them after 64 rounds, and 6 after 200.
const WARM_UP_ROUNDS: u64 = 256;

/// Watches the memory of one process from round to round.
#[derive(Default)]
pub(super) struct MemoryWatch {
    rounds: u64,
    /// Resident bytes at the end of the warm-up, and the most that a round had asked for until then.
    warm: Option<(u64, u64)>,
    most_asked: u64,
}

impl MemoryWatch {
    /// A round has ended that held `asked` bytes of buffers. The first one that ends after the warm-up's time, and is
    /// not one of the first rounds, gives the reading that the last one is compared with.
    pub(super) fn after_round(&mut self, asked: u64, is_late: bool) -> Result<(), Failure> {
        self.rounds += 1;
        self.most_asked = self.most_asked.max(asked);
        if is_late && self.rounds >= WARM_UP_ROUNDS && self.warm.is_none() {
            self.warm = Some((resident_bytes()?, self.most_asked));
        }
        Ok(())
    }

    /// The last round has ended. Too few of them say nothing about growth.
    pub(super) fn finish(&self) -> Result<Growth, Failure> {
        let Some((start, asked)) = self.warm else { return Ok(Growth::default()) };
        let end = resident_bytes()?;
        Ok(Growth { start, end, allowed: allowed(start, self.most_asked - asked) })
    }
}

/// How much a process may grow that had `start` bytes, and since then a round so much larger than those before.
fn allowed(start: u64, larger_by: u64) -> u64 {
    ALLOWANCE + start / ALLOWED_PART + larger_by
}

/// Resident memory after the warm-up and at the end; all 0 where there was no end of the warm-up.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub(super) struct Growth {
    pub(super) start: u64,
    pub(super) end: u64,
    /// By how much it may have grown.
    pub(super) allowed: u64,
}

impl Growth {
    /// Whether there was time for more than the warm-up.
    pub(super) fn is_known(self) -> bool {
        self != Self::default()
    }

    /// The one of two that is nearer to a failure, or further beyond.
    pub(super) fn worse(self, other: Self) -> Self {
        if other.excess() > self.excess() { other } else { self }
    }

    /// Whether memory stayed flat.
    pub(super) fn check(self, rank: usize) -> Result<(), Failure> {
        let Self { start, end, allowed } = self;
        if self.excess() <= 0 {
            return Ok(());
        }
        Err(Failure::new(format!(
            "rank {rank}'s memory grew from {start} to {end} bytes after the warm-up, by {}; {allowed} are allowed",
            end.saturating_sub(start)
        )))
    }

    /// Bytes beyond what is allowed; below 0 where there are none.
    fn excess(self) -> i128 {
        i128::from(self.end) - i128::from(self.start) - i128::from(self.allowed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn growth_beyond_the_allowance_fails_and_names_the_rank() {
        let growth = |by| Growth { start: 100 * MIB, end: 100 * MIB + by, allowed: allowed(100 * MIB, 0) };
        assert_eq!(allowed(100 * MIB, 0), 13 * MIB);
        growth(13 * MIB).check(3).expect("as much as is allowed");
        let Failure::Message(text) = growth(13 * MIB + 1).check(3).expect_err("a byte more") else { panic!() };
        assert!(text.contains("rank 3's memory grew from 104857600 to 118489089 bytes"), "{text}");
        Growth { end: 0, ..growth(0) }.check(3).expect("it may shrink");
        assert_eq!(growth(1).worse(growth(2)), growth(2));
        assert_eq!(growth(2).worse(growth(1)), growth(2));
    }

    #[test]
    fn a_larger_round_is_allowed_its_memory_only_after_the_warm_up() {
        let allowed_after = |first: u64, then: &[(u64, bool)]| {
            let growth = growth_after(WARM_UP_ROUNDS - 1, first, then);
            assert!(growth.is_known());
            growth.allowed - allowed(growth.start, 0)
        };
        assert_eq!(allowed_after(9, &[(5, true), (7, true)]), 0);
        assert_eq!(allowed_after(2, &[(5, true), (9, true), (8, true)]), 4);
        assert_eq!(allowed_after(2, &[(9, false), (5, true), (9, true)]), 0);
    }

    #[test]
    fn after_too_few_rounds_or_too_little_time_growth_is_unknown_and_fails_no_rank() {
        for growth in
            [growth_after(WARM_UP_ROUNDS - 2, 1, &[(1, true)]), growth_after(WARM_UP_ROUNDS, 1, &[(1, false)])]
        {
            assert!(!growth.is_known());
            growth.check(0).expect("nothing is known");
        }
    }

    /// Rounds of `first` bytes before the warm-up's time is over, and then others.
    fn growth_after(rounds: u64, first: u64, then: &[(u64, bool)]) -> Growth {
        let mut watch = MemoryWatch::default();
        (0..rounds).for_each(|_| watch.after_round(first, false).expect("Linux"));
        for &(asked, is_late) in then {
            watch.after_round(asked, is_late).expect("Linux");
        }
        watch.finish().expect("Linux")
    }
}
