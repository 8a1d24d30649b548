//! The private data of a request by RDMA-CM.

use std::net::IpAddr;

use roci_driver::link::Link;
use roci_driver::link::udp::station;
use roci_protocol::wire::MacAddr;

use super::method::{Meant, Site};
use crate::core::no_connection::NoConnection;
use crate::endpoint::address::EndpointAddress;
use crate::endpoint::address_book::PeerSession;

const MAGIC: [u8; 4] = *b"ROCI";
/// The first byte behind it, which says how the others are laid out.
const VERSION: u8 = 2;
/// The magic number, a version, a lane and how many there are, and a reserved byte; a service and two reserved bytes; two
/// incarnations, and the two numbers of a session. RDMA-CM leaves 56 bytes of a REQ.
const LEN: usize = 44;

/// What the private data of a request says: who asks from its host, for which lane, and whom it means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct LaneRequest {
    pub(super) lane: usize,
    pub(super) lanes: usize,
    /// The service of who asks, and its incarnation.
    pub(super) service: u16,
    pub(super) incarnation: u64,
    /// Who is asked.
    pub(super) meant: Meant,
}

impl LaneRequest {
    pub(super) fn emit(self) -> [u8; LEN] {
        let mut data = [0; LEN];
        data[..4].copy_from_slice(&MAGIC);
        data[4..8].copy_from_slice(&[VERSION, self.lane as u8, self.lanes as u8, 0]);
        data[8..10].copy_from_slice(&self.service.to_be_bytes());
        data[12..20].copy_from_slice(&self.incarnation.to_be_bytes());
        data[20..28].copy_from_slice(&self.meant.incarnation.to_be_bytes());
        data[28..36].copy_from_slice(&self.meant.session.ours.to_be_bytes());
        data[36..].copy_from_slice(&self.meant.session.theirs.to_be_bytes());
        data
    }

    /// Returns the address of who asks: that of the peer behind a local port, or of the host that the request comes from.
    ///
    /// # Errors
    /// It says too little of itself, or is not the peer that the port is for.
    pub(super) fn sender<L: Link>(
        &self,
        site: &Site<'_, L>,
        port: usize,
        (host, station): (Option<IpAddr>, MacAddr),
    ) -> Result<EndpointAddress, NoConnection> {
        let &Self { service, incarnation, .. } = self;
        if let Some(peer) = site.attached.peer_behind(port) {
            let theirs = site.book.address(peer).filter(|it| (it.service, it.incarnation) == (service, incarnation));
            return theirs.ok_or(NoConnection::NoRank);
        }
        let ip = host.ok_or(NoConnection::Anonymous)?;
        Ok(EndpointAddress { ip, udp_port: station::udp_port_of(station), service, incarnation })
    }

    pub(super) fn parse(data: &[u8]) -> Result<Self, NoConnection> {
        let data = data.first_chunk::<LEN>().ok_or(NoConnection::Anonymous)?;
        let (&[m0, m1, m2, m3, version, lane, lanes, _], rest) = data.split_first_chunk().expect("it is longer");
        if [m0, m1, m2, m3] != MAGIC || version != VERSION {
            return Err(NoConnection::Anonymous);
        }
        let (&[s0, s1, _, _], rest) = rest.split_first_chunk().expect("it is longer");
        let (&incarnation, rest) = rest.split_first_chunk().expect("it is longer");
        let (&meant, rest) = rest.split_first_chunk().expect("it is longer");
        let (&ours, rest) = rest.split_first_chunk().expect("it is longer");
        let &theirs = rest.first_chunk().expect("it is long enough");
        let session = PeerSession { ours: u64::from_be_bytes(ours), theirs: u64::from_be_bytes(theirs) };
        Ok(Self {
            lane: lane.into(),
            lanes: lanes.into(),
            service: u16::from_be_bytes([s0, s1]),
            incarnation: u64::from_be_bytes(incarnation),
            meant: Meant { incarnation: u64::from_be_bytes(meant), session },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read_as_it_was_written_and_other_bytes_are_refused() {
        let meant = Meant { incarnation: 0x0123_4567_89ab_cdef, session: PeerSession { ours: 1 << 40, theirs: 2 } };
        let request = LaneRequest { lane: 1, lanes: 3, service: 0xfedc, incarnation: u64::MAX - 1, meant };
        let data = request.emit();
        assert_eq!(LaneRequest::parse(&data), Ok(request));
        assert_eq!(LaneRequest::parse(&data[..LEN - 1]), Err(NoConnection::Anonymous));
        for at in 0..5 {
            let mut other = data;
            other[at] ^= 1;
            assert_eq!(LaneRequest::parse(&other), Err(NoConnection::Anonymous), "byte {at}");
        }
    }
}
