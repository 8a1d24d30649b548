//! R3: once the receiver has said that it is ready, the payload comes in vbufs. The stream costs a credit for each and
//! suspends without; the receiver copies every one out as it comes and gives the credit back.

use roci_driver::link::Link;
use roci_driver::{Buffer, Rkey};
use roci_protocol::msg::{Header, Label, Message, Way};

use super::{Asked, Grant, Remote};
use crate::Rank;
use crate::core::peer::Stream;
use crate::services::tag::request::{Done, Operation, Request};
use crate::worker::Worker;

/// Receiver: a receive whose message comes in parts.
#[derive(Debug)]
pub(crate) struct Filling {
    pub(crate) from: Rank,
    pub(crate) label: Label,
    pub(crate) buffer: Buffer,
    pub(crate) len: usize,
    pub(crate) arrived: usize,
}

impl<L: Link> Worker<L> {
    /// Receiver: asks for the stream.
    pub(crate) fn grant_stream(&mut self, request: Request, from: Rank, label: Label, remote: Remote, buffer: Buffer) {
        let filling = Filling { from, label, buffer, len: remote.len as usize, arrived: 0 };
        self.requests.replace(request, Operation::Filling(filling));
        let (id, reply, len) = (remote.id, request.to_wire(), remote.len as u32);
        if let Some(endpoint) = self.endpoint(from) {
            endpoint.say(Message::Grant { id, reply, way: Way::R3, rkey: Rkey(0), va: 0, len });
        }
        self.advance(from);
    }

    /// Receiver: a part of the stream came.
    pub(crate) fn on_data(&mut self, from: Rank, reply: u64, offset: u64, part: &[u8]) -> Result<(), String> {
        self.fill(Request::from_wire(reply), from, offset as usize, part)
    }

    /// Sender: the stream may flow.
    pub(super) fn start_stream(&mut self, request: Request, grant: Grant) {
        let to = self.rank;
        let Some(Operation::Asked(Asked { to, label, payload, way })) =
            self.requests.replace(request, Operation::Queued { to })
        else {
            unreachable!("the caller has looked");
        };
        if way != Way::R3 {
            self.stats.fallback_registration += 1;
            self.stats.goes(Way::R3);
        }
        self.requests.replace(request, Operation::Queued { to });
        if let Some(endpoint) = self.endpoint(to) {
            endpoint.streams.push_back(Stream { request, reply: grant.reply, label, payload, sent: 0 });
        }
    }

    /// Sender: posts a vbuf of the oldest stream; `false` where there is none, or no room.
    pub(crate) fn post_stream(&mut self, to: Rank) -> bool {
        let Some(endpoint) = self.endpoint(to).filter(|endpoint| !endpoint.streams.is_empty()) else { return false };
        let lane = endpoint.lanes.len() - 1;
        let (room, is_admitted) = (endpoint.lanes[lane].payload, endpoint.lanes[lane].admits_control());
        if !self.has_room(to, lane, 1, is_admitted) {
            return false;
        }
        let Some(mut stream) = self.endpoint(to).and_then(|endpoint| endpoint.streams.pop_front()) else {
            return false;
        };
        let Stream { reply, sent, .. } = stream;
        let end = stream.payload.len().min(sent + room);
        let message = Message::Data { reply, offset: sent as u64 };
        self.post_vbuf(to, lane, Header::new(message), &stream.payload[sent..end]);
        stream.sent = end;
        if end < stream.payload.len() {
            if let Some(endpoint) = self.endpoint(to) {
                endpoint.streams.push_front(stream);
            }
        } else {
            let Stream { request, label, payload, .. } = stream;
            self.requests.end(request, Ok(Done::new(payload, end, to, label)));
        }
        true
    }
}
