//! A victim, and a bare engine at the other end of its wire that can write whatever it likes.

use roci_driver::link::sim::Clock;
use roci_driver::{Access, QueuePair, Rkey, SendWr};
use roci_msgcore::Fabric;
use roci_msgcore::channel::{Breach, Channel, ChannelConfig, ChannelError};
use roci_testkit::World;

use crate::pair::{SMALL, TestChannel, TestLink, Wire};

pub(crate) const CHUNK: usize = SMALL.chunk;

/// The victim at rank 0, and a peer that is none.
pub(crate) struct Scene {
    clock: Clock,
    pub(crate) victim: TestChannel,
    peer: Fabric<TestLink>,
    qp: QueuePair,
    hello: Vec<u8>,
    /// The keys to the victim's memory.
    pub(crate) ring: Rkey,
    pub(crate) words: Rkey,
}

impl Scene {
    /// The victim has said hello, and nothing was answered.
    pub(crate) fn silent(config: ChannelConfig) -> Self {
        let Wire { clock, fabrics: [fabric, mut peer], .. } = Wire::new(&[]);
        let qp = peer.queue_pairs[0].expect("it is connected");
        for _ in 0..64 {
            let buffer = peer.engine.buffer(64).expect("memory");
            peer.engine.post_recv(qp, 0, buffer).expect("room");
        }
        let mut victim = Channel::open(fabric, config).expect("memory");
        let hello = loop {
            clock.advance(1_000);
            victim.progress();
            peer.engine.poll();
            if let Some(done) = peer.engine.poll_cq(peer.cq) {
                break done.buffer[..done.len].to_vec();
            }
        };
        let key = |at: usize| Rkey(u32::from_le_bytes(hello[at..at + 4].try_into().expect("four bytes")));
        let (ring, words) = (key(40), key(44));
        Self { clock, victim, peer, qp, hello, ring, words }
    }

    /// The peer has said hello as it should.
    pub(crate) fn open(config: ChannelConfig) -> Self {
        let mut scene = Self::silent(config);
        let hello = scene.answer();
        scene.send(&hello);
        scene.talk();
        assert_eq!(scene.victim.is_open(1), Ok(true));
        scene
    }

    /// A hello with keys of the peer's own.
    pub(crate) fn answer(&mut self) -> Vec<u8> {
        let mut share = |len| {
            let buffer = self.peer.engine.buffer(len).expect("memory");
            let access = Access::REMOTE_READ.and(Access::REMOTE_WRITE);
            self.peer.engine.register(self.peer.pd, buffer, access).expect("room").rkey().0.to_le_bytes()
        };
        let (ring, words) = (share(SMALL.ring), share(16));
        [&self.hello[..40], &ring, &words].concat()
    }

    /// Long enough for what was said, and for what is said to it.
    pub(crate) fn talk(&mut self) {
        self.steps(20);
    }

    pub(crate) fn post(&mut self, wr: SendWr) {
        self.peer.engine.post_send(self.qp, wr).expect("room");
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        let mut buffer = self.peer.engine.buffer(bytes.len()).expect("memory");
        buffer.copy_from_slice(bytes);
        self.post(SendWr::send(0, buffer));
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
    pub(crate) fn expect(&mut self, breach: Breach) {
        self.talk();
        let error = ChannelError::PeerProtocol { rank: 1, breach };
        assert_eq!(self.victim.put(1, b"x"), Err(error.clone()));
        assert_eq!(self.victim.get(1, &mut [0; 100]), Err(error));
        assert_eq!(self.victim.stats().peers_gone, 1);
    }
}

impl World for Scene {
    fn clock(&self) -> &Clock {
        &self.clock
    }

    fn run(&mut self) {
        self.victim.progress();
        self.peer.engine.poll();
        while self.peer.engine.poll_cq(self.peer.cq).is_some() {}
    }
}

/// The bytes of an announcement.
pub(crate) fn announcement(key: u32, len: u64) -> Vec<u8> {
    [&key.to_le_bytes()[..], &[0; 4], &len.to_le_bytes()].concat()
}
