//! Rank 0 sends 8 MiB to every other rank: a rendezvous, fetched by RDMA READ into the receiver's own buffer.
//!
//! Run it with: `roci run -n 2 target/release/examples/long_message`

use roci_msgcore::{Config, Source, Tag, Worker};

const DATA: Tag = Tag::new(1);
const LEN: usize = 8 << 20;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut worker = Worker::open(&Config::load(None)?)?;
    if worker.rank() == 0 {
        let mut sends = Vec::new();
        for peer in 1..worker.size() {
            // The buffer moves into the send, and comes back when the peer has all of it.
            let mut payload = worker.buffer(LEN)?;
            payload.fill(peer as u8);
            sends.push(worker.send(peer, DATA, payload)?);
        }
        worker.wait_all(sends)?;
        println!("{:?}", worker.stats());
    } else {
        let receive = worker.recv(Source::Any, DATA, worker.buffer(LEN)?)?;
        let message = worker.wait(receive)?;
        assert!(message.buffer.iter().all(|&byte| usize::from(byte) == worker.rank()));
        println!("rank {} has {} bytes from {}", worker.rank(), message.len, message.peer);
    }
    worker.close()?;
    Ok(())
}
