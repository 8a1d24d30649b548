//! Taking operations back (`MPI_Cancel`): a receive that has met no message, and a send whose message was not
//! received. For the latter the peer is asked, and says whether it was in time; either way the request ends.

use roci_driver::link::Link;
use roci_protocol::msg::{Label, Message};

use super::TagService;
use super::multi::MultiEnd;
use super::operation::TagOperation;
use super::stored::UnexpectedBody;
use crate::core::Core;
use crate::core::breach::Breach;
use crate::core::completion::Done;
use crate::core::peer::{Control, Peer, PeerId};
use crate::core::request::Request;

/// What can be done about an operation that is to be taken back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cancellation {
    /// It is a receive that has met nothing: it is taken back here.
    Receive,
    /// It is still in the queue to this peer, at this place.
    Queue(PeerId, u32),
    /// Its message has left for this peer, which must be asked.
    Ask(PeerId),
    /// Too late: it ends as it will.
    Late,
}

impl TagService {
    /// Returns what can be done about an operation that is to be taken back.
    pub(crate) fn cancellation(&self, request: Request) -> Cancellation {
        match self.requests.get(request) {
            Some(TagOperation::Waiting { .. }) => Cancellation::Receive,
            Some(TagOperation::Multi(multi)) if multi.posted.is_some() => Cancellation::Receive,
            Some(TagOperation::Outgoing { to, at }) => Cancellation::Queue(*to, *at),
            Some(TagOperation::Unmatched { to, .. }) => Cancellation::Ask(*to),
            Some(TagOperation::Asked(asked)) => Cancellation::Ask(asked.to),
            Some(TagOperation::Exposed(exposed)) => Cancellation::Ask(exposed.to),
            Some(TagOperation::Ended(Ok(done))) if self.requests.has_left(request) => Cancellation::Ask(done.peer),
            _ => Cancellation::Late,
        }
    }

    /// Takes a receive back.
    pub(crate) fn cancel_receive<L: Link>(&mut self, core: &mut Core<L>, request: Request) {
        if let Some(TagOperation::Multi(multi)) = self.requests.get(request) {
            let met = multi.posted.and_then(|posted| self.matching.cancel_posted(posted));
            debug_assert_eq!(met, Some(request), "a multi-receive that has a place is posted");
            core.stats.cancelled += 1;
            return self.requests.end_multi(request, MultiEnd::Cancelled);
        }
        // A receive without a buffer of its own has none to give back. Without memory for one it stays.
        let spare = core.engine.buffer(0).ok();
        let Some(TagOperation::Waiting { buffer, posted: Some(posted) }) = self.requests.get_mut(request) else {
            return;
        };
        let (Some(buffer), posted) = (buffer.take().or(spare), *posted) else { return };
        let met = self.matching.cancel_posted(posted);
        debug_assert_eq!(met, Some(request), "a receive that waits is posted");
        core.stats.cancelled += 1;
        let done = Done::new(buffer, 0, self.oneself, Label::default());
        self.requests.end(request, Ok(done.cancelled()));
    }

    /// Takes a send back that has not left.
    pub(crate) fn cancel_queued<L: Link>(&mut self, core: &mut Core<L>, to: PeerId, at: u32) {
        let outgoing = self.queues[to.slot()].outgoing.remove(at).expect("an operation in the queue is at its place");
        core.stats.cancelled += 1;
        let done = Done::new(outgoing.payload, 0, to, outgoing.label);
        self.requests.end(outgoing.request, Ok(done.cancelled()));
    }

    /// Asks the peer for a message that has left.
    pub(crate) fn ask_back<L: Link>(&mut self, core: &mut Core<L>, peer: &mut Peer, request: Request) {
        if !self.requests.start_cancelling(request) {
            return;
        }
        let to = peer.id;
        if self.requests.take_left(request) {
            let left = self.requests.replace(request, TagOperation::Queued { to });
            if let Some(TagOperation::Ended(Ok(done))) = left {
                self.requests.replace(request, TagOperation::Withdrawing { to, done });
            }
        }
        self.queues[to.slot()].cancels.add(request);
        if !self.ask_more(peer) {
            core.stats.cancel_stalls += 1;
        }
    }

