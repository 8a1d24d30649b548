//! Whether the host still has the link's address. The kernel may say so by an error, or send on from an address that no answer
//! reaches, and it may forget the socket's address and say nothing. So it is asked.

use std::io;
use std::net::{IpAddr, UdpSocket};

use roci_protocol::Nanos;

use crate::link::LinkState;

/// How often it is asked: a socket is opened and closed.
const LOOK_NS: Nanos = 500_000_000;

pub(super) struct OwnAddress {
    ip: IpAddr,
    next_look: Nanos,
    state: LinkState,
}

impl OwnAddress {
    pub(super) fn new(ip: IpAddr) -> Self {
        Self { ip, next_look: 0, state: LinkState::Up }
    }

    /// Whether the host has it. Frames are lost while it has not.
    #[inline]
    pub(super) fn state(&mut self, now: Nanos) -> LinkState {
        if now >= self.next_look {
            self.next_look = now + LOOK_NS;
            self.note(is_there(self.ip));
        }
        self.state
    }

    #[cold]
    fn note(&mut self, is_there: bool) {
        let state = if is_there { LinkState::Up } else { LinkState::Down };
        if state == self.state {
            return;
        }
        self.state = state;
        let ip = self.ip;
        if is_there {
            tracing::warn!("udp: this host has the address {ip} again");
        } else {
            tracing::warn!(
                "udp: no interface of this host has the address {ip} any more: packets are lost until one has it again"
            );
        }
    }
}

/// A socket can be bound to an address of the host's. Where that fails for another reason, nothing is known against it.
fn is_there(ip: IpAddr) -> bool {
    let bound = UdpSocket::bind((ip, 0));
    !bound.is_err_and(|error| error.kind() == io::ErrorKind::AddrNotAvailable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_this_host_is_there_and_one_of_another_host_is_not() {
        let state_of = |ip: [u8; 4]| OwnAddress::new(ip.into()).state(1);
        assert_eq!([state_of([127, 1, 2, 3]), state_of([192, 0, 2, 77])], [LinkState::Up, LinkState::Down]);
    }

    #[test]
    fn an_address_that_comes_back_is_noticed_at_the_next_look() {
        let mut own = OwnAddress::new([127, 0, 0, 1].into());
        own.note(false);
        own.next_look = LOOK_NS;
        assert_eq!([own.state(LOOK_NS - 1), own.state(LOOK_NS)], [LinkState::Down, LinkState::Up]);
    }
}
