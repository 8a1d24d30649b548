//! The link over a UDP socket of the kernel's: any interface, any user, IPv4 and IPv6.
//!
//! RoCEv2 is UDP to port 4791, so what such a socket sends is RoCEv2 on the wire. Above, a link carries Ethernet frames: their headers
//! down to UDP are made up here for what arrives, and cut off from what is sent. Stations are ports ([`station`]).
//!
//! # What the kernel chooses
//! - The IPv4 identification, which the ICRC covers and a socket does not show: see [`roci_protocol::wire::identification`]. What
//!   is sent has 0, and in a train the packet's place in it; from a connected socket it counts up. Where a train arrives as it
//!   was sent, or a packet alone, that is what the ICRC is checked with, whole. Where it is wrong then,
//!   [`Link::hides_identification`] lets the engine ask which identification it is right for.
//! - The source port, which is the sending socket's: frames are made with it ([`Link::source_port`]). It is entropy, as RoCEv2 wants it,
//!   but the same for all connections of a link.
//! - The hop limit, the flow label and both checksums, which the ICRC does not cover.
//!
//! # Ports
//! A link has port 4791 where it is free at its address, and a second socket to send from. The peer that most comes from, and the
//! one that most goes to, have connected sockets beside these (`rx_sockets`, `tx_sockets`). The processes beside it at the same
//! address have ports of their own: they talk with others of this stack, whose addresses say the port, and not with other RoCEv2
//! hosts. RDMA-CM looks for a host at port 4791. So a server takes that port or fails:
//! `UdpAddress { ip, port: Some(ROCE_PORT) }`. Who knows another port reaches it by [`UnconnectedQp::toward`](crate::UnconnectedQp::toward) and [`station::of_port`].
//!
//! # Errors
//! The kernel reports what became of packets (`IP_RECVERR`). A host whose process is gone says that no socket has the port: the engine
//! ends the connection. A longer packet than a path carries shortens what connections are made with from
//! then on, for a while. Both are believed only where the message quotes a packet that waits to be acknowledged. Whatever else is wrong, an interface that is down or a route that is missing, is as a cable that is cut: frames are lost
//! until it is mended. An address that the host has no more is named in the log (`own_address`).

mod changes;
mod interface;
mod lengths;
mod open;
mod own_address;
mod raw_address;
mod regular_source;
mod regularity;
mod rx_queue;
mod rx_room;
mod rx_sockets;
mod socket;
pub mod station;
mod train_length;
mod tx_queue;
mod tx_sockets;

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};

use arrayvec::ArrayVec;
use roci_protocol::Nanos;
use roci_protocol::wire::{Ethernet, FrameLayers, Ip, Ipv4, Ipv6, MacAddr, Udp, ethernet, ipv4, ipv6, udp};

use super::dpdk::clock;
use super::{Batch, FailedFrame, FrameFailure, Full, Link, LinkState, LinkStats};

pub use roci_protocol::wire::udp::ROCE_PORT;

pub use interface::interface_of;
pub use open::{ParseUdpAddressError, UdpAddress, UdpError};
pub use rx_queue::UdpFrame;

use changes::IcrcChanges;
use lengths::Lengths;
use own_address::OwnAddress;
use rx_queue::{BarePacket, RxQueue};
use rx_sockets::RxSockets;
use socket::{FailedPacket, KernelSocket, MESSAGES, SendFailure};
use tx_queue::{Heading, TxQueue};
use tx_sockets::TxSockets;

/// Failed frames that wait to be looked at; one more, and the oldest goes.
const FAILED: usize = 16;
/// How long a queue of the kernel's may be full before its first message is lost, for it may be one that is never taken.
const FULL_NS: Nanos = 10_000_000;
/// How often packets that have failed after they were sent are looked for.
const LOOK_NS: Nanos = 1_000_000;

/// A UDP socket as a [`Link`].
pub struct UdpLink {
    sockets: Sockets,
    lengths: Lengths,
    rx: RxQueue,
    tx: TxQueue,
    headings: Headings,
    own_address: OwnAddress,
    changes: IcrcChanges,
    /// Frames that have failed, and that the engine has not taken yet.
    failed: VecDeque<FailedFrame>,
    /// When packets that have failed are looked for again.
    next_look: Nanos,
    /// Since when a queue of the kernel's takes nothing.
    full_since: Option<Nanos>,
    stats: LinkStats,
}

