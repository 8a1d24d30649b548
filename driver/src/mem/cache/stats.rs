//! What the cache counts.

/// Counters of an engine's registrations of the application's memory, always on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RegistrationStats {
    /// Pieces of memory whose region was found at one look.
    pub hits_fast: u64,
    /// Those whose region was found, and had to be looked at.
    pub hits_slow: u64,
    /// Those that no region held.
    pub misses: u64,
    /// Pieces adopted by engines that register nothing, because their links copy.
    pub bypassed: u64,
    /// Misses that were registered for one use, because the memory is not watched, or nothing is to be cached.
    pub registered_once: u64,
    /// Misses that could not be registered, which the CPU copies.
    pub unregistered: u64,
    /// Regions that became part of a larger one.
    pub merges: u64,
    /// Regions that made room for others.
    pub evictions: u64,
    /// Regions whose memory was unmapped, moved or discarded.
    pub invalidations: u64,
    /// Of them, those that were in use just then. Either the application broke the contract, or it unmapped a part of
    /// the region that it had not adopted, which is allowed.
    pub unmapped_in_use: u64,
    /// Calls of the registrar that failed.
    pub register_failures: u64,
    /// Regions registered so far.
    pub registrations: u64,
    /// Regions ended so far.
    pub deregistrations: u64,
    /// Regions that are registered, whether in use or not.
    pub regions: u64,
    /// Their bytes.
    pub bytes_registered: u64,
}

impl RegistrationStats {
    /// Those of them that may fall.
    pub const GAUGES: &[&str] = &["regions", "bytes_registered"];

    /// Returns the number of pieces of memory that the application adopted.
    pub fn adopted(&self) -> u64 {
        self.hits_fast + self.hits_slow + self.misses + self.bypassed
    }

    /// Every counter with its name.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        [
            ("adopted", self.adopted()),
            ("hits_fast", self.hits_fast),
            ("hits_slow", self.hits_slow),
            ("misses", self.misses),
            ("bypassed", self.bypassed),
            ("registered_once", self.registered_once),
            ("unregistered", self.unregistered),
            ("merges", self.merges),
            ("evictions", self.evictions),
            ("invalidations", self.invalidations),
            ("unmapped_in_use", self.unmapped_in_use),
            ("register_failures", self.register_failures),
            ("registrations", self.registrations),
            ("deregistrations", self.deregistrations),
            ("regions", self.regions),
            ("bytes_registered", self.bytes_registered),
        ]
        .into_iter()
    }
}
