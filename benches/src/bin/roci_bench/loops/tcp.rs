//! TCP: a connection for each test.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::Instant;

use super::sockets::{SocketTransport, read_numbers, write_numbers};

/// One end.
pub(super) struct Tcp(TcpStream);

impl Tcp {
    fn prepared(stream: TcpStream) -> io::Result<Self> {
        make_quick(&stream)?;
        Ok(Self(stream))
    }
}

/// Neither holds back what is short nor sleeps.
pub(super) fn make_quick(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)
}

/// Writes all of a message to a stream that does not sleep.
pub(super) fn write_all(stream: &mut TcpStream, message: &[u8]) -> io::Result<()> {
    let mut rest = message;
    while !rest.is_empty() {
        match stream.write(rest) {
            Ok(sent) => rest = &rest[sent..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

impl SocketTransport for Tcp {
    const NAME: &'static str = "tcp";
    const MOST: usize = usize::MAX;
    const READ: usize = 64 << 10;
    const IS_LOSSY: bool = false;

    fn connect(control: &TcpStream) -> io::Result<Self> {
        let [port, _] = read_numbers(&mut control.try_clone()?)?;
        let mut address = control.peer_addr()?;
        address.set_port(port as u16);
        Self::prepared(TcpStream::connect(address)?)
    }

    fn accept(control: &TcpStream) -> io::Result<Self> {
        let mut address = control.local_addr()?;
        address.set_port(0);
        let listener = TcpListener::bind(address)?;
        write_numbers(&mut control.try_clone()?, [listener.local_addr()?.port().into(), 0])?;
        Self::prepared(listener.accept()?.0)
    }

    fn send(&mut self, message: &[u8]) -> io::Result<()> {
        write_all(&mut self.0, message)
    }

    /// A connection loses nothing: what has begun to arrive is waited for.
    fn receive(&mut self, message: &mut [u8], deadline: Instant) -> io::Result<bool> {
        let (mut received, mut polls) = (0, 0u32);
        while received < message.len() {
            match self.0.read(&mut message[received..]) {
                Ok(0) => return Ok(false),
                Ok(some) => received += some,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    polls = polls.wrapping_add(1);
                    if received == 0 && polls.is_multiple_of(1024) && Instant::now() > deadline {
                        return Ok(false);
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    fn receive_some(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read(into)
    }

    fn finish(&mut self) -> io::Result<()> {
        self.0.shutdown(Shutdown::Write)
    }
}
