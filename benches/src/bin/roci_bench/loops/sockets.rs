//! Kernel sockets, by turns: a server and a client, which ask each other over a connection of TCP.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use super::row::{cpu_time, print_latency, print_stream};

/// A server without a client, or with one that has died, is no use to anybody.
const PATIENCE: Duration = Duration::from_secs(30);
/// Messages before those that count.
const WARM_UP: usize = 20;

/// One kind of socket, without delay and without sleep: a call that would block is made again.
pub(super) trait SocketTransport: Sized {
    const NAME: &'static str;
    /// The longest message.
    const MOST: usize;
    /// Bytes of one read, of a stream: of a datagram no more than its own.
    const READ: usize;
    /// Whether messages may be lost, so that the last one does not show that the others have arrived.
    const IS_LOSSY: bool;

    /// The two ends of one test; `control` is between them.
    fn connect(control: &TcpStream) -> io::Result<Self>;
    fn accept(control: &TcpStream) -> io::Result<Self>;

    /// One message, all of it.
    fn send(&mut self, message: &[u8]) -> io::Result<()>;
    /// `false` where there is no other. What gets lost is not waited for longer than until the deadline.
    fn receive(&mut self, message: &mut [u8], deadline: Instant) -> io::Result<bool>;
    /// Bytes of whatever has arrived, 0 at the end of a stream, an error of the kind `WouldBlock` where there is none.
    fn receive_some(&mut self, into: &mut [u8]) -> io::Result<usize>;
    /// No other will be sent.
    fn finish(&mut self) -> io::Result<()>;
}

/// What the client asks of the server.
#[derive(Clone, Copy)]
enum SocketRequest {
    Echo,
    Count,
    End,
}

/// Serves one client to its end.
pub(super) fn serve<T: SocketTransport>(address: SocketAddr) -> io::Result<()> {
    serve_at::<T>(&TcpListener::bind(address)?)
}

fn serve_at<T: SocketTransport>(listener: &TcpListener) -> io::Result<()> {
    let (mut control, _) = listener.accept()?;
    prepare(&control)?;
    loop {
        let [kind, size] = read_numbers(&mut control)?;
        let size = usize::try_from(size).unwrap_or(usize::MAX).clamp(1, T::MOST);
        match kind {
            kind if kind == SocketRequest::Echo as u64 => echo(&mut T::accept(&control)?, &mut control, size)?,
            kind if kind == SocketRequest::Count as u64 => count(&mut T::accept(&control)?, &mut control, size)?,
            _ => return Ok(()),
        }
    }
}

/// Latency and bandwidth of every size that this kind of socket carries.
pub(super) fn measure<T: SocketTransport>(address: SocketAddr, sizes: &[u64], duration: Duration) -> io::Result<()> {
    let mut control = TcpStream::connect(address)?;
    prepare(&control)?;
    for size in sizes.iter().map(|&size| size as usize).filter(|&size| size <= T::MOST) {
        write_numbers(&mut control, [SocketRequest::Echo as u64, size as u64])?;
        print_latency(T::NAME, size, ping::<T>(&mut control, size, duration)?);
        write_numbers(&mut control, [SocketRequest::Count as u64, size as u64])?;
        stream::<T>(&mut control, size, duration)?;
    }
    write_numbers(&mut control, [SocketRequest::End as u64, 0])
}

pub(super) fn prepare(control: &TcpStream) -> io::Result<()> {
    control.set_nodelay(true)?;
    control.set_read_timeout(Some(PATIENCE))
}

/// Half round trips in microseconds.
fn ping<T: SocketTransport>(control: &mut TcpStream, size: usize, duration: Duration) -> io::Result<Vec<f64>> {
    let mut socket = T::connect(control)?;
    let mut message = vec![1; size];
    let (mut samples, mut number) = (Vec::new(), 0);
    let begun = Instant::now();
    while begun.elapsed() < duration || number <= WARM_UP {
        let sent = Instant::now();
        socket.send(&message)?;
        // What is only late must not be taken for the answer to the next one.
        let patience = if T::IS_LOSSY { duration } else { PATIENCE };
        let arrived = socket.receive(&mut message, sent + patience)?;
        number += 1;
        if arrived && number > WARM_UP {
            samples.push(sent.elapsed().as_secs_f64() * 1e6 / 2.0);
        }
    }
    socket.finish()?;
    write_numbers(control, [0, 0])?;
    Ok(samples)
}

