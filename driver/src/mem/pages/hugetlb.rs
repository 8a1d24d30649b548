//! Huge pages of the kernel's pools.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use memmap2::{Advice, MmapOptions, MmapRaw};
use rustix::fs::{FallocateFlags, MemfdFlags};
use rustix::io::Errno;
use thiserror::Error;

use super::{Mapping, Pages, PassedOver, read, round_up};

/// Sizes of huge pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HugePage {
    /// 2 MiB.
    Size2M,
    /// 1 GiB.
    Size1G,
}

impl HugePage {
    /// The size.
    pub const fn bytes(self) -> usize {
        match self {
            Self::Size2M => 2 << 20,
            Self::Size1G => 1 << 30,
        }
    }

    /// The size as mount options and `roci hugepages` write it.
    const fn short(self) -> &'static str {
        match self {
            Self::Size2M => "2M",
            Self::Size1G => "1G",
        }
    }

    const fn memfd_flags(self) -> MemfdFlags {
        let size = match self {
            Self::Size2M => MemfdFlags::HUGE_2MB,
            Self::Size1G => MemfdFlags::HUGE_1GB,
        };
        MemfdFlags::HUGETLB.union(MemfdFlags::CLOEXEC).union(size)
    }
}

impl fmt::Display for HugePage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Size2M => "2 MiB",
            Self::Size1G => "1 GiB",
        })
    }
}

/// Why a pool has given no pages.
#[derive(Debug, Error)]
enum PoolRefusal {
    #[error("an arena of {0} bytes would waste too much of them")]
    Waste(usize),
    #[error("it cannot be written: {0}; a memfd needs no mount")]
    Unwritable(#[source] io::Error),
    #[error("{shortage}: roci hugepages set {count} --size {}", .size.short())]
    Short {
        #[source]
        shortage: PoolShortage,
        /// How many pages would do.
        count: usize,
        size: HugePage,
    },
}

/// What a pool lacks.
#[derive(Debug, Error)]
enum PoolShortage {
    #[error("so many no machine has")]
    TooMany,
    #[error("memfd_create: {0}")]
    Memfd(#[source] Errno),
    #[error("this machine has no pool of {0} pages")]
    NoPool(HugePage),
    #[error("it takes {count}, and {left} of {all} are free")]
    TooFew { count: usize, left: u64, all: u64 },
    #[error(
        "{left} of {all} are free, but the kernel does not give {count} to this process: {error} \
         (a limit of hugetlbfs, of a control group or of a cpuset)"
    )]
    Withheld {
        count: usize,
        left: u64,
        all: u64,
        #[source]
        error: io::Error,
    },
}

/// Maps `bytes`: first over a mounted hugetlbfs, whose pages may be set aside for it, then over a memfd.
pub(super) fn map(bytes: usize, size: HugePage, is_free: bool, node: Option<u32>) -> Result<Mapping, Vec<PassedOver>> {
    let memfd = |why: PoolRefusal| super::passed(Pages::HugetlbMemfd(size), why);
    if is_free && waste(bytes, size) {
        return Err(memfd(PoolRefusal::Waste(bytes)));
    }
    let short = |shortage, count| PoolRefusal::Short { shortage, count, size };
    let Some(len) = round_up(bytes, size.bytes()) else { return Err(memfd(short(PoolShortage::TooMany, 1))) };
    let mut refused = Vec::new();
    for mount in mounts(&read("/proc/self/mounts"), size) {
        let file = unnamed_file(&mount).map_err(PoolRefusal::Unwritable);
        let pages = Pages::Hugetlbfs { size, mount };
        match file.and_then(|file| map_file(&file, len, size, pages.clone(), node)) {
            Ok(mapping) => return Ok(mapping),
            Err(why) => refused.push(PassedOver { pages, why: format!("{why} (roci hugepages set makes pages)") }),
        }
    }
    let file = rustix::fs::memfd_create("roci-arena", size.memfd_flags());
    let file = file.map_err(|error| short(PoolShortage::Memfd(error), len / size.bytes()));
    let pages = Pages::HugetlbMemfd(size);
    file.and_then(|file| map_file(&file, len, size, pages, node)).map_err(|why| {
        refused.extend(memfd(why));
        refused
    })
}

/// Whether a page is too large for an arena that could do without: of 1 GiB no part is spent, of 2 MiB not more than
/// what the arena has anyway.
fn waste(bytes: usize, size: HugePage) -> bool {
    match size {
        HugePage::Size1G => bytes == 0 || !bytes.is_multiple_of(size.bytes()),
        HugePage::Size2M => bytes < size.bytes(),
    }
}

/// Where pages of this size are mounted; `text` is a table of mounts, whose kinds and options the kernel wrote.
fn mounts(text: &str, size: HugePage) -> Vec<PathBuf> {
    let mount = |line: &str| {
        let mut words = line.split(' ');
        let (path, kind, options) = (words.nth(1)?, words.next()?, words.next()?);
        let is_ours = kind == "hugetlbfs" && is_writable(options) && page_size(options) == Some(size.bytes());
        is_ours.then(|| PathBuf::from(unescape(path)))
    };
    text.lines().filter_map(mount).collect()
}

