//! Memory whose changes the events do not all report is not cached; and memory that comes and goes by other calls than
//! mmap.

use std::ptr::NonNull;

use roci_driver::link::sim::SimLink;
use roci_driver::{AdoptError, Engine, MemoryError, UserMemory};

use super::areas::{Area, PAGE, place};
use super::{alone, watched};

pub(super) const LEN: usize = 4 * PAGE;

pub(super) fn user_memory(at: *mut u8, len: usize) -> UserMemory {
    // SAFETY: the tests drop the buffer before they do anything to the memory.
    unsafe { UserMemory::new(NonNull::new(at).expect("it is somewhere"), len) }
}

/// Adopts it twice, and returns whether the second time was a hit.
fn is_cached(engine: &mut Engine<SimLink>, at: *mut u8) -> bool {
    let before = engine.registration_stats();
    for _ in 0..2 {
        let mut buffer = engine.adopt(user_memory(at, LEN)).expect("it is mapped");
        assert!(buffer.registration().is_some(), "{:?}", engine.registration_info());
        buffer.fill(1);
    }
    let after = engine.registration_stats();
    after.hits_fast + after.hits_slow > before.hits_fast + before.hits_slow
}

/// Maps a file, shared or not.
pub(super) fn map(file: &impl std::os::fd::AsRawFd, kind: i32) -> *mut u8 {
    // SAFETY: the mapping is new.
    let at =
        unsafe { libc::mmap(std::ptr::null_mut(), LEN, libc::PROT_READ | libc::PROT_WRITE, kind, file.as_raw_fd(), 0) };
    assert_ne!(at, libc::MAP_FAILED);
    at.cast()
}

pub(super) fn unmap(at: *mut u8) {
    // SAFETY: it is what `map` gave, and not in use any more.
    assert_eq!(unsafe { libc::munmap(at.cast(), LEN) }, 0);
}

#[test]
fn files_that_anybody_may_cut_short_are_registered_for_each_use() {
    let _alone = alone();
    let Some(mut engine) = watched() else { return };
    let file = tempfile::tempfile().expect("a file");
    for kind in [libc::MAP_SHARED, libc::MAP_PRIVATE] {
        file.set_len(LEN as u64).expect("room");
        let at = map(&file, kind);
        assert!(!is_cached(&mut engine, at));
        // Nothing is registered that could be stale now.
        file.set_len(0).expect("it is ours");
        file.set_len(LEN as u64).expect("room");
        assert!(!is_cached(&mut engine, at));
        unmap(at);
    }
    assert_eq!(engine.registration_stats().registered_once, 8);
}

#[test]
fn shared_memory_without_a_name_and_system_v_segments_are_registered_for_each_use() {
    let _alone = alone();
    let Some(mut engine) = watched() else { return };
    // SAFETY: a memfd of our own.
    let memory = unsafe { libc::memfd_create(c"registration".as_ptr(), libc::MFD_CLOEXEC) };
    // SAFETY: the descriptor is open, and has no other owner.
    let memory: std::fs::File = unsafe { std::os::fd::FromRawFd::from_raw_fd(memory) };
    memory.set_len(LEN as u64).expect("room");
    assert!(!is_cached(&mut engine, map(&memory, libc::MAP_SHARED)));

    // SAFETY: a segment of our own, which goes when it is detached.
    unsafe {
        let segment = libc::shmget(libc::IPC_PRIVATE, LEN, libc::IPC_CREAT | 0o600);
        assert!(segment >= 0, "{}", std::io::Error::last_os_error());
        let at = libc::shmat(segment, place(LEN), 0);
        assert_ne!(at, libc::MAP_FAILED);
        assert!(!is_cached(&mut engine, at.cast()));
        assert_eq!(libc::shmdt(at), 0);
        // Fresh memory at the same place; no event has reported that the segment is gone.
        let fresh = libc::mmap(
            at,
            LEN,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE,
            -1,
            0,
        );
        assert_eq!(fresh, at);
        let misses = engine.registration_stats().misses;
        assert!(is_cached(&mut engine, fresh.cast()), "this is private");
        assert_eq!(engine.registration_stats().misses, misses + 1);
        libc::munmap(fresh, LEN);
        libc::shmctl(segment, libc::IPC_RMID, std::ptr::null_mut());
    }
}

