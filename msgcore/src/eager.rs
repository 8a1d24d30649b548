//! The eager protocol, and everything else that travels in a vbuf.

use roci_driver::link::Link;
use roci_driver::{Buffer, SendWr};
use roci_protocol::msg::{self, Header, Kind};

use crate::endpoint::Outgoing;
use crate::matching::{Body, Posted, Unexpected};
use crate::request::{Done, Operation, Request};
use crate::select::Protocol;
use crate::wireup::SEND_QUEUE;
use crate::worker::{CallError, Worker};
use crate::{Rank, Source, Tag, TagMatch};

/// The name of work requests that carry a vbuf; those of others start behind it.
pub(crate) const VBUF: u64 = u64::MAX;

impl<L: Link> Worker<L> {
    /// Sends what waits for rank `to`, as far as credits and buffers go: ends of transfers first, then messages in
    /// order.
    pub(crate) fn send_outgoing(&mut self, to: Rank) {
        self.send_fetches(to);
        while let Some(endpoint) = self.endpoints[to].as_mut() {
            let may_send_message = !endpoint.outgoing.is_empty() && !self.keys_are_exhausted;
            if endpoint.finished.is_empty() && !may_send_message {
                return;
            }
            if endpoint.credits.available() == 0 {
                self.stats.credit_stalls += 1;
                return;
            }
            if endpoint.in_flight == SEND_QUEUE || self.vbufs.is_empty() {
                self.stats.buffer_stalls += 1;
                self.vbufs_are_exhausted |= self.vbufs.is_empty();
                return;
            }
            endpoint.credits.spend();
            if let Some(id) = endpoint.finished.pop_front() {
                self.post_vbuf(to, Header { id, ..Header::new(Kind::Finished) }, &[]);
            } else if let Some(Outgoing { request, tag, payload }) = endpoint.outgoing.pop_front() {
                self.send_message(to, request, tag, payload);
            }
        }
    }

    fn send_message(&mut self, to: Rank, request: Request, tag: Tag, payload: Buffer) {
        match self.thresholds.select(payload.len()) {
            Protocol::Eager => {
                let len = payload.len();
                let header = Header { tag: tag.get(), len: len as u64, ..Header::new(Kind::Eager) };
                self.post_vbuf(to, header, &payload);
                self.stats.tx_eager += 1;
                self.requests.end(request, Ok(Done { buffer: payload, len, peer: to, tag }));
            }
            Protocol::Rget => self.announce(to, request, tag, payload),
        }
    }

    /// Gives credits back in a message of their own.
    pub(crate) fn return_credits(&mut self, to: Rank) {
        let Some(endpoint) = self.endpoints[to].as_mut() else { return };
        let is_due = endpoint.credits.is_return_due() && endpoint.failure.is_none();
        if !is_due || endpoint.in_flight == SEND_QUEUE || self.vbufs.is_empty() {
            // A completed send tries again.
            self.vbufs_are_exhausted |= is_due && self.vbufs.is_empty();
            return;
        }
        self.stats.tx_credit += 1;
        self.post_vbuf(to, Header::new(Kind::Credit), &[]);
    }

    /// Sends a header and a payload that fits behind it. The caller has seen to a vbuf and a place in the queue.
    pub(crate) fn post_vbuf(&mut self, to: Rank, header: Header, payload: &[u8]) {
        let (Some(endpoint), Some(mut vbuf)) = (self.endpoints[to].as_mut(), self.vbufs.pop()) else {
            unreachable!("the caller has seen to a peer and a vbuf");
        };
        vbuf.set_len(msg::LEN + payload.len());
        Header { credits: endpoint.credits.take_owed(), ..header }.emit(&mut vbuf);
        vbuf[msg::LEN..].copy_from_slice(payload);
        endpoint.in_flight += 1;
        if let Err(refused) = self.engine.post_send(endpoint.qp, SendWr::send(VBUF, vbuf)) {
            // The queue pair has failed, and its completions will say so.
            endpoint.in_flight -= 1;
            self.vbufs.push(refused.request.into_buffer());
        }
    }

    /// A message came from rank `from`.
    pub(crate) fn on_eager(&mut self, from: Rank, tag: Tag, payload: &[u8]) {
        match self.matching.take_posted(from, tag) {
            Some(request) => {
                self.stats.rx_expected += 1;
                self.deliver_bytes(request, from, tag, payload);
            }
            None => self.keep_unexpected(from, tag, Body::Eager(payload.to_vec())),
        }
    }

    /// Copies a message into the receive that takes it.
    pub(crate) fn deliver_bytes(&mut self, request: Request, from: Rank, tag: Tag, payload: &[u8]) {
        let Some(Operation::Waiting { mut buffer }) = self.requests.replace(request, Operation::Queued { to: from })
        else {
            unreachable!("a posted receive waits");
        };
        let len = payload.len();
        let outcome = if len <= buffer.len() {
            buffer[..len].copy_from_slice(payload);
            Ok(Done { buffer, len, peer: from, tag })
        } else {
            Err(self.truncated(from, len as u64, buffer.len()))
        };
        self.requests.end(request, outcome);
    }

    pub(crate) fn keep_unexpected(&mut self, source: Rank, tag: Tag, body: Body) {
        self.stats.rx_unexpected += 1;
        self.matching.keep(Unexpected { source, tag, body });
        self.is_withholding |= self.matching.unexpected_bytes() > self.unexpected_limit;
    }

    /// A message to oneself never leaves the worker.
    pub(crate) fn send_to_self(&mut self, tag: Tag, payload: Buffer) -> Result<Request, CallError> {
        let (rank, len) = (self.rank, payload.len());
        if self.matching.unexpected_bytes() > self.unexpected_limit {
            return Err(CallError::TooMany(self.unexpected_limit));
        }
        self.on_eager(rank, tag, &payload);
        let request = self.requests.open(Operation::Queued { to: rank }).ok_or(CallError::TooMany(1 << 20))?;
        self.requests.end(request, Ok(Done { buffer: payload, len, peer: rank, tag }));
        Ok(request)
    }

    /// A receive that was just posted takes a message that waited.
    pub(crate) fn deliver(&mut self, request: Request, source: Rank, tag: Tag, body: Body) {
        match body {
            Body::Eager(bytes) => self.deliver_bytes(request, source, tag, &bytes),
            Body::Rendezvous(remote) => self.fetch(request, source, tag, remote),
        }
    }

    /// Whether a message that a receive like this would take has come: its sender, tag and length.
    pub fn probe(&mut self, source: impl Into<Source>, tag: impl Into<TagMatch>) -> Option<(Rank, Tag, usize)> {
        let probe = Posted { source: source.into(), tag: tag.into(), request: Request::from_wire(0) };
        self.matching.peek_unexpected(&probe)
    }
}
