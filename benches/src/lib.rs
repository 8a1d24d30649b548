//! Micro-benchmarks; the code is in `benches/`. Run one with `cargo bench --package roci-benches --bench wire`.
//!
//! What a port carries, and what the stack carries over it, is measured by `roci perf`. The binaries `rc_instructions`,
//! `part_instructions`, `piece_instructions` and `worker_instructions` run some of what the benches time, for scripts/callgrind to count.

pub mod counting;
#[cfg(feature = "parts")]
pub mod cq;
#[cfg(feature = "pieces")]
pub mod icrc;
#[cfg(feature = "parts")]
pub mod matching;
#[cfg(feature = "tags")]
pub mod offers;
#[cfg(feature = "tags")]
pub mod one_sided;
#[cfg(feature = "parts")]
pub mod parts;
#[cfg(feature = "pieces")]
pub mod pieces;
pub mod rc;
#[cfg(feature = "pieces")]
pub mod registration;
#[cfg(feature = "pieces")]
pub mod rings;
#[cfg(feature = "tags")]
pub mod streams;
#[cfg(feature = "tags")]
pub mod tags;
#[cfg(feature = "pieces")]
pub mod wire;
