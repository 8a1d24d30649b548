//! RDMA WRITE and READ between two engines of one process, over a simulated wire.
//!
//! The same code runs over a real port: give the engines a `UdpLink` each, or a `DpdkLink`.

use roci_driver::link::sim::{Clock, SimLink};
use roci_driver::{Access, CompletionQueue, Engine, QpParams, SendWr, WorkCompletion};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (near, far) = SimLink::pair(&Clock::default());
    let mut client = Engine::new(1 << 20)?;
    let mut server = Engine::new(1 << 20)?;
    client.add_port(near, [10, 0, 0, 1].into(), true);
    server.add_port(far, [10, 0, 0, 2].into(), true);

    let params = QpParams::default();
    let (pd, cq) = (client.alloc_pd(), client.create_cq(16));
    let (server_pd, server_cq) = (server.alloc_pd(), server.create_cq(16));
    let ours = client.create_qp(0, pd, cq)?;
    let theirs = server.create_qp(0, server_pd, server_cq)?;
    let (our_address, their_address) = (client.address_of(&ours, &params), server.address_of(&theirs, &params));
    let qp = client.connect(ours, &their_address, &params)?;
    server.connect(theirs, &our_address, &params)?;

    // The server shares 4 KiB; its key travels out of band, like the addresses.
    let memory = server.buffer(4096)?;
    let access = Access::REMOTE_READ.and(Access::REMOTE_WRITE);
    let table = server.register(server_pd, memory, access).map_err(|_| "no key is free")?;

    let mut note = client.buffer(14)?;
    note.copy_from_slice(b"Rocinante was!");
    client.post_send(qp, SendWr::write(1, note, table.rkey(), 64))?;
    let written = wait(&mut client, &mut server, cq);
    println!("wrote {} bytes: {}", written.len, written.status);

    let answer = client.buffer(14)?;
    client.post_send(qp, SendWr::read(2, answer, table.rkey(), 64))?;
    let read = wait(&mut client, &mut server, cq);
    println!("read back: {}", String::from_utf8_lossy(&read.buffer));

    // Ending the region kills its key at once.
    server.deregister(table);
    let late = client.buffer(14)?;
    client.post_send(qp, SendWr::read(3, late, table.rkey(), 64))?;
    let refused = wait(&mut client, &mut server, cq);
    println!("a dead key: {} ({})", refused.status, refused.status.verbs_name());
    Ok(())
}

/// Polls both until one of the client's work requests has ended.
fn wait(client: &mut Engine<SimLink>, server: &mut Engine<SimLink>, cq: CompletionQueue) -> WorkCompletion {
    loop {
        client.poll();
        server.poll();
        if let Some(done) = client.poll_cq(cq) {
            return done;
        }
    }
}
