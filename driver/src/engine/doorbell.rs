//! When the frames of posted sends go to the device: by a rule, where the caller leaves it to the engine
//! ([`Engine::queue_send`]).
//!
//! To ring a doorbell for each short message costs a stream of them more than anything else that is done for it: a burst of one
//! frame, and over a socket a system call. The first send since a poll rings at once, so that a message alone does not wait. Those
//! behind it wait for company, a full batch of which rings. What is left is rung for by the next poll, or by who will not poll soon
//! ([`Engine::ring_doorbell`]).

use super::Engine;
use crate::link::Link;

/// Sends that ring together.
const BATCH: u32 = 8;
/// Bytes of theirs from which on fewer do.
const BATCH_BYTES: usize = 8 << 10;

/// Sends whose frames are queued, and that the device was not notified of.
#[derive(Default)]
pub(super) struct Doorbell {
    waiting: u32,
    bytes: usize,
    /// Something was sent since the last poll.
    is_busy: bool,
    /// How often it has rung.
    rings: u64,
}

impl Doorbell {
    /// A send of so many bytes has queued its frame; returns whether the doorbell rings now.
    #[inline]
    fn queue(&mut self, bytes: usize) -> bool {
        self.waiting += 1;
        self.bytes += bytes;
        !std::mem::replace(&mut self.is_busy, true) || self.waiting >= BATCH || self.bytes >= BATCH_BYTES
    }

    /// The device is notified of all frames.
    #[inline]
    fn rang(&mut self) {
        (self.waiting, self.bytes) = (0, 0);
        self.rings += 1;
    }
}

impl<L: Link> Engine<L> {
    /// A send of so many bytes has queued its frame: rings where the rule says so.
    #[inline]
    pub(super) fn ring_by_rule(&mut self, bytes: usize) {
        if self.schedule.doorbell.queue(bytes) {
            self.ring();
        }
    }

    /// Whether a short send of [`Engine::queue_send`] would wait for company: it is not the first since a poll.
    #[inline]
    pub fn holds_doorbell(&self) -> bool {
        self.schedule.doorbell.is_busy
    }

    /// Whether a send of [`Engine::queue_send`] waits for the doorbell.
    #[inline]
    pub fn awaits_doorbell(&self) -> bool {
        self.schedule.doorbell.waiting > 0
    }

    /// Returns how often the doorbell has rung.
    #[inline]
    pub fn doorbell_rings(&self) -> u64 {
        self.schedule.doorbell.rings
    }

    /// Notifies the devices of what [`Engine::queue_send`] has left to company that may not come: for who will not poll for a while.
    #[inline]
    pub fn ring_doorbell(&mut self) {
        if self.awaits_doorbell() && !self.is_forked() {
            self.ring();
        }
    }

    /// A poll begins: what waits goes before it looks for frames, and the next send goes at once again.
    #[inline]
    pub(super) fn ring_for_poll(&mut self) {
        if self.schedule.doorbell.is_busy {
            self.schedule.doorbell.is_busy = false;
            self.ring_doorbell();
        }
    }

    /// Notifies the devices of all frames.
    #[inline]
    pub(super) fn ring(&mut self) {
        self.schedule.doorbell.rang();
        for port in &mut self.ports {
            port.link.flush();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Queues sends of `bytes`, and returns which of them ring.
    fn rings(doorbell: &mut Doorbell, bytes: usize, sends: usize) -> Vec<usize> {
        let mut rings = Vec::new();
        for send in 1..=sends {
            if doorbell.queue(bytes) {
                doorbell.rang();
                rings.push(send);
            }
        }
        rings
    }

    #[test]
    fn the_first_send_since_a_poll_rings_and_then_full_batches() {
        let mut doorbell = Doorbell::default();
        assert_eq!(rings(&mut doorbell, 64, 20), [1, 9, 17]);
        assert_eq!(doorbell.waiting, 3);
        doorbell.is_busy = false;
        assert_eq!(rings(&mut doorbell, 64, 1), [1], "a poll has passed");
    }

    #[test]
    fn a_batch_is_full_by_its_bytes_too() {
        assert_eq!(rings(&mut Doorbell::default(), 4 << 10, 7), [1, 3, 5, 7]);
        assert_eq!(rings(&mut Doorbell::default(), BATCH_BYTES, 3), [1, 2, 3]);
    }
}
