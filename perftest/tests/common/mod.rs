//! A client of perftest's that takes a step whenever the server polls: its bytes over TCP are those that were recorded, and
//! its packets go over a simulated wire.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::time::Duration;

use roci_driver::link::Link;
use roci_driver::link::sim::{Clock, SimLink};
use roci_driver::{
    Access, Address, CompletionQueue, Dialect, Engine, MemoryRegion, Mtu, PdId, QpParams, QueuePair, Rkey, SendWr,
    UnconnectedQp, WorkCompletion,
};
use roci_perftest::exchange::{DONE, KEYS_LEN, QpInfo, our_version};
use roci_perftest::{EngineOwner, MessageSizes, ServeError, Served, ServerSettings, Test, serve};
use roci_protocol::wire::MacAddr;

pub(crate) const CLIENT_IP: [u8; 4] = [10, 77, 0, 2];
const SERVER_IP: [u8; 4] = [10, 77, 0, 1];
const ARENA: usize = 16 << 20;
const REGION: usize = 64 << 10;

/// Something that the client does; `true` when it is done.
pub(crate) type Step = Box<dyn FnMut(&mut Client) -> bool>;

/// The server's engine, and the client beside it.
pub(crate) struct World {
    clock: Clock,
    server: Engine<SimLink>,
    pub(crate) client: Client,
    listener: TcpListener,
}

impl EngineOwner for World {
    type Link = SimLink;

    fn engine(&mut self) -> &mut Engine<SimLink> {
        &mut self.server
    }

    fn poll(&mut self) -> usize {
        self.clock.advance(1000);
        self.client.turn();
        self.server.poll()
    }
}

impl World {
    /// A client that has connected over TCP, and will take these steps.
    pub(crate) fn new(steps: Vec<Step>) -> Self {
        let clock = Clock::default();
        let (near, far) = SimLink::pair(&clock);
        let mut server = Engine::new(ARENA).expect("memory");
        // What memory held before is none of a client's business.
        server.buffer(ARENA / 2).expect("memory").fill(0xaa);
        server.add_port(near, SERVER_IP.into(), true);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let stream = TcpStream::connect(listener.local_addr().expect("a place")).expect("a listener");
        let client = Client::new(far, server.link(0).mac(), stream, steps);
        Self { clock, server, client, listener }
    }

    pub(crate) fn serve(&mut self, test: Test, sizes: MessageSizes) -> Result<Served, ServeError> {
        let settings = ServerSettings::new(test, sizes, QpParams::default()).expect("settings");
        self.serve_with(settings)
    }

    pub(crate) fn serve_with(&mut self, settings: ServerSettings) -> Result<Served, ServeError> {
        let listener = self.listener.try_clone().expect("a listener");
        serve(self, &listener, &settings)
    }

    /// Serves while the client lives; its last steps may come when the server is done.
    pub(crate) fn serve_all(&mut self, test: Test, sizes: MessageSizes) -> Served {
        let served = self.serve(test, sizes).expect("a good client");
        while !self.client.is_through() {
            self.client.turn();
        }
        served
    }
}

pub(crate) struct Client {
    pub(crate) engine: Engine<SimLink>,
    pub(crate) pd: PdId,
    cq: CompletionQueue,
    stream: TcpStream,
    server: MacAddr,
    near: Option<UnconnectedQp>,
    pub(crate) qp: Option<QueuePair>,
    pub(crate) region: MemoryRegion,
    /// What it says of itself.
    pub(crate) keys: QpInfo,
    /// What the server has said of itself.
    pub(crate) theirs: Option<QpInfo>,
    received: Vec<u8>,
    steps: VecDeque<Step>,
}

impl Client {
    fn new(link: SimLink, server: MacAddr, stream: TcpStream, steps: Vec<Step>) -> Self {
        stream.set_nonblocking(true).expect("a socket");
        let mut engine = Engine::new(ARENA).expect("memory");
        engine.add_port(link, CLIENT_IP.into(), true);
        let (pd, cq) = (engine.alloc_pd(), engine.create_cq(1024));
        let near = engine.create_qp(0, pd, cq).expect("room");
        let mut memory = engine.buffer(REGION).expect("memory");
        memory.fill(0);
        let access = Access::REMOTE_READ.and(Access::REMOTE_WRITE).and(Access::REMOTE_ATOMIC);
        let region = engine.register(pd, memory, access).expect("a key");
        let keys = QpInfo {
            out_reads: 4,
            qpn: near.qpn(),
            psn: near.starting_psn(),
            rkey: region.rkey(),
            va: 0,
            ip: CLIENT_IP.into(),
        };
        let (near, received, steps) = (Some(near), Vec::new(), steps.into());
        Self { engine, pd, cq, stream, server, near, qp: None, region, keys, theirs: None, received, steps }
    }

    /// Whether it has taken its last step.
    pub(crate) fn is_through(&self) -> bool {
        self.steps.is_empty()
    }

    fn turn(&mut self) {
        self.engine.poll();
        let Some(mut step) = self.steps.pop_front() else { return };
        if !step(self) {
            self.steps.push_front(step);
        }
    }

