//! One peer: its connection, its lanes, what waits to be sent to it, and what waits for its turn.

use roci_driver::{Buffer, PeerMemory};
use roci_protocol::Nanos;
use roci_protocol::msg::{Capabilities, Header, Message};

use super::breach::Breach;
use super::completion::OpError;
use super::in_flight::{CountedQueue, QueueMark};
use super::lane::Lane;
use super::open_packet::OpenPacket;
pub(crate) use super::peer_id::PeerId;
use super::stage::{Stage, Step};
use super::transfer::PeerTransfers;

/// One end's view of a peer.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) id: PeerId,
    pub(crate) connection: ConnectionState,
    /// A queue pair for each receive queue, once it is connected: mostly there is one, of the eight that may be.
    pub(crate) lanes: Box<[Lane]>,
    pub(crate) tx: PeerTx,
    pub(crate) rx: PeerRx,
    pub(crate) cma: PeerCma,
    pub(crate) last_activity: LastActivity,
    /// Why the peer is gone.
    pub(crate) failure: Option<OpError>,
}

/// How far the connection is, and what was agreed.
#[derive(Debug, Default)]
pub(crate) struct ConnectionState {
    stage: Stage,
    /// Our terms wait for a vbuf.
    pub(crate) owes_terms: bool,
    /// What the peer can do, once its terms are known.
    pub(crate) capabilities: Capabilities,
    /// Why its terms do not fit: it is given up soon.
    pub(crate) mismatch: Option<Mismatch>,
}

/// Why the terms of a peer do not fit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mismatch {
    pub(crate) breach: Breach,
    /// Calls of progress when that was found.
    pub(crate) since: u32,
}

/// What waits to be sent, but for messages of services.
#[derive(Debug, Default)]
pub(crate) struct PeerTx {
    /// The place of the next matched message.
    pub(crate) next_sequence: u16,
    /// Short messages that wait for others, to leave with them.
    pub(super) packet: Option<OpenPacket>,
    /// Control messages: they overtake, because they set memory free. Of an honest peer there are never more than operations.
    pub(crate) control: CountedQueue<Control>,
    /// READs, WRITEs and atomics.
    pub(crate) transfers: PeerTransfers,
    /// Messages with a payload that keep no place among the others.
    pub(crate) payloads: CountedQueue<PayloadMessage>,
    /// How many of them are replies.
    pub(crate) replies_waiting: usize,
    /// How many of them answer moves of firehoses.
    pub(crate) answers_waiting: usize,
    /// Whose turn it is to send, of those that take turns.
    pub(crate) next_turn: u8,
    /// The stream service waits for room to send something of its own.
    pub(crate) stream_waits: bool,
    /// The lane whose credits are given back next.
    pub(crate) next_return: usize,
    /// Messages have waited for credits since that was last logged.
    pub(super) has_stalled: bool,
    /// Whether it waits for a send buffer.
    pub(super) starved: Starved,
}

/// Whether a peer waits for a send buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Starved {
    /// It does not.
    #[default]
    No,
    /// It does, in the queue of those that do.
    Queued,
    /// It did for longest: the next one is its own, before all others that wait.
    Turn,
}

/// What waited to be sent when somebody looked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitingMark {
    control: QueueMark,
    payloads: QueueMark,
}

/// What has come and waits for its turn.
#[derive(Debug, Default)]
pub(crate) struct PeerRx {
    /// The place of the peer's next matched message.
    pub(crate) expected_sequence: u16,
    /// What has come on one lane before something earlier on another.
    pub(crate) reorder: Vec<Arrived>,
    /// Of the put that comes in messages, some part could not be written.
    pub(crate) is_put_denied: bool,
}

/// A message that has come, in its vbuf, whose view is the payload.
#[derive(Debug)]
pub(crate) struct Arrived {
    pub(crate) lane: usize,
    pub(crate) header: Header,
    pub(crate) vbuf: Buffer,
}

/// Which of the two ends may read the other one's memory, where both are processes of one host (Cross Memory Attach).
#[derive(Debug, Default)]
pub(crate) struct PeerCma {
    /// The peer says that it may read this process's.
    pub(crate) reads_ours: bool,
    /// The peer's, where this end may read it: most peers have none.
    pub(crate) theirs: Option<Box<PeerMemory>>,
}

/// What was last seen of a peer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LastActivity {
    /// A number that changes with nearly all that comes.
    pub(crate) traces: u64,
    /// Since when it has not.
    pub(crate) since: Nanos,
}

/// A control message that waits to be sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Control {
    pub(crate) message: Message,
    /// Of [`Message::Cancel`]: the place in the sequence.
    pub(crate) sequence: u16,
}

/// A message with a payload that waits to be sent.
#[derive(Debug)]
pub(crate) struct PayloadMessage {
    pub(crate) message: Message,
    pub(crate) payload: WaitingPayload,
}

