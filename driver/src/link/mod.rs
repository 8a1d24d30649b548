//! Links: ports that carry Ethernet frames.
//!
//! A [`Link`] is a type parameter of the engine, never a trait object. The back-ends are [`dpdk`], which drives
//! a real port, [`udp`], which is a socket of the kernel's, and [`sim`], a wire or a switch in one process under virtual time.
//! [`live`] is a link of either of the first two: what a program takes that is given a device by name. [`faulty`] and [`pcap`] are links
//! around a link: one injects faults, the other writes what passes to a file.

mod clock;
pub mod closed;
pub mod dpdk;
pub mod faulty;
pub mod live;
pub mod pcap;
mod share;
pub mod sim;
pub mod udp;

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use arrayvec::ArrayVec;
use roci_protocol::Nanos;
use roci_protocol::wire::{FrameLayers, Ip, Ipv4, MacAddr, identification};
use thiserror::Error;

use crate::lasting::Lasting;

pub use share::{MAX_QUEUES, Share};

/// Frames that one call receives at most.
pub const BURST: usize = 32;

/// Packets that a link hands to a kernel as one train at most; their IPv4 identifications count up from 0.
pub const TRAIN: u16 = 64;

/// Received frames.
pub type Batch<F> = ArrayVec<F, BURST>;

/// The link takes no frame now: back-pressure, not an error. Try again after the next poll.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Full;

/// Why a link cannot send from memory without a copy: what lies there is copied instead.
#[derive(Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ZeroCopyError {
    /// Zero copy is switched off.
    #[error("ROCI_ZCOPY_THRESHOLD is off")]
    Off,
    /// The link, or its device, copies every frame.
    #[error("{0}")]
    Copies(&'static str),
    /// The memory lies across pages.
    #[error("{len} bytes at {base:#x} are no whole pages of {page}")]
    Unaligned {
        /// Where it begins.
        base: usize,
        /// How long it is.
        len: usize,
        /// Bytes of a page.
        page: usize,
    },
    /// DPDK's table of external memory is full.
    #[error("DPDK's table of external memory is full: register fewer, larger pieces")]
    NoSlot,
    /// The device works with physical addresses, and those of the memory cannot be had or may change.
    #[error("the device works with physical addresses, and {0}")]
    Physical(&'static str),
    /// The IOMMU has no map for it: of pages that are pinned, and of maps, there may only be so many.
    #[error("rte_dev_dma_map failed for {len} bytes at {base:#x}: {cause}")]
    NoMap {
        /// Where it begins.
        base: usize,
        /// How long it is.
        len: usize,
        /// The reason, and what helps.
        cause: String,
    },
    /// DPDK refused the memory.
    #[error("{call} failed for {len} bytes at {base:#x}: {cause}")]
    Refused {
        /// Which of DPDK's functions.
        call: &'static str,
        /// Where it begins.
        base: usize,
        /// How long it is.
        len: usize,
        /// The reason, and what helps.
        cause: String,
    },
}

/// Whether frames can cross.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkState {
    /// The peer is there.
    Up,
    /// Frames sent now are lost.
    Down,
}

/// A frame that was sent, and of which a host or a router says that it has not arrived (ICMP). Anyone may forge such a message who
/// has seen the packet, or guesses its numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FailedFrame {
    /// The host that it was for.
    pub ip: IpAddr,
    /// Its station.
    pub station: MacAddr,
    /// The packet's BTH.
    pub quote: [u8; 12],
    /// What is said.
    pub failure: FrameFailure,
}

/// Why a frame has not arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameFailure {
    /// No process has the port.
    Refused,
    /// The path carries packets of so many bytes, Ethernet aside, and no longer ones.
    TooLong(usize),
}

/// Counters of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LinkStats {
    /// Frames received.
    pub rx_frames: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Frames handed to the device.
    pub tx_frames: u64,
    /// Bytes handed to the device.
    pub tx_bytes: u64,
    /// Times that the device was handed frames, one or many: doorbells, or calls of the kernel.
    pub tx_bursts: u64,
    /// Frames of these whose payload the device read in place (zero copy).
    pub tx_zero_copy: u64,
    /// Times that the link was full.
    pub tx_full: u64,
    /// Frames discarded because the link was down.
    pub tx_link_down: u64,
    /// Frames that were longer than a path carries.
    pub tx_too_long: u64,
    /// Frames that a host or a router said have not arrived (ICMP).
    pub tx_failed: u64,
    /// Frames that a socket cannot send: of other protocols, of another IP version, in a VLAN.
    pub tx_not_roce: u64,
    /// Frames received in several segments, which this stack does not take.
    pub rx_fragmented: u64,
    /// Frames whose IPv4 header the device found broken.
    pub rx_ip_csum_errors: u64,
    /// Frames whose UDP checksum, which was not left out, the device found wrong.
    pub rx_udp_csum_errors: u64,
    /// Frames that came in at this queue of a shared port, and were handed to the engine of another one.
    pub rx_handed_over: u64,
    /// Frames received that had come in at another queue of the port, or were sent by an engine on it.
    pub rx_taken_over: u64,
    /// Frames for another engine on the port that were lost because it left no room for them.
    pub handover_lost: u64,
    /// Frames sent to this very station, and so handed to an engine on the port: no wire carries them back.
    pub tx_own_station: u64,
    /// Frames lost because the queue towards this port was full: a simulated switch counts them, and a kernel's socket.
    pub rx_missed: u64,
    /// Frames lost, duplicated, held back or corrupted on purpose.
    pub injected_faults: u64,
}