/// Attaches a segment of our own, which goes when it is detached, to where nothing is in use.
fn attach(at: usize, flags: i32) {
    let at = std::ptr::without_provenance_mut(at);
    // SAFETY: the segment is new, and what it takes the place of is a test's.
    unsafe {
        let segment = libc::shmget(libc::IPC_PRIVATE, LEN, libc::IPC_CREAT | 0o600);
        assert!(segment >= 0, "{}", std::io::Error::last_os_error());
        assert_eq!(libc::shmat(segment, at, flags), at, "{}", std::io::Error::last_os_error());
        libc::shmctl(segment, libc::IPC_RMID, std::ptr::null_mut());
    }
}

/// As the documentation of the crate says under "Memory". Should a kernel report it one day, that can go.
#[test]
fn a_segment_attached_over_adopted_memory_goes_unnoticed_unless_that_is_unmapped_first() {
    let _alone = alone();
    let Some(mut engine) = watched() else { return };
    let mut outlives = |replace: &dyn Fn(&Area)| {
        let area = Area::new(4);
        let first = engine.adopt(area.user_memory(&(0..4))).expect("it is mapped").registration();
        replace(&area);
        engine.adopt(area.user_memory(&(0..4))).expect("it is mapped").registration() == first
    };
    assert!(outlives(&|area| attach(area.address(0), libc::SHM_REMAP)));
    let unmap_first = |area: &Area| {
        area.unmap(&(0..4));
        attach(area.address(0), 0);
    };
    assert!(!outlives(&unmap_first));
}

#[test]
fn a_large_block_of_the_heap_that_is_freed_and_comes_back_is_registered_anew() {
    let _alone = alone();
    let Some(mut engine) = watched() else { return };
    /// Above 32 MiB glibc's allocator maps a block by itself, whatever it was asked for before, and unmaps it.
    const LARGE: usize = 40 << 20;
    let mut comes_back = 0;
    for _ in 0..8 {
        let mut block = vec![0u8; LARGE];
        let at = block.as_mut_ptr();
        let first = engine.adopt(user_memory(at, LEN)).expect("it is mapped").registration();
        assert!(first.is_some());
        drop(block);
        let mut block = vec![0u8; LARGE];
        let second = engine.adopt(user_memory(block.as_mut_ptr(), LEN)).expect("it is mapped").registration();
        if block.as_mut_ptr() == at {
            comes_back += 1;
            assert_ne!(first, second, "the block is another");
        }
    }
    assert!(comes_back > 0, "the allocator never gave the same place again");
}

#[test]
fn the_heaps_end_that_is_given_back_and_taken_again_is_registered_anew() {
    let _alone = alone();
    let Some(mut engine) = watched() else { return };
    let sbrk = |by: isize| {
        // SAFETY: the caller checks that the end is still where it left it.
        unsafe { libc::sbrk(by) }
    };
    let adopt = |engine: &mut Engine<SimLink>, at: *mut libc::c_void| {
        engine.adopt(user_memory(at.cast(), LEN)).expect("it is mapped").registration()
    };
    for _ in 0..100 {
        let end = sbrk(0);
        let padding = end.align_offset(PAGE).cast_signed();
        let at = sbrk(padding + LEN.cast_signed()).wrapping_byte_offset(padding);
        let first = adopt(&mut engine, at);
        // The allocator may have gone on from there: then the memory is its own to give back.
        if sbrk(0) != at.wrapping_byte_add(LEN) {
            continue;
        }
        sbrk(-LEN.cast_signed());
        if sbrk(LEN.cast_signed()) != at {
            continue;
        }
        assert!(first.is_some() && adopt(&mut engine, at) != first, "the pages are others");
        return;
    }
    eprintln!("skipped: the allocator moves the heap's end all the time");
}

#[test]
fn memory_that_must_not_be_written_is_refused_and_what_was_protected_meanwhile_is_the_same() {
    let _alone = alone();
    let Some(mut engine) = watched() else { return };
    let area = Area::new(4);
    let at = area.address(0) as *mut libc::c_void;
    let first = engine.adopt(area.user_memory(&(0..4))).expect("it is mapped").registration();
    for protection in [libc::PROT_NONE, libc::PROT_READ | libc::PROT_WRITE] {
        // SAFETY: it is not in use.
        assert_eq!(unsafe { libc::mprotect(at, LEN, protection) }, 0);
    }
    let again = engine.adopt(area.user_memory(&(0..4))).expect("it is mapped").registration();
    assert_eq!(first, again, "protection does not change pages");

    let other = Area::new(1);
    // SAFETY: it is not in use.
    assert_eq!(unsafe { libc::mprotect(other.address(0) as *mut libc::c_void, PAGE, libc::PROT_READ) }, 0);
    let error = engine.adopt(other.user_memory(&(0..1))).expect_err("it is read-only");
    assert_eq!(error, AdoptError::Memory(MemoryError::NotWritable(other.address(0) + 3)));
}
