//! Memory that the link can send from and receive into: one arena, buffers cut from it, keys for peers.

mod arena;
mod buffer;
mod keys;

pub use arena::{Arena, ArenaError};
pub use buffer::Buffer;
pub(crate) use keys::{Asker, Binding, KeyTable};
pub use keys::{PdId, RegionFull};
