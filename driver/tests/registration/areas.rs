//! Memory as applications have it, and what they do to it.

use std::ops::Range;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use roci_driver::UserMemory;

pub(crate) const PAGE: usize = 4096;

/// How memory is taken away and replaced by fresh pages at the same place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum How {
    /// munmap, then mmap.
    Unmap,
    /// mmap with MAP_FIXED over it.
    MapOver,
    /// mremap to elsewhere, then mmap.
    MoveAway,
    /// mremap of other memory with MREMAP_FIXED over it.
    MoveOnto,
    /// mremap with MREMAP_DONTUNMAP: the pages go, the mapping stays.
    MoveOut,
    /// munlock and MADV_DONTNEED.
    Discard,
    /// MADV_DONTNEED_LOCKED, which also discards what is locked.
    DiscardLocked,
    /// munlock and MADV_FREE, and then the kernel takes the pages.
    Free,
    /// mremap to a smaller size, and back.
    Shrink,
}

pub(crate) const WAYS: [How; 9] = [
    How::Unmap,
    How::MapOver,
    How::MoveAway,
    How::MoveOnto,
    How::MoveOut,
    How::Discard,
    How::DiscardLocked,
    How::Free,
    How::Shrink,
];

/// A place for `len` bytes, each time another, far below where the kernel maps what has no place of its own: it fills the
/// highest hole that fits, and so never one that a test leaves here for a moment.
pub(crate) fn place(len: usize) -> *mut libc::c_void {
    static NEXT: AtomicUsize = AtomicUsize::new(0x2000_0000_0000);
    std::ptr::without_provenance_mut(NEXT.fetch_add(len.next_multiple_of(1 << 21) + (1 << 21), Relaxed))
}

/// Private anonymous pages in one piece.
pub(crate) struct Area {
    base: *mut libc::c_void,
    pages: usize,
}

// SAFETY: it is an address; who uses what of the memory when is the tests' matter.
unsafe impl Send for Area {}
// SAFETY: as above.
unsafe impl Sync for Area {}

const READ_WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;
const ANONYMOUS: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;

