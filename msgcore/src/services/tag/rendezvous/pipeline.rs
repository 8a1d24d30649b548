//! PIPELINE: the payload is written by RDMA WRITE in pieces, a few of which are granted at a time.
//!
//! Other messages of the same peer get between the pieces of a very long one. And memory that cannot be registered can
//! still be received into: the pieces go to staging memory that was registered at the start, are copied out, and make
//! room for others; so copying one piece overlaps with receiving the next. The sender needs nothing registered.

use std::collections::VecDeque;

use roci_driver::link::Link;
use roci_driver::{Access, ArenaError, Buffer, MemoryRegion};
use roci_protocol::msg::{Label, Message, RendezvousProtocol};

use super::super::TagService;
use super::super::operation::{Asked, PipeIn, PipeOut, PipeTarget, TagOperation};
use super::super::stored::RemotePayload;
use super::ClearToSend;
use crate::core::Core;
use crate::core::breach::Breach;
use crate::core::completion::Done;
use crate::core::peer::{Peer, PeerId};
use crate::core::request::Request;
use crate::core::transfer::{Direction, Transfer};

/// Pieces but for the last are multiples of this, as the knob has it: a peer cannot ask for a message in crumbs.
const GRAIN: usize = 4096;

/// Memory that was registered at the start, for pieces on their way to memory that is not.
#[derive(Debug)]
pub(crate) struct Staging {
    /// Bytes of a piece, and of a slot.
    chunk: usize,
    /// Pieces of one message that may be on their way.
    depth: usize,
    slots: Vec<MemoryRegion>,
    free: Vec<usize>,
    /// Receives that wait for a slot.
    waiting: VecDeque<Request>,
}

impl Staging {
    /// No slots yet, for pieces of `chunk` bytes of which `depth` may be on their way.
    pub(crate) fn new(chunk: usize, depth: usize) -> Self {
        Self { chunk, depth, slots: Vec::new(), free: Vec::new(), waiting: VecDeque::new() }
    }
}

impl PipeOut {
    /// Whether so many of the bytes that are left may be granted at once.
    pub(crate) fn admits(granted: usize, left: usize) -> bool {
        granted == left || (granted > 0 && granted < left && granted.is_multiple_of(GRAIN))
    }
}

impl TagService {
    /// Registers staging memory, as far as keys go.
    pub(crate) fn provide_staging<L: Link>(&mut self, core: &mut Core<L>) -> Result<(), ArenaError> {
        for index in 0..self.staging.depth {
            let buffer = core.engine.buffer(self.staging.chunk)?;
            let Ok(region) = core.engine.register(core.pd, buffer, Access::REMOTE_WRITE) else { break };
            self.staging.slots.push(region);
            self.staging.free.push(index);
        }
        Ok(())
    }

    /// Gives staging memory back. No receive uses it.
    pub(crate) fn close_staging<L: Link>(&mut self, core: &mut Core<L>) {
        debug_assert_eq!(self.staging.free.len(), self.staging.slots.len(), "every receive has ended");
        self.staging.free.clear();
        for region in self.staging.slots.drain(..) {
            drop(core.engine.deregister(region));
        }
    }

    /// Receiver: opens the buffer, or stages; and grants the first pieces.
    pub(super) fn pipe<L: Link>(
        &mut self,
        core: &mut Core<L>,
        peer: &mut Peer,
        request: Request,
        label: Label,
        remote: RemotePayload,
        buffer: Buffer,
    ) {
        let target = match core.register(buffer, Access::REMOTE_WRITE) {
            Ok(region) => PipeTarget::Direct(region),
            Err(buffer) if self.staging.slots.is_empty() => {
                core.stats.fallback_registration += 1;
                return self.grant_fragments(peer, request, label, remote, buffer);
            }
            Err(buffer) => {
                core.stats.rx_staged += 1;
                PipeTarget::Staged { buffer, slots: VecDeque::new() }
            }
        };
        let len = remote.len as usize;
        let pipe = PipeIn { from: peer.id, label, id: remote.id, len, granted: 0, arrived: 0, target };
        self.requests.replace(request, TagOperation::Piped(Box::new(pipe)));
        self.grant_pieces(peer, request);
    }

