//! PIPELINE: the payload is written by RDMA WRITE in pieces, a few of which are granted at a time.
//!
//! Other messages of the same peer get between the pieces of a very long one. And memory that cannot be registered can
//! still be received into: the pieces go to staging memory that was registered at the start, are copied out, and make
//! room for others; so copying one piece overlaps with receiving the next. The sender needs nothing registered.

use std::collections::VecDeque;

use roci_driver::link::Link;
use roci_driver::{Access, ArenaError, Buffer, MemoryRegion};
use roci_protocol::msg::{Label, Message, Way};

use super::{Asked, Grant, Remote};
use crate::Rank;
use crate::core::peer::{Direction, Transfer};
use crate::services::tag::request::{Done, Operation, Request};
use crate::worker::Worker;

/// Pieces but for the last are multiples of this, as the knob has it: a peer cannot ask for a message in crumbs.
const GRAIN: usize = 4096;

/// Sender: pieces of a payload.
#[derive(Debug)]
pub(crate) struct PipeOut {
    pub(crate) to: Rank,
    label: Label,
    /// What has been written, in one piece again.
    written: Option<Buffer>,
    /// Pieces being written.
    in_flight: usize,
    /// What has not been granted yet.
    rest: Option<Buffer>,
}

/// Receiver: a message that comes in pieces.
#[derive(Debug)]
pub(crate) struct PipeIn {
    pub(crate) from: Rank,
    label: Label,
    /// The sender's name for the operation.
    id: u64,
    len: usize,
    granted: usize,
    arrived: usize,
    target: Target,
}

/// Where the pieces go.
#[derive(Debug)]
enum Target {
    /// Straight to the application's buffer.
    Direct(MemoryRegion),
    /// To staging memory, in this order, and from there to the buffer.
    Staged { buffer: Buffer, slots: VecDeque<usize> },
}

/// Memory that was registered at the start, for pieces on their way to memory that is not.
#[derive(Debug, Default)]
pub(crate) struct Staging {
    slots: Vec<MemoryRegion>,
    free: Vec<usize>,
    /// Receives that wait for a slot.
    waiting: VecDeque<Request>,
}

impl PipeOut {
    /// Whether so many of the bytes that are left may be granted at once.
    pub(crate) fn admits(granted: usize, left: usize) -> bool {
        granted == left || (granted > 0 && granted < left && granted.is_multiple_of(GRAIN))
    }
}

impl<L: Link> Worker<L> {
    /// Registers staging memory, as far as keys go.
    pub(crate) fn provide_staging(&mut self) -> Result<(), ArenaError> {
        for index in 0..self.pipeline_depth {
            let buffer = self.engine.buffer(self.pipeline_chunk)?;
            let Ok(region) = self.engine.register(self.pd, buffer, Access::REMOTE_WRITE) else { break };
            self.staging.slots.push(region);
            self.staging.free.push(index);
        }
        Ok(())
    }

    /// Receiver: opens the buffer, or stages; and grants the first pieces.
    pub(super) fn pipe(&mut self, request: Request, from: Rank, label: Label, remote: Remote, buffer: Buffer) {
        let target = match self.register(buffer, Access::REMOTE_WRITE) {
            Ok(region) => Target::Direct(region),
            Err(buffer) if self.staging.slots.is_empty() => {
                self.stats.fallback_registration += 1;
                return self.grant_stream(request, from, label, remote, buffer);
            }
            Err(buffer) => {
                self.stats.rx_staged += 1;
                Target::Staged { buffer, slots: VecDeque::new() }
            }
        };
        let len = remote.len as usize;
        let pipe = PipeIn { from, label, id: remote.id, len, granted: 0, arrived: 0, target };
        self.requests.replace(request, Operation::Piped(Box::new(pipe)));
        self.grant_pieces(request);
        self.advance(from);
    }