/// What follows a header.
#[derive(Debug)]
pub(crate) enum WaitingPayload {
    /// Bytes of the application's.
    Copy(Buffer),
    /// What this end has to say, which no want of memory may keep back; and whether it answers a move of firehoses.
    Firehoses { bytes: Box<[u8]>, is_answer: bool },
}

impl Peer {
    /// A peer that nothing is known of.
    pub(crate) fn new(id: PeerId) -> Self {
        Self {
            id,
            connection: ConnectionState::default(),
            lanes: Box::default(),
            tx: PeerTx::default(),
            rx: PeerRx::default(),
            cma: PeerCma::default(),
            last_activity: LastActivity::default(),
            failure: None,
        }
    }

    /// Messages may be sent.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.connection.stage == Stage::Open
    }

    /// Whether all its work requests have ended, and none will.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.failure.is_some() && self.lanes.iter().all(|lane| lane.in_flight.count() == 0 && lane.posted == 0)
    }

    /// Whether nothing of the core's is under way to the peer.
    pub(crate) fn is_quiet(&self) -> bool {
        let transfers = &self.tx.transfers;
        let has_work = self.tx.has_work() || transfers.awaits_replies() || transfers.partial() > 0;
        self.failure.is_some() || !(has_work || self.lanes.iter().any(|lane| lane.in_flight.count() > 0))
    }

    /// Whether all operations of this end's have become work requests, or messages that wait.
    pub(crate) fn has_begun_all(&self) -> bool {
        self.tx.transfers.has_left() && self.tx.transfers.partial() == 0
    }

    /// Marks the messages that wait to be sent.
    pub(crate) fn mark_of_waiting(&self) -> WaitingMark {
        WaitingMark { control: self.tx.control.mark(), payloads: self.tx.payloads.mark() }
    }

    /// Whether all messages up to a mark have left. What the peer asks for meanwhile may wait.
    pub(crate) fn has_sent(&self, mark: &WaitingMark) -> bool {
        let tx = &self.tx;
        tx.control.has_passed(mark.control) && tx.payloads.has_passed(mark.payloads) && !tx.stream_waits
    }

    /// Returns the credits that ride on the next message, and the queue that they are for: those of the queue that is in
    /// need, or of the next that owes any.
    #[inline]
    pub(crate) fn take_owed(&mut self) -> (u8, u16) {
        let count = self.lanes.len();
        let mut index = self.tx.next_return.min(count - 1);
        if count > 1 {
            let owes = |lane: &usize| self.lanes[*lane].credits.owed() > 0;
            index = (0..count).map(|step| (index + step) % count).find(owes).unwrap_or(index);
            self.tx.next_return = (index + 1) % count;
        }
        (index as u8, self.lanes[index].credits.take_owed())
    }

    /// Whether a service may post so many READs and WRITEs of its own now, of which so many use up a receive of the peer's.
    /// Such a receive is posted again at once, so its credit always comes back; and the credit that is left for control messages
    /// lets announcements go on beside a stream that never ends. `frees` where the peer gets memory back by it.
    pub(crate) fn has_room_for_work(&self, count: usize, receives: usize, frees: bool) -> bool {
        let Some(lane) = self.lanes.first().filter(|_| self.is_open()) else { return false };
        let credits = if frees { lane.credits.for_control() } else { lane.credits.for_requests() };
        lane.places() >= count && (lane.is_shared || usize::from(credits) >= receives)
    }

    /// Whether a service may post a READ of so many bytes.
    pub(crate) fn has_room_for_read(&self, len: usize) -> bool {
        self.tx.transfers.fits(len) && self.has_room_for_work(1, 0, true)
    }

    /// Takes the place of the next matched message.
    pub(crate) fn take_sequence(&mut self) -> u16 {
        let sequence = self.tx.next_sequence;
        self.tx.next_sequence = sequence.wrapping_add(1);
        sequence
    }

    /// A work request is as good as posted.
    #[inline]
    pub(super) fn note_begun(&mut self, lane: usize) {
        self.lanes[lane].in_flight.begin();
        if self.tx.starved == Starved::Turn {
            self.tx.starved = Starved::No;
        }
    }

    /// Queues a control message, which leaves as soon as that is possible.
    pub(crate) fn queue_control(&mut self, message: Message) {
        self.tx.control.push_back(Control { message, sequence: self.tx.next_sequence });
    }
}

impl ConnectionState {
    /// Returns how far it is.
    #[inline]
    pub(crate) fn stage(&self) -> Stage {
        self.stage
    }

    /// Takes a step of the table.
    ///
    /// # Errors
    /// The step does not lead on from here; nothing changes.
    pub(crate) fn step(&mut self, step: Step) -> Result<Stage, Breach> {
        self.stage = self.stage.on(step)?;
        Ok(self.stage)
    }
}

impl PeerTx {
    /// Whether something of the core's waits to be sent.
    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        !(self.control.is_empty() && self.transfers.is_idle() && self.payloads.is_empty()) || self.stream_waits
    }
}