    /// Receiver: grants as many pieces as may be on their way.
    fn grant_pieces(&mut self, peer: &mut Peer, request: Request) {
        let Staging { chunk, depth, .. } = self.staging;
        loop {
            let Some(TagOperation::Piped(pipe)) = self.requests.get_mut(request) else { return };
            debug_assert_eq!(pipe.from, peer.id, "pieces are granted to their sender");
            let on_the_way = (pipe.granted - pipe.arrived).div_ceil(chunk);
            if pipe.granted == pipe.len || on_the_way >= depth {
                return;
            }
            let len = chunk.min(pipe.len - pipe.granted);
            let (region, va) = match &mut pipe.target {
                PipeTarget::Direct(region) => (*region, pipe.granted as u64),
                PipeTarget::Staged { slots, .. } => {
                    let Some(slot) = self.staging.free.pop() else {
                        if !self.staging.waiting.contains(&request) {
                            self.staging.waiting.push_back(request);
                        }
                        return;
                    };
                    slots.push_back(slot);
                    (self.staging.slots[slot], 0)
                }
            };
            pipe.granted += len;
            let (id, reply, rkey) = (pipe.id, request.to_wire(), region.rkey());
            peer.queue_control(Message::ClearToSend {
                id,
                reply,
                protocol: RendezvousProtocol::Pipeline,
                rkey,
                va,
                len: len as u32,
            });
        }
    }

    /// Receiver: a piece has been written.
    pub(super) fn on_piece<L: Link>(
        &mut self,
        core: &mut Core<L>,
        peer: &mut Peer,
        request: Request,
        len: u64,
    ) -> Result<(), Breach> {
        let chunk = self.staging.chunk;
        let Some(TagOperation::Piped(pipe)) = self.requests.get_mut(request) else {
            unreachable!("the caller has looked")
        };
        let granted = chunk.min(pipe.len - pipe.arrived).min(pipe.granted - pipe.arrived);
        if granted == 0 || len != granted as u64 {
            return Err(Breach::Piece { len, granted });
        }
        let place = pipe.arrived..pipe.arrived + granted;
        pipe.arrived += granted;
        let is_complete = pipe.arrived == pipe.len;
        if let PipeTarget::Staged { buffer, slots } = &mut pipe.target
            && let Some(slot) = slots.pop_front()
        {
            let copied = core.engine.copy_region(core.pd, self.staging.slots[slot], 0, (buffer, place));
            debug_assert!(copied.is_some(), "a piece is no longer than a slot");
            self.free_slot(core, slot);
        }
        if is_complete {
            self.end_pipe(core, request);
        } else {
            self.grant_pieces(peer, request);
        }
        self.serve_staging(core);
        Ok(())
    }

    /// A slot is free, under another key: a peer that has written to it must not write to its next user's message.
    fn free_slot<L: Link>(&mut self, core: &mut Core<L>, slot: usize) {
        let buffer = core.engine.deregister(self.staging.slots[slot]).expect("staging owns its regions");
        let region = core.engine.register(core.pd, buffer, Access::REMOTE_WRITE);
        self.staging.slots[slot] = region.unwrap_or_else(|_| unreachable!("its old key is free"));
        self.staging.free.push(slot);
    }

    fn end_pipe<L: Link>(&mut self, core: &mut Core<L>, request: Request) {
        let Some(TagOperation::Piped(pipe)) = self.requests.replace(request, TagOperation::Queued { to: self.oneself })
        else {
            unreachable!("the caller has looked");
        };
        let PipeIn { from, label, len, target, .. } = *pipe;
        let buffer = match target {
            PipeTarget::Direct(region) => core.deregister(region),
            PipeTarget::Staged { buffer, .. } => buffer,
        };
        self.requests.end(request, Ok(Done::new(buffer, len, from, label)));
    }

