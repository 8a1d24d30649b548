//! The environment of one queue pair: its link, the memory of its domain, its completion queue.
//!
//! Here it is decided, for each packet, whether its payload is sent zero-copy: it is copied where no ICRC is agreed, where it is
//! shorter than the link's threshold, where the device cannot read its memory, where others may write it meanwhile, and where it
//! lies in two pieces of a list.

use std::ops::Range;

use roci_protocol::rc::{
    AtomicOperation, Denied, Env, Held, Operation, Payload, RcCompletion, RecvRequest, SendOp, TxError,
};
use roci_protocol::wire::{Flow, HeaderWords, Headers, Opcode, Packet};
use roci_protocol::{Access, Rkey};

use super::held::HeldPackets;
use super::sink::{NoSink, Sink};
use crate::cq::Queue;
use crate::event::{Event, Events};
use crate::handles::{CompletionQueue, QueuePair};
use crate::link::{Full, Link};
use crate::mem::{Asker, Binding, Buffer, KeyTable, PdId, fetch_ahead};
use crate::srq::SharedQueue;

/// From so many bytes on a payload takes longer to be fetched than to be asked for.
const WORTH_FETCHING: usize = 1024;

/// The environment of a connected queue pair.
pub(super) struct EngineEnv<'a, L, S = NoSink> {
    pub(super) link: &'a mut L,
    pub(super) flow: &'a mut Flow,
    pub(super) keys: &'a mut KeyTable,
    pub(super) completions: NamedQueue<'a>,
    pub(super) stock: Option<&'a mut SharedQueue>,
    pub(super) sink: S,
    pub(super) events: &'a mut Events,
    pub(super) qp: QueuePair,
    pub(super) pd: PdId,
    pub(super) held: &'a mut HeldPackets,
    /// The packet that the queue pair looks at, from the BTH to the ICRC; empty where it looks at none that may be kept.
    pub(super) current: &'a [u8],
    /// DSCP and ECN of congestion notifications.
    pub(super) cnp_class: u8,
}

/// A completion queue, and the name that its events give it.
pub(super) struct NamedQueue<'a> {
    pub(super) queue: &'a mut Queue,
    pub(super) cq: CompletionQueue,
}

impl NamedQueue<'_> {
    /// Whether a place can be set aside.
    #[inline]
    pub(super) fn has_place(&self) -> bool {
        self.queue.has_place()
    }

    /// Sets a place aside for a work request's end; `false` where there is none.
    #[inline]
    pub(super) fn reserve(&mut self) -> bool {
        self.queue.reserve()
    }

    /// Queues the end of a work request, and the event that was asked for.
    #[inline(always)]
    fn push(&mut self, qp: QueuePair, completion: RcCompletion<Buffer>, events: &mut Events) {
        if self.queue.push(qp, None, completion) && events.push(Event::Completion(self.cq)) {
            self.queue.disarm();
        }
    }
}

impl<L, S> EngineEnv<'_, L, S> {
    /// The peer, as the key table knows it.
    #[inline]
    fn peer(&self) -> Asker {
        Asker { pd: self.pd, qpn: Some(self.qp.0) }
    }
}

