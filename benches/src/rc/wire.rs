//! What is between the two queue pairs: one place for one packet.

use roci_protocol::wire::{Flow, Frame, HeaderWords, Headers, Inflow, Ip, MacAddr, icrc};

use super::world::LEN;

/// Half a wire: what one side sends and the other takes.
pub trait Wire: Sized {
    /// Both halves.
    fn pair() -> [Self; 2];

    /// Puts a packet in, whose payload takes no pad; the one before was taken.
    fn put(&mut self, headers: &Headers, payload: &[u8]);

    /// The same for headers that are words.
    fn put_words(&mut self, headers: &HeaderWords, payload: &[u8]);

    /// Takes the packet out, from BTH to ICRC.
    fn take(&mut self) -> Option<&[u8]>;
}

/// Headers that the figures need, and then some.
const MAX_FRAME: usize = 128 + LEN;

/// The packet alone, with four bytes in place of its ICRC: what the machine takes.
pub struct Bare {
    packet: [u8; MAX_FRAME],
    len: usize,
}

impl Bare {
    #[inline]
    fn put_behind(&mut self, start: usize, payload: &[u8]) {
        self.packet[start..start + payload.len()].copy_from_slice(payload);
        self.len = start + payload.len() + icrc::LEN;
    }
}

impl Wire for Bare {
    fn pair() -> [Self; 2] {
        [(); 2].map(|()| Self { packet: [0; MAX_FRAME], len: 0 })
    }

    #[inline]
    fn put(&mut self, headers: &Headers, payload: &[u8]) {
        let start = headers.emit(&mut self.packet);
        self.put_behind(start, payload);
    }

    #[inline]
    fn put_words(&mut self, headers: &HeaderWords, payload: &[u8]) {
        let start = headers.emit(&mut self.packet, 0);
        self.put_behind(start, payload);
    }

    #[inline]
    fn take(&mut self) -> Option<&[u8]> {
        let len = std::mem::take(&mut self.len);
        (len > 0).then(|| &self.packet[..len])
    }
}

/// Frames with an ICRC, recognized as an engine does: everything but a port.
pub struct Framed {
    flow: Flow,
    inflow: Inflow,
    frame: [u8; MAX_FRAME],
    len: usize,
}

impl Wire for Framed {
    fn pair() -> [Self; 2] {
        [(1, 2), (2, 1)].map(|(ours, theirs)| {
            let (flow, inflow) = (flow(ours, theirs), Inflow::new(true, false));
            Self { flow, inflow, frame: [0; MAX_FRAME], len: 0 }
        })
    }

    #[inline]
    fn put(&mut self, headers: &Headers, payload: &[u8]) {
        self.len = self.flow.frame_len(headers, payload.len());
        let frame = &mut self.frame[..self.len];
        self.flow.emit(frame, headers, payload.len(), |bytes| bytes.copy_from_slice(payload));
    }

    #[inline]
    fn put_words(&mut self, headers: &HeaderWords, payload: &[u8]) {
        self.len = self.flow.frame_len_of_words(headers, payload.len());
        let frame = &mut self.frame[..self.len];
        self.flow.emit_words(frame, headers, payload.len(), |bytes| bytes.copy_from_slice(payload));
    }

    #[inline]
    fn take(&mut self) -> Option<&[u8]> {
        let bytes = &self.frame[..std::mem::take(&mut self.len)];
        if let Some(recognized) = self.inflow.recognize(bytes) {
            return Some(recognized.transport);
        }
        let frame = Frame::parse(bytes).ok()?;
        frame.verify_icrc().ok()?;
        self.inflow.accept(bytes, &frame);
        Some(frame.transport())
    }
}

fn flow(ours: u8, theirs: u8) -> Flow {
    let mac = |host| MacAddr([2, 0, 0, 0, 0, host]);
    let ip = Ip::between([10, 0, 0, ours].into(), [10, 0, 0, theirs].into()).expect("both are IPv4");
    Flow::new(mac(ours), mac(theirs), None, ip, 0xc000)
}
