//! Memory that the link can send from and receive into: an arena, buffers cut from it or made of the application's own
//! memory, keys for peers.
//!
//! The application's memory is registered by a [`registrar`], kept so by a [`cache`], and watched by a [`monitor`],
//! which speaks to the cache over a [`board`].

mod arena;
mod board;
mod buffer;
mod cache;
mod cma;
mod common;
mod fork_watch;
mod keys;
mod maps;
mod monitor;
mod owner;
mod pages;
mod prefetch;
mod raw;
mod registrar;
mod registrations;
mod user;
mod watch;

pub use arena::{Arena, ArenaConfig, ArenaError};
pub(crate) use board::{Mark, WatchTable};
pub use buffer::{Buffer, ListError, MAX_PIECES};
pub(crate) use cache::CachedRegion;
pub use cache::{AdoptError, RegistrationStats};
pub use cma::{MarkPlace, MemoryMark, PeerMemory, PeerMemoryError};
pub use fork_watch::ForkWatch;
pub(crate) use keys::{Asker, Binding, KeyTable};
pub use keys::{PdId, RegionError};
pub use maps::MemoryError;
pub use monitor::MonitorError;
pub use pages::{HugePage, PageChoice, Pages, PassedOver, Placement};
pub(crate) use prefetch::fetch_ahead;
pub use raw::Number;
pub use registrar::RegisterError;
pub(crate) use registrar::{Pinned, Registrar};
pub(crate) use registrations::Registrations;
pub use registrations::{Pin, RegistrationConfig, RegistrationInfo};
pub use user::{MemoryKind, UserMemory, WrongKind};
pub use watch::MonitorChoice;
