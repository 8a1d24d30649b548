//! Bringing ports up: DPDK, the pool of packet buffers, each port's queues, and the wait for its peer.

use std::ptr::NonNull;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::clock::TscClock;
use super::configure::{self, Description, Facts};
use super::create::{create_devices, find_port, next_index, ring_of};
use super::descriptors;
use super::device::{Attachment, Creation};
use super::eal::{self, Eal, Setup, SyscallRefusal, ThreadMark};
use super::error::PortError;
use super::gate::{self, Gate};
use super::idle::{self, IdlePort};
use super::limits::{PORTS_MAX, RingSize};
use super::mbuf::SpareMbufs;
use super::pool::{self, MbufPool, PoolShare};
use super::port::{DpdkLink, LinkFacts, LinkPool};
use super::queues::PortQueue;
use super::station::InterfaceClaim;
use super::train::Train;
use super::watch::LinkWatch;
use super::zero_copy::ZeroCopy;
use crate::link::{BURST, LinkState, LinkStats, Share};

/// How long a client waits before it asks again for a server that is not there yet.
const RETRY: Duration = Duration::from_millis(5);
/// How long a server takes from naming its socket to listening on it, with much to spare.
const LISTEN: Duration = Duration::from_millis(50);
/// How long the kernel refuses something until a wait is given up: longer than a client takes to ask again.
const TROUBLE: Duration = Duration::from_secs(2);
/// How long after a refusal the next one is another trouble; a vhost port's lasts until its wait is over.
const FORGET: Duration = Duration::from_secs(3);
/// How long a client that was turned away waits before it asks again; each time twice as long, up to the longest.
///
/// A server that is at work already answers one message of the handshake each time that its gate opens. There are six of
/// them, so it may take more than half a second: a client that never waited for longer than the first time would ask for ever.
const ASK_AGAIN: Duration = Duration::from_millis(100);
const ASK_AGAIN_MAX: Duration = Duration::from_millis(1600);
// One refusal after another is no trouble yet, and the next one comes before the last is forgotten.
static_assertions::const_assert!(
    ASK_AGAIN_MAX.as_nanos() < TROUBLE.as_nanos() && TROUBLE.as_nanos() < FORGET.as_nanos()
);

/// How long, and on what condition, a peer is waited for.
struct Wait<'a> {
    deadline: Instant,
    patience: Duration,
    is_hopeless: &'a mut dyn FnMut() -> bool,
    trouble: Option<Trouble>,
}

/// What the kernel refuses while a peer is waited for.
struct Trouble {
    last: SyscallRefusal,
    began: Instant,
    seen: Instant,
}

impl Trouble {
    /// With what has been refused since. What ends by itself and does not come back within the time is forgotten.
    fn after(before: Option<Self>) -> Option<Self> {
        let now = Instant::now();
        let before = before.filter(|trouble| now - trouble.seen < FORGET);
        let Some(last) = SyscallRefusal::take() else { return before };
        Some(Self { last, began: before.map_or(now, |trouble| trouble.began), seen: now })
    }

    /// Whether it has lasted. A vhost port is refused something once: its driver does not try again.
    fn is_lasting(&self, attachment: &Attachment) -> bool {
        let until = if attachment.tries_again() { self.seen } else { Instant::now() };
        until - self.began > TROUBLE
    }
}

