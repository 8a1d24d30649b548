//! The eager protocol: a message leaves at once in a vbuf, or in a series of them, and is kept at the receiver until
//! somebody asks for it.
//!
//! A message in a single vbuf is never copied before it is matched: the vbuf it came in is kept, or lent to the
//! application, and another one takes its place among the receives.

use roci_driver::Buffer;
use roci_driver::link::Link;
use roci_protocol::msg::{Header, Label, Message, Mode};

use crate::core::peer::Outgoing;
use crate::core::rx::Outcome;
use crate::services::tag::matching;
use crate::services::tag::rendezvous::{Filling, Remote};
use crate::services::tag::request::{Done, OpError, Operation, Request, Truncated};
use crate::worker::Worker;
use crate::{Context, Envelope, Rank, Tag};

/// What is there of a message that nobody has asked for yet.
#[derive(Debug)]
pub(crate) enum Body {
    /// All of it, in the vbuf of a lane.
    Whole { id: u64, mode: Mode, lane: usize, vbuf: Buffer },
    /// Parts, which are kept elsewhere while more of them come.
    Series { id: u64, mode: Mode, len: usize },
    /// A message of this rank to itself: a copy, or nothing where the send still has the payload.
    Local { request: Request, len: usize, copy: Option<Buffer> },
    /// Its description: the payload waits at the sender.
    Remote(Remote),
}

/// An eager message whose vbufs have not all come.
#[derive(Debug)]
pub(crate) struct Series {
    len: usize,
    arrived: usize,
    to: Destination,
}

/// Where a series goes.
#[derive(Debug)]
enum Destination {
    /// Into a receive.
    Receive(Request),
    /// It is kept until somebody asks, in vbufs of this lane.
    Kept { lane: usize, vbufs: Vec<Buffer> },
    /// Nobody wants it any more.
    Nowhere,
}

/// What an unexpected message takes beside its vbufs, so that empty ones are bounded too.
pub(crate) const OVERHEAD: usize = 128;

impl Series {
    /// Whether all of it has come.
    pub(crate) fn is_complete(&self) -> bool {
        self.arrived == self.len
    }
}

impl Body {
    /// The message's length.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Whole { vbuf, .. } => vbuf.len(),
            Self::Series { len, .. } | Self::Local { len, .. } => *len,
            Self::Remote(remote) => remote.len as usize,
        }
    }

    /// The sender's name for the operation.
    pub(crate) fn id(&self) -> u64 {
        match self {
            Self::Whole { id, .. } | Self::Series { id, .. } => *id,
            Self::Local { request, .. } => request.to_wire(),
            Self::Remote(remote) => remote.id,
        }
    }
}

impl<L: Link> Worker<L> {
    /// Sender: copies a message into vbufs. There is room for all of them.
    #[inline]
    pub(crate) fn send_eager(&mut self, to: Rank, lane: usize, outgoing: Outgoing) {
        let Outgoing { request, label, mode, payload } = outgoing;
        let sequence = self.next_sequence(to);
        let (id, len) = (request.to_wire(), payload.len());
        let room = self.endpoint(to).map_or(len, |endpoint| endpoint.lanes[lane].payload);
        let first = len.min(room);
        let message = Message::Eager { label, len: len as u64, id, mode };
        self.post_vbuf(to, lane, Header { sequence, ..Header::new(message) }, &payload[..first]);
        for offset in (first..len).step_by(room) {
            let end = len.min(offset + room);
            let message = Message::Fragment { offset: offset as u64, id };
            self.post_vbuf(to, lane, Header::new(message), &payload[offset..end]);
        }
        let done = Done::new(payload, len, to, label);
        match mode {
            Mode::Synchronous => drop(self.requests.replace(request, Operation::Unmatched { to, done })),
            Mode::Standard | Mode::Ready => self.requests.end_eager(request, done),
        }
    }

    /// Receiver: a message came, or the beginning of one.
    pub(crate) fn on_eager(
        &mut self,
        from: Rank,
        lane: usize,
        message: Message,
        vbuf: Buffer,
    ) -> Result<Outcome, String> {
        let Message::Eager { label, len, id, mode } = message else { unreachable!("the caller has looked") };
        let len = acceptable(len)?;
        let is_whole = vbuf.len() == len;
        if !is_whole {
            self.begin_series(from, lane, id, vbuf.len())?;
        }
        match self.matching.take_posted(&matching::Label::new(from, label)) {
            Some(request) => {
                self.stats.rx_expected += 1;
                self.acknowledge_match(from, id, mode);
                if is_whole {
                    return Ok(Outcome::Used(self.deliver(request, from, label, lane, vbuf)));
                }
                let to = self.begin_filling(request, from, label, len, &vbuf);
                self.series.insert((from, id), Series { len, arrived: vbuf.len(), to });
                Ok(Outcome::Used(Some(vbuf)))
            }
            None => {
                self.stats.rx_ready_unmatched += u64::from(mode == Mode::Ready);
                if is_whole {
                    self.keep(from, label, vbuf.capacity(), Body::Whole { id, mode, lane, vbuf });
                } else {
                    self.keep(from, label, len, Body::Series { id, mode, len });
                    let (arrived, to) = (vbuf.len(), Destination::Kept { lane, vbufs: vec![vbuf] });
                    self.series.insert((from, id), Series { len, arrived, to });
                }
                Ok(Outcome::Kept)
            }
        }
    }

