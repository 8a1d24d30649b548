//! Somebody off the path, who knows the connection's addresses and sees how far it has come, and forges.
//!
//! Nothing that it sends can be the packet that is due, for the receiver cannot distinguish that from a genuine one
//! (IBTA has no authentication). Everything else must change nothing.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::rc::is_response;
use crate::wire::{Aeth, Bth, Deth, Frame, Headers, Opcode, Packet, Syndrome};
use crate::{Msn, Pkey, Psn, Qpn};

/// So far ahead of a request lies a PSN that nothing genuine reaches while one frame crosses the wire: more than the
/// largest window and the answers of one READ.
const AHEAD: u32 = 1_200;

pub(super) struct Forger {
    dice: StdRng,
    rate: f64,
}

impl Forger {
    pub(super) fn new(seed: u64, rate: f64) -> Self {
        Self { dice: StdRng::seed_from_u64(!seed), rate }
    }

    /// Returns a forged frame to the receiver of this genuine one.
    pub(super) fn throw(&mut self, genuine: &[u8]) -> Option<Vec<u8>> {
        if self.rate == 0.0 || !self.dice.random_bool(self.rate) {
            return None;
        }
        let frame = Frame::parse(genuine).ok()?;
        let Headers { bth, .. } = frame.packet.headers;
        let blank = Bth { pad: 0, ..bth };
        let headers = match self.dice.random_range(0..5) {
            0 => return Some(with_foreign_partition(&frame)),
            1 => datagram(blank),
            2 => Headers::plain(Bth { opcode: Opcode::Cnp, becn: true, psn: Psn::new(self.dice.random()), ..blank }),
            _ if bth.opcode == Opcode::Cnp => return None,
            // What a request and what an answer numbers lies in two spaces.
            _ if is_response(bth.opcode) => acknowledgement(blank),
            // It would end the connection if it were due: a packet in the middle of a message is full.
            _ => {
                let opcode = [Opcode::RcSendMiddle, Opcode::RcWriteMiddle][self.dice.random_range(0..2)];
                Headers::plain(Bth { opcode, psn: bth.psn.plus(AHEAD + self.dice.random_range(0..400)), ..blank })
            }
        };
        let payload = if headers.bth.opcode == Opcode::RcAck { &[][..] } else { &[0x66; 16][..] };
        Some(Frame { packet: Packet { headers, payload }, ..frame }.to_bytes())
    }
}

fn with_foreign_partition(frame: &Frame<'_>) -> Vec<u8> {
    let mut forged = *frame;
    forged.packet.headers.bth.pkey = Pkey(0x1234);
    forged.to_bytes()
}

/// A packet of another transport.
fn datagram(bth: Bth) -> Headers {
    let mut headers = Headers::plain(Bth { opcode: Opcode::UdSendOnly, ..bth });
    headers.ext.deth = Some(Deth { qkey: 0x1111_1111, source_qpn: Qpn::new(9), reserved: 0 });
    headers
}

/// An acknowledgement of what was never sent.
fn acknowledgement(bth: Bth) -> Headers {
    let mut headers = Headers::plain(Bth { opcode: Opcode::RcAck, psn: bth.psn.plus(1 << 22), ..bth });
    headers.ext.aeth = Some(Aeth { syndrome: Syndrome::Ack { credit: 30 }, msn: Msn::new(77) });
    headers
}