    /// Receiver: grants as many pieces as may be on their way.
    fn grant_pieces(&mut self, request: Request) {
        let (chunk, depth) = (self.pipeline_chunk, self.pipeline_depth);
        loop {
            let Some(Operation::Piped(pipe)) = self.requests.get_mut(request) else { return };
            let on_the_way = (pipe.granted - pipe.arrived).div_ceil(chunk);
            if pipe.granted == pipe.len || on_the_way >= depth {
                return;
            }
            let len = chunk.min(pipe.len - pipe.granted);
            let (region, va) = match &mut pipe.target {
                Target::Direct(region) => (*region, pipe.granted as u64),
                Target::Staged { slots, .. } => {
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
            let (from, id, reply, rkey) = (pipe.from, pipe.id, request.to_wire(), region.rkey());
            if let Some(endpoint) = self.endpoint(from) {
                endpoint.say(Message::Grant { id, reply, way: Way::Pipeline, rkey, va, len: len as u32 });
            }
        }
    }

    /// Receiver: a piece has been written.
    pub(super) fn on_piece(&mut self, request: Request, len: u64) -> Result<(), String> {
        let chunk = self.pipeline_chunk;
        let Some(Operation::Piped(pipe)) = self.requests.get_mut(request) else {
            unreachable!("the caller has looked")
        };
        let expected = chunk.min(pipe.len - pipe.arrived).min(pipe.granted - pipe.arrived);
        if expected == 0 || len != expected as u64 {
            return Err(format!("it wrote a piece of {len} bytes where {expected} were granted"));
        }
        let place = pipe.arrived..pipe.arrived + expected;
        pipe.arrived += expected;
        let (from, is_complete) = (pipe.from, pipe.arrived == pipe.len);
        if let Target::Staged { buffer, slots } = &mut pipe.target
            && let Some(slot) = slots.pop_front()
        {
            let copied = self.engine.read_region(self.pd, self.staging.slots[slot], 0, &mut buffer[place]);
            debug_assert!(copied.is_some(), "a piece is no longer than a slot");
            self.free_slot(slot);
        }
        if is_complete {
            self.end_pipe(request);
        } else {
            self.grant_pieces(request);
        }
        self.advance(from);
        self.serve_staging();
        Ok(())
    }

    /// A slot is free, under another key: whoever has written to it must not write to its next user's message.
    fn free_slot(&mut self, slot: usize) {
        let buffer = self.engine.deregister(self.staging.slots[slot]).expect("staging owns its regions");
        let region = self.engine.register(self.pd, buffer, Access::REMOTE_WRITE);
        self.staging.slots[slot] = region.unwrap_or_else(|_| unreachable!("its old key is free"));
        self.staging.free.push(slot);
    }

    fn end_pipe(&mut self, request: Request) {
        let whoever = Operation::Queued { to: self.rank };
        let Some(Operation::Piped(pipe)) = self.requests.replace(request, whoever) else {
            unreachable!("the caller has looked");
        };
        let PipeIn { from, label, len, target, .. } = *pipe;
        let buffer = match target {
            Target::Direct(region) => self.deregister(region),
            Target::Staged { buffer, .. } => buffer,
        };
        self.requests.end(request, Ok(Done::new(buffer, len, from, label)));
    }

    /// Receiver: slots are free; who waited for one goes on.
    fn serve_staging(&mut self) {
        while !self.staging.free.is_empty() {
            let Some(request) = self.staging.waiting.pop_front() else { return };
            self.grant_pieces(request);
            if let Some(Operation::Piped(pipe)) = self.requests.get(request) {
                let from = pipe.from;
                self.advance(from);
            }
        }
    }

    /// Receiver: gives up a message whose sender is gone. A slot that it may still write to was never another's: its
    /// queue pair has failed.
    pub(crate) fn abandon_pipe(&mut self, pipe: PipeIn) {
        match pipe.target {
            Target::Direct(region) => drop(self.deregister(region)),
            Target::Staged { slots, .. } => {
                for slot in slots {
                    self.free_slot(slot);
                }
            }
        }
        self.serve_staging();
    }

    /// Sender: the first grant has come.
    pub(super) fn start_writing(&mut self, request: Request) {
        let whoever = Operation::Queued { to: self.rank };
        let Some(Operation::Asked(Asked { to, label, payload, way })) = self.requests.replace(request, whoever) else {
            unreachable!("the caller has looked");
        };
        self.stats.goes(way);
        let out = PipeOut { to, label, written: None, in_flight: 0, rest: Some(payload) };
        self.requests.replace(request, Operation::Writing(Box::new(out)));
    }

    /// Sender: writes what a grant asks for; `None` where it asks for what there is not.
    pub(super) fn write_piece(&mut self, request: Request, grant: Grant) -> Option<()> {
        let Grant { reply, rkey, va, len, .. } = grant;
        let Some(Operation::Writing(out)) = self.requests.get_mut(request) else { return None };
        let mut piece = out.rest.take()?;
        if !PipeOut::admits(len, piece.len()) {
            out.rest = Some(piece);
            return None;
        }
        if len < piece.len() {
            out.rest = Some(piece.split_off(len));
        }
        out.in_flight += 1;
        let to = out.to;
        let direction = Direction::Write { reply };
        self.endpoint(to)?.transfers.push_back(Transfer { request, buffer: piece, rkey, va, direction });
        Some(())
    }

    /// Sender: a piece has been written.
    pub(crate) fn on_write_done(&mut self, request: Request, buffer: Buffer) {
        let Some(Operation::Writing(out)) = self.requests.get_mut(request) else { return };
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