/// Sockets that receive, and send where their port is their own; else others send, from a port that is entropy.
struct Sockets {
    rx: RxSockets,
    tx: Option<TxSockets>,
}

impl Sockets {
    /// The one that sends to anybody.
    fn tx(&self) -> &KernelSocket {
        self.tx.as_ref().map_or(self.rx.anybody(), TxSockets::anybody)
    }

    fn tx_mut(&mut self) -> &mut KernelSocket {
        self.tx.as_mut().map_or(self.rx.anybody_mut(), TxSockets::anybody_mut)
    }

    /// Sends the first messages of a queue, and returns how many the kernel has taken: at least one.
    #[inline]
    fn send(&mut self, queue: &mut TxQueue) -> io::Result<usize> {
        if let Some(tx) = &mut self.tx {
            return tx.send(queue);
        }
        let (bytes, messages) = queue.messages();
        let messages: ArrayVec<_, MESSAGES> = messages.take(MESSAGES).collect();
        self.rx.anybody().send(bytes, &messages)
    }

    /// Takes the oldest of the packets that failed after they were sent, where there is one.
    fn next_failure(&mut self) -> Option<FailedPacket> {
        match &mut self.tx {
            Some(tx) => tx.next_failure(),
            None => self.rx.anybody().next_failure(),
        }
    }
}

/// Makes up the headers of frames that arrive.
#[derive(Clone, Copy)]
struct Headings {
    own: SocketAddr,
    mac: MacAddr,
}

impl UdpLink {
    /// The address that it sends from, and its port.
    pub fn own(&self) -> SocketAddr {
        self.headings.own
    }

    /// How many bytes the kernel keeps for it at most until it receives.
    pub fn receive_buffer(&self) -> io::Result<usize> {
        self.sockets.rx.anybody().receive_buffer()
    }

    /// Whether the kernel cuts trains of packets that are sent (UDP GSO), and gathers those that arrive (UDP GRO).
    pub fn offload(&self) -> (bool, bool) {
        (self.sockets.tx().offload().gso, self.sockets.rx.anybody().offload().gro)
    }

    /// The peers that most comes from and most goes to, with the ports that they send from and receive at, where they have a socket of
    /// their own.
    pub fn regular_peers(&self) -> (Option<SocketAddr>, Option<SocketAddr>) {
        (self.sockets.rx.regular_peer(), self.sockets.tx.as_ref().and_then(TxSockets::regular_peer))
    }

    /// Bytes of headers down to UDP.
    fn headers(&self) -> usize {
        headers_of(self.headings.own.ip())
    }

    /// Receives what has arrived.
    #[inline]
    fn look(&mut self) {
        let received = self.sockets.rx.receive(self.rx.room());
        let messages = match received {
            Ok(messages) => messages,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return self.rx.fill_nothing(),
            Err(error) => {
                self.rx.fill_nothing();
                tracing::trace!("udp: {error}");
                return self.take_failures();
            }
        };
        let Self { headings, changes, rx, .. } = self;
        rx.fill(messages, |packet| headings.dress(packet, changes));
    }

    /// Looks at packets that have failed after they were sent.
    #[cold]
    fn take_failures(&mut self) {
        while let Some(FailedPacket { to, failure, quote }) = self.sockets.next_failure() {
            let failure = match failure {
                SendFailure::Refused => FrameFailure::Refused,
                SendFailure::TooLong(bytes) => FrameFailure::TooLong(bytes),
                SendFailure::Other => continue,
            };
            self.stats.tx_failed += 1;
            let Some(&quote) = quote.first_chunk() else { continue };
            if self.failed.len() == FAILED {
                self.failed.pop_front();
            }
            self.failed.push_back(FailedFrame { ip: to.ip(), station: station::of_port(to.port()), quote, failure });
        }
    }

