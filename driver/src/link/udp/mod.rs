//! The link over a UDP socket of the kernel's: any interface, any user, IPv4 and IPv6.
//!
//! RoCEv2 is UDP to port 4791, so what such a socket sends is RoCEv2 on the wire. Above, a link carries Ethernet frames: their headers
//! down to UDP are made up here for what arrives, and cut off from what is sent. Stations are ports ([`station`]).
//!
//! # What the kernel chooses
//! - The IPv4 identification, which the ICRC covers and a socket does not show: see [`roci_protocol::wire::identification`]. What is sent has
//!   0, and in a train the packet's place in it. Where a train arrives as it was sent, or a packet alone, that is what the ICRC is
//!   checked with, whole. Where it is wrong then, [`Link::hides_identification`] lets the engine ask which identification it is right
//!   for.
//! - The source port, which is the sending socket's: frames are made with it ([`Link::source_port`]). It is entropy, as RoCEv2 wants it,
//!   but the same for all connections of a link.
//! - The hop limit, the flow label and both checksums, which the ICRC does not cover.
//!
//! # Ports
//! A link has port 4791 where it is free at its address, and a second socket to send from. The processes beside it at the same address have ports of their own: they
//! talk with others of this stack, whose addresses say the port, and not with other RoCEv2 hosts.
//!
//! # Errors
//! The kernel reports what became of packets (`IP_RECVERR`). A host whose process is gone says that no socket has the port: the engine
//! ends the connection whose packet the message quotes. A longer packet than the path carries shortens what connections are made with from
//! then on. Whatever else is wrong, an interface that is down or a route that is missing, is as a cable that is cut: frames are lost
//! until it is mended.

mod changes;
mod interface;
mod open;
mod rx_queue;
mod socket;
pub mod station;
mod tx_queue;

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use roci_protocol::Nanos;
use roci_protocol::wire::{Ethernet, FrameLayers, Ip, Ipv4, Ipv6, MacAddr, Udp, ethernet, ipv4, ipv6, udp};

use super::{Batch, Full, Link, LinkState, LinkStats, RefusedPacket, fill_around};

pub use open::{ParseUdpAddressError, UdpAddress, UdpError};
pub use rx_queue::UdpFrame;

use changes::IcrcChanges;
use rx_queue::{BarePacket, RxQueue};
use socket::{FailedPacket, KernelSocket, MESSAGES, SendFailure};
use tx_queue::{Heading, TxQueue};

/// Refused packets that wait to be looked at; one more, and the oldest goes.
const REFUSED: usize = 16;
/// How often packets that have failed after they were sent are looked for.
const LOOK_NS: Nanos = 1_000_000;

/// A UDP socket as a [`Link`].
pub struct UdpLink {
    sockets: Sockets,
    origin: Instant,
    /// This end.
    own: SocketAddr,
    mac: MacAddr,
    /// The longest frame, which a path may turn out to be shorter than.
    max_frame: usize,
    rx: RxQueue,
    tx: TxQueue,
    headings: Headings,
    changes: IcrcChanges,
    refused: VecDeque<RefusedPacket>,
    /// When packets that have failed are looked for again.
    next_look: Nanos,
    stats: LinkStats,
}

/// One socket that receives, and sends where its port is its own; else another one sends, from a port that is entropy.
struct Sockets {
    rx: KernelSocket,
    tx: Option<KernelSocket>,
}

impl Sockets {
    #[inline]
    fn tx(&self) -> &KernelSocket {
        self.tx.as_ref().unwrap_or(&self.rx)
    }

    fn tx_mut(&mut self) -> &mut KernelSocket {
        self.tx.as_mut().unwrap_or(&mut self.rx)
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
        self.own
    }

    /// How many bytes the kernel keeps for it at most until it receives.
    pub fn receive_buffer(&self) -> io::Result<usize> {
        self.sockets.rx.receive_buffer()
    }

    /// Whether the kernel cuts trains of packets that are sent (UDP GSO), and gathers those that arrive (UDP GRO).
    pub fn offload(&self) -> (bool, bool) {
        (self.sockets.tx().offload().gso, self.sockets.rx.offload().gro)
    }

    /// Bytes of headers down to UDP.
    fn headers(&self) -> usize {
        headers_of(self.own.ip())
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
        while let Some(FailedPacket { to, failure, quote }) = self.sockets.tx().next_failure() {
            match failure {
                SendFailure::Refused => self.report_refused(to, &quote),
                SendFailure::TooLong(mtu) => self.shorten(mtu),
                SendFailure::Other => {}
            }
        }
    }

