//! What a port is asked for, within what its device can do.

use std::mem::zeroed;

use super::bring_up::PortError;
use super::device::{Attachment, Device};

/// What a device says that has no such call.
const NOT_SUPPORTED: i32 = -rustix::io::Errno::OPNOTSUPP.raw_os_error();

/// The configuration of a port, and what it gives.
pub(super) struct Settings {
    pub(super) conf: dpdk_sys::rte_eth_conf,
    /// The device marks frames whose IPv4 header is broken.
    pub(super) checks_ip: bool,
}

/// What the port of `attachment` is configured with. Only NICs are asked for more than frames of several segments:
/// virtual devices have nothing to offer, or refuse what they could do anyway.
///
/// IPv4's checksum is not left to the device when sending: it is part of the headers that a connection prepares once for
/// each length, so there is nothing to save, and a descriptor more to write. The ICRC takes it for ones (IBTA's annex
/// A17), so neither depends on the other. The UDP checksum is zero, as the annex allows and NICs do.
///
/// No interrupt is asked for when the link changes: not every device delivers it, and one that does not would never be
/// up, or never down. The state is asked for instead, every 50 ms.
pub(super) fn settings(attachment: &Attachment, info: &dpdk_sys::rte_eth_dev_info) -> Result<Settings, PortError> {
    // SAFETY: plain data, for which all zeroes means "defaults".
    let mut conf: dpdk_sys::rte_eth_conf = unsafe { zeroed() };
    // Without this some drivers take the first segment for the frame.
    conf.txmode.offloads = info.tx_offload_capa & dpdk_sys::ROCI_TX_OFFLOAD_MULTI_SEGS;
    if !matches!(attachment.device(), Device::Pci(_)) {
        return Ok(Settings { conf, checks_ip: false });
    }
    conf.rxmode.mtu = mtu(attachment, info)?.into();
    conf.rxmode.offloads = info.rx_offload_capa & dpdk_sys::ROCI_RX_OFFLOAD_IPV4_CKSUM;
    Ok(Settings { conf, checks_ip: conf.rxmode.offloads != 0 })
}

fn mtu(attachment: &Attachment, info: &dpdk_sys::rte_eth_dev_info) -> Result<u16, PortError> {
    let mtu = attachment.mtu();
    if mtu > info.max_mtu {
        return Err(PortError::Mtu { device: attachment.device().to_string(), mtu, max: info.max_mtu });
    }
    Ok(mtu)
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
