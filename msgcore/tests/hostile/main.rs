//! A peer that keeps to nothing: a bare engine that connects like a worker, and then says what dice have it say. The
//! worker fails it by name, loses no memory, and goes on with an honest one. Every test runs on both kinds of worker.
#![allow(clippy::duplicate_mod, reason = "the same tests are for both kinds")]

#[path = "../common/facade.rs"]
#[allow(dead_code, reason = "each test uses its part")]
mod facade;
#[path = "scene.rs"]
mod harness;
mod mail;
mod messages;

/// The victim's engine runs inside its calls, at once.
#[path = "."]
mod inline {
    mod scene {
        pub(crate) use crate::harness::Scene;
    }

    mod conversations;
}

/// The victim's engine runs behind the rings of a dedicated worker.
#[path = "."]
mod dedicated {
    mod scene {
        pub(crate) use crate::harness::DedicatedScene as Scene;
    }

    mod conversations;
}
