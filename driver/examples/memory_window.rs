//! A memory window of type 2: a part of a region is opened to one peer, and shut by the peer's own SEND with invalidate.

mod pair;

use pair::{connected, wait};
use roci_driver::{Access, QpParams, SendWr, WindowView};

const CLIENT: usize = 0;
const SERVER: usize = 1;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let params = QpParams { access: Access::REMOTE_READ.and(Access::REMOTE_WRITE), ..QpParams::default() };
    let mut ends = connected(&params)?;

    // The region is open through windows alone.
    let server = &mut ends[SERVER];
    let memory = server.engine.buffer(4096)?;
    let region = server.engine.register(server.pd, memory, Access::WINDOW_BIND).map_err(|_| "no key is free")?;
    let mut window = server.engine.alloc_window(server.pd).ok_or("no key is free")?;
    let view = WindowView { region, va: 1024, len: 256, access: Access::REMOTE_WRITE };
    server.engine.bind_window(server.qp, 1, &mut window, view)?;
    server.engine.post_recv(server.qp, 2, server.engine.buffer(16)?)?;
    println!("bound: {}", wait(&mut ends, SERVER).status);

    let client = &mut ends[CLIENT];
    let mut note = client.engine.buffer(5)?;
    note.copy_from_slice(b"hello");
    client.engine.post_send(client.qp, SendWr::write(3, note, window.rkey(), 1024))?;
    println!("a write into the window: {}", wait(&mut ends, CLIENT).status);

    // The client says that it is done, and the window is shut before the server hears of it.
    let client = &mut ends[CLIENT];
    let done = client.engine.buffer(4)?;
    client.engine.post_send(client.qp, SendWr::send_with_invalidate(4, done, window.rkey()))?;
    println!("invalidated: {}", wait(&mut ends, CLIENT).status);
    let received = wait(&mut ends, SERVER);
    println!("the server received {} bytes", received.len);

    let client = &mut ends[CLIENT];
    let late = client.engine.buffer(5)?;
    client.engine.post_send(client.qp, SendWr::write(5, late, window.rkey(), 1024))?;
    println!("a write after that: {}", wait(&mut ends, CLIENT).status);
    Ok(())
}
