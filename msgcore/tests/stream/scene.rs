//! A victim, and a bare engine at the other end of its wire, which connects as a worker does and then writes whatever it likes.

use roci_driver::link::sim::{Clock, SimLink};
use roci_driver::{Access, CompletionQueue, Operation, QpParams, QueuePair, Rkey, SendWr};
use roci_msgcore::receive_queues::Kind;
use roci_msgcore::stream::{StreamBreach, StreamConfig, StreamError};
use roci_msgcore::{Breach, Config, OpError, Ports, Worker};
use roci_protocol::msg::{self, Capabilities, ConnectionTerms, Header, Message, QueueTerms};
use roci_testkit::World;

use super::pair::{Faulty, IS_DEDICATED, SMALL, TestWorker, config};

pub(crate) const CHUNK: usize = SMALL.chunk;

/// The victim at rank 0, and a peer that is none.
pub(crate) struct Scene {
    clock: Clock,
    pub(crate) victim: Victim,
    peer: Ports<Faulty<SimLink>>,
    cq: CompletionQueue,
    qps: Vec<QueuePair>,
    offer: Vec<u8>,
    /// The keys to the victim's memory.
    pub(crate) ring: Rkey,
    pub(crate) words: Rkey,
}

/// The victim, whose stream to its peer is called.
pub(crate) struct Victim(pub(crate) TestWorker);

impl Victim {
    pub(crate) fn is_open(&mut self) -> Result<bool, StreamError> {
        self.0.stream(1)?.is_open()
    }

    pub(crate) fn put(&mut self, bytes: &[u8]) -> Result<usize, StreamError> {
        self.0.stream(1)?.put(bytes)
    }

    pub(crate) fn get(&mut self, into: &mut [u8]) -> Result<usize, StreamError> {
        self.0.stream(1)?.get(into)
    }
}

impl Scene {
    /// The two are connected, and the victim has no stream yet.
    pub(crate) fn connected(stream: StreamConfig, knobs: &[(&str, &str)]) -> Self {
        let (clock, config) = (Clock::default(), config(knobs));
        let (near, far) = SimLink::pair(&clock);
        let hosts = [[10, 0, 0, 1].into(), [10, 0, 0, 2].into()];
        let mut engines = vec![roci_testkit::engine(32 << 20, 1), roci_testkit::engine(32 << 20, 2)];
        engines[0].add_port(Faulty::new(near, config.faults, 1), hosts[0], true);
        engines[1].add_port(Faulty::new(far, config.faults, 2), hosts[1], true);
        let [victim, mut peer] = Ports::group(engines, &hosts).try_into().unwrap_or_else(|_| unreachable!());
        let victim = Worker::assemble(victim, &config).unwrap_or_else(|error| panic!("{error}"));
        let mut victim = if IS_DEDICATED { TestWorker::dedicated(victim, &config) } else { TestWorker::inline(victim) };
        victim.configure_streams(stream).expect("a configuration");
        let (cq, qps, offer) = (peer.engine.create_cq(10_000), Vec::new(), Vec::new());
        let (ring, words, victim) = (Rkey(0), Rkey(0), Victim(victim));
        let mut scene = Self { clock, victim, peer, cq, qps, offer, ring, words };
        scene.connect(&config);
        scene
    }

    fn connect(&mut self, config: &Config) {
        let queues = config.receive_queues();
        let mut addresses = Vec::new();
        let created: Vec<_> = queues
            .iter()
            .map(|_| {
                let qp = self.peer.engine.create_qp(0, self.peer.pd, self.cq).expect("room");
                addresses.push(self.peer.engine.address_of(&qp, &params()).to_string());
                qp
            })
            .collect();
        let mail = self.peer.mail.as_mut().expect("a group has mail");
        mail.send(0, &format!("ask {}", addresses.join(";"))).expect("room");
        let answer = loop {
            self.step();
            if let Some((0, text)) = self.peer.mail.as_mut().expect("mail").poll().expect("always") {
                break text;
            }
        };
        let theirs = answer.strip_prefix("grant ").expect("it was asked as it should be");
        for (qp, address) in created.into_iter().zip(theirs.split(';')) {
            let address = address.parse().expect("an address");
            let qp = self.peer.engine.connect(qp, &address, &params()).expect("one IP version");
            (0..200).for_each(|_| self.post_receive(qp));
            self.qps.push(qp);
        }
        let terms = |queue: &roci_msgcore::receive_queues::ReceiveQueue| {
            let is_shared = matches!(queue.kind, Kind::Shared { .. });
            QueueTerms { is_shared, credits: 64, missing: 0, reserve: 64, size: queue.size as u32 }
        };
        let terms = ConnectionTerms {
            rank: 1,
            capabilities: Capabilities { rdma: true },
            queues: queues.iter().map(terms).collect(),
        };
        let mut bytes = [0; ConnectionTerms::LEN];
        terms.emit(&mut bytes);
        self.send(&Header::new(Message::Terms), &bytes);
        while !self.victim.0.is_connected(1) {
            self.step();
        }
    }

