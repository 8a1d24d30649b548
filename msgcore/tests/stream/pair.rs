//! Two workers with streams at the ends of a wire that may lose, repeat, reorder and corrupt.

use std::sync::Arc;

pub(crate) use roci_driver::link::faulty::Faulty;
use roci_driver::link::sim::{Clock, Net, SimLink};
use roci_driver::{Arena, Buffer, EngineStats};
use roci_msgcore::config::Origin;
use roci_msgcore::stream::{Stream, StreamConfig, StreamError, StreamPayload, StreamStats};
use roci_msgcore::{Config, Messaging, Ports, Worker};
use roci_testkit::World;

pub(crate) use crate::facade::TestWorker;

/// A worker, whose streams are called by their peer.
pub(crate) struct End(pub(crate) TestWorker);

impl End {
    fn stream(&mut self, peer: usize) -> Result<Stream<'_, dyn Messaging + '_>, StreamError> {
        self.0.stream(peer)
    }

    pub(crate) fn is_open(&mut self, peer: usize) -> Result<bool, StreamError> {
        self.stream(peer)?.is_open()
    }

    pub(crate) fn put(&mut self, to: usize, bytes: &[u8]) -> Result<usize, StreamError> {
        self.stream(to)?.put(bytes)
    }

    pub(crate) fn put_payload(&mut self, to: usize, payload: StreamPayload) -> Result<usize, StreamError> {
        self.stream(to)?.put_payload(payload)
    }

    pub(crate) fn get(&mut self, from: usize, into: &mut [u8]) -> Result<usize, StreamError> {
        self.stream(from)?.get(into)
    }

    pub(crate) fn get_into(&mut self, from: usize, buffer: &mut Option<Buffer>) -> Result<usize, StreamError> {
        self.stream(from)?.get_into(buffer)
    }

    pub(crate) fn flush(&mut self, to: usize) -> Result<bool, StreamError> {
        self.stream(to)?.flush()
    }

    pub(crate) fn buffer(&self, len: usize) -> Buffer {
        self.0.buffer(len).expect("memory")
    }

    pub(crate) fn adopt(&mut self, buffer: Buffer) -> StreamPayload {
        self.0.adopt_payload(buffer).expect("room")
    }

    pub(crate) fn write_payload(&mut self, payload: StreamPayload, at: usize, bytes: &[u8]) -> Result<(), StreamError> {
        self.0.write_payload(payload, at, bytes)
    }

    pub(crate) fn release(&mut self, payload: StreamPayload) -> Result<Buffer, StreamError> {
        self.0.release_payload(payload)
    }

    pub(crate) fn stats(&self) -> StreamStats {
        self.0.inside().stream_stats()
    }

    pub(crate) fn engine_stats(&self) -> EngineStats {
        self.0.engine_stats()
    }
}

/// Small enough to be full often, and to wrap around.
pub(crate) const SMALL: StreamConfig = StreamConfig {
    ring: 32 << 10,
    chunk: 2 << 10,
    piggyback: true,
    tail_delay: true,
    pipelining: true,
    zero_copy: Some(8 << 10),
    registrations: 2,
};

/// Every combination of the four switches.
pub(crate) fn combinations() -> impl Iterator<Item = StreamConfig> {
    (0..16).map(|bits: u8| StreamConfig {
        piggyback: bits & 1 != 0,
        tail_delay: bits & 2 != 0,
        pipelining: bits & 4 != 0,
        zero_copy: SMALL.zero_copy.filter(|_| bits & 8 != 0),
        ..SMALL
    })
}

/// Two workers whose engines run inside their calls.
pub(crate) type Pair = AnyPair<false>;
/// Two dedicated workers, whose engines take their turns when the world lets them.
pub(crate) type DedicatedPair = AnyPair<true>;

pub(crate) struct AnyPair<const DEDICATED: bool> {
    pub(crate) clock: Clock,
    pub(crate) net: Net,
    pub(crate) ends: [End; 2],
    pub(crate) cut: Box<dyn Fn()>,
}

impl<const DEDICATED: bool> World for AnyPair<DEDICATED> {
    fn clock(&self) -> &Clock {
        &self.clock
    }

    fn run(&mut self) {
        for end in &mut self.ends {
            end.0.progress();
            end.0.inside().check_invariants().expect("what must hold");
        }
    }

    fn describe(&self) -> String {
        format!("{:?}", self.ends.each_ref().map(|end| (end.stats(), end.0.stats())))
    }
}

impl<const DEDICATED: bool> AnyPair<DEDICATED> {
    /// Two ends whose streams are open.
    pub(crate) fn new(config: StreamConfig) -> Self {
        Self::with(config, &[])
    }

