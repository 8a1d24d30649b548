//! The socket: what the kernel is asked for, and nothing else. All of the link's unsafe code is here, in [`raw_address`](super::raw_address)
//! and in [`interface`](super::interface).

use std::io;
use std::mem::MaybeUninit;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, RawFd};

use arrayvec::ArrayVec;
use roci_protocol::wire::{Ethernet, Ipv4};
use rustix::net::{self, AddressFamily, SocketFlags, SocketType};
use static_assertions::const_assert;

use super::raw_address::{RawAddress, raw_address, socket_address};
use super::rx_room::{PIECES, RxRoom};

/// Messages that one call sends or receives at most.
pub(super) const MESSAGES: usize = 8;
/// Bytes of an error's packet that are looked at: its BTH.
pub(super) const QUOTE: usize = 12;
/// Bytes of a timestamp's packet that are looked at: Ethernet, IPv4 and UDP, and the one behind them.
const COPY: usize = 64;
/// A timestamp is taken before the packet is given to a device, whichever that is, and comes with a copy of the packet.
const TIMESTAMPS: libc::c_uint = libc::SOF_TIMESTAMPING_TX_SCHED | libc::SOF_TIMESTAMPING_SOFTWARE;
/// Eight-byte words of a message's control data.
const CONTROL: usize = 16;
/// Lets packets in whose UDP checksum was left out (`linux/udp.h`).
const UDP_NO_CHECK6_RX: libc::c_int = 102;
/// What the socket's buffers should hold; the kernel gives what it allows (`rmem_max`, `wmem_max`).
const BUFFER: libc::c_int = 8 << 20;

/// A UDP socket that does not fragment, and never blocks.
#[derive(Debug)]
pub(super) struct KernelSocket {
    inner: UdpSocket,
    local: SocketAddr,
    /// What it sends goes to its peer: the kernel keeps the way, and needs no address.
    is_connected: bool,
    /// One call may send a train of packets (UDP GSO), and receive one (UDP GRO).
    offload: Offload,
    /// What the kernel has dropped because the receive buffer was full, as it counts.
    dropped: u32,
}

/// What a socket is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SocketDuty {
    Send,
    Receive,
    Both,
}

/// What the kernel does for trains of packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Offload {
    pub(super) gso: bool,
    pub(super) gro: bool,
}

/// Packets to send in one message: all as long as the first, the last perhaps shorter.
#[derive(Clone, Copy, Debug)]
pub(super) struct TxMessage {
    pub(super) to: SocketAddr,
    /// Where the first begins, and the end of the last.
    pub(super) start: usize,
    pub(super) end: usize,
    /// How long the first is.
    pub(super) segment: usize,
    /// DSCP and ECN.
    pub(super) traffic_class: u8,
}

/// Packets that came in one message.
#[derive(Clone, Copy, Debug)]
pub(super) struct RxMessage {
    pub(super) from: SocketAddr,
    pub(super) len: usize,
    /// How long each is but the last.
    pub(super) segment: usize,
    /// Bytes between the gaps of its room, as [`RxRoom::spread`] has it.
    pub(super) spread: usize,
    /// DSCP and ECN.
    pub(super) traffic_class: u8,
}

/// What became of packets that were sent before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SendFailure {
    /// The host says that no socket has the port (ICMP, port unreachable).
    Refused,
    /// They are longer than the way to the peer carries: so many bytes, IP included.
    TooLong(usize),
    /// Anything else.
    Other,
}

/// A packet that failed.
#[derive(Clone, Debug)]
pub(super) struct FailedPacket {
    pub(super) to: SocketAddr,
    pub(super) failure: SendFailure,
    /// The first bytes of the packet.
    pub(super) quote: ArrayVec<u8, QUOTE>,
}

/// Control data, aligned as its headers are.
type ControlData = [u64; CONTROL];

impl KernelSocket {
    /// Opens a socket at this address. What becomes of packets is reported to one that sends; one that does not receive drops
    /// what comes.
    pub(super) fn bind(address: SocketAddr, duty: SocketDuty) -> io::Result<Self> {
        let socket = UdpSocket::bind(address)?;
        socket.set_nonblocking(true)?;
        let local = socket.local_addr()?;
        let mut socket = Self::new(socket, local);
        socket.prepare(duty)?;
        Ok(socket)
    }

