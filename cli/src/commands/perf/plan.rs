//! What is measured, in which order; and that both sides measure the same.

use std::time::Duration;

use roci_launcher::Job;
use roci_msgcore::Config;

use super::{EngineMode, PerfTest, UpToStep, atomic, connections};
use crate::failure::Failure;
use crate::options::PerfOptions;

/// A stream has at most so many messages under way; a queue pair holds as many receives.
pub(crate) const MOST_IN_FLIGHT: usize = 64;

/// Queue pairs of a stream, of which each writes to a slot of its own.
const MOST_QUEUE_PAIRS: usize = 64;

/// One measurement.
#[derive(Clone, Copy)]
pub(super) struct PerfPlan {
    pub(super) test: PerfTest,
    pub(super) size: usize,
    pub(super) iters: u64,
    /// How long it lasts, where that was asked for: `iters` follow from it.
    pub(super) duration: Option<Duration>,
    pub(super) verify: bool,
    /// Whether bare frames' payload is written and read; everybody else's always is.
    pub(super) touch: bool,
    /// The step of byte streams, where those are measured.
    pub(super) stream: Option<UpToStep>,
    /// Where the worker lives, where there is one.
    pub(super) engine: Option<EngineMode>,
    /// Queue pairs that take turns, where they are counted.
    pub(super) connections: Option<usize>,
    /// Messages in flight, where that was asked for.
    pub(super) depth: Option<usize>,
    /// Whether both sides send at once.
    pub(super) is_bidirectional: bool,
    /// Whether messages are unreliable datagrams.
    pub(super) is_of_datagrams: bool,
}

impl PerfPlan {
    /// A measurement of `test` with what follows from its size, every payload verified.
    pub(super) fn new(test: PerfTest, size: usize) -> Self {
        Self {
            test,
            size,
            iters: test.default_iters(size),
            duration: None,
            verify: true,
            touch: false,
            stream: None,
            engine: None,
            connections: None,
            depth: None,
            is_bidirectional: false,
            is_of_datagrams: false,
        }
    }

    /// Messages in flight: enough to hide the way, few enough to stay in the cache.
    pub(super) fn depth(&self) -> usize {
        self.depth.unwrap_or_else(|| ((4 << 20) / self.size).clamp(2, MOST_IN_FLIGHT))
    }

    /// Messages before those that count.
    pub(super) const fn warm_up(&self) -> u64 {
        self.iters / 10
    }

    /// All that both sides must agree on, in words.
    fn words(&self) -> String {
        let &Self { test, size, iters, verify, touch, .. } = self;
        let step = self.stream.map_or_else(String::new, UpToStep::name);
        let count = self.connections.map_or_else(String::new, |count| format!("c{count}"));
        let depth = self.depth.map_or_else(String::new, |depth| format!("d{depth}"));
        let modes = format!("{:?} {} {}", self.duration, self.is_bidirectional, self.is_of_datagrams);
        format!("{} {size} {iters} {verify} {touch} {step} {count} {depth} {modes};", test.name())
    }
}

/// The tests that were asked for.
pub(super) fn tests(options: &PerfOptions) -> impl Iterator<Item = PerfTest> {
    options.tests.iter().flat_map(|tests| tests.0.iter().copied())
}

/// Every measurement that was asked for.
pub(super) fn plans(options: &PerfOptions) -> Vec<PerfPlan> {
    tests(options).flat_map(|test| plans_of(test, options)).collect()
}

fn plans_of(test: PerfTest, options: &PerfOptions) -> impl Iterator<Item = PerfPlan> {
    let mut sizes = if options.size.is_empty() { test.default_sizes() } else { options.size.clone() };
    if matches!(test, PerfTest::AtomicLat | PerfTest::FaddLat) {
        sizes = vec![atomic::SIZE];
    }
    let counts = |of: &[usize]| if of.is_empty() { vec![None] } else { of.iter().copied().map(Some).collect() };
    let connections = if test.takes_connections() { counts(&options.modes.connections) } else { vec![None] };
    let depths = if test == PerfTest::SendRate { vec![None] } else { counts(&options.depth) };
    let mut plans = Vec::new();
    for size in sizes {
        for &connections in &connections {
            let of_depth = |&depth: &Option<usize>| plan_of(test, size, options, (connections, depth));
            plans.extend(depths.iter().map(of_depth));
        }
    }
    plans.into_iter()
}

