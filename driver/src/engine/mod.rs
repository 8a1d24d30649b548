//! The engine: one poll loop that owns its ports, queue pairs and memory. It shares nothing.

mod env;
mod poll;
mod stats;

use std::net::IpAddr;
use std::rc::Rc;

use roci_protocol::rc::{self, PostError as RcPostError, RecvRequest, State, WcStatus};
use roci_protocol::wire::{Flow, Ip};
use roci_protocol::{Access, Mtu, Nanos, Rkey};
use thiserror::Error;

use crate::address::Address;
use crate::cq::{CompletionQueue, Queue, WorkCompletion};
use crate::link::{Link, LinkState, LinkStats};
use crate::mem::{Arena, ArenaError, Buffer, KeyTable, PdId, RegionFull};
use crate::qp::{QpParams, QueuePair, Slab, Slot, UnconnectedQp};
use crate::wr::SendWr;

pub use stats::EngineStats;

use env::Scene;

/// The poll loop of one thread.
pub struct Engine<L: Link> {
    ports: Vec<Port<L>>,
    qps: Slab,
    keys: KeyTable,
    cqs: Vec<Queue>,
    arena: Rc<Arena>,
    next_pd: u32,
    /// No queue pair's timer fires before this.
    next_deadline: Nanos,
    /// Queue pairs that owe an answer, or that the link held up.
    listed: Vec<QueuePair>,
    /// Polls since acknowledgements of any size were sent.
    busy_polls: u32,
    stats: EngineStats,
}

struct Port<L> {
    link: L,
    ip: IpAddr,
    /// Nobody but one peer is on it: when it goes down, that peer is gone.
    is_point_to_point: bool,
    state: LinkState,
}

/// A work request that was not taken; it comes back.
#[derive(Debug)]
pub struct Refused<W> {
    /// Why.
    pub reason: PostError,
    /// What was posted.
    pub request: W,
}

/// Why a work request was not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum PostError {
    /// The handle's queue pair was destroyed.
    #[error("no such queue pair")]
    NoQueuePair,
    /// The completion queue has no place for another end: poll it.
    #[error("the completion queue is full: poll it first")]
    CompletionQueueFull,
    /// The queue pair refused.
    #[error(transparent)]
    QueuePair(#[from] RcPostError),
}

/// Why two queue pairs were not connected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum ConnectError {
    /// All numbers are in use.
    #[error("the engine has no queue pair left")]
    NoQueuePair,
    /// IPv4 here and IPv6 there.
    #[error("{0} and {1} are of different IP versions")]
    IpVersion(IpAddr, IpAddr),
    /// The link's frames are too short for any path MTU.
    #[error("the link carries frames of {0} bytes, too short for the smallest path MTU")]
    LinkTooShort(usize),
}

/// A memory region that peers may reach; it owns its buffer until it is deregistered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryRegion {
    rkey: Rkey,
    len: usize,
}

impl MemoryRegion {
    /// The key for the peer.
    pub const fn rkey(&self) -> Rkey {
        self.rkey
    }

    /// Bytes; addresses run from 0 to here.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether it holds nothing.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl<L: Link> Engine<L> {
    /// An engine without ports, with an arena of `arena_bytes`.
    pub fn new(arena_bytes: usize) -> Result<Self, ArenaError> {
        Ok(Self {
            ports: Vec::new(),
            qps: Slab::new(),
            keys: KeyTable::new(),
            cqs: Vec::new(),
            arena: Arena::new(arena_bytes)?,
            next_pd: 0,
            next_deadline: Nanos::MAX,
            listed: Vec::new(),
            busy_polls: 0,
            stats: EngineStats::default(),
        })
    }

    /// Adds a port with this host's address on it, and returns its index.
    pub fn add_port(&mut self, link: L, ip: IpAddr, is_point_to_point: bool) -> usize {
        self.ports.push(Port { link, ip, is_point_to_point, state: LinkState::Up });
        self.ports.len() - 1
    }

    /// A new protection domain.
    pub fn alloc_pd(&mut self) -> PdId {
        self.next_pd += 1;
        PdId(self.next_pd)
    }

    /// A completion queue for at most `capacity` work requests posted and not yet polled.
    pub fn create_cq(&mut self, capacity: usize) -> CompletionQueue {
        self.cqs.push(Queue::new(capacity));
        CompletionQueue(self.cqs.len() - 1)
    }

    /// Memory for messages.
    pub fn buffer(&self, len: usize) -> Result<Buffer, ArenaError> {
        self.arena.buffer(len)
    }

    /// The arena, for buffers that outlive a borrow of the engine.
    pub fn arena(&self) -> &Rc<Arena> {
        &self.arena
    }

