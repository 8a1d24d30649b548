//! Bringing ports up: DPDK, the pool of packet buffers, each port's queues, and the wait for its peer.

use std::ffi::CString;
use std::mem::zeroed;
use std::ptr::NonNull;
use std::time::{Duration, Instant};

use roci_protocol::wire::MacAddr;
use thiserror::Error;

use super::clock::Clock;
use super::device::{Attachment, JUMBO_FRAME};
use super::eal::{Eal, EalError, describe, last_error};
use super::gate::Gate;
use super::port::{DpdkLink, GateKeeper, SharedGate, TX_QUEUE};
use crate::link::{BURST, HELD_FRAMES, LinkState};

const DESCRIPTORS: u16 = 512;
const POOL_CACHE: u32 = 256;
/// Packet buffers beside those of the ports: what the pool's cache, a batch and early frames hold.
const POOL_BASE: u32 = 2 * POOL_CACHE + (BURST + HELD_FRAMES) as u32;
/// Packet buffers of a port: both its rings full, one burst, and the transmit queue.
const POOL_PER_PORT: u32 = 2 * DESCRIPTORS as u32 + (BURST + TX_QUEUE) as u32;
/// Bytes of a packet buffer for the packet, and with all that belongs to it.
const ROOM: usize = JUMBO_FRAME + dpdk_sys::RTE_PKTMBUF_HEADROOM as usize;
const BUFFER: usize = ROOM + 512;
/// How long a client waits before it asks again for a server that is not there yet.
const RETRY: Duration = Duration::from_millis(5);
/// How long a server takes from naming its socket to listening on it, with much to spare.
const LISTEN: Duration = Duration::from_millis(50);
/// How long a client that was turned away waits before it asks again.
const ASK_AGAIN: Duration = Duration::from_millis(100);

/// Why a port could not be used.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum PortError {
    /// DPDK did not start.
    #[error(transparent)]
    Eal(#[from] EalError),
    /// A call on the port failed.
    #[error("device {device}: {call} failed: {cause}")]
    Call {
        /// Whose port.
        device: String,
        /// Which of DPDK's functions.
        call: &'static str,
        /// DPDK's reason.
        cause: String,
    },
    /// The arguments created no port.
    #[error("device {0}: DPDK could not create its port (RUST_LOG=debug shows its log)")]
    NoPort(String),
    /// The caller gave up waiting for the other end.
    #[error("device {0}: the peer will not come")]
    Hopeless(String),
    /// The other end did not come up in time.
    #[error("device {device}: no link within {seconds} s: the peer is missing")]
    NoLink {
        /// Whose port.
        device: String,
        /// How long it was waited for.
        seconds: u64,
    },
}

/// How long, and on what condition, a peer is waited for.
struct Wait<'a> {
    deadline: Instant,
    patience: Duration,
    is_hopeless: &'a mut dyn FnMut() -> bool,
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

    fn a_moment(&mut self, attachment: &Attachment) -> Result<(), PortError> {
        let device = || attachment.device().to_string();
        if Instant::now() > self.deadline {
            return Err(PortError::NoLink { device: device(), seconds: self.patience.as_secs() });
        }
        if (self.is_hopeless)() {
            return Err(PortError::Hopeless(device()));
        }
        std::thread::sleep(RETRY);
        Ok(())
    }
}

impl DpdkLink {
    /// Starts DPDK with one port for each attachment, and waits until every link is up.
    ///
    /// Can succeed once per process. Gives up after `patience`, or as soon as `is_hopeless` says so.
    pub fn open_all(
        attachments: &[Attachment],
        patience: Duration,
        is_hopeless: &mut dyn FnMut() -> bool,
    ) -> Result<Vec<Self>, PortError> {
        let mut names = Vec::new();
        let mut arguments = Vec::new();
        for (index, attachment) in attachments.iter().enumerate() {
            let (name, words) = attachment.arguments(index);
            names.push(name);
            arguments.extend(words);
        }
        let mut wait = Wait { deadline: Instant::now() + patience, patience, is_hopeless };
        for attachment in attachments {
            wait.for_server_socket(attachment)?;
        }
        let buffers = POOL_BASE + POOL_PER_PORT * attachments.len() as u32;
        let eal = Eal::start(attachments.iter().all(Attachment::is_virtual), buffers as usize * BUFFER, &arguments)?;
        let pool = create_pool(buffers)?;
        let clock = Clock::start();
        let mut links = Vec::new();
        for (attachment, name) in attachments.iter().zip(names) {
            links.push(Self::configure(eal, attachment, name.as_deref(), pool, clock)?);
        }
        // A client cannot start before its server: all servers first, or two processes wait for each other.
        let (servers, clients): (Vec<_>, Vec<_>) =
            links.iter_mut().zip(attachments).partition(|(_, attachment)| attachment.is_server());
        for (link, attachment) in servers.into_iter().chain(clients) {
            link.start(attachment, &mut wait)?;
        }
        for (link, attachment) in links.iter_mut().zip(attachments) {
            link.wait_up(attachment, &mut wait)?;
        }
        if attachments.iter().any(Attachment::needs_gate) {
            close_gate(&mut links)?;
        }
        Ok(links)
    }

