//! Workers on a simulated switch, under one clock that the test moves.
#![allow(dead_code, reason = "each test uses its part")]

mod facade;

use std::net::IpAddr;

use roci_driver::link::faulty::Faulty;
use roci_driver::link::sim::{Clock, Net, NetConfig, SimLink};
use roci_driver::neighbour::Interface;
use roci_driver::{Engine, PortConfig};
use roci_msgcore::config::Origin;
use roci_msgcore::{
    Config, Domain, Done, OpError, Pattern, Ports, Request, SendOptions, Source, Tag, TagMatch, Worker,
};
use roci_protocol::wire::ethernet;
use roci_testkit::World as _;

pub(crate) use facade::TestWorker;

/// A world of [`Worker`]s.
pub(crate) type World = AnyWorld<false>;
/// A world of dedicated workers, whose engines take their turns when the world lets them.
pub(crate) type DedicatedWorld = AnyWorld<true>;

pub(crate) struct AnyWorld<const DEDICATED: bool> {
    pub(crate) clock: Clock,
    pub(crate) net: Net,
    pub(crate) workers: Vec<TestWorker>,
    cutters: Vec<Box<dyn Fn()>>,
}

pub(crate) fn config(settings: &[(&str, &str)]) -> Config {
    let mut config = Config::default();
    config.set("arena_size", "64MiB", Origin::Code).expect("in range");
    for (name, value) in settings {
        config.set(name, value, Origin::Code).unwrap_or_else(|error| panic!("{error}"));
    }
    config
}

type Engines = (Clock, Net, Vec<Engine<Faulty<SimLink>>>, Vec<IpAddr>, Vec<Box<dyn Fn()>>);

/// Of the worlds with a seed half have the fast path everywhere, as those without have; a quarter has it at every second rank, and a
/// quarter nowhere.
fn has_fast_path(seed: u64, rank: usize) -> bool {
    match seed % 4 {
        2 => rank.is_multiple_of(2),
        3 => false,
        _ => true,
    }
}

/// An engine for each of these configurations, all on one switch.
fn engines(net: NetConfig, configs: &[Config], seed: u64) -> Engines {
    let clock = Clock::default();
    let links = SimLink::switch_over(&clock, configs.len(), net);
    let net = links[0].net();
    net.record();
    let cutters = links.iter().map(|link| Box::new(link.cutter()) as Box<dyn Fn()>).collect();
    let hosts: Vec<IpAddr> =
        (0..configs.len()).map(|rank| [10, 0, ((rank + 1) >> 8) as u8, (rank + 1) as u8].into()).collect();
    let engine = |((rank, link), config): ((usize, SimLink), &Config)| {
        let mut engine = roci_testkit::engine(config.arena_size, seed << 8 | rank as u64);
        engine.set_fast_path(has_fast_path(seed, rank));
        let link = match config.wanted_port_mtu() {
            Some(mtu) => link.with_max_frame(ethernet::LEN + usize::from(mtu)),
            None => link,
        };
        let link = Faulty::new(link, config.faults, rank as u64 + 1);
        // All are on one link, however many.
        let interfaces = vec![Interface { ip: hosts[rank], prefix: 16, vlan: None }];
        engine.add_port_with(link, PortConfig { interfaces, ..PortConfig::default() }).expect("a host");
        engine
    };
    let engines = links.into_iter().enumerate().zip(configs).map(engine).collect();
    (clock, net, engines, hosts, cutters)
}

fn worker(ports: Ports<Faulty<SimLink>>, config: &Config, is_dedicated: bool) -> TestWorker {
    let worker = Worker::assemble(ports, config).unwrap_or_else(|e| panic!("{e}"));
    if is_dedicated { TestWorker::dedicated(worker, config) } else { TestWorker::inline(worker) }
}

impl<const DEDICATED: bool> AnyWorld<DEDICATED> {
    /// Two workers.
    pub(crate) fn pair(settings: &[(&str, &str)]) -> Self {
        Self::of(&[settings, settings])
    }

