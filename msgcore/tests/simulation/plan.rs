//! What a seed makes of the world: how many workers, how each is configured, and which lengths messages have.

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use roci_driver::link::sim::NetConfig;
use roci_msgcore::config::Origin;
use roci_msgcore::receive_queues::ReceiveQueues;
use roci_msgcore::{Config, Rank};
use roci_protocol::msg;

/// Memory that the receives of all peers of a worker may take.
const RECEIVE_BYTES: usize = 12 << 20;
/// Lengths around which something changes.
const EDGES: [usize; 8] = [0, 216, 984, 4096, 8152, 16_384, 65_536, 131_072];

/// What is offered is registered in the smallest buckets, and little of it.
const FIREHOSES: [(&str, &str); 3] = [("firehose_bucket", "4KiB"), ("firehose_m", "1"), ("firehose_maxvictim_m", "1")];
/// What finds a rank that has died, also before it was connected, and outlasts a network that is cut in two.
const MORTAL: [(&str, &str); 4] =
    [("keepalive_s", "1"), ("retry_limit", "100"), ("ack_timeout_max_us", "5000"), ("connect_timeout_s", "4")];

/// How ranks open their memory to each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Opening {
    Exposed,
    /// Under keys that they have chosen.
    Requested,
    Offered,
}

pub(crate) struct Plan {
    pub(crate) configs: Vec<Config>,
    /// Things that are done before the world is drained.
    pub(crate) actions: usize,
    pub(crate) net: NetConfig,
    /// How often an action comes with a network that is cut in two.
    pub(crate) partitions: f64,
    /// Applications receive all messages under one tag after the other, and send floods.
    pub(crate) is_selective: bool,
    /// Applications put and get bytes beside their messages.
    pub(crate) is_streaming: bool,
    /// Applications operate on each other's memory, and send active messages.
    pub(crate) is_one_sided: bool,
    /// How they open the memory for that.
    pub(crate) opening: Opening,
    /// A rank that dies without a word, and after which action it does.
    pub(crate) death: Option<(Rank, usize)>,
    /// Which workers are dedicated ones.
    pub(crate) are_dedicated: Vec<bool>,
    /// They are no ranks of a job, and know each other by address.
    pub(crate) are_strangers: bool,
    /// No receive may ever find its queue empty.
    pub(crate) is_per_peer: bool,
    edges: Vec<usize>,
    longest: usize,
}

impl Plan {
    pub(crate) fn new(seed: u64) -> Self {
        let mut dice = StdRng::seed_from_u64(seed);
        let workers = if dice.random_ratio(1, 8) { dice.random_range(7..=16) } else { dice.random_range(2..=6) };
        let shared = Common::new(&mut dice, workers);
        let mut configs: Vec<Config> = (0..workers).map(|rank| shared.config(&mut dice, seed, rank)).collect();
        let queues = configs[0].receive_queues();
        let is_per_peer = queues.bytes_shared() == 0;
        let room = queues.largest() - msg::LEN;
        let edges = EDGES.into_iter().chain(queues.iter().map(|queue| queue.size - msg::LEN));
        let edges = edges.chain([2 * room, 4 * room, shared.eager.unwrap_or(room)]).collect();
        let longest = if dice.random_ratio(1, 12) { 8 << 20 } else { 400_000 };
        let actions = dice.random_range(100..600);
        let net = net(&mut dice, seed);
        let partitions = if dice.random_ratio(1, 4) { 0.01 } else { 0.0 };
        let is_selective = dice.random_ratio(1, 3);
        let is_deadly = workers > 2 && dice.random_ratio(1, 4);
        let death = is_deadly.then(|| (dice.random_range(0..workers), dice.random_range(0..actions)));
        if is_deadly {
            for config in &mut configs {
                set(config, &MORTAL);
            }
        }
        // No more than six: each pair has rings of its own.
        let is_streaming = workers <= 6 && dice.random_ratio(1, 3);
        let is_one_sided = workers <= 6 && dice.random_ratio(1, 3);
        let openings = [Opening::Exposed, Opening::Requested, Opening::Offered];
        let opening = *openings.choose(&mut dice).expect("some");
        if is_one_sided && opening == Opening::Offered {
            for config in &mut configs {
                set(config, &FIREHOSES);
            }
        }
        let are_dedicated = (0..workers).map(|_| dice.random_ratio(1, 3)).collect();
        let are_strangers = dice.random_ratio(1, 4);
        if are_strangers {
            for config in &mut configs {
                set(config, &[("connect_method", "rdma_cm"), ("peers", &workers.to_string())]);
            }
        }
        Self {
            configs,
            actions,
            net,
            partitions,
            is_selective,
            is_streaming,
            is_one_sided,
            opening,
            death,
            are_dedicated,
            are_strangers,
            is_per_peer,
            edges,
            longest,
        }
    }

    /// The length of a message: mostly short, sometimes where something changes, seldom very long.
    pub(crate) fn len(&self, dice: &mut StdRng, most: usize) -> usize {
        let len = match dice.random_range(0..100) {
            0..70 => dice.random_range(0..200),
            70..86 => (self.edges.choose(dice).expect("some") + dice.random_range(0..3)).saturating_sub(1),
            86..99 => dice.random_range(0..60_000),
            _ => dice.random_range(0..self.longest),
        };
        len.min(most)
    }
}

