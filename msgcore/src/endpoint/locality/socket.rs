//! A datagram socket by which endpoints of one host find each other.
//!
//! It has a name in the abstract namespace, made of the endpoint's address. Such names are the network namespace's: who reaches the
//! socket is on the same host, under the same kernel, and on the same network; an endpoint of another host, or of another container,
//! has no such name here. The incarnation in the address is a random number, so that the name is no other endpoint's. Names have no
//! permissions: the kernel says who has sent a datagram, and those of other users are dropped.

use std::io::{self, ErrorKind, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg, sockopt};
use rustix::process::{Uid, geteuid};

use super::message::MESSAGE_LEN;
use crate::endpoint::address::EndpointAddress;

/// Datagrams of others that one call drops at most.
const REFUSALS: usize = 64;

/// The socket of one endpoint.
#[derive(Debug)]
pub(super) struct LocalSocket {
    socket: UnixDatagram,
    /// The user, whose endpoints alone are listened to.
    user: Uid,
    /// Datagrams of others that were dropped.
    pub(super) refused: u64,
}

impl LocalSocket {
    /// The socket of the endpoint at an address.
    ///
    /// # Errors
    /// Another process has the name, or there are no more descriptors.
    pub(super) fn bind(address: &EndpointAddress) -> io::Result<Self> {
        let socket = UnixDatagram::bind_addr(&name_of(address)?)?;
        socket.set_nonblocking(true)?;
        sockopt::set_socket_passcred(&socket, true)?;
        Ok(Self { socket, user: geteuid(), refused: 0 })
    }

    /// Whether the endpoint at an address is on this host and listens.
    /// Sends a message to the endpoint at an address.
    ///
    /// # Errors
    /// It does not listen, or its queue is full ([`ErrorKind::WouldBlock`]).
    pub(super) fn send(&self, address: &EndpointAddress, message: &str) -> io::Result<()> {
        self.socket.send_to_addr(message.as_bytes(), &name_of(address)?).map(drop)
    }

    /// Takes the next datagram that an endpoint of this user has sent, and returns its length; nothing where there is none now.
    pub(super) fn receive(&mut self, bytes: &mut [u8; MESSAGE_LEN]) -> Option<usize> {
        for _ in 0..REFUSALS {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let mut parts = [IoSliceMut::new(bytes)];
            let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
            let received = match recvmsg(&self.socket, &mut parts, &mut control, flags) {
                Ok(received) => received,
                Err(error) if io::Error::from(error).kind() == ErrorKind::Interrupted => continue,
                Err(_) => return None,
            };
            let is_ours = control.drain().any(
                |message| matches!(message, RecvAncillaryMessage::ScmCredentials(sender) if sender.uid == self.user),
            );
            if is_ours {
                return Some(received.bytes);
            }
            self.refused += 1;
        }
        None
    }
}

/// Whether the endpoint at an address is on this host and listens.
pub(super) fn reaches(address: &EndpointAddress) -> bool {
    let connect = || UnixDatagram::unbound()?.connect_addr(&name_of(address)?);
    connect().is_ok()
}

fn name_of(address: &EndpointAddress) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("roci/local/{address}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_of_this_host_is_reached_and_another_one_is_not() {
        let address =
            |incarnation| EndpointAddress { ip: [10, 0, 0, 1].into(), udp_port: 4791, service: 7, incarnation };
        let (here, there) = (address(rand::random()), address(rand::random()));
        let mut ours = LocalSocket::bind(&here).expect("a name of its own");
        assert!(LocalSocket::bind(&here).is_err(), "a name is one endpoint's");
        assert!(!reaches(&there) && ours.send(&there, "hello").is_err());
        let theirs = LocalSocket::bind(&there).expect("a name of its own");
        assert!(reaches(&there));
        theirs.send(&here, "hello").expect("it listens");
        let mut bytes = [0; MESSAGE_LEN];
        assert_eq!(ours.receive(&mut bytes).map(|len| bytes[..len].to_vec()), Some(b"hello".to_vec()));
        assert_eq!(ours.receive(&mut bytes), None);
        drop(theirs);
        assert!(!reaches(&there));
    }
}
