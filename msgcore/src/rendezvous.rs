//! The rendezvous protocol RGET: the sender announces, the receiver fetches by RDMA READ, and says so.
//!
//! The payload is registered for this one transfer, with a key that dies with it; its buffer belongs to the
//! operation meanwhile, so nobody writes what the peer reads.

use roci_driver::link::Link;
use roci_driver::{Access, Buffer, RegionFull, SendWr, WcStatus};
use roci_protocol::msg::{Header, Kind};

use crate::endpoint::{Fetch, Outgoing};
use crate::matching::{Body, Remote};
use crate::request::{Done, OpError, Operation, Request};
use crate::wireup::SEND_QUEUE;
use crate::worker::Worker;
use crate::{Rank, Tag};

impl<L: Link> Worker<L> {
    /// Sender: registers the payload and announces it. The credit is spent.
    pub(crate) fn announce(&mut self, to: Rank, request: Request, tag: Tag, payload: Buffer) {
        let len = payload.len() as u64;
        match self.engine.register(self.pd, payload, Access::REMOTE_READ) {
            Ok(region) => {
                self.stats.tx_rendezvous += 1;
                self.requests.replace(request, Operation::Exposed { to, tag, region });
                let id = request.to_wire();
                let header = Header { rkey: region.rkey(), tag: tag.get(), len, id, ..Header::new(Kind::ReadyToSend) };
                self.post_vbuf(to, header, &[]);
            }
            Err(RegionFull(payload)) => {
                // All keys are in use: the message waits until a transfer ends. Its credit comes back unused.
                self.stats.buffer_stalls += 1;
                if let Some(endpoint) = self.endpoints[to].as_mut() {
                    let returned = endpoint.credits.receive(1);
                    debug_assert!(returned, "it was just spent");
                    endpoint.outgoing.push_front(Outgoing { request, tag, payload });
                }
                self.keys_are_exhausted = true;
            }
        }
    }

    /// Receiver: an announcement came.
    pub(crate) fn on_ready_to_send(&mut self, from: Rank, tag: Tag, remote: Remote) {
        match self.matching.take_posted(from, tag) {
            Some(request) => {
                self.stats.rx_expected += 1;
                self.fetch(request, from, tag, remote);
            }
            None => self.keep_unexpected(from, tag, Body::Rendezvous(remote)),
        }
    }

    /// Receiver: fetches the payload, or declines it when it does not fit.
    pub(crate) fn fetch(&mut self, request: Request, from: Rank, tag: Tag, remote: Remote) {
        let len = usize::try_from(remote.len).unwrap_or(usize::MAX);
        let fetching = Operation::Fetching { from, tag, len, id: remote.id };
        let Some(Operation::Waiting { buffer }) = self.requests.replace(request, fetching) else {
            unreachable!("a posted receive waits");
        };
        if len > buffer.len() {
            let error = self.truncated(from, remote.len, buffer.len());
            self.requests.end(request, Err(error));
            self.finish(from, remote.id);
            return;
        }
        if let Some(endpoint) = self.endpoints[from].as_mut() {
            endpoint.fetches.push_back(Fetch { request, buffer, remote });
        }
        self.send_outgoing(from);
    }

    /// Receiver: posts the READs that wait.
    pub(crate) fn send_fetches(&mut self, from: Rank) {
        while let Some(endpoint) = self.endpoints[from].as_mut() {
            if endpoint.in_flight == SEND_QUEUE {
                return;
            }
            let Some(Fetch { request, mut buffer, remote }) = endpoint.fetches.pop_front() else { return };
            buffer.set_len(remote.len as usize);
            endpoint.in_flight += 1;
            let read = SendWr::read(request.to_wire(), buffer, remote.rkey, 0);
            if self.engine.post_send(endpoint.qp, read).is_err() {
                // The queue pair has failed, and its completions will say so to all but this one.
                endpoint.in_flight -= 1;
                let error = OpError::PeerGone { rank: from, status: WcStatus::WrFlushErr };
                self.requests.end(request, Err(error));
                return;
            }
        }
    }

    /// Receiver: a payload has been fetched.
    pub(crate) fn on_fetched(&mut self, request: Request, buffer: Buffer) {
        let Some(&Operation::Fetching { from, tag, len, id }) = self.requests.get(request) else { return };
        self.requests.end(request, Ok(Done { buffer, len, peer: from, tag }));
        self.finish(from, id);
    }

    fn finish(&mut self, to: Rank, id: u64) {
        if let Some(endpoint) = self.endpoints[to].as_mut() {
            endpoint.finished.push_back(id);
        }
        self.send_outgoing(to);
    }

    /// Sender: the receiver is done with the payload. The name came over the wire and proves nothing.
    pub(crate) fn on_finished(&mut self, from: Rank, id: u64) -> Result<(), String> {
        let request = Request::from_wire(id);
        match self.requests.get(request) {
            Some(&Operation::Exposed { to, tag, region }) if to == from => {
                let buffer = self.engine.deregister(region).expect("the operation owns its region");
                let len = buffer.len();
                self.requests.end(request, Ok(Done { buffer, len, peer: to, tag }));
                Ok(())
            }
            _ => Err(format!("it finished transfer {id:#x}, which is none of its own")),
        }
    }

    pub(crate) fn truncated(&mut self, rank: Rank, sent: u64, room: usize) -> OpError {
        self.stats.rx_truncated += 1;
        OpError::Truncated { rank, sent, room }
    }
}