    fn report_refused(&mut self, to: SocketAddr, quote: &[u8]) {
        self.stats.tx_refused += 1;
        if self.refused.len() == REFUSED {
            self.refused.pop_front();
        }
        let Some(&quote) = quote.first_chunk() else { return };
        self.refused.push_back(RefusedPacket { ip: to.ip(), station: station::of_port(to.port()), quote });
    }

    /// A path carries less than the interface: what is connected from here on sends no more than that.
    fn shorten(&mut self, mtu: usize) {
        let max_frame = ethernet::LEN + mtu;
        self.stats.tx_too_long += 1;
        if mtu >= open::LEAST_MTU && max_frame < self.max_frame {
            tracing::warn!(
                "udp: a path carries packets of {mtu} bytes and no longer ones: connections made from now on keep to that"
            );
            self.max_frame = max_frame;
        }
    }

    /// Sends the first messages that wait; `false` where the kernel takes no more now.
    fn send(&mut self) -> bool {
        let (bytes, messages) = self.tx.messages();
        let messages: arrayvec::ArrayVec<_, MESSAGES> = messages.take(MESSAGES).collect();
        match self.sockets.tx().send(bytes, &messages) {
            Ok(sent) => {
                let (frames, bytes) = self.tx.forget(sent);
                self.stats.tx_frames += frames;
                self.stats.tx_bytes += bytes + frames * self.headers() as u64;
                true
            }
            Err(error) => self.on_send_error(&error),
        }
    }

    /// The first message was not sent: it waits, or it is lost, as on a cable that is cut.
    #[cold]
    fn on_send_error(&mut self, error: &io::Error) -> bool {
        match error.raw_os_error() {
            Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM) => return false,
            Some(libc::EINTR) => return true,
            // A device that computes no checksums cuts no trains: what waits is lost, and comes again in single packets.
            Some(libc::EIO) if self.sockets.tx().offload().gso => {
                self.sockets.tx_mut().give_up_gso();
                self.tx.split();
            }
            // Of a packet before: this one goes the next time.
            Some(libc::ECONNREFUSED) => {
                self.take_failures();
                return true;
            }
            _ => self.take_failures(),
        }
        let (frames, _) = self.tx.forget(1);
        if error.raw_os_error() != Some(libc::EMSGSIZE) {
            self.stats.tx_link_down += frames;
        }
        true
    }
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
        Udp { source: message.from.port(), destination: udp::ROCE_PORT, payload_len, checksum: 0 }
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
    let port = station::port_of(ethernet.destination).unwrap_or(udp::ROCE_PORT);
    let is_v4 = matches!(ip, Ip::V4(_));
    (ethernet.vlan.is_none() && is_v4 == own.is_ipv4()).then(|| {
        let mut to = SocketAddr::new(ip.destination(), port);
        if let (SocketAddr::V6(to), SocketAddr::V6(own)) = (&mut to, own)
            && to.ip().is_unicast_link_local()
        {
            to.set_scope_id(own.scope_id());
        }
        Heading { to, traffic_class: ip.traffic_class(), is_v4 }
    })
}

impl Link for UdpLink {
    type Frame = UdpFrame;

    #[inline]
    fn now(&self) -> Nanos {
        self.origin.elapsed().as_nanos() as Nanos
    }

    fn max_frame(&self) -> usize {
        self.max_frame
    }

    fn mac(&self) -> MacAddr {
        self.mac
    }

    /// The kernel finds the way.
    fn station_of(&self, ip: IpAddr) -> Option<MacAddr> {
        Some(if ip == self.own.ip() { self.mac } else { station::of_port(udp::ROCE_PORT) })
    }

    fn source_port(&self) -> Option<u16> {
        Some(self.sockets.tx().local().port())
    }

    fn hides_identification(&self) -> bool {
        self.own.is_ipv4()
    }

    fn take_refused(&mut self) -> Option<RefusedPacket> {
        self.refused.pop_front()
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
        let (own, headers) = (self.own, self.headers());
        self.tx.push(len, headers, fill, |frame| heading_of(own, frame));
        if self.tx.is_due() {
            self.flush();
        }
        Ok(())
    }

    fn transmit_around(
        &mut self,
        head: usize,
        payload: &[u8],
        _range: Option<u64>,
        tail: usize,
        fill: impl FnOnce(&mut [u8], &mut [u8]),
    ) -> Result<(), Full> {
        self.transmit(head + payload.len() + tail, |frame| fill_around(frame, head, payload, fill))
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
            self.take_failures();
        }
        LinkState::Up
    }

    fn stats(&self) -> LinkStats {
        LinkStats { rx_missed: u64::from(self.sockets.rx.dropped()), ..self.stats }
    }
}
