//! A link of a running program: a port that DPDK drives, a socket of the kernel's, or one that was closed.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;

use roci_protocol::Nanos;
use roci_protocol::wire::MacAddr;
use thiserror::Error;

use super::closed::{ClosedLink, NoFrame};
use super::dpdk::{Device, DpdkLink, Mbuf, ParseDeviceError};
use super::udp::{ParseUdpAddressError, UdpAddress, UdpFrame, UdpLink};
use super::{Batch, FailedFrame, Full, Link, LinkState, LinkStats, Share, ZeroCopyError, ZeroCopyRanges};
use crate::lasting::Lasting;

/// What a link is opened on, as people name it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LinkDevice {
    /// A UDP socket of the kernel's: `udp`, `udp:ADDRESS`, `udp:ADDRESS:PORT`. It needs no privilege.
    Udp(UdpAddress),
    /// A port that DPDK drives.
    Dpdk(Device),
}

/// Why the name of a device was not understood.
#[derive(Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ParseLinkDeviceError {
    /// It is no address of a socket.
    #[error(transparent)]
    Udp(#[from] ParseUdpAddressError),
    /// It is no device of DPDK's either.
    #[error(transparent)]
    Dpdk(#[from] ParseDeviceError),
}

impl FromStr for LinkDevice {
    type Err = ParseLinkDeviceError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.strip_prefix("udp") {
            Some("") => Ok(Self::Udp(UdpAddress::default())),
            Some(rest) if rest.starts_with(':') => Ok(Self::Udp(rest[1..].parse()?)),
            _ => Ok(Self::Dpdk(text.parse()?)),
        }
    }
}

impl fmt::Display for LinkDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Udp(address) => address.fmt(f),
            Self::Dpdk(device) => device.fmt(f),
        }
    }
}

impl From<Device> for LinkDevice {
    fn from(device: Device) -> Self {
        Self::Dpdk(device)
    }
}

impl LinkDevice {
    /// Whether each pair of processes has a link of its own, which no third process shares.
    pub const fn is_point_to_point(&self) -> bool {
        match self {
            Self::Udp(_) => false,
            Self::Dpdk(device) => device.is_point_to_point(),
        }
    }

    /// The NUMA node that the device is near, where it is known.
    pub fn numa_node(&self) -> Option<u32> {
        match self {
            Self::Udp(_) => None,
            Self::Dpdk(device) => device.numa_node(),
        }
    }

    /// The device of DPDK's, where it is one.
    pub const fn dpdk(&self) -> Option<&Device> {
        match self {
            Self::Udp(_) => None,
            Self::Dpdk(device) => Some(device),
        }
    }
}

/// A link of any kind.
pub enum AnyLink {
    /// A UDP socket.
    Udp(Box<UdpLink>),
    /// A port of DPDK's.
    Dpdk(Box<DpdkLink>),
    /// None any more.
    Closed(ClosedLink),
}

/// A frame of any kind.
pub enum AnyFrame {
    /// Of a UDP socket.
    Udp(UdpFrame),
    /// Of a port of DPDK's.
    Dpdk(Mbuf),
    /// None.
    Closed(NoFrame),
}

impl AsRef<[u8]> for AnyFrame {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Udp(frame) => frame.as_ref(),
            Self::Dpdk(frame) => frame.as_ref(),
            Self::Closed(frame) => frame.as_ref(),
        }
    }
}

impl From<DpdkLink> for AnyLink {
    fn from(link: DpdkLink) -> Self {
        Self::Dpdk(Box::new(link))
    }
}

impl From<UdpLink> for AnyLink {
    fn from(link: UdpLink) -> Self {
        Self::Udp(Box::new(link))
    }
}

/// Calls the link that it is.
macro_rules! forward {
    ($self:ident, $link:ident => $call:expr) => {
        match $self {
            AnyLink::Udp($link) => $call,
            AnyLink::Dpdk($link) => $call,
            AnyLink::Closed($link) => $call,
        }
    };
}

