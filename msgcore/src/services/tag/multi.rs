//! A multi-receive (libfabric's `FI_MULTI_RECV`): it stays posted, and takes messages one behind the other into its buffer until
//! less than a minimum is left of that.
//!
//! Each message gets a piece of the buffer, cut off in front, and is an operation of its own from then on
//! (`requests/pieces.rs`): it may move by any protocol, and several may be under way at once. So a multi-receive is over in two
//! steps: it takes no more messages, and then those that it has taken end.

use std::mem;

use roci_driver::Buffer;
use roci_protocol::msg::Label;

use super::matching::Posted;
use crate::core::completion::{Done, MultiReceiveFailed, OpError};
use crate::core::peer::PeerId;

/// Buffers are cut at multiples of this.
const GRAIN: usize = 64;
/// Messages that a multi-receive takes at most without giving anything of its buffer for them: empty ones, and those that are
/// too long. Without a limit peers could fill the completion queue.
pub(super) const FOR_NOTHING: usize = if cfg!(test) { 8 } else { 1 << 16 };

/// A multi-receive that is not over.
#[derive(Debug)]
pub(crate) struct MultiReceive {
    /// What is left of the buffer.
    rest: Buffer,
    /// It takes no more messages where less is left.
    least: usize,
    /// Its place among the receives that wait, while it has one.
    pub(super) posted: Option<Posted>,
    /// Messages that it has taken and that have not ended.
    under_way: usize,
    /// Messages that it has taken without giving anything of the buffer.
    for_nothing: usize,
    /// How it ends once no message is under way, where it takes no more.
    end: Option<MultiEnd>,
    /// This end.
    oneself: PeerId,
}

/// Why a multi-receive takes no more messages.
#[derive(Debug)]
pub(crate) enum MultiEnd {
    /// Too little is left of it.
    UsedUp,
    /// The application has taken it back.
    Cancelled,
    /// No message can come any more.
    Failed(OpError),
}

impl MultiReceive {
    /// One that has taken nothing. A minimum of 0 counts as 1.
    pub(super) fn new(buffer: Buffer, least: usize, oneself: PeerId) -> Self {
        let least = least.max(1);
        Self { rest: buffer, least, posted: None, under_way: 0, for_nothing: 0, end: None, oneself }
    }

    /// The longest message that it takes.
    pub(super) fn room(&self) -> usize {
        self.rest.len()
    }

    /// Whether it takes messages.
    pub(super) fn is_open(&self) -> bool {
        self.end.is_none()
    }

    /// Messages that it has taken and that have not ended.
    pub(super) fn under_way(&self) -> usize {
        self.under_way
    }

    /// Returns this end.
    pub(super) fn oneself(&self) -> PeerId {
        self.oneself
    }

    /// Whether it has nothing more to give.
    pub(super) fn is_used_up(&self) -> bool {
        self.rest.len() < self.least || self.for_nothing >= FOR_NOTHING
    }

    /// Cuts off the piece that a message of `len` bytes lies in, which is an empty one for a message that is too long.
    pub(super) fn cut(&mut self, len: usize) -> Buffer {
        let len = if len <= self.room() { len } else { 0 };
        self.for_nothing += usize::from(len == 0);
        let at = len.next_multiple_of(GRAIN);
        let mut piece = if at <= self.rest.capacity() {
            let rest = self.rest.split_off(at);
            mem::replace(&mut self.rest, rest)
        } else {
            // The room of the application's own memory may end anywhere.
            self.rest.split_off(0)
        };
        piece.set_len(len);
        piece
    }

    /// A message is under way from here on.
    pub(super) fn note_begun(&mut self) {
        self.under_way += 1;
    }

    /// A message has ended.
    pub(super) fn note_ended(&mut self) {
        assert!(self.under_way > 0, "a message of a multi-receive ends once");
        self.under_way -= 1;
    }

    /// It takes no more messages, for the first reason that there is.
    pub(super) fn close(&mut self, end: MultiEnd) {
        self.posted = None;
        self.end.get_or_insert(end);
    }

    /// Whether it takes no more messages, and none is under way.
    pub(super) fn is_over(&self) -> bool {
        self.end.is_some() && self.under_way == 0
    }

    /// Returns how it has ended, with what is left of the buffer.
    pub(super) fn into_outcome(self) -> Result<Done, OpError> {
        let Self { rest, end, oneself, .. } = self;
        let done = |rest| Done::new(rest, 0, oneself, Label::default());
        match end {
            Some(MultiEnd::Failed(why)) => {
                Err(OpError::MultiReceive(Box::new(MultiReceiveFailed { why, rest: Some(rest) })))
            }
            Some(MultiEnd::Cancelled) => Ok(done(rest).cancelled()),
            Some(MultiEnd::UsedUp) | None => Ok(done(rest)),
        }
    }
}
