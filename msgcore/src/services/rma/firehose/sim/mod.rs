//! A deterministic world for Firehose: ranks that put and get over working sets, a network on which messages and
//! transfers overtake one another, and an oracle that knows what is pinned at the moment a transfer lands.
//!
//! A seed decides everything. Time is virtual, and made of [`costs`]: so the world also says what a working set that does
//! not fit costs, as a model. Used by the tests, and by the figure in the documentation.

mod broken;
pub mod costs;
pub(in crate::services::rma::firehose) mod host;
mod oracle;
mod plan;
mod station;
mod world;

pub use broken::{BrokenPromise, BrokenWorld};
pub use plan::{Death, Plan};
pub use world::{FirehoseWorld, Measure, Report};
