//! The sockets that send beside the one at RoCEv2's port: one to anybody, and one that is connected to the peer that most goes to.
//!
//! For a connected socket the kernel keeps the route. It counts the IPv4 identification up there, from a number that it draws when the
//! socket is connected, and the ICRC covers that. So the count is found out first, by a look at a packet that goes to the socket itself, and
//! each ICRC is changed as it goes. Whatever goes wrong may leave the count unknown: then the socket is closed, and
//! everything goes as before.

use std::io;
use std::net::SocketAddr;

use arrayvec::ArrayVec;

use super::changes::IcrcChanges;
use super::regularity::Regularity;
use super::socket::{FailedPacket, KernelSocket, MESSAGES, SocketDuty, TxMessage};
use super::tx_queue::TxQueue;

pub(super) struct TxSockets {
    anybody: KernelSocket,
    regular: Option<RegularDestination>,
    regularity: Regularity,
    changes: IcrcChanges,
}

struct RegularDestination {
    socket: KernelSocket,
    to: SocketAddr,
    /// The identification of the next packet, where there is one.
    identification: Option<u16>,
    /// Something went wrong: what the kernel says of its packets is read, and then it is closed.
    has_failed: bool,
}

impl TxSockets {
    pub(super) const fn new(anybody: KernelSocket) -> Self {
        Self { anybody, regular: None, regularity: Regularity::new(), changes: IcrcChanges::new() }
    }

    /// The one that sends to anybody.
    pub(super) const fn anybody(&self) -> &KernelSocket {
        &self.anybody
    }

    pub(super) const fn anybody_mut(&mut self) -> &mut KernelSocket {
        &mut self.anybody
    }

    /// Who has a socket of its own.
    pub(super) fn regular_peer(&self) -> Option<SocketAddr> {
        self.regular.as_ref().filter(|regular| !regular.has_failed).map(|regular| regular.to)
    }

    /// Sends the first messages of a queue, and returns how many the kernel has taken: at least one.
    #[inline]
    pub(super) fn send(&mut self, queue: &mut TxQueue) -> io::Result<usize> {
        let (bytes, mut messages) = queue.messages();
        let Some(first) = messages.next() else { return Ok(0) };
        match &mut self.regular {
            Some(regular) if regular.serves(first.to) => regular.send(bytes, first, &mut self.changes).map(|()| 1),
            regular => {
                let is_for_anybody =
                    |message: &TxMessage| !regular.as_ref().is_some_and(|regular| regular.serves(message.to));
                let messages: ArrayVec<_, MESSAGES> =
                    std::iter::once(first).chain(messages.take_while(is_for_anybody)).take(MESSAGES).collect();
                let sent = self.anybody.send(bytes, &messages)?;
                if self.regularity.note(first.to) {
                    self.connect(first.to);
                }
                Ok(sent)
            }
        }
    }

    #[cold]
    fn connect(&mut self, to: SocketAddr) {
        // It has the address, and shares it with no other.
        self.regular = None;
        self.regular = RegularDestination::connect(&self.anybody, to)
            .inspect_err(|error| tracing::debug!("udp: no socket to {to}: {error}"))
            .ok();
    }

    /// Takes the oldest of the packets that failed after they were sent, where there is one.
    pub(super) fn next_failure(&mut self) -> Option<FailedPacket> {
        let of_regular = self.regular.as_ref().and_then(|regular| regular.socket.next_failure());
        if of_regular.is_none() && self.regular.as_ref().is_some_and(|regular| regular.has_failed) {
            self.regular = None;
        }
        of_regular.or_else(|| self.anybody.next_failure())
    }
}

impl RegularDestination {
    fn connect(beside: &KernelSocket, to: SocketAddr) -> io::Result<Self> {
        let socket = KernelSocket::connect(beside, to, SocketDuty::Send)?;
        let identification = if to.is_ipv4() { Some(socket.next_identification()?) } else { None };
        Ok(Self { socket, to, identification, has_failed: false })
    }

    #[inline]
    fn serves(&self, to: SocketAddr) -> bool {
        self.to == to && !self.has_failed
    }

    /// Sends a message. Where that fails the packets are as they were.
    #[inline]
    fn send(&mut self, bytes: &mut [u8], message: TxMessage, changes: &mut IcrcChanges) -> io::Result<()> {
        if let Some(identification) = self.identification {
            changes.move_on(identification, message.segment, &mut bytes[message.start..message.end]);
        }
        let packets = &bytes[message.start..message.end];
        let sent = if packets.len() <= message.segment && message.traffic_class == 0 {
            self.socket.send_packet(packets)
        } else {
            self.socket.send(bytes, &[message]).map(drop)
        };
        match (&sent, &mut self.identification) {
            (Ok(()), Some(identification)) => *identification = identification.wrapping_add(1),
            (Ok(()), None) => {}
            (Err(error), identification) => {
                if let Some(identification) = *identification {
                    changes.move_on(identification, message.segment, &mut bytes[message.start..message.end]);
                }
                // A full buffer alone takes no number.
                self.has_failed = error.kind() != io::ErrorKind::WouldBlock;
            }
        }
        sent
    }
}
