//! What comes in: each message is judged, its credits are counted, and it is acted upon in the order of its sender.

use roci_driver::link::Link;
use roci_driver::{Buffer, WorkCompletion};
use roci_protocol::msg::{self, Header, Message};

use crate::Rank;
use crate::core::peer::Endpoint;
use crate::receive_queues::MAX_CREDITS_TOGETHER;
use crate::services::tag::rendezvous::Grant;
use crate::services::tag::request::OpError;
use crate::worker::Worker;

/// Messages of one peer that may have come before an earlier one, over another lane: what it has credits for, and
/// questions for messages, which cost none where receives are shared.
const PARKED_LIMIT: usize = MAX_CREDITS_TOGETHER as usize + crate::services::tag::cancels::OPEN_LIMIT;

/// Answers that may wait for one peer: an honest one has no more operations under way.
const CONTROL_LIMIT: usize = crate::services::tag::requests::LIMIT;

/// A message that has come, in its vbuf, whose view is the payload.
#[derive(Debug)]
pub(crate) struct Arrived {
    pub(crate) lane: usize,
    pub(crate) header: Header,
    pub(crate) vbuf: Buffer,
}

/// What became of a message.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// It is done with; its vbuf comes back, unless it was lent to the application.
    Used(Option<Buffer>),
    /// It is noted until somebody asks for it; its vbuf comes back.
    Noted(Buffer),
    /// It is kept, with its vbuf.
    Kept,
}

impl<L: Link> Worker<L> {
    /// A vbuf has been filled.
    #[inline]
    pub(crate) fn on_vbuf(&mut self, rank: Rank, lane: usize, done: WorkCompletion) {
        let WorkCompletion { buffer: mut vbuf, len, .. } = done;
        self.note_receive_used(rank, lane);
        if self.endpoint(rank).is_none() {
            // It came before its sender's end, and is told after it.
            return self.give_receive_vbuf(lane, vbuf);
        }
        vbuf.set_len(len);
        match Header::parse(&vbuf).map(|(header, _)| header) {
            Ok(header) => {
                vbuf.skip_front(msg::LEN);
                self.on_arrived(rank, Arrived { lane, header, vbuf });
            }
            Err(bad) => {
                self.give_receive_vbuf(lane, vbuf);
                self.fail_peer(rank, protocol_error(rank, bad.to_string()));
            }
        }
    }

    fn on_arrived(&mut self, rank: Rank, arrived: Arrived) {
        let Some(endpoint) = self.endpoint(rank) else { return };
        let header = arrived.header;
        if header.message == Message::ClearToSend || !endpoint.stage.has_terms() {
            return self.on_clear_to_send(rank, arrived);
        }
        let lane = endpoint.lanes.get_mut(usize::from(header.queue));
        if !lane.is_some_and(|lane| lane.credits.receive(header.credits)) {
            let what = format!("it gave back {} credits too many for its queue {}", header.credits, header.queue);
            return self.refuse(rank, arrived, what);
        }
        if endpoint.control.len() > CONTROL_LIMIT {
            let what = "it asks for more answers than it lets us give".into();
            self.receive_pools[arrived.lane].write_off();
            return self.fail_peer(rank, protocol_error(rank, what));
        }
        match Place::of(&header, endpoint) {
            Place::Now => {
                self.act(rank, arrived);
                if self.endpoints[rank].as_deref().is_some_and(|endpoint| !endpoint.parked.is_empty()) {
                    self.act_on_parked(rank);
                }
            }
            Place::Later => {
                let lane = arrived.lane;
                endpoint.parked.push(arrived);
                // What it waits for may need a receive of the same queue, or be behind a message that does.
                self.top_up(lane);
            }
            Place::Never => {
                let what = format!("its message {} is out of sequence", header.sequence);
                self.refuse(rank, arrived, what);
            }
        }
        self.go_on(rank);
    }

    /// A message that must not be: its peer is failed.
    fn refuse(&mut self, rank: Rank, arrived: Arrived, what: String) {
        self.give_receive_vbuf(arrived.lane, arrived.vbuf);
        self.fail_peer(rank, protocol_error(rank, what));
    }

    /// What waited for its turn.
    fn act_on_parked(&mut self, rank: Rank) {
        while let Some(endpoint) = self.endpoint(rank).filter(|endpoint| !endpoint.parked.is_empty()) {
            let is_due = |arrived: &Arrived| matches!(Place::of(&arrived.header, endpoint), Place::Now);
            let Some(next) = endpoint.parked.iter().position(is_due) else { return };
            // The others stay in the order in which they came: fragments need it.
            let arrived = endpoint.parked.remove(next);
            self.act(rank, arrived);
        }
    }

