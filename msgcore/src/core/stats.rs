//! Counters of a worker.

use roci_protocol::msg::Way;

use crate::services::tag::select::{Protocol, Reason};

macro_rules! counters {
    ($($(#[doc = $meaning:literal])* $name:ident,)*) => {
        /// Plain counters; they only rise, but for `vbufs`.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct WorkerStats {
            $($(#[doc = $meaning])* pub $name: u64,)*
        }

        impl WorkerStats {
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
    /// Messages sent by R3.
    tx_r3,
    /// Messages sent by RGET.
    tx_rget,
    /// Messages sent by RPUT, once the receiver has granted it.
    tx_rput,
    /// Messages sent by PIPELINE, once the receiver has granted it.
    tx_pipeline,
    /// Messages short enough to be eager that became R3 for want of credits.
    fallback_credit,
    /// Messages that became R3 or PIPELINE, at either end, because memory could not be registered or cut.
    fallback_registration,
    /// Messages that became R3 because one of the two ends has no RDMA.
    fallback_peer,
    /// Registrations that were refused: all keys were in use.
    registrations_refused,
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
    /// Messages received through staging memory.
    rx_staged,
    /// Operations taken back.
    cancelled,
    /// Connections that peers asked for and did not get.
    connections_refused,
    /// Peers lost.
    peers_gone,
    /// Events that nobody polled in time.
    events_lost,
    /// Vbufs that exist.
    vbufs,
}

impl WorkerStats {
    /// A protocol was chosen for a message. Which way a rendezvous goes may change yet.
    #[inline]
    pub(crate) fn chose(&mut self, protocol: Protocol, reason: Reason) {
        self.tx_eager += u64::from(protocol == Protocol::Eager);
        match reason {
            Reason::NoCredit => self.fallback_credit += 1,
            Reason::Unregistered => self.fallback_registration += 1,
            Reason::NoRdma => self.fallback_peer += 1,
            Reason::Short | Reason::Long | Reason::Medium | Reason::VeryLong => {}
        }
    }

    /// The way of a rendezvous is certain.
    pub(crate) fn goes(&mut self, way: Way) {
        match way {
            Way::R3 => self.tx_r3 += 1,
            Way::Rget => self.tx_rget += 1,
            Way::Rput => self.tx_rput += 1,
            Way::Pipeline => self.tx_pipeline += 1,
        }
    }
}

impl crate::Worker {
    /// The link of the first port, with what its device does and its counters; `None` where this rank is alone.
    pub fn link(&self) -> Option<&crate::LiveLink> {
        (self.engine.port_count() > 0).then(|| self.engine.link(0))
    }
}
