//! A peer's process has ended, and its host says so: packets that are sent to it are refused (ICMP, port unreachable).
//!
//! Such a message is as easily forged as any. So it ends a connection only where it quotes a packet that the connection waits to be
//! acknowledged: who cannot see the traffic would have to guess the number of the peer's queue pair and the PSN.

use roci_protocol::rc::WcStatus;
use roci_protocol::wire::Bth;

use super::Engine;
use crate::link::{Link, RefusedPacket};

impl<L: Link> Engine<L> {
    /// Ends the connections whose packets were refused.
    #[cold]
    pub(super) fn on_refused(&mut self, port: usize, first: RefusedPacket) {
        let mut next = Some(first);
        while let Some(refused) = next {
            self.end_refused(port, &refused);
            next = self.ports[port].link.take_refused();
        }
    }

    fn end_refused(&mut self, port: usize, refused: &RefusedPacket) {
        let &RefusedPacket { ip, station, ref quote } = refused;
        let Ok((bth, _)) = Bth::parse(quote) else { return };
        let slot = self.qps.iter().find(|slot| {
            slot.port == port
                && slot.flow.destination_ip() == ip
                && slot.flow.destination_mac() == station
                && slot.rc.config().dest_qpn == bth.dest_qpn
                && slot.rc.is_unacknowledged(bth.psn)
        });
        if let Some(qp) = slot.map(|slot| slot.qp) {
            self.stats.peers_refused += 1;
            self.fail_qp(qp, WcStatus::RetryExcErr);
        }
    }
}
