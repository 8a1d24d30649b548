//! RGET: the announcement carries a key to the payload; the receiver fetches it by RDMA READ straight into the
//! application's buffer, and says so.
//!
//! The payload is registered for this one transfer, with a key that dies with it; its buffer belongs to the operation
//! meanwhile, so nobody writes what the peer reads.

use roci_driver::link::Link;
use roci_driver::{Access, Buffer, MemoryRegion, Rkey};
use roci_protocol::msg::{Label, Way};

use super::{Asked, Remote};
use crate::Rank;
use crate::core::peer::{Direction, Transfer};
use crate::services::tag::request::{Done, Operation, Request};
use crate::worker::Worker;

/// Sender: the payload waits to be fetched.
#[derive(Debug)]
pub(crate) struct Exposed {
    pub(crate) to: Rank,
    pub(crate) label: Label,
    pub(crate) region: MemoryRegion,
}

/// Receiver: the payload is being fetched.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fetching {
    pub(crate) from: Rank,
    pub(crate) label: Label,
    pub(crate) id: u64,
    /// The receive's buffer is so long; the READ fills a part of it.
    pub(crate) room: usize,
}

impl<L: Link> Worker<L> {
    /// Sender: opens the payload to the peer, or falls back to R3.
    pub(super) fn expose(&mut self, to: Rank, label: Label, payload: Buffer) -> (Operation, Way, Rkey) {
        match self.register(payload, Access::REMOTE_READ) {
            Ok(region) => (Operation::Exposed(Exposed { to, label, region }), Way::Rget, region.rkey()),
            Err(payload) => {
                self.stats.fallback_registration += 1;
                let way = Way::R3;
                (Operation::Asked(Asked { to, label, payload, way }), way, Rkey(0))
            }
        }
    }

    /// Receiver: fetches the payload.
    pub(super) fn fetch(&mut self, request: Request, from: Rank, label: Label, remote: Remote, mut buffer: Buffer) {
        let Remote { rkey, id, len, .. } = remote;
        let room = buffer.len();
        buffer.set_len(len as usize);
        self.requests.replace(request, Operation::Fetching(Fetching { from, label, id, room }));
        if let Some(endpoint) = self.endpoint(from) {
            endpoint.transfers.push_back(Transfer { request, buffer, rkey, va: 0, direction: Direction::Read });
        }
        self.advance(from);
    }

    /// Receiver: the payload has been fetched.
    pub(crate) fn on_read(&mut self, request: Request, mut buffer: Buffer) {
        let Some(&Operation::Fetching(Fetching { from, label, id, room })) = self.requests.get(request) else { return };
        let len = buffer.len();
        buffer.set_len(room);
        self.requests.end(request, Ok(Done::new(buffer, len, from, label)));
        self.finish(from, id);
    }
}
