//! Two queue pairs back to back: what one packet costs in the RC machine, requester and responder together.
//!
//! Nothing here allocates after the start, reads the time or draws a number, so that the same exchange takes the same
//! instructions every time.

mod side;
mod wire;
mod world;

pub use wire::{Bare, Framed, Wire};

use roci_protocol::Nanos;
use roci_protocol::rc::{Remote, SendOp};

use side::QpSide;
use world::{KEY, LEN};

/// Time that passes from one exchange to the next: the machine's clock is set, nothing waits.
const ROUND_TRIP_NS: Nanos = 2000;

/// Receives that are posted: more than one, as an application would have it.
const RECEIVES: usize = 16;

/// Every figure by name, in the order of benches/instructions.txt.
pub const NAMES: [&str; 4] = ["send_64", "write_64", "read_64", "send_64_framed"];

/// What `name` stands for, started; `None` where it stands for nothing.
pub fn exchange(name: &str) -> Option<Box<dyn FnMut()>> {
    Some(match name {
        "send_64" => repeat(Bare::pair(), send()),
        "write_64" => repeat(Bare::pair(), write()),
        "read_64" => repeat(Bare::pair(), read()),
        "send_64_framed" => repeat(Framed::pair(), send()),
        _ => return None,
    })
}

fn repeat<W: Wire + 'static>(wires: [W; 2], op: SendOp) -> Box<dyn FnMut()> {
    let mut pair = Pair::new(wires);
    Box::new(move || pair.exchange(op))
}

/// A SEND of 64 bytes.
pub const fn send() -> SendOp {
    SendOp::Send { imm: None }
}

/// A WRITE of 64 bytes.
pub const fn write() -> SendOp {
    SendOp::Write { remote: Remote { va: 0, rkey: KEY }, imm: None }
}

/// A READ of 64 bytes.
pub const fn read() -> SendOp {
    SendOp::Read { remote: Remote { va: 0, rkey: KEY } }
}

/// A requester and a responder, connected.
pub struct Pair<W> {
    requester: QpSide<W>,
    responder: QpSide<W>,
    /// The memory of the next request.
    buffer: Option<Vec<u8>>,
    now: Nanos,
}

impl<W: Wire> Pair<W> {
    /// Connects two queue pairs over two halves of a wire; the responder has receives posted.
    pub fn new([near, far]: [W; 2]) -> Self {
        let mut responder = QpSide::new(far);
        for _ in 0..RECEIVES {
            responder.post_receive(vec![0; LEN]);
        }
        Self { requester: QpSide::new(near), responder, buffer: Some(vec![0xa5; LEN]), now: 0 }
    }

    /// One message from its post to its completion. The receive that a SEND takes is posted again within.
    #[inline]
    pub fn exchange(&mut self, op: SendOp) {
        self.carry(op);
        if let Some(receive) = self.responder.take_completion() {
            self.responder.post_receive(receive.buffer);
        }
        let sent = self.requester.take_completion().expect("the acknowledgement completes it");
        self.buffer = Some(sent.buffer);
    }

    /// The message, and the answer.
    #[inline]
    fn carry(&mut self, op: SendOp) {
        let Self { requester, responder, .. } = self;
        self.now += ROUND_TRIP_NS;
        let buffer = self.buffer.take().expect("the last exchange gave it back");
        requester.send(self.now, op, buffer);
        responder.hear(self.now, requester);
        responder.reply(self.now);
        requester.hear(self.now, responder);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pair after a hundred exchanges and the message of one more, which did not go wrong on its way.
    fn after(op: SendOp, wires: [impl Wire; 2]) -> [QpSide<impl Wire>; 2] {
        let mut pair = Pair::new(wires);
        for _ in 0..100 {
            pair.exchange(op);
        }
        pair.carry(op);
        assert_eq!(pair.requester.stats().tx_requests, 101);
        assert_eq!(pair.requester.stats().retransmitted_packets, 0);
        assert_eq!(pair.responder.stats().rx_requests, 101);
        [pair.requester, pair.responder]
    }

    #[test]
    fn a_send_fills_the_receive() {
        let [_, mut responder] = after(send(), Bare::pair());
        assert_eq!(responder.take_completion().expect("received").buffer, [0xa5; LEN]);
        let [_, mut responder] = after(send(), Framed::pair());
        assert_eq!(responder.take_completion().expect("received").buffer, [0xa5; LEN]);
    }

    #[test]
    fn a_write_fills_the_region() {
        let [_, responder] = after(write(), Bare::pair());
        assert_eq!(responder.region(), [0xa5; LEN]);
    }

    #[test]
    fn a_read_fills_the_buffer() {
        let [mut requester, _] = after(read(), Bare::pair());
        assert_eq!(requester.take_completion().expect("read").buffer, [0; LEN]);
    }

    #[test]
    fn every_name_is_an_exchange() {
        assert!(NAMES.iter().all(|name| exchange(name).is_some()));
    }
}
