//! Memory that the link can send from and receive into: one arena, buffers cut from it, keys for peers.

mod arena;
mod buffer;
mod keys;
mod pages;

pub use arena::{Arena, ArenaConfig, ArenaError};
pub use buffer::Buffer;
pub(crate) use keys::{Asker, Binding, KeyTable};
pub use keys::{PdId, RegionFull};
pub use pages::{HugePage, PageChoice, Pages, PassedOver, Placement};