    /// Asks for what is to be given back, as far as there may be such questions; whether that was any.
    fn ask_more(&mut self, peer: &mut Peer) -> bool {
        let mut is_any = false;
        let (cancels, sequence) = (&mut self.queues[peer.id.slot()].cancels, peer.tx.next_sequence);
        while let Some(request) = cancels.next(sequence) {
            // One that is over by now need not be asked for.
            if self.requests.get(request).is_some_and(|operation| operation.depends_on() == Some(peer.id)) {
                cancels.ask(sequence);
                peer.tx.control.push_back(Control { message: Message::Cancel { id: request.to_wire() }, sequence });
                is_any = true;
            }
        }
        is_any
    }

    /// A message to oneself is taken back where it is stored.
    pub(crate) fn cancel_local<L: Link>(&mut self, core: &mut Core<L>, request: Request) {
        let (id, oneself) = (request.to_wire(), self.oneself);
        if self.matching.withdraw(oneself, id).is_none() {
            return;
        }
        self.requests.take_left(request);
        core.stats.cancelled += 1;
        let done = match self.requests.replace(request, TagOperation::Queued { to: oneself }) {
            Some(TagOperation::Unmatched { done, .. } | TagOperation::Ended(Ok(done))) => done,
            other => unreachable!("a message to oneself that waits has a send: {other:?}"),
        };
        self.requests.end(request, Ok(done.cancelled()));
        self.note_less_stored(core);
    }

    /// The peer wants a message back.
    pub(crate) fn on_cancel<L: Link>(&mut self, core: &mut Core<L>, peer: &mut Peer, id: u64) {
        let withdrawn = self.matching.withdraw(peer.id, id);
        let is_withdrawn = withdrawn.is_some();
        if let Some((_, body)) = withdrawn {
            self.note_taken(peer.id, &body);
            match body {
                UnexpectedBody::Whole { lane: Some(lane), vbuf, .. } => core.give_receive_vbuf(lane, vbuf),
                UnexpectedBody::Kept { message, .. } => self.release_kept(core, &message),
                UnexpectedBody::Series { id, .. } => self.discard_series(core, peer.id, id),
                UnexpectedBody::Whole { lane: None, .. } | UnexpectedBody::Remote(_) | UnexpectedBody::Local { .. } => {
                }
            }
        }
        peer.queue_control(Message::Cancelled { id, is_withdrawn });
        self.note_less_stored(core);
    }

    /// The peer says whether it gave a message back.
    pub(crate) fn on_cancelled<L: Link>(
        &mut self,
        core: &mut Core<L>,
        peer: &mut Peer,
        id: u64,
        is_withdrawn: bool,
    ) -> Result<(), Breach> {
        let from = peer.id;
        self.queues[from.slot()].cancels.note_answer();
        self.ask_more(peer);
        let request = Request::from_wire(id);
        let is_theirs = self.requests.get(request).is_some_and(|operation| operation.depends_on() == Some(from));
        let was_asked = is_theirs && self.requests.stop_cancelling(request);
        match self.requests.get(request) {
            Some(TagOperation::Withdrawing { to, .. } | TagOperation::Unmatched { to, .. })
                if was_asked && *to == from =>
            {
                self.end_withdrawn(core, request, is_withdrawn);
            }
            Some(TagOperation::Asked(asked)) if was_asked && is_withdrawn && asked.to == from => {
                core.stats.cancelled += 1;
                self.end_rendezvous(core, request, Done::cancelled);
            }
            Some(TagOperation::Exposed(exposed)) if was_asked && is_withdrawn && exposed.to == from => {
                core.stats.cancelled += 1;
                self.end_rendezvous(core, request, Done::cancelled);
            }
            // Too late: it goes its way, or has gone it.
            _ if !is_withdrawn => {}
            _ => return Err(Breach::Cancelled { id }),
        }
        Ok(())
    }

    fn end_withdrawn<L: Link>(&mut self, core: &mut Core<L>, request: Request, is_withdrawn: bool) {
        let placeholder = TagOperation::Queued { to: self.oneself };
        core.stats.cancelled += u64::from(is_withdrawn);
        match self.requests.replace(request, placeholder) {
            Some(TagOperation::Withdrawing { done, .. } | TagOperation::Unmatched { done, .. }) if is_withdrawn => {
                self.requests.end(request, Ok(done.cancelled()));
            }
            Some(TagOperation::Withdrawing { done, .. }) => self.requests.end(request, Ok(done)),
            // It is matched, and the message that says so comes apart.
            Some(unmatched) => drop(self.requests.replace(request, unmatched)),
            None => {}
        }
    }
}
