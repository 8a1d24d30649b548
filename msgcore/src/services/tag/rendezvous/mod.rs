//! Rendezvous: the sender announces a message, and its payload moves once a receive waits for it. How it moves is each
//! protocol's own file: [`r3`] in vbufs, [`rget`] by RDMA READ, [`rput`] by RDMA WRITE, [`pipeline`] by RDMA WRITE in
//! pieces. Between processes of one host [`cma`] replaces the READ of RGET.

mod cma;
mod pipeline;
mod r3;
mod rget;
mod rput;

use roci_driver::Rkey;
use roci_driver::link::Link;
use roci_protocol::msg::{BehindRequest, Header, Label, Message, Mode, RendezvousProtocol};

use super::TagService;
use super::matching::MatchLabel;
use super::operation::{Asked, Exposed, PipeOut, TagOperation};
use super::select::Reason;
use super::send_queue::{OUTGOING_LIMIT, Outgoing};
use super::stored::{RemotePayload, UnexpectedBody, acceptable};
use crate::core::Core;
use crate::core::breach::Breach;
use crate::core::completion::Done;
use crate::core::peer::Peer;
use crate::core::request::Request;

pub(crate) use cma::ProcessCopies;
pub(crate) use pipeline::Staging;

/// A clear-to-send, as it came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClearToSend {
    pub(crate) reply: u64,
    pub(crate) protocol: RendezvousProtocol,
    pub(crate) rkey: Rkey,
    pub(crate) va: u64,
    pub(crate) len: usize,
}

impl TagService {
    /// Sender: announces a message; with its address, where the receiver may read it there.
    pub(super) fn announce<L: Link>(
        &mut self,
        core: &mut Core<L>,
        peer: &mut Peer,
        (protocol, reason): (RendezvousProtocol, Reason),
        outgoing: Outgoing,
    ) {
        let Outgoing { request, label, mode, payload } = outgoing;
        let address = (reason == Reason::SameHost).then(|| payload.as_ptr().addr() as u64);
        let (to, sequence, len) = (peer.id, peer.take_sequence(), payload.len() as u64);
        let (operation, protocol, rkey) = match protocol {
            RendezvousProtocol::Rget => rget::expose(core, to, label, payload),
            protocol => (TagOperation::Asked(Asked { to, label, payload, protocol }), protocol, Rkey(0)),
        };
        // What the receiver may make R3 is counted when its clear-to-send comes.
        if matches!(protocol, RendezvousProtocol::R3 | RendezvousProtocol::Rget) {
            core.stats.goes(protocol);
        }
        self.requests.replace(request, operation);
        self.queues[to.slot()].announced += 1;
        // Memory that was not registered goes in vbufs.
        let address = address.filter(|_| protocol == RendezvousProtocol::Rget);
        core.stats.tx_cma += u64::from(address.is_some());
        let message = Message::RequestToSend { label, len, id: request.to_wire(), protocol, rkey, address, mode };
        let behind = BehindRequest::new(&label, address);
        core.post_vbuf(peer, 0, Header { sequence, ..Header::new(message) }, behind.as_ref());
    }

    /// Receiver: an announcement came. Its credit goes back to the sender even where it waits for a receive: it takes little,
    /// and how many of them wait is limited for each peer.
    pub(crate) fn on_request_to_send<L: Link>(
        &mut self,
        core: &mut Core<L>,
        peer: &mut Peer,
        (label, mode): (Label, Mode),
        remote: RemotePayload,
    ) -> Result<(), Breach> {
        acceptable(remote.len)?;
        match self.meet_posted(&MatchLabel::new(peer.id, label), remote.len as usize) {
            Some(request) => {
                core.stats.rx_expected += 1;
                self.meet(core, peer, request, label, remote);
            }
            None => {
                let waiting = &mut self.queues[peer.id.slot()].announced_here;
                if *waiting == OUTGOING_LIMIT {
                    return Err(Breach::TooManyAnnounced(OUTGOING_LIMIT));
                }
                *waiting += 1;
                core.stats.rx_ready_unmatched += u64::from(mode == Mode::Ready);
                self.store(core, peer.id, label, UnexpectedBody::Remote(remote));
            }
        }
        Ok(())
    }

