//! RGET: the announcement carries a key to the payload; the receiver fetches it by RDMA READ straight into the
//! application's buffer, and says so.
//!
//! The payload is registered for this one transfer, with a key that dies with it; its buffer belongs to the operation
//! meanwhile, so nothing writes what the peer reads.

use roci_driver::link::Link;
use roci_driver::{Access, Buffer, Rkey};
use roci_protocol::msg::{Label, RendezvousProtocol};

use super::super::TagService;
use super::super::operation::{Asked, Exposed, Fetching, TagOperation};
use super::super::stored::RemotePayload;
use super::finish;
use crate::core::Core;
use crate::core::completion::Done;
use crate::core::peer::{Peer, PeerId};
use crate::core::request::Request;
use crate::core::transfer::{Direction, Transfer};

/// Sender: opens the payload to the peer, or falls back to R3.
pub(super) fn expose<L: Link>(
    core: &mut Core<L>,
    to: PeerId,
    label: Label,
    payload: Buffer,
) -> (TagOperation, RendezvousProtocol, Rkey) {
    match core.register(payload, Access::REMOTE_READ) {
        Ok(region) => (TagOperation::Exposed(Exposed { to, label, region }), RendezvousProtocol::Rget, region.rkey()),
        Err(payload) => {
            core.stats.fallback_registration += 1;
            let protocol = RendezvousProtocol::R3;
            (TagOperation::Asked(Asked { to, label, payload, protocol }), protocol, Rkey(0))
        }
    }
}

impl TagService {
    /// Receiver: fetches the payload.
    pub(super) fn fetch(
        &mut self,
        peer: &mut Peer,
        request: Request,
        label: Label,
        remote: RemotePayload,
        mut buffer: Buffer,
    ) {
        self.note_fetching(peer, request, label, remote, &mut buffer);
        read(peer, request, remote.rkey, buffer);
    }

    /// Receiver: the payload comes to the front of the buffer, whose view is as long from now on.
    pub(super) fn note_fetching(
        &mut self,
        peer: &Peer,
        request: Request,
        label: Label,
        RemotePayload { id, len, .. }: RemotePayload,
        buffer: &mut Buffer,
    ) {
        let room = buffer.len();
        buffer.set_len(len as usize);
        self.requests.replace(request, TagOperation::Fetching(Fetching { from: peer.id, label, id, room }));
    }

    /// Receiver: the payload has been fetched, or copied.
    pub(crate) fn on_read(&mut self, peer: &mut Peer, request: Request, mut buffer: Buffer) {
        let Some(&TagOperation::Fetching(Fetching { from, label, id, room })) = self.requests.get(request) else {
            return;
        };
        debug_assert_eq!(from, peer.id, "a READ is of the peer that it was posted to");
        let len = buffer.len();
        buffer.set_len(room);
        self.requests.end(request, Ok(Done::new(buffer, len, from, label)));
        finish(peer, id);
    }
}

/// Receiver: posts the READ.
pub(super) fn read(peer: &mut Peer, request: Request, rkey: Rkey, buffer: Buffer) {
    let (operation, direction) = (request.to_wire(), Direction::Read);
    peer.tx.transfers.push(Transfer { operation, buffer, rkey, va: 0, direction, by_message: false });
}