    /// Opens a socket at the address of another one, and connects it to a peer. From here on it has what comes from there, and the
    /// other has all the rest.
    pub(super) fn connect(beside: &Self, peer: SocketAddr, duty: SocketDuty) -> io::Result<Self> {
        let family = if peer.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = net::socket_with(family, SocketType::DGRAM, flags, None)?;
        let mut socket = Self::new(socket.into(), beside.local);
        // What comes before it is connected may be anybody's: it is received, or dropped, as by the other.
        socket.prepare(duty)?;
        socket.share_port(true)?;
        beside.share_port(true)?;
        let bound = net::bind(&socket.inner, &beside.local);
        // No other process gets a socket there: the kernel looks at this only as an address is taken.
        beside.share_port(false)?;
        socket.share_port(false)?;
        bound?;
        net::connect(&socket.inner, &peer)?;
        socket.is_connected = true;
        Ok(socket)
    }

    const fn new(inner: UdpSocket, local: SocketAddr) -> Self {
        Self { inner, local, is_connected: false, offload: Offload { gso: false, gro: false }, dropped: 0 }
    }

    fn prepare(&mut self, duty: SocketDuty) -> io::Result<()> {
        let is_v4 = self.local.is_ipv4();
        if duty != SocketDuty::Receive {
            self.prepare_to_send(is_v4)?;
        }
        if duty == SocketDuty::Send { self.drop_all() } else { self.prepare_to_receive(is_v4) }
    }

    /// Whether sockets of this user, that say the same, may have its address too.
    fn share_port(&self, does: bool) -> io::Result<()> {
        self.set(libc::SOL_SOCKET, libc::SO_REUSEPORT, does.into())
    }

    /// Packets are not fragmented, whatever the path is said to carry: only the interface's own limit holds, for anybody may
    /// send what lowers the other (ICMP, fragmentation needed).
    fn prepare_to_send(&mut self, is_v4: bool) -> io::Result<()> {
        if is_v4 {
            self.set(libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE)?;
            self.set(libc::IPPROTO_IP, libc::IP_RECVERR, 1)?;
        } else {
            self.set(libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE)?;
            self.set(libc::IPPROTO_IPV6, libc::IPV6_RECVERR, 1)?;
        }
        // What an older kernel lacks is done without.
        self.offload.gso = self.set(libc::SOL_UDP, libc::UDP_SEGMENT, 0).is_ok();
        self.set_buffer(libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)
    }

    fn prepare_to_receive(&mut self, is_v4: bool) -> io::Result<()> {
        if is_v4 {
            self.set(libc::IPPROTO_IP, libc::IP_RECVTOS, 1)?;
        } else {
            self.set(libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1)?;
            // RoCEv2 hosts leave the UDP checksum out, and the ICRC stands for it (RFC 6935 allows that to tunnels).
            self.set(libc::SOL_UDP, UDP_NO_CHECK6_RX, 1)?;
        }
        // What an older kernel lacks is done without.
        let _ = self.set(libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1);
        self.offload.gro = self.set_gro(true).is_ok();
        self.set_buffer(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF)
    }

