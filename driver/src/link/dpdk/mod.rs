//! The link over a DPDK port.
//!
//! [`device`] turns the name of a device into DPDK's arguments, [`eal`] starts DPDK once per process, `bring_up` waits
//! for ports and peers, [`port`] is the data path, and `gate` keeps a shared-memory port from being torn down in the
//! middle of a burst.

mod bring_up;
pub mod clock;
pub mod device;
pub mod eal;
mod gate;
pub mod port;

pub use bring_up::PortError;
pub use device::{Attachment, Device, ParseDeviceError};
pub use eal::{Eal, EalError};
pub use port::{DpdkLink, Mbuf};
