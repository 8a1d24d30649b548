//! What is between the two queue pairs: one place for one packet.

use roci_protocol::wire::{Flow, Frame, Headers, Ip, MacAddr, Packet};

use super::world::LEN;

/// Half a wire: what one side sends and the other takes.
pub trait Wire: Sized {
    /// Both halves.
    fn pair() -> [Self; 2];

    /// Puts a packet in; the one before was taken.
    fn put(&mut self, headers: &Headers, payload: &[u8]);

    /// Takes the packet out.
    fn take(&mut self) -> Option<Packet<'_>>;
}

/// Headers as a value: the machine alone.
pub struct ByValue {
    headers: Option<Headers>,
    payload: [u8; LEN],
    len: usize,
}

impl Wire for ByValue {
    fn pair() -> [Self; 2] {
        [(); 2].map(|()| Self { headers: None, payload: [0; LEN], len: 0 })
    }

    #[inline]
    fn put(&mut self, headers: &Headers, payload: &[u8]) {
        self.headers = Some(*headers);
        self.len = payload.len();
        self.payload[..self.len].copy_from_slice(payload);
    }

    #[inline]
    fn take(&mut self) -> Option<Packet<'_>> {
        let headers = self.headers.take()?;
        Some(Packet { headers, payload: &self.payload[..self.len] })
    }
}

/// Frames with an ICRC: everything but a port.
pub struct Framed {
    flow: Flow,
    frame: [u8; MAX_FRAME],
    len: usize,
}

/// Headers that the figures need, and then some.
const MAX_FRAME: usize = 128 + LEN;

impl Wire for Framed {
    fn pair() -> [Self; 2] {
        [(1, 2), (2, 1)].map(|(ours, theirs)| Self { flow: flow(ours, theirs), frame: [0; MAX_FRAME], len: 0 })
    }

    #[inline]
    fn put(&mut self, headers: &Headers, payload: &[u8]) {
        self.len = self.flow.frame_len(headers, payload.len());
        let frame = &mut self.frame[..self.len];
        self.flow.emit(frame, headers, payload.len(), |bytes| bytes.copy_from_slice(payload));
    }

    #[inline]
    fn take(&mut self) -> Option<Packet<'_>> {
        let len = std::mem::take(&mut self.len);
        let frame = Frame::parse(&self.frame[..len]).ok()?;
        frame.verify_icrc().ok()?;
        Some(frame.packet)
    }
}

fn flow(ours: u8, theirs: u8) -> Flow {
    let mac = |host| MacAddr([2, 0, 0, 0, 0, host]);
    let ip = Ip::between([10, 0, 0, ours].into(), [10, 0, 0, theirs].into()).expect("both are IPv4");
    Flow::new(mac(ours), mac(theirs), None, ip, 0xc000)
}