    /// Has the kernel drop what comes: else it would fill the buffer, which has to hold reports of what was sent.
    fn drop_all(&self) -> io::Result<()> {
        let mut nothing = libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: 0 };
        let filter = libc::sock_fprog { len: 1, filter: &raw mut nothing };
        set_option_to(self.inner.as_raw_fd(), libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &filter)
    }

    fn set(&self, level: libc::c_int, name: libc::c_int, value: libc::c_int) -> io::Result<()> {
        set_option_to(self.inner.as_raw_fd(), level, name, &value)
    }

    /// Beyond the limit that the machine sets where that is allowed, else up to it.
    fn set_buffer(&self, forced: libc::c_int, limited: libc::c_int) -> io::Result<()> {
        self.set(libc::SOL_SOCKET, forced, BUFFER).or_else(|_| self.set(libc::SOL_SOCKET, limited, BUFFER))
    }

    /// Its address.
    pub(super) fn local(&self) -> SocketAddr {
        self.local
    }

    /// What the kernel does for trains.
    pub(super) fn offload(&self) -> Offload {
        self.offload
    }

    /// Sends no trains from here on: the device cannot.
    pub(super) fn give_up_gso(&mut self) {
        self.offload.gso = false;
    }

    /// Whether the kernel gathers trains of what comes from here on.
    pub(super) fn set_gro(&self, does: bool) -> io::Result<()> {
        self.set(libc::SOL_UDP, libc::UDP_GRO, does.into())
    }

    /// What the kernel has dropped so far because the receive buffer was full.
    pub(super) const fn dropped(&self) -> u32 {
        self.dropped
    }

    /// Returns the bytes that its receive buffer holds, as the kernel counts them.
    pub(super) fn receive_buffer(&self) -> io::Result<usize> {
        let bytes = option_of(self.inner.as_raw_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF)?;
        Ok(usize::try_from(bytes).unwrap_or(0))
    }

    /// Sends messages, whose packets lie in `bytes`, and returns how many the kernel has taken: at least one.
    pub(super) fn send(&self, bytes: &[u8], messages: &[TxMessage]) -> io::Result<usize> {
        let messages = &messages[..messages.len().min(MESSAGES)];
        let mut addresses = [const { MaybeUninit::<RawAddress>::uninit() }; MESSAGES];
        let mut controls = [const { MaybeUninit::<ControlData>::uninit() }; MESSAGES];
        let mut vectors = [const { MaybeUninit::<libc::iovec>::uninit() }; MESSAGES];
        let mut headers = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; MESSAGES];
        for (index, message) in messages.iter().enumerate() {
            let packets = &bytes[message.start..message.end];
            let (address, address_len) = raw_address(message.to);
            let address_len = if self.is_connected { 0 } else { address_len };
            let vector = libc::iovec { iov_base: packets.as_ptr().cast_mut().cast(), iov_len: packets.len() };
            let control = controls[index].write([0; CONTROL]);
            let header = headers[index].write(message_of(
                (addresses[index].write(address), address_len),
                std::slice::from_mut(vectors[index].write(vector)),
                control,
            ));
            let segment = (packets.len() > message.segment).then_some(message.segment as u16);
            put_control(&mut header.msg_hdr, message.to.is_ipv4(), segment, message.traffic_class);
        }
        let (fd, count, flags) = (self.inner.as_raw_fd(), messages.len() as libc::c_uint, libc::MSG_DONTWAIT);
        if count == 1 {
            // SAFETY: as below, and a header of several begins with a header of one.
            let sent = unsafe { libc::sendmsg(fd, headers.as_ptr().cast(), flags) };
            return if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(1) };
        }
        // SAFETY: the first `count` headers are written; what they point to is ours and outlives the call; the kernel reads the
        // packets and does not write them.
        let sent = unsafe { libc::sendmmsg(fd, headers.as_mut_ptr().cast(), count, flags) };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }

    /// Sends one packet of class 0 to the peer that it is connected to.
    #[inline]
    pub(super) fn send_packet(&self, packet: &[u8]) -> io::Result<()> {
        debug_assert!(self.is_connected);
        self.inner.send(packet).map(drop)
    }

    /// Whether a message waits to be received.
    pub(super) fn has_message(&self) -> bool {
        self.inner.peek(&mut [0]).is_ok()
    }

    /// Receives one message of the peer that it is connected to, and returns its length.
    #[inline]
    pub(super) fn receive_packet(&self, buffer: &mut [u8]) -> io::Result<usize> {
        debug_assert!(self.is_connected);
        self.inner.recv(buffer)
    }

    /// Receives a message into each of these rooms, as far as there are any; one at least, or an error.
    pub(super) fn receive<'a>(
        &mut self,
        rooms: impl Iterator<Item = RxRoom<'a>>,
    ) -> io::Result<ArrayVec<RxMessage, MESSAGES>> {
        let mut addresses = [const { MaybeUninit::<RawAddress>::uninit() }; MESSAGES];
        let mut controls = [const { MaybeUninit::<ControlData>::uninit() }; MESSAGES];
        let mut vectors = [const { ArrayVec::<libc::iovec, PIECES>::new_const() }; MESSAGES];
        let mut headers = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; MESSAGES];
        let mut spreads = ArrayVec::<usize, MESSAGES>::new();
        for (index, room) in rooms.take(MESSAGES).enumerate() {
            // SAFETY: a socket's address is plain data, of which all zeros are a value.
            let address = addresses[index].write(unsafe { std::mem::zeroed() });
            spreads.push(room.spread());
            vectors[index].extend(room.pieces().map(vector_of));
            let control = controls[index].write([0; CONTROL]);
            headers[index].write(message_of((address, size_of::<RawAddress>()), &mut vectors[index], control));
        }
        let count = spreads.len() as libc::c_uint;
        let (fd, flags) = (self.inner.as_raw_fd(), libc::MSG_DONTWAIT);
        let received = if count == 1 {
            let first = headers[0].as_mut_ptr();
            // SAFETY: as below, and a header of several begins with a header of one, behind which its length is ours to write.
            unsafe {
                let len = libc::recvmsg(fd, &raw mut (*first).msg_hdr, flags);
                (*first).msg_len = len as libc::c_uint;
                if len < 0 { -1 } else { 1 }
            }
        } else {
            // SAFETY: the first `count` headers are written; what they point to is ours and outlives the call: the rooms are
            // borrowed mutably, each by one header. Without a timeout none is read.
            unsafe { libc::recvmmsg(fd, headers.as_mut_ptr().cast(), count, flags, std::ptr::null_mut()) }
        };
        let received = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
        let mut incoming = ArrayVec::new();
        for (header, spread) in headers[..received].iter().zip(spreads) {
            // SAFETY: it was written above, and the kernel has not undone that.
            incoming.push(self.incoming(unsafe { header.assume_init_ref() }, spread));
        }
        Ok(incoming)
    }

    /// Reads what the kernel says of a message; one from nowhere is empty.
    fn incoming(&mut self, header: &libc::mmsghdr, spread: usize) -> RxMessage {
        // SAFETY: the header is one of `receive`'s, whose name is a `RawAddress` that the kernel has filled.
        let from = socket_address(unsafe { &*header.msg_hdr.msg_name.cast::<RawAddress>() });
        let len = if from.is_some() { header.msg_len as usize } else { 0 };
        let from = from.unwrap_or(self.local);
        let mut incoming = RxMessage { from, len, segment: len, spread, traffic_class: 0 };
        for (level, kind, data) in controls_of(&header.msg_hdr) {
            match (level, kind) {
                (libc::IPPROTO_IP, libc::IP_TOS) => incoming.traffic_class = data.first().copied().unwrap_or(0),
                (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => incoming.traffic_class = number_of(data) as u8,
                (libc::SOL_UDP, libc::UDP_GRO) => incoming.segment = number_of(data) as usize,
                (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => self.dropped = number_of(data),
                _ => {}
            }
        }
        incoming
    }

    /// Returns the IPv4 identification of the packet that is sent next: the socket is connected, so the kernel counts up.
    ///
    /// It sends two packets to itself, which it drops, and looks at the copies that belong to their timestamps.
    pub(super) fn next_identification(&self) -> io::Result<u16> {
        self.set(libc::SOL_SOCKET, libc::SO_TIMESTAMPING, TIMESTAMPS.cast_signed())?;
        let seen = [self.identification_of_a_packet(), self.identification_of_a_packet()];
        self.set(libc::SOL_SOCKET, libc::SO_TIMESTAMPING, 0)?;
        match seen {
            [Ok(first), Ok(second)] if second == first.wrapping_add(1) => Ok(second.wrapping_add(1)),
            [Ok(_), Ok(_)] => Err(io::Error::other("the kernel does not count up")),
            [Err(error), _] | [_, Err(error)] => Err(error),
        }
    }

    fn identification_of_a_packet(&self) -> io::Result<u16> {
        self.inner.send_to(&[0], self.local)?;
        let mut copy = [0; COPY];
        let (len, _, _) = self.take_report(&mut copy).ok_or(io::ErrorKind::WouldBlock)?;
        let ip = Ethernet::parse(&copy[..len]).and_then(|(_, rest)| Ipv4::parse(rest));
        ip.map(|(ip, _)| ip.id).map_err(io::Error::other)
    }

    /// Takes the oldest of the packets that failed after they were sent, where there is one.
    pub(super) fn next_failure(&self) -> Option<FailedPacket> {
        let mut quote = [0; QUOTE];
        let (len, to, failure) = self.take_report(&mut quote)?;
        let quote = quote[..len].iter().copied().collect();
        Some(FailedPacket { to: to.unwrap_or(self.local), failure: failure.unwrap_or(SendFailure::Other), quote })
    }

    /// Takes the oldest of the kernel's reports on packets that were sent: as much of the packet as has room, where it was to go, and what
    /// went wrong.
    fn take_report(&self, packet: &mut [u8]) -> Option<(usize, Option<SocketAddr>, Option<SendFailure>)> {
        let mut control = [0; CONTROL];
        // SAFETY: a socket's address is plain data, of which all zeros are a value.
        let mut address: RawAddress = unsafe { std::mem::zeroed() };
        let mut vector = libc::iovec { iov_base: packet.as_mut_ptr().cast(), iov_len: packet.len() };
        let name = (&mut address, size_of::<RawAddress>());
        let mut header = message_of(name, std::slice::from_mut(&mut vector), &mut control).msg_hdr;
        let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
        // SAFETY: the header is written, and what it points to is ours and outlives the call.
        let len = unsafe { libc::recvmsg(self.inner.as_raw_fd(), &raw mut header, flags) };
        let len = usize::try_from(len).ok()?.min(packet.len());
        let failure = controls_of(&header).find_map(|(level, kind, data)| match (level, kind) {
            (libc::IPPROTO_IP, libc::IP_RECVERR) | (libc::IPPROTO_IPV6, libc::IPV6_RECVERR) => failure_of(data),
            _ => None,
        });
        Some((len, socket_address(&address), failure))
    }
}

/// Sets an option to a value of the kernel's own type for it.
fn set_option_to<T>(fd: RawFd, level: libc::c_int, name: libc::c_int, value: &T) -> io::Result<()> {
    let len = size_of::<T>() as libc::socklen_t;
    // SAFETY: the descriptor is open; `value` is borrowed, and as long as `len` says. A filter's program is copied by the call.
    let result = unsafe { libc::setsockopt(fd, level, name, std::ptr::from_ref(value).cast(), len) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Returns the value of an option whose type is the kernel's `int`.
pub(super) fn option_of(fd: RawFd, level: libc::c_int, name: libc::c_int) -> io::Result<libc::c_int> {
    let (mut value, mut len) = (0 as libc::c_int, size_of::<libc::c_int>() as libc::socklen_t);
    // SAFETY: the descriptor is open; `value` and `len` are ours, and as long as they say.
    let result = unsafe { libc::getsockopt(fd, level, name, (&raw mut value).cast(), &raw mut len) };
    if result == 0 { Ok(value) } else { Err(io::Error::last_os_error()) }
}

/// A header that points to these; its control data is empty when it is sent, and all of it is room when it is received.
fn message_of(
    (address, address_len): (&mut RawAddress, usize),
    vectors: &mut [libc::iovec],
    control: &mut ControlData,
) -> libc::mmsghdr {
    // SAFETY: a message header is plain data, of which all zeros are a value.
    let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
    header.msg_hdr.msg_name = std::ptr::from_mut(address).cast();
    header.msg_hdr.msg_namelen = address_len as libc::socklen_t;
    header.msg_hdr.msg_iov = vectors.as_mut_ptr();
    header.msg_hdr.msg_iovlen = vectors.len() as _;
    header.msg_hdr.msg_control = control.as_mut_ptr().cast();
    header.msg_hdr.msg_controllen = size_of::<ControlData>() as _;
    header
}

/// Memory that the kernel writes.
fn vector_of(piece: &mut [u8]) -> libc::iovec {
    libc::iovec { iov_base: piece.as_mut_ptr().cast(), iov_len: piece.len() }
}

/// Writes what is to be sent otherwise than usual into a message's control data.
fn put_control(header: &mut libc::msghdr, is_v4: bool, segment: Option<u16>, traffic_class: u8) {
    let mut used = 0;
    if let Some(segment) = segment {
        used += put(header, used, (libc::SOL_UDP, libc::UDP_SEGMENT), &segment.to_ne_bytes());
    }
    if traffic_class != 0 {
        let kind = if is_v4 { (libc::IPPROTO_IP, libc::IP_TOS) } else { (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) };
        used += put(header, used, kind, &libc::c_int::from(traffic_class).to_ne_bytes());
    }
    header.msg_controllen = used as _;
}

/// Writes one item at this place, and returns how much it takes.
fn put(header: &libc::msghdr, at: usize, (level, kind): (libc::c_int, libc::c_int), data: &[u8]) -> usize {
    // SAFETY: these compute lengths of control data.
    let (space, len) = unsafe { (libc::CMSG_SPACE(data.len() as u32) as usize, libc::CMSG_LEN(data.len() as u32)) };
    assert!(at + space <= size_of::<ControlData>(), "two items fit");
    // SAFETY: the control data is a `ControlData` that the header borrows, has room from `at` on as was just checked, and is aligned there
    // as its headers are, because spaces are multiples of that. `CMSG_DATA` is where the data goes, which is as long as `space` allows.
    unsafe {
        let item = header.msg_control.byte_add(at).cast::<libc::cmsghdr>();
        (*item).cmsg_level = level;
        (*item).cmsg_type = kind;
        (*item).cmsg_len = len as _;
        std::ptr::copy_nonoverlapping(data.as_ptr(), libc::CMSG_DATA(item), data.len());
    }
    space
}

/// The items of the control data that the kernel has written: level, kind and bytes.
fn controls_of(header: &libc::msghdr) -> impl Iterator<Item = (libc::c_int, libc::c_int, &[u8])> {
    // SAFETY: the control data is a `ControlData`, and the kernel says how much of it it has filled.
    let first = unsafe { libc::CMSG_FIRSTHDR(header) };
    let next = move |item: &*mut libc::cmsghdr| {
        // SAFETY: as above; `item` is one of this header's.
        Some(unsafe { libc::CMSG_NXTHDR(header, *item) }).filter(|next| !next.is_null())
    };
    std::iter::successors(Some(first).filter(|item| !item.is_null()), next).map(|item| {
        // SAFETY: the kernel has written the item whole, and its data is as long as it says.
        unsafe {
            let len = (*item).cmsg_len - libc::CMSG_LEN(0) as usize;
            ((*item).cmsg_level, (*item).cmsg_type, std::slice::from_raw_parts(libc::CMSG_DATA(item), len))
        }
    })
}

/// The first four bytes as the kernel's number.
fn number_of(data: &[u8]) -> u32 {
    data.first_chunk().copied().map_or(0, u32::from_ne_bytes)
}

/// Reads a `sock_extended_err`: errno (4 bytes), origin, type, code, a reserved byte, and the MTU where that is the problem (4).
fn failure_of(data: &[u8]) -> Option<SendFailure> {
    const ORIGIN_LOCAL: u8 = 1;
    const MTU_AT: usize = 8;
    let errno = libc::c_int::try_from(number_of(data)).ok()?;
    let &origin = data.get(4)?;
    Some(match errno {
        libc::EMSGSIZE => SendFailure::TooLong(number_of(data.get(MTU_AT..)?) as usize),
        // A host or a net that cannot be reached may be there again soon.
        libc::ECONNREFUSED if origin != ORIGIN_LOCAL => SendFailure::Refused,
        _ => SendFailure::Other,
    })
}

const_assert!(align_of::<ControlData>() >= align_of::<libc::cmsghdr>());