    /// Lets peers of queue pairs in `pd` reach `buffer`, whose addresses start at 0.
    pub fn register(&mut self, pd: PdId, buffer: Buffer, access: Access) -> Result<MemoryRegion, RegionFull> {
        let len = buffer.len();
        Ok(MemoryRegion { rkey: self.keys.insert(pd, buffer, access)?, len })
    }

    /// Ends a region: its key is dead from here on, and the memory comes back. `None` where it ended before.
    pub fn deregister(&mut self, region: MemoryRegion) -> Option<Buffer> {
        self.keys.remove(region.rkey)
    }

    /// Copies out of a region that peers may be writing, from `offset` on. `None` where it does not fit.
    pub fn read_region(&self, pd: PdId, region: MemoryRegion, offset: usize, into: &mut [u8]) -> Option<()> {
        let len = into.len() as u64;
        into.copy_from_slice(self.keys.slice(pd, region.rkey, offset as u64, len, Access::LOCAL).ok()?);
        Some(())
    }

    /// Copies into a region that peers may be reading. `None` where it does not fit.
    pub fn write_region(&mut self, pd: PdId, region: MemoryRegion, offset: usize, from: &[u8]) -> Option<()> {
        let len = from.len() as u64;
        let target = self.keys.slice_mut(pd, region.rkey, offset as u64, len, Access::LOCAL).ok()?;
        target.copy_from_slice(from);
        Some(())
    }

    /// A queue pair without a peer. Give [`Engine::address_of`] to the peer, then [`Engine::connect`].
    pub fn create_qp(&mut self, port: usize, pd: PdId, cq: CompletionQueue) -> Result<UnconnectedQp, ConnectError> {
        let (qp, psn) = self.qps.reserve().ok_or(ConnectError::NoQueuePair)?;
        Ok(UnconnectedQp { qp, port, ip: self.ports[port].ip, pd, cq, psn })
    }

    /// What the peer must know.
    pub fn address_of(&self, qp: &UnconnectedQp, params: &QpParams) -> Result<Address, ConnectError> {
        let link = &self.ports[qp.port].link;
        let mtu = largest_mtu(link.max_frame())?.min(params.mtu);
        let max_rd_atomic = params.max_rd_atomic.min(u8::MAX.into()) as u8;
        Ok(Address { mac: link.mac(), ip: qp.ip, qpn: qp.qp.0, psn: qp.psn, mtu, max_rd_atomic })
    }

    /// Connects to `peer`, whose address came out of band. Post receives before the peer may send.
    pub fn connect(&mut self, qp: UnconnectedQp, peer: &Address, params: &QpParams) -> Result<QueuePair, ConnectError> {
        let ours = self.address_of(&qp, params).inspect_err(|_| drop(self.qps.vacate(qp.qp)))?;
        let Some(ip) = Ip::between(ours.ip, peer.ip) else {
            self.discard_qp(qp);
            return Err(ConnectError::IpVersion(ours.ip, peer.ip));
        };
        let flow = Flow::new(ours.mac, peer.mac, None, ip, source_port(ours.qpn.get(), peer.qpn.get()));
        let config = params.config(&ours, peer);
        let mut rc = rc::QueuePair::new(config);
        for state in [State::Rtr, State::Rts] {
            rc.modify(state).expect("the way from Init to Rts is in the table");
        }
        let UnconnectedQp { qp, port, pd, cq, .. } = qp;
        self.qps.occupy(Slot { rc, flow, qp, port, pd, cq, is_listed: false });
        Ok(qp)
    }

    /// Gives up a queue pair that was never connected.
    pub fn discard_qp(&mut self, qp: UnconnectedQp) {
        self.qps.vacate(qp.qp);
    }

    /// Flushes a queue pair and forgets it. Its completions stay in the completion queue.
    pub fn destroy_qp(&mut self, qp: QueuePair) {
        self.fail_qp(qp, WcStatus::WrFlushErr);
        if let Some(slot) = self.qps.vacate(qp) {
            self.stats.ended.add(slot.rc.stats());
        }
    }

    /// Puts a queue pair into the error state: the oldest send ends with `status`, the rest is flushed.
    pub fn fail_qp(&mut self, qp: QueuePair, status: WcStatus) {
        self.with_qp(qp, |rc, scene| rc.fail(status, scene));
    }

    /// Posts to the send queue and sends what the window allows.
    #[inline]
    pub fn post_send(&mut self, qp: QueuePair, wr: SendWr) -> Result<(), Refused<SendWr>> {
        let refuse = |reason, wr| Err(Refused { reason, request: wr });
        let Some(slot) = self.qps.get_mut(qp.0) else { return refuse(PostError::NoQueuePair, wr) };
        if !self.cqs[slot.cq.0].reserve() {
            return refuse(PostError::CompletionQueueFull, wr);
        }
        if let Err(rejected) = slot.rc.post_send(wr.0) {
            self.cqs[slot.cq.0].release();
            return refuse(rejected.reason.into(), SendWr(rejected.request));
        }
        self.pump(qp);
        Ok(())
    }

