//! Memory of the application's on huge pages of the kernel's pool (mmap with MAP_HUGETLB).

use std::ops::Range;
use std::ptr::NonNull;

use roci_driver::link::sim::SimLink;
use roci_driver::{Engine, MonitorChoice, UserMemory};

use super::areas::place;
use super::{alone, engine, watched};

const HUGE: usize = 2 << 20;
const PAGES: usize = 2;

/// How pages go, and others come to their place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum How {
    /// munmap, then mmap.
    Unmap,
    /// mmap with MAP_FIXED over it.
    MapOver,
    /// mremap to elsewhere, then mmap.
    MoveAway,
    /// MADV_DONTNEED.
    Discard,
}

const WAYS: [How; 4] = [How::Unmap, How::MapOver, How::MoveAway, How::Discard];

/// Some huge pages in one piece.
struct Area(*mut libc::c_void);

impl Area {
    /// `None`, and that is printed, where the pool has not as many as the tests need for a moment.
    fn new() -> Option<Self> {
        let [area, more] = [(); 2].map(|()| map(place(PAGES * HUGE), PAGES, libc::MAP_FIXED_NOREPLACE));
        if let Ok(more) = more {
            unmap(more, PAGES);
        } else {
            let (needed, error) = (2 * PAGES, std::io::Error::last_os_error());
            eprintln!(
                "skipped: there are no {needed} free huge pages of 2 MiB: {error}: make some, roci hugepages set"
            );
        }
        match (area, more) {
            (Ok(at), Ok(_)) => Some(Self(at)),
            (Ok(at), Err(())) => {
                unmap(at, PAGES);
                None
            }
            _ => None,
        }
    }

    fn at(&self, page: usize) -> *mut libc::c_void {
        self.0.wrapping_byte_add(page * HUGE)
    }

    /// The number of the registration of some bytes, which are written once it is there.
    fn adopt(&self, engine: &mut Engine<SimLink>, bytes: Range<usize>) -> Option<u64> {
        let start = NonNull::new(self.0.cast::<u8>().wrapping_add(bytes.start)).expect("it is mapped");
        // SAFETY: the pages are mapped, and nothing else touches them while the buffer lives, which is not for long.
        let memory = unsafe { UserMemory::new(start, bytes.len()) };
        let mut buffer = engine.adopt(memory).expect("it is mapped");
        buffer.fill(1);
        buffer.registration()
    }

    fn replace(&self, pages: Range<usize>, how: How) {
        if how == How::MoveAway && pages.len() > 1 {
            // mremap(2) takes one mapping, which this is no longer once a part of it was replaced.
            return pages.for_each(|page| self.replace(page..page + 1, how));
        }
        let (at, count) = (self.at(pages.start), pages.len());
        let len = count * HUGE;
        let fresh = match how {
            How::Unmap => {
                unmap(at, count);
                map(at, count, libc::MAP_FIXED_NOREPLACE)
            }
            How::MapOver => map(at, count, libc::MAP_FIXED),
            How::MoveAway => {
                let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
                // SAFETY: the memory is not in use, and the place is free.
                let away = unsafe { libc::mremap(at, len, len, flags, place(len)) };
                assert_ne!(away, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
                let fresh = map(at, count, libc::MAP_FIXED_NOREPLACE);
                unmap(away, count);
                fresh
            }
            How::Discard => {
                // SAFETY: the memory is not in use.
                let outcome = unsafe { libc::madvise(at, len, libc::MADV_DONTNEED) };
                assert_eq!(outcome, 0, "{}", std::io::Error::last_os_error());
                Ok(at)
            }
        };
        assert_eq!(fresh, Ok(at), "{how:?}: {}", std::io::Error::last_os_error());
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        unmap(self.0, PAGES);
    }
}

fn map(at: *mut libc::c_void, pages: usize, flags: i32) -> Result<*mut libc::c_void, ()> {
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_HUGETLB | libc::MAP_HUGE_2MB | flags;
    // SAFETY: the place is free, or, with MAP_FIXED, an area's that is not in use.
    let at = unsafe { libc::mmap(at, pages * HUGE, libc::PROT_READ | libc::PROT_WRITE, kind, -1, 0) };
    if at == libc::MAP_FAILED { Err(()) } else { Ok(at) }
}

fn unmap(at: *mut libc::c_void, pages: usize) {
    // SAFETY: the memory is an area's, and not in use.
    assert_eq!(unsafe { libc::munmap(at, pages * HUGE) }, 0);
}

#[test]
fn huge_pages_are_registered_whole_and_found_again() {
    let _alone = alone();
    let (Some(mut engine), Some(area)) = (watched(), Area::new()) else { return };
    let first = area.adopt(&mut engine, HUGE - 100..HUGE + 100);
    assert!(first.is_some(), "{:?}", engine.registration_info());
    assert_eq!(area.adopt(&mut engine, 5..2 * HUGE - 5), first, "all of both pages is registered");
    let stats = engine.registration_stats();
    assert_eq!((stats.misses, stats.hits_fast + stats.hits_slow), (1, 1), "{stats:?}");
    assert_eq!(stats.bytes_registered, (2 * HUGE) as u64);
}

#[test]
fn huge_pages_that_were_replaced_are_registered_anew() {
    let _alone = alone();
    let (Some(mut engine), Some(area)) = (watched(), Area::new()) else { return };
    let all = 3..PAGES * HUGE - 3;
    for how in WAYS {
        for pages in [0..2, 0..1, 1..2] {
            let before = area.adopt(&mut engine, all.clone());
            area.replace(pages.clone(), how);
            let after = area.adopt(&mut engine, all.clone());
            assert!(before.is_some() && after.is_some() && before != after, "{how:?} {pages:?}: {before:?} {after:?}");
            assert_eq!(area.adopt(&mut engine, all.clone()), after, "{how:?} {pages:?}: nothing happened since");
        }
    }
    assert_eq!(engine.registration_stats().registered_once, 0, "the kernel watches huge pages");
}

/// Or the test above would be of no use.
#[test]
fn without_a_monitor_changes_go_unnoticed() {
    let _alone = alone();
    let (mut engine, Some(area)) = (engine(MonitorChoice::UnsafeNone), Area::new()) else { return };
    for how in WAYS {
        let before = area.adopt(&mut engine, 0..HUGE);
        area.replace(0..1, how);
        assert_eq!(area.adopt(&mut engine, 0..HUGE), before, "{how:?}");
    }
}
