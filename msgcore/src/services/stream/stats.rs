//! Counters of streams.

/// Plain counters; they only rise.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StreamStats {
    /// Bytes that puts took.
    pub tx_bytes: u64,
    /// Bytes that gets gave.
    pub rx_bytes: u64,
    /// WRITEs of data; with piggybacking they carry their own news.
    pub tx_data: u64,
    /// WRITEs of a head.
    pub tx_heads: u64,
    /// WRITEs of a tail.
    pub tx_tails: u64,
    /// Tails that travelled in the header of a chunk instead.
    pub tx_tails_piggybacked: u64,
    /// Payloads announced to a peer.
    pub tx_announcements: u64,
    /// Puts that took nothing, or not all, because the ring was full.
    pub ring_stalls: u64,
    /// Puts that took nothing, or not all, because too much had not been acknowledged.
    pub send_stalls: u64,
    /// Payloads read straight into the buffer of a get.
    pub rx_direct: u64,
    /// READs of a part of a payload into a staging buffer.
    pub rx_staged: u64,
    /// Payloads that were still registered when they were put again.
    pub cache_hits: u64,
    /// Payloads that had to be registered.
    pub cache_misses: u64,
    /// Payloads whose registration gave way to another.
    pub cache_evictions: u64,
}

impl StreamStats {
    /// Every counter with its name.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        [
            ("tx_bytes", self.tx_bytes),
            ("rx_bytes", self.rx_bytes),
            ("tx_data", self.tx_data),
            ("tx_heads", self.tx_heads),
            ("tx_tails", self.tx_tails),
            ("tx_tails_piggybacked", self.tx_tails_piggybacked),
            ("tx_announcements", self.tx_announcements),
            ("ring_stalls", self.ring_stalls),
            ("send_stalls", self.send_stalls),
            ("rx_direct", self.rx_direct),
            ("rx_staged", self.rx_staged),
            ("cache_hits", self.cache_hits),
            ("cache_misses", self.cache_misses),
            ("cache_evictions", self.cache_evictions),
        ]
        .into_iter()
    }
}
