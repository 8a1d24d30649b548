//! What goes out: headers and payloads in vbufs, credits in messages of their own, work requests of services.

use std::ops::Range;

use roci_driver::link::Link;
use roci_driver::{ArenaError, Buffer, PostError, Rkey, SendWr};
use roci_protocol::msg::{self, ActiveKind, Header, Message};

use super::Core;
use super::lane::{SEND_QUEUE, lane_for};
use super::peer::{Control, PayloadMessage, Peer, PeerId, Starved, WaitingPayload};
use super::peers::Peers;
use super::slab::Key;
use super::vbuf::Pool;

/// The mark of work requests that carry a vbuf; they are named after lane and peer.
const VBUF: u64 = 1 << 63;

/// The mark of READs and WRITEs of the stream service. Those of the tag service have the name of a request, whose index is
/// below it.
const STREAM: u64 = 1 << 31;

/// Returns the name of a READ or WRITE of the stream service, where `kind` is its own.
#[inline]
pub(crate) fn stream_work(peer: PeerId, kind: u8) -> u64 {
    (peer.slot() as u64) << 32 | STREAM | u64::from(kind)
}

/// Returns the kind of a READ or WRITE of the stream service; none where it is another's.
#[inline]
pub(crate) fn stream_work_kind(name: u64) -> Option<u8> {
    (name & STREAM != 0).then_some(name as u8)
}

/// Returns the slot of the peer of a READ or WRITE of the stream service; none where it is another's.
#[inline]
pub(crate) fn stream_work_slot(name: u64) -> Option<usize> {
    // Between its mark and its kind such a name is empty; a keepalive's, of all ones, is not.
    (name as u32 >> 8 == (STREAM >> 8) as u32).then_some((name >> 32) as usize)
}

/// Returns the name of a vbuf's work request, on either side.
#[inline]
pub(crate) fn name_of(lane: usize, peer: PeerId) -> u64 {
    VBUF | (lane as u64) << 32 | peer.slot() as u64
}

/// Returns the lane and the slot of the peer behind a name.
#[inline]
pub(crate) fn lane_and_slot(name: u64) -> (usize, usize) {
    ((name >> 32) as usize & 0xff, name as u32 as usize)
}

/// The mark of READs, WRITEs and atomics of the one-sided service, which have the names of its operations; and that of those which
/// no operation stands for, which have the slot of their peer.
const ONE_SIDED: u32 = 1 << 29;
const UNNAMED: u32 = 1 << 28;

/// A READ, WRITE or atomic of the one-sided service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OneSidedWork {
    /// Of an operation.
    Named(Key),
    /// A put whose bytes were copied to a vbuf, to the peer in this slot.
    Copied(usize),
    /// What the peer in this slot has asked this end to write.
    Served(usize),
}

impl OneSidedWork {
    /// Returns its name.
    #[inline]
    pub(crate) fn to_name(self) -> u64 {
        let (high, low) = match self {
            Self::Named(Key { index, generation }) => (generation, ONE_SIDED | index),
            Self::Copied(slot) => (slot as u32, ONE_SIDED | UNNAMED),
            Self::Served(slot) => (slot as u32, ONE_SIDED | UNNAMED | 1),
        };
        u64::from(high) << 32 | u64::from(low)
    }

    /// Returns what has this name; none where it is another's.
    #[inline]
    pub(crate) fn from_name(name: u64) -> Option<Self> {
        let (high, low) = ((name >> 32) as u32, name as u32);
        if low >> 29 != 1 {
            return None;
        }
        Some(match low & !ONE_SIDED {
            UNNAMED => Self::Copied(high as usize),
            low if low & UNNAMED != 0 => Self::Served(high as usize),
            index => Self::Named(Key { index, generation: high }),
        })
    }
}

impl WaitingPayload {
    fn len(&self) -> usize {
        match self {
            Self::Copy(payload) => payload.len(),
            Self::Firehoses { bytes, .. } => bytes.len(),
        }
    }
}

/// Whether a message answers a request of the peer's.
fn is_reply(message: &Message) -> bool {
    matches!(message, Message::Active { kind: ActiveKind::Reply, .. })
}