    /// A worker for each of these settings.
    pub(crate) fn of(settings: &[&[(&str, &str)]]) -> Self {
        let configs: Vec<_> = settings.iter().map(|settings| config(settings)).collect();
        Self::with(&configs)
    }

    /// A worker for each of these configurations.
    pub(crate) fn with(configs: &[Config]) -> Self {
        Self::over(NetConfig::default(), configs, 0)
    }

    /// The same over a network of this kind, with everything that engines choose by chance from a seed.
    pub(crate) fn over(net: NetConfig, configs: &[Config], seed: u64) -> Self {
        Self::of_both(net, configs, seed, |_| DEDICATED)
    }

    /// The same, in which some workers are dedicated ones.
    pub(crate) fn of_both(net: NetConfig, configs: &[Config], seed: u64, is_dedicated: impl Fn(usize) -> bool) -> Self {
        let (clock, net, engines, hosts, cutters) = engines(net, configs, seed);
        let ports = Ports::group(engines, &hosts);
        let workers = ports.into_iter().zip(configs).enumerate();
        let workers = workers.map(|(rank, (ports, config))| worker(ports, config, is_dedicated(rank)));
        Self { clock, net, workers: workers.collect(), cutters }
    }

    /// Two ranks, of which the second has a port and no worker yet.
    pub(crate) fn with_a_late_rank(config: &Config) -> (Self, Ports<Faulty<SimLink>>) {
        let (clock, net, engines, hosts, cutters) = engines(NetConfig::default(), &[config.clone(), config.clone()], 0);
        let mut ports = Ports::group(engines, &hosts);
        let late = ports.pop().expect("two ranks");
        let first = worker(ports.pop().expect("two ranks"), config, DEDICATED);
        (Self { clock, net, workers: vec![first], cutters }, late)
    }

    /// A rank that was late has its worker now.
    pub(crate) fn come(&mut self, ports: Ports<Faulty<SimLink>>, config: &Config) {
        self.workers.push(worker(ports, config, DEDICATED));
    }

    /// Workers alone, which know nothing of each other. The first has incarnation 1, and so on.
    pub(crate) fn of_strangers(net: NetConfig, configs: &[Config], seed: u64) -> Self {
        Self::of_both_strangers(net, configs, seed, |_| DEDICATED)
    }

    /// The same, some of which are dedicated ones.
    pub(crate) fn of_both_strangers(
        net: NetConfig,
        configs: &[Config],
        seed: u64,
        is_dedicated: impl Fn(usize) -> bool,
    ) -> Self {
        let (clock, net, engines, _, cutters) = engines(net, configs, seed);
        let workers = engines.into_iter().zip(configs).enumerate().map(|(who, (engine, config))| {
            let incarnation = seed << 16 | (who as u64 + 1);
            worker(Ports::alone(engine, config, incarnation), config, is_dedicated(who))
        });
        Self { clock, net, workers: workers.collect(), cutters }
    }

    /// The same, and the last is the first endpoint of a domain.
    pub(crate) fn with_a_domain(configs: &[Config], seed: u64) -> (Self, Domain<Faulty<SimLink>>) {
        let (clock, net, mut engines, _, cutters) = engines(NetConfig::default(), configs, seed);
        let (engine, last) = (engines.pop().expect("one"), configs.last().expect("one"));
        let alone = |(who, (engine, config)): (usize, (_, &Config))| {
            worker(Ports::alone(engine, config, 1 + who as u64), config, DEDICATED)
        };
        let workers = engines.into_iter().zip(configs).enumerate().map(alone).collect();
        let first = Worker::assemble(Ports::alone(engine, last, 1000), last).unwrap_or_else(|e| panic!("{e}"));
        let domain = Domain::of(first, last).unwrap_or_else(|e| panic!("{e}"));
        (Self { clock, net, workers, cutters }, domain)
    }