    /// Sends the first messages that wait; `false` where the kernel takes no more now. An error may be that of a packet before:
    /// it shows once, and the same messages are tried again.
    fn send(&mut self) -> bool {
        let sent = self.sockets.send(&mut self.tx).or_else(|error| {
            if is_full(&error) {
                return Err(error);
            }
            self.take_failures();
            self.sockets.send(&mut self.tx)
        });
        match sent {
            Ok(sent) => {
                let (frames, bytes) = self.tx.forget(sent);
                self.stats.tx_bursts += 1;
                self.stats.tx_frames += frames;
                self.stats.tx_bytes += bytes + frames * self.headers() as u64;
                self.full_since = None;
                true
            }
            Err(error) => self.on_send_error(&error),
        }
    }

    /// The first message was not sent: it waits where there is no room for it, or it is lost, as on a cable that is cut.
    #[cold]
    fn on_send_error(&mut self, error: &io::Error) -> bool {
        match error.raw_os_error() {
            Some(libc::EINTR) => return true,
            Some(libc::EAGAIN) => return false,
            // A queue of the kernel's is full, or never takes this one.
            Some(libc::ENOBUFS | libc::ENOMEM) if !self.is_full_for_long() => return false,
            // A device that computes no checksums cuts no trains: what waits is lost, and comes again in single packets.
            Some(libc::EIO) if self.sockets.tx().offload().gso => {
                self.sockets.tx_mut().give_up_gso();
                self.tx.send_single_packets();
            }
            Some(libc::EMSGSIZE | libc::EINVAL) => {
                self.look_at_interface();
                self.look_at_way();
            }
            _ => {}
        }
        let (frames, _) = self.tx.forget(1);
        match error.raw_os_error() {
            Some(libc::EMSGSIZE | libc::EINVAL) => self.stats.tx_too_long += frames,
            _ => self.stats.tx_link_down += frames,
        }
        true
    }

    /// Whether the kernel's queue takes nothing for longer than a queue does that empties.
    fn is_full_for_long(&mut self) -> bool {
        let now = self.now();
        let since = *self.full_since.get_or_insert(now);
        let is_long = now.saturating_sub(since) > FULL_NS;
        if is_long {
            self.full_since = None;
        }
        is_long
    }

    /// The interface carries less than before, perhaps, or more.
    fn look_at_interface(&mut self) {
        if let Ok(mtu) = interface::mtu_of(self.headings.own.ip()) {
            self.lengths.set_interface(mtu);
        }
    }

    /// The way to whom the first message is for carries less than the interface, perhaps.
    fn look_at_way(&mut self) {
        let Some(to) = self.tx.messages().1.next().map(|message| message.to.ip()) else { return };
        if let Ok(mtu) = interface::mtu_towards(self.headings.own.ip(), to) {
            self.lengths.note_way(to, mtu);
        }
    }
}

/// Whether an error says that there is no room now.
fn is_full(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM | libc::EINTR))
}

impl Headings {
    /// Writes the headers of a packet that arrived.
    #[inline]
    fn dress(&self, bare: BarePacket<'_>, changes: &mut IcrcChanges) {
        let BarePacket { message, place, headers, packet } = bare;
        let source = station::of_sender(message.from.port());
        let udp_len = (udp::LEN + packet.len()) as u16;
        let (source_ip, own_ip) = (message.from.ip(), self.own.ip());
        let ethertype = match (source_ip, own_ip) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let flags_fragment = ipv4::DONT_FRAGMENT;
                let tos = message.traffic_class;
                Ipv4 { tos, payload_len: udp_len, id: 0, flags_fragment, ttl: 64, source, destination }
                    .emit(&mut headers[ethernet::LEN..]);
                changes.apply(ipv4::LEN + usize::from(udp_len), place, packet);
                ethernet::ETHERTYPE_IPV4
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let traffic_class = message.traffic_class;
                Ipv6 { traffic_class, flow_label: 0, payload_len: udp_len, hop_limit: 64, source, destination }
                    .emit(&mut headers[ethernet::LEN..]);
                ethernet::ETHERTYPE_IPV6
            }
            // A socket of one version receives no packet of the other: such a frame is none.
            _ => 0,
        };
        Ethernet { destination: self.mac, source, vlan: None, ethertype }.emit(headers);
        let udp_at = headers.len() - udp::LEN;
        let payload_len = packet.len() as u16;
        Udp { source: message.from.port(), destination: ROCE_PORT, payload_len, checksum: 0 }
            .emit(&mut headers[udp_at..]);
    }
}