impl Wait<'_> {
    /// A virtio-user port connects while DPDK starts, and cannot be asked to try again: its server comes first.
    fn for_server_socket(&mut self, attachment: &Attachment) -> Result<(), PortError> {
        let Some(socket) = attachment.socket_to_find() else { return Ok(()) };
        while !socket.exists() {
            self.a_moment(attachment)?;
        }
        // The socket's name appears a moment before it listens.
        std::thread::sleep(LISTEN);
        Ok(())
    }

    /// A vhost client reports its link as up, though its server may have received only half of what it needs.
    fn no_half_port(&mut self, attachments: &[Attachment]) -> Result<(), PortError> {
        let Some(half) = attachments.iter().find(|port| port.device().is_point_to_point() && !port.tries_again())
        else {
            return Ok(());
        };
        self.trouble = Trouble::after(self.trouble.take());
        let refused = |trouble: &Trouble| PortError::Refused { device: half.device().to_string(), cause: trouble.last };
        self.trouble.as_ref().map_or(Ok(()), |trouble| Err(refused(trouble)))
    }

    fn a_moment(&mut self, attachment: &Attachment) -> Result<(), PortError> {
        let device = || attachment.device().to_string();
        self.trouble = Trouble::after(self.trouble.take());
        let is_late = Instant::now() > self.deadline;
        let is_hopeless = !is_late && (self.is_hopeless)();
        match &self.trouble {
            Some(trouble) if is_late || is_hopeless || trouble.is_lasting(attachment) => {
                return Err(PortError::Refused { device: device(), cause: trouble.last });
            }
            _ if is_late => return Err(PortError::NoLink { device: device(), seconds: self.patience.as_secs() }),
            _ if is_hopeless => return Err(PortError::Hopeless(device())),
            _ => {}
        }
        // Where other ports are at work already, the thread that shakes hands is parked most of the time.
        gate::let_work();
        std::thread::sleep(RETRY);
        Ok(())
    }
}

impl DpdkLink {
    /// Creates one port for each attachment, and waits until every link is up. Gives up after `patience`, or as soon as
    /// `is_hopeless` says so.
    ///
    /// The first call of a process starts DPDK. Later ones, from any thread and at any time, add their ports to it, which
    /// must be virtual: NICs and EAL lines end in [`EalError::AlreadyStarted`](super::EalError::AlreadyStarted) then. A link may move
    /// to another thread, which is then none of DPDK's any more and does without its caches of packet buffers: open links where they
    /// are used. Without NICs the first call reserves memory for as many ports as DPDK can have, each opened by a call of its
    /// own; beyond that, and when the ports that were kept for later have given theirs up, it is [`PortError::NoMemory`].
    ///
    /// A port with several queues ([`Attachment::with_queues`]) is opened by the first call that names its device; that
    /// call and later ones get a queue each, the lowest that is free. It is closed when the last of these links is dropped.
    pub fn open_all(
        attachments: &[Attachment],
        patience: Duration,
        is_hopeless: &mut dyn FnMut() -> bool,
    ) -> Result<Vec<Self>, PortError> {
        eal::check_not_inherited()?;
        // What was refused before was refused to others.
        let _ = SyscallRefusal::take();
        let mut wait = Wait { deadline: Instant::now() + patience, patience, is_hopeless, trouble: None };
        if let Some(shared) = attachments.iter().find(|attachment| attachment.queues() > 1) {
            return Self::open_queue(shared, attachments.len(), &mut wait).map(|link| vec![link]);
        }
        descriptors::check(attachments, Eal::running(&Setup::begin()).is_some())?;
        for attachment in attachments {
            wait.for_server_socket(attachment)?;
        }
        let mut links = Vec::new();
        Self::create_all(attachments, &mut links)?;
        // A client cannot start before its server: all servers first, or two processes wait for each other.
        let (servers, clients): (Vec<_>, Vec<_>) =
            links.iter_mut().zip(attachments).partition(|(_, attachment)| attachment.is_server());
        for (link, attachment) in servers.into_iter().chain(clients) {
            link.start(attachment, &mut wait)?;
        }
        for (link, attachment) in links.iter_mut().zip(attachments) {
            link.wait_up(attachment, &mut wait)?;
        }
        wait.no_half_port(attachments)?;
        if attachments.iter().any(Attachment::needs_gate) {
            close_gate(&mut links)?;
        }
        Ok(links)
    }

    /// Takes a queue of a port that several links share.
    fn open_queue(attachment: &Attachment, ports: usize, wait: &mut Wait<'_>) -> Result<Self, PortError> {
        if ports != 1 {
            return Err(PortError::NotAlone(attachment.device().to_string()));
        }
        let claim = PortQueue::take(attachment)?;
        if let Some(eal) = Eal::running(&Setup::begin()) {
            Eal::enter_thread(eal);
        }
        let (queue, queues) = (claim.queue(), claim.queues());
        let mut link =
            Self::assemble(attachment, &claim.facts(), claim.pool(), (queue, queues), TscClock::of_process());
        link.claim = Some(claim);
        link.wait_up(attachment, wait)?;
        Ok(link)
    }

