//! Whether a packet's ICRC is right, left out by agreement, or wrong.

use roci_protocol::rc::Dialect;
use roci_protocol::wire::{Frame, Malformed, identification};

use super::Engine;
use super::poll::is_of_connection;
use crate::link::{Link, TRAIN};

impl<L: Link> Engine<L> {
    /// Checks the ICRC. It may only be missing, which this returns, where its connection, by number and both addresses, has
    /// agreed to that.
    pub(super) fn check_icrc(&mut self, port: usize, frame: &Frame<'_>) -> Result<bool, Malformed> {
        if frame.omits_icrc() && self.goes_without_icrc(port, frame) {
            return Ok(true);
        }
        match frame.verify_icrc() {
            Err(Malformed::Icrc) if self.ports[port].link.hides_identification() => {
                self.check_for_any_identification(port, frame).map(|()| false)
            }
            checked => checked.map(|()| false),
        }
    }

    /// The ICRC was made with an identification that the link does not show: any may be right, but for a peer of this stack, which has
    /// written the packet's place in its train.
    #[cold]
    fn check_for_any_identification(&mut self, port: usize, frame: &Frame<'_>) -> Result<(), Malformed> {
        let id = identification::find(frame.datagram)?;
        let slot = self.qps.get(frame.packet.headers.bth.dest_qpn).filter(|slot| is_of_connection(slot, port, frame));
        let is_of_this_stack = slot.is_some_and(|slot| slot.rc.config().dialect == Dialect::Rocinante);
        if is_of_this_stack && id >= TRAIN {
            return Err(Malformed::Icrc);
        }
        self.stats.rx_other_identification += 1;
        Ok(())
    }

    fn goes_without_icrc(&self, port: usize, frame: &Frame<'_>) -> bool {
        let slot = self.qps.get(frame.packet.headers.bth.dest_qpn);
        slot.is_some_and(|slot| !slot.flow.is_sealed() && is_of_connection(slot, port, frame))
    }
}
