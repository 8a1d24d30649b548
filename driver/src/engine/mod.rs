//! The engine: one poll loop that owns its ports, queue pairs and memory. It shares nothing but the arena, whose
//! buffers may be filled and dropped on other threads.

mod address_handles;
mod by_key;
mod check;
mod cm;
mod connection;
mod datagram;
mod deferred_acks;
mod devices;
mod doorbell;
mod env;
mod failed_frames;
mod fast_path;
mod full_ports;
mod held;
mod icrc_check;
mod identifications;
mod memory;
mod poll;
mod port;
mod port_turns;
mod post_error;
mod retransmission_log;
mod schedule;
mod shared;
mod sink;
mod station;
mod stats;
mod turns;
mod wheel;

use std::collections::BTreeMap;
use std::sync::Arc;

use rand::SeedableRng;
use rand::rngs::StdRng;
use roci_protocol::rc::{self, State};
use roci_protocol::{Nanos, Qpn};

use crate::cq::{Notify, Queue, WorkCompletion};
use crate::event::{Event, Events};
use crate::handles::{CompletionQueue, QueuePair};
use crate::link::{Link, LinkState, LinkStats};
use crate::mem::{Arena, ArenaError, Buffer, ForkWatch, KeyTable};
use crate::qp::QpTable;
use crate::srq::SharedQueue;

pub use address_handles::{AddressHandle, AddressHandleError};
pub use datagram::DatagramQp;
pub use memory::{MemoryRegion, MemoryWindow, WindowView};
pub use port::{PortConfig, PortConfigError};
pub use sink::Sink;
pub use stats::EngineStats;

use address_handles::AddressHandles;
use cm::Management;
use env::{EngineEnv, NamedQueue};
use held::HeldPackets;
use memory::EngineMemory;
use port::Port;
pub use post_error::PostError;
use schedule::Schedule;
use sink::NoSink;

/// The surroundings of a queue pair, by the fields of the engine: its slot stays borrowed beside them.
macro_rules! scene {
    ($engine:ident, $slot:ident, $current:expr) => {
        scene!($engine, $slot, $current, NoSink)
    };
    ($engine:ident, $slot:ident, $current:expr, $sink:expr) => {
        EngineEnv {
            link: &mut $engine.ports[$slot.port].link,
            flow: &mut $slot.flow,
            keys: &mut $engine.memory.keys,
            completions: NamedQueue { queue: &mut $engine.cqs[$slot.cq.0], cq: $slot.cq },
            stock: match $slot.shared {
                None => None,
                Some(srq) => $engine.stocks.get_mut(srq.0),
            },
            events: &mut $engine.events,
            held: &mut $engine.held,
            current: $current,
            qp: $slot.qp,
            pd: $slot.pd,
            cnp_class: $slot.cnp_class,
            sink: $sink,
        }
    };
}

/// A queue pair has done something: its state may be news, and it may want to be looked at at another time.
macro_rules! settled {
    ($engine:ident, $slot:ident) => {
        if $slot.rc.state() != State::Rts {
            let has_failed = $slot.tell_of_state(&mut $engine.events);
            if has_failed {
                $engine.held.forget($slot.qp.0);
            }
        }
        if let Some(at) = $slot.needs_waking() {
            $engine.schedule.wake($slot.qp, at);
        }
    };
}

use {scene, settled};

/// A poll loop, and what it polls for.
pub struct Engine<L: Link> {
    ports: Vec<Port<L>>,
    qps: QpTable,
    cqs: Vec<Queue>,
    stocks: Vec<SharedQueue>,
    datagrams: BTreeMap<Qpn, datagram::Datagrams>,
    address_handles: AddressHandles,
    events: Events,
    held: HeldPackets,
    /// In a place of its own: polls hardly look at it.
    cm: Box<Management>,
    memory: EngineMemory,
    schedule: Schedule,
    stats: EngineStats,
}

impl<L: Link> Engine<L> {
    /// An engine without ports, with an arena of `arena_bytes` of the largest pages that can be had.
    pub fn new(arena_bytes: usize) -> Result<Self, ArenaError> {
        Self::on(Arena::new(arena_bytes)?)
    }

    /// An engine without ports, whose buffers are cut from `arena`.
    pub fn on(arena: Arc<Arena>) -> Result<Self, ArenaError> {
        Self::with_entropy(arena, StdRng::from_os_rng())
    }

    /// The same, for simulations: everything that is chosen by chance (PSNs, numbers, keys, identifiers) follows from `seed`,
    /// so that a run can be repeated. An attacker who knows the seed can compute all of it: never use it on a network.
    pub fn seeded(arena: Arc<Arena>, seed: u64) -> Result<Self, ArenaError> {
        Self::with_entropy(arena, StdRng::seed_from_u64(seed))
    }

