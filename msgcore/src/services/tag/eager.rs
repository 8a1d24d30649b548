//! The eager protocol: a message leaves at once in a vbuf, or in a series of them, and is kept at the receiver until
//! somebody asks for it.
//!
//! A message in a single vbuf is never copied before it is matched: the vbuf it came in is kept, or handed to the
//! application, and another one takes its place among the receives.

use roci_driver::Buffer;
use roci_driver::link::Link;
use roci_protocol::msg::{Header, Label, Message, Mode};

use super::TagService;
use super::matching::MatchLabel;
use super::operation::{Filling, TagOperation};
use super::send_queue::Outgoing;
use super::stored::{OVERHEAD, Series, SeriesDestination, UnexpectedBody, acceptable};
use crate::core::Core;
use crate::core::breach::Breach;
use crate::core::completion::{Done, Envelope, OpError, Truncated};
use crate::core::peer::{Peer, PeerId};
use crate::core::request::Request;
use crate::core::rx::Outcome;
use crate::{Context, Tag};

impl TagService {
    /// Sender: copies a message into vbufs. There is room for all of them, or it joins others.
    #[inline(never)]
    pub(super) fn send_eager<L: Link>(&mut self, core: &mut Core<L>, peer: &mut Peer, lane: usize, outgoing: Outgoing) {
        let Outgoing { request, label, mode, payload } = outgoing;
        let (id, len, room) = (request.to_wire(), payload.len(), peer.lanes[lane].payload);
        let first = len.min(room);
        let message = Message::Eager { label, len: len as u64, id, mode };
        core.post_eager(peer, lane, (message, mode), first, |bytes| payload.copy_out(0, bytes));
        for offset in (first..len).step_by(room) {
            let end = len.min(offset + room);
            let message = Message::Fragment { offset: offset as u64, id };
            core.post_part(peer, lane, Header::new(message), (&payload, offset..end));
        }
        let done = Done::new(payload, len, peer.id, label);
        match mode {
            Mode::Synchronous => drop(self.requests.replace(request, TagOperation::Unmatched { to: peer.id, done })),
            Mode::Standard | Mode::Ready => self.requests.end_eager(request, done),
        }
    }

    /// Sender: a message leaves at once, in one vbuf, for which there is room, or joins others. Its request is over when it begins, unless its
    /// sender waits for the match.
    #[inline]
    pub(super) fn send_short<L: Link>(&mut self, core: &mut Core<L>, peer: &mut Peer, lane: usize, outgoing: Outgoing) {
        let Outgoing { request, label, mode, payload } = outgoing;
        let len = payload.len();
        let message = Message::Eager { label, len: len as u64, id: request.to_wire(), mode };
        core.post_eager(peer, lane, (message, mode), len, |bytes| payload.copy_out(0, bytes));
        let to = peer.id;
        let done = || Done::new(payload, len, to, label);
        match mode {
            Mode::Synchronous => self.requests.open(request, || TagOperation::Unmatched { to, done: done() }),
            Mode::Standard | Mode::Ready => self.requests.open_left(request, done),
        }
    }

    /// Receiver: a message came, or the beginning of one.
    pub(crate) fn on_eager<L: Link>(
        &mut self,
        core: &mut Core<L>,
        peer: &mut Peer,
        lane: usize,
        (label, len, id, mode): (Label, u64, u64, Mode),
        vbuf: Buffer,
    ) -> Result<Outcome, Breach> {
        let from = peer.id;
        let len = acceptable(len)?;
        let is_whole = vbuf.len() == len;
        if !is_whole {
            self.begin_series(peer, lane, id, vbuf.len())?;
        }
        match self.meet_posted(&MatchLabel::new(from, label), len) {
            Some(request) => {
                core.stats.rx_expected += 1;
                acknowledge_match(peer, id, mode);
                if is_whole {
                    return Ok(Outcome::Used(self.deliver(core, request, from, label, Some(lane), vbuf)));
                }
                let to = self.begin_filling(core, request, from, label, len, &vbuf);
                self.series.insert((from, id), Series { len, arrived: vbuf.len(), to });
                Ok(Outcome::Used(Some(vbuf)))
            }
            None => {
                core.stats.rx_ready_unmatched += u64::from(mode == Mode::Ready);
                if is_whole {
                    return Ok(self.store_whole(core, from, label, (id, mode), lane, vbuf));
                }
                self.store(core, from, label, UnexpectedBody::Series { id, mode, len, data: label.data });
                let (arrived, to) = (vbuf.len(), SeriesDestination::Stored { lane, vbufs: vec![vbuf] });
                self.series.insert((from, id), Series { len, arrived, to });
                Ok(Outcome::Stored)
            }
        }
    }

    /// Receiver: a whole message is here, in the packet that it came in. Whether a receive took it that was posted for it; else
    /// nothing has changed.
    #[inline]
    pub(crate) fn take_expected(&mut self, from: PeerId, label: Label, payload: &[u8]) -> bool {
        let Self { matching, requests, .. } = self;
        let meets = |request| requests.receive_whole(request, (from, label), payload);
        matching.take_posted_if(&MatchLabel::new(from, label), meets).is_some()
    }

