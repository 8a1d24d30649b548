//! wip raw ping
use roci_driver::link::dpdk::*;
use roci_driver::link::{Batch, Link};
use std::time::Duration;
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let server = a[1] == "s";
    let at = Attachment::pair(Device::Memif, std::path::Path::new(&a[2]), server, [2, 0, 0, 0, 0, server as u8]);
    let mut l = DpdkLink::open_all(&[at], Duration::from_secs(10)).unwrap().pop().unwrap();
    let mut batch = Batch::new();
    let n = 200_000;
    let t = std::time::Instant::now();
    if !server {
        l.transmit(64, |b| b.fill(1)).unwrap();
        l.flush();
    }
    let mut got = 0;
    while got < n {
        let now = l.now();
        if l.maintain(now) == roci_driver::link::LinkState::Down {
            println!("down");
            return;
        }
        l.receive(&mut batch);
        for _ in batch.drain(..) {
            got += 1;
            l.transmit(64, |b| b.fill(1)).unwrap();
            l.flush();
        }
    }
    println!("half rtt {} ns", t.elapsed().as_nanos() as u64 / n / 2);
}