impl<L: Link, S: Sink> Env for EngineEnv<'_, L, S> {
    type Buffer = Buffer;

    #[inline]
    fn transmit(&mut self, headers: &Headers, payload: Payload<'_, Buffer>) -> Result<(), TxError> {
        let (payload, range) = match payload {
            Payload::None => (&[][..], None),
            Payload::Bytes(bytes) => (bytes, None),
            Payload::Local { buffer, offset, len } => match buffer.contiguous(offset, len) {
                Some((piece, range)) => (payload_at(piece, range), piece.attached_range()),
                None => return transmit_copy(self.link, self.flow, headers, (buffer, offset..offset + len)),
            },
            Payload::Remote { rkey, va, len } => {
                let peer = Asker { pd: self.pd, qpn: Some(self.qp.0) };
                let found = self.keys.find(peer, rkey, va, len as u64, Access::REMOTE_READ);
                let (buffer, range) = found.map_err(|Denied| TxError::Denied)?;
                match buffer.contiguous(range.start, range.len()) {
                    Some((piece, range)) => (payload_at(piece, range), piece.attached_range()),
                    None => return transmit_copy(self.link, self.flow, headers, (buffer, range)),
                }
            }
        };
        if headers.bth.opcode == Opcode::Cnp {
            // In the class of the data it would wait in the very queue whose congestion it reports.
            return transmit(self.link, &mut self.flow.with_traffic_class(self.cnp_class), headers, payload);
        }
        let flow = &mut *self.flow;
        // Memory that may change meanwhile is sent without a copy, because the ICRC reveals a change.
        if flow.is_sealed() && self.link.is_zero_copy(payload, range) {
            let (head, tail) = flow.lens_around(headers, payload.len());
            let sent = self.link.transmit_around(head, payload, range, tail, |head, tail| {
                flow.emit_around(head, tail, headers, payload);
            });
            return sent.map_err(|Full| TxError::Busy);
        }
        transmit(self.link, flow, headers, payload)
    }

    #[inline(always)]
    fn transmit_words(&mut self, headers: &HeaderWords, payload: Payload<'_, Buffer>) -> Result<(), TxError> {
        let bytes = match &payload {
            Payload::None => &[][..],
            Payload::Bytes(bytes) => bytes,
            Payload::Local { buffer, offset, len } if buffer.has_view() => &buffer[*offset..*offset + *len],
            Payload::Local { .. } | Payload::Remote { .. } => return self.transmit(&headers.to_headers(), payload),
        };
        if let Payload::Local { buffer, .. } = payload
            && self.flow.is_sealed()
            && self.link.is_zero_copy(bytes, buffer.attached_range())
        {
            return self.transmit(&headers.to_headers(), payload);
        }
        let flow = &mut *self.flow;
        let sent = self.link.transmit(flow.frame_len_of_words(headers, bytes.len()), |frame| {
            flow.emit_words(frame, headers, bytes.len(), |payload| payload.copy_from_slice(bytes));
        });
        sent.map_err(|Full| TxError::Busy)
    }

    #[inline]
    fn place(&mut self, buffer: &mut Buffer, offset: usize, bytes: &[u8]) {
        buffer.copy_in(offset, bytes);
    }

    #[inline]
    fn offer(&mut self, wr_id: u64, message: &[u8]) -> bool {
        // A message must not overtake one that waits in the completion queue.
        self.completions.queue.offers_messages() && self.sink.take(wr_id, message)
    }

    #[inline]
    fn authorize(&self, rkey: Rkey, va: u64, len: u64, access: Access) -> Result<(), Denied> {
        self.keys.authorize(self.peer(), rkey, va, len, access)
    }

    #[inline]
    fn place_remote(&mut self, rkey: Rkey, va: u64, bytes: &[u8]) -> Result<(), Denied> {
        let found = self.keys.find_mut(self.peer(), rkey, va, bytes.len() as u64, Access::REMOTE_WRITE);
        let (buffer, range) = found?;
        buffer.copy_in(range.start, bytes);
        Ok(())
    }

    #[inline]
    fn atomic(&mut self, rkey: Rkey, va: u64, operation: AtomicOperation) -> Result<u64, Denied> {
        let (buffer, range) = self.keys.find_mut(self.peer(), rkey, va, 8, Access::REMOTE_ATOMIC)?;
        buffer.update(range.start, |original| operation.apply(original)).ok_or(Denied)
    }

    fn invalidate(&mut self, rkey: Rkey) -> Result<(), Denied> {
        self.keys.invalidate(self.qp.0, rkey)
    }

    fn execute_local(&mut self, operation: SendOp) -> Result<(), Denied> {
        match operation {
            SendOp::BindWindow { window, region, va, len, access } => {
                self.keys.bind(self.pd, window, Binding { qpn: self.qp.0, region, va, len, access })
            }
            SendOp::LocalInvalidate { rkey } => self.keys.invalidate(self.qp.0, rkey),
            _ => Err(Denied),
        }
    }

    #[inline]
    fn take_shared_receive(&mut self) -> Option<RecvRequest<Buffer>> {
        self.stock.as_mut()?.take()
    }

    fn return_shared_receive(&mut self, receive: RecvRequest<Buffer>) {
        match &mut self.stock {
            Some(stock) => stock.put_back(receive),
            None => unreachable!("it was taken from there"),
        }
    }

    #[cold]
    fn hold(&mut self, held: Held) -> bool {
        !self.current.is_empty() && self.held.keep(self.qp.0, held, self.current)
    }

    fn holds_same(&self, held: Held, packet: &Packet<'_>) -> bool {
        let kept = self.held.get(self.qp.0, held).and_then(|bytes| Packet::parse(bytes).ok());
        kept.is_some_and(|kept| held.agree(&kept, packet))
    }

    fn release(&mut self, held: Held) {
        self.held.release(self.qp.0, held);
    }

    #[inline]
    fn take_back(&mut self, wr_id: u64, operation: Operation, memory: Buffer) -> Option<Buffer> {
        // Ends keep their order: no other may wait to be polled for.
        if !self.completions.queue.offers_memory() {
            return Some(memory);
        }
        let left = self.sink.take_back(wr_id, operation, memory);
        if left.is_none() {
            self.completions.queue.release();
        }
        left
    }

    #[inline(always)]
    fn complete(&mut self, completion: RcCompletion<Buffer>) {
        self.completions.push(self.qp, completion, self.events);
    }
}

/// The payload at this place of a message. What stands behind it is the next packet's, and is fetched meanwhile.
#[inline]
fn payload_at(message: &[u8], range: Range<usize>) -> &[u8] {
    if range.len() >= WORTH_FETCHING {
        let next = range.end..(range.end + range.len()).min(message.len());
        fetch_ahead(&message[next]);
    }
    &message[range]
}

/// Sends a frame with a copy of its payload.
#[inline]
fn transmit<L: Link>(link: &mut L, flow: &mut Flow, headers: &Headers, payload: &[u8]) -> Result<(), TxError> {
    let sent = link.transmit(flow.frame_len(headers, payload.len()), |frame| {
        flow.emit(frame, headers, payload.len(), |bytes| bytes.copy_from_slice(payload));
    });
    sent.map_err(|Full| TxError::Busy)
}

/// Sends a frame with a copy of bytes that others may write meanwhile, or that lie in several pieces.
#[cold]
fn transmit_copy<L: Link>(
    link: &mut L,
    flow: &mut Flow,
    headers: &Headers,
    (buffer, range): (&Buffer, Range<usize>),
) -> Result<(), TxError> {
    let sent = link.transmit(flow.frame_len(headers, range.len()), |frame| {
        flow.emit(frame, headers, range.len(), |bytes| buffer.copy_out(range.start, bytes));
    });
    sent.map_err(|Full| TxError::Busy)
}