    fn with_entropy(arena: Arc<Arena>, mut entropy: StdRng) -> Result<Self, ArenaError> {
        let qps = QpTable::new(StdRng::from_rng(&mut entropy));
        let keys = KeyTable::new(StdRng::from_rng(&mut entropy));
        Ok(Self {
            ports: Vec::new(),
            qps,
            cqs: Vec::new(),
            stocks: Vec::new(),
            datagrams: BTreeMap::new(),
            address_handles: AddressHandles::default(),
            events: Events::default(),
            held: HeldPackets::default(),
            cm: Box::new(Management::new(&mut entropy)),
            memory: EngineMemory::new(keys, arena)?,
            schedule: Schedule::new(),
            stats: EngineStats::default(),
        })
    }

    /// Whether this process was forked from the one that opened the engine. Ports, connections and registrations stay
    /// with that one: here nothing is polled, every work request is refused with [`PostError::Forked`], buffers and regions
    /// are refused too, and dropping the engine ends nothing. Buffers from before the fork may be of memory that both
    /// processes share: a child must not write to them.
    #[inline]
    pub fn is_forked(&self) -> bool {
        self.memory.registrations.is_forked()
    }

    /// What answers [`Engine::is_forked`] on other threads, as long as it is kept.
    pub fn fork_watch(&self) -> ForkWatch {
        self.memory.registrations.fork_watch()
    }

    /// A completion queue for at most `capacity` work requests posted and not yet polled.
    pub fn create_cq(&mut self, capacity: usize) -> CompletionQueue {
        self.cqs.push(Queue::new(capacity));
        CompletionQueue(self.cqs.len() - 1)
    }

    /// Lets a completion queue hold so many completions, if that is more than before (`ibv_resize_cq`).
    pub fn resize_cq(&mut self, cq: CompletionQueue, capacity: usize) {
        self.cqs[cq.0].grow(capacity);
    }

    /// Asks for one [`Event::Completion`].
    pub fn request_notify(&mut self, cq: CompletionQueue, notify: Notify) {
        self.cqs[cq.0].arm(notify);
    }

    /// Says whether the sink of [`Engine::poll_into`] is offered what would complete in this queue; it is, unless this says otherwise.
    /// Where several users share an engine, one user's sink does not know the other's names (`wr_id`).
    pub fn offer_to_sinks(&mut self, cq: CompletionQueue, is_offered: bool) {
        self.cqs[cq.0].set_known_to_sinks(is_offered);
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop()
    }

    /// Whether a completion waits.
    #[inline]
    pub fn has_completions(&self, cq: CompletionQueue) -> bool {
        !self.cqs[cq.0].is_empty()
    }

    /// The next completion.
    #[inline]
    pub fn poll_cq(&mut self, cq: CompletionQueue) -> Option<WorkCompletion> {
        self.cqs[cq.0].pop()
    }

    /// Whether the link of a port is up, as of the last poll.
    pub fn link_state(&self, port: usize) -> LinkState {
        self.ports[port].state
    }

    /// The engine's counters, with those of all queue pairs added up.
    pub fn stats(&self) -> EngineStats {
        let mut stats = self.stats.clone();
        stats.queue_pairs = *stats.ended;
        stats.events_lost = self.events.lost;
        self.datagrams.values().for_each(|datagrams| stats.datagrams.add(datagrams.ud.stats()));
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

    /// Looks after the links as a poll does, but receives nothing: for a caller that does not poll yet. The next poll reports
    /// what has become of them.
    pub fn maintain_links(&mut self) {
        for port in &mut self.ports {
            let _ = port.link.maintain(port.link.now());
        }
    }

    /// The time of a port's clock.
    #[inline]
    pub fn now(&self) -> Nanos {
        self.ports.first().map_or(0, |port| port.link.now())
    }

    /// Whether a poll has come long after the one before it, since this was last asked: who polls seldom is to do at each what those who
    /// poll often do at few.
    #[inline]
    pub fn take_late(&mut self) -> bool {
        self.schedule.take_late()
    }

    /// Runs `action` on a queue pair and its surroundings.
    #[inline]
    fn with_qp<R>(
        &mut self,
        qp: QueuePair,
        action: impl FnOnce(&mut rc::RcQueuePair<Buffer>, &mut EngineEnv<'_, L>) -> R,
    ) -> Option<R> {
        self.with_packet(qp, &[], action)
    }

    /// The same, for a packet (from the BTH to the ICRC) that the queue pair may keep.
    #[inline]
    fn with_packet<R>(
        &mut self,
        qp: QueuePair,
        current: &[u8],
        action: impl FnOnce(&mut rc::RcQueuePair<Buffer>, &mut EngineEnv<'_, L>) -> R,
    ) -> Option<R> {
        let slot = self.qps.get_mut(qp.0)?;
        let mut scene = scene!(self, slot, current);
        let result = action(&mut slot.rc, &mut scene);
        settled!(self, slot);
        Some(result)
    }
}

impl<L: Link> Drop for Engine<L> {
    fn drop(&mut self) {
        if self.is_forked() {
            // The ports are the parent's, and shared with it: closing them here would close them there.
            std::mem::forget(std::mem::take(&mut self.ports));
        } else if !std::thread::panicking() {
            self.ring_doorbell();
            self.acknowledge_now();
            self.cm_disconnect_all();
        }
    }
}
