//! Rendezvous: the sender announces a message, and its payload moves once a receive waits for it. How it moves is each
//! protocol's own file: [`r3`] in vbufs, [`rget`] by RDMA READ, [`rput`] by RDMA WRITE, [`pipeline`] by RDMA WRITE in
//! pieces.

mod pipeline;
mod r3;
mod rget;
mod rput;

use roci_driver::link::Link;
use roci_driver::{Access, Buffer, MemoryRegion, RegionFull, Rkey};
use roci_protocol::msg::{Header, Label, Message, Mode, Way};

use crate::Rank;
use crate::core::peer::Outgoing;
use crate::services::tag::eager::{Body, acceptable};
use crate::services::tag::matching;
use crate::services::tag::request::{Done, Operation, Request};
use crate::worker::Worker;

pub(crate) use pipeline::{PipeIn, PipeOut, Staging};
pub(crate) use r3::Filling;
pub(crate) use rget::{Exposed, Fetching};
pub(crate) use rput::Opened;

/// A payload that waits at its sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Remote {
    pub(crate) way: Way,
    pub(crate) rkey: Rkey,
    pub(crate) len: u64,
    /// The sender's name for the operation.
    pub(crate) id: u64,
}

/// Sender: a rendezvous that waits for a grant.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) to: Rank,
    pub(crate) label: Label,
    pub(crate) payload: Buffer,
    pub(crate) way: Way,
}

/// A grant, as it came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grant {
    pub(crate) reply: u64,
    pub(crate) way: Way,
    pub(crate) rkey: Rkey,
    pub(crate) va: u64,
    pub(crate) len: usize,
}

impl<L: Link> Worker<L> {
    /// Sender: announces a message.
    pub(crate) fn request(&mut self, to: Rank, way: Way, outgoing: Outgoing) {
        let Outgoing { request, label, mode, payload } = outgoing;
        let sequence = self.next_sequence(to);
        let len = payload.len() as u64;
        let (operation, way, rkey) = match way {
            Way::Rget => self.expose(to, label, payload),
            way => (Operation::Asked(Asked { to, label, payload, way }), way, Rkey(0)),
        };
        // What the receiver may make R3 is counted when it grants.
        if matches!(way, Way::R3 | Way::Rget) {
            self.stats.goes(way);
        }
        self.requests.replace(request, operation);
        let message = Message::Request { label, len, id: request.to_wire(), way, rkey, mode };
        self.post_vbuf(to, 0, Header { sequence, ..Header::new(message) }, &[]);
    }

    /// Receiver: an announcement came. Returns whether it waits for a receive.
    pub(crate) fn on_request(&mut self, from: Rank, message: Message) -> Result<bool, String> {
        let Message::Request { label, len, id, way, rkey, mode } = message else {
            unreachable!("the caller has looked")
        };
        acceptable(len)?;
        let remote = Remote { way, rkey, len, id };
        match self.matching.take_posted(&matching::Label::new(from, label)) {
            Some(request) => {
                self.stats.rx_expected += 1;
                self.meet(request, from, label, remote);
                Ok(false)
            }
            None => {
                self.stats.rx_ready_unmatched += u64::from(mode == Mode::Ready);
                self.keep(from, label, 0, Body::Remote(remote));
                Ok(true)
            }
        }
    }

    /// Receiver: a receive has met an announcement.
    pub(crate) fn meet(&mut self, request: Request, from: Rank, label: Label, remote: Remote) {
        let Some(buffer) = self.buffer_for(request, from, label, remote.len as usize) else {
            return self.finish(from, remote.id);
        };
        let len = remote.len as usize;
        if len == 0 {
            self.requests.end(request, Ok(Done::new(buffer, 0, from, label)));
            return self.finish(from, remote.id);
        }
        match remote.way {
            Way::R3 => self.grant_stream(request, from, label, remote, buffer),
            Way::Rget => self.fetch(request, from, label, remote, buffer),
            Way::Rput => self.open_buffer(request, from, label, remote, buffer),
            Way::Pipeline => self.pipe(request, from, label, remote, buffer),
        }
    }

    /// Receiver: the payload has arrived, or is not wanted.
    pub(crate) fn finish(&mut self, to: Rank, id: u64) {
        if let Some(endpoint) = self.endpoint(to) {
            endpoint.say(Message::Finished { id });
        }
        self.advance(to);
    }

    /// Sender: the receiver is done with the payload, or does not want it. The name came over the wire and proves nothing.
    pub(crate) fn on_finished(&mut self, from: Rank, id: u64) -> Result<(), String> {
        let request = Request::from_wire(id);
        let is_ours = match self.requests.get(request) {
            Some(Operation::Exposed(exposed)) => exposed.to == from,
            Some(Operation::Asked(asked)) => asked.to == from,
            _ => false,
        };
        if !is_ours {
            return Err(format!("it finished transfer {id:#x}, which is none of its own"));
        }
        self.end_rendezvous(request, |done| done);
        Ok(())
    }

    /// Sender: takes the payload back and ends the request.
    pub(crate) fn end_rendezvous(&mut self, request: Request, how: impl FnOnce(Done) -> Done) {
        let (to, label, payload) = match self.requests.replace(request, Operation::Queued { to: self.rank }) {
            Some(Operation::Exposed(Exposed { to, label, region })) => (to, label, self.deregister(region)),
            Some(Operation::Asked(Asked { to, label, payload, .. })) => (to, label, payload),
            other => unreachable!("only a rendezvous that has not moved ends so: {other:?}"),
        };
        let len = payload.len();
        self.requests.end(request, Ok(how(Done::new(payload, len, to, label))));
    }

    /// Sender: the receiver is ready.
    pub(crate) fn on_grant(&mut self, from: Rank, id: u64, grant: Grant) -> Result<(), String> {
        let request = Request::from_wire(id);
        let refused = || format!("its grant for transfer {id:#x} does not fit it");
        match self.requests.get(request) {
            Some(Operation::Asked(asked)) if asked.to == from => {
                if grant.way == Way::R3 {
                    self.start_stream(request, grant);
                    return Ok(());
                }
                let fits = match asked.way {
                    Way::Rput => grant.len == asked.payload.len(),
                    Way::Pipeline => PipeOut::admits(grant.len, asked.payload.len()),
                    Way::R3 | Way::Rget => false,
                };
                if asked.way != grant.way || !fits {
                    return Err(refused());
                }
                self.start_writing(request);
                self.write_piece(request, grant).ok_or_else(refused)
            }
            Some(Operation::Writing(out)) if out.to == from => self.write_piece(request, grant).ok_or_else(refused),
            _ => Err(refused()),
        }
    }

    /// Whether a key is left.
    #[inline]
    pub(crate) fn can_register(&self) -> bool {
        self.regions < self.region_limit && self.engine.can_register()
    }

    /// Opens memory to the peer, if a key is left.
    pub(crate) fn register(&mut self, buffer: Buffer, access: Access) -> Result<MemoryRegion, Buffer> {
        if self.regions == self.region_limit {
            self.stats.registrations_refused += 1;
            return Err(buffer);
        }
        match self.engine.register(self.pd, buffer, access) {
            Ok(region) => {
                self.regions += 1;
                Ok(region)
            }
            Err(RegionFull(buffer)) => {
                self.stats.registrations_refused += 1;
                Err(buffer)
            }
        }
    }

    /// Closes memory to the peer.
    pub(crate) fn deregister(&mut self, region: MemoryRegion) -> Buffer {
        self.regions -= 1;
        self.engine.deregister(region).expect("the operation owns its region")
    }
}
