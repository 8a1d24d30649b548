//! A deterministic world: two queue pairs, a hostile network, virtual time, and an oracle.
//!
//! Everything follows from a seed: the work, the faults, the times, who disturbs, and with which error the connection ends
//! when all work is done. A run ends with a hash over every frame that crossed the network, so two runs of one seed can be
//! compared, and a violation names the seed that replays it.
//!
//! Beside it stand a requester of another make ([`run_lax`]), which believes more than ours does, and a
//! [`Bottleneck`]: many queue pairs and one link, to see how congestion control shares it.

mod bottleneck;
mod deviation;
mod ending;
pub mod faults;
mod forger;
mod lax;
mod network;
mod node;
mod oracle;
mod plan;
mod world;

pub use bottleneck::{Bottleneck, Marking, Shares, TransferOp};
pub use deviation::{Deviation, ReceivedParts};
pub use faults::{FaultInjector, Faults, ParseFaultsError, Verdict};
pub use lax::run_lax;
pub use plan::dimensions;
pub use world::{SimReport, Violation, run, run_without_fast_path};
