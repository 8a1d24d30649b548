//! What a port is asked for, within what its device can do.

use std::ffi::{CStr, c_int};
use std::fmt;
use std::mem::MaybeUninit;
use std::path::Path;
use std::ptr::NonNull;

use roci_protocol::wire::MacAddr;

use super::device::{Attachment, Device, External, INTERFACES};
use super::eal::{Eal, Setup, describe, with_last_words};
use super::error::PortError;
use super::gate;
use super::limits::SEGMENTS;

/// What a device says that has no such call.
const NOT_SUPPORTED: c_int = -rustix::io::Errno::OPNOTSUPP.raw_os_error();

/// A port that is configured, and what it gives.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    pub(super) port: u16,
    pub(super) mac: MacAddr,
    pub(super) max_frame: usize,
    pub(super) external: External,
    pub(super) checks: Checks,
    pub(super) spread: Spread,
}

/// What a device does for a link, in words.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Description {
    /// The link's queue of the port, and how many the port has.
    pub queue: (u16, u16),
    /// How the device spreads frames over them.
    pub spread: String,
    /// Which checksums the device verifies.
    pub checks: String,
    /// Which checksums it makes for what goes out.
    pub makes: &'static str,
}

impl Description {
    pub(super) fn of(facts: &Facts, queue: u16, queues: u16) -> Self {
        let (spread, checks) = (facts.spread.to_string(), facts.checks.to_string());
        Self { queue: (queue, queues), spread, checks, makes: "none: headers are prepared once with theirs" }
    }
}

/// Which checksums the device looks at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Checks {
    ip: bool,
    udp: bool,
}

impl Checks {
    /// What is set in a received frame's flags where the device has found something wrong, or does not know.
    pub(super) const fn suspicious(self) -> u64 {
        (if self.ip { dpdk_sys::RTE_MBUF_F_RX_IP_CKSUM_BAD } else { 0 })
            | (if self.udp { dpdk_sys::RTE_MBUF_F_RX_L4_CKSUM_BAD } else { 0 })
    }
}

impl fmt::Display for Checks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.ip, self.udp) {
            (true, true) => "IPv4 and UDP checksums of what comes in",
            (true, false) => "IPv4 checksums of what comes in",
            (false, true) => "UDP checksums of what comes in",
            (false, false) => "none",
        })
    }
}

/// By what frames are spread over a port's queues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Spread {
    /// There is one queue.
    OneQueue,
    /// RSS by addresses, and perhaps by UDP ports too.
    Rss { by_port: bool },
    /// By whatever the device likes: it offers no RSS.
    Unknown,
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OneQueue => "one queue",
            Self::Rss { by_port: true } => "RSS by addresses and UDP ports",
            Self::Rss { by_port: false } => "RSS by addresses",
            Self::Unknown => "no RSS: as the device likes",
        })
    }
}

/// Configures the port of `attachment` with a queue pair for each of these pools.
pub(super) fn set_up(
    eal: Eal,
    attachment: &Attachment,
    port: u16,
    pools: &[NonNull<dpdk_sys::rte_mempool>],
) -> Result<Facts, PortError> {
    let check = |call, status: i32| {
        if eal.is_out_of_memory(status) { Err(PortError::NoMemory) } else { check(attachment, call, status) }
    };
    let mut info = MaybeUninit::uninit();
    // SAFETY: looks the port up, and writes to a local.
    check("rte_eth_dev_info_get", unsafe { dpdk_sys::roci_port_info(port, info.as_mut_ptr()) })?;
    // SAFETY: the call has succeeded, so it has written all of it.
    let info = unsafe { info.assume_init() };
    let PortSettings { conf, spread } = settings(attachment, &info)?;
    let max_frame = attachment.max_frame(Path::new(INTERFACES))?;
    let queues = attachment.queues();
    // SAFETY: `port` exists; the configuration is copied by the call; the address is written to a local. The pools outlive
    // the port: they are freed after it is closed.
    let mac = unsafe {
        check("rte_eth_dev_configure", dpdk_sys::roci_port_configure(port, queues, &raw const conf))?;
        let descriptors = attachment.ring().descriptors();
        let (mut rx, mut tx) = (descriptors, descriptors);
        let status = dpdk_sys::rte_eth_dev_adjust_nb_rx_tx_desc(port, &raw mut rx, &raw mut tx);
        check("rte_eth_dev_adjust_nb_rx_tx_desc", status)?;
        for (queue, pool) in (0..queues).zip(pools) {
            let status = dpdk_sys::roci_port_rx_queue(port, queue, rx, pool.as_ptr());
            check("rte_eth_rx_queue_setup", status)?;
            check("rte_eth_tx_queue_setup", dpdk_sys::roci_port_tx_queue(port, queue, tx))?;
        }
        let mut mac = dpdk_sys::rte_ether_addr::default();
        check("rte_eth_macaddr_get", dpdk_sys::rte_eth_macaddr_get(port, &raw mut mac))?;
        MacAddr(mac.addr_bytes)
    };
    Ok(Facts {
        port,
        mac: attachment.mac().map_or(mac, MacAddr),
        max_frame,
        external: external_of(attachment, &info),
        checks: Checks { ip: conf.checks_ip, udp: conf.checks_udp },
        spread,
    })
}

/// The configuration of a port, and how it spreads frames.
struct PortSettings {
    conf: dpdk_sys::roci_port_conf,
    spread: Spread,
}

