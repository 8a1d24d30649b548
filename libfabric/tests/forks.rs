//! A forked child of a process with endpoints. It has none of the provider's threads.

mod common;

use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};

use common::{End, Pair, pattern};
use roci_fi::abi::attributes::{FI_PROGRESS_AUTO, FI_PROGRESS_MANUAL, fi_info};

/// Seconds after which a child hangs.
const PATIENCE: u32 = 20;
const FORKS: usize = 60;

fn exchange(pair: &Pair, context: usize) {
    let (bytes, mut room) = (pattern(64, context), vec![0; 64]);
    assert_eq!(pair.ends[1].trecv(pair.numbers[1], (7, 0), &mut room, context), 0);
    assert_eq!(pair.ends[0].tsend(pair.numbers[0], 7, &bytes, context), 0);
    assert_eq!(pair.wait(1).good().op_context as usize, context);
    assert_eq!(pair.wait(0).good().op_context as usize, context);
    assert!(room == bytes);
}

/// Forks a child that does something, and waits until it has.
fn fork(action: impl FnOnce()) {
    // SAFETY: the child calls what may be called after a fork of a process with threads, as glibc has it: the allocator, and system
    // calls.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: these take numbers.
        unsafe { libc::alarm(PATIENCE) };
        let outcome = catch_unwind(AssertUnwindSafe(action));
        // SAFETY: as above.
        unsafe { libc::_exit(outcome.is_err().into()) };
    }
    let mut status = 0;
    // SAFETY: the status is ours to write.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child hangs, or has failed");
}

/// Forks a child that closes the endpoints.
fn fork_closing(pair: &Pair) {
    // SAFETY: the child closes them once, and its parent's memory stays as it is.
    let inherited = ManuallyDrop::new(unsafe { std::ptr::read(pair) });
    fork(|| drop(ManuallyDrop::into_inner(inherited)));
}

#[test]
fn a_child_closes_what_it_has_inherited_and_its_parent_goes_on() {
    // A thread looks after the endpoints now and then, or all the time, and is in the middle of that when the child is forked.
    for (progress, forks) in [(FI_PROGRESS_MANUAL, 2), (FI_PROGRESS_AUTO, 20)] {
        let ask = |info: &mut fi_info| {
            // SAFETY: the provider has made the attributes.
            unsafe { (*info.domain_attr).data_progress = progress };
        };
        let pair = Pair::of([End::with(ask, |_| {}), End::with(ask, |_| {})]);
        for round in 0..forks {
            exchange(&pair, round);
            fork_closing(&pair);
        }
        exchange(&pair, forks);
    }
}

#[test]
fn a_child_closes_what_it_has_inherited_while_a_thread_of_its_parent_closes_too() {
    let pair = Pair::open();
    exchange(&pair, 0);
    // What is sent where no end is any more is waited with for longer than this test takes.
    let sender = End::open();
    assert_eq!(sender.enable(), 0);
    let absent = {
        let gone = End::open();
        assert_eq!(gone.enable(), 0);
        sender.insert(&gone.name())
    };
    assert_eq!(sender.tsend(absent, 7, &pattern(64, 1), 1), 0);
    let sender = Sole(sender);
    let closing = std::thread::spawn(|| sender.close());
    for _ in 0..FORKS {
        fork_closing(&pair);
    }
    assert!(!closing.is_finished(), "it was being closed while all were forked");
    exchange(&pair, 1);
}

/// An end that one thread has at a time.
struct Sole(End);

// SAFETY: the provider is thread-safe.
unsafe impl Send for Sole {}

impl Sole {
    fn close(self) {
        drop(self.0);
    }
}

#[test]
fn a_child_has_endpoints_of_its_own() {
    let pair = Pair::open();
    exchange(&pair, 0);
    for round in 1..4 {
        fork(|| {
            let own = Pair::open();
            exchange(&own, round);
        });
        exchange(&pair, round);
    }
}
