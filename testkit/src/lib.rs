//! What simulated worlds have in common.
//!
//! A [`World`] is any set of nodes on a [`SimLink`](roci_driver::link::sim::SimLink)'s network, under a clock that only the
//! test moves. A [`Swarm`] runs worlds that follow from seeds, each of them twice: what differs between the two runs comes
//! from outside of the world, and a failure could not be replayed. A [`ScriptedPeer`] is a node made by hand: it sends any
//! frame at all, and understands what it is answered. [`logged`] returns what the log says.

mod log;
mod peer;
mod swarm;
mod world;

pub use log::logged;
pub use peer::ScriptedPeer;
pub use swarm::Swarm;
pub use world::{World, engine, poll_and_check};
