//! A dedicated worker's rings on their own.

use std::fmt;

use roci_driver::Buffer;
use roci_protocol::msg;

use super::rings::{Command, Rings};
use super::tickets::{Ticket, Tickets};
use crate::{Done, SendOptions, Tag};

/// The way of a SEND to the engine's thread, and of its end back.
pub struct CommandRings {
    rings: Rings,
    ticket: Ticket,
}

impl fmt::Debug for CommandRings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CommandRings({} commands)", self.rings.commands.len())
    }
}

impl Default for CommandRings {
    fn default() -> Self {
        let ticket = Tickets::default().open().expect("none is out");
        Self { rings: Rings::new(), ticket }
    }
}

impl CommandRings {
    /// The application's side: send this. `false` where the ring is full.
    #[inline]
    pub fn send(&self, payload: Buffer) -> bool {
        let (ticket, tag, options) = (self.ticket, Tag::new(1), SendOptions::default());
        self.rings.post(Command::Send { ticket, to: 1, tag, payload, options }).is_ok()
    }

    /// The engine's side: what is to be sent.
    #[inline]
    pub fn take(&self) -> Option<Buffer> {
        match self.rings.commands.pop()? {
            Command::Send { payload, .. } => Some(payload),
            _ => None,
        }
    }

    /// The engine's side: it was sent. `false` where the ring is full.
    #[inline]
    pub fn end(&self, buffer: Buffer) -> bool {
        let len = buffer.len();
        let done = Done::new(buffer, len, 1, msg::Label { context: 0, tag: 1 });
        let is_told = self.rings.completions.push((self.ticket, Ok(done))).is_ok();
        self.rings.handle_bell.ring();
        is_told
    }

    /// The application's side: what has ended.
    #[inline]
    pub fn hear(&self) -> Option<Buffer> {
        let (_, outcome) = self.rings.completions.pop()?;
        outcome.ok().map(|done| done.buffer)
    }
}
