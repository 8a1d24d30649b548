//! Receives of other kinds than the usual one: of many messages, and of one that was claimed.

use roci_driver::Buffer;
use roci_driver::link::Link;

use super::Endpoint;
use super::buffer_checks::{check_multi, check_room};
use crate::core::refused::{CallError, Refused};
use crate::core::request::Request;
use crate::services::tag::claims::ClaimedMessage;
use crate::services::tag::matching::Pattern;

impl<L: Link> Endpoint<L> {
    /// Receives messages as the request of this name, one behind the other in a buffer, until less than `least` is left of it.
    /// Their completions have `context`, where it is this side that makes them.
    pub(crate) fn recv_multi(
        &mut self,
        request: Request,
        pattern: Pattern,
        (buffer, least): (Buffer, usize),
        context: Option<u64>,
    ) -> Result<(), Refused<Buffer>> {
        if let Err(why) = self.check_source(&pattern).and_then(|()| check_multi(&buffer)) {
            return Err(Refused::new(why, buffer));
        }
        let oneself = self.peers.oneself();
        self.services.tag.requests.open_multi(request, (buffer, least), context, oneself);
        while self.services.tag.requests.is_open_multi(request)
            && let Some(met) = self.services.tag.take_unexpected(&pattern)
        {
            self.note_met(&met);
            let (piece, _) = self.services.tag.requests.meet(request, met.len());
            self.deliver_met(piece, met);
        }
        if !self.services.tag.requests.is_open_multi(request) {
            return Ok(());
        }
        match self.cannot_come(pattern.source) {
            Some(error) => self.services.tag.fail_receive(request, error),
            None => self.services.tag.post_multi(request, pattern),
        }
        Ok(())
    }

    /// Receives a message that was claimed, as the request of this name.
    pub(crate) fn recv_message(
        &mut self,
        request: Request,
        message: ClaimedMessage,
        buffer: Buffer,
    ) -> Result<(), Refused<(ClaimedMessage, Buffer)>> {
        if self.is_forked() {
            return Err(Refused::new(CallError::Forked, (message, buffer)));
        }
        if let Err(why) = check_room(Some(&buffer)) {
            return Err(Refused::new(why, (message, buffer)));
        }
        let Some(met) = self.services.tag.take_claimed(&message) else {
            return Err(Refused::new(CallError::NoMessage, (message, buffer)));
        };
        self.services.tag.open_receive(request, Some(buffer));
        match self.loss_of(&met) {
            Some(error) => self.services.tag.fail_receive(request, error),
            None => self.deliver_met(request, met),
        }
        Ok(())
    }
}
