//! A forked child of a process with endpoints. It has none of the provider's threads.

mod common;

use common::{Pair, pattern};

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

#[test]
fn a_child_closes_what_it_has_inherited_and_its_parent_goes_on() {
    let pair = Pair::open();
    exchange(&pair, 1);
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
    exchange(&pair, 2);
}
