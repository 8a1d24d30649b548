//! A deterministic world: two queue pairs, a hostile network, virtual time, and an oracle.
//!
//! Everything follows from a seed: the work, the faults, the times. A run ends with a hash over every frame
//! that crossed the network, so two runs of one seed can be compared, and a violation names the seed that
//! replays it.
//!
//! Beside it stands a [`Bottleneck`]: many queue pairs and one link, to see how congestion control shares it.

mod bottleneck;
pub mod faults;
mod network;
mod node;
mod oracle;
mod world;

pub use bottleneck::{Bottleneck, Marking, Shares};
pub use faults::{FaultInjector, Faults, ParseFaultsError, Verdict};
pub use world::{Report, Violation, run};
