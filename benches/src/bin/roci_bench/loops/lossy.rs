//! Goodput of a TCP stream whose segments get lost: each end drops what its socket is given, by chance.
//!
//! A filter on the socket (socket(7), SO_ATTACH_FILTER) sees a segment before TCP does, and TCP takes what it refuses for
//! lost. Over loopback a segment is as long as a frame of that interface may be, 64 KiB.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use socket2::{SockFilter, SockRef};

use super::row::{cpu_time, print_stream};
use super::sockets::{has_word, prepare, read_numbers, write_numbers};
use super::tcp::make_quick;

/// Per cent.
const ALL: f64 = 100.0;

/// Receives what comes, until the client says that it has stopped, and reports how much that was.
pub(super) fn serve(address: SocketAddr, loss: f64) -> io::Result<()> {
    serve_at(&TcpListener::bind(address)?, loss)
}

fn serve_at(listener: &TcpListener, loss: f64) -> io::Result<()> {
    let (mut control, _) = listener.accept()?;
    prepare(&control)?;
    let (mut stream, _) = listener.accept()?;
    make_lossy(&stream, loss)?;
    let mut into = vec![0; 256 << 10];
    let (mut bytes, begun) = (0u64, cpu_time());
    loop {
        match stream.read(&mut into) {
            Ok(0) => break,
            Ok(received) => bytes += received as u64,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if has_word(&control)? {
                    break;
                }
            }
            Err(error) => return Err(error),
        }
    }
    read_numbers(&mut control)?;
    write_numbers(&mut control, [bytes, cpu_time().saturating_sub(begun).as_nanos() as u64])
}

/// Sends messages for so long, and prints how much of it has arrived by then.
pub(super) fn measure(address: SocketAddr, size: usize, duration: Duration, loss: f64) -> io::Result<()> {
    let mut control = TcpStream::connect(address)?;
    prepare(&control)?;
    let mut stream = TcpStream::connect(address)?;
    make_lossy(&stream, loss)?;
    let message = vec![1; size];
    let (begun, ours) = (Instant::now(), cpu_time());
    let mut at = 0;
    while begun.elapsed() < duration {
        match stream.write(&message[at..]) {
            Ok(sent) => at = (at + sent) % size,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    write_numbers(&mut control, [0, 0])?;
    let [bytes, theirs] = read_numbers(&mut control)?;
    let (elapsed, ours) = (begun.elapsed(), cpu_time().saturating_sub(ours));
    print_stream("tcp", size, bytes / size as u64, elapsed, Some(ours + Duration::from_nanos(theirs)));
    Ok(())
}

/// From here on the socket loses so many per cent of what comes in.
fn make_lossy(stream: &TcpStream, loss: f64) -> io::Result<()> {
    make_quick(stream)?;
    if loss > 0.0 { SockRef::from(stream).attach_filter(&filter(loss)) } else { Ok(()) }
}

/// Keeps a packet if a random number of 32 bits is not below so many per cent of all (linux/filter.h).
fn filter(loss: f64) -> [SockFilter; 4] {
    const LOAD: u16 = 0x20;
    /// Where a load finds a random number instead of the packet's bytes: SKF_AD_OFF + SKF_AD_RANDOM.
    const RANDOM: u32 = 0xffff_f000 + 56;
    const JUMP_IF_AT_LEAST: u16 = 0x35;
    const RETURN: u16 = 0x06;
    let lost = (loss.clamp(0.0, ALL) / ALL * f64::from(u32::MAX)) as u32;
    [
        SockFilter::new(LOAD, 0, 0, RANDOM),
        SockFilter::new(JUMP_IF_AT_LEAST, 1, 0, lost),
        SockFilter::new(RETURN, 0, 0, 0),
        SockFilter::new(RETURN, 0, 0, u32::MAX),
    ]
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::thread;

    use super::*;

    /// Sends datagrams through a filter, and returns how many of a thousand come out.
    fn kept(loss: f64) -> usize {
        let [one, other] = [(); 2].map(|()| std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port"));
        SockRef::from(&other).attach_filter(&filter(loss)).expect("a filter that the kernel takes");
        other.set_nonblocking(true).expect("a socket");
        let to = other.local_addr().expect("it is bound");
        let sent = (0..1000).map(|_| one.send_to(&[1], to).expect("loopback takes it"));
        sent.filter(|_| other.recv(&mut [0]).is_ok()).count()
    }

    #[test]
    fn a_filter_loses_its_part() {
        assert_eq!(kept(0.0), 1000);
        assert_eq!(kept(100.0), 0);
        let half = kept(50.0);
        assert!((300..700).contains(&half), "{half} of 1000");
    }

    #[test]
    fn a_stream_goes_on_whatever_is_lost() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = listener.local_addr().expect("it is bound");
        thread::scope(|scope| {
            let server = scope.spawn(|| serve_at(&listener, 20.0));
            measure(address, 4096, Duration::from_millis(20), 20.0).expect("the client ends in its time");
            server.join().expect("no panic").expect("the server ends when it is asked to");
        });
    }
}
