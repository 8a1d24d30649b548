//! A link that was closed: nothing arrives, and what is sent is lost.

use std::convert::Infallible;

use roci_protocol::Nanos;
use roci_protocol::wire::MacAddr;

use super::dpdk::clock;
use super::{Batch, Full, Link, LinkState, LinkStats};

/// Holds the number of a port until another link has it.
#[derive(Debug, Default)]
pub struct ClosedLink {
    stats: LinkStats,
}

/// A frame that does not exist.
#[derive(Debug)]
pub struct NoFrame(Infallible);

impl AsRef<[u8]> for NoFrame {
    fn as_ref(&self) -> &[u8] {
        match self.0 {}
    }
}

impl Link for ClosedLink {
    type Frame = NoFrame;

    fn now(&self) -> Nanos {
        clock::now()
    }

    fn max_frame(&self) -> usize {
        0
    }

    fn mac(&self) -> MacAddr {
        MacAddr([0; 6])
    }

    #[inline]
    fn receive(&mut self, _batch: &mut Batch<NoFrame>) {}

    fn transmit(&mut self, _len: usize, _fill: impl FnOnce(&mut [u8])) -> Result<(), Full> {
        self.stats.tx_link_down += 1;
        Ok(())
    }

    #[inline]
    fn flush(&mut self) {}

    #[inline]
    fn maintain(&mut self, _now: Nanos) -> LinkState {
        LinkState::Down
    }

    fn stats(&self) -> LinkStats {
        self.stats
    }
}
