//! The link over a DPDK port.
//!
//! [`device`] turns the name of a device into DPDK's arguments, [`eal`] starts DPDK once per process and adds devices to
//! it later, `configure` sets queues and the MTU, `bring_up` opens ports and waits for peers, `pending` opens one beside others that work, [`port`] is the data path, and `gate` keeps a shared-memory port from
//! being torn down in the middle of a burst.
//!
//! Any number of threads may each open ports of their own; what they share is locked while ports come and go, and not
//! while they work.

mod bring_up;
pub mod clock;
mod configure;
mod control;
mod create;
mod descriptors;
pub mod device;
mod dma_map;
pub mod eal;
mod error;
mod external;
mod gate;
mod idle;
mod limits;
mod mbuf;
mod node;
mod pci;
mod pending;
mod pool;
pub mod port;
mod queues;
mod ranges;
mod shared_map;
mod station;
mod train;
mod watch;
mod window;
mod zero_copy;

pub use configure::Description;
pub use descriptors::room_for_descriptors;
pub use device::{Attachment, Device, ParseDeviceError};
pub use eal::{Eal, EalError, SyscallRefusal};
pub use error::{PortError, TooFewDescriptors};
pub use limits::SEGMENTS;
pub use mbuf::Mbuf;
pub use pci::{BindingError, HUGE_PAGES, ParsePciError, PciAddress};
pub use pending::PendingLink;
pub use port::DpdkLink;
