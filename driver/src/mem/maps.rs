//! What the kernel says about mappings: whether memory is there, and whether a monitor sees all that may happen to it.

use std::fs::File;
use std::io;
use std::ops::Range;

use rustix::ioctl::{Updater, ioctl, opcode};
use static_assertions::const_assert_eq;
use thiserror::Error;

const PATH: &str = "/proc/self/maps";
const PAGE: usize = 4096;

/// Why memory cannot be used at all.
#[derive(Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// Nothing is there.
    #[error("nothing is mapped at {0:#x}: the memory is not the application's, or no longer")]
    NotMapped(usize),
    /// It must not be written.
    #[error("the memory at {0:#x} is not both readable and writable")]
    NotWritable(usize),
}

/// What a range is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Mapped {
    /// The size of the largest page in it.
    pub(super) page: usize,
    /// Whether it is private and anonymous all through, so that nothing happens to it but by calls of this process that
    /// a monitor hears of. A file can be cut short by anybody, and a System V segment vanishes silently: shmdt(2) raises
    /// no event.
    pub(super) is_private: bool,
}

/// One mapping.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Area {
    range: Range<usize>,
    page: usize,
    is_usable: bool,
    is_private: bool,
}

/// The kernel's list of this process's mappings.
#[derive(Debug)]
pub(super) struct Maps {
    file: Option<File>,
    /// Linux 6.11 looks one mapping up; before, the whole list must be read.
    has_query: bool,
}

impl Maps {
    pub(super) fn new() -> Self {
        Self { file: File::open(PATH).ok(), has_query: true }
    }

    /// Looks at all of `range`. Where the kernel's list cannot be read, it is taken for there, and not for private.
    pub(super) fn look(&mut self, range: &Range<usize>) -> Result<Mapped, MemoryError> {
        if let Some(file) = self.file.as_ref().filter(|_| self.has_query) {
            match check(range, |at| query(file, at)) {
                Ok(answer) => return answer,
                Err(_) => self.has_query = false,
            }
        }
        let Ok(text) = std::fs::read_to_string(PATH) else { return Ok(Mapped { page: PAGE, is_private: false }) };
        let areas: Vec<_> = text.lines().filter_map(parse).collect();
        let next = |at| Ok(areas.get(areas.partition_point(|area| area.range.end <= at)).cloned());
        check(range, next).unwrap_or_else(|never: std::convert::Infallible| match never {})
    }
}

/// Goes through the mappings of `range`; `next` gives the one at an address, or behind it.
fn check<E>(
    range: &Range<usize>,
    next: impl Fn(usize) -> Result<Option<Area>, E>,
) -> Result<Result<Mapped, MemoryError>, E> {
    let mut mapped = Mapped { page: PAGE, is_private: true };
    let mut at = range.start;
    while at < range.end {
        let Some(area) = next(at)?.filter(|area| area.range.contains(&at)) else {
            return Ok(Err(MemoryError::NotMapped(at)));
        };
        if !area.is_usable {
            return Ok(Err(MemoryError::NotWritable(at)));
        }
        mapped.page = mapped.page.max(area.page);
        mapped.is_private &= area.is_private;
        at = area.range.end;
    }
    Ok(Ok(mapped))
}

/// What `PROCMAP_QUERY` takes and gives (linux/fs.h, since 6.11).
#[repr(C)]
#[derive(Default)]
struct ProcmapQuery {
    size: u64,
    flags: u64,
    address: u64,
    start: u64,
    end: u64,
    vma_flags: u64,
    page_size: u64,
    offset: u64,
    inode: u64,
    device: [u32; 2],
    name_size: u32,
    build_id_size: u32,
    name: u64,
    build_id: u64,
}

const_assert_eq!(size_of::<ProcmapQuery>(), 104);
const COVERING_OR_NEXT: u64 = 0x10;
const READABLE_WRITABLE: u64 = 0x3;
const SHARED: u64 = 0x8;
const PROCMAP_QUERY: u32 = opcode::read_write::<ProcmapQuery>(b'f', 17);

/// Private huge pages without a file of the application's have a file of the kernel's.
const HUGE: &[u8] = b"/anon_hugepage";

fn query(file: &File, at: usize) -> io::Result<Option<Area>> {
    let mut name = [0u8; 32];
    let mut query = ProcmapQuery {
        size: size_of::<ProcmapQuery>() as u64,
        flags: COVERING_OR_NEXT,
        address: at as u64,
        name_size: name.len() as u32,
        name: name.as_mut_ptr().expose_provenance() as u64,
        ..ProcmapQuery::default()
    };
    // SAFETY: the opcode belongs to `ProcmapQuery`, whose layout is the kernel's, and `name` has `name_size` bytes that live
    // until the call is over.
    let answer = unsafe { ioctl(file, Updater::<PROCMAP_QUERY, ProcmapQuery>::new(&mut query)) };
    match answer {
        Ok(()) => {}
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        // Names that are longer are no huge pages'; without a name the rest comes.
        Err(rustix::io::Errno::NAMETOOLONG) => return Ok(Some(Area { is_private: false, ..nameless(file, at)? })),
        Err(error) => return Err(error.into()),
    }
    Ok(Some(area(&query, name.starts_with(HUGE))))
}