    /// Receiver: the first vbuf of several came. They fill their vbufs and come in one go, so a peer cannot have memory
    /// taken that its message does not account for.
    fn begin_series(&mut self, from: Rank, lane: usize, id: u64, arrived: usize) -> Result<(), String> {
        let is_known = self.series.contains_key(&(from, id));
        let Some(lane) = self.endpoint(from).map(|endpoint| &mut endpoint.lanes[lane]) else { return Ok(()) };
        if is_known || lane.series.is_some() || arrived != lane.payload {
            return Err(format!("it began message {id:#x} in vain"));
        }
        lane.series = Some(id);
        Ok(())
    }

    /// Receiver: more of a message came.
    pub(crate) fn on_fragment(
        &mut self,
        from: Rank,
        lane: usize,
        id: u64,
        offset: u64,
        vbuf: Buffer,
    ) -> Result<Outcome, String> {
        let refused = || format!("a fragment of message {id:#x} does not fit");
        let lane = self.endpoints[from].as_deref_mut().map(|endpoint| &mut endpoint.lanes[lane]).ok_or_else(refused)?;
        let series = self.series.get_mut(&(from, id)).filter(|_| lane.series == Some(id)).ok_or_else(refused)?;
        let rest = series.len - series.arrived;
        if offset != series.arrived as u64 || vbuf.len() != rest.min(lane.payload) {
            return Err(refused());
        }
        series.arrived += vbuf.len();
        let is_complete = series.is_complete();
        if is_complete {
            lane.series = None;
        }
        let outcome = match &mut series.to {
            Destination::Receive(request) => {
                let request = *request;
                self.fill(request, from, offset as usize, &vbuf)?;
                Outcome::Used(Some(vbuf))
            }
            Destination::Kept { vbufs, .. } => {
                vbufs.push(vbuf);
                // It stays until somebody asks.
                return Ok(Outcome::Kept);
            }
            Destination::Nowhere => Outcome::Used(Some(vbuf)),
        };
        if is_complete {
            self.series.remove(&(from, id));
        }
        Ok(outcome)
    }

    /// Gives a message in a vbuf to the receive that takes it; returns the vbuf where it was copied, not lent.
    #[inline]
    pub(crate) fn deliver(
        &mut self,
        request: Request,
        from: Rank,
        label: Label,
        lane: usize,
        vbuf: Buffer,
    ) -> Option<Buffer> {
        let len = vbuf.len();
        let Some(mut buffer) = self.take_buffer(request) else {
            self.receive_pools[lane].forfeit();
            self.requests.end(request, Ok(Done::new(vbuf, len, from, label)));
            return None;
        };
        let outcome = if len <= buffer.len() {
            buffer[..len].copy_from_slice(&vbuf);
            Ok(Done::new(buffer, len, from, label))
        } else {
            Err(self.truncated(from, label, len, buffer))
        };
        self.requests.end(request, outcome);
        Some(vbuf)
    }

    /// Receiver: a receive takes a series that has begun.
    pub(crate) fn deliver_series(&mut self, request: Request, from: Rank, label: Label, id: u64) {
        let Some(Series { len, arrived, to: Destination::Kept { lane, vbufs } }) = self.series.remove(&(from, id))
        else {
            unreachable!("an unexpected series is kept until it is received or withdrawn");
        };
        let mut to = self.begin_filling(request, from, label, len, &[]);
        let mut offset = 0;
        for vbuf in vbufs {
            if let Destination::Receive(request) = to
                && self.fill(request, from, offset, &vbuf).is_err()
            {
                to = Destination::Nowhere;
            }
            offset += vbuf.len();
            self.give_receive_vbuf(lane, vbuf);
        }
        if arrived < len {
            self.series.insert((from, id), Series { len, arrived, to });
        }
    }

    /// Forgets a series that nobody will receive; what is on its way is dropped when it comes.
    pub(crate) fn discard_series(&mut self, from: Rank, id: u64) {
        let Some(series) = self.series.remove(&(from, id)) else { return };
        if let Destination::Kept { lane, vbufs } = series.to {
            for vbuf in vbufs {
                self.give_receive_vbuf(lane, vbuf);
            }
        }
        if series.arrived < series.len {
            self.series.insert((from, id), Series { to: Destination::Nowhere, ..series });
        }
    }

