//! The word that a hit reads, on a page that is wiped in a forked child.

use std::io;

#[cfg(not(all(loom, test)))]
pub(super) use page::Epoch;
#[cfg(all(loom, test))]
pub(super) use plain::Epoch;

#[cfg(not(all(loom, test)))]
mod page {
    use std::sync::atomic::AtomicU64;
    use std::sync::atomic::Ordering::Release;

    use memmap2::{MmapOptions, MmapRaw};
    use rustix::mm::{Advice, madvise};

    use super::io;

    /// One page that begins with the word.
    pub(in super::super) struct Epoch(MmapRaw);

    impl Epoch {
        pub(in super::super) fn new(first: u64) -> io::Result<Self> {
            let page: MmapRaw = MmapOptions::new().len(rustix::param::page_size()).map_anon()?.into();
            // SAFETY: the advice only changes what a child finds in the mapping, which is private, anonymous and ours
            // alone.
            unsafe { madvise(page.as_mut_ptr().cast(), page.len(), Advice::LinuxWipeOnFork) }?;
            let epoch = Self(page);
            epoch.word().store(first, Release);
            Ok(epoch)
        }

        #[inline]
        pub(in super::super) fn word(&self) -> &AtomicU64 {
            // SAFETY: the page is mapped as long as `self` lives, aligned, longer than the word, zeroed at first, and
            // nothing in this process but this word's atomic accesses touches it.
            unsafe { AtomicU64::from_ptr(self.0.as_mut_ptr().cast()) }
        }
    }
}

/// Models do not fork, and loom's atomics lie where they are made.
#[cfg(all(loom, test))]
mod plain {
    use super::io;
    use crate::sync::AtomicU64;

    pub(in super::super) struct Epoch(AtomicU64);

    impl Epoch {
        #[expect(clippy::unnecessary_wraps, reason = "as that on a page")]
        pub(in super::super) fn new(first: u64) -> io::Result<Self> {
            Ok(Self(AtomicU64::new(first)))
        }

        pub(in super::super) fn word(&self) -> &AtomicU64 {
            &self.0
        }
    }
}
