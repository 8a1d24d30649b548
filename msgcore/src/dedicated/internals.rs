//! A dedicated worker's rings on their own.

use std::fmt;

use roci_driver::Buffer;
use roci_protocol::msg;

use super::outcomes::Outcomes;
use super::rings::{Command, OperationEnd, Rings};
use crate::{Done, Request, SendOptions, Tag};

/// The way of a SEND to the engine's thread, and of its end back.
pub struct CommandRings {
    rings: Rings,
    request: Request,
}

impl fmt::Debug for CommandRings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CommandRings({} commands)", self.rings.commands.len())
    }
}

impl Default for CommandRings {
    fn default() -> Self {
        let request = Outcomes::default().open().expect("none is out");
        Self { rings: Rings::new(), request }
    }
}

impl CommandRings {
    /// The application's side: send this. `false` where the ring is full.
    #[inline]
    pub fn send(&self, payload: Buffer) -> bool {
        let (request, tag, options) = (self.request, Tag::new(1), SendOptions::default());
        self.rings.post(Command::Send { request, to: 1.into(), tag, payload, options }).is_ok()
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
        let done = Done::new(buffer, len, 1.into(), msg::Label { context: 0, tag: 1, data: None });
        let completion = OperationEnd { request: self.request, outcome: Ok(done), has_left: false, is_part: false };
        let is_reported = self.rings.completions.push(completion).is_ok();
        self.rings.handle_wakeup.wake();
        is_reported
    }

    /// The application's side: what has ended.
    #[inline]
    pub fn hear(&self) -> Option<Buffer> {
        self.rings.completions.pop()?.outcome.ok().map(|done| done.buffer)
    }
}
