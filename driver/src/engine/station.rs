//! A connection follows its peer to another station: a machine migrates, a bond or a gateway fails over, and the peer's IP
//! address leads to another MAC address.
//!
//! The port's neighbour table learns of it (see [`crate::neighbour`]). A connection looks there when it has reason to:
//! where an answer stays out for a whole timeout, and where a packet is repeated by a station that is not the one it
//! sends to. So an announcement costs nothing for each connection that there is, and no request is sent for a peer that
//! has not moved.

use roci_protocol::Nanos;
use roci_protocol::wire::ethernet;

use super::Engine;
use super::port::Port;
use crate::handles::QueuePair;
use crate::link::Link;
use crate::neighbour::Resolution;

impl<L: Link> Engine<L> {
    /// A packet that was of no use: repeated, perhaps, because its answer went to where the peer was before.
    #[cold]
    pub(super) fn on_useless_packet(&mut self, now: Nanos, qp: QueuePair, frame: &[u8]) {
        let source = ethernet::source(frame);
        if self.qps.get(qp.0).is_some_and(|slot| source != Some(slot.flow.destination_mac())) {
            self.follow_peer(now, qp);
        }
    }

    /// Sends to the station that has the peer's address now, or the gateway's on the way to it. Where no station is
    /// known, a request is sent, and nothing changes.
    #[cold]
    pub(super) fn follow_peer(&mut self, now: Nanos, qp: QueuePair) {
        let Some(slot) = self.qps.get_mut(qp.0) else { return };
        let Port { link, neighbours, is_point_to_point, .. } = &mut self.ports[slot.port];
        if *is_point_to_point || link.station_of(slot.flow.destination_ip()).is_some() {
            return;
        }
        let resolution = neighbours.resolve(now, slot.flow.destination_ip(), slot.flow.vlan_id());
        if let Resolution::Known(mac) = resolution
            && mac != slot.flow.destination_mac()
        {
            slot.flow.set_destination_mac(mac);
            self.stats.peers_followed += 1;
        }
    }
}