    /// Receiver: slots are free; as many receives as wait for one go on, when no peer is borrowed.
    pub(crate) fn serve_staging<L: Link>(&mut self, core: &mut Core<L>) {
        let count = self.staging.free.len().min(self.staging.waiting.len());
        for request in self.staging.waiting.drain(..count) {
            core.ready.defer(request.to_wire());
        }
    }

    /// Returns the peer whose message a receive goes on with that has waited for a slot.
    pub(crate) fn resumes(&self, request: Request) -> Option<PeerId> {
        match self.requests.get(request) {
            Some(TagOperation::Piped(pipe)) => Some(pipe.from),
            _ => None,
        }
    }

    /// Receiver: goes on with a message whose receive has waited for a slot.
    pub(crate) fn resume(&mut self, peer: &mut Peer, request: Request) {
        self.grant_pieces(peer, request);
    }

    /// Receiver: gives up a message whose sender is gone. A slot that it may still write to was never another's: its
    /// queue pair has failed.
    pub(crate) fn abandon_pipe<L: Link>(&mut self, core: &mut Core<L>, pipe: PipeIn) {
        match pipe.target {
            PipeTarget::Direct(region) => drop(core.deregister(region)),
            PipeTarget::Staged { slots, .. } => {
                for slot in slots {
                    self.free_slot(core, slot);
                }
            }
        }
        self.serve_staging(core);
    }

    /// Sender: the first clear-to-send has come.
    pub(super) fn start_writing<L: Link>(&mut self, core: &mut Core<L>, request: Request) {
        let placeholder = TagOperation::Queued { to: self.oneself };
        let Some(TagOperation::Asked(Asked { to, label, payload, protocol })) =
            self.requests.replace(request, placeholder)
        else {
            unreachable!("the caller has looked");
        };
        core.stats.goes(protocol);
        self.queues[to.slot()].note_announced_over();
        let out = PipeOut { to, label, written: None, in_flight: 0, rest: Some(payload) };
        self.requests.replace(request, TagOperation::Writing(Box::new(out)));
    }

    /// Sender: writes what a clear-to-send asks for; `None` where it asks for what there is not.
    pub(super) fn write_piece(&mut self, peer: &mut Peer, request: Request, cts: ClearToSend) -> Option<()> {
        let ClearToSend { reply, rkey, va, len, .. } = cts;
        let Some(TagOperation::Writing(out)) = self.requests.get_mut(request) else { return None };
        let mut piece = out.rest.take()?;
        if !PipeOut::admits(len, piece.len()) {
            out.rest = Some(piece);
            return None;
        }
        if len < piece.len() {
            out.rest = Some(piece.split_off(len));
        }
        out.in_flight += 1;
        let then = Some(Message::Written { reply, len: len as u64 });
        let (operation, direction) = (request.to_wire(), Direction::Write { then });
        peer.tx.transfers.push(Transfer { operation, buffer: piece, rkey, va, direction, by_message: false });
        Some(())
    }

    /// Sender: a piece has been written.
    pub(crate) fn on_write_done(&mut self, request: Request, buffer: Buffer) {
        let Some(TagOperation::Writing(out)) = self.requests.get_mut(request) else { return };
        out.in_flight -= 1;
        // Pieces are written in order, so they grow together again.
        let whole = match out.written.take() {
            None => buffer,
            Some(mut written) => {
                written.join(buffer).unwrap_or_else(|_| unreachable!("pieces of one buffer, in order"));
                written
            }
        };
        if out.in_flight > 0 || out.rest.is_some() {
            out.written = Some(whole);
            return;
        }
        let (to, label, len) = (out.to, out.label, whole.len());
        self.requests.end(request, Ok(Done::new(whole, len, to, label)));
    }
}
