//! Which protocol carries a message: one pure function of its length and the configuration.

/// How a message travels.
///
/// MVICH's documentation swaps two names against its own code. Here RGET is the rendezvous by RDMA READ and
/// RPUT the one by RDMA WRITE.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protocol {
    /// Header and payload in one message, copied at both ends.
    Eager,
    /// The header announces the payload, and the receiver fetches it into its own buffer by RDMA READ.
    Rget,
}

/// What the choice depends on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Thresholds {
    /// The longest eager message that is wanted.
    pub eager: usize,
    /// The longest that a vbuf holds behind the header.
    pub vbuf_payload: usize,
}

impl Thresholds {
    /// The protocol for a message of `len` bytes.
    #[inline]
    pub const fn select(&self, len: usize) -> Protocol {
        if len <= self.eager && len <= self.vbuf_payload { Protocol::Eager } else { Protocol::Rget }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smaller_of_threshold_and_vbuf_decides() {
        let thresholds = Thresholds { eager: 100, vbuf_payload: 200 };
        assert_eq!(thresholds.select(100), Protocol::Eager);
        assert_eq!(thresholds.select(101), Protocol::Rget);
        assert_eq!(Thresholds { eager: 300, ..thresholds }.select(201), Protocol::Rget);
        assert_eq!(Thresholds { eager: 0, ..thresholds }.select(0), Protocol::Eager);
    }
}