fn is_writable(options: &str) -> bool {
    options.split(',').all(|option| option != "ro")
}

fn page_size(options: &str) -> Option<usize> {
    let value = options.split(',').find_map(|option| option.strip_prefix("pagesize="))?;
    match value {
        "2M" | "2048K" => Some(HugePage::Size2M.bytes()),
        "1G" | "1024M" => Some(HugePage::Size1G.bytes()),
        _ => None,
    }
}

/// The kernel writes blanks, tabs, newlines and backslashes of a path as a backslash and three octal digits.
fn unescape(path: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .iter()
        .fold(path.to_owned(), |path, (escaped, plain)| path.replace(escaped, plain))
}

/// Returns a fresh file that no other process can open and that goes with its last descriptor.
fn unnamed_file(mount: &Path) -> io::Result<std::os::fd::OwnedFd> {
    let path = mount.join(format!("roci-{:016x}", rand::random::<u64>()));
    let file: File = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file.into())
}

/// Maps the file whole and touches every page, so that none is missing later.
fn map_file(
    file: impl AsFd,
    len: usize,
    size: HugePage,
    pages: Pages,
    node: Option<u32>,
) -> Result<Mapping, PoolRefusal> {
    let count = len / size.bytes();
    let refused = |error: io::Error| PoolRefusal::Short { shortage: lacking(error, count, size), count, size };
    rustix::fs::ftruncate(&file, len as u64).map_err(|error| refused(error.into()))?;
    let map = MmapOptions::new().len(len).map_raw(&file.as_fd()).map_err(refused)?;
    let mapping = Mapping::of(map, 0, len, pages, node);
    touch(&mapping.map, &file).map_err(refused)?;
    Ok(mapping)
}

/// The kernel sets pages aside when it maps, but what a control group or a memory policy forbids it says only when they
/// are touched, and then by SIGBUS: so this asks it to touch them all, which fails with an error instead.
fn touch(map: &MmapRaw, file: impl AsFd) -> io::Result<()> {
    match map.advise(Advice::PopulateWrite) {
        // Kernels before 5.14 do not know the advice; they allocate through the file.
        Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
            Ok(rustix::fs::fallocate(file, FallocateFlags::empty(), 0, map.len() as u64)?)
        }
        result => result,
    }
}

/// What the kernel's error means here.
fn lacking(error: io::Error, count: usize, size: HugePage) -> PoolShortage {
    let number = |name: &str| {
        let pool = format!("/sys/kernel/mm/hugepages/hugepages-{}kB", size.bytes() >> 10);
        read(Path::new(&pool).join(name)).trim().parse::<u64>().ok()
    };
    let (Some(all), Some(free)) = (number("nr_hugepages"), number("free_hugepages")) else {
        return PoolShortage::NoPool(size);
    };
    let promised = number("resv_hugepages").unwrap_or(0);
    let left = free.saturating_sub(promised);
    if left < count as u64 {
        return PoolShortage::TooFew { count, left, all };
    }
    PoolShortage::Withheld { count, left, all, error }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn mounts_are_distinguished_by_size_and_rights() {
        let text = "proc /proc proc rw 0 0\n\
                    none /dev/hugepages hugetlbfs rw,relatime,pagesize=2M 0 0\n\
                    none /mnt/with\\040blank hugetlbfs rw,pagesize=1024M,size=4G 0 0\n\
                    none /mnt/ro hugetlbfs ro,relatime,pagesize=2M 0 0\n\
                    none /mnt/odd hugetlbfs rw,pagesize=16M 0 0\n\
                    hugetlbfs\n";
        assert_eq!(mounts(text, HugePage::Size2M), [PathBuf::from("/dev/hugepages")]);
        assert_eq!(mounts(text, HugePage::Size1G), [PathBuf::from("/mnt/with blank")]);
    }

    #[test]
    fn pages_are_not_wasted_on_arenas_that_need_none() {
        assert!(waste((1 << 30) - 1, HugePage::Size1G) && waste((1 << 30) + 1, HugePage::Size1G));
        assert!(!waste(2 << 30, HugePage::Size1G) && !waste((2 << 20) + 1, HugePage::Size2M));
        assert!(waste((2 << 20) - 1, HugePage::Size2M) && waste(0, HugePage::Size1G));
    }

    #[test]
    fn a_refusal_says_how_many_are_missing_and_what_makes_them() {
        let Err(refused) = map(1 << 46, HugePage::Size2M, false, None) else { panic!("64 TiB of huge pages?") };
        let last = refused.last().expect("the memfd's").to_string();
        assert!(last.contains("roci hugepages set 33554432 --size 2M"), "{last}");
    }

    proptest! {
        #[test]
        fn no_table_of_mounts_takes_the_parser_down(text in "(hugetlbfs|pagesize=2M| |,|\n|\\PC){0,40}") {
            let _ = mounts(&text, HugePage::Size2M);
        }
    }
}