/// Whether something may be sent now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SendRoom {
    /// Yes.
    Yes,
    /// A credit is missing: the peer will send one.
    NoCredit,
    /// A vbuf or a place in the send queue is missing: a completion brings it.
    NoBuffer,
}

impl<L: Link> Core<L> {
    /// Posts the oldest control message, where there is one and it may go; returns whether it did.
    pub(crate) fn post_control(&mut self, peer: &mut Peer) -> bool {
        let Some(&Control { message, sequence }) = peer.tx.control.front() else { return false };
        let admitted = peer.lanes[0].admits_control();
        if !self.has_send_room(peer, 0, 1, admitted) {
            return false;
        }
        peer.tx.control.pop_front();
        self.post_vbuf(peer, 0, Header { sequence, ..Header::new(message) }, &[]);
        true
    }

    /// Posts the oldest message with a payload that keeps no place among the others, where there is one and it may go; returns
    /// whether it did.
    pub(crate) fn post_payload(&mut self, peer: &mut Peer) -> bool {
        let Some(next) = peer.tx.payloads.front() else { return false };
        let len = next.payload.len();
        let (lane, _) = lane_for(len, peer.lanes.iter().map(|lane| lane.payload));
        let admitted = peer.lanes[lane].admits_requests();
        if !self.has_send_room(peer, lane, 1, admitted) {
            return false;
        }
        let PayloadMessage { message, payload } = peer.tx.payloads.pop_front().expect("it was just there");
        match payload {
            WaitingPayload::Copy(payload) => {
                peer.tx.replies_waiting -= usize::from(is_reply(&message));
                self.post_part(peer, lane, Header::new(message), (&payload, 0..len));
            }
            WaitingPayload::Firehoses { bytes, is_answer } => {
                peer.tx.answers_waiting -= usize::from(is_answer);
                self.post_vbuf(peer, lane, Header::new(message), &bytes);
            }
        }
        true
    }

    /// Queues a message with a payload.
    pub(crate) fn queue_payload(
        &mut self,
        peer: &mut Peer,
        message: Message,
        payload: &[u8],
    ) -> Result<(), ArenaError> {
        let payload = self.copy_of(payload)?;
        peer.tx.replies_waiting += usize::from(is_reply(&message));
        peer.tx.payloads.push_back(PayloadMessage { message, payload: WaitingPayload::Copy(payload) });
        Ok(())
    }

    /// Whether so many vbufs can be sent on a lane now; counts why not.
    pub(crate) fn has_send_room(&mut self, peer: &mut Peer, lane: usize, vbufs: usize, is_admitted: bool) -> bool {
        match self.send_room(peer, lane, vbufs, is_admitted) {
            SendRoom::Yes => return true,
            SendRoom::NoCredit => self.note_credit_stall(peer),
            SendRoom::NoBuffer => self.stats.buffer_stalls += 1,
        }
        false
    }

    /// Messages to a peer wait for credits. That is logged once, until some have come.
    #[cold]
    fn note_credit_stall(&mut self, peer: &mut Peer) {
        self.stats.credit_stalls += 1;
        if !std::mem::replace(&mut peer.tx.has_stalled, true) {
            self.ready.note_stalled(peer.id);
            tracing::debug!("{}: messages to it wait for credits", peer.id);
        }
    }

    /// Logs to which peers messages waited for credits that have come. The path of messages does not look at that.
    #[cold]
    pub(crate) fn note_credits_back(&mut self, peers: &mut Peers) {
        self.ready.retain_stalled(|id| {
            let Some(peer) = peers.live_mut(id) else { return false };
            peer.tx.has_stalled = !peer.lanes.iter().all(|lane| lane.credits.for_requests() > 0);
            if !peer.tx.has_stalled {
                tracing::debug!("{id}: credits for messages to it have come");
            }
            peer.tx.has_stalled
        });
    }

    fn send_room(&mut self, peer: &mut Peer, lane: usize, vbufs: usize, is_admitted: bool) -> SendRoom {
        if !is_admitted {
            return SendRoom::NoCredit;
        }
        if peer.lanes[lane].in_flight.count() + vbufs > SEND_QUEUE {
            return SendRoom::NoBuffer;
        }
        if self.provide_vbufs(peer, lane, vbufs) {
            return SendRoom::Yes;
        }
        if peer.tx.starved != Starved::Queued {
            peer.tx.starved = Starved::Queued;
            self.ready.push_starved(peer.id);
        }
        SendRoom::NoBuffer
    }

