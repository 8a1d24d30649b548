//! The pages that an arena is made of: huge ones where they can be had, ordinary ones else.
//!
//! Huge pages come from the kernel's pools (hugetlb), of 1 GiB or 2 MiB, over a mounted hugetlbfs or, without a mount
//! and without privilege, over a memfd. A mapping of them is taken only once every page of it has been touched: what
//! the kernel cannot give it says then, and not later by a signal. After them come transparent huge pages, which the
//! kernel makes of ordinary memory when it can, and after those ordinary pages. What was passed over, and why, is kept.
//!
//! A child that is forked sees pages of a pool as its parent does, and would write what the parent reads; of others it has
//! copies. It must leave buffers alone either way: their engine is its parent's.

mod hugetlb;
mod numa;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use memmap2::{Advice, MmapOptions, MmapRaw};
use thiserror::Error;

pub use hugetlb::HugePage;
pub use numa::Placement;

/// Bytes of an ordinary page.
pub(super) const BASE_PAGE: usize = 4096;
/// Bytes of a transparent huge page.
const TRANSPARENT_PAGE: usize = 2 << 20;
/// Smaller arenas are not worth transparent huge pages: each first touch takes a whole one, and zeroes it.
const TRANSPARENT_LEAST: usize = 128 << 20;
/// Where the kernel says whether there are transparent huge pages.
const TRANSPARENT_MODE: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

/// Which pages an arena is to be made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PageChoice {
    /// The largest that can be had.
    #[default]
    Auto,
    /// Of the kernel's pool of huge pages of one size.
    Huge(HugePage),
    /// Ordinary memory, which the kernel makes huge pages of when it can.
    Transparent,
    /// Ordinary pages of 4 KiB.
    Base,
}

/// The pages that an arena is made of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Pages {
    /// Of a pool, over a mounted hugetlbfs.
    Hugetlbfs {
        /// Their size.
        size: HugePage,
        /// Where it is mounted.
        mount: PathBuf,
    },
    /// Of a pool, over a memfd.
    HugetlbMemfd(HugePage),
    /// Ordinary memory, which the kernel makes huge pages of when it can.
    Transparent,
    /// Ordinary pages of 4 KiB.
    Base,
}

impl Pages {
    /// Bytes that are contiguous in physical memory, at least, and never swapped or moved where they are of a pool.
    pub const fn size(&self) -> usize {
        match self {
            Self::Hugetlbfs { size, .. } | Self::HugetlbMemfd(size) => size.bytes(),
            Self::Transparent | Self::Base => BASE_PAGE,
        }
    }

    /// Whether they are of a pool of huge pages, which are never swapped and never moved.
    pub const fn is_of_a_pool(&self) -> bool {
        matches!(self, Self::Hugetlbfs { .. } | Self::HugetlbMemfd(_))
    }
}

impl fmt::Display for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hugetlbfs { size, mount } => write!(f, "{size} pages of the hugetlbfs at {}", mount.display()),
            Self::HugetlbMemfd(size) => write!(f, "{size} pages of a hugetlb memfd"),
            Self::Transparent => f.write_str("transparent huge pages"),
            Self::Base => f.write_str("4 KiB pages"),
        }
    }
}

/// What could not be had, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PassedOver {
    /// The pages.
    pub pages: Pages,
    /// Why not, and what helps.
    pub why: String,
}

impl fmt::Display for PassedOver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.pages, self.why)
    }
}

/// A mapping, and what it is made of.
pub(super) struct Mapping {
    map: MmapRaw,
    /// Where the first page begins in the mapping ...
    start: usize,
    /// ... and how many bytes follow.
    len: usize,
    pub(super) pages: Pages,
    pub(super) placement: Placement,
    pub(super) passed_over: Vec<PassedOver>,
}

impl Mapping {
    /// Maps at least `bytes` of the pages that were chosen, near a NUMA node where one is given. `Err` holds what was
    /// passed over, the last of it last.
    pub(super) fn new(bytes: usize, choice: PageChoice, node: Option<u32>) -> Result<Self, Vec<PassedOver>> {
        let mut passed_over = Vec::new();
        for attempt in attempts(choice) {
            match attempt.map(bytes, choice == PageChoice::Auto, node) {
                Ok(mapping) => return Ok(Self { passed_over, ..mapping }),
                Err(refused) => passed_over.extend(refused),
            }
        }
        Err(passed_over)
    }

