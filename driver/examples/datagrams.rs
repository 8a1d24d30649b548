//! Unreliable datagrams: one queue pair sends to any other whose number and key it knows, without a connection.

use roci_driver::link::Link;
use roci_driver::link::sim::{Clock, SimLink};
use roci_driver::{Destination, Engine, SendWr};

/// What a receive has in front of the message: room for the sender's IP header.
const HEADER: usize = 40;
const QKEY: u32 = 0x1111_1111;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (near, far) = SimLink::pair(&Clock::default());
    let (mut client, mut server) = (Engine::new(1 << 20)?, Engine::new(1 << 20)?);
    client.add_port(near, [10, 0, 0, 1].into(), true);
    server.add_port(far, [10, 0, 0, 2].into(), true);
    let (client_cq, server_cq) = (client.create_cq(16), server.create_cq(16));
    let ours = client.create_datagram_qp((0, 0), client_cq, QKEY, 8)?;
    let theirs = server.create_datagram_qp((0, 0), server_cq, QKEY, 8)?;

    server.post_datagram_recv(theirs, 1, server.buffer(HEADER + 64)?)?;
    // The address of a host: by `Engine::resolve` where its station is not known.
    let handle = client.create_ah((0, 0), [10, 0, 0, 2].into(), server.link(0).mac())?;
    for qkey in [QKEY + 1, QKEY] {
        let mut message = client.buffer(5)?;
        message.copy_from_slice(b"hello");
        let to = Destination { qpn: theirs.qpn(), qkey };
        client.post_datagram(ours, handle, to, SendWr::send(2, message))?;
    }
    let received = loop {
        client.poll();
        server.poll();
        if let Some(done) = server.poll_cq(server_cq) {
            break done;
        }
    };
    let text = String::from_utf8_lossy(&received.buffer[HEADER..received.len]);
    println!("received: {text}; the one with a wrong key was dropped");
    Ok(())
}
