//! What stands in front of a bare frame's payload: Ethernet's header, and over a socket those of IP and UDP behind it.

use std::net::IpAddr;

use roci_protocol::wire::{Ethernet, Ip, Ipv4, Ipv6, MacAddr, Udp, ethernet, ipv4, ipv6, udp};

/// The EtherType for local experiments (IEEE 802).
const EXPERIMENTAL: u16 = 0x88b5;
/// No Ethernet frame is shorter, checksum aside.
const MIN_FRAME: usize = 60;
/// The longest header: over IPv6.
const LONGEST: usize = ethernet::LEN + ipv6::LEN + udp::LEN;

/// The header of frames to one peer.
#[derive(Clone, Copy)]
pub(super) struct RawHeader {
    ethernet: Ethernet,
    /// Over a socket: its addresses, and the source port.
    over_udp: Option<(Ip, u16)>,
    /// Of frames of the two lengths that messages are made of.
    prepared: [(usize, [u8; LONGEST]); 2],
}

impl RawHeader {
    /// Of frames that every station on a link receives.
    pub(super) fn to_all(source: MacAddr) -> Self {
        let ethernet = Ethernet { destination: MacAddr([0xff; 6]), source, vlan: None, ethertype: EXPERIMENTAL };
        Self { ethernet, over_udp: None, prepared: [(0, [0; LONGEST]); 2] }
    }

    /// Of frames between two sockets; `None` where one has an IPv4 address and the other an IPv6 address.
    pub(super) fn over_udp(
        [source, station]: [MacAddr; 2],
        [ours, theirs]: [IpAddr; 2],
        source_port: u16,
    ) -> Option<Self> {
        let ip = Ip::between(ours, theirs)?;
        let ethertype = if ours.is_ipv4() { ethernet::ETHERTYPE_IPV4 } else { ethernet::ETHERTYPE_IPV6 };
        let ethernet = Ethernet { destination: station, source, vlan: None, ethertype };
        Some(Self { ethernet, over_udp: Some((ip, source_port)), prepared: [(0, [0; LONGEST]); 2] })
    }

    /// The same, which writes frames of these lengths quickly.
    pub(super) fn prepared_for(mut self, lens: [usize; 2]) -> Self {
        let headers = lens.map(|len| (len, self.of(len)));
        self.prepared = headers;
        self
    }

    /// How long it is.
    pub(super) fn len(&self) -> usize {
        ethernet::LEN + self.over_udp.map_or(0, |(ip, _)| ip.wire_len() + udp::LEN)
    }

    /// The length of a frame with so many bytes behind it, which is no shorter than Ethernet's are.
    pub(super) fn frame_len(&self, payload: usize) -> usize {
        (self.len() + payload).max(MIN_FRAME)
    }

    /// The shortest frame.
    pub(super) fn shortest(&self) -> usize {
        self.frame_len(MIN_FRAME - ethernet::LEN)
    }

    /// Writes the front of a frame.
    #[inline]
    pub(super) fn write(&self, frame: &mut [u8]) {
        let (len, frame_len) = (self.len(), frame.len());
        match self.prepared.iter().find(|(of, _)| *of == frame_len) {
            Some((_, bytes)) => frame[..len].copy_from_slice(&bytes[..len]),
            None => frame[..len].copy_from_slice(&self.of(frame_len)[..len]),
        }
    }

    /// What stands behind the header of a frame of ours.
    #[inline]
    pub(super) fn behind<'a>(&self, frame: &'a [u8]) -> Option<&'a [u8]> {
        let kind = frame.get(ethernet::LEN - 2..ethernet::LEN)?;
        if kind == self.ethernet.ethertype.to_be_bytes() { frame.get(self.len()..) } else { None }
    }

    fn of(&self, frame_len: usize) -> [u8; LONGEST] {
        let mut bytes = [0; LONGEST];
        self.ethernet.emit(&mut bytes);
        let Some((ip, source)) = self.over_udp else { return bytes };
        let at = ethernet::LEN + ip.wire_len();
        let payload_len = (frame_len - ethernet::LEN - ip.wire_len()) as u16;
        match ip {
            Ip::V4(header) => Ipv4 { payload_len, ..header }.emit(&mut bytes[ethernet::LEN..][..ipv4::LEN]),
            Ip::V6(header) => Ipv6 { payload_len, ..header }.emit(&mut bytes[ethernet::LEN..][..ipv6::LEN]),
        }
        let payload_len = payload_len - udp::LEN as u16;
        Udp { source, destination: udp::ROCE_PORT, payload_len, checksum: 0 }.emit(&mut bytes[at..]);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use roci_protocol::wire::FrameLayers;

    use super::*;

    #[test]
    fn frames_over_udp_are_such_and_others_are_experiments() {
        let stations = [MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2])];
        for ips in [["10.0.0.1", "10.0.0.2"], ["fd00::1", "fd00::2"]] {
            let ips = ips.map(|ip| ip.parse().expect("an address"));
            let header = RawHeader::over_udp(stations, ips, 0xc001).expect("one version").prepared_for([500, 70]);
            for len in [70, 90, 500] {
                let mut frame = vec![7; len];
                header.write(&mut frame);
                let layers = FrameLayers::parse(&frame).expect("a frame to RoCEv2's port");
                assert_eq!((layers.ip.destination(), layers.transport.len()), (ips[1], len - header.len()));
                assert_eq!(header.behind(&frame), Some(&vec![7; len - header.len()][..]));
            }
        }
        let plain = RawHeader::to_all(stations[0]);
        let mut frame = vec![7; plain.frame_len(8)];
        plain.write(&mut frame);
        assert_eq!((frame.len(), plain.behind(&frame).map(<[u8]>::len)), (60, Some(46)));
        assert!(FrameLayers::parse(&frame).is_err() && plain.behind(&[0; 60]).is_none());
    }
}