    pub(crate) fn say(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("room in the socket");
    }

    /// The next bytes of the server's, once they are there.
    pub(crate) fn hear(&mut self, len: usize) -> Option<Vec<u8>> {
        let mut byte = [0];
        while self.received.len() < len {
            match self.stream.read(&mut byte) {
                Ok(1) => self.received.push(byte[0]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
                other => panic!("the server ended the connection: {other:?}"),
            }
        }
        Some(std::mem::take(&mut self.received))
    }

    pub(crate) fn connect(&mut self) {
        let (Some(near), Some(theirs)) = (self.near.take(), self.theirs) else { return };
        let peer = Address {
            mac: self.server,
            ip: theirs.ip,
            qpn: theirs.qpn,
            psn: theirs.psn,
            mtu: Mtu::Mtu512,
            max_rd_atomic: theirs.out_reads as u8,
            dialect: Dialect::Verbs,
            icrc: true,
        };
        let params = QpParams { rq_depth: 512, access: Access::REMOTE_WRITE, ..QpParams::default() };
        self.qp = Some(self.engine.connect(near, &peer, &params).expect("IPv4"));
    }

    /// The key to the server's memory.
    pub(crate) fn rkey(&self) -> Rkey {
        self.theirs.expect("the server's keys").rkey
    }

    pub(crate) fn post(&mut self, wr: SendWr) {
        self.engine.post_send(self.qp.expect("connected"), wr).expect("room in the send queue");
    }

    pub(crate) fn send(&mut self, len: usize) {
        let message = self.engine.buffer(len).expect("memory");
        self.post(SendWr::send(1, message));
    }

    pub(crate) fn post_recv(&mut self, len: usize) {
        let buffer = self.engine.buffer(len).expect("memory");
        self.engine.post_recv(self.qp.expect("connected"), 2, buffer).expect("room in the receive queue");
    }

    pub(crate) fn completion(&mut self) -> Option<WorkCompletion> {
        let done = self.engine.poll_cq(self.cq)?;
        assert!(done.status.is_success(), "{:?}: {}", done.operation, done.status);
        Some(done)
    }

    pub(crate) fn completion_of_any_kind(&mut self) -> Option<WorkCompletion> {
        self.engine.poll_cq(self.cq)
    }
}

pub(crate) fn step(action: impl FnMut(&mut Client) -> bool + 'static) -> Step {
    Box::new(action)
}

pub(crate) fn say(bytes: impl Into<Vec<u8>>) -> Step {
    let bytes = bytes.into();
    step(move |client| {
        client.say(&bytes);
        true
    })
}

/// Waits for these bytes, and no others.
pub(crate) fn hear(bytes: impl Into<Vec<u8>>) -> Step {
    let bytes = bytes.into();
    step(move |client| {
        let received = client.hear(bytes.len());
        received.inspect(|received| assert_eq!(received, &bytes)).is_some()
    })
}

/// Everything before the keys, as it was recorded.
pub(crate) fn greeting() -> Vec<Step> {
    let exchange = |said: &[u8], received: &[u8]| [say(said), hear(received)];
    [
        exchange(b"6.06\0\0\0\0\0\0\0\0\0\0\0\0", &our_version()),
        exchange(b"\0\0\x10\0", b"\0\0\x10\0"),
        exchange(b"\0\0\0@", b"\0\0\0@"),
        // Path MTU 512; the server would take 1024.
        exchange(b"2\0", b"3\0"),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// A barrier; the first one connects.
pub(crate) fn keys() -> Vec<Step> {
    let tell = step(|client| {
        let keys = client.keys.bytes();
        client.say(&keys);
        true
    });
    let learn = step(|client| {
        let Some(received) = client.hear(KEYS_LEN) else { return false };
        let keys = QpInfo::parse(&received.try_into().expect("as many")).expect("keys");
        assert_eq!(client.theirs.unwrap_or(keys), keys, "a server says the same each time");
        client.theirs = Some(keys);
        client.connect();
        true
    });
    vec![tell, learn]
}

pub(crate) fn done() -> Vec<Step> {
    vec![say(DONE), hear(DONE)]
}

pub(crate) fn hang_up() -> Step {
    step(|client| {
        client.stream.shutdown(Shutdown::Both).expect("a socket");
        true
    })
}

/// A whole visit: the greeting, so many barriers, what happens behind them, and the end.
pub(crate) fn visit(barriers: usize, run: Vec<Step>) -> Vec<Step> {
    let begin = greeting().into_iter().chain((0..barriers).flat_map(|_| keys()));
    begin.chain(run).chain(keys()).chain(done()).collect()
}

/// Long enough for a simulated wire on a busy machine, and short for a test that waits for its end.
pub(crate) fn impatient(test: Test, sizes: MessageSizes) -> ServerSettings {
    let mut settings = ServerSettings::new(test, sizes, QpParams::default()).expect("settings");
    settings.patience = Duration::from_secs(3);
    settings
}