    /// Receiver: a message in one vbuf has no receive. It is stored there, or as a copy where it is short: a vbuf is worth
    /// more than the copy.
    fn store_whole<L: Link>(
        &mut self,
        core: &mut Core<L>,
        from: PeerId,
        label: Label,
        (id, mode): (u64, Mode),
        lane: usize,
        vbuf: Buffer,
    ) -> Outcome {
        let is_short = 2 * vbuf.len() <= vbuf.capacity();
        match is_short.then(|| core.copy_to_store(lane, &vbuf)).flatten() {
            Some(copy) => {
                self.store(
                    core,
                    from,
                    label,
                    UnexpectedBody::Whole { id, mode, lane: None, vbuf: copy, data: label.data },
                );
                Outcome::Copied(vbuf)
            }
            None => {
                self.store(
                    core,
                    from,
                    label,
                    UnexpectedBody::Whole { id, mode, lane: Some(lane), vbuf, data: label.data },
                );
                Outcome::Stored
            }
        }
    }

    /// Receiver: the first vbuf of several came. They fill their vbufs and come in one go, so a peer cannot have memory
    /// taken that its message does not account for.
    fn begin_series(&self, peer: &mut Peer, lane: usize, id: u64, arrived: usize) -> Result<(), Breach> {
        let is_known = self.series.contains_key(&(peer.id, id));
        let lane = &mut peer.lanes[lane];
        if is_known || lane.series.is_some() || arrived != lane.payload {
            return Err(Breach::Beginning { id });
        }
        lane.series = Some(id);
        Ok(())
    }

    /// Receiver: more of a message came.
    pub(crate) fn on_fragment(
        &mut self,
        peer: &mut Peer,
        lane: usize,
        id: u64,
        offset: u64,
        vbuf: Buffer,
    ) -> Result<Outcome, Breach> {
        let (from, lane) = (peer.id, &mut peer.lanes[lane]);
        let series = self.series.get_mut(&(from, id)).filter(|_| lane.series == Some(id));
        let series = series.ok_or(Breach::Fragment { id })?;
        let rest = series.len - series.arrived;
        if offset != series.arrived as u64 || vbuf.len() != rest.min(lane.payload) {
            return Err(Breach::Fragment { id });
        }
        series.arrived += vbuf.len();
        let is_complete = series.is_complete();
        if is_complete {
            lane.series = None;
        }
        let outcome = match &mut series.to {
            SeriesDestination::Receive(request) => {
                let request = *request;
                self.fill(request, from, offset as usize, &vbuf)?;
                Outcome::Used(Some(vbuf))
            }
            SeriesDestination::Stored { vbufs, .. } => {
                vbufs.push(vbuf);
                // It stays until a receive asks.
                return Ok(Outcome::Stored);
            }
            SeriesDestination::Nowhere => Outcome::Used(Some(vbuf)),
        };
        if is_complete {
            self.series.remove(&(from, id));
        }
        Ok(outcome)
    }

    /// Gives a message in a vbuf to the receive that takes it; returns the vbuf where it was copied and not handed over.
    #[inline]
    pub(super) fn deliver<L: Link>(
        &mut self,
        core: &mut Core<L>,
        request: Request,
        from: PeerId,
        label: Label,
        lane: Option<usize>,
        vbuf: Buffer,
    ) -> Option<Buffer> {
        let len = vbuf.len();
        let Some(mut buffer) = self.take_buffer(request) else {
            if let Some(lane) = lane {
                core.receives.pools[lane].forfeit();
            }
            self.requests.end(request, Ok(Done::new(vbuf, len, from, label)));
            return None;
        };
        let outcome = if len <= buffer.len() {
            buffer.copy_in(0, &vbuf);
            Ok(Done::new(buffer, len, from, label))
        } else {
            Err(self.truncated(core, request, (from, label, len), buffer))
        };
        self.requests.end(request, outcome);
        Some(vbuf)
    }

    /// Receiver: a receive takes a series that has begun.
    pub(super) fn deliver_series<L: Link>(
        &mut self,
        core: &mut Core<L>,
        request: Request,
        from: PeerId,
        label: Label,
        id: u64,
    ) {
        let Some(Series { len, arrived, to: SeriesDestination::Stored { lane, vbufs } }) =
            self.series.remove(&(from, id))
        else {
            unreachable!("an unexpected series is stored until it is received or withdrawn");
        };
        let mut to = self.begin_filling(core, request, from, label, len, &[]);
        let mut offset = 0;
        for vbuf in vbufs {
            if let SeriesDestination::Receive(request) = to
                && self.fill(request, from, offset, &vbuf).is_err()
            {
                to = SeriesDestination::Nowhere;
            }
            offset += vbuf.len();
            core.give_receive_vbuf(lane, vbuf);
        }
        if arrived < len {
            self.series.insert((from, id), Series { len, arrived, to });
        }
    }

