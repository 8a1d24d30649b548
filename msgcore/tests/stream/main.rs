//! Byte streams over a simulated wire: a FIFO of bytes whatever is switched on, misuse, limits, a cut wire, peers
//! that write nonsense.

mod calls;
mod failures;
mod fifo;
mod hostile;
mod pair;
mod payloads;
mod scene;
mod side_by_side;
