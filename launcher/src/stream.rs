//! A connection between a rank and its launcher: UNIX or TCP.

use std::io::{self, Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use rustix::net::sockopt::{self, socket_peercred};
use rustix::process::geteuid;

/// When a TCP connection that says nothing is asked whether its host is there, how often, and how many questions may go
/// unanswered: five seconds in all.
const KEEP_IDLE: Duration = Duration::from_secs(2);
const KEEP_INTERVAL: Duration = Duration::from_secs(1);
const KEEP_COUNT: u32 = 3;

/// How long bytes may go unacknowledged where the other end has room for them: as long as all the questions above.
const SILENCE: Duration = Duration::from_secs(5);

/// A host that is there answers sooner, even where the first two questions are lost.
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);

/// A connection between a rank and its launcher.
pub(super) enum JobStream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

/// Where connections come in.
pub(super) enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

impl Listener {
    pub(super) fn set_nonblocking(&self) -> io::Result<()> {
        match self {
            Self::Unix(listener) => listener.set_nonblocking(true),
            Self::Tcp(listener) => listener.set_nonblocking(true),
        }
    }

    /// Accepts the next connection, which does not block, and names where it comes from.
    pub(super) fn accept(&self) -> io::Result<(JobStream, String)> {
        let (stream, from) = match self {
            Self::Unix(listener) => (JobStream::Unix(listener.accept()?.0), "this host".to_owned()),
            Self::Tcp(listener) => {
                let (stream, from) = listener.accept()?;
                (JobStream::Tcp(stream), from.to_string())
            }
        };
        stream.set_nonblocking(true)?;
        Ok((stream, from))
    }
}

impl JobStream {
    pub(super) fn connect_unix(path: &str) -> io::Result<Self> {
        UnixStream::connect(path).map(Self::Unix)
    }

    pub(super) fn connect_tcp(address: &str) -> io::Result<Self> {
        let mut failure = io::ErrorKind::AddrNotAvailable.into();
        let connected = address.to_socket_addrs()?.find_map(|address| {
            TcpStream::connect_timeout(&address, CONNECT_PATIENCE).map_err(|error| failure = error).ok()
        });
        let stream = Self::Tcp(connected.ok_or(failure)?);
        stream.tune()?;
        // A board reads what its ranks say, however busy its process is.
        stream.end_in_silence(true);
        Ok(stream)
    }

    /// Sets the options of a TCP socket. Mail and an answer are often two small segments in a row: without Nagle's algorithm
    /// the second does not wait until the first is acknowledged. A host that is gone closes no connection: keepalive probes
    /// notice its silence.
    pub(super) fn tune(&self) -> io::Result<()> {
        let Self::Tcp(stream) = self else { return Ok(()) };
        stream.set_nodelay(true)?;
        sockopt::set_tcp_keepidle(stream, KEEP_IDLE)?;
        sockopt::set_tcp_keepintvl(stream, KEEP_INTERVAL)?;
        sockopt::set_tcp_keepcnt(stream, KEEP_COUNT)?;
        Ok(sockopt::set_socket_keepalive(stream, true)?)
    }

    /// Whether a TCP connection ends once bytes have not been acknowledged for five seconds: the kernel sends no keepalive probe
    /// meanwhile, and tries for a quarter of an hour. An end that does not read, and whose buffer is full, counts as silent, too.
    pub(super) fn end_in_silence(&self, ends: bool) {
        let Self::Tcp(stream) = self else { return };
        let milliseconds = if ends { SILENCE.as_millis() as u32 } else { 0 };
        // Without it a host that is gone is noticed later.
        let _ = sockopt::set_tcp_user_timeout(stream, milliseconds);
    }

    pub(super) fn set_nonblocking(&self, is_nonblocking: bool) -> io::Result<()> {
        match self {
            Self::Unix(stream) => stream.set_nonblocking(is_nonblocking),
            Self::Tcp(stream) => stream.set_nonblocking(is_nonblocking),
        }
    }

    pub(super) fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Unix(stream) => stream.set_read_timeout(timeout),
            Self::Tcp(stream) => stream.set_read_timeout(timeout),
        }
    }

    /// The address of this host's by which the other end is reached, where it leads beyond this host and one link.
    pub(super) fn local_ip(&self) -> Option<IpAddr> {
        let Self::Tcp(stream) = self else { return None };
        let ip = stream.local_addr().ok()?.ip().to_canonical();
        let is_wide = !ip.is_loopback() && !matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
        is_wide.then_some(ip)
    }

    pub(super) fn try_clone(&self) -> io::Result<Self> {
        Ok(match self {
            Self::Unix(stream) => Self::Unix(stream.try_clone()?),
            Self::Tcp(stream) => Self::Tcp(stream.try_clone()?),
        })
    }

    /// Whether the other end is a process of this user's, or of root's. Of TCP that cannot be known.
    pub(super) fn is_of_this_user(&self) -> bool {
        match self {
            Self::Unix(stream) => socket_peercred(stream).is_ok_and(|peer| peer.uid == geteuid() || peer.uid.is_root()),
            Self::Tcp(_) => true,
        }
    }
}

impl Read for JobStream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.read(bytes),
            Self::Tcp(stream) => stream.read(bytes),
        }
    }
}

impl Write for JobStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&*self).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Write for &JobStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            JobStream::Unix(stream) => (&mut &*stream).write(bytes),
            JobStream::Tcp(stream) => (&mut &*stream).write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsFd for JobStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(stream) => stream.as_fd(),
            Self::Tcp(stream) => stream.as_fd(),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(listener) => listener.as_fd(),
            Self::Tcp(listener) => listener.as_fd(),
        }
    }
}