fn plan_of(
    test: PerfTest,
    size: usize,
    options: &PerfOptions,
    (connections, depth): (Option<usize>, Option<usize>),
) -> PerfPlan {
    let plan = PerfPlan::new(test, size);
    PerfPlan {
        iters: options.iters.unwrap_or(plan.iters),
        duration: options.modes.duration.map(Duration::from_secs),
        verify: !options.no_verify,
        touch: options.touch && test.is_raw(),
        stream: test.is_of_streams().then_some(options.stream),
        engine: test.is_above_verbs().then_some(options.engine),
        connections: connections.or((test == PerfTest::SendRate).then_some(1)),
        depth,
        is_bidirectional: options.modes.bidirectional,
        is_of_datagrams: options.modes.ud,
        ..plan
    }
}

/// Refuses what no test of those asked for can do.
pub(super) fn check(options: &PerfOptions) -> Result<(), Failure> {
    let without = |is_able: fn(PerfTest) -> bool| tests(options).any(|test| !is_able(test));
    let refuse = |words: &str| Err(Failure::new(words.to_owned()));
    if options.engine == EngineMode::Dedicated && without(PerfTest::is_above_verbs) {
        let tests = "tests of tags, streams, puts, gets, fadd_lat and active messages";
        return Err(Failure::new(format!("a dedicated engine opens the ports for itself: measure {tests} alone")));
    }
    if options.memory == super::PayloadMemory::User && without(PerfTest::is_of_verbs) {
        return refuse("--memory user is for send_lat, send_bw, write_lat, write_bw, read_lat and read_bw");
    }
    let is_too_short = |size: &usize| *size < connections::NUMBER;
    if tests(options).any(|test| test == PerfTest::SendRate) && options.size.iter().any(is_too_short) {
        let least = connections::NUMBER;
        return Err(Failure::new(format!("send_rate numbers its messages: a size of at least {least}")));
    }
    if !options.depth.is_empty() && without(PerfTest::is_stream) {
        return refuse("--depth is for send_bw, write_bw, read_bw, tag_bw, put_bw and get_bw");
    }
    if !options.modes.connections.is_empty() && !tests(options).any(PerfTest::takes_connections) {
        return refuse("--qps is for send_bw, write_bw, read_bw and send_rate");
    }
    let is_limited = |test: PerfTest| test.takes_connections() && test != PerfTest::SendRate;
    if options.modes.connections.iter().any(|&count| count > MOST_QUEUE_PAIRS) && tests(options).any(is_limited) {
        return Err(Failure::new(format!("--qps goes up to {MOST_QUEUE_PAIRS}, but in send_rate")));
    }
    if options.modes.bidirectional && without(PerfTest::has_two_directions) {
        return refuse("--bidirectional is for send_bw, write_bw, read_bw and tag_bw");
    }
    if options.modes.ud && without(|test| matches!(test, PerfTest::SendLat | PerfTest::SendBw)) {
        return refuse("--ud is for send_lat and send_bw");
    }
    Ok(())
}

/// Both sides must measure the same, and be the same release, or each would wait for the other. Returns whether packets will carry an ICRC, as
/// both also tell each other when they connect.
pub(super) fn agree(job: &mut Job, config: &Config, plans: &[PerfPlan]) -> Result<bool, Failure> {
    let plans: String = plans.iter().map(PerfPlan::words).collect();
    let ours = format!("{plans}{}{}", config.receive_queues(), env!("CARGO_PKG_VERSION"));
    let ours = format!("{:016x}", ours.bytes().fold(0xcbf2_9ce4_8422_2325, fnv));
    job.put(&format!("perf/{}", job.rank()), &format!("{ours} {}", config.icrc))?;
    let theirs = job.get(&format!("perf/{}", 1 - job.rank()))?;
    let (theirs, peer_icrc) = theirs.split_once(' ').unwrap_or((&theirs, "true"));
    if ours == theirs {
        Ok(config.icrc || peer_icrc != "false")
    } else {
        let what = "tests, sizes, counts, durations, queue pairs, depths, modes, receive queues or release";
        Err(Failure::new(format!("the peer was given other {what}")))
    }
}

const fn fnv(hash: u64, byte: u8) -> u64 {
    (hash ^ byte as u64).wrapping_mul(0x0100_0000_01b3)
}