    /// Posts a receive; all of the buffer may be filled.
    #[inline]
    pub fn post_recv(&mut self, qp: QueuePair, wr_id: u64, buffer: Buffer) -> Result<(), Refused<Buffer>> {
        let refuse = |reason, buffer| Err(Refused { reason, request: buffer });
        let Some(slot) = self.qps.get_mut(qp.0) else { return refuse(PostError::NoQueuePair, buffer) };
        if !self.cqs[slot.cq.0].reserve() {
            return refuse(PostError::CompletionQueueFull, buffer);
        }
        let len = u32::try_from(buffer.len()).unwrap_or(u32::MAX);
        if let Err(rejected) = slot.rc.post_recv(RecvRequest { wr_id, buffer, len }) {
            self.cqs[slot.cq.0].release();
            return refuse(rejected.reason.into(), rejected.request.buffer);
        }
        Ok(())
    }

    /// The next completion.
    #[inline]
    pub fn poll_cq(&mut self, cq: CompletionQueue) -> Option<WorkCompletion> {
        self.cqs[cq.0].pop()
    }

    /// The state of a queue pair; `None` where it was destroyed.
    pub fn qp_state(&self, qp: QueuePair) -> Option<State> {
        self.qps.get(qp.0).map(|slot| slot.rc.state())
    }

    /// Work requests of a queue pair's send queue that have not ended.
    pub fn sends_outstanding(&self, qp: QueuePair) -> usize {
        self.qps.get(qp.0).map_or(0, |slot| slot.rc.sends_outstanding())
    }

    /// Whether the link of a port is up, as of the last poll.
    pub fn link_state(&self, port: usize) -> LinkState {
        self.ports[port].state
    }

    /// The engine's counters, with those of all queue pairs added up.
    pub fn stats(&self) -> EngineStats {
        let mut stats = self.stats.clone();
        stats.queue_pairs = stats.ended;
        self.qps.iter().for_each(|slot| stats.queue_pairs.add(slot.rc.stats()));
        stats
    }

    /// How many ports there are.
    pub fn port_count(&self) -> usize {
        self.ports.len()
    }

    /// The counters of one port's link.
    pub fn link_stats(&self, port: usize) -> LinkStats {
        self.ports[port].link.stats()
    }

    /// A port's link.
    pub fn link(&self, port: usize) -> &L {
        &self.ports[port].link
    }

    /// A port's link, for traffic that is none of the engine's.
    pub fn link_mut(&mut self, port: usize) -> &mut L {
        &mut self.ports[port].link
    }

    /// The time of a port's clock.
    #[inline]
    pub fn now(&self) -> Nanos {
        self.ports.first().map_or(0, |port| port.link.now())
    }

    /// Runs `action` on a queue pair and its surroundings.
    #[inline]
    fn with_qp<R>(
        &mut self,
        qp: QueuePair,
        action: impl FnOnce(&mut rc::QueuePair<Buffer>, &mut Scene<'_, L>) -> R,
    ) -> Option<R> {
        let slot = self.qps.get_mut(qp.0)?;
        let mut scene = Scene {
            link: &mut self.ports[slot.port].link,
            flow: &mut slot.flow,
            keys: &mut self.keys,
            cq: &mut self.cqs[slot.cq.0],
            qp,
            pd: slot.pd,
        };
        let result = action(&mut slot.rc, &mut scene);
        if let Some(deadline) = slot.rc.deadline() {
            self.next_deadline = self.next_deadline.min(deadline);
        }
        Some(result)
    }
}

/// The largest path MTU whose full packets fit the link's frames.
fn largest_mtu(max_frame: usize) -> Result<Mtu, ConnectError> {
    let fits = |mtu: &Mtu| mtu.bytes() + roci_protocol::wire::MAX_OVERHEAD <= max_frame;
    Mtu::ALL.into_iter().rev().find(fits).ok_or(ConnectError::LinkTooShort(max_frame))
}

/// The UDP source port: entropy from both numbers, as Linux's `rdma_flow_label_to_udp_sport` makes it.
fn source_port(ours: u32, peers: u32) -> u16 {
    let product = u64::from(ours) * u64::from(peers);
    let folded = product ^ product >> 20 ^ product >> 40;
    let label = (folded & 0xf_ffff) as u32;
    ((label & 0x3fff) ^ (label >> 14)) as u16 | 0xc000
}