    /// A mapping of which `len` bytes are used, from `start` on, before anything has been touched.
    fn of(map: MmapRaw, start: usize, len: usize, pages: Pages, node: Option<u32>) -> Self {
        let placement = numa::place(&map, node);
        Self { map, start, len, pages, placement, passed_over: Vec::new() }
    }

    /// Where it begins.
    #[inline]
    pub(super) fn base(&self) -> *mut u8 {
        self.map.as_mut_ptr().wrapping_add(self.start)
    }

    /// Its bytes.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }
}

/// One kind of pages that the arena tries to map.
#[derive(Clone, Copy)]
enum PageAttempt {
    Huge(HugePage),
    Transparent,
    Base,
}

fn attempts(choice: PageChoice) -> Vec<PageAttempt> {
    match choice {
        PageChoice::Auto => {
            let huge = [HugePage::Size1G, HugePage::Size2M].map(PageAttempt::Huge);
            huge.into_iter().chain([PageAttempt::Transparent, PageAttempt::Base]).collect()
        }
        PageChoice::Huge(size) => vec![PageAttempt::Huge(size)],
        PageChoice::Transparent => vec![PageAttempt::Transparent],
        PageChoice::Base => vec![PageAttempt::Base],
    }
}

impl PageAttempt {
    /// `is_free`: the choice of pages is free, so these may be passed over where they would be wasted.
    fn map(self, bytes: usize, is_free: bool, node: Option<u32>) -> Result<Mapping, Vec<PassedOver>> {
        match self {
            Self::Huge(size) => hugetlb::map(bytes, size, is_free, node),
            Self::Transparent => transparent(bytes, is_free, node).map_err(|why| passed(Pages::Transparent, why)),
            Self::Base => base(bytes, is_free, node).map_err(|error| passed(Pages::Base, error)),
        }
    }
}

fn passed(pages: Pages, why: impl fmt::Display) -> Vec<PassedOver> {
    vec![PassedOver { pages, why: why.to_string() }]
}

/// Why there are no transparent huge pages.
#[derive(Debug, Error)]
enum NoTransparentPages {
    #[error("an arena of {0} bytes is smaller than {TRANSPARENT_LEAST}, and not worth them")]
    TooSmall(usize),
    #[error("they are switched off: echo madvise > {TRANSPARENT_MODE}")]
    SwitchedOff,
    #[error("this kernel has none")]
    Unknown,
    #[error("so many bytes no process can have")]
    TooMany,
    #[error(transparent)]
    Map(io::Error),
    #[error("the kernel refused: {0}")]
    Advice(#[source] io::Error),
}

fn transparent(bytes: usize, is_free: bool, node: Option<u32>) -> Result<Mapping, NoTransparentPages> {
    if is_free && bytes < TRANSPARENT_LEAST {
        return Err(NoTransparentPages::TooSmall(bytes));
    }
    check_transparent_mode(&std::fs::read_to_string(TRANSPARENT_MODE).unwrap_or_default())?;
    let len = round_up(bytes, TRANSPARENT_PAGE).ok_or(NoTransparentPages::TooMany)?;
    // Room to begin on a huge page: it costs addresses and no memory.
    let room = len.checked_add(TRANSPARENT_PAGE).ok_or(NoTransparentPages::TooMany)?;
    let map = anonymous(room).map_err(NoTransparentPages::Map)?;
    let start = map.as_mut_ptr().align_offset(TRANSPARENT_PAGE);
    map.advise_range(Advice::HugePage, start, len).map_err(NoTransparentPages::Advice)?;
    Ok(Mapping::of(map, start, len, Pages::Transparent, node))
}

/// The kernel shows its choices with the one that holds in brackets.
fn check_transparent_mode(text: &str) -> Result<(), NoTransparentPages> {
    match text.split_whitespace().find(|word| word.starts_with('[')) {
        Some("[always]" | "[madvise]") => Ok(()),
        Some(_) => Err(NoTransparentPages::SwitchedOff),
        None => Err(NoTransparentPages::Unknown),
    }
}

fn base(bytes: usize, is_free: bool, node: Option<u32>) -> io::Result<Mapping> {
    let len = round_up(bytes, BASE_PAGE).ok_or(io::ErrorKind::OutOfMemory)?;
    let map = anonymous(len)?;
    if !is_free {
        // Who asks for small pages gets them, also where the kernel would make huge ones unasked; one that knows no
        // huge pages refuses the advice, and has followed it.
        let _ = map.advise(Advice::NoHugePage);
    }
    Ok(Mapping::of(map, 0, len, Pages::Base, node))
}

/// Memory that the kernel gives page by page as it is touched.
fn anonymous(len: usize) -> io::Result<MmapRaw> {
    MmapOptions::new().len(len).no_reserve_swap().map_anon().map(MmapRaw::from)
}

fn round_up(bytes: usize, page: usize) -> Option<usize> {
    bytes.max(1).checked_next_multiple_of(page)
}

/// A small file of the kernel's, as text; empty where there is none.
fn read(path: impl AsRef<Path>) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What can be had here, one mapping each, and on stderr what cannot, and why.
    fn every_kind(bytes: usize) -> Vec<Mapping> {
        let huge = [HugePage::Size1G, HugePage::Size2M].map(PageChoice::Huge);
        let choices = huge.into_iter().chain([PageChoice::Transparent, PageChoice::Base, PageChoice::Auto]);
        let tried = choices.map(|choice| Mapping::new(bytes, choice, None));
        let reported = tried.inspect(|result| match result {
            Ok(mapping) => eprintln!("runs on {}", mapping.pages),
            Err(refused) => refused.iter().for_each(|passed| eprintln!("skipped: {passed}")),
        });
        reported.filter_map(Result::ok).collect()
    }

