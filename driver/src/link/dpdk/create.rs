//! Creating devices: on the line that DPDK starts with, or one by one once it runs; and finding their ports.

use std::ffi::CString;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType};

use super::device::{Attachment, Creation, Device};
use super::eal::{Eal, EalError, Setup, with_last_words};
use super::error::PortError;
use super::limits::{PORTS_MAX, RingSize};
use super::pci::Addressing;
use super::{idle, pool};

/// A number that no other port of the process has: names are made of it.
pub(super) fn next_index() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Memory for the packet buffers of a call, and for further calls until DPDK has no port left.
fn reserve(attachments: &[Attachment]) -> usize {
    let ports = attachments.len();
    let ours = match attachments {
        [shared] if shared.queues() > 1 => pool::bytes_of_queues(shared.queues()),
        _ => pool::bytes_of(ports, ring_of(attachments)),
    };
    ours + PORTS_MAX.saturating_sub(ports) * pool::bytes_of(1, RingSize::DEVICE)
}

/// The largest ring of these ports, which share a pool.
pub(super) fn ring_of(attachments: &[Attachment]) -> RingSize {
    attachments.iter().map(Attachment::ring).max().unwrap_or(RingSize::DEVICE)
}

/// Has DPDK create the devices: on the line that it starts with, or one by one if it runs.
pub(super) fn create_devices(
    setup: &Setup,
    attachments: &[Attachment],
    creations: &[Creation],
) -> Result<Eal, PortError> {
    attachments.iter().try_for_each(|attachment| attachment.device().check_interface())?;
    let running = Eal::running(setup);
    make_room(setup, attachments.len())?;
    let Some(eal) = running else {
        let mut words: Vec<_> = creations.iter().flat_map(Creation::words).collect();
        words.extend(memory_words(attachments)?);
        let no_huge = attachments.iter().all(Attachment::is_virtual);
        return Ok(Eal::start(setup, no_huge, reserve(attachments), &words)?);
    };
    if !attachments.iter().all(Attachment::is_virtual) {
        return Err(EalError::AlreadyStarted.into());
    }
    for (done, (attachment, creation)) in attachments.iter().zip(creations).enumerate() {
        let Creation::Virtual { name, options } = creation else { return Err(EalError::AlreadyStarted.into()) };
        if let Err(refusal) = Eal::add_device(eal, setup, name, options) {
            creations[..done].iter().filter_map(Creation::name).for_each(|name| Eal::remove_device(eal, setup, name));
            let (device, cause) = (attachment.device().to_string(), refusal.to_string());
            return Err(PortError::Call { device, call: "rte_vdev_init", cause });
        }
    }
    Ok(eal)
}

impl Device {
    /// Returns whether this host has the device, as far as can be seen without opening it: the interface of that name, or the NIC,
    /// bound to user space.
    ///
    /// # Errors
    /// It has none, or one that cannot be opened.
    pub fn check_present(&self) -> Result<(), PortError> {
        self.check_interface()?;
        Ok(self.addressing().map(drop)?)
    }

    /// Refuses an interface that the kernel does not have. A kernel that cannot be asked may have it.
    fn check_interface(&self) -> Result<(), PortError> {
        let Self::AfPacket(name) = self else { return Ok(()) };
        let socket = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None);
        let found = socket.and_then(|socket| rustix::net::netdevice::name_to_index(socket, name));
        if found == Err(Errno::NODEV) { Err(PortError::NoInterface(name.clone())) } else { Ok(()) }
    }
}

/// Sees to it that DPDK has places for so many ports: those that are kept for later give up theirs.
fn make_room(setup: &Setup, ports: usize) -> Result<(), PortError> {
    // SAFETY: counts the entries of a table; before DPDK runs there are none.
    while usize::from(unsafe { dpdk_sys::rte_eth_dev_count_avail() }) + ports > PORTS_MAX {
        if !idle::close_one(setup) {
            return Err(PortError::TooManyPorts(ports));
        }
    }
    Ok(())
}

/// What NICs want of DPDK's memory: huge pages that leave no file behind, and addresses of the kind that they use. One
/// without an IOMMU makes all use physical addresses.
fn memory_words(attachments: &[Attachment]) -> Result<Vec<String>, PortError> {
    let mut used = None;
    for attachment in attachments {
        used = match attachment.device().addressing()? {
            Some(Addressing::Physical) => Some(Addressing::Physical),
            Some(Addressing::Virtual) => used.or(Some(Addressing::Virtual)),
            None => used,
        };
    }
    Ok(used.map_or_else(Vec::new, |addressing| vec!["--in-memory".to_owned(), addressing.word().to_owned()]))
}

/// The port with this name, or the first one where the arguments were the user's own.
pub(super) fn find_port(attachment: &Attachment, name: Option<&str>) -> Result<u16, PortError> {
    let missing = || PortError::NoPort {
        device: attachment.device().to_string(),
        cause: with_last_words("DPDK could not create its port".to_owned()),
    };
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
