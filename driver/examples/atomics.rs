//! Atomic operations on a peer's memory: FETCH_ADD takes tickets, COMPARE_SWAP takes a lock.

mod pair;

use pair::{connected, wait};
use roci_driver::{Access, QpParams, SendWr};

const CLIENT: usize = 0;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let params = QpParams { access: Access::REMOTE_ATOMIC, ..QpParams::default() };
    let mut ends = connected(&params)?;

    // Two numbers of 8 bytes in the server's memory: tickets, and a lock.
    let [_, server] = &mut ends;
    let numbers = server.engine.buffer(16)?;
    let numbers = server.engine.register(server.pd, numbers, Access::REMOTE_ATOMIC).map_err(|_| "no key is free")?;

    for _ in 0..3 {
        let old = ends[CLIENT].engine.buffer(8)?;
        let take = SendWr::fetch_add(1, old, numbers.rkey(), 0, 1);
        let client = &mut ends[CLIENT];
        client.engine.post_send(client.qp, take)?;
        println!("ticket {}", number(&wait(&mut ends, CLIENT).buffer));
    }
    for attempt in 1..=2 {
        let old = ends[CLIENT].engine.buffer(8)?;
        let lock = SendWr::compare_swap(2, old, numbers.rkey(), 8, 0, 1);
        let client = &mut ends[CLIENT];
        client.engine.post_send(client.qp, lock)?;
        let is_mine = number(&wait(&mut ends, CLIENT).buffer) == 0;
        println!("attempt {attempt}: the lock is {}", if is_mine { "mine" } else { "taken" });
    }
    Ok(())
}

/// The number that was there before; of this host's byte order.
fn number(buffer: &[u8]) -> u64 {
    u64::from_ne_bytes(buffer.try_into().expect("8 bytes"))
}
