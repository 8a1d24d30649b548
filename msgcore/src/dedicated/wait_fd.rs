//! The descriptor that an application sleeps on: armed, written once by the engine's thread, acknowledged.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use super::DedicatedWorker;
use crate::OpError;

/// What [`DedicatedWorker::arm`] has found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "who sleeps though something is pending may sleep for ever"]
pub enum Arming {
    /// Nothing is there. The descriptor becomes readable with the next thing that comes.
    Armed,
    /// Something is there, or was until it was taken. The descriptor is not armed.
    Pending,
}

impl DedicatedWorker {
    /// Has the descriptor become readable with the next thing that comes, or says that something is there already
    /// (`ibv_req_notify_cq` and a last look, libfabric's `fi_trywait`). The
    /// [module](crate::dedicated#sleeping-on-a-descriptor) says what counts, and has the loop.
    ///
    /// Each arming makes the descriptor readable once. An operation that is asked for by name, or an event, is pending for one
    /// call: the next one asks for news again. A completion is pending until it is taken, and the engine's end for ever.
    ///
    /// # Errors
    /// [`OpError::Forked`]: a forked child has no engine that would write.
    pub fn arm(&mut self) -> Result<Arming, OpError> {
        if self.is_forked() {
            return Err(OpError::Forked);
        }
        // What comes from here on rings, and what came before is seen.
        self.rings.handle_wakeup.arm();
        self.drain();
        self.ask_again();
        if !self.is_anything_new() {
            return Ok(Arming::Armed);
        }
        self.rings.handle_wakeup.disarm();
        Ok(Arming::Pending)
    }

    /// Makes the descriptor unreadable after a sleep, and unarmed (`ibv_ack_cq_events`). A sleep that is not acknowledged lets
    /// the next one end at once. Does nothing in a forked child, whose parent sleeps on the same descriptor.
    pub fn acknowledge(&mut self) {
        if !self.is_forked() {
            self.rings.handle_wakeup.acknowledge();
        }
    }

    /// Whether the application has something to take. Each is asked, so that it counts once.
    fn is_anything_new(&mut self) -> bool {
        let is_event_new = self.host.note_events(self.rings.events_reported());
        let is_event = is_event_new && !self.rings.events.is_empty();
        let is_end = self.outcomes.take_named_end();
        is_event || is_end || self.outcomes.is_completion_waiting() || self.rings.is_over()
    }
}

/// The descriptor: an eventfd, which does not block and is closed on exec. Only polling it is of use: the worker writes and
/// reads it, see [`DedicatedWorker::arm`].
impl AsFd for DedicatedWorker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.host.wait_fd().as_fd()
    }
}

/// As [`AsFd`]; tokio's `AsyncFd` wants it.
impl AsRawFd for DedicatedWorker {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}
