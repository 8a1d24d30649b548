//! A token goes round all ranks; each adds its number.
//!
//! Run it with: `roci run -n 4 target/release/examples/ring`

use roci_msgcore::{Config, Tag, Worker};

const TOKEN: Tag = Tag::new(1);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut worker = Worker::open(&Config::load(None)?)?;
    let (rank, size) = (worker.rank(), worker.size());
    let (previous, next) = ((rank + size - 1) % size, (rank + 1) % size);
    if rank == 0 {
        let send = worker.send_bytes(next, TOKEN, &0u64.to_le_bytes())?;
        worker.wait(send)?;
    }
    let receive = worker.recv(previous, TOKEN, worker.buffer(8)?)?;
    let message = worker.wait(receive)?;
    let token = u64::from_le_bytes(message.buffer[..8].try_into()?) + rank as u64;
    if rank == 0 {
        println!("the token came back as {token} from {size} ranks");
    } else {
        let send = worker.send_bytes(next, TOKEN, &token.to_le_bytes())?;
        worker.wait(send)?;
    }
    worker.close()?;
    Ok(())
}
