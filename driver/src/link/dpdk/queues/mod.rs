//! Ports that several engines of a process share: a receive and a transmit queue for each, one station, one address.
//!
//! The NIC spreads flows over the queues by a hash (RSS) of addresses and UDP ports, and knows nothing of queue pairs. So a
//! frame may come in at any queue. Which engine it is for is said by the leading bits of its queue pair's number
//! ([`Share`](crate::link::Share)), and who finds it hands it over, through a bounded ring. A full ring loses it, as a
//! full receive ring of the device does, and the transport repairs that.
//!
//! A queue that no engine has yet, or any more, is emptied by the others. Questions of neighbours, pings and management
//! datagrams go to the *steward*, the engine with the lowest queue; answers about neighbours to every engine, as each has
//! its own table. Frames from one engine to another on the same port never leave the process: no NIC sends back what is for
//! its own station.

mod deliver;
mod handover;
mod steer;

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crossbeam::utils::CachePadded;

use super::configure::{self, Facts};
use super::create;
use super::device::{Attachment, Creation};
use super::eal::{Eal, Setup};
use super::error::PortError;
use super::pool::LastingPool;
use crate::link::LinkState;
use handover::Handover;

pub(super) use handover::HANDOVER;
pub(super) use steer::is_without_udp_checksum;

/// The queue has no owner; or another engine empties it just now; or an engine has it.
const FREE: u8 = 0;
const FOSTERED: u8 = 1;
const HELD: u8 = 2;

/// The shared ports of the process, and the pools of those that were closed.
static PORTS: Mutex<OpenPorts> = Mutex::new(OpenPorts { open: Vec::new(), spare: Vec::new() });

/// The open ports of the process, and the pools of closed ones.
struct OpenPorts {
    open: Vec<Arc<SharedPort>>,
    spare: Vec<LastingPool>,
}

/// What the engines of a port share.
struct SharedPort {
    attachment: Attachment,
    facts: Facts,
    pools: Vec<LastingPool>,
    queues: Vec<CachePadded<QueueState>>,
    /// Queues that no engine has.
    free: AtomicUsize,
    steward: AtomicU16,
    is_up: AtomicBool,
    /// Held by who asks the device for its state: control calls are not made for several threads.
    asking: Mutex<()>,
}

/// A queue of a shared port, and which engine holds it.
struct QueueState {
    holder: AtomicU8,
    handover: Handover,
}

/// An engine's queue of a shared port. The last one that is dropped closes the port.
pub(super) struct PortQueue {
    shared: Arc<SharedPort>,
    queue: u16,
}

impl PortQueue {
    /// Takes a queue of the port of `attachment`, which is opened where no engine has it open.
    pub(super) fn take(attachment: &Attachment) -> Result<Self, PortError> {
        let setup = Setup::begin();
        let mut ports = ports();
        let device = || attachment.device().to_string();
        let is_it = |port: &&Arc<SharedPort>| port.attachment.device() == attachment.device();
        let shared = match ports.open.iter().find(is_it) {
            Some(port) if port.attachment != *attachment => return Err(PortError::OtherSettings(device())),
            Some(port) => port.clone(),
            None => {
                let port = Arc::new(SharedPort::open(&setup, attachment, &mut ports.spare)?);
                ports.open.push(port.clone());
                port
            }
        };
        let Some(queue) = shared.take_queue() else {
            return Err(PortError::NoQueue { device: device(), queues: attachment.queues() });
        };
        Ok(Self { shared, queue })
    }

    pub(super) fn queue(&self) -> u16 {
        self.queue
    }

    pub(super) fn queues(&self) -> u16 {
        self.shared.attachment.queues()
    }

    pub(super) fn facts(&self) -> Facts {
        self.shared.facts
    }

    pub(super) fn pool(&self) -> NonNull<dpdk_sys::rte_mempool> {
        self.shared.pools[usize::from(self.queue)].as_non_null()
    }

    /// Whether this engine speaks for all.
    pub(super) fn is_steward(&self) -> bool {
        self.shared.steward.load(Ordering::Relaxed) == self.queue
    }

    /// The link's state, as who asked last has seen it: this engine, unless another one asks just now.
    pub(super) fn look(&self, ask: impl FnOnce() -> LinkState) -> LinkState {
        if let Ok(_asking) = self.shared.asking.try_lock() {
            self.shared.is_up.store(ask() == LinkState::Up, Ordering::Relaxed);
        }
        if self.shared.is_up.load(Ordering::Relaxed) { LinkState::Up } else { LinkState::Down }
    }
}

