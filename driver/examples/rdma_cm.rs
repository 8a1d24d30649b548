//! A server and a client that meet by RDMA-CM over UDP sockets: two processes, on one host or two, without any privilege. The other end
//! may be any verbs program, such as one of librdmacm's, where it has port 4791.
//!
//! ```console
//! $ cargo run --release -p roci-driver --example rdma_cm server 127.0.0.1
//! $ cargo run --release -p roci-driver --example rdma_cm client 127.0.0.2 127.0.0.1
//! ```

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use roci_driver::link::udp::{ROCE_PORT, UdpAddress, UdpLink};
use roci_driver::{
    CmCallError, CmEvent, CompletionQueue, Engine, PdId, PortSpace, QpParams, QueuePair, SendWr, ServiceId,
    WorkCompletion,
};

/// The service's port, as `rdma_bind_addr` takes it.
const SERVICE: u16 = 7471;
const PATIENCE: Duration = Duration::from_secs(20);

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let words: Vec<_> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["server", own] => serve(own.parse()?),
        ["client", own, server] => call(own.parse()?, SocketAddr::new(server.parse()?, SERVICE)),
        _ => Err("usage: rdma_cm server ADDRESS, or rdma_cm client ADDRESS SERVER".into()),
    }
}

/// An engine with a socket at this address, and what queue pairs are made on.
struct Host {
    engine: Engine<UdpLink>,
    pd: PdId,
    cq: CompletionQueue,
}

impl Host {
    fn open(ip: IpAddr, port: Option<u16>) -> Result<Self, Failure> {
        let mut engine = Engine::new(4 << 20)?;
        engine.add_port(UdpLink::open(UdpAddress { ip: Some(ip), port }, None)?, ip, false);
        let (pd, cq) = (engine.alloc_pd(), engine.create_cq(64));
        Ok(Self { engine, pd, cq })
    }

    /// The next event of the connection manager.
    fn event(&mut self) -> Result<CmEvent, Failure> {
        self.poll_until(|engine, _| engine.poll_cm())
    }

    fn completion(&mut self) -> Result<WorkCompletion, Failure> {
        self.poll_until(Engine::poll_cq)
    }

    fn poll_until<T>(
        &mut self,
        mut look: impl FnMut(&mut Engine<UdpLink>, CompletionQueue) -> Option<T>,
    ) -> Result<T, Failure> {
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            self.engine.poll();
            if let Some(found) = look(&mut self.engine, self.cq) {
                return Ok(found);
            }
        }
        Err("the peer does not answer".into())
    }

    fn receive(&mut self, qp: QueuePair) -> Result<(), Failure> {
        let buffer = self.engine.buffer(64)?;
        Ok(self.engine.post_recv(qp, 1, buffer)?)
    }

    fn send(&mut self, qp: QueuePair, text: &str) -> Result<(), Failure> {
        let mut buffer = self.engine.buffer(text.len())?;
        buffer.copy_from_slice(text.as_bytes());
        Ok(self.engine.post_send(qp, SendWr::send(2, buffer))?)
    }

    /// Waits for a message, and returns it. Sends end meanwhile.
    fn message(&mut self) -> Result<String, Failure> {
        loop {
            let done = self.completion()?;
            if done.wr_id == 1 {
                return Ok(String::from_utf8_lossy(&done.buffer[..done.len]).into_owned());
            }
        }
    }
}

fn serve(own: IpAddr) -> Result<(), Failure> {
    // Clients look for it there; at another port they would not find it.
    let mut host = Host::open(own, Some(ROCE_PORT))?;
    host.engine.cm_listen(ServiceId::of_port(PortSpace::Tcp, SERVICE))?;
    println!("listening at {own} port {SERVICE}");
    let CmEvent::Request { id, place, private_data, .. } = host.event()? else { return Err("no request".into()) };
    println!("a request with {:?}", String::from_utf8_lossy(&private_data[..5]));
    let qp = host.engine.create_qp_at(place.0, place.1, host.pd, host.cq)?;
    let qp = host.engine.cm_prepare(id, qp, &QpParams::default())?;
    // Receives are posted before the peer may send.
    host.receive(qp)?;
    host.engine.cm_accept(id, b"welcome")?;
    println!("received: {}", host.message()?);
    host.send(qp, "hello, client")?;
    loop {
        if let CmEvent::Disconnected { .. } = host.event()? {
            println!("the client has left");
            return Ok(());
        }
    }
}

fn call(own: IpAddr, server: SocketAddr) -> Result<(), Failure> {
    let mut host = Host::open(own, None)?;
    let mut qp = host.engine.create_qp(0, host.pd, host.cq)?;
    let start = Instant::now();
    loop {
        match host.engine.cm_connect(qp, server, &QpParams::default(), b"hello") {
            Ok(_) => break,
            // The peer's station is looked for, which takes some polls.
            Err((CmCallError::Resolving, again)) if start.elapsed() < PATIENCE => qp = again,
            Err((error, _)) => return Err(error.into()),
        }
        host.engine.poll();
    }
    let (id, qp) = match host.event()? {
        CmEvent::Replied { id, qp, .. } => (id, qp),
        other => return Err(format!("not connected: {other:?}").into()),
    };
    host.receive(qp)?;
    host.engine.cm_confirm(id)?;
    host.send(qp, "hello, server")?;
    println!("received: {}", host.message()?);
    host.engine.cm_disconnect(id, b"")?;
    let start = Instant::now();
    while host.engine.cm_disconnecting() > 0 && start.elapsed() < PATIENCE {
        host.engine.poll();
    }
    Ok(())
}
