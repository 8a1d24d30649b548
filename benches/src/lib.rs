//! Micro-benchmarks; the code is in `benches/`. Run one with `cargo bench --package roci-benches --bench wire`.
//!
//! What a port carries, and what the stack carries over it, is measured by `roci perf`. The binary `rc_instructions`
//! runs what the bench `rc` times, for scripts/callgrind to count.

pub mod rc;
