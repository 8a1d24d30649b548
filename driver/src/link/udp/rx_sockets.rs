//! The sockets that receive: one that has what comes from anybody, and one that is connected to the peer that most comes from.
//!
//! For a connected socket the kernel finds the way in from the packet's two ends at once, without a look at its routes.

use std::io;
use std::net::SocketAddr;

use arrayvec::ArrayVec;

use super::regular_source::RegularSource;
use super::regularity::Regularity;
use super::rx_room::RxRoom;
use super::socket::{KernelSocket, MESSAGES, RxMessage, SocketDuty};

/// One of so many looks is at what comes from anybody while that is nothing.
const TURNS: u32 = 16;
/// Looks at what comes from anybody, after a socket was connected, until its first: that nothing overtakes.
const FIRST: u32 = 64;
/// Looks that bring nothing from the regular peer while others send, until it is none any more.
const IN_VAIN: u32 = 64;

pub(super) struct RxSockets {
    anybody: KernelSocket,
    regular: Option<RegularSource>,
    /// Looks that have brought nothing from the regular peer while others send.
    in_vain: u32,
    /// Where messages come from that have no socket of their own; `None` where none gets one.
    regularity: Option<Regularity>,
    turn: u32,
    /// Looks at what comes from anybody that come first.
    waits: u32,
    /// The last look at what comes from anybody found something.
    others_send: bool,
    /// What sockets have dropped that are closed.
    dropped_before: u64,
}

impl RxSockets {
    /// `connects` says whether regular peers have a socket of their own.
    pub(super) fn new(anybody: KernelSocket, connects: bool) -> Self {
        let regularity = connects.then(Regularity::new);
        Self {
            anybody,
            regular: None,
            in_vain: 0,
            regularity,
            turn: 0,
            waits: 0,
            others_send: false,
            dropped_before: 0,
        }
    }

    /// The one that has what comes from anybody.
    #[inline]
    pub(super) const fn anybody(&self) -> &KernelSocket {
        &self.anybody
    }

    pub(super) const fn anybody_mut(&mut self) -> &mut KernelSocket {
        &mut self.anybody
    }

    /// Messages that the kernel has dropped because a receive buffer was full.
    pub(super) fn dropped(&self) -> u64 {
        let regular = self.regular.as_ref().map_or(0, RegularSource::dropped);
        self.dropped_before + u64::from(self.anybody.dropped()) + u64::from(regular)
    }

    /// Who has a socket of its own.
    pub(super) fn regular_peer(&self) -> Option<SocketAddr> {
        self.regular.as_ref().map(RegularSource::peer)
    }

    /// Receives what has arrived at the socket whose turn it is.
    #[inline]
    pub(super) fn receive<'a>(
        &mut self,
        room: impl Iterator<Item = RxRoom<'a>>,
    ) -> io::Result<ArrayVec<RxMessage, MESSAGES>> {
        if self.is_for_regular()
            && let Some(regular) = &mut self.regular
        {
            let received = regular.receive(room);
            self.in_vain = if received.is_ok() { 0 } else { self.in_vain + u32::from(self.others_send) };
            if self.in_vain == IN_VAIN {
                self.disconnect();
            }
            return received;
        }
        let received = self.anybody.receive(room);
        self.others_send = received.is_ok();
        match &received {
            Ok(messages) => self.note(messages),
            Err(_) => self.waits = 0,
        }
        received
    }

    /// Whether the next look is at what comes from the regular peer.
    #[inline]
    fn is_for_regular(&mut self) -> bool {
        if self.waits > 0 {
            self.waits -= 1;
            return false;
        }
        self.turn = self.turn.wrapping_add(1);
        !self.turn.is_multiple_of(if self.others_send { 2 } else { TURNS })
    }

    /// Looks whether one peer sends again and again. It gets a socket once no other has one: what waits at a socket that is closed is lost, so
    /// who still sends keeps it.
    #[inline]
    fn note(&mut self, messages: &[RxMessage]) {
        let Some(regularity) = &mut self.regularity else { return };
        let mut is_regular = false;
        for message in messages {
            is_regular |= regularity.note(message.from);
        }
        if is_regular
            && self.regular.is_none()
            && let Some(last) = messages.last()
        {
            self.connect(last.from);
        }
    }

    #[cold]
    fn connect(&mut self, peer: SocketAddr) {
        match KernelSocket::connect(&self.anybody, peer, SocketDuty::Receive) {
            Ok(socket) => {
                self.regular = Some(RegularSource::new(socket, peer));
                (self.waits, self.in_vain) = (FIRST, 0);
            }
            Err(error) => tracing::debug!("udp: no socket for {peer}: {error}"),
        }
    }

    #[cold]
    fn disconnect(&mut self) {
        if let Some(regular) = self.regular.take() {
            self.dropped_before += u64::from(regular.dropped());
        }
    }
}
