//! Short messages that leave together: several eager messages in one SEND, and so in one packet (MVAPICH's and Open MPI's message
//! coalescing).
//!
//! The first short message since a call that makes progress leaves at once, so that a message alone does not wait. Those behind it, to
//! one peer, gather in a packet. It is posted as a SEND when it is full, before any other message to that peer, and when the doorbell
//! rings. It costs one credit, one vbuf and one acknowledgement, which is most of what a short message costs.

use roci_driver::link::Link;
use roci_protocol::msg::{self, Header, Message, Mode};

use super::Core;
use super::open_packet::OpenPacket;
use super::peer::{Peer, PeerId};
use super::peers::Peers;

/// Peers that may have an open packet at a time. Who sends to many keeps no vbuf of each waiting: messages to others have packets of
/// their own, of which each eighth rings.
const MOST_OPEN: usize = 8;

/// The lane of a peer that has no other.
const ONLY_LANE: usize = 0;

/// Which messages leave together, and what waits for others.
#[derive(Debug)]
pub(crate) struct Coalescing {
    /// Messages that are shorter do.
    limit: usize,
    /// Peers with an open packet. Each is in it once.
    open: Vec<PeerId>,
    /// How often the doorbell had rung when the first of them was opened.
    rings_before: u64,
}

impl Coalescing {
    /// Messages of no more than so many bytes leave together, and none if that is 0.
    pub(crate) fn new(threshold: usize) -> Self {
        Self {
            limit: if threshold == 0 { 0 } else { threshold + 1 },
            open: Vec::with_capacity(MOST_OPEN),
            rings_before: 0,
        }
    }

    /// Whether such a message may share a packet.
    #[inline]
    fn takes(&self, len: usize, mode: Mode) -> bool {
        mode == Mode::Standard && len < self.limit
    }

    /// Whether a peer has an open packet.
    #[inline]
    pub(crate) fn has_open(&self) -> bool {
        !self.open.is_empty()
    }
}

impl Peer {
    /// Whether a message finds room in the open packet, if there is one: it needs no credit and no vbuf then.
    #[inline]
    pub(crate) fn joins_packet(&self, len: usize, mode: Mode) -> bool {
        self.tx.packet.as_ref().is_some_and(|packet| mode == Mode::Standard && packet.has_room_for(len))
    }
}

impl<L: Link> Core<L> {
    /// Sends an eager message in one vbuf, or in a packet with others. The caller has seen that it [joins](Peer::joins_packet) the open
    /// packet, or to a credit, a vbuf and a place in the queue.
    #[inline(always)]
    pub(crate) fn post_eager(
        &mut self,
        peer: &mut Peer,
        lane: usize,
        (message, mode): (Message, Mode),
        len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) {
        let header = Header { sequence: peer.take_sequence(), ..Header::new(message) };
        if self.engine.holds_doorbell() && self.ready.coalescing.takes(len, mode) || peer.tx.packet.is_some() {
            return self.post_gathered(peer, lane, (header, mode), len, fill);
        }
        self.post_filled_vbuf(peer, lane, header, len, fill);
    }

    #[inline(never)]
    fn post_gathered(
        &mut self,
        peer: &mut Peer,
        lane: usize,
        (header, mode): (Header, Mode),
        len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) {
        if peer.joins_packet(len, mode)
            && let Some(packet) = &mut peer.tx.packet
        {
            packet.append(&header, len, fill);
            self.stats.tx_coalesced += 1;
            if !packet.has_room_for(0) {
                self.close_packet(peer);
            }
            return;
        }
        self.close_packet(peer);
        let room = self.packet_room(peer);
        // Over several lanes messages overtake each other, and how far is limited.
        let may_open = self.ready.coalescing.takes(len, mode)
            && peer.lanes.len() == 1
            && 2 * msg::span(len) <= room
            && self.ready.coalescing.open.len() < MOST_OPEN;
        if !may_open {
            return self.post_filled_vbuf(peer, lane, header, len, fill);
        }
        let mut vbuf = self.take_filled_vbuf(peer, ONLY_LANE, header, len);
        fill(&mut vbuf[msg::LEN..]);
        peer.note_begun(ONLY_LANE);
        peer.tx.packet = Some(OpenPacket::new(vbuf, room));
        if !self.ready.coalescing.has_open() {
            self.ready.coalescing.rings_before = self.engine.doorbell_rings();
        }
        self.ready.coalescing.open.push(peer.id);
    }

    /// Returns how long a SEND is that is one packet and fits a receive of the peer's.
    fn packet_room(&self, peer: &Peer) -> usize {
        let lane = &peer.lanes[ONLY_LANE];
        let mtu = self.engine.path_mtu(lane.qp).map_or(0, roci_protocol::Mtu::bytes);
        mtu.min(msg::LEN + lane.payload)
    }

    /// Has the messages in a peer's open packet leave now, if there are any: before anything else for this peer is posted.
    #[inline]
    pub(crate) fn close_packet(&mut self, peer: &mut Peer) {
        if peer.tx.packet.is_some() {
            self.close_open_packet(peer);
        }
    }

    #[inline(never)]
    fn close_open_packet(&mut self, peer: &mut Peer) {
        self.ready.coalescing.open.retain(|&id| id != peer.id);
        self.post_packet(peer);
        self.engine.ring_doorbell();
    }

    fn post_packet(&mut self, peer: &mut Peer) {
        if let Some(OpenPacket { vbuf, .. }) = peer.tx.packet.take() {
            self.queue_vbuf(peer, ONLY_LANE, vbuf, false);
        }
    }

    /// Posts the open packets of all peers, and has all that was sent leave now.
    #[inline]
    pub(crate) fn ring_doorbell(&mut self, peers: &mut Peers) {
        self.post_packets(peers);
        self.engine.ring_doorbell();
    }

    /// Posts the open packets of all peers. A poll rings for them.
    #[inline]
    pub(crate) fn post_packets(&mut self, peers: &mut Peers) {
        if self.ready.coalescing.has_open() {
            self.post_open_packets(peers);
        }
    }

    #[inline(never)]
    fn post_open_packets(&mut self, peers: &mut Peers) {
        while let Some(id) = self.ready.coalescing.open.pop() {
            if let Some(peer) = peers.live_mut(id) {
                self.post_packet(peer);
            }
        }
    }

    /// Whether the list names the peers that have an open packet, each of them once.
    pub(crate) fn are_open_packets_sound(&self, peers: &Peers) -> bool {
        let open = &self.ready.coalescing.open;
        let is_open = |peer: &&Peer| peer.tx.packet.is_some();
        let is_named_once = |peer: &Peer| open.iter().filter(|&&id| id == peer.id).count() == 1;
        let count = peers.iter().filter(is_open).count();
        count == open.len() && peers.iter().filter(is_open).all(is_named_once)
    }

    /// Whether something that was sent waits for the doorbell.
    #[inline]
    pub(crate) fn awaits_doorbell(&self) -> bool {
        self.ready.coalescing.has_open() || self.engine.awaits_doorbell()
    }

    /// Returns how often all that had been sent has left. What waited at one number and waits at the same one may wait yet.
    #[inline]
    pub(crate) fn departures(&self) -> u64 {
        if self.ready.coalescing.has_open() { self.ready.coalescing.rings_before } else { self.engine.doorbell_rings() }
    }
}
