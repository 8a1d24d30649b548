//! A packet of a capture, and what can be said of it alone.

use std::fmt;

use roci_protocol::Nanos;
use roci_protocol::wire::cm::Mad;
use roci_protocol::wire::{Frame, FrameLayers, Malformed, Opcode, Packet, icrc, opcode};

use super::flows::PacketMark;

/// A packet with its place in the capture, and among the packets of its queue pair.
#[derive(Clone, Copy)]
pub(super) struct CapturedPacket<'a> {
    pub(super) index: u64,
    /// When it was captured, in nanoseconds, as the command line wants it.
    pub(super) at: Option<Nanos>,
    pub(super) bytes: &'a [u8],
    pub(super) frame: Result<Frame<'a>, Malformed>,
    /// What its ICRC is, where it is a RoCEv2 packet: ok, off or BAD.
    pub(super) icrc: &'static str,
    pub(super) mark: Option<PacketMark>,
}

impl<'a> CapturedPacket<'a> {
    pub(super) fn read(index: u64, at: Option<Nanos>, bytes: &'a [u8]) -> Self {
        let frame = Frame::parse(bytes);
        Self { index, at, bytes, frame, icrc: icrc_verdict(bytes, &frame), mark: None }
    }

    pub(super) fn is_roce(&self) -> bool {
        goes_to_port(&self.frame)
    }

    pub(super) fn has_bad_icrc(&self) -> bool {
        self.icrc == "BAD"
    }
}

impl fmt::Display for CapturedPacket<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { index, at, bytes, frame, icrc, mark } = self;
        write!(f, "{index} ")?;
        if let Some(at) = at {
            write!(f, "{}.{:09} ", at / 1_000_000_000, at % 1_000_000_000)?;
        }
        match frame {
            Ok(frame) => {
                let route = format!("{} > {}", frame.ip.source(), frame.ip.destination());
                write!(f, "{} {route} len={} icrc {icrc}", frame.packet, bytes.len())?;
                if let Some(dialect) = dialect_of(&frame.packet) {
                    write!(f, " {dialect}")?;
                }
                if let Some(Err(reason)) = Mad::of_packet(&frame.packet) {
                    write!(f, " complaint={reason}")?;
                }
            }
            Err(reason) if self.is_roce() => {
                let name = name_of_unread(bytes);
                write!(f, "{name} len={} icrc {icrc} complaint={reason}", bytes.len())?;
            }
            Err(reason) => write!(f, "NOT_ROCE len={} complaint={reason}", bytes.len())?,
        }
        mark.map_or(Ok(()), |mark| write!(f, " mark={}", mark.name()))
    }
}

/// Whether the frame goes to the RoCEv2 port, whatever else is wrong with it.
pub(crate) fn is_roce(frame: &[u8]) -> bool {
    goes_to_port(&Frame::parse(frame))
}

fn goes_to_port(frame: &Result<Frame<'_>, Malformed>) -> bool {
    use Malformed::{Alignment, Icrc, Pad, TransportVersion, UnknownOpcode};
    match frame {
        Ok(_) => true,
        Err(reason) => matches!(reason, Alignment | Icrc | Pad | TransportVersion | UnknownOpcode),
    }
}

/// Whether a connection has agreed to go without, a capture does not say: the mark does, if it is the right one.
fn icrc_verdict(bytes: &[u8], frame: &Result<Frame<'_>, Malformed>) -> &'static str {
    // Short frames have Ethernet's padding behind the packet: a frame that can be read knows where it ends.
    match frame.as_ref().map_or_else(|_| icrc::verify_frame(bytes), Frame::verify_icrc) {
        Ok(()) => "ok",
        Err(_) if frame.as_ref().is_ok_and(Frame::omits_icrc) => "off",
        Err(_) => "BAD",
    }
}

/// The name of a packet that could not be read as a whole, by the first byte of its transport header.
pub(super) fn name_of_unread(bytes: &[u8]) -> String {
    let code = FrameLayers::parse(bytes).ok().and_then(|layers| layers.transport.first().copied());
    code.map_or_else(|| "UNKNOWN".into(), opcode::name_of)
}

/// What an acknowledgement says behind its headers between two ends of ours (selective repeat, congestion control by
/// delay). IBTA has nothing there, so that other programs call such a packet malformed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct DialectOfAck {
    /// Packets behind the first missing one that were kept ...
    pub(super) kept: u32,
    /// ... of so many that the map speaks of.
    pub(super) reported: usize,
    /// How long the acknowledgement has waited at its sender.
    pub(super) waited_ns: Option<u32>,
}

impl fmt::Display for DialectOfAck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kept, reported, waited_ns } = self;
        write!(f, "rocinante[kept={kept} of={reported}")?;
        waited_ns.map_or(Ok(()), |ns| write!(f, " waited={ns} ns"))?;
        f.write_str("]")
    }
}

/// Behind the map, if there is one: how long the acknowledgement has waited.
const ECHO_LEN: usize = 4;

/// Reads what only our ends put behind an acknowledgement.
pub(super) fn dialect_of(packet: &Packet<'_>) -> Option<DialectOfAck> {
    if packet.headers.bth.opcode != Opcode::RcAck || packet.payload.is_empty() {
        return None;
    }
    let (map, waited_ns) = match packet.payload.split_last_chunk::<ECHO_LEN>() {
        Some((map, echo)) if packet.payload.len() % 8 == ECHO_LEN => (map, Some(u32::from_be_bytes(*echo))),
        _ => (packet.payload, None),
    };
    let kept = map.iter().map(|byte| byte.count_ones()).sum();
    Some(DialectOfAck { kept, reported: map.len() * 8, waited_ns })
}

#[cfg(test)]
mod tests {
    use roci_protocol::wire::{Aeth, Bth, Headers, Syndrome};
    use roci_protocol::{Msn, Psn, Qpn};

    use super::*;

    fn ack(payload: &[u8]) -> Packet<'_> {
        let aeth = Aeth { syndrome: Syndrome::Ack { credit: 3 }, msn: Msn::new(1) };
        let mut headers = Headers::plain(Bth::new(Opcode::RcAck, Qpn::new(5), Psn::new(9)));
        headers.ext.aeth = Some(aeth);
        Packet { headers, payload }
    }

    #[test]
    fn an_acknowledgement_of_our_dialect_is_explained() {
        assert_eq!(dialect_of(&ack(&[])), None, "IBTA's has nothing there");
        let map = [0b101, 0, 0, 0, 0, 0, 0, 0x80];
        assert_eq!(dialect_of(&ack(&map)).expect("a map").to_string(), "rocinante[kept=3 of=64]");
        let both = [&map[..], &900u32.to_be_bytes()].concat();
        assert_eq!(dialect_of(&ack(&both)).expect("both").to_string(), "rocinante[kept=3 of=64 waited=900 ns]");
        assert_eq!(dialect_of(&ack(&[0, 0, 0, 7])).expect("a time").waited_ns, Some(7));
    }
}
