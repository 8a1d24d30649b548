//! Why ports were not opened, or ranks not connected.

use std::io;
use std::net::IpAddr;

use roci_driver::link::dpdk::PortError;
use roci_driver::link::live::LinkDevice;
use roci_driver::link::udp::UdpError;
use roci_driver::neighbour::Unreachable;
use roci_driver::{ArenaError, ConnectError, MonitorError, ParseAddressError, PortConfigError};
use roci_launcher::JobError;
use roci_protocol::wire::MacAddr;
use thiserror::Error;

use crate::Rank;
use crate::config::{ConfigError, TooMuch};
use crate::core::completion::OpError;
use crate::endpoint::wireup::NoWireup;

/// Why ranks were not connected.
#[derive(Error)]
#[non_exhaustive]
pub enum WireupError {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The arena cannot hold what the configuration wants.
    #[error(transparent)]
    Demand(#[from] TooMuch),
    /// The launcher or a peer is missing.
    #[error(transparent)]
    Job(#[from] JobError),
    /// The port does not work.
    #[error(transparent)]
    Port(#[from] PortError),
    /// A socket sends no tags.
    #[error("device {device}: a socket is in no VLAN (ROCI_VLAN={vlan}): use the address of the VLAN's interface")]
    VlanOverSocket {
        /// The socket.
        device: LinkDevice,
        /// What was asked for.
        vlan: u16,
    },
    /// The socket does not work.
    #[error(transparent)]
    Udp(#[from] UdpError),
    /// There is no memory.
    #[error(transparent)]
    Arena(#[from] ArenaError),
    /// Registered memory is not watched, and the configuration insists.
    #[error("{0} (ROCI_DREG_MONITOR)")]
    Monitor(#[from] MonitorError),
    /// The connection was refused.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// A peer left no address.
    #[error("rank {0}: {1}")]
    Address(Rank, ParseAddressError),
    /// The capture file cannot be written.
    #[error("cannot write the capture {path}: {source}")]
    Pcap {
        /// Which file.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// The device joins processes of one host, and the job has several.
    #[error("device {0} joins processes of one host only: name a network device, as udp (ROCI_DEVICE=udp)")]
    NeedsOneHost(LinkDevice),
    /// The host's place on its port makes no sense.
    #[error(transparent)]
    Place(#[from] PortConfigError),
    /// A peer left no address of its host.
    #[error("rank {0}: '{1}' is not the address of a host")]
    Host(Rank, String),
    /// Two processes send from one station, and neither hears the other.
    #[error(
        "ranks {rank} and {peer} have the same station {station}: processes on one interface do not hear each other: give each rank an interface of its own, or make them workers of one process (ROCI_QUEUES)"
    )]
    SameStation {
        /// This rank.
        rank: Rank,
        /// The other one.
        peer: Rank,
        /// The address that both have.
        station: MacAddr,
    },
    /// The connections cannot be made as the configuration wants it.
    #[error(transparent)]
    Method(#[from] NoWireup),
    /// A peer could not be connected.
    #[error(transparent)]
    Peer(#[from] OpError),
    /// Nothing leads to a peer.
    #[error("no way to {0}: {1}")]
    Unreachable(IpAddr, Unreachable),
    /// The thread of a dedicated worker cannot run where it should, or not at all.
    #[error("cannot start the worker's thread{}: {source}", .cpu.map_or_else(String::new, |cpu| format!(" on processor {cpu} (ROCI_ENGINE_CPU)")))]
    Thread {
        /// The processor, where that is the problem.
        cpu: Option<usize>,
        /// Why.
        source: io::Error,
    },
    /// There is no descriptor for a dedicated worker's application to sleep on.
    #[error("cannot make the descriptor that the worker wakes its application by: {0}")]
    WaitFd(#[source] io::Error),
    /// The job's directory is too deep for a socket.
    #[error("{0}: too long a path for a UNIX socket: set TMPDIR to a shorter one")]
    SocketPath(String),
    /// DPDK would take the job's directory for several arguments.
    #[error(
        "{0}: ',', '=', '[' and ']' mean something else in the name of a port's socket: set TMPDIR to a path without"
    )]
    SocketSign(String),
}
