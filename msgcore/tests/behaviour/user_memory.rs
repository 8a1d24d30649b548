//! Messages from and into memory of the application's own, by every protocol.

use std::ptr::NonNull;

use roci_msgcore::{Buffer, CallError, OpError, Pattern, Refused, Source, Tag, UserMemory};
use roci_testkit::World as _;

use super::common::{World, pattern};

/// Lends a part of `memory` that begins anywhere.
fn adopt(world: &mut World, who: usize, memory: &mut Box<[u8]>, len: usize) -> Buffer {
    let part = &mut memory[13..13 + len];
    // SAFETY: the tests look at the memory again only when the buffer, with all its pieces, has gone; and it outlives
    // the worlds.
    let memory = unsafe { UserMemory::new(NonNull::from(part).cast(), len) };
    world.workers[who].adopt(memory).expect("it is there")
}

/// Sends these bytes twice from memory of one rank's application into memory of the other's.
fn exchange(settings: &[(&str, &str)], sizes: &[usize]) -> World {
    let longest = sizes.iter().max().expect("some");
    let [mut from, mut into] = [(); 2].map(|()| vec![0u8; longest + 64].into_boxed_slice());
    let mut world = World::pair(settings);
    for (round, &len) in sizes.iter().chain(sizes).enumerate() {
        let bytes = pattern(len, round);
        let mut payload = adopt(&mut world, 0, &mut from, len);
        payload.copy_from_slice(&bytes);
        let room = adopt(&mut world, 1, &mut into, len);
        let tag = round as u64;
        let receive = world.workers[1].recv_with(Pattern::new(Source::Any, Tag::new(tag)), room).expect("accepted");
        let send = world.workers[0].send(1.into(), Tag::new(tag), payload).expect("accepted");
        let received = world.wait(1, receive).expect("it comes");
        assert!(received.buffer.is_users() && received.len == len, "{len}: {} bytes", received.len);
        assert!(received.buffer[..len] == *bytes, "{len}: the bytes differ");
        let sent = world.wait(0, send).expect("it goes");
        assert!(sent.buffer.is_users() && *sent.buffer == *bytes);
        drop((sent, received));
        assert!(into[13..13 + len] == *bytes, "{len}: it is somewhere else");
        assert!(into[..13].iter().chain(&into[13 + longest..]).all(|&byte| byte == 0), "{len}: too much was written");
    }
    world
}

const SIZES: [usize; 8] = [0, 1, 63, 4096, 8153, 65_537, 300_001, 2_500_003];

#[test]
fn every_protocol_carries_it_whether_it_is_registered_or_not() {
    for protocol in ["auto", "r3", "rget", "rput", "pipeline"] {
        for pin in ["auto", "lock"] {
            let settings = [
                ("rndv_protocol", protocol),
                ("pipeline_threshold", "64KiB"),
                ("pipeline_chunk", "64KiB"),
                ("dreg_pin", pin),
            ];
            let world = exchange(&settings, &SIZES);
            let stats = world.workers[0].inside().registration_stats();
            // Nothing to register where there are no bytes.
            let (bypassed, registered) = if pin == "auto" { (16, 0) } else { (2, 14) };
            assert_eq!((stats.bypassed, stats.adopted()), (bypassed, bypassed + registered), "{protocol} {pin}");
        }
    }
}

#[test]
fn the_second_time_it_is_registered_already() {
    let world = exchange(&[("dreg_pin", "lock")], &[65_537, 300_001]);
    for worker in &world.workers {
        let (stats, info) = (worker.inside().registration_stats(), worker.inside().registration_info());
        if info.monitor == "none" {
            eprintln!("skipped: {:?}", info.reason);
            continue;
        }
        // The longer one takes the shorter one in.
        assert_eq!((stats.misses, stats.hits_fast + stats.hits_slow), (2, 2), "{stats:?}");
        assert_eq!((stats.merges, stats.regions), (1, 1), "{stats:?}");
    }
}

#[test]
fn with_the_cache_off_each_message_is_registered_by_itself() {
    let world = exchange(&[("dreg_pin", "lock"), ("dreg_cache", "off")], &[4096]);
    let stats = world.workers[0].inside().registration_stats();
    assert_eq!((stats.misses, stats.registered_once, stats.hits_fast + stats.hits_slow), (2, 2, 0));
    assert_eq!(world.workers[0].inside().registration_info().monitor, "none");
}