/// Sends back what comes, until the client says over `control` that nothing will.
fn echo<T: SocketTransport>(socket: &mut T, control: &mut TcpStream, size: usize) -> io::Result<()> {
    let mut message = vec![0; size];
    loop {
        let deadline = Instant::now() + Duration::from_millis(20);
        if socket.receive(&mut message, deadline)? {
            socket.send(&message)?;
        } else if has_word(control)? {
            read_numbers(control)?;
            return Ok(());
        }
    }
}

/// Sends as much as it can, and prints what has arrived.
fn stream<T: SocketTransport>(control: &mut TcpStream, size: usize, duration: Duration) -> io::Result<()> {
    let mut socket = T::connect(control)?;
    let message = vec![1; size];
    let (begun, ours) = (Instant::now(), cpu_time());
    while begun.elapsed() < duration {
        socket.send(&message)?;
    }
    socket.finish()?;
    write_numbers(control, [0, 0])?;
    let [bytes, theirs] = read_numbers(control)?;
    let (elapsed, ours) = (begun.elapsed(), cpu_time().saturating_sub(ours));
    print_stream(T::NAME, size, bytes / size as u64, elapsed, Some(ours + Duration::from_nanos(theirs)));
    Ok(())
}

/// Receives all that comes, and reports how many bytes of whole messages that was.
fn count<T: SocketTransport>(socket: &mut T, control: &mut TcpStream, size: usize) -> io::Result<()> {
    // The receiver of a stream reads as much as there is.
    let mut message = vec![0; size.max(T::READ)];
    let (mut bytes, begun) = (0u64, cpu_time());
    let mut is_last_look = false;
    loop {
        match socket.receive_some(&mut message) {
            Ok(0) => break,
            Ok(received) => bytes += received as u64,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if is_last_look {
                    break;
                }
                // What was sent before the word is here by now, or lost; a stream has an end of its own.
                is_last_look = T::IS_LOSSY && has_word(control)?;
            }
            Err(error) => return Err(error),
        }
    }
    read_numbers(control)?;
    write_numbers(control, [bytes, (cpu_time().saturating_sub(begun)).as_nanos() as u64])
}

/// Whether the peer has said something.
pub(super) fn has_word(control: &TcpStream) -> io::Result<bool> {
    control.set_nonblocking(true)?;
    let looked = control.peek(&mut [0]);
    control.set_nonblocking(false)?;
    match looked {
        Ok(0) => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the peer is gone")),
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error),
    }
}

pub(super) fn write_numbers(control: &mut TcpStream, numbers: [u64; 2]) -> io::Result<()> {
    control.write_all(&[numbers[0].to_le_bytes(), numbers[1].to_le_bytes()].concat())
}

pub(super) fn read_numbers(control: &mut TcpStream) -> io::Result<[u64; 2]> {
    let mut bytes = [[0; 8]; 2];
    control.read_exact(bytes.as_flattened_mut())?;
    Ok(bytes.map(u64::from_le_bytes))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::thread;

    use super::super::tcp::Tcp;
    use super::super::udp::UdpEnd;
    use super::*;

    fn both_ends<T: SocketTransport>(sizes: &[u64]) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = listener.local_addr().expect("it is bound");
        thread::scope(|scope| {
            let server = scope.spawn(|| serve_at::<T>(&listener));
            measure::<T>(address, sizes, Duration::from_millis(5)).expect("the client measures to its end");
            server.join().expect("no panic").expect("the server ends when it is asked to");
        });
    }

    #[test]
    fn both_ends_of_every_test_end_whatever_the_size() {
        both_ends::<Tcp>(&[1, 64, 4096, 1 << 20]);
        // What no datagram holds is left out.
        both_ends::<UdpEnd>(&[1, 64, 4096, 65_507, 65_508]);
    }
}