impl LinkStats {
    /// Every counter with its name.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        [
            ("rx_frames", self.rx_frames),
            ("rx_bytes", self.rx_bytes),
            ("tx_frames", self.tx_frames),
            ("tx_bytes", self.tx_bytes),
            ("tx_bursts", self.tx_bursts),
            ("tx_zero_copy", self.tx_zero_copy),
            ("tx_full", self.tx_full),
            ("tx_link_down", self.tx_link_down),
            ("tx_too_long", self.tx_too_long),
            ("tx_failed", self.tx_failed),
            ("tx_not_roce", self.tx_not_roce),
            ("rx_fragmented", self.rx_fragmented),
            ("rx_ip_csum_errors", self.rx_ip_csum_errors),
            ("rx_udp_csum_errors", self.rx_udp_csum_errors),
            ("rx_handed_over", self.rx_handed_over),
            ("rx_taken_over", self.rx_taken_over),
            ("handover_lost", self.handover_lost),
            ("tx_own_station", self.tx_own_station),
            ("rx_missed", self.rx_missed),
            ("injected_faults", self.injected_faults),
        ]
        .into_iter()
    }
}

/// A port that sends and receives whole Ethernet frames.
pub trait Link {
    /// A received frame: memory that nothing else writes.
    type Frame: AsRef<[u8]>;

    /// The time; monotonic, cheap.
    fn now(&self) -> Nanos;

    /// The longest frame that crosses.
    fn max_frame(&self) -> usize;

    /// The longest frame that the way to a peer carries, as far as this host knows: at most [`Link::max_frame`].
    fn max_frame_to(&self, peer: IpAddr) -> usize {
        let _ = peer;
        self.max_frame()
    }

    /// The port's station address.
    fn mac(&self) -> MacAddr;

    /// Which queue pair numbers lead to this link. The others are those of engines that share its port.
    fn share(&self) -> Share {
        Share::WHOLE
    }

    /// Whether management datagrams for this station come in here. On a port that several links share they do at one.
    fn hears_management(&self) -> bool {
        true
    }

    /// The station that frames for a host go to, where the link finds the way by itself; `None` where the engine asks for the station
    /// by ARP or neighbour discovery.
    fn station_of(&self, ip: IpAddr) -> Option<MacAddr> {
        let _ = ip;
        None
    }

    /// The UDP source port of every frame that it sends, where there is one; else each connection has its own.
    fn source_port(&self) -> Option<u16> {
        None
    }

    /// Whether received frames may show another IPv4 identification than they had on the wire, where the ICRC was made with it.
    fn hides_identification(&self) -> bool {
        false
    }

    /// Whether [`Link::receive`] is a system call, found frames or not.
    fn receives_by_system_call(&self) -> bool {
        false
    }

    /// How many packets of so many bytes, BTH to ICRC, leave at once if they are queued one behind the other; `None` where they leave one by
    /// one.
    fn packets_at_once(&self, packet: usize) -> Option<usize> {
        let _ = packet;
        None
    }

    /// A path carries packets of so many bytes, Ethernet aside, and no longer ones: for a while no longer frames are promised.
    fn shorten_packets(&mut self, now: Nanos, bytes: usize) {
        let _ = (now, bytes);
    }

    /// Takes the oldest frame that has failed after it was sent, where there is one.
    #[inline]
    fn take_failed(&mut self) -> Option<FailedFrame> {
        None
    }

    /// From here on [`Link::receive`] should append no more frames at a time: what is done with them is much more than what it takes to
    /// look for others.
    fn receive_at_most(&mut self, frames: usize) {
        let _ = frames;
    }

    /// Appends the frames that have arrived to `batch`, as many as fit.
    fn receive(&mut self, batch: &mut Batch<Self::Frame>);

