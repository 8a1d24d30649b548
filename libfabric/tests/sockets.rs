//! When a reader of queues yields the processor.

mod common;
#[path = "common/conduit.rs"]
mod conduit;

use std::cell::Cell;
use std::ffi::c_int;

use common::pattern;
use conduit::{REPLY, REQUEST, Rank};
use roci_fi::abi::attributes::FI_THREAD_DOMAIN;

thread_local! {
    /// How often this thread has yielded the processor.
    static YIELDS: Cell<usize> = const { Cell::new(0) };
}

/// The system's, which this stands in for.
#[unsafe(no_mangle)]
extern "C" fn sched_yield() -> c_int {
    YIELDS.with(|yields| yields.set(yields.get() + 1));
    // SAFETY: it has no arguments.
    unsafe { libc::syscall(libc::SYS_sched_yield) as c_int }
}

/// The first of three queues that are read makes progress for all: what it finds is in the others.
#[test]
fn who_finds_messages_does_not_yield_and_who_finds_none_yields_once_a_round() {
    // Over sockets: what looks after devices of shared memory yields, too.
    // SAFETY: no other thread is there that reads the environment.
    unsafe { std::env::set_var("ROCI_LOCAL", "off") };
    let mut ranks = [0, 1].map(|_| Rank::open(FI_THREAD_DOMAIN));
    let names = [ranks[0].names(), ranks[1].names()];
    for rank in &mut ranks {
        rank.meet(&names);
    }
    let (bytes, came) = (pattern(64, 1), Cell::new([0; 2]));
    let poll = |ranks: &mut [Rank; 2], who: usize| {
        ranks[who].poll(&mut |_, which, _, _| {
            let mut counts = came.get();
            counts[which] += 1;
            came.set(counts);
        });
    };
    let exchange = |ranks: &mut [Rank; 2]| {
        for (from, which) in [(0, REQUEST), (1, REPLY)] {
            let before = came.get()[which];
            while ranks[from].send(which, 1 - from, &bytes, None) != 0 {
                for who in [0, 1] {
                    poll(ranks, who);
                }
            }
            while came.get()[which] == before {
                poll(ranks, 1 - from);
            }
        }
    };
    exchange(&mut ranks);
    let yields = || YIELDS.with(Cell::take);
    (0..100).for_each(|_| poll(&mut ranks, 0));
    yields();
    (0..30).for_each(|_| poll(&mut ranks, 0));
    assert_eq!(yields(), 30, "one for each round");
    (0..100).for_each(|_| exchange(&mut ranks));
    assert_eq!(yields(), 0, "there is always something");
    ranks.into_iter().for_each(Rank::exit);
}
