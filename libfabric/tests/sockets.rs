//! Over sockets alone, where one call finds what another has sent: what waits for a port of shared memory takes as long as the kernel likes.

mod common;
#[path = "common/conduit.rs"]
mod conduit;

use std::cell::Cell;
use std::ffi::c_int;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use common::{Pair, SharedBytes, pattern};
use conduit::{REPLY, REQUEST, Rank};
use roci_fi::abi::FI_ADDR_UNSPEC;
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

/// The key of the memory that a test opens.
const KEY: u64 = 5;

/// One test at a time, without ports of shared memory.
fn sockets_alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: no other test reads the environment meanwhile.
    unsafe { std::env::set_var("ROCI_LOCAL", "off") };
    alone
}

/// The first of three queues that are read makes progress for all: what it finds is in the others.
#[test]
fn who_finds_messages_does_not_yield_and_who_finds_none_yields_once_a_round() {
    let _alone = sockets_alone();
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
                for who in [1 - from, from] {
                    poll(ranks, who);
                }
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

/// The owner has made no call since.
#[test]
fn what_has_come_before_memory_is_closed_is_served() {
    let _alone = sockets_alone();
    let pair = Pair::open();
    let [origin, target] = &pair.ends;
    let memory = SharedBytes::new(&[0; 100]);
    let registered = target.reg_open(&memory, KEY);
    for (context, value) in [(1, 6), (2, 7)] {
        assert_eq!(origin.write(pair.numbers[0], &[value; 50], (10, KEY), context), 0);
        if context == 1 {
            pair.wait(0).good();
            pair.settle();
        }
    }
    drop(registered);
    assert_eq!(memory.part(10, 50), [7; 50]);
    assert_eq!(pair.wait(0).good().op_context as usize, 2);
    assert_eq!(origin.write(pair.numbers[0], &[8; 50], (10, KEY), 3), 0);
    assert_eq!(pair.wait(0).bad().err, libc::EACCES);
    assert_eq!(memory.part(10, 50), [7; 50]);
}

/// An application that computes, and calls now and then, is connected to within few calls.
#[test]
fn who_calls_seldom_is_reached_in_few_calls() {
    let _alone = sockets_alone();
    let pair = Pair::open();
    let [sender, receiver] = &pair.ends;
    let mut room = [0; 8];
    assert_eq!(receiver.trecv(FI_ADDR_UNSPEC, (1, 0), &mut room, 5), 0);
    assert_eq!(sender.tsend(pair.numbers[0], 1, b"at last.", 6), 0);
    let mut calls = 0;
    while receiver.read().is_none() {
        pair.progress(0);
        std::thread::sleep(Duration::from_millis(1));
        calls += 1;
    }
    assert!(calls < 64 && room == *b"at last.", "{calls} calls");
}
