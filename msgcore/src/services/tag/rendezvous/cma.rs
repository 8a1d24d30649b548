//! Cross Memory Attach: where sender and receiver are processes of one host, the kernel copies the payload from the one's memory to
//! the other's, and no packet carries it. All else is RGET's: the payload is registered and announced with its key, and the
//! receiver answers when it has been copied. What the kernel refuses is fetched by RDMA READ.
//!
//! Which processes may do so is found out when they connect (`endpoint/locality`).

use std::collections::VecDeque;

use roci_driver::link::Link;
use roci_driver::{Buffer, Rkey};

use roci_protocol::msg::Label;

use super::super::TagService;
use super::super::stored::RemotePayload;
use super::rget;
use crate::core::Core;
use crate::core::peer::{Peer, PeerId};
use crate::core::request::Request;

/// Bytes that are copied at once: some tens of microseconds, in which the engine does not poll.
const PART: usize = 256 << 10;

/// Messages that are being copied, which take turns.
#[derive(Debug, Default)]
pub(crate) struct ProcessCopies(VecDeque<ProcessCopy>);

/// A message that is copied from its sender's memory.
#[derive(Debug)]
pub(crate) struct ProcessCopy {
    from: PeerId,
    request: Request,
    /// Where the payload lies there.
    va: u64,
    /// Its key, should it have to be fetched.
    rkey: Rkey,
    /// Its view is as long as the message.
    buffer: Buffer,
    copied: usize,
}

impl ProcessCopies {
    /// Whether there is nothing to copy.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A message is to be copied, after a part of each of those before it.
    fn push(&mut self, copy: ProcessCopy) {
        self.0.push_back(copy);
    }

    /// Returns the message whose turn it is, and takes it out.
    pub(crate) fn next(&mut self) -> Option<ProcessCopy> {
        self.0.pop_front()
    }
}

impl ProcessCopy {
    /// Returns whose message it is.
    pub(crate) fn from(&self) -> PeerId {
        self.from
    }
}

impl TagService {
    /// Receiver: the payload is copied from the sender's memory, where it lies at `va`.
    pub(super) fn copy(
        &mut self,
        peer: &Peer,
        request: Request,
        label: Label,
        (remote, va): (RemotePayload, u64),
        mut buffer: Buffer,
    ) {
        self.note_fetching(peer, request, label, remote, &mut buffer);
        let (from, rkey) = (peer.id, remote.rkey);
        self.copies.push(ProcessCopy { from, request, va, rkey, buffer, copied: 0 });
    }

    /// Receiver: copies a part of a message, which has another turn unless that was the last part.
    pub(crate) fn copy_part<L: Link>(&mut self, core: &mut Core<L>, peer: &mut Peer, mut copy: ProcessCopy) {
        let ProcessCopy { va, copied, ref mut buffer, .. } = copy;
        let end = buffer.len().min(copied + PART);
        // A peer that names an address which no process has is refused by the kernel.
        let part_at = va.wrapping_add(copied as u64);
        let outcome = peer.cma.theirs.as_ref().map(|memory| memory.read(part_at, buffer, copied..end));
        match outcome {
            Some(Ok(())) if end < buffer.len() => {
                copy.copied = end;
                self.copies.push(copy);
            }
            Some(Ok(())) => {
                core.stats.rx_cma += 1;
                self.on_read(peer, copy.request, copy.buffer);
            }
            refused => {
                if let Some(Err(why)) = refused {
                    tracing::info!("{}: its messages are fetched by RDMA READ: {why}", peer.id);
                }
                core.stats.fallback_cma += 1;
                peer.cma.theirs = None;
                rget::read(peer, copy.request, copy.rkey, copy.buffer);
            }
        }
    }
}

/// Receiver: whether a peer's message can be copied into this buffer.
pub(super) fn can_copy(peer: &Peer, buffer: &Buffer) -> bool {
    peer.cma.theirs.is_some() && !buffer.is_list()
}
