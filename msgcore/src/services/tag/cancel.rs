//! Taking operations back (`MPI_Cancel`): a receive that has met no message, and a send whose message nobody has
//! received. For the latter the peer is asked, and says whether it was in time; either way the request ends.

use roci_driver::link::Link;
use roci_protocol::msg::{Label, Message};

use crate::Rank;
use crate::core::peer::Control;
use crate::services::tag::eager::Body;
use crate::services::tag::request::{Done, Operation, Request};
use crate::worker::Worker;

/// What can be done about an operation.
enum Way {
    /// Nothing waits for it yet: it is taken back here.
    Receive,
    /// It is still in the queue to this peer.
    Queue(Rank),
    /// Its message has left for this peer, which must be asked.
    Ask(Rank),
    /// Too late: it ends as it will.
    Late,
}

impl<L: Link> Worker<L> {
    /// Takes an operation back, if it has met nothing yet. The request must still be waited for: it ends with
    /// [`Done::is_cancelled`] where that was in time, and as if nobody had asked where it was not.
    pub fn cancel(&mut self, request: Request) {
        if self.is_forked() {
            // Waiting for it says so.
            return;
        }
        let way = match self.requests.get(request) {
            Some(Operation::Waiting { .. }) => Way::Receive,
            Some(Operation::Queued { to }) => Way::Queue(*to),
            Some(Operation::Unmatched { to, .. }) => Way::Ask(*to),
            Some(Operation::Asked(asked)) => Way::Ask(asked.to),
            Some(Operation::Exposed(exposed)) => Way::Ask(exposed.to),
            Some(Operation::Ended(Ok(done))) if self.requests.has_left(request) => Way::Ask(done.peer),
            _ => Way::Late,
        };
        match way {
            Way::Receive => self.cancel_receive(request),
            Way::Queue(to) => self.cancel_queued(request, to),
            Way::Ask(to) if to == self.rank => self.cancel_local(request),
            Way::Ask(to) => self.ask_back(request, to),
            Way::Late => {}
        }
    }

    fn cancel_receive(&mut self, request: Request) {
        // A receive that was to be lent a message has no buffer to give back. Without memory for one it stays.
        let spare = self.engine.buffer(0).ok();
        let Some(Operation::Waiting { buffer, posted: Some(posted) }) = self.requests.get_mut(request) else { return };
        let (Some(buffer), posted) = (buffer.take().or(spare), *posted) else { return };
        let met = self.matching.cancel_posted(posted);
        debug_assert_eq!(met, Some(request), "a receive that waits is posted");
        self.stats.cancelled += 1;
        let done = Done::new(buffer, 0, self.rank, Label::default());
        self.requests.end(request, Ok(done.cancelled()));
    }

    fn cancel_queued(&mut self, request: Request, to: Rank) {
        let Some(endpoint) = self.endpoint(to) else { return };
        let Some(at) = endpoint.outgoing.iter().position(|outgoing| outgoing.request == request) else { return };
        let Some(outgoing) = endpoint.outgoing.remove(at) else { return };
        self.stats.cancelled += 1;
        let done = Done::new(outgoing.payload, 0, to, outgoing.label);
        self.requests.end(request, Ok(done.cancelled()));
    }

    fn ask_back(&mut self, request: Request, to: Rank) {
        if self.endpoint(to).is_none() || !self.requests.start_cancelling(request) {
            return;
        }
        if matches!(self.requests.get(request), Some(Operation::Ended(_))) {
            let left = self.requests.replace(request, Operation::Queued { to });
            if let Some(Operation::Ended(Ok(done))) = left {
                self.requests.replace(request, Operation::Withdrawing { to, done });
            }
        }
        if let Some(endpoint) = self.endpoint(to) {
            endpoint.cancels.add(request);
        }
        if !self.ask_more(to) {
            self.stats.cancel_stalls += 1;
        }
        self.advance(to);
    }

