//! Who a message came from, or goes to.

use std::fmt::Debug;
use std::net::IpAddr;

use crate::{Mtu, Pkey};

/// The caller's token for a peer and the way to it.
///
/// Equality decides whether a message about a connection comes from its peer. So it must hold whatever stays the same
/// while a connection lives (port, addresses, VLAN), and must not compare what does not, such as the UDP source port.
pub trait Route: Copy + PartialEq + Debug {
    /// Our address.
    fn local_ip(&self) -> IpAddr;

    /// The peer's address.
    fn remote_ip(&self) -> IpAddr;

    /// Our key of the partition that both are in.
    fn pkey(&self) -> Pkey {
        Pkey::DEFAULT
    }

    /// The largest path MTU that a peer may ask for.
    fn mtu(&self) -> Mtu {
        Mtu::Mtu4096
    }
}

impl Route for (IpAddr, IpAddr) {
    fn local_ip(&self) -> IpAddr {
        self.0
    }

    fn remote_ip(&self) -> IpAddr {
        self.1
    }
}
