//! Receiving: into a buffer of the application, or the memory that the message came in; and looking before receiving.

use roci_driver::Buffer;
use roci_driver::link::Link;

use super::TagService;
use super::eager::acknowledge_match;
use super::matching::{MatchLabel, Pattern};
use super::operation::TagOperation;
use super::rendezvous::finish;
use super::stored::UnexpectedBody;
use crate::core::Core;
use crate::core::completion::{Envelope, OpError};
use crate::core::peer::{Peer, PeerId};
use crate::core::request::Request;

/// A message that has met a receive, or a probe: whose it is, and what there is of it.
pub(crate) struct Met {
    pub(super) label: MatchLabel,
    pub(super) body: UnexpectedBody,
}

impl Met {
    /// Returns what it says of itself.
    pub(super) fn envelope(&self) -> Envelope {
        envelope(&self.label, &self.body)
    }

    /// Returns its length.
    pub(crate) fn len(&self) -> usize {
        self.body.len()
    }

    /// Returns who sent it.
    pub(crate) fn source(&self) -> PeerId {
        self.label.source
    }

    /// Its sender gets to know that it was met, where it wants to: from here on it cannot be taken back.
    pub(crate) fn acknowledge(&self, sender: &mut Peer) {
        if let UnexpectedBody::Whole { id, mode, .. }
        | UnexpectedBody::Kept { id, mode, .. }
        | UnexpectedBody::Series { id, mode, .. } = &self.body
        {
            acknowledge_match(sender, *id, *mode);
        }
    }
}

impl TagService {
    /// Takes the oldest message that such a receive takes out of those that wait, if there is one.
    pub(crate) fn take_unexpected(&mut self, pattern: &Pattern) -> Option<Met> {
        let (label, body) = self.matching.take_unexpected(pattern)?;
        self.note_taken(label.source, &body);
        Some(Met { label, body })
    }

    /// A message waits for a receive no longer.
    pub(super) fn note_taken(&mut self, source: PeerId, body: &UnexpectedBody) {
        if matches!(body, UnexpectedBody::Remote(_)) {
            self.queues[source.slot()].announced_here -= 1;
        }
    }

    /// Opens a receive of this name, which waits for nothing yet.
    pub(crate) fn open_receive(&mut self, request: Request, buffer: Option<Buffer>) {
        self.requests.open(request, || TagOperation::Waiting { buffer, posted: None });
    }

    /// Opens a receive of this name, which waits for a message from now on.
    #[inline]
    pub(crate) fn post_receive(&mut self, request: Request, pattern: Pattern, buffer: Option<Buffer>) {
        let posted = Some(self.matching.post(pattern, request));
        self.requests.open(request, || TagOperation::Waiting { buffer, posted });
    }

    /// A multi-receive waits for messages from now on.
    pub(crate) fn post_multi(&mut self, request: Request, pattern: Pattern) {
        let posted = Some(self.matching.post(pattern, request));
        if let Some(TagOperation::Multi(multi)) = self.requests.get_mut(request) {
            multi.posted = posted;
        }
    }

    /// Brings a message of `len` bytes to its receive. Returns the name of the operation that takes it: that of the receive, or
    /// of a piece of a multi-receive.
    #[inline]
    pub(super) fn meet_posted(&mut self, label: &MatchLabel, len: usize) -> Option<Request> {
        let Self { matching, requests, .. } = self;
        let mut taker = None;
        matching.take_posted_if(label, |receive| {
            let (request, encounter) = requests.meet(receive, len);
            taker = Some(request);
            encounter
        });
        taker
    }

    /// Gives a message that waited to its receive. `peer` is its sender, if that is a peer and not gone.
    pub(crate) fn deliver_met<L: Link>(
        &mut self,
        core: &mut Core<L>,
        peer: Option<&mut Peer>,
        request: Request,
        met: Met,
    ) {
        let (source, label) = (met.label.source, met.label.wire(met.body.data()));
        match met.body {
            UnexpectedBody::Whole { lane, vbuf, .. } => {
                let vbuf = self.deliver(core, request, source, label, lane, vbuf);
                if let (Some(vbuf), Some(lane)) = (vbuf, lane) {
                    core.give_receive_vbuf(lane, vbuf);
                }
            }
            UnexpectedBody::Kept { message, data, .. } => self.deliver_kept(core, request, &met.label, data, &message),
            UnexpectedBody::Series { id, .. } => self.deliver_series(core, request, source, label, id),
            UnexpectedBody::Local { request: send, copy, .. } => self.deliver_local(core, request, label, send, copy),
            UnexpectedBody::Remote(remote) => {
                let peer = peer.expect("an announcement goes with its sender");
                self.meet(core, peer, request, label, remote);
            }
        }
        self.note_less_stored(core);
    }

    /// Ends a receive with an error.
    pub(crate) fn fail_receive(&mut self, request: Request, error: OpError) {
        self.requests.fail_receive(request, error);
    }

    /// Returns what a message says of itself that such a receive would take.
    pub(crate) fn peek(&mut self, pattern: &Pattern) -> Option<Envelope> {
        self.matching.peek_unexpected(pattern).map(|(label, body)| envelope(&label, body))
    }

    /// Discards a message that no receive shall take: its memory is free again, and its sender's operation ends. `peer` is its
    /// sender, if that is a peer and not gone.
    pub(crate) fn discard<L: Link>(&mut self, core: &mut Core<L>, peer: Option<&mut Peer>, met: Met) {
        core.stats.discarded += 1;
        match met.body {
            UnexpectedBody::Whole { lane: Some(lane), vbuf, .. } => core.give_receive_vbuf(lane, vbuf),
            UnexpectedBody::Whole { lane: None, .. } => {}
            UnexpectedBody::Kept { message, .. } => self.release_kept(core, &message),
            UnexpectedBody::Series { id, .. } => self.discard_series(core, met.label.source, id),
            UnexpectedBody::Local { request: send, .. } => self.end_local_send(send),
            UnexpectedBody::Remote(remote) => {
                if let Some(peer) = peer {
                    finish(peer, remote.id);
                }
            }
        }
        self.note_less_stored(core);
    }

    /// Discards all that has come from a peer, which is gone, and was not received or claimed.
    pub(crate) fn discard_all_of<L: Link>(&mut self, core: &mut Core<L>, peer: PeerId) {
        for (label, body) in self.matching.take_all_of(peer) {
            self.note_taken(peer, &body);
            self.discard(core, None, Met { label, body });
        }
    }

    /// Whether a message that was claimed is lost where its sender has gone.
    pub(crate) fn is_lost(&self, met: &Met) -> bool {
        self.is_lost_with_its_sender(met.label.source, &met.body)
    }
}

fn envelope(label: &MatchLabel, body: &UnexpectedBody) -> Envelope {
    Envelope { source: label.source, tag: label.tag, len: body.len(), data: body.data() }
}
