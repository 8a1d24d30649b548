//! What a worker does for messages, in a simulated world: every test runs on both kinds of worker.
#![allow(clippy::duplicate_mod, reason = "the same tests are for both kinds")]

#[path = "../common/mod.rs"]
mod harness;

/// The engine runs inside the calls, at once. Here alone a message may wait for the next call.
#[path = "."]
mod inline {
    mod common {
        pub(crate) use crate::harness::*;
    }

    mod active;
    mod calls;
    mod cancel;
    mod claims;
    mod coalescing;
    mod completions;
    mod connections;
    mod domain;
    mod doorbells;
    mod intruder;
    mod keepalive;
    mod lists;
    mod memory_kinds;
    mod modes;
    mod multi;
    mod offers;
    mod one_sided;
    mod pair;
    mod protocols;
    mod queues;
    mod requested_keys;
    mod starvation;
    mod strangers;
    mod streams;
    mod user_memory;
}

/// The engine runs behind the rings of a dedicated worker.
#[path = "."]
mod dedicated {
    mod common {
        pub(crate) use crate::harness::{DedicatedWorld as World, TestWorker, config, pattern};
    }

    mod active;
    mod calls;
    mod cancel;
    mod claims;
    mod coalescing;
    mod completions;
    mod connections;
    mod domain;
    mod keepalive;
    mod lists;
    mod memory_kinds;
    mod modes;
    mod multi;
    mod offers;
    mod one_sided;
    mod pair;
    mod protocols;
    mod queues;
    mod requested_keys;
    mod starvation;
    mod strangers;
    mod streams;
    mod user_memory;
}
