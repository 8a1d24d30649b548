//! A shared receive queue: two connections draw on one queue of receives, and an event says when it runs low.

use roci_driver::link::sim::{Clock, SimLink};
use roci_driver::{Engine, Event, QpParams, SendWr};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (near, far) = SimLink::pair(&Clock::default());
    let (mut client, mut server) = (Engine::new(1 << 20)?, Engine::new(1 << 20)?);
    client.add_port(near, [10, 0, 0, 1].into(), true);
    server.add_port(far, [10, 0, 0, 2].into(), true);
    let params = QpParams::default();
    let (client_pd, client_cq) = (client.alloc_pd(), client.create_cq(64));
    let (server_pd, server_cq) = (server.alloc_pd(), server.create_cq(64));

    let srq = server.create_srq(8, server_cq);
    for wr_id in 0..8 {
        server.post_srq_recv(srq, wr_id, server.buffer(64)?)?;
    }
    server.arm_srq(srq, 4);

    let mut connections = Vec::new();
    for _ in 0..2 {
        let ours = client.create_qp(0, client_pd, client_cq)?;
        let mut theirs = server.create_qp(0, server_pd, server_cq)?;
        server.share_receives(&mut theirs, srq)?;
        let (our_address, their_address) = (client.address_of(&ours, &params), server.address_of(&theirs, &params));
        connections.push(client.connect(ours, &their_address, &params)?);
        server.connect(theirs, &our_address, &params)?;
    }
    for number in 0..6u8 {
        let mut message = client.buffer(1)?;
        message[0] = number;
        client.post_send(connections[usize::from(number) % 2], SendWr::send(u64::from(number), message))?;
    }
    let mut received = Vec::new();
    while received.len() < 6 {
        client.poll();
        server.poll();
        while let Some(done) = server.poll_cq(server_cq) {
            received.push(done.buffer[0]);
        }
    }
    println!("received {received:?} by one queue, in which {} receives are left", server.srq_len(srq));
    if server.poll_event() == Some(Event::SharedReceivesLow(srq)) {
        println!("it runs low: time to post more");
    }
    Ok(())
}