/// What all workers have in common: a sender chooses the queue.
struct Common {
    settings: Vec<(&'static str, String)>,
    eager: Option<usize>,
}

impl Common {
    fn new(dice: &mut StdRng, workers: usize) -> Self {
        let mut settings = vec![
            ("arena_size", if workers > 6 { "64MiB".to_owned() } else { "128MiB".to_owned() }),
            ("connect", choose(dice, &["client-server", "peer-to-peer"])),
            ("connect_method", choose(dice, &["oob", "oob", "rdma_cm"])),
            ("dialect", choose(dice, &["verbs", "rocinante"])),
            ("wireup", choose(dice, &["static", "lazy"])),
            ("unexpected_limit", choose(dice, &["1MiB", "256MiB"])),
        ];
        if dice.random_ratio(1, 3) {
            settings.push(("credits", dice.random_range(2..64).to_string()));
            settings.push(("vbuf_size", choose(dice, &["256", "1KiB", "4KiB", "8KiB"])));
        } else {
            settings.push(("receive_queues", queues(dice, workers)));
        }
        let eager = dice.random_ratio(1, 2).then(|| *[0, 100, 3_000, 20_000, 100_000].choose(dice).expect("some"));
        settings.extend(eager.map(|bytes: usize| ("eager_threshold", bytes.to_string())));
        Self { settings, eager }
    }

    /// The configuration of one worker, which differs where workers may.
    fn config(&self, dice: &mut StdRng, seed: u64, rank: usize) -> Config {
        let mut settings = self.settings.clone();
        settings.push(("rndv_protocol", choose(dice, &["auto", "r3", "rget", "rput", "pipeline"])));
        settings.push(("ndreg_entries", choose(dice, &["0", "1", "3", "8000", "8000"])));
        settings.push(("rdma", choose(dice, &["on", "on", "on", "off"])));
        settings.push(("rdma_gets", choose(dice, &["on", "on", "off"])));
        settings.push(("pipeline_chunk", choose(dice, &["4KiB", "16KiB", "64KiB"])));
        settings.push(("pipeline_depth", dice.random_range(1..6).to_string()));
        settings.push(("pipeline_threshold", choose(dice, &["64KiB", "128KiB", "2GiB"])));
        settings.push(("r3_threshold", choose(dice, &["0", "10KiB", "100KiB"])));
        settings.push(("credit_preserve", dice.random_range(1..17).to_string()));
        settings.push(("credit_notify_threshold", dice.random_range(1..17).to_string()));
        settings.push(("vbuf_pool", choose(dice, &["1", "16", "128"])));
        settings.push(("vbuf_secondary_pool", choose(dice, &["1", "32"])));
        settings.push(("vbuf_max", choose(dice, &["16", "24", "64", "4096", "4096"])));
        settings.push(("ack_timeout_us", choose(dice, &["50", "200", "2000"])));
        settings.push(("ack_timeout_max_us", choose(dice, &["5000", "50000"])));
        settings.push(("retry_limit", "1000".into()));
        settings.push(("window", choose(dice, &["4", "32", "128"])));
        settings.push(("faults", faults(dice, seed + rank as u64)));
        let mut config = Config::default();
        set(&mut config, &settings);
        config
    }
}

fn set(config: &mut Config, settings: &[(&str, impl AsRef<str>)]) {
    for (name, value) in settings {
        config.set(name, value.as_ref(), Origin::Code).unwrap_or_else(|error| panic!("{error}"));
    }
}

/// A switch nearby, a longer way, or a slow port with a short queue.
fn net(dice: &mut StdRng, seed: u64) -> NetConfig {
    let near = NetConfig { seed, ..NetConfig::default() };
    match dice.random_range(0..4) {
        0 => NetConfig { latency_ns: dice.random_range(500..50_000), ..near },
        1 => NetConfig { latency_ns: dice.random_range(0..5_000), jitter_ns: dice.random_range(0..20_000), ..near },
        2 => NetConfig {
            rate: Some(dice.random_range(1..25) * 1_000_000_000),
            queue: dice.random_range(32..256),
            ..near
        },
        _ => near,
    }
}

fn choose(dice: &mut StdRng, of: &[&str]) -> String {
    (*of.choose(dice).expect("some")).to_owned()
}

/// Up to three receive queues that fit together and into memory.
fn queues(dice: &mut StdRng, workers: usize) -> String {
    loop {
        let count = dice.random_range(1..=3);
        let mut sizes: Vec<usize> = (0..count).map(|_| 256 << dice.random_range(0..8)).collect();
        sizes.sort_unstable();
        let text: Vec<String> = sizes.iter().map(|size| queue(dice, *size)).collect();
        // Dice make entries that are refused too.
        let Ok(queues) = text.join(":").parse::<ReceiveQueues>() else { continue };
        if queues.bytes_per_connection() * workers + queues.bytes_shared() < RECEIVE_BYTES {
            return queues.to_string();
        }
    }
}

fn queue(dice: &mut StdRng, size: usize) -> String {
    let num = dice.random_range(2..64);
    if dice.random_ratio(1, 3) {
        let (low, max_sends, init) =
            (dice.random_range(0..num), dice.random_range(1..=num), dice.random_range(1..=num));
        return format!("S,{size},{num},{low},{max_sends},{init},{}", dice.random_range(0..=init));
    }
    let low = dice.random_range(0..num);
    match dice.random_range(0..3) {
        0 => format!("P,{size},{num}"),
        1 => format!("P,{size},{num},{low}"),
        _ => format!("P,{size},{num},{low},{},{}", dice.random_range(1..=num), dice.random_range(1..9)),
    }
}

/// Each fault is there or not; seldom there is much of it.
fn faults(dice: &mut StdRng, seed: u64) -> String {
    let mut text = format!("seed={seed}");
    for name in ["loss", "dup", "reorder", "corrupt"] {
        if dice.random_ratio(1, 2) {
            let most = if dice.random_ratio(1, 16) { 0.15 } else { 0.05 };
            let probability = dice.random_range(0.0..most);
            text = format!("{text},{name}={probability:.4}");
        }
    }
    text
}
