//! UDP: a datagram is a message, and may be lost.

use std::io;
use std::net::{TcpStream, UdpSocket};
use std::time::Instant;

use super::sockets::{SocketTransport, read_numbers, write_numbers};

/// One end of a loop over UDP.
pub(super) struct UdpEnd(UdpSocket);

impl UdpEnd {
    /// Both ends tell their ports.
    fn meet(control: &TcpStream) -> io::Result<Self> {
        let mut ours = control.local_addr()?;
        ours.set_port(0);
        let socket = UdpSocket::bind(ours)?;
        let mut control = control.try_clone()?;
        write_numbers(&mut control, [socket.local_addr()?.port().into(), 0])?;
        let [port, _] = read_numbers(&mut control)?;
        let mut theirs = control.peer_addr()?;
        theirs.set_port(port as u16);
        socket.connect(theirs)?;
        socket.set_nonblocking(true)?;
        Ok(Self(socket))
    }
}

impl SocketTransport for UdpEnd {
    const NAME: &'static str = "udp";
    /// What fits into an IPv4 packet.
    const MOST: usize = 65_507;
    const READ: usize = 0;
    const IS_LOSSY: bool = true;

    fn connect(control: &TcpStream) -> io::Result<Self> {
        Self::meet(control)
    }

    fn accept(control: &TcpStream) -> io::Result<Self> {
        Self::meet(control)
    }

    fn send(&mut self, message: &[u8]) -> io::Result<()> {
        loop {
            match self.0.send(message) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // Lost like anything else.
                Err(error) if is_refusal(&error) => return Ok(()),
                sent => return sent.map(drop),
            }
        }
    }

    fn receive(&mut self, message: &mut [u8], deadline: Instant) -> io::Result<bool> {
        for polls in 0u32.. {
            match self.receive_some(message) {
                Ok(_) => return Ok(true),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if polls.is_multiple_of(1024) && Instant::now() > deadline {
                        break;
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    fn receive_some(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self.0.recv(into) {
            Err(error) if is_refusal(&error) => Err(io::ErrorKind::WouldBlock.into()),
            received => received,
        }
    }

    fn finish(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The peer has closed its socket before it read everything, and its kernel said so of an earlier datagram.
fn is_refusal(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::ConnectionRefused
}