    /// A worker alone is killed, and another is started at its place.
    pub(crate) fn restart_stranger(&mut self, who: usize, config: &Config, incarnation: u64) {
        let mut engine = roci_testkit::engine(config.arena_size, incarnation << 8 | who as u64);
        let link = SimLink::again(&self.net, &self.clock, who);
        engine.add_port(Faulty::new(link, config.faults, who as u64 + 1), self.workers[who].address().ip, false);
        let new = worker(Ports::alone(engine, config, incarnation), config, DEDICATED);
        // Who is killed says no goodbye.
        std::mem::forget(std::mem::replace(&mut self.workers[who], new));
    }

    /// Connects all with all.
    pub(crate) fn connect_all(&mut self) {
        let size = self.workers.len();
        for (who, worker) in self.workers.iter_mut().enumerate() {
            (0..size).filter(|&peer| peer != who).for_each(|peer| worker.connect(peer.into()).expect("it is there"));
        }
        self.until("all are connected", |world| {
            let is_connected = |(who, worker): (usize, &TestWorker)| {
                (0..size).filter(|&peer| peer != who).all(|peer| worker.is_connected(peer))
            };
            world.workers.iter().enumerate().all(is_connected)
        });
    }

    /// Pulls the cable of a worker.
    pub(crate) fn cut(&self, who: usize) {
        self.cutters[who]();
    }

    /// Lets all make progress until a request of `who` is over.
    pub(crate) fn wait(&mut self, who: usize, request: Request) -> Result<Done, OpError> {
        self.find("the request's end", |world| world.workers[who].test(request))
    }

    /// The counters that moved, for a failure's message.
    pub(crate) fn counters(&self) -> String {
        let show = |worker: &TestWorker| {
            let engine = worker.engine_stats();
            let moved: Vec<_> = worker.stats().iter().chain(engine.iter()).filter(|(_, count)| *count > 0).collect();
            format!("rank {}: {moved:?}\n", worker.rank())
        };
        self.workers.iter().map(show).collect()
    }

    /// Sends from one of two to the other.
    pub(crate) fn send(&mut self, who: usize, tag: u64, bytes: &[u8]) -> Request {
        self.workers[who].send_bytes((1 - who).into(), Tag::new(tag), bytes).expect("accepted")
    }

    pub(crate) fn send_with(
        &mut self,
        from: usize,
        to: usize,
        tag: u64,
        bytes: &[u8],
        options: SendOptions,
    ) -> Request {
        let mut payload = self.workers[from].buffer(bytes.len()).expect("memory");
        payload.copy_from_slice(bytes);
        self.workers[from].send_with(to.into(), Tag::new(tag), payload, options).expect("accepted")
    }

    pub(crate) fn recv(&mut self, who: usize, tag: impl Into<TagMatch>, room: usize) -> Request {
        self.recv_from(who, Source::Any, tag, room)
    }

    pub(crate) fn recv_from(&mut self, who: usize, source: Source, tag: impl Into<TagMatch>, room: usize) -> Request {
        let buffer = self.workers[who].buffer(room).expect("memory");
        self.workers[who].recv_with(Pattern::new(source, tag), buffer).expect("accepted")
    }

    /// A request of one of two receives these bytes from the other.
    pub(crate) fn expect(&mut self, who: usize, request: Request, bytes: &[u8]) {
        let done = self.wait(who, request).unwrap_or_else(|error| panic!("{error}: {}", self.counters()));
        assert!(!done.is_cancelled);
        assert_eq!(done.len, bytes.len());
        assert!(done.buffer[..done.len] == *bytes, "the bytes differ");
        assert_eq!(done.peer, 1 - who);
    }
}

impl<const DEDICATED: bool> roci_testkit::World for AnyWorld<DEDICATED> {
    const PATIENCE: usize = 4_000_000;

    fn clock(&self) -> &Clock {
        &self.clock
    }

    fn run(&mut self) {
        for worker in &mut self.workers {
            worker.progress();
        }
    }

    fn describe(&self) -> String {
        self.counters()
    }
}

pub(crate) fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + seed * 17 + at / 251) as u8).collect()
}
