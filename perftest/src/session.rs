//! A client's visit: its connection over TCP, and the queue pair that it meets.

use std::io;
use std::net::{IpAddr, TcpStream};
use std::time::Instant;

use roci_driver::neighbour::Resolution;
use roci_driver::{
    Address, Buffer, CompletionQueue, Dialect, Engine, Mtu, PdId, QueuePair, Rkey, SendWr, State, UnconnectedQp,
    WcStatus, WorkCompletion,
};
use roci_protocol::wire::MacAddr;

use crate::exchange::{self, DONE, KEYS_LEN, MTU_LEN, QpInfo, VERSION_LEN};
use crate::socket::Socket;
use crate::{EngineOwner, ServeError, ServerSettings};

/// One client's visit.
pub(crate) struct Session<'a, H: EngineOwner> {
    pub(crate) host: &'a mut H,
    pub(crate) settings: &'a ServerSettings,
    socket: Socket,
    pub(crate) pd: PdId,
    cq: CompletionQueue,
    /// When something came last, by TCP or in frames.
    last_seen: Instant,
}

/// A client that is connected.
pub(crate) struct Client {
    pub(crate) version: String,
    pub(crate) peer: Address,
    pub(crate) qp: QueuePair,
    /// What it said about itself, and says again each time.
    said: [u8; KEYS_LEN],
    pub(crate) keys: QpInfo,
    /// What it hears of us, without our memory.
    ours: QpInfo,
    /// Over how many bytes it spreads short messages.
    pub(crate) cycle_buffer: usize,
}

/// What a client says at a barrier or at the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Word {
    Keys,
    Done,
}

/// What the server knows of a client before it connects the queue pairs.
struct ClientInfo {
    version: String,
    cycle_buffer: usize,
    said: [u8; KEYS_LEN],
    keys: QpInfo,
    peer: Address,
}

impl<'a, H: EngineOwner> Session<'a, H> {
    pub(crate) fn new(host: &'a mut H, stream: TcpStream, settings: &'a ServerSettings) -> io::Result<Self> {
        let socket = Socket::new(stream)?;
        let pd = host.engine().alloc_pd();
        let cq = host.engine().create_cq(settings.params.sq_depth + settings.params.rq_depth);
        Ok(Self { host, settings, socket, pd, cq, last_seen: Instant::now() })
    }

    /// Receives the client's parameters, and connects. Our keys are sent later: first the memory that they name is made.
    pub(crate) fn meet(&mut self) -> Result<Client, ServeError> {
        let ((port, address), pd, cq) = (self.settings.place, self.pd, self.cq);
        let near = self.engine().create_qp_at(port, address, pd, cq)?;
        match self.greet(&near) {
            Ok((ours, known)) => self.connect(near, &ours, known),
            Err(error) => {
                self.engine().discard_qp(near);
                Err(error)
            }
        }
    }

    /// Ends the connection.
    pub(crate) fn part(&mut self, client: &Client) {
        let cq = self.cq;
        self.engine().destroy_qp(client.qp);
        while self.engine().poll_cq(cq).is_some() {}
    }

    /// Waits for the keys of a barrier, and answers them.
    pub(crate) fn meet_again(&mut self, client: &Client, rkey: Rkey, due: &'static str) -> Result<(), ServeError> {
        match self.await_word(client, due)? {
            Word::Keys => self.introduce(client, rkey),
            Word::Done => Err(ServeError::OtherTest(due)),
        }
    }

    /// Answers barriers until the client is through.
    pub(crate) fn see_off(&mut self, client: &Client, rkey: Rkey) -> Result<(), ServeError> {
        const DUE: &str = "the end of the test";
        while self.await_word(client, DUE)? == Word::Keys {
            self.introduce(client, rkey)?;
        }
        self.say_done();
        Ok(())
    }

    /// Says who we are, and what the client may reach.
    pub(crate) fn introduce(&mut self, client: &Client, rkey: Rkey) -> Result<(), ServeError> {
        let keys = QpInfo { rkey, ..client.ours };
        self.socket.send(&keys.bytes(), "the next step of the test")
    }

    /// The last word. The client does not wait for it, and may have gone.
    pub(crate) fn say_done(&mut self) {
        let _ = self.socket.send(&DONE, "the end of the test");
    }

