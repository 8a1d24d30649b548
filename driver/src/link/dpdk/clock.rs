//! Nanoseconds from the time stamp counter.
//!
//! DPDK's estimate of the counter's rate may be wrong by parts in a thousand, so that this clock and the kernel's part over time. Hence
//! all links of a process, sockets too, go over to this one once DPDK runs: [`now`].

use std::sync::OnceLock;

use roci_protocol::Nanos;

use crate::link::clock::since_origin;

/// The counter is so much ahead of the kernel's clock when it takes over: a thread that reads the latter for the last time may do
/// so a while later, in which the counter may have gone too slowly.
const MARGIN: Nanos = 1_000_000;

static OF_PROCESS: OnceLock<TscClock> = OnceLock::new();

/// A scaled time stamp counter; reading it is no system call and no division.
#[derive(Clone, Copy, Debug)]
pub struct TscClock {
    start: u64,
    /// The time at the start.
    base: Nanos,
    /// Nanoseconds per tick, in units of 2^-32.
    scale: u64,
}

/// Returns the time of the process: by the time stamp counter once DPDK runs, and by the kernel's clock before. It never goes back.
#[inline]
pub fn now() -> Nanos {
    OF_PROCESS.get().map_or_else(
        || {
            // The counter may have taken over while this thread did not run.
            let before = since_origin();
            OF_PROCESS.get().map_or(before, TscClock::now)
        },
        TscClock::now,
    )
}

impl TscClock {
    /// Returns the clock of the process, which goes on from the kernel's. The EAL must be running: it has measured the counter's rate.
    pub(super) fn of_process() -> Self {
        *OF_PROCESS.get_or_init(|| {
            // SAFETY: takes nothing; returns the rate that `rte_eal_init` measured.
            let hz = unsafe { dpdk_sys::rte_get_tsc_hz() };
            assert!(hz > 0, "the EAL runs");
            let scale = ((1_000_000_000u128 << 32) / u128::from(hz)) as u64;
            Self { start: ticks(), base: since_origin() + MARGIN, scale }
        })
    }

    /// Returns the time.
    #[inline]
    pub fn now(&self) -> Nanos {
        // Counters of two cores may differ by a few ticks.
        let ticks = ticks().saturating_sub(self.start);
        self.base + ((u128::from(ticks) * u128::from(self.scale)) >> 32) as Nanos
    }
}

#[inline]
fn ticks() -> u64 {
    // SAFETY: takes nothing and reads a counter.
    unsafe { dpdk_sys::roci_tsc() }
}
