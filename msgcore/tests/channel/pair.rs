//! Two channels at the ends of a wire that may lose, repeat, reorder and corrupt.

use std::sync::Arc;

use roci_driver::Arena;
use roci_driver::link::faulty::Faulty;
use roci_driver::link::sim::{Clock, Net, SimLink};
use roci_msgcore::channel::{Channel, ChannelConfig};
use roci_msgcore::config::Origin;
use roci_msgcore::{Config, Fabric};
use roci_testkit::World;

pub(crate) type TestLink = Faulty<SimLink>;
pub(crate) type TestChannel = Channel<TestLink>;

/// Small enough to be full often, and to wrap around.
pub(crate) const SMALL: ChannelConfig = ChannelConfig {
    ring: 32 << 10,
    chunk: 2 << 10,
    piggyback: true,
    tail_delay: true,
    pipelining: true,
    zero_copy: Some(8 << 10),
    registrations: 2,
};

/// Every combination of the four switches.
pub(crate) fn combinations() -> impl Iterator<Item = ChannelConfig> {
    (0..16).map(|bits: u8| ChannelConfig {
        piggyback: bits & 1 != 0,
        tail_delay: bits & 2 != 0,
        pipelining: bits & 4 != 0,
        zero_copy: SMALL.zero_copy.filter(|_| bits & 8 != 0),
        ..SMALL
    })
}

pub(crate) struct Pair {
    pub(crate) clock: Clock,
    pub(crate) net: Net,
    pub(crate) ends: [TestChannel; 2],
    pub(crate) cut: Box<dyn Fn()>,
}

impl World for Pair {
    fn clock(&self) -> &Clock {
        &self.clock
    }

    fn run(&mut self) {
        for end in &mut self.ends {
            end.progress();
        }
    }

    fn describe(&self) -> String {
        format!("{:?}", self.ends.each_ref().map(TestChannel::stats))
    }
}

impl Pair {
    /// Two channels that are open.
    pub(crate) fn new(config: ChannelConfig) -> Self {
        Self::with(config, &[])
    }

    pub(crate) fn with(config: ChannelConfig, knobs: &[(&str, &str)]) -> Self {
        let mut pair = Self::unopened([config; 2], knobs);
        pair.settle(|pair| pair.ends[0].is_open(1) == Ok(true) && pair.ends[1].is_open(0) == Ok(true));
        pair
    }

    pub(crate) fn unopened(configs: [ChannelConfig; 2], knobs: &[(&str, &str)]) -> Self {
        let Wire { clock, net, fabrics, cut, .. } = Wire::new(knobs);
        let mut configs = configs.into_iter();
        let ends = fabrics.map(|fabric| Channel::open(fabric, configs.next().expect("two")).expect("memory"));
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

/// Two connected ends without channels.
pub(crate) struct Wire {
    pub(crate) clock: Clock,
    pub(crate) net: Net,
    pub(crate) fabrics: [Fabric<TestLink>; 2],
    pub(crate) arenas: [Arc<Arena>; 2],
    pub(crate) cut: Box<dyn Fn()>,
}

impl Wire {
    pub(crate) fn new(knobs: &[(&str, &str)]) -> Self {
        let mut config = Config::default();
        for (name, value) in knobs {
            config.set(name, value, Origin::Code).expect("in range");
        }
        let clock = Clock::default();
        let (near, far) = SimLink::pair(&clock);
        let (net, cut) = (near.net(), Box::new(near.cutter()));
        net.record();
        let mut stream = 0;
        let mut engine = |link, host: u8| {
            let mut engine = roci_testkit::engine(16 << 20, host.into());
            stream += 1;
            engine.add_port(Faulty::new(link, config.faults, stream), [10, 0, 0, host].into(), true);
            engine
        };
        let engines = [engine(near, 1), engine(far, 2)];
        let arenas = engines.each_ref().map(|engine| engine.arena().clone());
        Self { clock, net, fabrics: Fabric::pair(engines, &config), arenas, cut }
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
