//! Counters that explain a bad figure: what they mean, and what is to be done.

#[cfg(test)]
mod tests;

use roci_driver::EngineStats;
use roci_msgcore::WorkerStats;

/// Counters that mean trouble where they rise, with what is to be done about them. The scope `port` is of all ports together.
pub(crate) const TROUBLES: [(&str, &str, &str); 74] = [
    ("engine", "retransmitted_packets", "packets were lost, or a receiver had no time for them"),
    ("engine", "local_ack_timeout_err", "a peer that did not answer in time"),
    ("engine", "rnr_nak", "a peer without receives: raise ROCI_CREDITS there"),
    ("engine", "out_of_buffer", "no receive here: raise ROCI_CREDITS"),
    ("engine", "retry_exceeded_err", "connections lost to silence"),
    ("engine", "rnr_nak_retry_err", "connections lost to a peer that had no receive for long"),
    ("engine", "remote_errors", "connections lost: a peer refused a request"),
    ("engine", "resp_invalid_request", "connections ended: a peer's request was invalid"),
    ("engine", "resp_remote_access_errors", "connections ended: a peer's key, bounds or rights were wrong"),
    ("engine", "bad_response", "connections ended: a peer's response was wrong"),
    ("engine", "ghost_ack", "acknowledgements of what was not sent: a broken peer, or a stranger"),
    ("engine", "rp_cnp_handled", "a switch's queue is long: this end was asked to send less"),
    ("engine", "duplicate_dropped", "READs were repeated too late to be answered"),
    ("engine", "rx_wrong_transport", "packets of another transport: an old peer, or a stranger"),
    ("engine", "rx_bad_pkey", "packets of another partition: see ROCI_PKEY at both ends"),
    ("engine", "rx_held_conflicts", "two packets with one number: damage, or a stranger"),
    ("engine", "rx_held_refused", "early packets were invalid: damage, or a stranger"),
    ("engine", "rx_held_expired", "early packets were given up: much is lost on the way"),
    ("engine", "rx_unknown_qpn", "packets for no queue pair: an old peer, or a stranger"),
    ("engine", "rx_wrong_address", "packets from or to an address that is not their connection's"),
    ("engine", "rx_bad_management", "what asks for connections was malformed"),
    ("engine", "tx_management_lost", "the link was full, and what asks for connections was sent again"),
    ("engine", "peers_refused", "a peer's host has no process at the port any more"),
    ("engine", "events_lost", "the program does not poll its events"),
    ("engine", "rx_icrc_error", "packets damaged on their way"),
    ("engine", "rx_truncated", "frames shorter than their headers: damage, or a stranger"),
    ("engine", "rx_not_ip", "frames that are not IP: others use the port, which costs time"),
    ("engine", "rx_ip_header", "IP headers with options or of an unknown version: a stranger"),
    ("engine", "rx_ip_checksum", "IP headers damaged on their way"),
    ("engine", "rx_ip_fragment", "IP fragments: a path with a smaller MTU: lower ROCI_MTU"),
    ("engine", "rx_ip_length", "frames cut on their way, or damaged"),
    ("engine", "rx_not_udp", "IP packets that are not UDP: others use the port, which costs time"),
    ("engine", "rx_not_roce", "UDP packets to other ports: others use the port, which costs time"),
    ("engine", "rx_udp_length", "UDP packets of a wrong length: damage, or a stranger"),
    ("engine", "rx_transport_version", "packets of another version of the transport: a stranger"),
    ("engine", "rx_unknown_opcode", "packets of a kind that there is not: a stranger"),
    ("engine", "rx_pad", "packets with more padding than payload: damage, or a stranger"),
    ("engine", "rx_alignment", "packets whose length is no multiple of 4: damage, or a stranger"),
    ("engine", "rx_datagram_transport", "datagrams of another transport"),
    ("engine", "rx_datagram_pkey", "datagrams of another partition"),
    ("engine", "rx_datagram_qkey", "datagrams with a wrong Q_Key"),
    ("engine", "rx_datagram_no_receive", "datagrams lost: no receive was posted"),
    ("engine", "rx_datagram_too_long", "datagrams lost: longer than their receive"),
    ("worker", "credit_stalls", "messages waited for credits: raise ROCI_CREDITS"),
    ("worker", "buffer_stalls", "messages waited for send buffers: raise ROCI_VBUF_MAX"),
    ("worker", "cancel_stalls", "messages waited for a peer to answer what was cancelled: cancel less"),
    ("worker", "fallback_credit", "eager messages became R3 for want of credits"),
    ("worker", "fallback_buffer", "eager messages became R3 for want of send buffers: raise ROCI_VBUF_MAX"),
    ("worker", "fallback_registration", "memory could not be registered"),
    ("worker", "fallback_cma", "the kernel refused a copy from a peer's memory: messages go by RDMA"),
    ("worker", "registrations_refused", "all keys were in use"),
    ("worker", "rx_ready_unmatched", "messages sent as ready had no receive: the program is wrong"),
    ("worker", "rx_truncated", "messages were longer than their receives"),
    ("worker", "rx_denied", "peers used keys without the right to"),
    ("worker", "rx_active_unknown", "active messages had no handler"),
    ("worker", "connections_refused", "peers asked for connections and got none"),
    ("worker", "peers_gone", "peers lost"),
    ("worker", "local_ports_missed", "peers of this host that are reached over the network"),
    ("worker", "local_messages_refused", "other users of this host asked for a port"),
    ("worker", "events_lost", "the program does not poll its events"),
    ("registration", "registered_once", "memory is registered for each use: see 'roci doctor'"),
    ("registration", "unregistered", "memory could not be registered: its bytes are copied"),
    ("registration", "register_failures", "the registrar failed: see the limit of locked memory (ulimit -l)"),
    ("registration", "evictions", "registrations made room for others: raise ROCI_DREG_CACHE_ENTRIES or _LIMIT"),
    ("registration", "invalidations", "registered memory was unmapped: use buffers again, and do not free them"),
    ("registration", "unmapped_in_use", "memory was unmapped while it was sent or received"),
    ("port", "rx_missed", "a full receive buffer dropped frames"),
    ("port", "tx_link_down", "frames were discarded: the link was down"),
    ("port", "tx_too_long", "frames were longer than a path carries: lower ROCI_MTU"),
    ("port", "tx_failed", "hosts or routers reported that frames did not arrive"),
    ("port", "rx_fragmented", "frames came in segments and were dropped: lower the MTU of the sender"),
    ("port", "rx_ip_csum_errors", "IP headers damaged on their way, as the device found"),
    ("port", "rx_udp_csum_errors", "frames damaged on their way, as the device found"),
    ("port", "handover_lost", "an engine of this port had no room for its frames"),
];

/// The counters among them that have moved, with what they mean, a line each.
pub(crate) fn of(engine: &EngineStats, worker: &WorkerStats) -> Vec<String> {
    let value = |scope: &str, name: &str| {
        let found = match scope {
            "worker" => worker.iter().find(|(its, _)| *its == name),
            "engine" => engine.iter().find(|(its, _)| *its == name),
            _ => None,
        };
        found.map_or(0, |(_, value)| value)
    };
    let moved = TROUBLES.iter().map(|&(scope, name, meaning)| (value(scope, name), name, meaning));
    moved.filter(|(value, ..)| *value > 0).map(|(value, name, meaning)| format!("{name} {value}: {meaning}")).collect()
}
