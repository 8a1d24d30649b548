//! A datagram socket by which endpoints of one host find each other.
//!
//! It has a name in the abstract namespace, made of the endpoint's address. Such names are the network namespace's: who reaches the
//! socket is on the same host, under the same kernel, and on the same network; an endpoint of another host, or of another container,
//! has no such name here. The incarnation in the address is a random number, so that the name is no other endpoint's. Names have no
//! permissions: the kernel says who has sent a datagram, and those of other users are dropped.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSliceMut};
use std::os::fd::AsRawFd as _;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use nix::cmsg_space;
use nix::errno::Errno;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, UnixCredentials, recvmsg};
use rustix::net::sockopt;
use rustix::process::{Pid, Uid, getuid};

use super::message::MESSAGE_LEN;
use crate::endpoint::address::EndpointAddress;

/// Messages that wait for room at their receivers: beyond them a message is lost, and who waits for it gives up in time.
const UNSENT: usize = 1 << 10;
/// Datagrams of others that one call drops at most.
const REFUSALS: usize = 64;

/// What has come, and which process has sent it, says the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct LocalDatagram {
    pub(super) len: usize,
    /// None where it has no number here: it is in another PID namespace, as a container's.
    pub(super) process: Option<Pid>,
}

/// The socket of one endpoint.
#[derive(Debug)]
pub(super) struct LocalSocket {
    socket: UnixDatagram,
    /// The user, whose endpoints alone are listened to.
    user: Uid,
    /// Messages for which there was no room at their receivers, oldest first.
    unsent: VecDeque<(EndpointAddress, String)>,
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
        Ok(Self { socket, user: getuid(), unsent: VecDeque::new(), refused: 0 })
    }

    /// Sends a message to the endpoint at an address; later where its queue is full, which holds ten.
    ///
    /// # Errors
    /// It does not listen, or too many messages wait.
    pub(super) fn send(&mut self, address: EndpointAddress, message: String) -> io::Result<()> {
        let is_behind_others = self.unsent.iter().any(|(waiting, _)| *waiting == address);
        let outcome =
            if is_behind_others { Err(ErrorKind::WouldBlock.into()) } else { self.send_now(&address, &message) };
        match outcome {
            Err(error) if error.kind() == ErrorKind::WouldBlock && self.unsent.len() < UNSENT => {
                self.unsent.push_back((address, message));
                Ok(())
            }
            outcome => outcome,
        }
    }

    fn send_now(&self, address: &EndpointAddress, message: &str) -> io::Result<()> {
        self.socket.send_to_addr(message.as_bytes(), &name_of(address)?).map(drop)
    }

    /// Sends what could not be sent before. What its receiver cannot take any more is dropped.
    pub(super) fn send_again(&mut self) {
        for (address, message) in std::mem::take(&mut self.unsent) {
            let _ = self.send(address, message);
        }
    }

    /// Whether messages wait to be sent again.
    pub(super) fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Takes the next datagram that an endpoint of this user has sent; nothing where there is none now.
    pub(super) fn receive(&mut self, bytes: &mut [u8; MESSAGE_LEN]) -> Option<LocalDatagram> {
        for _ in 0..REFUSALS {
            let mut space = cmsg_space!(UnixCredentials);
            let mut parts = [IoSliceMut::new(bytes)];
            let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_CMSG_CLOEXEC;
            let received = match recvmsg::<()>(self.socket.as_raw_fd(), &mut parts, Some(&mut space), flags) {
                Ok(received) => received,
                Err(Errno::EINTR) => continue,
                Err(_) => return None,
            };
            let sender = received.cmsgs().into_iter().flatten().find_map(|message| match message {
                ControlMessageOwned::ScmCredentials(sender) => Some(sender),
                _ => None,
            });
            if let Some(sender) = sender.filter(|sender| sender.uid() == self.user.as_raw()) {
                return Some(LocalDatagram { len: received.bytes, process: Pid::from_raw(sender.pid()) });
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
    // Another user's endpoint has another name here, and is not waited for. The kernel says of datagrams who the real user is.
    SocketAddr::from_abstract_name(format!("roci/local/{}/{address}", getuid().as_raw()))
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
        assert!(!reaches(&there) && ours.send(there, "hello".into()).is_err());
        let mut theirs = LocalSocket::bind(&there).expect("a name of its own");
        assert!(reaches(&there));
        // More than the kernel's queue holds: all of it arrives, in order.
        (0..100).for_each(|number| theirs.send(here, number.to_string()).expect("it listens"));
        assert!(theirs.has_unsent());
        let mut bytes = [0; MESSAGE_LEN];
        for number in 0..100 {
            theirs.send_again();
            let LocalDatagram { len, process } = ours.receive(&mut bytes).expect("it was sent");
            assert_eq!((&bytes[..len], process), (number.to_string().as_bytes(), Some(rustix::process::getpid())));
        }
        assert_eq!((ours.receive(&mut bytes), theirs.has_unsent()), (None, false));
        drop(theirs);
        assert!(!reaches(&there));
    }
}
