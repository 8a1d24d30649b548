//! What things cost in the simulated world, in nanoseconds. A model, made of what was measured between two processes over
//! memif (the README's table, and `driver`'s registration of memory that is locked page by page).
//!
//! The processor of the target pays for messages and registrations, and not for RDMA: that is what one-sided means.

/// Processor time to post a WRITE of 64 bytes and poll its completion: 2.4 million a second.
pub const POST: u64 = 420;
/// The rest of the 0.92 us from posting a WRITE until it has landed. Its acknowledgement takes as long.
pub const RDMA: u64 = 500;
/// Processor time to take a message, and to send one: 2.5 million a second.
pub const MESSAGE: u64 = 400;
/// The rest of half a message's round trip, which is 2 us with a message taken at each end.
pub const CROSSING: u64 = 600;
/// To register 4 KiB.
pub const PIN: u64 = 4_300;
/// To unregister them.
pub const UNPIN: u64 = 1_800;
