//! The fast path: a message of one packet that leaves in the call that posts it, and one that fills the receive that waits for
//! it. The queue pair says which these are (`rc::RcQueuePair::send_at_once`, `rc::RcQueuePair::on_whole`); everything else goes
//! by the queue, and by `poll`.

use roci_protocol::Nanos;
use roci_protocol::rc::{Dialect, State, Whole};
use roci_protocol::wire::inflow::{Recognized, glance, glance_at_sender};

use super::env::{EngineEnv, NamedQueue};
use super::identifications::{IcrcCheck, Identifications};
use super::poll::{ACK_COALESCE, RxPacket};
use super::sink::{NoSink, Sink};
use super::{Engine, scene, settled};
use crate::handles::QueuePair;
use crate::link::Link;
use crate::wr::SendWr;

impl<L: Link> Engine<L> {
    /// Whether messages of one packet take the fast path, as they do at first. Without it all of them go by the queue and by
    /// [`Engine::poll`], and nothing else is different: tests compare both.
    #[doc(hidden)]
    pub fn set_fast_path(&mut self, is_on: bool) {
        self.schedule.has_fast_path = is_on;
    }

    /// Sends a work request that is clear to go, and leaves its frame to the doorbell. It comes back, and nothing has changed, where
    /// it is not clear, and where the link is full: posting it says why, or queues it. `clock` returns the time of the link.
    #[inline]
    pub(super) fn send_at_once(
        &mut self,
        qp: QueuePair,
        wr: SendWr,
        clock: impl FnOnce(&L) -> Nanos,
    ) -> Result<(), SendWr> {
        if !self.schedule.has_fast_path || self.is_forked() || !wr.0.buffer.has_view() {
            return Err(wr);
        }
        let Some(slot) = self.qps.get_mut(qp.0) else { return Err(wr) };
        let mut scene = scene!(self, slot, &[]);
        let now = clock(scene.link);
        if !(scene.completions.has_place() && slot.rc.is_clear_for(now, &wr.0)) {
            return Err(wr);
        }
        let starts_timer = slot.rc.send_at_once(now, wr.0, &mut scene).map_err(SendWr)?;
        scene.completions.reserve();
        // Nothing else that the queue pair waits for has changed.
        if starts_timer && let Some(at) = slot.needs_waking() {
            self.schedule.wake(slot.qp, at);
        }
        Ok(())
    }

    /// Takes a frame that looks like one before of its connection, and whose packet is a whole message or an acknowledgement.
    /// Where it is to be parsed nothing has changed, and the packet comes back if the frame looks so.
    #[inline(always)]
    pub(super) fn on_whole<'a>(
        &mut self,
        port: usize,
        now: Nanos,
        bytes: &'a [u8],
        sink: &mut impl Sink,
    ) -> Result<(), Option<RxPacket<'a>>> {
        if !self.schedule.has_fast_path {
            return Err(None);
        }
        let slot = glance(bytes).and_then(|qpn| self.qps.get_mut(qpn)).filter(|slot| slot.port == port).ok_or(None)?;
        let Recognized { transport, identification } = slot.inflow.recognize(bytes).ok_or(None)?;
        let check = if identification != 0 {
            let is_of_this_stack = slot.rc.config().dialect == Dialect::Rocinante;
            check_hidden(&mut self.ports[port].identifications, is_of_this_stack, bytes, identification).ok_or(None)?
        } else if slot.flow.is_sealed() {
            IcrcCheck::Right
        } else {
            IcrcCheck::LeftOut
        };
        let mut scene = scene!(self, slot, transport, sink);
        let whole = slot.rc.on_whole(now, transport, &mut scene);
        let Some(whole) = whole else { return Err(Some(RxPacket::recognized(slot, transport, check))) };
        self.stats.rx_delivered += 1;
        self.stats.note_check(check);
        let mut is_urgent = slot.rc.owes_acknowledgement(ACK_COALESCE);
        if whole == Whole::Acknowledgement {
            settled!(self, slot);
            self.stats.note_round_trip(slot.rc.take_round_trip());
            is_urgent |= slot.rc.wants_pump() || slot.rc.owes_responses();
        }
        self.schedule.urge(is_urgent);
        if !slot.attendance.is_listed() && (is_urgent || slot.rc.owes_acknowledgement(1)) {
            self.schedule.list(slot);
        }
        if slot.rc.owes_acknowledgement_later() {
            self.schedule.deferred.defer(slot, now);
        }
        if let Some(srq) = slot.shared {
            self.look_at_stock(srq);
        }
        Ok(())
    }
}

/// Judges a frame whose ICRC is right for an identification that it does not show.
#[inline(never)]
fn check_hidden(
    known: &mut Option<Identifications>,
    is_of_this_stack: bool,
    bytes: &[u8],
    identification: u16,
) -> Option<IcrcCheck> {
    known.as_mut()?.check(is_of_this_stack, glance_at_sender(bytes)?, identification)
}