    /// Forgets a series that nothing will receive; what is on its way is dropped when it comes.
    pub(super) fn discard_series<L: Link>(&mut self, core: &mut Core<L>, from: PeerId, id: u64) {
        let Some(series) = self.series.remove(&(from, id)) else { return };
        if let SeriesDestination::Stored { lane, vbufs } = series.to {
            for vbuf in vbufs {
                core.give_receive_vbuf(lane, vbuf);
            }
        }
        if series.arrived < series.len {
            self.series.insert((from, id), Series { to: SeriesDestination::Nowhere, ..series });
        }
    }

    /// A receive begins to take a message that comes in parts.
    fn begin_filling<L: Link>(
        &mut self,
        core: &mut Core<L>,
        request: Request,
        from: PeerId,
        label: Label,
        len: usize,
        first: &[u8],
    ) -> SeriesDestination {
        let Some(mut buffer) = self.buffer_for(core, request, from, label, len) else {
            return SeriesDestination::Nowhere;
        };
        buffer.copy_in(0, first);
        let filling = Filling { from, label, buffer, len, arrived: first.len() };
        self.requests.replace(request, TagOperation::Filling(filling));
        SeriesDestination::Receive(request)
    }

    /// Puts a part of a message into its receive, which ends with the last one.
    pub(super) fn fill(&mut self, request: Request, from: PeerId, offset: usize, part: &[u8]) -> Result<(), Breach> {
        let reply = request.to_wire();
        let filling = match self.requests.get_mut(request) {
            Some(TagOperation::Filling(filling)) if filling.from == from => filling,
            _ => return Err(Breach::UnaskedData { reply }),
        };
        if offset != filling.arrived || part.len() > filling.len - filling.arrived {
            return Err(Breach::Data { reply });
        }
        filling.buffer.copy_in(offset, part);
        filling.arrived += part.len();
        if filling.arrived == filling.len
            && let Some(TagOperation::Filling(Filling { from, label, buffer, len, .. })) =
                self.requests.replace(request, TagOperation::Queued { to: from })
        {
            self.requests.end(request, Ok(Done::new(buffer, len, from, label)));
        }
        Ok(())
    }

    /// Returns the buffer of a receive that has met its message; `None` where it takes the memory that the message came in.
    #[inline]
    fn take_buffer(&mut self, request: Request) -> Option<Buffer> {
        match self.requests.get_mut(request) {
            Some(TagOperation::Waiting { buffer, .. }) => buffer.take(),
            _ => unreachable!("a posted receive waits"),
        }
    }

    /// Returns the buffer of a receive for a message of `len` bytes, a new one where it has none; `None` where the receive
    /// has ended for want of room.
    pub(super) fn buffer_for<L: Link>(
        &mut self,
        core: &mut Core<L>,
        request: Request,
        from: PeerId,
        label: Label,
        len: usize,
    ) -> Option<Buffer> {
        let error = match self.take_buffer(request) {
            Some(buffer) if len <= buffer.len() => return Some(buffer),
            Some(buffer) => self.truncated(core, request, (from, label, len), buffer),
            None => match core.engine.buffer(len) {
                Ok(buffer) => return Some(buffer),
                Err(_) => OpError::NoMemory { peer: from, len: len as u64 },
            },
        };
        self.requests.end(request, Err(error));
        None
    }

    /// A message does not fit its receive, whose buffer goes back with the error; what is left to a multi-receive stays with it.
    #[cold]
    fn truncated<L: Link>(
        &self,
        core: &mut Core<L>,
        request: Request,
        (source, label, len): (PeerId, Label, usize),
        buffer: Buffer,
    ) -> OpError {
        core.stats.rx_truncated += 1;
        let envelope = Envelope { source, tag: Tag::new(label.tag), len, data: label.data };
        let context = Context::new(label.context);
        let (room, buffer) = match self.requests.room_beside(request) {
            Some(room) => (room, None),
            None => (buffer.len(), Some(buffer)),
        };
        OpError::Truncated(Box::new(Truncated { envelope, context, room, buffer }))
    }

    /// Stores a message that has no receive.
    pub(super) fn store<L: Link>(&mut self, core: &mut Core<L>, from: PeerId, label: Label, body: UnexpectedBody) {
        core.stats.rx_unexpected += 1;
        self.matching.keep(MatchLabel::new(from, label), body.id(), OVERHEAD + body.cost(), body);
        core.unexpected_budget.note_stored(self.stored_bytes());
    }

    /// Sender: a synchronous message has been matched.
    pub(crate) fn on_matched(&mut self, peer: &Peer, id: u64) -> Result<(), Breach> {
        let (request, from) = (Request::from_wire(id), peer.id);
        if !matches!(self.requests.get(request), Some(TagOperation::Unmatched { to, .. }) if *to == from) {
            return Err(Breach::Matched { id });
        }
        if let Some(TagOperation::Unmatched { to, done }) =
            self.requests.replace(request, TagOperation::Queued { to: from })
        {
            debug_assert_eq!(to, from);
            self.requests.end(request, Ok(done));
        }
        Ok(())
    }
}

/// Answers the sender of a synchronous message that has been matched.
#[inline]
pub(super) fn acknowledge_match(peer: &mut Peer, id: u64, mode: Mode) {
    if mode == Mode::Synchronous {
        peer.queue_control(Message::Matched { id });
    }
}
