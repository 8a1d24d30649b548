//! What the log says of packets that are sent again, and why (`RUST_LOG=roci_driver=debug`).

use roci_protocol::rc::Stats;
use tracing::Level;

use super::Engine;
use crate::handles::QueuePair;
use crate::link::Link;
use crate::qp::ConnectedQp;

impl<L: Link> Engine<L> {
    /// The counters of a queue pair before it looks at a packet or at a timer; none where the log wants nothing of it.
    #[inline]
    pub(super) fn counters_to_compare(&self, qp: QueuePair) -> Option<Stats> {
        if tracing::enabled!(Level::DEBUG) { self.qps.get(qp.0).map(|slot| *slot.rc.stats()) } else { None }
    }

    /// Logs what has moved since.
    #[inline]
    pub(super) fn log_retransmissions(&self, qp: QueuePair, before: Option<&Stats>) {
        if let Some(before) = before
            && let Some(slot) = self.qps.get(qp.0)
        {
            log(slot, self.qps.label_of(qp), before);
        }
    }
}

#[cold]
fn log(slot: &ConnectedQp, label: Option<&str>, before: &Stats) {
    let now = slot.rc.stats();
    let causes = [
        (before.packet_seq_err, now.packet_seq_err, "the peer misses packets (NAK): they are sent again"),
        (before.implied_nak_seq_err, now.implied_nak_seq_err, "a response is missing: it is asked for again"),
        (before.rnr_nak, now.rnr_nak, "the peer has no receive posted (RNR NAK): the message is sent again later"),
        (before.tail_loss_probes, now.tail_loss_probes, "no acknowledgement yet: the peer is asked once more"),
        (before.local_ack_timeout_err, now.local_ack_timeout_err, "no acknowledgement in time: sent again"),
        (before.duplicate_request, now.duplicate_request, "the peer has sent a packet again"),
        (
            before.out_of_buffer,
            now.out_of_buffer,
            "no receive is posted for the peer's message: it is to send it again",
        ),
    ];
    for (_, _, cause) in causes.into_iter().filter(|(before, now, _)| now > before) {
        let (qpn, ip) = (slot.qp.qpn(), slot.flow.destination_ip());
        match label {
            Some(peer) => tracing::debug!("{peer} (queue pair {qpn} to {ip}): {cause}"),
            None => tracing::debug!("queue pair {qpn} to {ip}: {cause}"),
        }
    }
}
