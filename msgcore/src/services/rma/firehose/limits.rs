//! How much may be pinned, and for whom: GASNet's parameters, their defaults and their minimums.

use thiserror::Error;

use super::bucket::Grain;
use crate::units::show_size;

/// Buckets of M for each rank of the job, at least. GASNet's are 32; a job of a thousand ranks has not so many keys here.
const LEAST_FIREHOSES: u64 = 1;
/// Buckets of MAXVICTIM, at least. GASNet's are 4096, because memory of the rank's own transfers counts among them there.
const LEAST_VICTIMS: u64 = 32;
/// A bucket is at least a page.
const PAGE: u64 = 4096;
/// Of what can be pinned, MAXVICTIM is one part in so many unless it is set, and M the rest.
const VICTIM_PART: u64 = 4;

/// The parameters as they were set; what was not follows from the rest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// `firehose_m`: bytes of each rank that stay pinned for its peers, in equal shares.
    pub m: Option<u64>,
    /// `firehose_maxvictim_m`: bytes that stay pinned though no peer has a firehose to them any more.
    pub maxvictim: Option<u64>,
    /// `firehose_bucket`: bytes of a bucket.
    pub bucket: u64,
}

/// What a rank can pin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pinnable {
    /// Bytes of memory.
    pub bytes: u64,
    /// Keys: each pinned bucket takes one.
    pub keys: u64,
}

/// What an end gives each of its peers, which say it in their keys to its memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FirehoseShare {
    /// The size of a bucket.
    pub grain: Grain,
    /// F: the firehoses that a peer has, one bucket each.
    pub firehoses: u64,
}

/// Limits that fit together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    share: FirehoseShare,
    victims: usize,
    /// M in buckets.
    held: usize,
}

/// Why settings make no limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum BadLimits {
    /// The bucket is no power of two, or smaller than a page.
    #[error("firehose_bucket of {0} bytes: it is a power of two, and at least {PAGE}")]
    Bucket(u64),
    /// Not even the minimums can be pinned.
    #[error(
        "firehose needs {needed} buckets of {} for {ranks} ranks, and {buckets} can be pinned: raise dreg_cache_limit or \
         lower firehose_bucket where memory is short, and lower ndreg_entries where keys are", show_size(&(*.bucket as usize))
    )]
    Pinnable {
        /// Buckets that both minimums need.
        needed: u64,
        /// How large each is.
        bucket: u64,
        /// For so many.
        ranks: u64,
        /// How many there can be.
        buckets: u64,
    },
    /// M gives a rank too little.
    #[error(
        "firehose_m of {} is less than {} for {ranks} ranks: raise it, or lower firehose_maxvictim_m or firehose_bucket",
        show_size(&(*.m as usize)), show_size(&(*.least as usize))
    )]
    M {
        /// What it is.
        m: u64,
        /// What it must be.
        least: u64,
        /// For so many.
        ranks: u64,
    },
    /// MAXVICTIM is too little.
    #[error(
        "firehose_maxvictim_m of {} is less than {LEAST_VICTIMS} buckets, {}: raise it, or lower firehose_m or firehose_bucket",
        show_size(&(*.maxvictim as usize)), show_size(&(*.least as usize))
    )]
    MaxVictim {
        /// What it is.
        maxvictim: u64,
        /// What it must be.
        least: u64,
    },
    /// Both together are more than there is.
    #[error(
        "firehose_m of {} and firehose_maxvictim_m of {} are more than the {} that can be pinned: lower them, or raise \
         dreg_cache_limit and lower ndreg_entries",
        show_size(&(*.m as usize)), show_size(&(*.maxvictim as usize)), show_size(&(*.pinnable as usize))
    )]
    Together {
        /// M.
        m: u64,
        /// MAXVICTIM.
        maxvictim: u64,
        /// What there is.
        pinnable: u64,
    },
}

impl Pinnable {
    /// Bytes of whole buckets.
    fn in_buckets_of(self, bucket: u64) -> u64 {
        (self.bytes / bucket).min(self.keys) * bucket
    }
}

impl Limits {
    /// Nothing is pinned for anybody.
    pub(crate) const NOTHING: Self =
        Self { share: FirehoseShare { grain: Grain::PAGE, firehoses: 0 }, victims: 0, held: 0 };

    /// The limits in a job of so many ranks. What is set is taken; of two that are not, MAXVICTIM is a quarter of what can
    /// be pinned, but no less than its minimum; of one that is not, it is what the other leaves.
    pub fn new(settings: Settings, ranks: usize, pinnable: Pinnable) -> Result<Self, BadLimits> {
        let bucket = settings.bucket;
        let grain = Grain::new(bucket).filter(|_| bucket >= PAGE).ok_or(BadLimits::Bucket(bucket))?;
        let (ranks, pinnable) = (ranks as u64, pinnable.in_buckets_of(bucket));
        let (needed, buckets) =
            (LEAST_VICTIMS.saturating_add(ranks.saturating_mul(LEAST_FIREHOSES)), pinnable / bucket);
        if buckets < needed {
            return Err(BadLimits::Pinnable { needed, bucket, ranks, buckets });
        }
        let least_victims = bucket.saturating_mul(LEAST_VICTIMS);
        let (m, maxvictim) = match (settings.m, settings.maxvictim) {
            (Some(m), Some(maxvictim)) => (m, maxvictim),
            (Some(m), None) => (m, pinnable.saturating_sub(m)),
            (None, Some(maxvictim)) => (pinnable.saturating_sub(maxvictim), maxvictim),
            (None, None) => {
                let maxvictim = (pinnable / VICTIM_PART).max(least_victims);
                (pinnable - maxvictim, maxvictim)
            }
        };
        if m.saturating_add(maxvictim) > pinnable {
            return Err(BadLimits::Together { m, maxvictim, pinnable });
        }
        if maxvictim < least_victims {
            return Err(BadLimits::MaxVictim { maxvictim, least: least_victims });
        }
        let least = bucket.saturating_mul(ranks).saturating_mul(LEAST_FIREHOSES);
        if m < least {
            return Err(BadLimits::M { m, least, ranks });
        }
        let firehoses = (m / bucket).checked_div(ranks.saturating_sub(1)).unwrap_or(0);
        Ok(Self {
            share: FirehoseShare { grain, firehoses },
            victims: (maxvictim / bucket) as usize,
            held: (m / bucket) as usize,
        })
    }