    /// Asks for what is to be given back, as far as there may be questions; whether that was any.
    fn ask_more(&mut self, to: Rank) -> bool {
        let mut is_any = false;
        while let Some(endpoint) = self.endpoint(to) {
            let sequence = endpoint.next_sequence;
            let Some(request) = endpoint.cancels.next(sequence) else { break };
            // One that is over by now need not be asked for.
            if self.requests.get(request).is_some_and(|operation| operation.depends_on() == Some(to))
                && let Some(endpoint) = self.endpoint(to)
            {
                let message = Message::Cancel { id: request.to_wire() };
                endpoint.cancels.ask(sequence);
                endpoint.control.push_back(Control { message, sequence });
                is_any = true;
            }
        }
        is_any
    }

    /// A message to oneself is taken back where it is kept.
    fn cancel_local(&mut self, request: Request) {
        let id = request.to_wire();
        let rank = self.rank;
        if self.matching.withdraw(rank, |body| body.id() == id).is_none() {
            return;
        }
        self.stats.cancelled += 1;
        let done = match self.requests.replace(request, Operation::Queued { to: rank }) {
            Some(Operation::Unmatched { done, .. } | Operation::Ended(Ok(done))) => done,
            other => unreachable!("a message to oneself that waits has a send: {other:?}"),
        };
        self.requests.end(request, Ok(done.cancelled()));
        self.release_withheld();
    }

    /// The peer wants a message back.
    pub(crate) fn on_cancel(&mut self, from: Rank, id: u64) {
        let withdrawn = self.matching.withdraw(from, |body| body.id() == id);
        let is_withdrawn = withdrawn.is_some();
        match withdrawn {
            Some((_, Body::Whole { lane, vbuf, .. })) => self.give_receive_vbuf(lane, vbuf),
            Some((_, Body::Series { id, .. })) => self.discard_series(from, id),
            Some((_, Body::Remote(_) | Body::Local { .. })) | None => {}
        }
        if let Some(endpoint) = self.endpoint(from) {
            endpoint.say(Message::Cancelled { id, is_withdrawn });
        }
        self.release_withheld();
    }

    /// The peer says whether it gave a message back.
    pub(crate) fn on_cancelled(&mut self, from: Rank, id: u64, is_withdrawn: bool) -> Result<(), String> {
        if let Some(endpoint) = self.endpoint(from) {
            endpoint.cancels.note_answer();
        }
        self.ask_more(from);
        let request = Request::from_wire(id);
        let is_theirs = self.requests.get(request).is_some_and(|operation| operation.depends_on() == Some(from));
        let was_asked = is_theirs && self.requests.stop_cancelling(request);
        match self.requests.get(request) {
            Some(Operation::Withdrawing { to, .. } | Operation::Unmatched { to, .. }) if was_asked && *to == from => {
                self.end_withdrawn(request, is_withdrawn);
            }
            Some(Operation::Asked(asked)) if was_asked && is_withdrawn && asked.to == from => {
                self.stats.cancelled += 1;
                self.end_rendezvous(request, Done::cancelled);
            }
            Some(Operation::Exposed(exposed)) if was_asked && is_withdrawn && exposed.to == from => {
                self.stats.cancelled += 1;
                self.end_rendezvous(request, Done::cancelled);
            }
            // Too late: it goes its way, or has gone it.
            _ if !is_withdrawn => {}
            _ => return Err(format!("it gave back message {id:#x}, which nobody asked for")),
        }
        Ok(())
    }

    fn end_withdrawn(&mut self, request: Request, is_withdrawn: bool) {
        let whoever = Operation::Queued { to: self.rank };
        self.stats.cancelled += u64::from(is_withdrawn);
        match self.requests.replace(request, whoever) {
            Some(Operation::Withdrawing { done, .. } | Operation::Unmatched { done, .. }) if is_withdrawn => {
                self.requests.end(request, Ok(done.cancelled()));
            }
            Some(Operation::Withdrawing { done, .. }) => drop(self.requests.end(request, Ok(done))),
            // It is matched, and that is told apart.
            Some(unmatched) => drop(self.requests.replace(request, unmatched)),
            None => {}
        }
    }
}
