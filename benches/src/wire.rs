//! A frame of 802.3, IPv4 and UDP with a SEND and its ICRC: emitted, and parsed and verified.

use roci_protocol::wire::{Bth, Flow, Frame, Headers, Ip, MacAddr, Opcode, Packet};
use roci_protocol::{Psn, Qpn};

/// One frame, which is written and read again and again.
pub struct OneFrame {
    flow: Flow,
    headers: Headers,
    payload: Vec<u8>,
    bytes: Vec<u8>,
}

impl OneFrame {
    /// With so many bytes of payload.
    pub fn new(len: usize) -> Self {
        let headers = Headers::plain(Bth::new(Opcode::RcSendOnly, Qpn::new(7), Psn::new(1)));
        let flow = flow();
        let bytes = vec![0; flow.frame_len(&headers, len)];
        let mut frame = Self { flow, headers, payload: vec![0x5a; len], bytes };
        frame.emit();
        frame
    }

    /// Writes it; the flow remembers the headers below the transport from the last time.
    #[inline]
    pub fn emit(&mut self) {
        let Self { flow, headers, payload, bytes } = self;
        flow.emit(bytes, headers, payload.len(), |into| into.copy_from_slice(payload));
    }

    /// Reads it, as a receiver does that does not know the flow; `None` where anything is wrong with it.
    #[inline]
    pub fn read(&self) -> Option<Packet<'_>> {
        let frame = Frame::parse(&self.bytes).ok()?;
        frame.verify_icrc().ok()?;
        Some(frame.packet)
    }

    /// All of its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

fn flow() -> Flow {
    let ip = Ip::between([10, 0, 0, 1].into(), [10, 0, 0, 2].into()).expect("both are IPv4");
    Flow::new(MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2]), None, ip, 0xc000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_what_is_damaged_is_not() {
        for len in [8, 64, 4096] {
            let mut frame = OneFrame::new(len);
            frame.bytes.fill(0);
            assert_eq!(frame.read(), None);
            frame.emit();
            assert_eq!(frame.read().expect("it is right").payload, frame.payload);
        }
    }
}
