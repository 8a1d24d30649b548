//! Workers of both kinds, over real memif ports: ranks of jobs, and strangers, each on a thread of its own. One test runs at a time, for
//! DPDK has 32 ports for the whole process.

mod blocking;
mod calls;
mod close;
mod departures;
mod flush;
mod goodbye;
mod kinds;
mod matrix;
mod one_sided;
mod ranks;
mod shared;
mod starvation;
mod strangers;
mod threads;
mod wait_fd;
