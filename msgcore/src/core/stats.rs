//! Counters of a worker.

macro_rules! counters {
    ($($(#[doc = $meaning:literal])* $name:ident,)*) => {
        /// Plain counters; they only rise, but for those in [`Self::GAUGES`].
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct WorkerStats {
            $($(#[doc = $meaning])* pub $name: u64,)*
        }

        impl WorkerStats {
            /// Those of them that may fall.
            pub const GAUGES: &[&str] = &["vbufs"];

            /// Every counter with its name.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }
    };
}

counters! {
    /// Messages sent eagerly.
    tx_eager,
    /// Messages of them that left in a packet behind another one.
    tx_coalesced,
    /// Messages sent by R3.
    tx_r3,
    /// Messages sent by RGET.
    tx_rget,
    /// Messages of them that the receiver, a process of this host, may copy from this process's memory.
    tx_cma,
    /// Messages sent by RPUT, once the receiver has sent its clear-to-send.
    tx_rput,
    /// Messages sent by PIPELINE, once the receiver has sent its clear-to-send.
    tx_pipeline,
    /// Messages short enough to be eager that became R3 for want of credits.
    fallback_credit,
    /// Messages short enough to be eager that became R3 for want of send buffers or places in the send queue.
    fallback_buffer,
    /// Messages that became R3 or PIPELINE, at either end, because memory could not be registered or cut.
    fallback_registration,
    /// Messages that became R3 because one of the two ends has no RDMA.
    fallback_peer,
    /// Registrations that were refused: all keys were in use.
    registrations_refused,
    /// Messages that were fetched by RDMA READ, because the kernel refused to copy them from the sender's memory.
    fallback_cma,
    /// Messages of nothing but credits.
    tx_credit,
    /// Peers that were asked for a sign of life.
    tx_keepalive,
    /// Times that a message had to wait for a credit.
    credit_stalls,
    /// Times that a message had to wait for a send buffer or a place in the send queue.
    buffer_stalls,
    /// Times that a message, or the question for one, had to wait for the peer to answer such questions.
    cancel_stalls,
    /// Messages that met their receive.
    rx_expected,
    /// Messages that came before their receive.
    rx_unexpected,
    /// Messages of them that their sender said would be expected.
    rx_ready_unmatched,
    /// Messages longer than their receive.
    rx_truncated,
    /// Claimed messages that were dropped, and are discarded.
    discarded,
    /// Messages received through staging memory.
    rx_staged,
    /// Messages copied from the memory of their sender, a process of this host.
    rx_cma,
    /// Operations taken back.
    cancelled,
    /// One-sided operations begun.
    tx_one_sided,
    /// One-sided transfers that went by message, because RDMA does not have them, or an end has no RDMA.
    tx_by_message,
    /// One-sided transfers of peers by message that were denied: their key does not allow them.
    rx_denied,
    /// Active messages sent, replies among them.
    tx_active,
    /// Active messages whose handler has run.
    rx_active,
    /// Active messages for which there is no handler.
    rx_active_unknown,
    /// Connections that peers asked for and did not get.
    connections_refused,
    /// Peers lost.
    peers_gone,
    /// Peers that have come by themselves and were not inserted.
    unknown_admitted,
    /// Ports that were opened to peers of this host.
    local_ports_opened,
    /// Peers of this host that are reached over the network, because there was no place for a port or they did not answer.
    local_ports_missed,
    /// Datagrams of other users, who may not have a port to this end.
    local_messages_refused,
    /// Events that were not polled in time.
    events_lost,
    /// Vbufs that exist.
    vbufs,
}