    /// Creates and configures the ports, but for those that were kept. After a failure those in `links` are closed by the
    /// caller: that needs the right to set up, which this function has until it returns.
    pub(super) fn create_all(attachments: &[Attachment], links: &mut Vec<Self>) -> Result<(), PortError> {
        let setup = Setup::begin();
        let kept: Vec<_> = attachments.iter().map(|attachment| idle::take(&setup, attachment)).collect();
        let missing = attachments.iter().zip(&kept).filter(|(_, kept)| kept.is_none());
        let missing: Vec<_> = missing.map(|(attachment, _)| attachment.clone()).collect();
        let ring = ring_of(&missing);
        let mut pools = kept.iter().flatten().map(|port| port.place.pool());
        let pool = pools.find(|pool| pool.has_room(missing.len(), ring)).cloned();
        let mut created = Vec::new();
        let outcome = Self::create_missing(&setup, &missing, pool, &mut created);
        let mut created = created.into_iter();
        links.extend(kept.into_iter().filter_map(|kept| match kept {
            Some(port) => Some(Self::revive(port)),
            None => created.next(),
        }));
        outcome
    }

    /// Creates ports on `pool`, if there is one with room for them.
    fn create_missing(
        setup: &Setup,
        attachments: &[Attachment],
        pool: Option<Arc<MbufPool>>,
        links: &mut Vec<Self>,
    ) -> Result<(), PortError> {
        if let (true, Some(eal)) = (attachments.is_empty(), Eal::running(setup)) {
            Eal::enter_thread(eal);
            return Ok(());
        }
        let creations: Vec<_> = attachments.iter().map(|attachment| attachment.creation(next_index())).collect();
        attachments.iter().filter_map(Attachment::lasting_socket).for_each(idle::remove_stale);
        let eal = create_devices(setup, attachments, &creations)?;
        Eal::enter_thread(eal);
        let clock = TscClock::of_process();
        let pool = pool.map_or_else(|| Self::provide_pool(setup, eal, attachments.len(), ring_of(attachments)), Ok);
        let configured = pool.and_then(|pool| {
            attachments.iter().zip(&creations).try_for_each(|(attachment, creation)| {
                links.push(Self::configure(eal, attachment, creation.name(), PoolShare::take(&pool), clock)?);
                Ok(())
            })
        });
        if configured.is_err() {
            creations[links.len()..]
                .iter()
                .filter_map(Creation::name)
                .for_each(|name| Eal::remove_device(eal, setup, name));
        }
        configured
    }

    /// Provides a pool for so many ports. Where there is no memory for it, ports that are kept for later give theirs up, one
    /// after the other: a pool lasts as long as any of its ports. They do so before memory is used up where that can be
    /// foreseen: devices take of it too, and without any they fail in a handshake and say nothing.
    fn provide_pool(setup: &Setup, eal: Eal, ports: usize, ring: RingSize) -> Result<Arc<MbufPool>, PortError> {
        loop {
            if let Some(spare) = MbufPool::reuse(ports, ring) {
                return Ok(spare);
            }
            if pool::places() + ports > PORTS_MAX && idle::close_one(setup) {
                continue;
            }
            match MbufPool::create(eal, next_index(), ports, ring) {
                Err(PortError::NoMemory | PortError::NoHugePages(_)) if idle::close_one(setup) => {}
                outcome => return outcome,
            }
        }
    }

    /// A link on a port that was kept.
    pub(super) fn revive(port: IdlePort) -> Self {
        let IdlePort { attachment, facts, place } = port;
        place.revive();
        let mut link = Self::assemble(&attachment, &facts, place.as_non_null(), (0, 1), TscClock::of_process());
        link.pool.place = Some(place);
        link.pool.lasting = Some((attachment, facts));
        link
    }

    fn configure(
        eal: Eal,
        attachment: &Attachment,
        name: Option<&str>,
        place: PoolShare,
        clock: TscClock,
    ) -> Result<Self, PortError> {
        let port = find_port(attachment, name)?;
        let facts = configure::set_up(eal, attachment, port, &[place.as_non_null()])?;
        let mut link = Self::assemble(attachment, &facts, place.as_non_null(), (0, 1), clock);
        link.pool.place = Some(place);
        link.pool.lasting = attachment.lasting_socket().map(|_| (attachment.clone(), facts));
        Ok(link)
    }