    /// What the client says next, if it has said it.
    pub(crate) fn hear(&mut self, client: &Client, due: &'static str) -> Result<Option<Word>, ServeError> {
        if !self.socket.holds(DONE.len(), due)? {
            return Ok(None);
        }
        if self.socket.pending() == DONE {
            self.take::<{ DONE.len() }>();
            return Ok(Some(Word::Done));
        }
        if !self.socket.pending().starts_with(&client.said[..DONE.len()]) {
            return Err(ServeError::OtherTest(due));
        }
        if !self.socket.holds(KEYS_LEN, due)? {
            return Ok(None);
        }
        let said = self.take();
        QpInfo::parse(&said)?;
        if said == client.said { Ok(Some(Word::Keys)) } else { Err(ServeError::SeveralQueuePairs) }
    }

    /// The next bytes that the client sends, whatever they are.
    pub(crate) fn read<const N: usize>(&mut self, due: &'static str) -> Result<[u8; N], ServeError> {
        while !self.socket.holds(N, due)? {
            self.work(due)?;
        }
        Ok(self.take())
    }

    /// The next bytes of the test, which must be neither keys nor the end.
    pub(crate) fn read_figure(&mut self, client: &Client, due: &'static str) -> Result<[u8; 8], ServeError> {
        while !self.socket.holds(DONE.len(), due)? {
            self.work(due)?;
        }
        let begin = self.socket.pending();
        let is_word = begin == DONE || client.said.starts_with(begin);
        if is_word { Err(ServeError::OtherTest(due)) } else { self.read(due) }
    }

    pub(crate) fn send(&mut self, message: &[u8], due: &'static str) -> Result<(), ServeError> {
        self.socket.send(message, due)
    }

    /// Lets the engine work while something is due. Ends where the client is silent for too long.
    pub(crate) fn work(&mut self, due: &'static str) -> Result<(), ServeError> {
        if self.host.poll() > 0 {
            self.last_seen = Instant::now();
            return Ok(());
        }
        let patience = self.settings.patience;
        if self.last_seen.elapsed() > patience { Err(ServeError::Silent { due, patience }) } else { Ok(()) }
    }

    /// Fails where the connection has broken off, which a client that only waits would never learn.
    pub(crate) fn check(&mut self, client: &Client, due: &'static str) -> Result<(), ServeError> {
        match self.engine().qp_state(client.qp) {
            Some(State::Error) | None => Err(ServeError::BrokenOff(due)),
            Some(_) => Ok(()),
        }
    }

    /// The next completion, which must be of a success. Where the connection has broken off, what was posted is flushed.
    pub(crate) fn completion(&mut self, due: &'static str) -> Result<Option<WorkCompletion>, ServeError> {
        let (cq, largest) = (self.cq, self.settings.sizes.largest());
        match self.engine().poll_cq(cq) {
            Some(WorkCompletion { status: WcStatus::LocLenErr, .. }) => Err(ServeError::TooLong(largest)),
            Some(WorkCompletion { status: WcStatus::WrFlushErr, .. }) => Err(ServeError::BrokenOff(due)),
            Some(WorkCompletion { status, operation, .. }) if !status.is_success() => {
                Err(ServeError::Failed { operation, status })
            }
            done => Ok(done),
        }
    }

    /// Memory for the longest message.
    pub(crate) fn buffer(&mut self) -> Result<Buffer, ServeError> {
        self.buffer_of(self.settings.sizes.largest())
    }

    pub(crate) fn buffer_of(&mut self, len: usize) -> Result<Buffer, ServeError> {
        Ok(self.engine().buffer(len)?)
    }

    pub(crate) fn post_recv(&mut self, client: &Client, buffer: Buffer) -> Result<(), ServeError> {
        self.engine().post_recv(client.qp, 0, buffer).map_err(|refused| refused.why)?;
        self.host.receive_posted(client.qp);
        Ok(())
    }

    pub(crate) fn post_send(&mut self, client: &Client, wr: SendWr) -> Result<(), ServeError> {
        Ok(self.engine().post_send(client.qp, wr).map_err(|refused| refused.why)?)
    }

    pub(crate) fn engine(&mut self) -> &mut Engine<H::Link> {
        self.host.engine()
    }

