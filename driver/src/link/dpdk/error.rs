//! Why a port does not open.

use thiserror::Error;

use super::eal::{EalError, SyscallRefusal};
use super::limits::PORTS_MAX;
use super::pci::BindingError;

/// This process may open too few.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("{needed} descriptors are needed, and the limit is {limit}: ulimit -n {needed}")]
pub struct TooFewDescriptors {
    /// How many it must be able to open, with those that are open.
    pub(super) needed: usize,
    pub(super) limit: usize,
}

/// Why a port could not be used.
#[derive(Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PortError {
    /// DPDK did not start.
    #[error(transparent)]
    Eal(#[from] EalError),
    /// The NIC is not DPDK's to have.
    #[error(transparent)]
    Binding(#[from] BindingError),
    /// A call on the port failed.
    #[error("device {device}: {call} failed: {cause}")]
    Call {
        /// Whose port.
        device: String,
        /// Which of DPDK's functions.
        call: &'static str,
        /// DPDK's reason.
        cause: String,
    },
    /// What DPDK reserved when it started is used up.
    #[error("no memory for another port: DPDK has room for {PORTS_MAX}, and frames that are kept keep their port's")]
    NoMemory,
    /// DPDK takes huge pages as it needs them, and there are too few.
    #[error(
        "packet buffers need {0} MiB of huge pages, and too few are free: roci hugepages set (each queue of ROCI_QUEUES has buffers of its own)"
    )]
    NoHugePages(usize),
    /// The process may not open as many descriptors as the ports need.
    #[error("for {ports} ports {cause}")]
    Descriptors {
        /// How many ports.
        ports: usize,
        /// How many descriptors are needed, and the limit.
        cause: TooFewDescriptors,
    },
    /// DPDK's table of ports is full.
    #[error("{0} more ports: DPDK can have {PORTS_MAX} in a process")]
    TooManyPorts(usize),
    /// The kernel has no interface of this name.
    #[error("there is no interface '{0}': 'ip link' lists those of this host")]
    NoInterface(String),
    /// The arguments created no port.
    #[error("device {device}: {cause} (RUST_LOG=dpdk=trace shows its log)")]
    NoPort {
        /// Whose port.
        device: String,
        /// The last lines of DPDK's log.
        cause: String,
    },
    /// The device carries no packets as long as the configuration wants.
    #[error("device {device}: it carries packets of {max} bytes at most, and {mtu} are wanted (ROCI_PORT_MTU)")]
    Mtu {
        /// Whose port.
        device: String,
        /// Bytes of a packet, Ethernet aside.
        mtu: u16,
        /// The device's limit.
        max: u16,
    },
    /// The device has fewer queues than are wanted.
    #[error("device {device}: {queues} queues are wanted (ROCI_QUEUES), and it has {max}")]
    Queues {
        /// Whose port.
        device: String,
        /// How many are wanted.
        queues: u16,
        /// The device's limit.
        max: u16,
    },
    /// Every queue of the port is an engine's already.
    #[error("device {device}: each of its {queues} queues (ROCI_QUEUES) has an engine already")]
    NoQueue {
        /// Whose port.
        device: String,
        /// How many there are.
        queues: u16,
    },
    /// Another engine of the process has opened the port, and with other settings.
    #[error("device {0}: this process has it open with other settings: engines that share it must agree on them")]
    OtherSettings(String),
    /// A port with several queues was asked for beside other ports.
    #[error("device {0}: a port with several queues is opened by a call of its own")]
    NotAlone(String),
    /// The caller gave up waiting for the other end.
    #[error("device {0}: the peer will not come")]
    Hopeless(String),
    /// The kernel does not give the port what it needs to meet its peer.
    #[error("device {device}: no link: {cause}")]
    Refused {
        /// Whose port.
        device: String,
        /// What was refused to it, and the remedy.
        cause: SyscallRefusal,
    },
    /// The other end did not come up in time.
    #[error("device {device}: no link within {seconds} s: the peer is missing")]
    NoLink {
        /// Whose port.
        device: String,
        /// How long it was waited for.
        seconds: u64,
    },
}