    /// Receiver: a receive has met an announcement.
    pub(super) fn meet<L: Link>(
        &mut self,
        core: &mut Core<L>,
        peer: &mut Peer,
        request: Request,
        label: Label,
        remote: RemotePayload,
    ) {
        let (from, len) = (peer.id, remote.len as usize);
        let Some(buffer) = self.buffer_for(core, request, from, label, len) else {
            return finish(peer, remote.id);
        };
        if len == 0 {
            self.requests.end(request, Ok(Done::new(buffer, 0, from, label)));
            return finish(peer, remote.id);
        }
        match remote.protocol {
            RendezvousProtocol::R3 => self.grant_fragments(peer, request, label, remote, buffer),
            RendezvousProtocol::Rget => match remote.address {
                Some(va) if cma::can_copy(peer, &buffer) => self.copy(peer, request, label, (remote, va), buffer),
                _ => self.fetch(peer, request, label, remote, buffer),
            },
            RendezvousProtocol::Rput => self.open_buffer(core, peer, request, label, remote, buffer),
            RendezvousProtocol::Pipeline => self.pipe(core, peer, request, label, remote, buffer),
        }
    }

    /// Sender: the receiver is done with the payload, or does not want it. The name came over the wire and proves nothing.
    pub(crate) fn on_finished<L: Link>(&mut self, core: &mut Core<L>, peer: &Peer, id: u64) -> Result<(), Breach> {
        let request = Request::from_wire(id);
        let is_ours = match self.requests.get(request) {
            Some(TagOperation::Exposed(exposed)) => exposed.to == peer.id,
            Some(TagOperation::Asked(asked)) => asked.to == peer.id,
            _ => false,
        };
        if !is_ours {
            return Err(Breach::Finished { id });
        }
        self.end_rendezvous(core, request, |done| done);
        Ok(())
    }

    /// Sender: takes the payload back and ends the request.
    pub(super) fn end_rendezvous<L: Link>(
        &mut self,
        core: &mut Core<L>,
        request: Request,
        how: impl FnOnce(Done) -> Done,
    ) {
        let (to, label, payload) = match self.requests.replace(request, TagOperation::Queued { to: self.oneself }) {
            Some(TagOperation::Exposed(Exposed { to, label, region })) => (to, label, core.deregister(region)),
            Some(TagOperation::Asked(Asked { to, label, payload, .. })) => (to, label, payload),
            other => unreachable!("only a rendezvous that has not moved ends so: {other:?}"),
        };
        self.queues[to.slot()].note_announced_over();
        let len = payload.len();
        self.requests.end(request, Ok(how(Done::new(payload, len, to, label))));
    }

    /// Sender: the receiver is ready.
    pub(crate) fn on_clear_to_send<L: Link>(
        &mut self,
        core: &mut Core<L>,
        peer: &mut Peer,
        id: u64,
        cts: ClearToSend,
    ) -> Result<(), Breach> {
        let request = Request::from_wire(id);
        let refused = Breach::ClearToSend { id };
        match self.requests.get(request) {
            Some(TagOperation::Asked(asked)) if asked.to == peer.id => {
                if cts.protocol == RendezvousProtocol::R3 {
                    self.start_fragments(core, request, cts);
                    return Ok(());
                }
                let fits = match asked.protocol {
                    RendezvousProtocol::Rput => cts.len == asked.payload.len(),
                    RendezvousProtocol::Pipeline => PipeOut::admits(cts.len, asked.payload.len()),
                    RendezvousProtocol::R3 | RendezvousProtocol::Rget => false,
                };
                if asked.protocol != cts.protocol || !fits {
                    return Err(refused);
                }
                self.start_writing(core, request);
                self.write_piece(peer, request, cts).ok_or(refused)
            }
            Some(TagOperation::Writing(out)) if out.to == peer.id => {
                self.write_piece(peer, request, cts).ok_or(refused)
            }
            _ => Err(refused),
        }
    }
}

/// Receiver: the payload has arrived, or is not wanted.
pub(super) fn finish(peer: &mut Peer, id: u64) {
    peer.queue_control(Message::Finished { id });
}