    /// Limits in buckets, without minimums: for simulations, in which exhaustion is the point.
    pub fn exact(grain: Grain, firehoses: u64, victims: usize) -> Self {
        Self { share: FirehoseShare { grain, firehoses }, victims, held: usize::MAX }
    }

    /// What each peer is given.
    pub fn share(&self) -> FirehoseShare {
        self.share
    }

    /// The size of a bucket.
    pub fn grain(&self) -> Grain {
        self.share.grain
    }

    /// F: the firehoses that a peer has, one bucket each.
    pub fn firehoses(&self) -> u64 {
        self.share.firehoses
    }

    /// M in buckets: what all peers hold together.
    pub fn held(&self) -> usize {
        self.held
    }

    /// MAXVICTIM in buckets.
    pub fn victims(&self) -> usize {
        self.victims
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const PLENTY: Pinnable = Pinnable { bytes: 1024 * MIB, keys: 1 << 20 };

    fn limits(m: Option<u64>, maxvictim: Option<u64>, ranks: usize) -> Result<Limits, BadLimits> {
        Limits::new(Settings { m, maxvictim, bucket: 16 << 10 }, ranks, PLENTY)
    }

    #[test]
    fn unset_they_are_three_quarters_and_one() {
        let limits = limits(None, None, 4).expect("enough");
        assert_eq!((limits.firehoses(), limits.victims() as u64), (768 * 64 / 3, 256 * 64));
    }

    #[test]
    fn the_example_of_the_paper() {
        // 16 ranks, 16 KiB, 512 MiB.
        assert_eq!(limits(Some(512 * MIB), None, 16).expect("enough").firehoses(), 2184);
    }

    #[test]
    fn one_that_is_not_set_is_what_the_other_leaves() {
        let by_m = limits(Some(924 * MIB), None, 2).expect("enough");
        assert_eq!(by_m, limits(None, Some(100 * MIB), 2).expect("enough"));
        assert_eq!((by_m.firehoses(), by_m.victims()), (924 * 64, 6400));
    }

    #[test]
    fn keys_bound_what_can_be_pinned_and_leave_maxvictim_its_minimum() {
        let settings = Settings { m: None, maxvictim: None, bucket: 64 << 10 };
        let few = |keys| Limits::new(settings, 2, Pinnable { bytes: 1024 * MIB, keys });
        let limits = few(100).expect("enough");
        assert_eq!((limits.firehoses(), limits.victims()), (100 - 32, 32), "a quarter would be less");
        assert_eq!(few(34).expect("just enough").firehoses(), 2);
        assert_eq!(few(33), Err(BadLimits::Pinnable { needed: 34, bucket: 64 << 10, ranks: 2, buckets: 33 }));
    }

    #[test]
    fn what_does_not_fit_is_refused_by_name() {
        for bucket in [0, 2048, 4097, 12288] {
            let settings = Settings { m: None, maxvictim: None, bucket };
            assert_eq!(Limits::new(settings, 2, PLENTY), Err(BadLimits::Bucket(bucket)));
        }
        let least = 16 * (16 << 10);
        assert_eq!(limits(Some(least - 1), Some(64 * MIB), 16), Err(BadLimits::M { m: least - 1, least, ranks: 16 }));
        assert!(limits(Some(least), Some(64 * MIB), 16).is_ok());
        let least = 32 * (16 << 10);
        let small = limits(Some(MIB), Some(least - 1), 2);
        assert_eq!(small, Err(BadLimits::MaxVictim { maxvictim: least - 1, least }));
        let pinnable = 1024 * MIB;
        for (m, maxvictim) in [(Some(1000 * MIB), Some(64 * MIB)), (Some(u64::MAX), Some(64 * MIB))] {
            let together = BadLimits::Together { m: m.expect("set"), maxvictim: 64 * MIB, pinnable };
            assert_eq!(limits(m, maxvictim, 2), Err(together));
        }
        let text = limits(Some(1000 * MIB), Some(64 * MIB), 2).expect_err("too much").to_string();
        assert!(
            text.starts_with("firehose_m of 1000MiB and firehose_maxvictim_m of 64MiB are more than the 1GiB"),
            "{text}"
        );
        assert!(limits(Some(1025 * MIB), None, 2).is_err());
    }

    #[test]
    fn a_rank_alone_has_no_firehoses() {
        assert_eq!(limits(None, None, 1).expect("enough").firehoses(), 0);
    }
}