impl Drop for PortQueue {
    fn drop(&mut self) {
        let setup = Setup::begin();
        let mut ports = ports();
        let OpenPorts { open, spare } = &mut *ports;
        self.shared.give_back(self.queue);
        if self.shared.free.load(Ordering::Relaxed) == self.shared.queues.len() {
            open.retain(|port| !Arc::ptr_eq(port, &self.shared));
            configure::close(&setup, self.shared.facts.port);
            spare.extend(&self.shared.pools);
        }
    }
}

impl SharedPort {
    /// Creates, configures and starts the port.
    fn open(setup: &Setup, attachment: &Attachment, spare: &mut Vec<LastingPool>) -> Result<Self, PortError> {
        let creation = attachment.creation(create::next_index());
        let eal = create::create_devices(setup, std::slice::from_ref(attachment), std::slice::from_ref(&creation))?;
        let opened = Self::configure(eal, attachment, &creation, spare);
        if let (Err(_), Some(name)) = (&opened, creation.name()) {
            Eal::remove_device(eal, setup, name);
        }
        opened
    }

    fn configure(
        eal: Eal,
        attachment: &Attachment,
        creation: &Creation,
        spare: &mut Vec<LastingPool>,
    ) -> Result<Self, PortError> {
        let port = create::find_port(attachment, creation.name())?;
        let count = attachment.queues();
        let mut pools = Vec::new();
        let configured = (0..count)
            .try_for_each(|_| {
                pools.push(LastingPool::provide(eal, spare, create::next_index(), count)?);
                Ok(())
            })
            .and_then(|()| {
                let places: Vec<_> = pools.iter().map(|pool| pool.as_non_null()).collect();
                configure::set_up(eal, attachment, port, &places)
            })
            .and_then(|facts| configure::start(attachment, port).map(|()| facts));
        let facts = configured.inspect_err(|_| spare.extend(&pools))?;
        let queue = |_| CachePadded::new(QueueState { holder: AtomicU8::new(FREE), handover: Handover::new() });
        Ok(Self {
            attachment: attachment.clone(),
            facts,
            pools,
            queues: (0..count).map(queue).collect(),
            free: AtomicUsize::new(count.into()),
            steward: AtomicU16::new(0),
            is_up: AtomicBool::new(false),
            asking: Mutex::new(()),
        })
    }

    /// The lowest queue that no engine has. The caller has the table of ports.
    fn take_queue(&self) -> Option<u16> {
        let queue = (0..).zip(&self.queues).find_map(|(queue, place)| place.take().then_some(queue))?;
        self.free.fetch_sub(1, Ordering::Relaxed);
        self.choose_steward();
        Some(queue)
    }

    fn give_back(&self, queue: u16) {
        let place = &self.queues[usize::from(queue)];
        place.holder.store(FREE, Ordering::Release);
        // Who looked a moment ago may still hand over a frame: it stays for the queue's next engine, or goes with the port.
        while place.handover.take().is_some() {}
        self.free.fetch_add(1, Ordering::Relaxed);
        self.choose_steward();
    }

    fn choose_steward(&self) {
        let held = (0..).zip(&self.queues).find(|(_, queue)| queue.is_held());
        self.steward.store(held.map_or(0, |(queue, _)| queue), Ordering::Relaxed);
    }
}

impl QueueState {
    /// `false` where an engine has it. Waits while another engine empties it: that is one burst.
    fn take(&self) -> bool {
        loop {
            match self.holder.compare_exchange(FREE, HELD, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return true,
                Err(HELD) => return false,
                Err(_) => std::thread::yield_now(),
            }
        }
    }

    #[inline]
    fn is_held(&self) -> bool {
        self.holder.load(Ordering::Relaxed) == HELD
    }

    /// Runs a burst on a queue that no engine has, unless another one does so just now.
    fn foster(&self, burst: impl FnOnce()) {
        if self.holder.compare_exchange(FREE, FOSTERED, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            burst();
            self.holder.store(FREE, Ordering::Release);
        }
    }
}

fn ports() -> MutexGuard<'static, OpenPorts> {
    PORTS.lock().unwrap_or_else(PoisonError::into_inner)
}