/// What the port of `attachment` is configured with. Only NICs are asked for checksums: virtual devices have nothing to
/// offer, or refuse what they could do anyway.
///
/// IPv4's checksum is not left to the device when sending: it is part of the headers that a connection prepares once for
/// each length, so there is nothing to save, and a descriptor more to write. The ICRC takes it for ones (IBTA's annex
/// A17), so neither depends on the other. The UDP checksum is zero, as the annex allows and NICs do; what comes in with
/// one may be wrong.
///
/// No interrupt is asked for when the link changes: not every device delivers it, and one that does not would never be
/// up, or never down. The state is asked for instead, every 50 ms.
fn settings(attachment: &Attachment, info: &dpdk_sys::roci_port_info) -> Result<PortSettings, PortError> {
    let spread = spread(attachment, info)?;
    let mut conf = dpdk_sys::roci_port_conf {
        sends_chains: info.sends_chains,
        spreads: matches!(spread, Spread::Rss { .. }),
        ..Default::default()
    };
    if matches!(attachment.device(), Device::Pci(_)) {
        conf.mtu = mtu(attachment, info)?;
        (conf.checks_ip, conf.checks_udp) = (info.checks_ip, info.checks_udp);
    }
    Ok(PortSettings { conf, spread })
}

/// How frames are spread over as many queues as are wanted, if there are so many. A key of the driver's own does: which
/// queue a flow comes in at makes no difference but in time.
fn spread(attachment: &Attachment, info: &dpdk_sys::roci_port_info) -> Result<Spread, PortError> {
    // SAFETY: the driver's name is null, or NUL-terminated and lives as long as the driver.
    let driver = (!info.driver.is_null()).then(|| unsafe { CStr::from_ptr(info.driver) });
    let (queues, max) = (attachment.queues(), usable_queues(driver, info.max_queues));
    if queues > max {
        return Err(PortError::Queues { device: attachment.device().to_string(), queues, max });
    }
    Ok(match (info.spreads_by_address, info.spreads_by_port) {
        _ if queues == 1 => Spread::OneQueue,
        (false, false) => Spread::Unknown,
        (_, by_port) => Spread::Rss { by_port },
    })
}

/// Queues that work, of those that a driver offers: that of the oldest Intel NICs offers two for all of them, also for
/// those that have one.
fn usable_queues(driver: Option<&CStr>, offered: u16) -> u16 {
    if driver == Some(c"net_e1000_em") { offered.min(1) } else { offered }
}

fn mtu(attachment: &Attachment, info: &dpdk_sys::roci_port_info) -> Result<u16, PortError> {
    let mtu = attachment.mtu();
    if mtu > info.max_mtu {
        return Err(PortError::Mtu { device: attachment.device().to_string(), mtu, max: info.max_mtu });
    }
    Ok(mtu)
}

/// What a port's driver does with a payload that is in no packet buffer, as far as its segments reach.
fn external_of(attachment: &Attachment, info: &dpdk_sys::roci_port_info) -> External {
    match attachment.external() {
        External::Copied | External::Mapped if !info.sends_chains => {
            External::Never("the device takes frames in one piece only")
        }
        // 0 is no word on it.
        External::Copied | External::Mapped if (1..SEGMENTS).contains(&info.max_segments) => {
            External::Never("the device takes frames of fewer than 5 segments")
        }
        external => external,
    }
}

/// Starts a port whose peer needs not be there.
pub(super) fn start(attachment: &Attachment, port: u16) -> Result<(), PortError> {
    // SAFETY: the port is configured.
    check(attachment, "rte_eth_dev_start", unsafe { dpdk_sys::rte_eth_dev_start(port) })?;
    check(attachment, "rte_eth_allmulticast_enable", hear_multicast(attachment, port))
}

/// Stops and closes a port that no thread uses, and never will again.
pub(super) fn close(_: &Setup, port: u16) {
    // SAFETY: the port exists and is not in use; no other thread creates or closes one; the interrupt thread, where it
    // is gated, stays parked.
    gate::held(|| unsafe {
        dpdk_sys::rte_eth_dev_stop(port);
        dpdk_sys::rte_eth_dev_close(port);
    });
}

/// Has a NIC take all multicast frames: neighbour discovery (RFC 4861) asks for hosts that way.
pub(super) fn hear_multicast(attachment: &Attachment, port: u16) -> i32 {
    if !matches!(attachment.device(), Device::Pci(_)) {
        return 0;
    }
    // SAFETY: takes the number of a port and looks it up.
    match unsafe { dpdk_sys::rte_eth_allmulticast_enable(port) } {
        NOT_SUPPORTED => 0,
        status => status,
    }
}

pub(super) fn check(attachment: &Attachment, call: &'static str, status: i32) -> Result<(), PortError> {
    if status == 0 {
        return Ok(());
    }
    Err(PortError::Call { device: attachment.device().to_string(), call, cause: with_last_words(describe(status)) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_that_offers_what_its_nics_may_lack_is_not_believed() {
        assert_eq!(usable_queues(Some(c"net_e1000_em"), 2), 1);
        assert_eq!(usable_queues(Some(c"net_e1000_igb"), 8), 8);
        assert_eq!(usable_queues(None, 4), 4);
    }

    #[test]
    fn only_marks_of_checks_that_were_asked_for_are_suspicious() {
        assert_eq!(Checks { ip: false, udp: false }.suspicious(), 0);
        let both = Checks { ip: true, udp: true }.suspicious();
        assert_eq!(both, dpdk_sys::RTE_MBUF_F_RX_IP_CKSUM_BAD | dpdk_sys::RTE_MBUF_F_RX_L4_CKSUM_BAD);
    }
}