    fn configure(
        _: Eal,
        attachment: &Attachment,
        name: Option<&str>,
        pool: NonNull<dpdk_sys::rte_mempool>,
        clock: Clock,
    ) -> Result<Self, PortError> {
        let port = find_port(attachment, name)?;
        let check = |call, status| check(attachment, call, status);
        // SAFETY: `port` exists; the configuration is plain data for which all zeroes means "defaults" and is
        // copied by the call; `pool` lives as long as the process; null queue configurations mean defaults;
        // the address is written to a local.
        let mac = unsafe {
            let conf: dpdk_sys::rte_eth_conf = zeroed();
            check("rte_eth_dev_configure", dpdk_sys::rte_eth_dev_configure(port, 1, 1, &raw const conf))?;
            let (mut rx, mut tx) = (DESCRIPTORS, DESCRIPTORS);
            let status = dpdk_sys::rte_eth_dev_adjust_nb_rx_tx_desc(port, &raw mut rx, &raw mut tx);
            check("rte_eth_dev_adjust_nb_rx_tx_desc", status)?;
            let status = dpdk_sys::rte_eth_rx_queue_setup(port, 0, rx, 0, std::ptr::null(), pool.as_ptr());
            check("rte_eth_rx_queue_setup", status)?;
            let status = dpdk_sys::rte_eth_tx_queue_setup(port, 0, tx, 0, std::ptr::null());
            check("rte_eth_tx_queue_setup", status)?;
            let mut mac: dpdk_sys::rte_ether_addr = zeroed();
            check("rte_eth_macaddr_get", dpdk_sys::rte_eth_macaddr_get(port, &raw mut mac))?;
            MacAddr(mac.addr_bytes)
        };
        Ok(Self {
            port,
            pool,
            clock,
            mac: attachment.mac().map_or(mac, MacAddr),
            max_frame: attachment.max_frame(),
            tx: arrayvec::ArrayVec::new(),
            gate: None,
            state: LinkState::Down,
            next_maintenance: 0,
            stats: crate::link::LinkStats::default(),
        })
    }

    /// Starts the port; a client's start fails until its server is there.
    fn start(&mut self, attachment: &Attachment, wait: &mut Wait<'_>) -> Result<(), PortError> {
        loop {
            // SAFETY: the port is configured.
            let status = unsafe { dpdk_sys::rte_eth_dev_start(self.port) };
            if status == 0 {
                return Ok(());
            }
            if !attachment.device().is_point_to_point() {
                return check(attachment, "rte_eth_dev_start", status);
            }
            wait.a_moment(attachment)?;
        }
    }

    /// Waits for the link. A client that asked a server too early was turned away and does not ask again by itself:
    /// it is started anew now and then.
    fn wait_up(&mut self, attachment: &Attachment, wait: &mut Wait<'_>) -> Result<(), PortError> {
        let mut asked = Instant::now();
        while self.look() == LinkState::Down {
            if attachment.is_turned_away_early() && asked.elapsed() > ASK_AGAIN {
                // SAFETY: the port is configured, and no burst has run on it yet.
                unsafe { dpdk_sys::rte_eth_dev_stop(self.port) };
                self.start(attachment, wait)?;
                asked = Instant::now();
            }
            wait.a_moment(attachment)?;
        }
        Ok(())
    }
}

fn close_gate(links: &mut [DpdkLink]) -> Result<(), PortError> {
    let gate = Gate::close().map_err(|cause| {
        let device = "memif".to_owned();
        PortError::Call { device, call: "the interrupt thread's gate", cause }
    })?;
    let keeper = GateKeeper::new(SharedGate { gate, cycled: 0 }.into());
    for link in links {
        link.gate = Some(keeper.clone());
    }
    Ok(())
}

fn create_pool(buffers: u32) -> Result<NonNull<dpdk_sys::rte_mempool>, PortError> {
    // SAFETY: DPDK runs; the name is a NUL-terminated literal; -1 is "any NUMA node".
    let pool = unsafe { dpdk_sys::rte_pktmbuf_pool_create(c"roci".as_ptr(), buffers, POOL_CACHE, 0, ROOM as u16, -1) };
    NonNull::new(pool).ok_or_else(|| {
        let device = "packet buffers".to_owned();
        PortError::Call { device, call: "rte_pktmbuf_pool_create", cause: last_error() }
    })
}

/// The port with this name, or the first one where the arguments were the user's own.
fn find_port(attachment: &Attachment, name: Option<&str>) -> Result<u16, PortError> {
    let missing = || PortError::NoPort(attachment.device().to_string());
    let Some(name) = name else {
        // SAFETY: takes a number and looks it up.
        let exists = unsafe { dpdk_sys::rte_eth_dev_is_valid_port(0) } != 0;
        return exists.then_some(0).ok_or_else(missing);
    };
    let name = CString::new(name).map_err(|_| missing())?;
    let mut port = 0;
    // SAFETY: the name is NUL-terminated; the number is written to a local.
    let status = unsafe { dpdk_sys::rte_eth_dev_get_port_by_name(name.as_ptr(), &raw mut port) };
    if status == 0 { Ok(port) } else { Err(missing()) }
}

fn check(attachment: &Attachment, call: &'static str, status: i32) -> Result<(), PortError> {
    if status == 0 {
        return Ok(());
    }
    Err(PortError::Call { device: attachment.device().to_string(), call, cause: describe(status) })
}
