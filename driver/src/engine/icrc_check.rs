//! Whether a packet's ICRC is right, left out by agreement, or wrong.

use std::net::IpAddr;

use roci_protocol::rc::Dialect;
use roci_protocol::wire::inflow::SenderV4;
use roci_protocol::wire::{Frame, Malformed, identification};

use super::Engine;
use super::identifications::IcrcCheck;
use super::poll::is_of_connection;
use crate::link::Link;

impl<L: Link> Engine<L> {
    /// Checks the ICRC. It may only be missing where its connection, by number and both addresses, has agreed to that.
    pub(super) fn check_icrc(&mut self, port: usize, frame: &Frame<'_>) -> Result<IcrcCheck, Malformed> {
        if frame.omits_icrc() && self.goes_without_icrc(port, frame) {
            return Ok(IcrcCheck::LeftOut);
        }
        match frame.verify_icrc() {
            Err(Malformed::Icrc) if self.ports[port].link.hides_identification() => {
                self.check_for_any_identification(port, frame)
            }
            checked => checked.map(|()| IcrcCheck::Right),
        }
    }

    /// The ICRC was made with an identification that the link does not show: any may be right, but for a peer of this stack, which has
    /// written the packet's place in its train, or counts up.
    #[cold]
    fn check_for_any_identification(&mut self, port: usize, frame: &Frame<'_>) -> Result<IcrcCheck, Malformed> {
        let id = identification::find(frame.datagram)?;
        let slot = self.qps.get(frame.packet.headers.bth.dest_qpn).filter(|slot| is_of_connection(slot, port, frame));
        let is_of_this_stack = slot.is_some_and(|slot| slot.rc.config().dialect == Dialect::Rocinante);
        let IpAddr::V4(ip) = frame.ip.source() else { return Err(Malformed::Icrc) };
        let sender = SenderV4::new(ip, frame.udp.source);
        let known = self.ports[port].identifications.as_mut().ok_or(Malformed::Icrc)?;
        known.check_or_begin_anew(is_of_this_stack, sender, id).ok_or(Malformed::Icrc)
    }

    fn goes_without_icrc(&self, port: usize, frame: &Frame<'_>) -> bool {
        let slot = self.qps.get(frame.packet.headers.bth.dest_qpn);
        slot.is_some_and(|slot| !slot.flow.is_sealed() && is_of_connection(slot, port, frame))
    }
}
