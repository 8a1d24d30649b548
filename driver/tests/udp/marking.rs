//! A link whose packets a switch on the way marks, when it is asked to.

use std::cell::Cell;
use std::net::IpAddr;
use std::rc::Rc;

use roci_driver::link::udp::UdpLink;
use roci_driver::link::{Batch, FailedFrame, Full, Link, LinkState, LinkStats, Share};
use roci_driver::same_as_inner_link;
use roci_protocol::Nanos;
use roci_protocol::wire::{FrameLayers, Ip, Ipv4, MacAddr};

/// "Congestion experienced" (RFC 3168).
const CE: u8 = 3;

pub(super) struct Marking {
    pub(super) inner: UdpLink,
    pub(super) marks: Rc<Cell<bool>>,
}

/// Marks an IPv4 frame of a connection's that takes part (ECT).
fn mark(frame: &mut [u8]) {
    let Ok(FrameLayers { ethernet, ip: Ip::V4(header), .. }) = FrameLayers::parse(frame) else { return };
    let tos = header.tos | if header.tos & CE == 0 { 0 } else { CE };
    Ipv4 { tos, ..header }.emit(&mut frame[ethernet.wire_len()..]);
}

impl Link for Marking {
    type Frame = <UdpLink as Link>::Frame;

    fn now(&self) -> Nanos {
        self.inner.now()
    }

    same_as_inner_link!();

    fn receive(&mut self, batch: &mut Batch<Self::Frame>) {
        self.inner.receive(batch);
    }

    fn transmit(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> Result<(), Full> {
        let marks = self.marks.get();
        self.inner.transmit(len, |frame| {
            fill(frame);
            if marks {
                mark(frame);
            }
        })
    }

    fn flush(&mut self) {
        self.inner.flush();
    }

    fn maintain(&mut self, now: Nanos) -> LinkState {
        self.inner.maintain(now)
    }

    fn stats(&self) -> LinkStats {
        self.inner.stats()
    }
}
