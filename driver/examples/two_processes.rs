//! Two processes of one host over a memif port, which DPDK drives in shared memory: queue pairs whose addresses travel out of band, here
//! in two files.
//!
//! ```console
//! $ mkdir /tmp/meet
//! $ cargo run --release -p roci-driver --example two_processes server /tmp/meet
//! $ cargo run --release -p roci-driver --example two_processes client /tmp/meet
//! ```
//!
//! Over a NIC that is bound to user space, an interface of the kernel's, or a UDP socket the ends differ in the link that they open, and
//! in nothing else.

use std::error::Error;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use roci_driver::link::dpdk::{Attachment, Device, DpdkLink};
use roci_driver::{Address, CompletionQueue, Engine, QpParams, QueuePair, SendWr, WorkCompletion};

const PATIENCE: Duration = Duration::from_secs(20);

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<_> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["server", place] => serve(&mut End::open(Path::new(place), true)?),
        ["client", place] => call(&mut End::open(Path::new(place), false)?),
        _ => Err("usage: two_processes server DIRECTORY, or two_processes client DIRECTORY".into()),
    }
}

/// One end: an engine with one port, and a queue pair that is connected to the other end's.
struct End {
    engine: Engine<DpdkLink>,
    cq: CompletionQueue,
    qp: QueuePair,
}

impl End {
    /// Opens a port that meets the other process's in `place`, and connects a queue pair, with one receive posted.
    fn open(place: &Path, is_server: bool) -> Result<Self, Box<dyn Error>> {
        let (own, peer) = if is_server { (1, 2) } else { (2, 1) };
        let port = Attachment::pair(Device::Memif, &place.join("port"), is_server, [2, 0, 0, 0, 0, own]);
        // Waits for the other end, and starts the port again where that one has died.
        let link = DpdkLink::open_all(&[port], PATIENCE, &mut || false)?.pop().ok_or("no link")?;
        let mut engine = Engine::new(4 << 20)?;
        engine.add_port(link, [10, 0, 0, own].into(), true);
        let (pd, cq, params) = (engine.alloc_pd(), engine.create_cq(16), QpParams::default());
        let unconnected = engine.create_qp(0, pd, cq)?;
        publish(place, own, &engine.address_of(&unconnected, &params))?;
        let qp = engine.connect(unconnected, &look_up(place, peer)?, &params)?;
        let buffer = engine.buffer(64)?;
        engine.post_recv(qp, 1, buffer)?;
        Ok(Self { engine, cq, qp })
    }

    fn send(&mut self, text: &str) -> Result<(), Box<dyn Error>> {
        let mut buffer = self.engine.buffer(text.len())?;
        buffer.copy_from_slice(text.as_bytes());
        self.engine.post_send(self.qp, SendWr::send(2, buffer))?;
        Ok(())
    }

    /// Polls until the work request of this number has ended.
    fn wait(&mut self, wr_id: u64) -> Result<WorkCompletion, Box<dyn Error>> {
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            self.engine.poll();
            if let Some(done) = self.engine.poll_cq(self.cq).filter(|done| done.wr_id == wr_id) {
                return Ok(done);
            }
        }
        Err("the peer does not answer".into())
    }

    /// The text of the message that has come.
    fn message(&mut self) -> Result<String, Box<dyn Error>> {
        let done = self.wait(1)?;
        Ok(String::from_utf8_lossy(&done.buffer[..done.len]).into_owned())
    }
}

fn serve(end: &mut End) -> Result<(), Box<dyn Error>> {
    println!("received: {}", end.message()?);
    end.send("hello, client")?;
    // It has ended when the other side has acknowledged it.
    println!("sent: {}", end.wait(2)?.status);
    Ok(())
}

fn call(end: &mut End) -> Result<(), Box<dyn Error>> {
    end.send("hello, server")?;
    println!("received: {}", end.message()?);
    // Its acknowledgement goes out with the next polls.
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(100) {
        end.engine.poll();
    }
    Ok(())
}

/// Leaves an address for the other process: whole, or not at all.
fn publish(place: &Path, own: u8, address: &Address) -> Result<(), Box<dyn Error>> {
    let draft = place.join(format!("draft.{own}"));
    fs::write(&draft, address.to_string())?;
    Ok(fs::rename(draft, place.join(format!("address.{own}")))?)
}

/// Waits for the other process's address, and takes it away: it is for one connection.
fn look_up(place: &Path, peer: u8) -> Result<Address, Box<dyn Error>> {
    let (file, start) = (place.join(format!("address.{peer}")), Instant::now());
    while start.elapsed() < PATIENCE {
        if let Ok(text) = fs::read_to_string(&file) {
            fs::remove_file(&file)?;
            return Ok(text.parse()?);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Err("the peer left no address".into())
}