    /// Queues one frame of `len` bytes, which `fill` writes. Nothing is called where the link is full.
    fn transmit(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> Result<(), Full>;

    /// Lets the link send payloads that lie in `memory` without a copy. It keeps `memory` until no frame needs it any
    /// more.
    fn attach(&mut self, memory: Arc<dyn Lasting>) -> Result<(), ZeroCopyError> {
        drop(memory);
        Err(ZeroCopyError::Copies("this link copies every frame"))
    }

    /// Returns the handle that attaches named ranges of the application's memory to the link; `None` where payloads in
    /// such memory are always copied. Only devices that read memory themselves, and keep its pages pinned, have one: a
    /// driver that copies may do so later, when the application may have unmapped the memory.
    fn zero_copy_ranges(&self) -> Option<Box<dyn ZeroCopyRanges>> {
        None
    }

    /// Whether [`Link::transmit_around`] would send this payload without a copy, and whether that is worth it. Without
    /// the name of a range the payload is looked for by address in the memory given to [`Link::attach`]; with a name,
    /// in that range alone, because there may be other memory at its addresses by now.
    #[inline]
    fn is_zero_copy(&self, payload: &[u8], range: Option<u64>) -> bool {
        let _ = (payload, range);
        false
    }

    /// Queues one frame whose payload stays where it is: `fill` writes the `head` bytes before it and the `tail` bytes
    /// behind it. Nothing is called where the link is full.
    ///
    /// A device may read the payload until long after the next [`Link::flush`], perhaps after the frame's twin has been
    /// acknowledged. Should its bytes have changed by then, the frame's ICRC is wrong, and the receiver discards it; the
    /// memory itself stays.
    fn transmit_around(
        &mut self,
        head: usize,
        payload: &[u8],
        range: Option<u64>,
        tail: usize,
        fill: impl FnOnce(&mut [u8], &mut [u8]),
    ) -> Result<(), Full> {
        let _ = range;
        self.transmit(head + payload.len() + tail, |frame| fill_around(frame, head, payload, fill))
    }

    /// Hands the queued frames to the device; what it does not take stays queued. A link may do so earlier. From here on no
    /// thread of this process reads a payload that stayed where it is: the caller flushes before he gives it away.
    fn flush(&mut self);

    /// Housekeeping off the data path: call it between bursts, as often as every poll. Returns the link's state.
    fn maintain(&mut self, now: Nanos) -> LinkState;

    /// The counters.
    fn stats(&self) -> LinkStats;
}

/// What a link around a link has from the link inside, which is its field `inner`: all that says what it is, and what happened to
/// frames.
#[macro_export]
macro_rules! same_as_inner_link {
    () => {
        fn max_frame(&self) -> usize {
            self.inner.max_frame()
        }

        fn max_frame_to(&self, peer: IpAddr) -> usize {
            self.inner.max_frame_to(peer)
        }

        fn mac(&self) -> MacAddr {
            self.inner.mac()
        }

        fn share(&self) -> Share {
            self.inner.share()
        }

        fn hears_management(&self) -> bool {
            self.inner.hears_management()
        }

        fn station_of(&self, ip: IpAddr) -> Option<MacAddr> {
            self.inner.station_of(ip)
        }

        fn source_port(&self) -> Option<u16> {
            self.inner.source_port()
        }

        fn hides_identification(&self) -> bool {
            self.inner.hides_identification()
        }

        fn receives_by_system_call(&self) -> bool {
            self.inner.receives_by_system_call()
        }

        fn packets_at_once(&self, packet: usize) -> Option<usize> {
            self.inner.packets_at_once(packet)
        }

        fn receive_at_most(&mut self, frames: usize) {
            self.inner.receive_at_most(frames);
        }

        fn shorten_packets(&mut self, now: Nanos, bytes: usize) {
            self.inner.shorten_packets(now, bytes);
        }

        #[inline]
        fn take_failed(&mut self) -> Option<FailedFrame> {
            self.inner.take_failed()
        }
    };
}

/// Attaches ranges of the application's memory to one port, off the data path and apart from the port.
pub trait ZeroCopyRanges: fmt::Debug + Send {
    /// Registers `len` bytes from `base` on with the device, both multiples of the page size, under a name that no
    /// other range of the process ever had. The device keeps the pages that are there now: it reads them even after
    /// they have been unmapped.
    fn attach(&mut self, name: u64, base: usize, len: usize) -> Result<(), ZeroCopyError>;

    /// From here on no frame is sent from that range. The device forgets it with the last frame that is on its way.
    fn detach(&mut self, name: u64);
}

/// Writes into a received frame the IPv4 identification that its ICRC was made with, where it shows another one: a record of it is right
/// then.
pub fn restore_identification(frame: &mut [u8]) {
    let Ok(FrameLayers { ethernet, ip: Ip::V4(header), datagram, .. }) = FrameLayers::parse(frame) else { return };
    if let Ok(id) = identification::find(datagram) {
        Ipv4 { id, ..header }.emit(&mut frame[ethernet.wire_len()..]);
    }
}

/// Copies the payload between what `fill` writes: a frame that stays whole.
fn fill_around(frame: &mut [u8], head: usize, payload: &[u8], fill: impl FnOnce(&mut [u8], &mut [u8])) {
    let (head, rest) = frame.split_at_mut(head);
    let (middle, tail) = rest.split_at_mut(payload.len());
    middle.copy_from_slice(payload);
    fill(head, tail);
}
