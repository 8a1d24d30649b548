//! What makes memory of the application's reachable for a device.

use std::fmt;

use thiserror::Error;

mod limit;
mod locks;
mod pinned;

pub(super) use locks::Locks;
pub(crate) use pinned::Pinned;

/// Why memory was not registered. Unused registrations are ended, and it is tried again, until none is left; then the
/// CPU copies.
#[derive(Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// The device has no place for another region.
    #[error("the device has no place for another region")]
    NoSlot,
    /// So much memory must not be locked.
    #[error("{0}")]
    NoMemory(String),
    /// The device or the kernel does not take this memory, whatever else is registered.
    #[error("{0}")]
    Refused(String),
}

/// Registers memory with a device, or with the kernel. An engine has one, and calls it on the thread that it is on.
pub(crate) trait Registrar: fmt::Debug + Send {
    /// Makes `len` bytes from `base` on reachable, both multiples of the page size and mapped, until the token that comes
    /// back is given to `unregister`. Registrations may overlap: what is registered already, and in use, is not ended
    /// for one that includes it. A device that cannot have that refuses the second, and its bytes are copied.
    fn register(&mut self, base: usize, len: usize) -> Result<u64, RegisterError>;

    /// Ends a registration. `is_gone`: the memory was unmapped since, or a part of it, and there may be other memory in
    /// its place.
    fn unregister(&mut self, token: u64, is_gone: bool);
}

impl Registrar for Box<dyn Registrar> {
    fn register(&mut self, base: usize, len: usize) -> Result<u64, RegisterError> {
        (**self).register(base, len)
    }

    fn unregister(&mut self, token: u64, is_gone: bool) {
        (**self).unregister(token, is_gone);
    }
}