    /// Makes sure that a peer can take so many send buffers. Unless it is its turn, each of the others that wait for one finds
    /// one afterwards; and a peer that has nothing under way may have one past the limit: so no stream to one peer, and no peer
    /// that does not acknowledge, keeps a message to another from leaving.
    pub(crate) fn provide_vbufs(&mut self, peer: &Peer, lane: usize, vbufs: usize) -> bool {
        let others = match peer.tx.starved {
            Starved::No => self.ready.starved(),
            Starved::Queued => self.ready.starved() - 1,
            Starved::Turn => 0,
        };
        let pool = &mut self.send_pools[lane];
        pool.provide(&self.engine, vbufs + others) || {
            let is_idle = peer.lanes.iter().all(|lane| lane.in_flight.count() == 0);
            vbufs == 1 && is_idle && pool.provide_one(&self.engine)
        }
    }

    /// Whether a send buffer can be taken without a look at who else waits.
    #[inline]
    pub(crate) fn has_spare_vbuf(&self, lane: usize) -> bool {
        self.send_pools[lane].free() > self.ready.starved()
    }

    /// Whether there is a send buffer for one of those that wait.
    pub(crate) fn has_send_buffer(&self) -> bool {
        self.send_pools.iter().any(Pool::has_one)
    }

    /// Returns the peer whose turn it is to look for a send buffer again; none where that one is gone.
    pub(crate) fn next_starved<'a>(&mut self, peers: &'a mut Peers) -> Option<&'a mut Peer> {
        let peer = self.ready.pop_starved().and_then(|id| peers.live_mut(id))?;
        peer.tx.starved = Starved::Turn;
        Some(peer)
    }

    /// Sends a header and a payload that fits behind it. The caller has seen to a credit, a vbuf and a place in the queue.
    #[inline(never)]
    pub(crate) fn post_vbuf(&mut self, peer: &mut Peer, lane: usize, header: Header, payload: &[u8]) {
        self.post_filled_vbuf(peer, lane, header, payload.len(), |bytes| bytes.copy_from_slice(payload));
    }

    /// Sends a header and a part of a payload on the first lane, as [`Core::post_vbuf`] does; fenced, behind all READs and atomics.
    pub(super) fn post_transfer_message(
        &mut self,
        peer: &mut Peer,
        header: Header,
        (payload, part): (&Buffer, Range<usize>),
        is_fenced: bool,
    ) {
        let mut vbuf = self.take_filled_vbuf(peer, 0, header, part.len());
        payload.copy_out(part.start, &mut vbuf[msg::LEN..]);
        self.post_taken_vbuf(peer, 0, vbuf, is_fenced);
    }

    /// Sends a header and a part of a payload that fits behind it, as [`Core::post_vbuf`] does.
    #[inline(always)]
    pub(crate) fn post_part(
        &mut self,
        peer: &mut Peer,
        lane: usize,
        header: Header,
        (payload, part): (&Buffer, Range<usize>),
    ) {
        self.post_filled_vbuf(peer, lane, header, part.len(), |bytes| payload.copy_out(part.start, bytes));
    }

    /// Sends a header alone on the first lane, as [`Core::post_transfer_message`] does.
    pub(super) fn post_bare_message(&mut self, peer: &mut Peer, header: Header, is_fenced: bool) {
        let vbuf = self.take_filled_vbuf(peer, 0, header, 0);
        self.post_taken_vbuf(peer, 0, vbuf, is_fenced);
    }

    /// Sends a header and bytes that the peer may read under a key and that fit behind it, as [`Core::post_vbuf`] does.
    pub(super) fn post_bytes_by_key(&mut self, peer: &mut Peer, header: Header, from: (Rkey, u64), len: usize) {
        let mut vbuf = self.take_filled_vbuf(peer, 0, header, len);
        let read = self.engine.read_bytes_by_key(self.pd, from, &mut vbuf[msg::LEN..]);
        debug_assert!(read.is_ok(), "the caller has seen to that");
        self.post_taken_vbuf(peer, 0, vbuf, false);
    }

    #[inline(always)]
    pub(super) fn post_filled_vbuf(
        &mut self,
        peer: &mut Peer,
        lane: usize,
        header: Header,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) {
        let mut vbuf = self.take_filled_vbuf(peer, lane, header, len);
        fill(&mut vbuf[msg::LEN..]);
        self.post_taken_vbuf(peer, lane, vbuf, false);
    }

    /// Takes a vbuf with a header, and room for so much behind it. The message's credit is spent.
    #[inline(always)]
    pub(super) fn take_filled_vbuf(
        &mut self,
        peer: &mut Peer,
        lane_index: usize,
        header: Header,
        len: usize,
    ) -> Buffer {
        self.close_packet(peer);
        let mut vbuf = self.send_pools[lane_index].take(&self.engine).expect("the caller has seen to a vbuf");
        let (queue, credits) = peer.take_owed();
        let lane = &mut peer.lanes[lane_index];
        if lane.charges(&header.message) {
            lane.credits.spend();
        }
        vbuf.set_len(msg::LEN + len);
        Header { credits, queue, ..header }.emit(&mut vbuf);
        vbuf
    }

    #[inline(always)]
    fn post_taken_vbuf(&mut self, peer: &mut Peer, lane: usize, vbuf: Buffer, is_fenced: bool) {
        peer.note_begun(lane);
        self.queue_vbuf(peer, lane, vbuf, is_fenced);
    }

    /// Posts a vbuf as the work request that was [noted](Peer::note_begun) last.
    #[inline(always)]
    pub(super) fn queue_vbuf(&mut self, peer: &mut Peer, lane_index: usize, vbuf: Buffer, is_fenced: bool) {
        let id = peer.id;
        let lane = &mut peer.lanes[lane_index];
        // The end of a message is not waited for, but the last vbuf is.
        let ack_req = !self.send_pools[lane_index].has_one();
        let send = SendWr::send(name_of(lane_index, id), vbuf).with_ack_req(ack_req);
        let send = if is_fenced { send.fenced() } else { send };
        if let Err(refused) = self.engine.queue_send(lane.qp, send) {
            // The queue pair has failed, and its completions will say so.
            debug_assert!(matches!(refused.why, PostError::QueuePair(_)), "there is a place: {}", refused.why);
            lane.in_flight.end();
            self.send_pools[lane_index].give(refused.given.into_buffer());
        }
    }

    /// Posts a READ or WRITE of a service's own on the first lane; `uses_receive` where it has immediate data. The caller has
    /// seen to room ([`Peer::has_room_for_work`]).
    ///
    /// # Errors
    /// The queue pair has failed, as its completions will say; the buffer comes back.
    pub(crate) fn post_work(&mut self, peer: &mut Peer, work: SendWr, uses_receive: bool) -> Result<(), Buffer> {
        self.close_packet(peer);
        let lane = &mut peer.lanes[0];
        assert!(lane.has_place(), "the caller has seen to a place");
        if uses_receive && !lane.is_shared {
            lane.credits.spend();
        }
        lane.in_flight.begin();
        self.engine.queue_send(lane.qp, work).map_err(|refused| {
            lane.in_flight.end();
            refused.given.into_buffer()
        })
    }

    /// Gives credits back in messages of their own.
    #[inline]
    pub(crate) fn return_credits(&mut self, peer: &mut Peer) {
        if peer.lanes.iter().any(|lane| lane.credits.is_return_due()) {
            self.post_credit_messages(peer);
        }
    }

    #[cold]
    fn post_credit_messages(&mut self, peer: &mut Peer) {
        if !peer.is_open() {
            return;
        }
        for index in 0..peer.lanes.len() {
            if peer.lanes[index].credits.is_return_due() {
                self.post_credit_message(peer, index);
            }
        }
    }

    /// A completed send tries again where this one cannot go.
    fn post_credit_message(&mut self, peer: &mut Peer, lane: usize) {
        if !self.has_send_room(peer, lane, 1, true) {
            return;
        }
        // The queue that is in need rides on its own credit message: the reserve is counted so.
        peer.tx.next_return = lane;
        self.stats.tx_credit += 1;
        self.post_vbuf(peer, lane, Header::new(Message::Credit), &[]);
    }
}
