//! One-sided operations. Firehose stands, which says what memory of a peer they may reach; no operation drives it yet.

pub mod firehose;