/// Receives into a batch of the link's own frames, and passes them on.
#[inline]
fn receive_as<L: Link>(link: &mut L, batch: &mut Batch<AnyFrame>, wrap: fn(L::Frame) -> AnyFrame) {
    // What is received has room in a batch that is empty, and what has none would be lost.
    assert!(batch.is_empty(), "a batch that is not empty");
    let mut frames = Batch::new();
    link.receive(&mut frames);
    // Most polls find nothing, and `into_iter` would move all of an empty batch.
    for frame in frames.drain(..) {
        batch.push(wrap(frame));
    }
}

impl Link for AnyLink {
    type Frame = AnyFrame;

    #[inline]
    fn now(&self) -> Nanos {
        forward!(self, link => link.now())
    }

    fn max_frame(&self) -> usize {
        forward!(self, link => link.max_frame())
    }

    fn max_frame_to(&self, peer: IpAddr) -> usize {
        forward!(self, link => link.max_frame_to(peer))
    }

    fn mac(&self) -> MacAddr {
        forward!(self, link => link.mac())
    }

    fn share(&self) -> Share {
        forward!(self, link => link.share())
    }

    fn hears_management(&self) -> bool {
        forward!(self, link => link.hears_management())
    }

    fn station_of(&self, ip: IpAddr) -> Option<MacAddr> {
        forward!(self, link => link.station_of(ip))
    }

    fn source_port(&self) -> Option<u16> {
        forward!(self, link => link.source_port())
    }

    fn hides_identification(&self) -> bool {
        forward!(self, link => link.hides_identification())
    }

    fn receives_by_system_call(&self) -> bool {
        forward!(self, link => link.receives_by_system_call())
    }

    fn packets_at_once(&self, packet: usize) -> Option<usize> {
        forward!(self, link => link.packets_at_once(packet))
    }

    fn receive_at_most(&mut self, frames: usize) {
        forward!(self, link => link.receive_at_most(frames));
    }

    fn shorten_packets(&mut self, now: Nanos, bytes: usize) {
        forward!(self, link => link.shorten_packets(now, bytes));
    }

    #[inline]
    fn take_failed(&mut self) -> Option<FailedFrame> {
        forward!(self, link => link.take_failed())
    }

    #[inline]
    fn receive(&mut self, batch: &mut Batch<AnyFrame>) {
        match self {
            Self::Udp(link) => receive_as(&mut **link, batch, AnyFrame::Udp),
            Self::Dpdk(link) => receive_as(&mut **link, batch, AnyFrame::Dpdk),
            Self::Closed(_) => {}
        }
    }

    #[inline]
    fn transmit(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> Result<(), Full> {
        forward!(self, link => link.transmit(len, fill))
    }

    fn attach(&mut self, memory: Arc<dyn Lasting>) -> Result<(), ZeroCopyError> {
        forward!(self, link => link.attach(memory))
    }

    fn zero_copy_ranges(&self) -> Option<Box<dyn ZeroCopyRanges>> {
        forward!(self, link => link.zero_copy_ranges())
    }

    #[inline]
    fn is_zero_copy(&self, payload: &[u8], range: Option<u64>) -> bool {
        forward!(self, link => link.is_zero_copy(payload, range))
    }

    #[inline]
    fn transmit_around(
        &mut self,
        head: usize,
        payload: &[u8],
        range: Option<u64>,
        tail: usize,
        fill: impl FnOnce(&mut [u8], &mut [u8]),
    ) -> Result<(), Full> {
        forward!(self, link => link.transmit_around(head, payload, range, tail, fill))
    }

    #[inline]
    fn flush(&mut self) {
        forward!(self, link => link.flush());
    }

    #[inline]
    fn maintain(&mut self, now: Nanos) -> LinkState {
        forward!(self, link => link.maintain(now))
    }

    fn stats(&self) -> LinkStats {
        forward!(self, link => link.stats())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_read_as_it_was_written() {
        for text in ["udp", "udp:10.0.0.1", "udp:[fd00::1]:4791", "memif", "af_packet:eth0", "pci:0000:01:00.0"] {
            assert_eq!(text.parse::<LinkDevice>().map(|device| device.to_string()), Ok(text.to_owned()));
        }
        for text in ["udpx", "udp:eth0", "tcp"] {
            assert!(text.parse::<LinkDevice>().is_err(), "{text}");
        }
    }
}