/// Bytes of headers down to UDP over this version of IP.
const fn headers_of(ip: IpAddr) -> usize {
    ethernet::LEN + if ip.is_ipv4() { ipv4::LEN } else { ipv6::LEN } + udp::LEN
}

/// Reads from a frame how to send it; `None` where it is no RoCEv2 frame to a socket.
#[inline]
fn heading_of(own: SocketAddr, frame: &[u8]) -> Option<Heading> {
    let FrameLayers { ethernet, ip, .. } = FrameLayers::parse(frame).ok()?;
    // A station that is no socket is one of another RoCEv2 host's, whose address was exchanged: the kernel finds it.
    let port = station::udp_port_of(ethernet.destination);
    let is_v4 = matches!(ip, Ip::V4(_));
    (ethernet.vlan.is_none() && is_v4 == own.is_ipv4()).then(|| Heading {
        to: SocketAddr::new(ip.destination(), port),
        traffic_class: ip.traffic_class(),
        is_v4,
    })
}

impl Link for UdpLink {
    type Frame = UdpFrame;

    #[inline]
    fn now(&self) -> Nanos {
        clock::now()
    }

    fn max_frame(&self) -> usize {
        self.lengths.most()
    }

    fn max_frame_to(&self, peer: IpAddr) -> usize {
        let way = interface::mtu_towards(self.headings.own.ip(), peer);
        self.lengths.most_over(way.unwrap_or(usize::MAX))
    }

    fn mac(&self) -> MacAddr {
        self.headings.mac
    }

    /// The kernel finds the way. Who has another port than RoCEv2's says so.
    fn station_of(&self, _ip: IpAddr) -> Option<MacAddr> {
        Some(station::of_port(ROCE_PORT))
    }

    fn source_port(&self) -> Option<u16> {
        Some(self.sockets.tx().local().port())
    }

    fn hides_identification(&self) -> bool {
        self.headings.own.is_ipv4()
    }

    fn receives_by_system_call(&self) -> bool {
        true
    }

    fn packets_at_once(&self, packet: usize) -> Option<usize> {
        self.tx.packets_at_once(packet)
    }

    fn take_failed(&mut self) -> Option<FailedFrame> {
        self.failed.pop_front()
    }

    fn shorten_packets(&mut self, now: Nanos, bytes: usize) {
        self.lengths.shorten(now, bytes);
    }

    #[inline]
    fn receive(&mut self, batch: &mut Batch<UdpFrame>) {
        if self.rx.is_empty() {
            self.look();
        }
        while !batch.is_full()
            && let Some(frame) = self.rx.take()
        {
            self.stats.rx_frames += 1;
            self.stats.rx_bytes += frame.as_ref().len() as u64;
            batch.push(frame);
        }
    }

    #[inline]
    fn transmit(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> Result<(), Full> {
        if !self.tx.has_room(len) {
            self.flush();
            if !self.tx.has_room(len) {
                self.stats.tx_full += 1;
                return Err(Full);
            }
        }
        let (own, headers) = (self.headings.own, self.headers());
        let is_queued = self.tx.push(len, headers, fill, |frame| heading_of(own, frame));
        self.stats.tx_not_roce += u64::from(!is_queued);
        if self.tx.is_due() {
            self.flush();
        }
        Ok(())
    }

    #[inline]
    fn flush(&mut self) {
        while !self.tx.is_empty() && self.send() {}
    }

    /// What the kernel reports of packets that were sent shows nowhere else where a socket only sends.
    #[inline]
    fn maintain(&mut self, now: Nanos) -> LinkState {
        if now >= self.next_look {
            self.next_look = now + LOOK_NS;
            self.lengths.forget_old(now);
            if self.lengths.are_to_be_looked_at(now) {
                self.look_at_interface();
            }
            self.take_failures();
        }
        self.own_address.state(now)
    }

    fn stats(&self) -> LinkStats {
        LinkStats { rx_missed: self.sockets.rx.dropped(), ..self.stats }
    }
}