    /// Acts on a message whose turn has come, and posts its receive again.
    #[inline]
    fn act(&mut self, rank: Rank, arrived: Arrived) {
        let Arrived { lane, header, vbuf } = arrived;
        let costs =
            self.endpoints[rank].as_deref().is_some_and(|endpoint| endpoint.lanes[lane].charges(&header.message));
        match self.dispatch(rank, lane, &header, vbuf) {
            Ok(Outcome::Used(vbuf)) => self.repost(rank, lane, vbuf, costs.then_some(false)),
            // An announcement takes little: it may come while messages are held back, as long as that is bounded too.
            Ok(Outcome::Noted(vbuf)) => {
                let is_withheld = self.matching.unexpected_bytes() > 2 * self.unexpected_limit;
                self.repost(rank, lane, Some(vbuf), costs.then_some(is_withheld));
            }
            Ok(Outcome::Kept) => {
                if !self.receive_pools[lane].has_one() {
                    self.mind_memory();
                }
                self.repost(rank, lane, None, costs.then_some(true));
            }
            Err(what) => {
                self.receive_pools[lane].write_off();
                self.fail_peer(rank, protocol_error(rank, what));
            }
        }
    }

    /// Acts on a message; returns what it was, or what is wrong with it.
    fn dispatch(&mut self, rank: Rank, lane: usize, header: &Header, vbuf: Buffer) -> Result<Outcome, String> {
        match header.message {
            message @ Message::Eager { .. } => {
                self.advance_sequence(rank);
                return self.on_eager(rank, lane, message, vbuf);
            }
            Message::Fragment { offset, id } => return self.on_fragment(rank, lane, id, offset, vbuf),
            message @ Message::Request { .. } => {
                self.advance_sequence(rank);
                if self.on_request(rank, message)? {
                    return Ok(Outcome::Noted(vbuf));
                }
            }
            Message::Data { reply, offset } => self.on_data(rank, reply, offset, &vbuf)?,
            Message::Grant { id, reply, way, rkey, va, len } => {
                self.on_grant(rank, id, Grant { reply, way, rkey, va, len: len as usize })?;
            }
            Message::Written { reply, len } => self.on_written(rank, reply, len)?,
            Message::Finished { id } => self.on_finished(rank, id)?,
            Message::Matched { id } => self.on_matched(rank, id)?,
            Message::Cancel { id } => self.on_cancel(rank, id),
            Message::Cancelled { id, is_withdrawn } => self.on_cancelled(rank, id, is_withdrawn)?,
            Message::Credit => {}
            Message::ClearToSend => return Err("it told its terms twice".into()),
        }
        Ok(Outcome::Used(Some(vbuf)))
    }

    fn advance_sequence(&mut self, rank: Rank) {
        if let Some(endpoint) = self.endpoint(rank) {
            endpoint.expected_sequence = endpoint.expected_sequence.wrapping_add(1);
        }
    }
}

/// When a message may be acted upon.
enum Place {
    Now,
    Later,
    Never,
}

impl Place {
    #[inline]
    fn of(header: &Header, endpoint: &Endpoint) -> Self {
        let ahead = header.sequence.wrapping_sub(endpoint.expected_sequence);
        let is_due = match header.message {
            Message::Eager { .. } | Message::Request { .. } => ahead == 0,
            // It follows what it takes back; what was sent after it may have come before it.
            Message::Cancel { .. } => ahead.cast_signed() <= 0,
            Message::Fragment { id, .. } => !endpoint.parked.iter().any(|arrived| arrived.begins(id)),
            _ => true,
        };
        if is_due {
            return Self::Now;
        }
        // Over a single lane messages come in order.
        let has_room = endpoint.lanes.len() > 1 && endpoint.parked.len() < PARKED_LIMIT;
        let is_near = usize::from(ahead) <= 2 * PARKED_LIMIT || matches!(header.message, Message::Fragment { .. });
        if has_room && is_near { Self::Later } else { Self::Never }
    }
}

impl Arrived {
    /// Whether fragments of message `id` follow it.
    fn begins(&self, id: u64) -> bool {
        matches!(self.header.message, Message::Eager { id: begun, .. } if begun == id)
    }
}

pub(crate) fn protocol_error(rank: Rank, what: String) -> OpError {
    OpError::PeerProtocol { rank, what }
}
