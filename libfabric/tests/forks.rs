//! A forked child of a process with endpoints. It has none of the provider's threads.

mod common;

use common::{End, Pair, pattern};
use roci_fi::abi::attributes::{FI_PROGRESS_AUTO, FI_PROGRESS_MANUAL, fi_info};

/// Seconds after which a child hangs.
const PATIENCE: u32 = 20;

fn exchange(pair: &Pair, context: usize) {
    let (bytes, mut room) = (pattern(64, context), vec![0; 64]);
    assert_eq!(pair.ends[1].trecv(pair.numbers[1], (7, 0), &mut room, context), 0);
    assert_eq!(pair.ends[0].tsend(pair.numbers[0], 7, &bytes, context), 0);
    assert_eq!(pair.wait(1).good().op_context as usize, context);
    assert_eq!(pair.wait(0).good().op_context as usize, context);
    assert!(room == bytes);
}

/// Forks a child that closes the endpoints.
fn fork(pair: Pair) -> Pair {
    // SAFETY: the child calls what may be called after a fork of a process with threads, as glibc has it: the allocator, and system
    // calls.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: these take numbers.
        unsafe { libc::alarm(PATIENCE) };
        drop(pair);
        // SAFETY: as above.
        unsafe { libc::_exit(0) };
    }
    let mut status = 0;
    // SAFETY: the status is ours to write.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child hangs, or has failed");
    pair
}

#[test]
fn a_child_closes_what_it_has_inherited_and_its_parent_goes_on() {
    // A thread looks after the endpoints now and then, or all the time, and is in the middle of that when the child is forked.
    for (progress, forks) in [(FI_PROGRESS_MANUAL, 2), (FI_PROGRESS_AUTO, 20)] {
        let ask = |info: &mut fi_info| {
            // SAFETY: the provider has made the attributes.
            unsafe { (*info.domain_attr).data_progress = progress };
        };
        let mut pair = Pair::of([End::with(ask, |_| {}), End::with(ask, |_| {})]);
        for round in 0..forks {
            exchange(&pair, round);
            pair = fork(pair);
        }
        exchange(&pair, forks);
    }
}
