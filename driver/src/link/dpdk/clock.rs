//! Nanoseconds from the time stamp counter.

use roci_protocol::Nanos;

/// A scaled time stamp counter; reading it is no system call and no division.
#[derive(Clone, Copy, Debug)]
pub struct TscClock {
    origin: u64,
    /// Nanoseconds per tick, in units of 2^-32.
    scale: u64,
}

impl TscClock {
    /// A clock that starts now. The EAL must be running: it has measured the counter's rate.
    pub(super) fn start() -> Self {
        // SAFETY: takes nothing; returns the rate that `rte_eal_init` measured.
        let hz = unsafe { dpdk_sys::rte_get_tsc_hz() };
        assert!(hz > 0, "the EAL runs");
        let scale = ((1_000_000_000u128 << 32) / u128::from(hz)) as u64;
        Self { origin: ticks(), scale }
    }

    /// Nanoseconds since the start.
    #[inline]
    pub fn now(&self) -> Nanos {
        // Counters of two cores may differ by a few ticks.
        let ticks = ticks().saturating_sub(self.origin);
        ((u128::from(ticks) * u128::from(self.scale)) >> 32) as Nanos
    }
}

#[inline]
fn ticks() -> u64 {
    // SAFETY: takes nothing and reads a counter.
    unsafe { dpdk_sys::roci_tsc() }
}