    /// Everything up to the client's first keys, and the way to it.
    fn greet(&mut self, near: &UnconnectedQp) -> Result<(Address, ClientInfo), ServeError> {
        let settings = self.settings;
        let ours = self.engine().address_of(near, &settings.params);
        let version = self.exchange_versions()?;
        let cycle_buffer = self.exchange_machines()?;
        let mtu = self.exchange_mtus(ours.mtu)?;
        let said = self.read_keys()?;
        let keys = QpInfo::parse(&said)?;
        let mac = self.station_of(keys.ip, ours.ip)?;
        let peer = Address {
            mac,
            ip: keys.ip,
            qpn: keys.qpn,
            psn: keys.psn,
            mtu,
            max_rd_atomic: keys.out_reads.clamp(1, u8::MAX.into()) as u8,
            dialect: Dialect::Verbs,
            icrc: true,
        };
        Ok((ours, ClientInfo { version, cycle_buffer, said, keys, peer }))
    }

    fn exchange_versions(&mut self) -> Result<String, ServeError> {
        const DUE: &str = "its version";
        let version = exchange::parse_version(&self.read::<VERSION_LEN>(DUE)?)?;
        self.send(&exchange::our_version(), DUE)?;
        Ok(version)
    }

    fn exchange_machines(&mut self) -> Result<usize, ServeError> {
        const DUE: &str = "its page size and cache line";
        let cycle_buffer = exchange::parse_cycle_buffer(self.read(DUE)?)?;
        self.send(&exchange::OUR_CYCLE_BUFFER.to_be_bytes(), DUE)?;
        let _cache_line: [u8; 4] = self.read(DUE)?;
        self.send(&exchange::OUR_CACHE_LINE.to_be_bytes(), DUE)?;
        Ok(cycle_buffer)
    }

    fn exchange_mtus(&mut self, ours: Mtu) -> Result<Mtu, ServeError> {
        const DUE: &str = "its path MTU";
        let theirs = exchange::parse_mtu(self.read::<MTU_LEN>(DUE)?)?;
        self.send(&exchange::format_mtu(ours), DUE)?;
        Ok(ours.min(theirs))
    }

    /// The first keys, which may be of a kind that is shorter than they should be.
    fn read_keys(&mut self) -> Result<[u8; KEYS_LEN], ServeError> {
        const DUE: &str = "its queue pair";
        while !self.socket.holds(KEYS_LEN, DUE)? {
            if QpInfo::lack_gid(self.socket.pending()) {
                return Err(exchange::MalformedExchange::NoGid.into());
            }
            self.work(DUE)?;
        }
        Ok(self.take())
    }

    fn station_of(&mut self, theirs: IpAddr, ours: IpAddr) -> Result<MacAddr, ServeError> {
        if theirs.is_ipv4() != ours.is_ipv4() {
            return Err(ServeError::OtherGid { theirs, ours });
        }
        let (port, address) = self.settings.place;
        loop {
            match self.engine().resolve(port, address, theirs) {
                Resolution::Known(mac) => return Ok(mac),
                Resolution::Unreachable(why) => return Err(ServeError::NoWay(theirs, why)),
                Resolution::Pending => self.work("the station of its address")?,
            }
        }
    }

    fn connect(&mut self, near: UnconnectedQp, ours: &Address, known: ClientInfo) -> Result<Client, ServeError> {
        let ClientInfo { version, cycle_buffer, said, keys, peer } = known;
        let settings = self.settings;
        self.host.connecting(&near, &peer);
        let ours = QpInfo {
            // The number that may be under way at once: a client that has asked for fewer gets fewer.
            out_reads: ours.max_rd_atomic.min(peer.max_rd_atomic).into(),
            qpn: ours.qpn,
            psn: ours.psn,
            rkey: Rkey(0),
            va: 0,
            ip: ours.ip,
        };
        let qp = self.engine().connect(near, &peer, &settings.params)?;
        Ok(Client { version, peer, qp, said, keys, ours, cycle_buffer })
    }

    fn await_word(&mut self, client: &Client, due: &'static str) -> Result<Word, ServeError> {
        loop {
            if let Some(word) = self.hear(client, due)? {
                return Ok(word);
            }
            self.work(due)?;
            self.check(client, due)?;
        }
    }

    fn take<const N: usize>(&mut self) -> [u8; N] {
        self.last_seen = Instant::now();
        self.socket.take()
    }
}
