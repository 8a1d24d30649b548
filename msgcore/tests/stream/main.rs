//! Byte streams over a simulated wire: a FIFO of bytes whatever is switched on, misuse, limits, a cut wire, peers
//! that write nonsense. Every test runs on both kinds of worker.
#![allow(clippy::duplicate_mod, reason = "the same tests are for both kinds")]

#[path = "../common/facade.rs"]
#[allow(dead_code, reason = "each test uses its part")]
mod facade;
#[path = "pair.rs"]
mod harness;

/// The engine runs inside the calls, at once.
#[path = "."]
mod inline {
    mod pair {
        pub(crate) use crate::harness::*;
        pub(crate) const IS_DEDICATED: bool = false;
    }

    mod calls;
    mod failures;
    mod fifo;
    mod hostile;
    mod payloads;
    mod scene;
    mod side_by_side;
}

/// The engine runs behind the rings of a dedicated worker.
#[path = "."]
mod dedicated {
    mod pair {
        pub(crate) use crate::harness::{
            DedicatedPair as Pair, DedicatedWire as Wire, Dice, End, Faulty, SMALL, TestWorker, combinations, config,
            stream,
        };
        pub(crate) const IS_DEDICATED: bool = true;
    }

    mod calls;
    mod failures;
    mod fifo;
    mod hostile;
    mod payloads;
    mod scene;
    mod side_by_side;
}
