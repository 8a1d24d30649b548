//! Whatever is put comes out in order, once, and complete: random puts and gets against a stream that is known.

use roci_driver::Buffer;
use roci_msgcore::stream::{StreamConfig, StreamPayload, StreamStats};
use roci_testkit::Swarm;

use super::pair::{Dice, Pair, SMALL, combinations, stream};

/// Bytes of each way in a run.
const TOTAL: u64 = 2 << 20;
/// The longest put or get.
const MOST: usize = 300 << 10;
const FAULTS: &str = "loss=0.01,dup=0.01,reorder=0.02,corrupt=0.01,seed=11";

/// One end's part in a run.
struct Side {
    who: usize,
    dice: Dice,
    sent: u64,
    got: u64,
    /// A payload that is being put, and one to be used again, each with its length.
    under_way: Option<(StreamPayload, usize)>,
    kept: Option<(StreamPayload, usize)>,
    /// A buffer was taken by `get_into`.
    is_fetching: bool,
}

impl Side {
    fn new(who: usize, seed: u64) -> Self {
        let dice = Dice::new(seed * 2 + who as u64 + 1);
        Self { who, dice, sent: 0, got: 0, under_way: None, kept: None, is_fetching: false }
    }

    /// Short ones often, long ones sometimes.
    fn len(&mut self) -> usize {
        let most = [1, 16, 2032, 5_000, 40_000, MOST][self.dice.below(6)];
        self.dice.below(most + 1)
    }

    fn put_something(&mut self, pair: &mut Pair) {
        let end = &mut pair.ends[self.who];
        let to = 1 - self.who;
        if let Some((payload, len)) = self.under_way {
            let taken = end.put_payload(to, payload).expect("the peer is there");
            assert!(taken == 0 || taken == len, "a payload is put whole or not at all: {taken} of {len}");
            if taken > 0 {
                self.sent += len as u64;
                self.under_way = None;
                if let Some((old, _)) = self.kept.replace((payload, len)) {
                    end.release(old).expect("it is not in use");
                }
            }
            return;
        }
        if self.sent >= TOTAL {
            return;
        }
        let bytes = stream(self.sent, self.len());
        match (self.dice.below(3), self.kept.take()) {
            (0, None) if !bytes.is_empty() => {
                let mut buffer = end.buffer(bytes.len());
                buffer.copy_from_slice(&bytes);
                self.under_way = Some((end.adopt(buffer), bytes.len()));
            }
            (0, Some((payload, len))) => {
                end.write_payload(payload, 0, &stream(self.sent, len)).expect("it is not in use");
                self.under_way = Some((payload, len));
            }
            (_, kept) => {
                self.kept = kept;
                self.sent += end.put(to, &bytes).expect("the peer is there") as u64;
            }
        }
    }

    fn get_something(&mut self, pair: &mut Pair) {
        let end = &mut pair.ends[self.who];
        let from = 1 - self.who;
        let len = self.len();
        if !self.is_fetching && self.dice.below(2) == 0 {
            let mut bytes = vec![0; len];
            let got = end.get(from, &mut bytes).expect("the peer is there");
            self.check(&bytes[..got]);
            return;
        }
        let mut slot: Option<Buffer> = (!self.is_fetching).then(|| end.buffer(len));
        let got = end.get_into(from, &mut slot).expect("the peer is there");
        self.is_fetching = slot.is_none();
        if let Some(buffer) = slot {
            self.check(&buffer[..got]);
        }
    }

    fn check(&mut self, bytes: &[u8]) {
        assert!(bytes == stream(self.got, bytes.len()), "other bytes than were put, from {} on", self.got);
        self.got += bytes.len() as u64;
    }
}

fn run(config: StreamConfig, knobs: &[(&str, &str)], seed: u64) -> Pair {
    let mut pair = Pair::with(config, knobs);
    let mut sides = [Side::new(0, seed), Side::new(1, seed)];
    let mut dice = Dice::new(seed);
    pair.settle(|pair| {
        for side in &mut sides {
            if dice.below(3) > 0 {
                side.put_something(pair);
            }
            if dice.below(3) > 0 {
                side.get_something(pair);
            }
        }
        let is_sent = sides.iter().all(|side| side.sent >= TOTAL && side.under_way.is_none());
        is_sent && sides[0].sent == sides[1].got && sides[1].sent == sides[0].got
    });
    for end in &pair.ends {
        let stats = end.engine_stats();
        assert_eq!(stats.queue_pairs.out_of_buffer, 0, "a receive is always posted: {config:?}");
        assert_eq!(end.stats().tx_bytes, sides[end.0.rank()].sent);
        assert_eq!(end.stats().rx_bytes, sides[end.0.rank()].got);
    }
    pair
}

#[test]
fn every_combination_of_switches_is_a_fifo_of_bytes() {
    for (seed, config) in combinations().enumerate() {
        (0..3).for_each(|round| drop(run(config, &[], round * 100 + seed as u64)));
    }
}

#[test]
fn faults_change_nothing_with_selective_repeat() {
    for (seed, config) in combinations().enumerate() {
        let pair = run(config, &[("faults", FAULTS), ("ack_timeout_us", "100")], 1000 + seed as u64);
        assert!(pair.ends[0].engine_stats().queue_pairs.retransmitted_packets > 0);
    }
}

#[test]
fn faults_change_nothing_with_go_back_n() {
    for (seed, config) in combinations().enumerate() {
        let knobs = [("faults", FAULTS), ("ack_timeout_us", "100"), ("dialect", "verbs")];
        let pair = run(config, &knobs, 2000 + seed as u64);
        assert!(pair.ends[1].engine_stats().queue_pairs.retransmitted_packets > 0);
    }
}

#[test]
fn every_run_replays() {
    let configs: Vec<_> = combinations().collect();
    Swarm::new("roci-msgcore", "stream", 0..32).run(|seed| {
        let faults = format!("loss=0.01,dup=0.01,reorder=0.02,corrupt=0.01,seed={seed}");
        let knobs = [("faults", &faults[..]), ("ack_timeout_us", "100")];
        let pair = run(configs[seed as usize % configs.len()], &knobs, seed);
        (pair.net.trace(), pair.clock.now())
    });
}

/// What the runs above rest on: they do take every way there is.
#[test]
fn random_calls_take_every_way_through_the_pipe() {
    let runs = (3000..3008).map(|seed| run(SMALL, &[], seed));
    let stats: Vec<_> = runs.flat_map(|pair| pair.ends.map(|end| end.stats())).collect();
    let total = |count: fn(&StreamStats) -> u64| stats.iter().map(count).sum::<u64>();
    let ways: [fn(&StreamStats) -> u64; 9] = [
        |stats| stats.tx_data,
        |stats| stats.tx_tails,
        |stats| stats.tx_tails_piggybacked,
        |stats| stats.tx_announcements,
        |stats| stats.ring_stalls,
        |stats| stats.rx_direct,
        |stats| stats.rx_staged,
        |stats| stats.cache_hits,
        |stats| stats.cache_misses,
    ];
    assert!(ways.into_iter().all(|way| total(way) > 0), "{stats:?}");
}