fn nameless(file: &File, at: usize) -> io::Result<Area> {
    let size = size_of::<ProcmapQuery>() as u64;
    let mut query = ProcmapQuery { size, flags: COVERING_OR_NEXT, address: at as u64, ..ProcmapQuery::default() };
    // SAFETY: as in `query`; no name is asked for.
    unsafe { ioctl(file, Updater::<PROCMAP_QUERY, ProcmapQuery>::new(&mut query)) }?;
    Ok(area(&query, false))
}

fn area(query: &ProcmapQuery, is_huge: bool) -> Area {
    Area {
        range: query.start as usize..query.end as usize,
        page: query.page_size as usize,
        is_usable: query.vma_flags & READABLE_WRITABLE == READABLE_WRITABLE,
        is_private: query.vma_flags & SHARED == 0 && (query.inode == 0 || is_huge),
    }
}

/// A line of the list (proc_pid_maps(5)). It does not tell the size of pages: huge ones are not taken for private.
fn parse(line: &str) -> Option<Area> {
    let mut words = line.split_ascii_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    let range = usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?;
    let rights = words.next()?;
    let inode = words.nth(2)?;
    let is_private = rights.ends_with('p') && inode == "0";
    Some(Area { range, page: PAGE, is_usable: rights.starts_with("rw"), is_private })
}

#[cfg(test)]
mod tests {
    use memmap2::{Mmap, MmapMut, MmapOptions};
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

    use super::*;

    fn range(map: &[u8]) -> Range<usize> {
        map.as_ptr().addr()..map.as_ptr().addr() + map.len()
    }

    /// Looks twice, by the kernel's query where it has one, and by the list.
    fn look(range: &Range<usize>) -> Result<Mapped, MemoryError> {
        let mut maps = Maps::new();
        let first = maps.look(range);
        maps.has_query = false;
        assert_eq!(first, maps.look(range));
        first
    }

    #[test]
    fn private_memory_differs_from_shared_memory_and_files() {
        let private = MmapMut::map_anon(3 * PAGE).expect("memory");
        assert_eq!(look(&range(&private)), Ok(Mapped { page: PAGE, is_private: true }));
        let heap = vec![0u8; 100];
        assert_eq!(look(&range(&heap)).map(|mapped| mapped.is_private), Ok(true));

        let file = tempfile::tempfile().expect("a file");
        file.set_len(PAGE as u64).expect("room");
        // SAFETY: nothing else uses the file.
        let shared = unsafe { MmapMut::map_mut(&file) }.expect("memory");
        assert_eq!(look(&range(&shared)).map(|mapped| mapped.is_private), Ok(false));
        // SAFETY: as above.
        let copied = unsafe { MmapOptions::new().map_copy(&file) }.expect("memory");
        assert_eq!(look(&range(&copied)).map(|mapped| mapped.is_private), Ok(false), "its pages may be cut off");
        // SAFETY: as above.
        let read_only = unsafe { Mmap::map(&file) }.expect("memory");
        assert_eq!(look(&range(&read_only)), Err(MemoryError::NotWritable(read_only.as_ptr().addr())));
    }

    #[test]
    fn a_hole_is_found_wherever_it_is() {
        // Far below where the kernel puts what has no place of its own, so that no other thread's memory fills the hole; and
        // above AddressSanitizer's shadow.
        let base = 0x2000_0000_0000;
        let (at, flags) = (std::ptr::without_provenance_mut(base), MapFlags::PRIVATE | MapFlags::FIXED_NOREPLACE);
        // SAFETY: the mapping is new.
        unsafe { mmap_anonymous(at, 4 * PAGE, ProtFlags::READ | ProtFlags::WRITE, flags) }.expect("memory");
        // SAFETY: nothing accesses the mapping.
        unsafe { munmap(std::ptr::without_provenance_mut(base + 2 * PAGE), PAGE) }.expect("it is ours");
        assert_eq!(look(&(base..base + 4 * PAGE)), Err(MemoryError::NotMapped(base + 2 * PAGE)));
        assert!(look(&(base..base + 2 * PAGE)).is_ok() && look(&(base + 3 * PAGE..base + 4 * PAGE)).is_ok());
        assert_eq!(look(&(1 << 62..(1 << 62) + 1)), Err(MemoryError::NotMapped(1 << 62)));
    }

    #[test]
    fn odd_lines_are_passed_over() {
        for line in ["", "x", "1-2", "10-z rw-p 0 0:0 0", "7f00-7f10 rw-p 00000000 00:00"] {
            assert_eq!(parse(line), None, "{line}");
        }
        let area = parse("7f00-7f10 rw-p 00000000 00:00 0          [heap]").expect("a mapping");
        assert_eq!(area, Area { range: 0x7f00..0x7f10, page: PAGE, is_usable: true, is_private: true });
        assert!(!parse("7f00-7f10 rw-s 00000000 00:01 7 /SYSV00000000 (deleted)").expect("a mapping").is_private);
    }
}