    /// A receive begins to take a message that comes in parts.
    fn begin_filling(&mut self, request: Request, from: Rank, label: Label, len: usize, first: &[u8]) -> Destination {
        let Some(mut buffer) = self.buffer_for(request, from, label, len) else { return Destination::Nowhere };
        buffer[..first.len()].copy_from_slice(first);
        let filling = Filling { from, label, buffer, len, arrived: first.len() };
        self.requests.replace(request, Operation::Filling(filling));
        Destination::Receive(request)
    }

    /// Puts a part of a message into its receive, which ends with the last one.
    pub(crate) fn fill(&mut self, request: Request, from: Rank, offset: usize, part: &[u8]) -> Result<(), String> {
        let filling = match self.requests.get_mut(request) {
            Some(Operation::Filling(filling)) if filling.from == from => filling,
            _ => return Err(format!("it sent data for {:#x}, which waits for none", request.to_wire())),
        };
        if offset != filling.arrived || part.len() > filling.len - filling.arrived {
            return Err(format!("data for {:#x} does not fit", request.to_wire()));
        }
        filling.buffer[offset..offset + part.len()].copy_from_slice(part);
        filling.arrived += part.len();
        if filling.arrived == filling.len
            && let Some(Operation::Filling(Filling { from, label, buffer, len, .. })) =
                self.requests.replace(request, Operation::Queued { to: from })
        {
            self.requests.end(request, Ok(Done::new(buffer, len, from, label)));
        }
        Ok(())
    }

    /// The buffer of a receive that has met its message; `None` where the message is to be lent.
    #[inline]
    pub(crate) fn take_buffer(&mut self, request: Request) -> Option<Buffer> {
        match self.requests.get_mut(request) {
            Some(Operation::Waiting { buffer, .. }) => buffer.take(),
            _ => unreachable!("a posted receive waits"),
        }
    }

    /// The buffer of a receive for a message of `len` bytes, one of its own where it has none; `None` where the receive has
    /// ended for want of room.
    pub(crate) fn buffer_for(&mut self, request: Request, from: Rank, label: Label, len: usize) -> Option<Buffer> {
        let error = match self.take_buffer(request) {
            Some(buffer) if len <= buffer.len() => return Some(buffer),
            Some(buffer) => self.truncated(from, label, len, buffer),
            None => match self.engine.buffer(len) {
                Ok(buffer) => return Some(buffer),
                Err(_) => OpError::NoMemory { rank: from, len: len as u64 },
            },
        };
        self.requests.end(request, Err(error));
        None
    }

    /// A message that nobody asked for.
    pub(crate) fn keep(&mut self, from: Rank, label: Label, cost: usize, body: Body) {
        self.stats.rx_unexpected += 1;
        self.matching.keep(matching::Label::new(from, label), OVERHEAD + cost, body);
        self.is_withholding |= self.matching.unexpected_bytes() > self.unexpected_limit;
    }

    /// Tells the sender of a synchronous message that it has been matched.
    #[inline]
    pub(crate) fn acknowledge_match(&mut self, from: Rank, id: u64, mode: Mode) {
        if mode == Mode::Synchronous
            && let Some(endpoint) = self.endpoint(from)
        {
            endpoint.say(Message::Matched { id });
        }
    }

    /// Sender: a synchronous message has been matched.
    pub(crate) fn on_matched(&mut self, from: Rank, id: u64) -> Result<(), String> {
        let request = Request::from_wire(id);
        if !matches!(self.requests.get(request), Some(Operation::Unmatched { to, .. }) if *to == from) {
            return Err(format!("it matched message {id:#x}, which does not wait for that"));
        }
        if let Some(Operation::Unmatched { to, done }) = self.requests.replace(request, Operation::Queued { to: from })
        {
            debug_assert_eq!(to, from);
            self.requests.end(request, Ok(done));
        }
        Ok(())
    }

    #[cold]
    fn truncated(&mut self, source: Rank, label: Label, len: usize, buffer: Buffer) -> OpError {
        self.stats.rx_truncated += 1;
        let envelope = Envelope { source, tag: Tag::new(label.tag), len };
        let (context, room) = (Context::new(label.context), buffer.len());
        OpError::Truncated(Box::new(Truncated { envelope, context, room, buffer: Some(buffer) }))
    }
}

/// A length from the wire that a message can have.
pub(crate) fn acceptable(len: u64) -> Result<usize, String> {
    let fits = |len: &usize| *len <= crate::worker::MAX_MESSAGE;
    usize::try_from(len).ok().filter(fits).ok_or_else(|| format!("it announced a message of {len} bytes"))
}
