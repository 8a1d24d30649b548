//! Engines over simulated wires.

#[path = "../common/mod.rs"]
mod common;

mod acknowledgements;
mod classes;
mod connections;
mod doorbell;
mod engines;
mod failed_frames;
mod fairness;
mod icrc;
mod memory_kinds;
mod sink;
mod stations;