/// Fresh pages, anywhere or at a place.
fn map(at: *mut libc::c_void, len: usize, flags: i32) -> *mut libc::c_void {
    // SAFETY: with MAP_FIXED the place is an area's, whose bytes are not in use meanwhile; else it is new.
    let at = unsafe { libc::mmap(at, len, READ_WRITE, ANONYMOUS | flags, -1, 0) };
    assert_ne!(at, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
    at
}

fn unmap(at: *mut libc::c_void, len: usize) {
    // SAFETY: the memory is an area's, and not in use.
    assert_eq!(unsafe { libc::munmap(at, len) }, 0);
}

impl Area {
    pub(crate) fn new(pages: usize) -> Self {
        let len = pages * PAGE;
        Self { base: map(place(len), len, libc::MAP_FIXED_NOREPLACE), pages }
    }

    pub(crate) fn pages(&self) -> usize {
        self.pages
    }

    fn at(&self, page: usize) -> *mut libc::c_void {
        assert!(page <= self.pages);
        self.base.wrapping_byte_add(page * PAGE)
    }

    pub(crate) fn address(&self, page: usize) -> usize {
        self.at(page).addr()
    }

    /// Returns the bytes of some pages, but for a few at both ends, for an engine to adopt.
    pub(crate) fn user_memory(&self, pages: &Range<usize>) -> UserMemory {
        let start = NonNull::new(self.at(pages.start).cast::<u8>().wrapping_add(3)).expect("it is mapped");
        assert!(pages.end <= self.pages);
        // SAFETY: the pages are mapped, and while they are adopted the tests keep them so, and access them by the
        // buffer only. A test that breaks this does not touch the buffer any more.
        unsafe { UserMemory::new(start, pages.len() * PAGE - 6) }
    }

    /// Replaces pages, which are not in use meanwhile, and touches the fresh ones.
    pub(crate) fn replace(&self, pages: &Range<usize>, how: How) {
        if matches!(how, How::MoveAway | How::MoveOnto | How::MoveOut) {
            // mremap(2) takes what is one mapping in the kernel's eyes; what is locked in part is several.
            pages.clone().for_each(|page| replace_all(self.at(page), PAGE, how));
        } else {
            replace_all(self.at(pages.start), pages.len() * PAGE, how);
        }
    }

    /// Takes pages away for good.
    pub(crate) fn unmap(&self, pages: &Range<usize>) {
        unmap(self.at(pages.start), pages.len() * PAGE);
    }
}

fn replace_all(at: *mut libc::c_void, len: usize, how: How) {
    match how {
        How::Unmap => {
            unmap(at, len);
            map(at, len, libc::MAP_FIXED_NOREPLACE);
        }
        How::MapOver => drop(map(at, len, libc::MAP_FIXED)),
        How::MoveAway => {
            let away = remap(at, len, libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED, map(null_mut(), len, 0));
            map(at, len, libc::MAP_FIXED_NOREPLACE);
            unmap(away, len);
        }
        How::MoveOnto => {
            remap(map(null_mut(), len, 0), len, libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED, at);
        }
        How::MoveOut => {
            let away = remap(at, len, libc::MREMAP_MAYMOVE | libc::MREMAP_DONTUNMAP, null_mut());
            unmap(away, len);
        }
        How::Discard => advise(at, len, libc::MADV_DONTNEED),
        How::DiscardLocked => {
            // SAFETY: as everywhere here.
            let is_done = unsafe { libc::madvise(at, len, MADV_DONTNEED_LOCKED) } == 0;
            // Before Linux 5.18 there is no such advice.
            if !is_done {
                advise(at, len, libc::MADV_DONTNEED);
            }
        }
        How::Free => {
            advise(at, len, libc::MADV_FREE);
            // Freed pages go when memory is short; this makes it so for them.
            advise(at, len, libc::MADV_PAGEOUT);
        }
        How::Shrink => {
            // Only the end of a mapping can be cut off by this: it is one page long, and grows to both.
            unmap(at, len);
            let one = map(at, len, libc::MAP_FIXED_NOREPLACE);
            touch(one, len);
            // SAFETY: as everywhere here.
            let shorter = unsafe { libc::mremap(one, len, PAGE, 0) };
            assert_eq!(shorter, one);
            if len > PAGE {
                map(at.wrapping_byte_add(PAGE), len - PAGE, libc::MAP_FIXED_NOREPLACE);
            }
        }
    }
    touch(at, len);
}

/// Discards pages after unlocking them, because madvise(2) refuses locked ones; it does so again where an engine has
/// locked them meanwhile, with others around them. libc's munlock does nothing under AddressSanitizer, which takes its
/// place.
fn advise(at: *mut libc::c_void, len: usize, advice: i32) {
    for _ in 0..ATTEMPTS {
        // SAFETY: as everywhere here.
        let outcome = unsafe {
            rustix::mm::munlock(at, len).expect("it is mapped");
            libc::madvise(at, len, advice)
        };
        if outcome == 0 {
            return;
        }
    }
    panic!("advice {advice}: {}", std::io::Error::last_os_error());
}

fn remap(from: *mut libc::c_void, len: usize, flags: i32, to: *mut libc::c_void) -> *mut libc::c_void {
    // SAFETY: as everywhere here.
    let at = unsafe { libc::mremap(from, len, len, flags, to) };
    assert_ne!(at, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
    at
}

fn touch(at: *mut libc::c_void, len: usize) {
    for page in 0..len / PAGE {
        // SAFETY: the page was just mapped here.
        unsafe { at.wrapping_byte_add(page * PAGE).cast::<u8>().write_volatile(1) };
    }
}

const MADV_DONTNEED_LOCKED: i32 = 24;
const ATTEMPTS: usize = 10_000;

impl Drop for Area {
    fn drop(&mut self) {
        unmap(self.base, self.pages * PAGE);
    }
}
