//! The link over a DPDK port.
//!
//! [`eal`] starts DPDK once per process, [`device`] turns the name of a device into its arguments, [`port`]
//! is the data path, and `gate` keeps a shared-memory port from being torn down in the middle of a burst.

pub mod clock;
pub mod device;
pub mod eal;
mod gate;
pub mod port;

pub use device::{Attachment, Device, ParseDeviceError};
pub use eal::{Eal, EalError};
pub use port::{DpdkLink, Mbuf, PortError};
