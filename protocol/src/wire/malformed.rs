//! Why a frame is not a RoCEv2 packet: one name, one counter each.

use thiserror::Error;

/// The reason why bytes from the wire were refused before anything looked at their meaning.
///
/// Never logged per packet: the receiver counts it under [`Malformed::name`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[repr(u8)]
pub enum Malformed {
    /// Shorter than the headers that it announces.
    #[error("truncated: shorter than its headers")]
    Truncated,
    /// Neither IPv4 nor IPv6 under Ethernet.
    #[error("not IP: the EtherType is neither 0x0800 nor 0x86dd")]
    NotIp,
    /// IP version or header length is wrong.
    #[error("IP header of an unknown version or with options")]
    IpHeader,
    /// The IPv4 header checksum does not match.
    #[error("IPv4 header checksum is wrong")]
    IpChecksum,
    /// A fragment; RoCEv2 packets are never fragmented.
    #[error("IP fragment")]
    IpFragment,
    /// IP's length disagrees with the frame.
    #[error("IP length disagrees with the frame")]
    IpLength,
    /// Not UDP.
    #[error("not UDP")]
    NotUdp,
    /// UDP, but not to port 4791.
    #[error("not RoCEv2: the UDP destination port is not 4791")]
    NotRoce,
    /// UDP's length disagrees with IP's.
    #[error("UDP length disagrees with IP")]
    UdpLength,
    /// BTH transport version is not 0.
    #[error("transport header version is not 0")]
    TransportVersion,
    /// The opcode is not in the table.
    #[error("unknown opcode")]
    UnknownOpcode,
    /// The pad count exceeds the payload.
    #[error("pad count exceeds the payload")]
    Pad,
    /// Length not a multiple of four although pad fills it up.
    #[error("packet length is not a multiple of 4")]
    Alignment,
    /// The invariant CRC does not match.
    #[error("ICRC mismatch")]
    Icrc,
}

impl Malformed {
    /// Every reason, in the order of the discriminants.
    pub const ALL: [Self; 14] = [
        Self::Truncated,
        Self::NotIp,
        Self::IpHeader,
        Self::IpChecksum,
        Self::IpFragment,
        Self::IpLength,
        Self::NotUdp,
        Self::NotRoce,
        Self::UdpLength,
        Self::TransportVersion,
        Self::UnknownOpcode,
        Self::Pad,
        Self::Alignment,
        Self::Icrc,
    ];

    /// The counter's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Truncated => "rx_truncated",
            Self::NotIp => "rx_not_ip",
            Self::IpHeader => "rx_ip_header",
            Self::IpChecksum => "rx_ip_checksum",
            Self::IpFragment => "rx_ip_fragment",
            Self::IpLength => "rx_ip_length",
            Self::NotUdp => "rx_not_udp",
            Self::NotRoce => "rx_not_roce",
            Self::UdpLength => "rx_udp_length",
            Self::TransportVersion => "rx_transport_version",
            Self::UnknownOpcode => "rx_unknown_opcode",
            Self::Pad => "rx_pad",
            Self::Alignment => "rx_alignment",
            Self::Icrc => "rx_icrc_error",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Malformed;

    #[test]
    fn the_list_of_reasons_follows_the_discriminants() {
        for (index, reason) in Malformed::ALL.into_iter().enumerate() {
            assert_eq!(index, reason as usize);
        }
    }

    #[test]
    fn every_reason_has_a_counter_of_its_own() {
        let mut names = Malformed::ALL.map(Malformed::name);
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]));
    }
}