    #[test]
    fn every_kind_that_there_is_begins_on_a_page_and_holds_zeroes_that_can_be_written() {
        let kinds = every_kind(3 << 20);
        assert!(kinds.len() >= 2, "ordinary pages can always be had");
        for mapping in kinds {
            let len = mapping.len();
            assert!(len >= 3 << 20 && len.is_multiple_of(mapping.pages.size()), "{} of {len}", mapping.pages);
            assert_eq!(mapping.base() as usize % mapping.pages.size(), 0);
            // SAFETY: the mapping is that long, ours alone, and zeroed by the kernel.
            let bytes = unsafe { std::slice::from_raw_parts_mut(mapping.base(), len) };
            assert!(bytes.iter().step_by(512).all(|&byte| byte == 0));
            bytes.fill(0xa5);
            assert_eq!((bytes[0], bytes[len - 1]), (0xa5, 0xa5));
        }
    }

    #[test]
    fn a_forced_kind_is_that_kind_or_an_error_and_auto_says_what_it_passed_over() {
        for size in [HugePage::Size1G, HugePage::Size2M] {
            match Mapping::new(4 << 20, PageChoice::Huge(size), None) {
                Ok(mapping) => assert_eq!(mapping.pages.size(), size.bytes()),
                Err(refused) => assert!(refused.iter().all(|passed| passed.why.contains("roci hugepages set"))),
            }
        }
        let mapping = Mapping::new(1 << 20, PageChoice::Auto, None).expect("memory");
        assert_eq!(mapping.pages, Pages::Base, "nothing else is worth so little memory");
        assert_eq!(mapping.passed_over.len(), 3, "{:?}", mapping.passed_over);
    }

    #[test]
    fn sizes_that_no_process_can_have_are_refused() {
        let huge = [HugePage::Size1G, HugePage::Size2M].map(PageChoice::Huge);
        for choice in huge.into_iter().chain([PageChoice::Auto, PageChoice::Transparent, PageChoice::Base]) {
            for absurd in [usize::MAX, usize::MAX - BASE_PAGE, 1 << 62] {
                assert!(Mapping::new(absurd, choice, None).is_err(), "{choice:?} {absurd}");
            }
        }
    }

    #[test]
    fn the_mode_of_transparent_pages_is_read_as_the_kernel_writes_it() {
        assert!(check_transparent_mode("always [madvise] never\n").is_ok());
        assert!(check_transparent_mode("[always] madvise never\n").is_ok());
        let refusal = |text: &str| check_transparent_mode(text).expect_err("no such mode").to_string();
        assert!(refusal("always madvise [never]\n").contains("echo madvise"));
        refusal("[");
        assert!(refusal("").contains("none"));
    }
}
