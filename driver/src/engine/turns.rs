//! Whose turn it is to send: acknowledgements first, then data of each queue pair in turns.

use roci_protocol::Mtu;
use roci_protocol::rc::{Quantum, TxError};
use roci_protocol::wire::{bth, icrc};

use super::Engine;
use super::full_ports::FullPorts;
use crate::handles::QueuePair;
use crate::link::Link;

/// Bytes of data that a queue pair sends before it is another one's turn, and that all of them send in a poll before the
/// engine looks again at what came in.
const TURN_BYTES: isize = 64 << 10;
const POLL_BYTES: isize = 256 << 10;

/// What a queue pair may send in a turn on a link: about [`TURN_BYTES`], and as many packets as the link sends at once, where it does. A
/// packet more would leave alone.
pub(super) fn turn_of(link: &impl Link, mtu: Mtu) -> Quantum {
    let packets = link.packets_at_once(bth::LEN + mtu.bytes() + icrc::LEN);
    packets.map_or(Quantum::new(TURN_BYTES), |packets| Quantum::of_packets(packets, mtu))
}

/// What a listed queue pair wants, once it has acknowledged what it could.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Attention {
    Done,
    /// Its acknowledgement waits for company.
    Patience,
    /// It has data to send.
    Data,
    /// The link took nothing.
    Busy,
}

impl<L: Link> Engine<L> {
    /// Sends what the listed queue pairs owe or hold back; those that are still not done stay listed.
    ///
    /// Acknowledgements go first: they are short, and a peer that waits for one for too long gives up. Then data, in turns
    /// (deficit round robin: Shreedhar and Varghese, SIGCOMM 1995), so that a queue pair with much traffic delays
    /// another one by no more than one turn of each other queue pair.
    #[inline(never)]
    pub(super) fn look_after_listed(&mut self, acknowledge_from: u32) {
        let (mut full, mut has_data, mut at) = (FullPorts::default(), false, 0);
        self.schedule.begin();
        while let Some(qp) = self.schedule.at(at) {
            match self.acknowledge(qp, acknowledge_from, &full) {
                Attention::Done => {
                    self.schedule.remove(at);
                    self.unlist(qp);
                    continue;
                }
                Attention::Patience => {}
                Attention::Data => has_data = true,
                Attention::Busy => self.note_full(qp, &mut full),
            }
            at += 1;
        }
        self.schedule.urge(full.any() || has_data);
        if has_data {
            self.take_turns(full);
        }
    }

    /// Whether a queue pair's link is known to take nothing more in this poll.
    #[inline]
    fn is_blocked(&self, qp: QueuePair, full: &FullPorts) -> bool {
        full.any() && self.qps.get(qp.0).is_some_and(|slot| full.has(slot.port))
    }

    /// Notes that a queue pair's link takes nothing more in this poll.
    fn note_full(&self, qp: QueuePair, full: &mut FullPorts) {
        if let Some(slot) = self.qps.get(qp.0) {
            full.add(slot.port);
        }
    }

    /// Sends the acknowledgement that a queue pair owes, where it speaks for enough packets.
    #[inline]
    fn acknowledge(&mut self, qp: QueuePair, from: u32, full: &FullPorts) -> Attention {
        if self.is_blocked(qp, full) {
            return Attention::Busy;
        }
        let attention = self.with_qp(qp, |rc, scene| {
            if rc.owes_acknowledgement(from) {
                let now = scene.link.now();
                if rc.pump_acknowledgement(now, scene).is_err() {
                    return Attention::Busy;
                }
            }
            if rc.owes_responses() || rc.wants_pump() {
                Attention::Data
            } else if rc.owes_acknowledgement(1) {
                Attention::Patience
            } else {
                Attention::Done
            }
        });
        attention.unwrap_or(Attention::Done)
    }

    /// Gives queue pairs with data to send a turn each, from where the last poll ended, as far as a poll's bytes and the links
    /// allow. A queue pair whose link is full keeps its turn, and others go on over other links.
    fn take_turns(&mut self, mut full: FullPorts) {
        let (mut left, mut kept, mut interrupted) = (POLL_BYTES, 0, None);
        for _ in 0..self.schedule.len() {
            if left <= 0 {
                return;
            }
            let Some(qp) = self.schedule.take_next() else { return };
            if !self.is_blocked(qp, &full) {
                let Some((outcome, spent)) = self.take_turn(qp) else { continue };
                left -= spent;
                match outcome {
                    Ok(true) => {
                        self.unlist(qp);
                        continue;
                    }
                    Ok(false) => {}
                    Err(_) => {
                        self.note_full(qp, &mut full);
                        interrupted = interrupted.or(Some(kept));
                    }
                }
            }
            self.schedule.put_back(qp);
            kept += 1;
        }
        self.schedule.continue_at(interrupted.unwrap_or(0));
    }

    /// One turn: whether the queue pair is done, and what it has sent.
    fn take_turn(&mut self, qp: QueuePair) -> Option<(Result<bool, TxError>, isize)> {
        let attendance = &self.qps.get(qp.0)?.attendance;
        let (turn, deficit) = (attendance.turn().left(), attendance.deficit());
        let mut quantum = Quantum::new(turn - deficit);
        let outcome = self.with_qp(qp, |rc, scene| {
            let now = scene.link.now();
            // Neither what is fetched from here nor what is sent from here waits for all of the other.
            let mut responses = quantum.half();
            let answered = if rc.owes_responses() { rc.pump_responses(now, &mut responses, scene) } else { Ok(()) };
            quantum = quantum.after_half(responses);
            answered?;
            if rc.wants_pump() {
                rc.pump_requests(now, &mut quantum, scene)?;
            }
            if rc.owes_responses() {
                rc.pump_responses(now, &mut quantum, scene)?;
            }
            let is_done = !rc.owes_responses() && !rc.owes_acknowledgement(1);
            Ok(is_done && (quantum.is_left() || !rc.wants_pump()))
        });
        let slot = self.qps.get_mut(qp.0)?;
        slot.attendance.end_turn(match outcome {
            // The turn is interrupted, and what is left of it comes first.
            Some(Err(_)) => turn - quantum.left(),
            // A packet may exceed the turn: that much is missing from the next one.
            _ => (-quantum.left()).max(0),
        });
        Some((outcome?, turn - deficit - quantum.left()))
    }

    fn unlist(&mut self, qp: QueuePair) {
        if let Some(slot) = self.qps.get_mut(qp.0) {
            slot.attendance.unlist();
        }
    }

    /// Sends what a queue pair's window allows, at once.
    #[inline]
    pub(super) fn pump(&mut self, qp: QueuePair) {
        if self.is_forked() {
            return;
        }
        let Some(mut quantum) = self.qps.get(qp.0).map(|slot| slot.attendance.turn()) else { return };
        let outcome = self.with_qp(qp, |rc, scene| {
            let now = scene.link.now();
            let outcome = rc.pump_requests(now, &mut quantum, scene);
            scene.link.flush();
            outcome.is_err() || !quantum.is_left()
        });
        if outcome == Some(true) {
            self.list(qp);
        }
    }
}
