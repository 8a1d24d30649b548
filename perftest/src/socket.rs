//! The client's TCP connection: never waits, and never holds more than the message that is due.

use std::io::{self, Read, Write};
use std::net::TcpStream;

use crate::ServeError;

/// The connection.
pub(crate) struct Socket {
    stream: TcpStream,
    pending: Vec<u8>,
}

/// More than any message.
const CHUNK: usize = 128;

impl Socket {
    pub(crate) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, pending: Vec::with_capacity(CHUNK) })
    }

    /// Whether the first `len` bytes of what is `due` have come.
    pub(crate) fn holds(&mut self, len: usize, due: &'static str) -> Result<bool, ServeError> {
        let mut chunk = [0; CHUNK];
        while self.pending.len() < len {
            let missing = (len - self.pending.len()).min(CHUNK);
            match self.stream.read(&mut chunk[..missing]) {
                Ok(0) => return Err(ServeError::HungUp(due)),
                Ok(read) => self.pending.extend_from_slice(&chunk[..read]),
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return Ok(false),
                    io::ErrorKind::Interrupted => {}
                    _ => return Err(lost(error, due)),
                },
            }
        }
        Ok(true)
    }

    /// What has come and is not taken yet.
    pub(crate) fn pending(&self) -> &[u8] {
        &self.pending
    }

    /// The next bytes, which must be there.
    pub(crate) fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        bytes.copy_from_slice(&self.pending[..N]);
        self.pending.drain(..N);
        bytes
    }

    /// Sends a message in one piece: clients take what one read gives them for all of it. A client that reads has room for
    /// it.
    pub(crate) fn send(&mut self, message: &[u8], due: &'static str) -> Result<(), ServeError> {
        match self.stream.write(message) {
            Ok(sent) if sent == message.len() => Ok(()),
            Ok(_) => Err(ServeError::NotRead),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(ServeError::NotRead),
            Err(error) => Err(lost(error, due)),
        }
    }
}

fn lost(error: io::Error, due: &'static str) -> ServeError {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset};
    match error.kind() {
        BrokenPipe | ConnectionAborted | ConnectionReset => ServeError::HungUp(due),
        _ => error.into(),
    }
}
