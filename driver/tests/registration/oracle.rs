//! The oracle: which pages were where when something was registered.

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use roci_driver::Buffer;

use super::areas::{Area, How, PAGE};

/// What one registration saw of an area.
struct Seen {
    versions: Vec<u32>,
    frames: Vec<u64>,
}

/// What it found of a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// The registration is of the memory that is there.
    Fresh,
    /// It is of memory that was replaced.
    Stale,
    /// There is none.
    Unregistered,
}

/// It writes down how often each page was replaced, and, where it may see them, the numbers of the page frames.
pub(crate) struct Oracle<'a> {
    area: &'a Area,
    versions: Vec<u32>,
    seen: BTreeMap<u64, Seen>,
    pagemap: Option<File>,
    /// Stale registrations that were served, and those of them of which the page frames say so, too.
    pub(crate) stale: usize,
    pub(crate) stale_frames: usize,
}

impl<'a> Oracle<'a> {
    pub(crate) fn new(area: &'a Area) -> Self {
        Self {
            area,
            versions: vec![0; area.pages()],
            seen: BTreeMap::new(),
            pagemap: File::open("/proc/self/pagemap").ok(),
            stale: 0,
            stale_frames: 0,
        }
    }

    pub(crate) fn replace(&mut self, pages: &Range<usize>, how: How) {
        self.area.replace(pages, how);
        self.replaced(pages);
    }

    pub(crate) fn replaced(&mut self, pages: &Range<usize>) {
        self.versions[pages.clone()].iter_mut().for_each(|version| *version += 1);
    }

    /// Judges what an engine made of these pages.
    pub(crate) fn judge(&mut self, pages: &Range<usize>, buffer: &Buffer) -> Verdict {
        let Some(number) = buffer.registration() else { return Verdict::Unregistered };
        let now = Seen { versions: self.versions.clone(), frames: self.frames() };
        let then = self.seen.entry(number).or_insert_with(|| Seen { ..now.clone() });
        let is_stale = then.versions[pages.clone()] != now.versions[pages.clone()];
        // A page that has no frame yet, or that this process may not see, says nothing.
        let both = pages.clone().map(|page| (then.frames[page], now.frames[page]));
        let has_moved = both.into_iter().any(|(then, now)| then != 0 && now != 0 && then != now);
        assert!(is_stale || !has_moved, "pages {pages:?} of registration {number} have moved for no known reason");
        self.stale += usize::from(is_stale);
        self.stale_frames += usize::from(is_stale && has_moved);
        if is_stale { Verdict::Stale } else { Verdict::Fresh }
    }

    /// Page frame numbers; 0 for pages that have none, and for processes that may not see them.
    fn frames(&self) -> Vec<u64> {
        let frame = |page: usize| {
            let mut entry = [0; 8];
            let at = (self.area.address(page) / PAGE * 8) as u64;
            self.pagemap.as_ref().and_then(|file| file.read_exact_at(&mut entry, at).ok());
            u64::from_ne_bytes(entry)
        };
        let entries = (0..self.area.pages()).map(frame);
        entries.map(|entry| if entry >> 63 == 1 { entry & ((1 << 55) - 1) } else { 0 }).collect()
    }

    /// Whether this process sees page frames at all.
    pub(crate) fn sees_frames(&self) -> bool {
        self.frames().iter().any(|&frame| frame != 0)
    }
}

impl Clone for Seen {
    fn clone(&self) -> Self {
        Self { versions: self.versions.clone(), frames: self.frames.clone() }
    }
}
