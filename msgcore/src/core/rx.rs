//! What comes in: each message's credits are counted, and it takes its turn in the order of its sender.

use std::mem;

use roci_driver::Buffer;
use roci_protocol::msg::{self, Header, Message};

use super::breach::Breach;
use super::peer::{Arrived, Peer};
use crate::receive_queues::MAX_CREDITS_TOGETHER;

/// Cancels that a peer may have asked for without an answer: they cost no credit where receives are shared.
pub(crate) const CANCELS_OPEN: usize = 256;

/// Messages of one peer that may have come before an earlier one, over another lane: what it has credits for, and
/// cancels.
const REORDER_LIMIT: usize = MAX_CREDITS_TOGETHER as usize + CANCELS_OPEN;

/// Answers that may wait for one peer: an honest one has no more operations under way.
pub(crate) const CONTROL_LIMIT: usize = 1 << 20;

/// What became of a message.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// It is done with; its vbuf comes back, unless the application has it now.
    Used(Option<Buffer>),
    /// It is stored as a copy; its vbuf comes back, and its credit may be withheld.
    Copied(Buffer),
    /// It is stored, with its vbuf, and its credit may be withheld.
    Stored,
}

/// When a message may be acted upon.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Due {
    /// Now.
    Now,
    /// When those before it have come, over other lanes.
    Later,
}

impl Peer {
    /// Takes the credits that a message brings, and says when it may be acted upon.
    ///
    /// # Errors
    /// It is a message that must not be.
    #[inline]
    pub(crate) fn admit(&mut self, header: &Header) -> Result<Due, Breach> {
        let lane = self.lanes.get_mut(usize::from(header.queue));
        if !lane.is_some_and(|lane| lane.credits.regain(header.credits)) {
            return Err(Breach::CreditsReturned { count: header.credits, queue: header.queue });
        }
        if self.tx.control.len() > CONTROL_LIMIT {
            return Err(Breach::TooManyAnswers);
        }
        self.turn_of(header)
    }

    /// Passes over those messages of a packet that have met their receives while it was polled. The next one brings the credits.
    ///
    /// # Errors
    /// The next one is none that may be there.
    pub(crate) fn skip_taken(&mut self, lane: usize, header: &mut Header, vbuf: &mut Buffer) -> Result<(), Breach> {
        for _ in 0..mem::take(&mut self.lanes[lane].taken_of_packet) {
            let (Message::Eager { len, .. }, true) = (header.message, header.has_more) else {
                return Err(Breach::Sequence { sequence: header.sequence });
            };
            vbuf.skip_front(msg::span(len as usize) - msg::LEN);
            let (next, _) = Header::parse(vbuf)?;
            if !matches!(next.message, Message::Eager { .. }) || next.credits > 0 {
                return Err(Breach::Sequence { sequence: next.sequence });
            }
            *header = Header { credits: header.credits, queue: header.queue, ..next };
            vbuf.skip_front(msg::LEN);
        }
        Ok(())
    }

    #[inline]
    fn turn_of(&self, header: &Header) -> Result<Due, Breach> {
        let ahead = header.sequence.wrapping_sub(self.rx.expected_sequence);
        let is_due = match header.message {
            Message::Eager { .. } | Message::RequestToSend { .. } => ahead == 0,
            // It follows what it takes back; what was sent after it may have come before it.
            Message::Cancel { .. } => ahead.cast_signed() <= 0,
            Message::Fragment { id, .. } => !self.rx.reorder.iter().any(|arrived| arrived.begins(id)),
            Message::ClearToSend { .. }
            | Message::Data { .. }
            | Message::Written { .. }
            | Message::Finished { .. }
            | Message::Matched { .. }
            | Message::Cancelled { .. }
            | Message::Credit
            | Message::Terms
            | Message::StreamOffer
            | Message::Put { .. }
            | Message::Get { .. }
            | Message::Got { .. }
            | Message::Atomic { .. }
            | Message::Executed { .. }
            | Message::Firehose { .. }
            | Message::FindKey { .. }
            | Message::KeyFound { .. }
            | Message::KeyGone { .. }
            | Message::Active { .. } => true,
        };
        if is_due {
            return Ok(Due::Now);
        }
        // Over a single lane messages come in order.
        let has_room = self.lanes.len() > 1 && self.rx.reorder.len() < REORDER_LIMIT;
        let is_near = usize::from(ahead) <= 2 * REORDER_LIMIT || matches!(header.message, Message::Fragment { .. });
        if has_room && is_near { Ok(Due::Later) } else { Err(Breach::Sequence { sequence: header.sequence }) }
    }

    /// Returns the next message that has waited and whose turn has come. The others stay in the order in which they came:
    /// fragments need it.
    pub(crate) fn next_in_turn(&mut self) -> Option<Arrived> {
        let is_due = |arrived: &Arrived| self.turn_of(&arrived.header) == Ok(Due::Now);
        let next = self.rx.reorder.iter().position(is_due)?;
        Some(self.rx.reorder.remove(next))
    }

    /// The peer's next matched message has been acted upon.
    pub(crate) fn advance_sequence(&mut self) {
        self.rx.expected_sequence = self.rx.expected_sequence.wrapping_add(1);
    }
}

impl Arrived {
    /// Whether fragments of message `id` follow it.
    fn begins(&self, id: u64) -> bool {
        matches!(self.header.message, Message::Eager { id: begun, .. } if begun == id)
    }
}