    /// A link on a port that is configured.
    fn assemble(
        attachment: &Attachment,
        facts: &Facts,
        pool: NonNull<dpdk_sys::rte_mempool>,
        (queue, queues): (u16, u16),
        clock: TscClock,
    ) -> Self {
        Self {
            port: facts.port,
            share: Share::of(queue, queues),
            claim: None,
            pool: LinkPool {
                buffers: pool,
                spare: SpareMbufs::new(),
                place: None,
                lasting: None,
                thread: ThreadMark::current(),
            },
            clock,
            facts: LinkFacts {
                mac: facts.mac,
                max_frame: facts.max_frame,
                burst: BURST as u16,
                suspicious: facts.checks.suspicious(),
                description: Description::of(facts, queue, queues),
                _station: InterfaceClaim::take(attachment.device()),
            },
            watch: LinkWatch::new(attachment),
            tx: arrayvec::ArrayVec::new(),
            gate: None,
            train: Train::new(attachment.is_ring_in_memory()),
            zero_copy: ZeroCopy::new(facts.external),
            stats: LinkStats::default(),
        }
    }

    /// Starts the port; a client's start fails until its server is there.
    fn start(&mut self, attachment: &Attachment, wait: &mut Wait<'_>) -> Result<(), PortError> {
        loop {
            // SAFETY: the port is configured.
            let status = unsafe { dpdk_sys::rte_eth_dev_start(self.port) };
            if status == 0 {
                let status = configure::hear_multicast(attachment, self.port);
                return configure::check(attachment, "rte_eth_allmulticast_enable", status);
            }
            if !attachment.device().is_point_to_point() {
                return configure::check(attachment, "rte_eth_dev_start", status);
            }
            wait.a_moment(attachment)?;
        }
    }

    /// Waits for the link. A client that asked a server too early was turned away and does not ask again by itself:
    /// it is started anew now and then.
    fn wait_up(&mut self, attachment: &Attachment, wait: &mut Wait<'_>) -> Result<(), PortError> {
        let (mut asked, mut patience) = (Instant::now(), ASK_AGAIN);
        while self.look() == LinkState::Down {
            if attachment.is_turned_away_early() && asked.elapsed() > patience {
                // SAFETY: the port is configured, and no burst has run on it yet; a gated interrupt thread stays parked.
                gate::held(|| unsafe { dpdk_sys::rte_eth_dev_stop(self.port) });
                self.start(attachment, wait)?;
                (asked, patience) = (Instant::now(), (2 * patience).min(ASK_AGAIN_MAX));
            }
            wait.a_moment(attachment)?;
        }
        Ok(())
    }
}

/// Each link has a side of the gate: its engine may move to another thread than those of the others.
pub(super) fn close_gate(links: &mut [DpdkLink]) -> Result<(), PortError> {
    for link in links {
        let gate = Gate::close().map_err(|cause| {
            let device = "memif".to_owned();
            PortError::Call { device, call: "the interrupt thread's gate", cause: cause.to_string() }
        })?;
        link.gate = Some(gate);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use rustix::io::Errno;

    use super::super::device::Device;
    use super::*;

    #[test]
    fn a_refusal_lasts_where_it_repeats_or_is_never_retried() {
        let port = |device| Attachment::pair(device, Path::new("/run/x"), true, [2, 0, 0, 0, 0, 1]);
        let (memif, vhost) = (port(Device::Memif), port(Device::Vhost));
        let now = Instant::now();
        let long_ago = now.checked_sub(2 * TROUBLE).expect("this machine runs for longer");
        let last = SyscallRefusal { call: c"accept", reason: Errno::MFILE };
        let once = Trouble { last, began: long_ago, seen: long_ago };
        assert!(!once.is_lasting(&memif) && once.is_lasting(&vhost));
        let again = Trouble { last, began: long_ago, seen: now };
        assert!(again.is_lasting(&memif) && again.is_lasting(&vhost));
        let fresh = Trouble { last, began: now, seen: now };
        assert!(!fresh.is_lasting(&memif) && !fresh.is_lasting(&vhost));
        assert!(Trouble::after(Some(once)).is_none(), "what does not come back is forgotten");
    }
}
