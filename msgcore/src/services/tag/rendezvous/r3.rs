//! R3: once the receiver has said that it is ready, the payload comes in vbufs. The stream costs a credit for each and
//! suspends without; the receiver copies every one out as it comes and gives the credit back.

use roci_driver::link::Link;
use roci_driver::{Buffer, Rkey};
use roci_protocol::msg::{Header, Label, Message, RendezvousProtocol};

use super::super::TagService;
use super::super::operation::{Asked, Filling, TagOperation};
use super::super::send_queue::Fragments;
use super::super::stored::RemotePayload;
use super::ClearToSend;
use crate::core::Core;
use crate::core::breach::Breach;
use crate::core::completion::Done;
use crate::core::peer::Peer;
use crate::core::request::Request;

impl TagService {
    /// Receiver: asks for the payload.
    pub(super) fn grant_fragments(
        &mut self,
        peer: &mut Peer,
        request: Request,
        label: Label,
        remote: RemotePayload,
        buffer: Buffer,
    ) {
        let filling = Filling { from: peer.id, label, buffer, len: remote.len as usize, arrived: 0 };
        self.requests.replace(request, TagOperation::Filling(filling));
        let (id, reply, len) = (remote.id, request.to_wire(), remote.len as u32);
        peer.queue_control(Message::ClearToSend {
            id,
            reply,
            protocol: RendezvousProtocol::R3,
            rkey: Rkey(0),
            va: 0,
            len,
        });
    }

    /// Receiver: a part of the payload came.
    pub(crate) fn on_data(&mut self, peer: &Peer, reply: u64, offset: u64, part: &[u8]) -> Result<(), Breach> {
        self.fill(Request::from_wire(reply), peer.id, offset as usize, part)
    }

    /// Sender: the payload may leave.
    pub(super) fn start_fragments<L: Link>(&mut self, core: &mut Core<L>, request: Request, cts: ClearToSend) {
        let placeholder = TagOperation::Queued { to: self.oneself };
        let Some(TagOperation::Asked(Asked { to, label, payload, protocol })) =
            self.requests.replace(request, placeholder)
        else {
            unreachable!("the caller has looked");
        };
        if protocol != RendezvousProtocol::R3 {
            core.stats.fallback_registration += 1;
            core.stats.goes(RendezvousProtocol::R3);
        }
        self.requests.replace(request, TagOperation::Queued { to });
        self.queues[to.slot()].note_announced_over();
        self.queues[to.slot()].fragments.push_back(Fragments { request, reply: cts.reply, label, payload, sent: 0 });
    }

    /// Sender: posts a vbuf of the oldest payload; `false` where there is none, or no room.
    pub(crate) fn post_fragment<L: Link>(&mut self, core: &mut Core<L>, peer: &mut Peer) -> bool {
        if self.queues[peer.id.slot()].fragments.is_empty() {
            return false;
        }
        let lane = peer.lanes.len() - 1;
        let (room, is_admitted) = (peer.lanes[lane].payload, peer.lanes[lane].admits_control());
        if !core.has_send_room(peer, lane, 1, is_admitted) {
            return false;
        }
        let fragments = self.queues[peer.id.slot()].fragments.front_mut().expect("there is one");
        let end = fragments.payload.len().min(fragments.sent + room);
        let message = Message::Data { reply: fragments.reply, offset: fragments.sent as u64 };
        core.post_part(peer, lane, Header::new(message), (&fragments.payload, fragments.sent..end));
        fragments.sent = end;
        if end == fragments.payload.len() {
            let Fragments { request, label, payload, .. } =
                self.queues[peer.id.slot()].fragments.pop_front().expect("there is one");
            self.requests.end(request, Ok(Done::new(payload, end, peer.id, label)));
        }
        true
    }
}
