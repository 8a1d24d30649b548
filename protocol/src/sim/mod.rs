//! A deterministic world: two queue pairs, a hostile network, virtual time, and an oracle.
//!
//! Everything follows from a seed: the work, the faults, the times. A run ends with a hash over every frame
//! that crossed the network, so two runs of one seed can be compared, and a violation names the seed that
//! replays it.

pub mod faults;
mod network;
mod node;
mod oracle;
mod world;

pub use faults::{FaultInjector, Faults, ParseFaultsError, Verdict};
pub use world::{Report, Violation, run};