    fn post_receive(&mut self, qp: QueuePair) {
        let buffer = self.peer.engine.buffer(64 << 10).expect("memory");
        // A queue pair that has failed takes none.
        let _ = self.peer.engine.post_recv(qp, 0, buffer);
    }

    fn send(&mut self, header: &Header, payload: &[u8]) {
        let mut buffer = self.peer.engine.buffer(msg::LEN + payload.len()).expect("memory");
        header.emit(&mut buffer);
        buffer[msg::LEN..].copy_from_slice(payload);
        self.post(SendWr::send(0, buffer));
    }

    /// The victim has offered its end, and nothing was answered.
    pub(crate) fn silent(config: StreamConfig) -> Self {
        let mut scene = Self::connected(config, &[]);
        assert_eq!(scene.victim.is_open(), Ok(false));
        while scene.offer.is_empty() {
            scene.step();
        }
        let key = |at: usize| Rkey(u32::from_le_bytes(scene.offer[at..at + 4].try_into().expect("four bytes")));
        (scene.ring, scene.words) = (key(40), key(44));
        scene
    }

    /// The peer has offered its end as it should.
    pub(crate) fn open(config: StreamConfig) -> Self {
        let mut scene = Self::silent(config);
        let offer = scene.answer();
        scene.send_offer(&offer);
        scene.talk();
        assert_eq!(scene.victim.is_open(), Ok(true));
        scene
    }

    pub(crate) fn send_offer(&mut self, bytes: &[u8]) {
        self.send(&Header::new(Message::StreamOffer), bytes);
    }

    /// An offer with keys of the peer's own.
    pub(crate) fn answer(&mut self) -> Vec<u8> {
        let mut share = |len| {
            let buffer = self.peer.engine.buffer(len).expect("memory");
            let access = Access::REMOTE_READ.and(Access::REMOTE_WRITE);
            self.peer.engine.register(self.peer.pd, buffer, access).expect("room").rkey().0.to_le_bytes()
        };
        let (ring, words) = (share(SMALL.ring), share(16));
        [&self.offer[..40], &ring, &words].concat()
    }

    /// Long enough for what was said, and for what is said to it.
    pub(crate) fn talk(&mut self) {
        self.steps(20);
    }

    pub(crate) fn post(&mut self, wr: SendWr) {
        // A queue pair that has failed takes none.
        let _ = self.peer.engine.post_send(self.qps[0], wr);
    }

    pub(crate) fn write(&mut self, key: Rkey, at: usize, bytes: &[u8]) -> SendWr {
        let mut buffer = self.peer.engine.buffer(bytes.len()).expect("memory");
        buffer.copy_from_slice(bytes);
        SendWr::write(0, buffer, key, at as u64)
    }

    /// Writes a chunk with this header and as many bytes behind it, and its news.
    pub(crate) fn chunk(&mut self, slot: usize, (number, len, tail): (u32, u32, u64), payload: &[u8], immediate: u32) {
        let (number, len) = (number.to_le_bytes(), len.to_le_bytes());
        let bytes = [&number[..], &len, &tail.to_le_bytes(), payload].concat();
        let write = self.write(self.ring, slot * CHUNK, &bytes);
        self.post(write.with_imm(immediate));
    }

    /// Writes a head or a tail, and the news of it.
    pub(crate) fn word(&mut self, at: usize, word: u64, immediate: u32) {
        let write = self.write(self.words, at, &word.to_le_bytes());
        self.post(write.with_imm(immediate));
    }

    /// The victim has ended the connection for this reason, and says so at every call.
    pub(crate) fn expect(&mut self, breach: StreamBreach) {
        self.expect_breach(breach.into());
    }

    pub(crate) fn expect_breach(&mut self, breach: Breach) {
        self.talk();
        let error = StreamError::Peer(OpError::PeerProtocol { peer: 1.into(), breach });
        assert_eq!(self.victim.put(b"x"), Err(error.clone()));
        assert_eq!(self.victim.get(&mut [0; 100]), Err(error));
        assert_eq!(self.victim.0.stats().peers_gone, 1);
        self.victim.0.inside().check_invariants().expect("what must hold");
    }
}

fn params() -> QpParams {
    QpParams { rq_depth: 256, sq_depth: 256, end_to_end_credits: false, ..QpParams::default() }
}

impl World for Scene {
    fn clock(&self) -> &Clock {
        &self.clock
    }

    fn run(&mut self) {
        self.victim.0.progress();
        self.peer.engine.poll();
        while let Some(done) = self.peer.engine.poll_cq(self.cq) {
            if done.operation == Operation::Recv && done.status.is_success() {
                if let Ok((Header { message: Message::StreamOffer, .. }, offer)) =
                    Header::parse(&done.buffer[..done.len])
                {
                    self.offer = offer.to_vec();
                }
                self.post_receive(done.qp);
            }
        }
    }
}

/// The bytes of an announcement.
pub(crate) fn announcement(key: u32, len: u64) -> Vec<u8> {
    [&key.to_le_bytes()[..], &[0; 4], &len.to_le_bytes()].concat()
}
