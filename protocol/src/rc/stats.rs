//! Counters of one queue pair, named after the kernel's RDMA hardware counters where one exists.

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Plain counters with a single writer; they only rise.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct Stats { $($(#[$doc])* pub $name: u64,)* }

        impl Stats {
            /// Every counter with its name.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                [$((stringify!($name), self.$name)),*].into_iter()
            }

            /// Adds another queue pair's counters to these.
            pub fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)*
            }
        }
    };
}

counters! {
    /// Requests sent, retransmissions included.
    tx_requests,
    /// Request packets sent again.
    retransmitted_packets,
    /// READ response packets sent.
    tx_read_responses,
    /// ACKs and NAKs sent.
    tx_acks,
    /// Requests executed: packets in order.
    rx_requests,
    /// Packets of a transport other than RC.
    rx_wrong_transport,
    /// Packets with a foreign partition key.
    rx_bad_pkey,
    /// Packets that the queue pair's state does not take.
    rx_wrong_state,
    /// Packets that came early and were kept.
    rx_held,
    /// Packets that were kept, and executed when their turn came.
    rx_held_executed,
    /// Packets that came early twice, and said two different things: neither was believed.
    rx_held_conflicts,
    /// Packets that were kept and would have ended the connection: they were forgotten instead.
    rx_held_refused,
    /// Packets that were kept so long that their places were given to others.
    rx_held_expired,
    /// Congestion notifications sent.
    np_cnp_sent,
    /// Packets that were marked on their way.
    np_ecn_marked_roce_packets,
    /// Congestion notifications received.
    rp_cnp_handled,
    /// Congestion notifications about packets that were not sent of late.
    rp_cnp_ignored,
    /// Responder: packets beyond the expected PSN.
    out_of_sequence,
    /// Responder: packets seen before.
    duplicate_request,
    /// Responder: duplicates of a READ that is no longer remembered.
    duplicate_dropped,
    /// Responder: RNR NAKs owed for want of a receive.
    out_of_buffer,
    /// Responder: requests refused as invalid.
    resp_invalid_request,
    /// Responder: requests refused for key, bounds or rights.
    resp_remote_access_errors,
    /// Requester: NAKs for a sequence error.
    packet_seq_err,
    /// Requester: answers that showed a READ response missing.
    implied_nak_seq_err,
    /// Requester: timeouts.
    local_ack_timeout_err,
    /// Requester: timeouts shorter than the connection's, which only made a silent peer speak.
    tail_loss_probes,
    /// Requester: RNR NAKs.
    rnr_nak,
    /// Requester: connections lost to silence.
    retry_exceeded_err,
    /// Requester: connections lost to RNR NAKs.
    rnr_nak_retry_err,
    /// Requester: acknowledgements of packets acknowledged before.
    stale_ack,
    /// Requester: acknowledgements of packets never sent.
    ghost_ack,
    /// Requester: responses that fit no READ.
    stale_response,
    /// Requester: responses whose length or opcode is wrong.
    bad_response,
    /// Requester: fatal NAKs.
    remote_errors,
}
