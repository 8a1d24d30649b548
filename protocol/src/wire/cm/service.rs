//! Service identifiers that stand for ports (IBTA annex A11, `rdma_port_space`).

use std::fmt;

/// Whose port numbers: the low byte is IP's protocol number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u16)]
pub enum PortSpace {
    /// Connections: `RDMA_PS_TCP`.
    Tcp = 0x0106,
    /// Datagrams: `RDMA_PS_UDP`.
    Udp = 0x0111,
}

impl PortSpace {
    /// The name that captures print.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }
}

/// Who should answer a REQ or a SIDR_REQ.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct ServiceId(pub u64);

impl ServiceId {
    /// The service at a port.
    pub const fn of_port(space: PortSpace, port: u16) -> Self {
        Self((space as u64) << 16 | port as u64)
    }

    /// The port, if the service is one.
    pub const fn port(self) -> Option<(PortSpace, u16)> {
        const TCP: u64 = PortSpace::Tcp as u64;
        const UDP: u64 = PortSpace::Udp as u64;
        match self.0 >> 16 {
            TCP => Some((PortSpace::Tcp, self.0 as u16)),
            UDP => Some((PortSpace::Udp, self.0 as u16)),
            _ => None,
        }
    }
}

impl fmt::Display for ServiceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port() {
            Some((space, port)) => write!(f, "{}:{port}", space.name()),
            None => write!(f, "{:#018x}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_become_services_and_come_back() {
        let service = ServiceId::of_port(PortSpace::Tcp, 7174);
        assert_eq!(service, ServiceId(0x0106_1c06));
        assert_eq!((service.port(), service.to_string().as_str()), (Some((PortSpace::Tcp, 7174)), "tcp:7174"));
        assert_eq!(ServiceId::of_port(PortSpace::Udp, 9).port(), Some((PortSpace::Udp, 9)));
        assert_eq!(ServiceId(0x1_0106_1c06).port(), None);
        assert_eq!(ServiceId(7).to_string(), "0x0000000000000007");
    }
}
