//! Counters of a worker.

/// Plain counters; they only rise.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WorkerStats {
    /// Messages sent eagerly.
    pub tx_eager: u64,
    /// Messages sent by rendezvous.
    pub tx_rendezvous: u64,
    /// Messages of nothing but credits.
    pub tx_credit: u64,
    /// Times that a message had to wait for a credit.
    pub credit_stalls: u64,
    /// Times that a message had to wait for a send buffer or a place in the send queue.
    pub buffer_stalls: u64,
    /// Messages that met their receive.
    pub rx_expected: u64,
    /// Messages that came before their receive.
    pub rx_unexpected: u64,
    /// Messages longer than their receive.
    pub rx_truncated: u64,
    /// Peers lost.
    pub peers_gone: u64,
}

impl WorkerStats {
    /// Every counter with its name.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        [
            ("tx_eager", self.tx_eager),
            ("tx_rendezvous", self.tx_rendezvous),
            ("tx_credit", self.tx_credit),
            ("credit_stalls", self.credit_stalls),
            ("buffer_stalls", self.buffer_stalls),
            ("rx_expected", self.rx_expected),
            ("rx_unexpected", self.rx_unexpected),
            ("rx_truncated", self.rx_truncated),
            ("peers_gone", self.peers_gone),
        ]
        .into_iter()
    }
}
