//! Messages over ever more TCP connections, which take turns.

use std::io::{self, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use rustix::event::epoll;
use serde_json::json;

use super::sockets::{prepare, read_numbers, write_numbers};
use super::tcp::{make_quick, write_all};

/// Sockets that one look may find something at.
const EVENTS: usize = 64;
/// Bytes of one read.
const READ: usize = 64 << 10;
/// The clock is read once in so many messages.
const LOOK_EVERY: usize = 64;

/// Serves one client: for each number of connections it receives all that comes over them.
pub(super) fn serve(address: SocketAddr) -> io::Result<()> {
    serve_at(&TcpListener::bind(address)?)
}

fn serve_at(listener: &TcpListener) -> io::Result<()> {
    let (mut control, _) = listener.accept()?;
    prepare(&control)?;
    loop {
        let [count, _] = read_numbers(&mut control)?;
        if count == 0 {
            return Ok(());
        }
        let bytes = receive(listener, &mut control, count as usize)?;
        write_numbers(&mut control, [bytes, 0])?;
    }
}

/// Bytes that come over so many new connections, until all have ended.
fn receive(listener: &TcpListener, control: &mut TcpStream, count: usize) -> io::Result<u64> {
    let waiter = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let mut streams = Vec::with_capacity(count);
    for index in 0..count {
        let (stream, _) = listener.accept()?;
        stream.set_nonblocking(true)?;
        epoll::add(&waiter, &stream, epoll::EventData::new_u64(index as u64), epoll::EventFlags::IN)?;
        streams.push(stream);
    }
    write_numbers(control, [0, 0])?;
    let (mut bytes, mut open, mut into) = (0, count, vec![0; READ]);
    let mut events = Vec::with_capacity(EVENTS);
    while open > 0 {
        events.clear();
        epoll::wait(&waiter, rustix::buffer::spare_capacity(&mut events), Some(&rustix::time::Timespec::default()))?;
        for event in &events {
            let stream = &mut streams[event.data.u64() as usize];
            match stream.read(&mut into) {
                Ok(0) => {
                    epoll::delete(&waiter, &*stream)?;
                    open -= 1;
                }
                Ok(received) => bytes += received as u64,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(bytes)
}

/// The rate of messages over each number of connections.
pub(super) fn measure(address: SocketAddr, size: usize, counts: &[usize], duration: Duration) -> io::Result<()> {
    let mut control = TcpStream::connect(address)?;
    prepare(&control)?;
    for &count in counts {
        write_numbers(&mut control, [count as u64, 0])?;
        let streams: io::Result<Vec<TcpStream>> = (0..count).map(|_| connect(address)).collect();
        read_numbers(&mut control)?;
        let begun = Instant::now();
        send(&mut streams?, size, duration)?;
        let [bytes, _] = read_numbers(&mut control)?;
        print(size, count, bytes / size as u64, begun.elapsed());
    }
    write_numbers(&mut control, [0, 0])
}

fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    make_quick(&stream)?;
    Ok(stream)
}

/// One message over each connection in turn, again and again; then all are closed.
fn send(streams: &mut [TcpStream], size: usize, duration: Duration) -> io::Result<()> {
    let message = vec![1; size];
    let begun = Instant::now();
    let count = streams.len();
    for number in 0.. {
        if number % LOOK_EVERY == 0 && begun.elapsed() >= duration {
            return Ok(());
        }
        write_all(&mut streams[number % count], &message)?;
    }
    Ok(())
}

/// As `roci perf send_rate` does.
fn print(size: usize, count: usize, messages: u64, elapsed: Duration) {
    let seconds = elapsed.as_secs_f64().max(1e-9);
    let row = json!({
        "test": "tcp_rate",
        "bytes": size,
        "connections": count,
        "iters": messages,
        "mmsgs": messages as f64 / seconds / 1e6,
        "errors": 0,
    });
    println!("{row}");
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::thread;

    use super::*;

    #[test]
    fn all_that_is_sent_over_any_number_of_connections_arrives() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = listener.local_addr().expect("it is bound");
        thread::scope(|scope| {
            let server = scope.spawn(|| serve_at(&listener));
            measure(address, 64, &[1, 3, 100], Duration::from_millis(5)).expect("the client measures to its end");
            server.join().expect("no panic").expect("the server ends when it is asked to");
        });
    }
}