    pub(crate) fn with(config: StreamConfig, knobs: &[(&str, &str)]) -> Self {
        let mut pair = Self::unopened([config; 2], knobs);
        pair.open();
        pair
    }

    /// Opens the streams of both.
    pub(crate) fn open(&mut self) {
        self.settle(|pair| [pair.ends[0].is_open(1), pair.ends[1].is_open(0)] == [Ok(true), Ok(true)]);
    }

    pub(crate) fn unopened(configs: [StreamConfig; 2], knobs: &[(&str, &str)]) -> Self {
        let AnyWire { clock, net, workers, cut, .. } = AnyWire::<DEDICATED>::new(knobs);
        let mut configs = configs.into_iter();
        let ends = workers.map(|mut worker| {
            worker.configure_streams(configs.next().expect("two")).expect("a configuration");
            End(worker)
        });
        Self { clock, net, ends, cut }
    }

    /// Lets both make progress until something is so.
    pub(crate) fn settle(&mut self, mut is_so: impl FnMut(&mut Self) -> bool) {
        self.find("what is waited for", |pair| is_so(pair).then_some(()));
    }

    /// Puts all of `bytes`, as fast as the pipe takes them.
    pub(crate) fn put_all(&mut self, who: usize, bytes: &[u8]) {
        let mut taken = 0;
        self.settle(|pair| {
            taken += pair.ends[who].put(1 - who, &bytes[taken..]).expect("the peer is there");
            taken == bytes.len()
        });
    }

    /// Gets as many bytes.
    pub(crate) fn get_all(&mut self, who: usize, len: usize) -> Vec<u8> {
        let (mut bytes, mut got) = (vec![0; len], 0);
        self.settle(|pair| {
            got += pair.ends[who].get(1 - who, &mut bytes[got..]).expect("the peer is there");
            got == len
        });
        bytes
    }
}

pub(crate) type Wire = AnyWire<false>;
pub(crate) type DedicatedWire = AnyWire<true>;

/// Two workers that are not connected.
pub(crate) struct AnyWire<const DEDICATED: bool> {
    pub(crate) clock: Clock,
    pub(crate) net: Net,
    pub(crate) workers: [TestWorker; 2],
    pub(crate) arenas: [Arc<Arena>; 2],
    /// What was free before there were workers.
    pub(crate) free: [usize; 2],
    pub(crate) cut: Box<dyn Fn()>,
}

pub(crate) fn config(knobs: &[(&str, &str)]) -> Config {
    let mut config = Config::default();
    for (name, value) in knobs {
        config.set(name, value, Origin::Code).expect("in range");
    }
    config
}

impl<const DEDICATED: bool> AnyWire<DEDICATED> {
    pub(crate) fn new(knobs: &[(&str, &str)]) -> Self {
        Self::of([knobs; 2])
    }

    /// Each end with knobs of its own.
    pub(crate) fn of(knobs: [&[(&str, &str)]; 2]) -> Self {
        let configs = knobs.map(config);
        let clock = Clock::default();
        let (near, far) = SimLink::pair(&clock);
        let (net, cut) = (near.net(), Box::new(near.cutter()));
        net.record();
        let hosts = [[10, 0, 0, 1].into(), [10, 0, 0, 2].into()];
        let mut stream = 0;
        let mut engine = |link| {
            let mut engine = roci_testkit::engine(32 << 20, stream + 1);
            engine.add_port(
                Faulty::new(link, configs[stream as usize].faults, stream + 1),
                hosts[stream as usize],
                true,
            );
            stream += 1;
            engine
        };
        let engines = vec![engine(near), engine(far)];
        let arenas = [engines[0].arena().clone(), engines[1].arena().clone()];
        let free = arenas.each_ref().map(|arena| arena.free_bytes());
        let mut ports = Ports::group(engines, &hosts).into_iter();
        let workers = configs.map(|config| {
            let ports = ports.next().expect("two");
            let worker = Worker::assemble(ports, &config).unwrap_or_else(|error| panic!("{error}"));
            if DEDICATED { TestWorker::dedicated(worker, &config) } else { TestWorker::inline(worker) }
        });
        Self { clock, net, workers, arenas, free, cut }
    }
}

/// The byte at a position of the stream that goes into every pipe of the tests.
pub(crate) fn byte_at(position: u64) -> u8 {
    (position.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

/// A part of that stream.
pub(crate) fn stream(from: u64, len: usize) -> Vec<u8> {
    (from..).take(len).map(byte_at).collect()
}

/// Numbers that look random, and are the same in each run.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) | 1)
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) as usize % bound
    }
}
