//! The server's side of perftest (`ib_send_bw` and its seven relatives), for clients as distributions ship them.
//!
//! Both the command and the lab serve such clients, the one on a port of its configuration, the other on its recorded
//! wire. So the server is a crate of its own between them and the driver: it takes any engine, by [`EngineOwner`], and knows
//! neither ranks nor a launcher.
//!
//! # The exchange
//! Observed between two `perftest` 4.5 (`ib_send_bw --version` calls it 6.06), and read in `perftest_communication.c`. All of
//! it goes over one TCP connection, port 18515 by default. The client always speaks first, and each message has an
//! answer of the same form and length:
//!
//! | what | bytes | form |
//! |---|---|---|
//! | version | 16 | digits and dots, filled up with zeros; the lower one decides what follows |
//! | cycle buffer | 4 | big-endian: clients spread short messages over so many bytes; the larger one holds |
//! | cache line | 4 | big-endian: the distance between those messages; the larger one holds |
//! | path MTU | 2 | a digit, 1 for 256 bytes to 5 for 4096, and a zero; the smaller one holds |
//! | keys | 108 | see [`exchange`]; again and again, as a barrier, and always the same ones |
//! | report | 5 times 8 | big-endian, one after the other: bytes, messages, and as IEEE 754 the peak and mean MB/s and Mmsg/s |
//! | `done` | 5 | with its zero; neither side waits for the answer, and the connection ends |
//!
//! After the first keys both ends can connect. How often keys follow differs: SEND tests have one pair before each size, and
//! `ib_send_bw` another one behind it; bandwidth of WRITE, READ and atomics has three pairs, of which the last says that the
//! client is through, then the report; after three more the server of `ib_write_lat` sends the first message, and its client
//! ends by hanging up; all others end with a pair and `done`.
//!
//! # What is not supported
//! Connections by RDMA-CM (`-R`, `-z`), several queue pairs (`-q`), UC, UD, XRC and SRD (`-c`),
//! both directions at once (`-b`), events of the server's, multicast, and addresses without a GID, as InfiniBand has
//! them. What the exchange shows of this is refused by name; the rest is up to the user who starts the client.
#![forbid(unsafe_code)]

mod error;
pub mod exchange;
mod passive;
mod sends;
mod sentence;
mod session;
mod settings;
mod socket;
mod write_latency;

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use roci_driver::link::Link;
use roci_driver::{Address, Engine, QueuePair, UnconnectedQp};

pub use self::error::ServeError;
use self::exchange::ClientReport;
use self::session::{Client, Session};
use self::settings::TestKind;
pub use self::settings::{MessageSizes, ServerSettings, SettingsError, Test, UnknownTest};

/// The port that perftest's clients connect to by default.
pub const PORT: u16 = 18_515;

/// The owner of the engine.
pub trait EngineOwner {
    /// What the engine's first port is on.
    type Link: Link;

    /// The engine, whose first port leads to the client.
    fn engine(&mut self) -> &mut Engine<Self::Link>;

    /// Lets the engine work; returns how many frames came in.
    fn poll(&mut self) -> usize {
        self.engine().poll()
    }

    /// A queue pair is about to be connected.
    fn connecting(&mut self, _ours: &UnconnectedQp, _peer: &Address) {}

    /// A receive was posted.
    fn receive_posted(&mut self, _qp: QueuePair) {}
}

/// What came of a client.
#[derive(Clone, PartialEq, Debug)]
pub struct Served {
    /// Its end of the TCP connection.
    pub client: SocketAddr,
    /// Its version of perftest.
    pub version: String,
    /// Its queue pair, and the path MTU that both use.
    pub peer: Address,
    /// Messages that came, where this end sees them: SENDs, and WRITEs that answer ours.
    pub messages: Option<u64>,
    /// What it measured, if it sends a report.
    pub report: Option<ClientReport>,
}

/// Waits for one client, and serves it until it is through.
pub fn serve<H: EngineOwner>(
    host: &mut H,
    listener: &TcpListener,
    settings: &ServerSettings,
) -> Result<Served, ServeError> {
    let (stream, address) = accept(host, listener, settings.wait)?;
    let mut session = Session::new(host, stream, settings)?;
    let client = session.meet()?;
    let outcome = attend(&mut session, &client);
    session.part(&client);
    let (messages, report) = outcome?;
    let Client { version, peer, .. } = client;
    Ok(Served { client: address, version, peer, messages, report })
}

fn accept<H: EngineOwner>(
    host: &mut H,
    listener: &TcpListener,
    wait: Option<Duration>,
) -> Result<(TcpStream, SocketAddr), ServeError> {
    listener.set_nonblocking(true)?;
    let begun = Instant::now();
    loop {
        match listener.accept() {
            Ok(client) => return Ok(client),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
        if let Some(wait) = wait.filter(|&wait| begun.elapsed() > wait) {
            return Err(ServeError::NoClient(wait));
        }
        host.poll();
    }
}

fn attend<H: EngineOwner>(
    session: &mut Session<'_, H>,
    client: &Client,
) -> Result<(Option<u64>, Option<ClientReport>), ServeError> {
    match session.settings.test.kind() {
        TestKind::SendLatency => sends::serve(session, client, true).map(|messages| (Some(messages), None)),
        TestKind::SendBandwidth => sends::serve(session, client, false).map(|messages| (Some(messages), None)),
        TestKind::WriteLatency => write_latency::serve(session, client).map(|messages| (Some(messages), None)),
        TestKind::PassiveLatency => passive::serve_latency(session, client).map(|()| (None, None)),
        TestKind::PassiveBandwidth => passive::serve_bandwidth(session, client).map(|report| (None, Some(report))),
    }
}
