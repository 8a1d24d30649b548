//! Counters of a connection manager.

use crate::wire::mad::MadError;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Plain counters with a single writer; they only rise.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct CmStats { $($(#[$doc])* pub $name: u64,)* }

        impl CmStats {
            /// Every counter with its name.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                [$((stringify!($name), self.$name)),*].into_iter()
            }
        }
    };
}

counters! {
    /// Datagrams that are not 256 bytes long.
    rx_mad_length,
    /// Datagrams of another base version.
    rx_mad_version,
    /// Datagrams of another management class.
    rx_mad_not_cm,
    /// Datagrams of another class version.
    rx_mad_class_version,
    /// Datagrams with another method than Send.
    rx_mad_method,
    /// Datagrams with an attribute that the class does not have.
    rx_mad_unknown_attribute,
    /// Messages taken.
    rx_messages,
    /// LAP, APR and the MRA of a LAP: paths do not change here.
    rx_alternate_path,
    /// Messages about a connection from where its peer is not: dropped.
    rx_foreign_route,
    /// Messages about no connection that there is.
    rx_unknown_connection,
    /// Messages that the connection's state does not take.
    rx_wrong_state,
    /// Messages seen before.
    rx_duplicate,
    /// DREQs for another queue pair than the connection's: dropped.
    rx_wrong_qpn,
    /// REQs dropped because the application does not take its events: the peer will ask again.
    req_events_full,
    /// REQs refused: there is no listener.
    req_no_service,
    /// REQs refused: a transport other than RC.
    req_wrong_transport,
    /// REQs for another partition than that of the address they came to.
    req_wrong_partition,
    /// REQs refused: they ask for longer packets than the way to the peer carries, or for a path MTU that there is not.
    req_wrong_mtu,
    /// REQs refused: the addressing header is missing or malformed.
    req_bad_addressing,
    /// REQs refused: the addressing header names others than the packet.
    req_wrong_address,
    /// REQs refused: the listener has too many undecided ones.
    req_backlog_full,
    /// REQs refused: too many connections.
    req_no_resources,
    /// REQs and REPs refused: the peer's queue pair is in a connection that it forgot.
    stale_connections,
    /// Datagrams queued for sending.
    tx_messages,
    /// Messages sent again for want of an answer.
    tx_retransmissions,
    /// Messages said again because the peer did.
    tx_repeated,
    /// Datagrams dropped because they were not fetched for sending: as if lost.
    tx_queue_full,
    /// REQs that were not answered.
    req_exhausted,
    /// REPs that were not answered.
    rep_exhausted,
    /// DREQs that were not answered.
    dreq_exhausted,
    /// SIDR_REQs that were not answered.
    sidr_exhausted,
    /// Connections that became established.
    established,
    /// Connections that were refused, by either side.
    rejected,
    /// SIDR_REQs answered with a queue pair.
    sidr_answered,
    /// SIDR_REQs refused.
    sidr_refused,
}

impl CmStats {
    /// Counts a datagram that is none of ours.
    pub(super) fn count(&mut self, reason: MadError) {
        let counter = match reason {
            MadError::Length => &mut self.rx_mad_length,
            MadError::Version => &mut self.rx_mad_version,
            MadError::NotCm => &mut self.rx_mad_not_cm,
            MadError::ClassVersion => &mut self.rx_mad_class_version,
            MadError::Method => &mut self.rx_mad_method,
            MadError::UnknownAttribute => &mut self.rx_mad_unknown_attribute,
        };
        *counter += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_is_counted_under_its_own_name() {
        for reason in MadError::ALL {
            let mut stats = CmStats::default();
            stats.count(reason);
            let counted: Vec<_> = stats.iter().filter(|&(_, count)| count > 0).collect();
            assert_eq!(counted, [(reason.name(), 1)]);
        }
    }
}
