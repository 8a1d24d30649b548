//! Forks: the child has no engine, and the parent keeps what it has.

use roci_driver::link::sim::SimLink;
use roci_driver::{Access, AdoptError, ArenaError, Engine, MonitorChoice, PostError, SendWr};

use super::areas::{Area, How};
use super::common::Wire;
use super::gaps;
use super::oracle::{Oracle, Verdict};
use super::{alone, config, watched};

/// Runs `child` in a forked child, while `parent` runs here; the child's outcome.
fn fork(child: impl FnOnce() -> bool, parent: impl FnOnce()) -> bool {
    // SAFETY: the child calls what may be called after a fork of a process with threads, as glibc has it: the allocator
    // works, and no lock is taken that another thread may hold, because these tests run one at a time. It ends without
    // running anybody's destructors.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "{}", std::io::Error::last_os_error());
    if pid == 0 {
        let is_good = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child)).unwrap_or(false);
        // SAFETY: it ends the child.
        unsafe { libc::_exit(i32::from(!is_good)) };
    }
    parent();
    let mut status = 0;
    // SAFETY: the child is ours, and has not been waited for.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
}

#[test]
fn a_childs_calls_are_refused_by_name_and_the_parent_goes_on() {
    let _alone = alone();
    let mut wire = Wire::new(None);
    for end in &mut wire.ends {
        end.engine.configure_registration(config(MonitorChoice::Auto)).expect("a monitor, or none");
    }
    let area = Area::new(4);
    let buffer = wire.ends[0].engine.adopt(area.user_memory(&(0..4))).expect("it is mapped");
    drop(buffer);
    let buffer = wire.buffer(0, b"child");
    let child = || {
        let end = &mut wire.ends[0];
        let is_refused = matches!(end.engine.adopt(area.user_memory(&(0..4))), Err(AdoptError::Forked));
        let refused = end.engine.post_send(end.qp, SendWr::send(1, buffer)).expect_err("it is the parent's");
        let message = refused.why.to_string();
        is_refused
            && end.engine.is_forked()
            && refused.why == PostError::Forked
            && message.contains("forked")
            && end.engine.poll() == 0
    };
    assert!(fork(child, || {}));
    assert!(!wire.ends[0].engine.is_forked());
    let bytes = wire.buffer(0, b"parent");
    wire.post_recv(1, 64);
    wire.post(0, SendWr::send(1, bytes));
    let received = wire.wait(1);
    assert_eq!(&received.buffer[..received.len], b"parent");
}

#[test]
fn a_child_cuts_no_buffers_and_changes_no_regions_for_both_are_the_parents() {
    let _alone = alone();
    let mut engine: Engine<SimLink> = Engine::new(1 << 20).expect("memory");
    let pd = engine.alloc_pd();
    let buffer = |engine: &Engine<SimLink>| engine.buffer(64).expect("room");
    let region = engine.register(pd, buffer(&engine), Access::LOCAL).expect("room");
    engine.write_region(pd, region, 0, b"parent").expect("it fits");
    let spare = buffer(&engine);
    let child = || {
        let error = engine.buffer(64).expect_err("the arena is the parent's");
        matches!(error, ArenaError::Forked)
            && error.to_string().contains("forked")
            && engine.write_region(pd, region, 0, b"child").is_none()
            && engine.deregister(region).is_none()
            && engine.register(pd, spare, Access::LOCAL).is_err()
    };
    assert!(fork(child, || {}));
    let mut bytes = [0; 6];
    engine.read_region(pd, region, 0, &mut bytes).expect("it fits");
    assert_eq!(&bytes, b"parent");
    assert!(engine.deregister(region).is_some() && engine.buffer(64).is_ok());
}

#[test]
fn what_was_forgotten_before_a_fork_is_refused_in_the_child_like_all_else() {
    let _alone = alone();
    for is_place_taken in [true, false] {
        let Some(mut engine) = watched() else { return };
        let (area, other) = (Area::new(4), Area::new(4));
        let file = tempfile::tempfile().expect("a file");
        file.set_len(gaps::LEN as u64).expect("room");
        let shared = gaps::map(&file, libc::MAP_SHARED);
        drop(engine.adopt(area.user_memory(&(0..4))).expect("it is mapped"));
        area.replace(&(0..4), How::Unmap);
        // The next miss takes the region out of the cache. Its place goes to another region, or to none.
        let next = if is_place_taken { other.user_memory(&(0..4)) } else { gaps::user_memory(shared, gaps::LEN) };
        drop(engine.adopt(next).expect("it is mapped"));
        assert_eq!(engine.registration_stats().invalidations, 1);
        let child = || matches!(engine.adopt(area.user_memory(&(0..4))), Err(AdoptError::Forked));
        assert!(fork(child, || {}), "the place was taken: {is_place_taken}");
        gaps::unmap(shared);
    }
}

#[test]
fn a_child_may_drop_the_engine_and_open_its_own_whose_cache_is_empty() {
    let _alone = alone();
    let Some(mut engine) = watched() else { return };
    let area = Area::new(4);
    drop(engine.adopt(area.user_memory(&(0..4))).expect("it is mapped"));
    let mut engine = Some(engine);
    let child = || {
        drop(engine.take());
        let mut own: Engine<SimLink> = Engine::new(1 << 20).expect("memory");
        own.configure_registration(config(MonitorChoice::Userfaultfd)).expect("the parent had one");
        let first = own.adopt(area.user_memory(&(0..4))).expect("it is mapped").registration();
        area.replace(&(1..2), How::Unmap);
        let second = own.adopt(area.user_memory(&(0..4))).expect("it is mapped").registration();
        let stats = own.registration_stats();
        first.is_some() && first != second && stats.misses == 2 && stats.invalidations == 1
    };
    assert!(fork(child, || {}));
    let engine = engine.as_mut().expect("only the child took it");
    let hits = engine.registration_stats().hits_fast;
    drop(engine.adopt(area.user_memory(&(0..4))).expect("it is mapped"));
    assert_eq!(engine.registration_stats().hits_fast, hits + 1, "the parent's cache is as it was");
}

#[test]
fn a_child_that_lives_on_holds_up_neither_the_monitor_nor_its_end() {
    let _alone = alone();
    let Some(mut engine) = watched() else { return };
    let area = Area::new(8);
    let mut oracle = Oracle::new(&area);
    drop(engine.adopt(area.user_memory(&(0..8))).expect("it is mapped"));
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let child = || {
        let mut byte = [0];
        // The child has the parent's descriptors, and among them its userfaultfd, until the parent says so.
        std::io::Read::read(&mut &reader, &mut byte).is_ok()
    };
    let parent = || {
        oracle.replace(&(2..3), How::Unmap);
        let buffer = engine.adopt(area.user_memory(&(0..8))).expect("it is mapped");
        assert_eq!(oracle.judge(&(0..8), &buffer), Verdict::Fresh);
        drop(buffer);
        assert_eq!(engine.registration_stats().invalidations, 1);
        drop(engine);
        // There is no reader any more: this would wait for ever if the memory were still watched.
        area.replace(&(0..8), How::Unmap);
        std::io::Write::write_all(&mut &writer, &[1]).expect("the child waits");
    };
    assert!(fork(child, parent));
}
