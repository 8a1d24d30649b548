//! A peer made by hand.

use roci_driver::link::sim::SimLink;
use roci_driver::link::{Batch, Link};
use roci_protocol::wire::{Flow, Headers, MacAddr};

/// A station that sends what the test wants, and receives what comes.
pub struct ScriptedPeer {
    link: SimLink,
}

impl ScriptedPeer {
    /// A peer at this station.
    pub fn new(link: SimLink) -> Self {
        Self { link }
    }

    /// Its address.
    pub fn mac(&self) -> MacAddr {
        self.link.mac()
    }

    /// Sends a frame, whatever it is.
    ///
    /// # Panics
    /// When the wire is full: the other end has not polled for too long.
    pub fn send(&mut self, frame: &[u8]) {
        self.link.transmit(frame.len(), |bytes| bytes.copy_from_slice(frame)).expect("the wire has room");
        self.link.flush();
    }

    /// The frame of a packet, whose payload is `payload` bytes of `fill`.
    pub fn packet(flow: &mut Flow, headers: &Headers, payload: usize, fill: u8) -> Vec<u8> {
        let mut frame = vec![0; flow.frame_len(headers, payload)];
        flow.emit(&mut frame, headers, payload, |bytes| bytes.fill(fill));
        frame
    }

    /// All frames that have come.
    pub fn receive(&mut self) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        loop {
            let mut batch = Batch::new();
            self.link.receive(&mut batch);
            if batch.is_empty() {
                return frames;
            }
            frames.extend(batch);
        }
    }
}
