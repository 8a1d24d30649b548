//! Counters of Firehose.

macro_rules! counters {
    ($($(#[doc = $meaning:literal])* $name:ident,)*) => {
        /// Plain counters; they only rise.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct FirehoseStats {
            $($(#[doc = $meaning])* pub $name: u64,)*
        }

        impl FirehoseStats {
            /// Every counter with its name.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }

        /// Of several engines together.
        impl std::ops::Add for FirehoseStats {
            type Output = Self;

            fn add(self, other: Self) -> Self {
                Self { $($name: self.$name + other.$name,)* }
            }
        }
    };
}

counters! {
    /// Acquires that held all their firehoses already, and so cost the target nothing.
    hits,
    /// Acquires that only had to wait for moves of others.
    pending_hits,
    /// Acquires that moved firehoses themselves.
    misses,
    /// Acquires that had to wait until others release.
    stalls,
    /// Firehoses moved to another bucket, or used for the first time.
    moved,
    /// Firehoses given up for those.
    replaced,
    /// Move requests of peers that were answered.
    moves_served,
    /// Buckets pinned.
    pins,
    /// Buckets unpinned, but for those another was pinned in place of.
    unpins,
    /// Buckets unpinned and others pinned, at once.
    repins,
    /// Victims that were used again before they were unpinned.
    victim_reuses,
    /// Moves that were taken back, because memory could not be pinned.
    rollbacks,
    /// Acquires that failed: refused by the peer, or with it.
    failures,
    /// Messages of peers that no peer sends; nothing came of them.
    breaches,
}
