//! Stations of a link without Ethernet: a station is a UDP port of a host.
//!
//! Above a link every frame has station addresses. Those of a UDP socket say which port it has, so that they lead to one of
//! several processes that share a host's address.

use std::ops::Range;

use roci_protocol::wire::MacAddr;
use roci_protocol::wire::udp::ROCE_PORT;

/// The first bytes of every such station: a locally administered address, and "UDP".
const PREFIX: [u8; 4] = [0x02, b'U', b'D', b'P'];
/// The lowest source port that RoCEv2 senders choose for entropy (IBTA annex A17.9.2).
pub(super) const ENTROPY_FROM: u16 = 0xc000;
/// Ports of processes that cannot have RoCEv2's: below those that Linux gives away by itself. Some NICs send management datagrams from
/// odd ports outside of these.
pub(super) const OWN_PORTS: Range<u16> = 0x4000..0x8000;

/// Returns the station of the socket with this port.
pub const fn of_port(port: u16) -> MacAddr {
    let ([a, b, c, d], [high, low]) = (PREFIX, port.to_be_bytes());
    MacAddr([a, b, c, d, high, low])
}

/// Returns the port that frames for a station go to; `None` where it is no socket's.
pub const fn port_of(station: MacAddr) -> Option<u16> {
    let MacAddr([a, b, c, d, high, low]) = station;
    let is_ours = a == PREFIX[0] && b == PREFIX[1] && c == PREFIX[2] && d == PREFIX[3];
    if is_ours { Some(u16::from_be_bytes([high, low])) } else { None }
}

/// Returns the UDP port that frames for a station go to: RoCEv2's own where it is no socket's.
pub fn udp_port_of(station: MacAddr) -> u16 {
    port_of(station).unwrap_or(ROCE_PORT)
}

/// Returns the station that has sent from this port: that of RoCEv2's own port where the sender's is not one of its own.
pub fn of_sender(source_port: u16) -> MacAddr {
    of_port(if OWN_PORTS.contains(&source_port) { source_port } else { ROCE_PORT })
}

/// Whether a socket with this port can be answered.
pub fn is_answerable(port: u16) -> bool {
    port == ROCE_PORT || OWN_PORTS.contains(&port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_station_is_a_port_and_the_other_way_round() {
        for port in [1, ROCE_PORT, 33_000, u16::MAX] {
            assert_eq!(port_of(of_port(port)), Some(port));
        }
        assert_eq!(port_of(MacAddr([2, 0, 0, 0, 0x12, 0xb7])), None);
    }

    #[test]
    fn who_sends_from_no_port_of_his_own_is_answered_at_rocev2s() {
        let senders = [0, ROCE_PORT, 0x3fff, 0x8cd1, 0xc000, 0xffff, 0x4000, 0x7fff];
        let [at_roce @ .., first, last] = senders.map(of_sender);
        assert!(at_roce.iter().all(|&station| station == of_port(ROCE_PORT)));
        assert_eq!([first, last], [0x4000, 0x7fff].map(of_port));
        assert_eq!(
            [0, 1, 0x3fff, 0x8000, 0xc000, ROCE_PORT, 0x4000].map(is_answerable),
            [false, false, false, false, false, true, true]
        );
    }
}