#[test]
fn what_exceeds_the_limits_is_copied_and_arrives_all_the_same() {
    let world = exchange(&[("dreg_pin", "lock"), ("dreg_cache_limit", "64KiB")], &[300_001]);
    let stats = world.workers[0].inside().registration_stats();
    assert_eq!((stats.misses, stats.unregistered, stats.regions), (2, 2, 0));
}

#[test]
fn memory_of_the_applications_is_not_kept_by_the_worker() {
    let mut memory = vec![0u8; 1 << 14].into_boxed_slice();
    let mut world = World::pair(&[]);
    world.connect_all();
    // As long as a vbuf, which the worker would keep if it were one.
    let mut buffer = adopt(&mut world, 0, &mut memory, 8192);
    buffer.fill(7);
    world.workers[0].give_back(buffer);
    let vbufs = world.workers[0].stats().vbufs;
    let receive = world.recv(0, Tag::new(1), 100);
    let send = world.send(1, 1, &[1; 100]);
    world.expect(0, receive, &[1; 100]);
    world.wait(1, send).expect("it goes");
    assert_eq!(world.workers[0].stats().vbufs, vbufs);
    assert!(memory[13..13 + 8192].iter().all(|&byte| byte == 7));
}

#[test]
fn a_child_is_named_that_the_worker_is_its_parents() {
    let mut world = World::pair(&[]);
    world.connect_all();
    let receive = world.recv(0, Tag::new(1), 100);
    let buffer = world.workers[0].buffer(1).expect("memory");
    // SAFETY: the child calls nothing that another thread of this test may hold a lock of, and ends at once.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let worker = &mut world.workers[0];
        let is_refused = (0..1000).all(|_| !worker.progress())
            && worker.buffer(1).is_err()
            && matches!(worker.send(1.into(), Tag::new(1), buffer), Err(Refused { why: CallError::Forked, .. }))
            && matches!(
                worker.recv(Source::Any, Tag::new(1), memory_of(100)),
                Err(Refused { why: CallError::Forked, .. })
            )
            && matches!(worker.wait(receive), Err(OpError::Forked))
            && worker.barrier() == Err(OpError::Forked)
            && worker.is_forked();
        // SAFETY: it ends the child.
        unsafe { libc::_exit(i32::from(!is_refused)) };
    }
    let mut status = 0;
    // SAFETY: the child is ours, and has not been waited for.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0);
    let send = world.send(1, 1, b"parent");
    world.expect(0, receive, b"parent");
    world.wait(1, send).expect("it goes");
}

fn memory_of(len: usize) -> Buffer {
    roci_driver::Arena::new(len).expect("memory").buffer(len).expect("room")
}

/// A multi-receive into memory that begins and ends anywhere: the last message takes what is left of it.
#[test]
fn messages_lie_one_behind_the_other_in_it() {
    for protocol in ["r3", "rget", "rput", "pipeline"] {
        let mut into = vec![0u8; 64 + 20_999].into_boxed_slice();
        let mut world = World::pair(&[("rndv_protocol", protocol), ("eager_threshold", "1000"), ("dreg_pin", "lock")]);
        let room = adopt(&mut world, 1, &mut into, 20_999);
        let _ = world.workers[1].recv_multi(Pattern::new(Source::Any, Tag::new(1)), room, 0, 5).expect("accepted");
        let sends = [100, 20_000, 800, 7].map(|len| world.send(0, 1, &pattern(len, len)));
        let mut done: Vec<_> =
            (0..5).map(|_| world.find("a completion", |world| world.workers[1].poll_completion())).collect();
        let rest = done.pop().expect("five");
        assert!(rest.is_last && rest.outcome.expect("used up").buffer.is_empty());
        for completion in done {
            let done = completion.outcome.expect("it comes");
            assert!(done.buffer.is_users() && *done.buffer == *pattern(done.len, done.len), "{protocol} {}", done.len);
        }
        for send in sends {
            drop(world.wait(0, send).expect("sent"));
        }
        for (at, len) in [(0, 100), (128, 20_000), (20_160, 800), (20_992, 7)] {
            assert!(into[13 + at..13 + at + len] == *pattern(len, len), "{protocol} {len}: it is somewhere else");
        }
        assert!(into[..13].iter().chain(&into[13 + 20_999..]).all(|&byte| byte == 0), "too much was written");
    }
}
