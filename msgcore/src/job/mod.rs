//! The job: which rank this is, how many there are, and a board where they leave their addresses.
//!
//! A launcher hosts the [`Board`]; each rank is a [`Job`] that talks to it over a UNIX or TCP socket, one line
//! per request. The board answers a look-up once the value is there, a barrier once all ranks are, and either
//! with the reason as soon as a rank that is needed has gone.

mod board;
mod client;

pub use board::Board;
pub use client::{Job, JobError};

/// Variables by which a launcher tells a rank its place; they are no knobs.
pub const VARIABLES: [&str; 4] = [RANK, SIZE, JOB, CPUS];
/// This rank's number, from 0.
pub const RANK: &str = "ROCI_RANK";
/// How many ranks there are.
pub const SIZE: &str = "ROCI_SIZE";
/// How many processors the ranks of this host share; a rank that is pinned to one cannot see that.
pub const CPUS: &str = "ROCI_CPUS";
/// Where the board is: a socket's path, or `HOST:PORT` behind `tcp:`.
pub const JOB: &str = "ROCI_JOB";

/// The longest line that either side takes.
const LINE_LIMIT: u64 = 4096;
