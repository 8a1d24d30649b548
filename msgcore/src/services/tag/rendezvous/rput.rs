//! RPUT: the receiver opens the application's buffer to the sender, which writes the payload by RDMA WRITE and says so
//! behind it on the same queue pair: what is said is executed after what was written.

use roci_driver::link::Link;
use roci_driver::{Access, Buffer};
use roci_protocol::msg::{Label, Message, RendezvousProtocol};

use super::super::TagService;
use super::super::operation::{Opened, TagOperation};
use super::super::stored::RemotePayload;
use crate::core::Core;
use crate::core::breach::Breach;
use crate::core::completion::Done;
use crate::core::peer::Peer;
use crate::core::request::Request;

impl TagService {
    /// Receiver: opens the buffer, or falls back to R3.
    pub(super) fn open_buffer<L: Link>(
        &mut self,
        core: &mut Core<L>,
        peer: &mut Peer,
        request: Request,
        label: Label,
        remote: RemotePayload,
        buffer: Buffer,
    ) {
        let (from, len) = (peer.id, remote.len as usize);
        match core.register(buffer, Access::REMOTE_WRITE) {
            Ok(region) => {
                self.requests.replace(request, TagOperation::Opened(Opened { from, label, region, len }));
                let (id, reply, rkey) = (remote.id, request.to_wire(), region.rkey());
                peer.queue_control(Message::ClearToSend {
                    id,
                    reply,
                    protocol: RendezvousProtocol::Rput,
                    rkey,
                    va: 0,
                    len: len as u32,
                });
            }
            Err(buffer) => {
                core.stats.fallback_registration += 1;
                self.grant_fragments(peer, request, label, remote, buffer);
            }
        }
    }

    /// Receiver: what was granted has been written.
    pub(crate) fn on_written<L: Link>(
        &mut self,
        core: &mut Core<L>,
        peer: &mut Peer,
        reply: u64,
        len: u64,
    ) -> Result<(), Breach> {
        let request = Request::from_wire(reply);
        match self.requests.get(request) {
            Some(&TagOperation::Opened(Opened { from, label, region, len: all })) if from == peer.id => {
                if len != all as u64 {
                    return Err(Breach::Written { len, all });
                }
                let buffer = core.deregister(region);
                self.requests.end(request, Ok(Done::new(buffer, all, from, label)));
                Ok(())
            }
            Some(TagOperation::Piped(pipe)) if pipe.from == peer.id => self.on_piece(core, peer, request, len),
            _ => Err(Breach::UnaskedWritten { reply }),
        }
    }
}
