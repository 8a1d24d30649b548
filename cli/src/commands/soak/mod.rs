//! `roci soak`: verified all-to-all traffic between all ranks of a job.
//!
//! For every pair of ranks a seed gives the sizes, tags and contents of its messages, so a receiver knows what
//! must come. Beside the messages each rank writes to, and counts on, the memory of others. The work goes in rounds; after each, rank 0 sends the others whether there is another one. Each rank
//! watches that its memory does not grow.

mod memory;
mod one_sided;
mod workers;

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use roci_driver::Buffer;
use roci_launcher::Job;
use roci_msgcore::{
    Config, DedicatedWorker, Messaging, OpError, Rank, Request, Source, Tag, TagMatch, Worker, WorkerStats,
};
use serde_json::json;

use self::memory::{Growth, MemoryWatch};
use self::one_sided::OneSidedSoak;
use super::perf::EngineMode;
use crate::failure::Failure;
use crate::options::SoakOptions;
use crate::output;
use crate::troubles;

/// Messages of a pair in one round, if the arena holds them.
const ROUND: usize = 16;
/// Tags below this are drawn by the dice; those from here on are the soak's own.
const TAGS: u64 = 8;
const NEXT: Tag = Tag::new(TAGS);
const TOTALS: Tag = Tag::new(TAGS + 1);
/// This part of the time is the warm-up.
const WARM_UP: u32 = 4;

pub(crate) fn run(options: &SoakOptions) -> Result<ExitCode, Failure> {
    let config = options.device.config()?;
    let jobs = Job::all_from_environment(Duration::from_secs(config.connect_timeout_s))?;
    workers::run_all(jobs, |job, is_alone| run_rank(options, &config, job, is_alone))
}

/// One rank's part; where the process has others beside it, its memory is not this one's alone, and not judged.
fn run_rank(options: &SoakOptions, config: &Config, job: Job, is_alone: bool) -> Result<ExitCode, Failure> {
    if options.engine == EngineMode::Dedicated {
        return soak(options, config, DedicatedWorker::spawn(config, job)?, is_alone, |_| Ok(()));
    }
    let of_queue = |worker: &Worker| {
        if config.queues > 1 { workers::tell_of_queue(worker, options.json) } else { Ok(()) }
    };
    soak(options, config, Worker::open_job(config, job)?, is_alone, of_queue)
}

/// The same on either kind of worker; `of_queue` reports on its queue of the port.
fn soak<M: Messaging>(
    options: &SoakOptions,
    config: &Config,
    mut worker: M,
    is_alone: bool,
    of_queue: impl FnOnce(&M) -> Result<(), Failure>,
) -> Result<ExitCode, Failure> {
    let start = Instant::now();
    let duration = Duration::from_secs(options.seconds);
    let mut soak = Soak::new(&worker, options, config);
    let mut one_sided = OneSidedSoak::open(&mut worker, options.max_size, config.arena_size)?;
    let mut watch = MemoryWatch::default();
    let mut progress = SoakProgress::new(worker.rank());
    loop {
        let asked = soak.round(&mut worker)?;
        progress.show(start.elapsed(), duration, &soak.totals);
        soak.totals.errors += u64::from(!one_sided.round(&mut worker)?);
        watch.after_round(asked, is_alone && start.elapsed() >= duration / WARM_UP)?;
        if !another_round(&mut worker, start, duration)? {
            break;
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    soak.totals.errors += u64::from(!one_sided.is_complete(&mut worker)?);
    let growth = watch.finish()?;
    let ours = SoakTotals { growth, ..soak.totals };
    let totals = gather(&mut worker, ours)?;
    let faults = worker.injected_faults()?;
    let rank = worker.rank();
    let size = worker.size();
    let stats = worker.stats()?;
    let used = protocols_used(&stats);
    let troubles = troubles::of(&worker.engine_stats()?, &stats);
    of_queue(&worker)?;
    worker.close()?;
    let reported = if rank == 0 { report(options, size, &totals, seconds, faults, (&used, &troubles)) } else { Ok(()) };
    // Wrong bytes are a failure even if the report cannot be printed, and so is memory that grew: each rank checks its own.
    growth.check(rank)?;
    if totals.errors > 0 {
        return Ok(ExitCode::FAILURE);
    }
    reported.map(|()| ExitCode::SUCCESS)
}

/// What a rank has received: how much, how many errors, and how its memory grew.
#[derive(Clone, Copy, Default)]
struct SoakTotals {
    messages: u64,
    bytes: u64,
    errors: u64,
    growth: Growth,
}

/// What rank 0 says on a terminal while it goes on.
struct SoakProgress {
    next: Option<Duration>,
}

impl SoakProgress {
    const INTERVAL: Duration = Duration::from_secs(1);

    fn new(rank: Rank) -> Self {
        let is_seen = rank == 0 && std::io::stderr().is_terminal();
        Self { next: is_seen.then_some(Self::INTERVAL) }
    }

    fn show(&mut self, elapsed: Duration, duration: Duration, totals: &SoakTotals) {
        if self.next.is_none_or(|next| elapsed < next || elapsed >= duration) {
            return;
        }
        self.next = Some(elapsed + Self::INTERVAL);
        let (passed, all) = (elapsed.as_secs(), duration.as_secs());
        let SoakTotals { messages, bytes, errors, .. } = totals;
        let volume = output::bytes(*bytes);
        output::complain(format!(
            "soak: {passed} of {all} s, rank 0 has received {messages} messages, {volume}, {errors} errors"
        ));
    }
}

struct Soak {
    /// Dice of the messages to each rank, and from each rank.
    outgoing: Vec<StdRng>,
    incoming: Vec<StdRng>,
    /// The dice of this rank alone, for what a peer need not know.
    own: StdRng,
    max_size: usize,
    per_round: usize,
    totals: SoakTotals,
}

/// A message that a pair's random numbers describe.
struct SoakMessage {
    tag: Tag,
    len: usize,
    content: u64,
}

impl Soak {
    fn new(worker: &impl Messaging, options: &SoakOptions, config: &Config) -> Self {
        let (rank, size) = (worker.rank(), worker.size());
        let dice = |from: Rank, to: Rank| {
            StdRng::seed_from_u64(options.seed.wrapping_mul(1 << 20) ^ (from as u64) << 10 ^ to as u64)
        };
        let fitting = config.arena_size / 4 / (size * options.max_size.max(1));
        Self {
            outgoing: (0..size).map(|peer| dice(rank, peer)).collect(),
            incoming: (0..size).map(|peer| dice(peer, rank)).collect(),
            own: dice(rank, 1 << 9),
            max_size: options.max_size,
            per_round: fitting.clamp(1, ROUND),
            totals: SoakTotals::default(),
        }
    }

    /// Every pair exchanges its messages, itself included; receives and sends are posted in a random order. Returns
    /// how many bytes of buffers were held at once.
    fn round(&mut self, worker: &mut impl Messaging) -> Result<u64, Failure> {
        let mut asked = 0;
        let mut receives: Vec<(Request, SoakMessage, Rank)> = Vec::new();
        let mut sends = Vec::new();
        let size = worker.size();
        let mut steps: Vec<(bool, Rank)> = Vec::new();
        for peer in 0..size {
            steps.extend((0..self.per_round).flat_map(|_| [(true, peer), (false, peer)]));
        }
        while !steps.is_empty() {
            let (is_send, peer) = steps.swap_remove(self.own.random_range(0..steps.len()));
            if is_send {
                let letter = draw(&mut self.outgoing[peer], self.max_size);
                asked += letter.len as u64;
                let mut payload = worker.buffer(letter.len)?;
                write(&mut payload, letter.content);
                sends.push(worker.send(peer, letter.tag, payload)?);
            } else {
                let letter = draw(&mut self.incoming[peer], self.max_size);
                asked += letter.len as u64;
                let buffer = worker.buffer(letter.len)?;
                // Messages of one sender do not overtake, so a wildcard finds the same one. Not in a round's last
                // place: the next word from rank 0 may already be there.
                let tag = TagMatch::Exact(letter.tag);
                receives.push((worker.recv(Source::from(peer), tag, buffer)?, letter, peer));
            }
        }
        for (receive, letter, peer) in receives {
            self.judge(worker.wait(receive), &letter, peer)?;
        }
        worker.wait_all(sends)?;
        Ok(asked)
    }

    fn judge(
        &mut self,
        outcome: Result<roci_msgcore::Done, OpError>,
        letter: &SoakMessage,
        peer: Rank,
    ) -> Result<(), Failure> {
        let message = match outcome {
            Ok(message) => message,
            Err(error @ OpError::Truncated(_)) => {
                output::complain(format!("soak: {error}"));
                self.totals.errors += 1;
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        let is_right = message.len == letter.len
            && message.peer == peer
            && message.tag == letter.tag
            && is_written(&message.buffer[..message.len], letter.content);
        self.totals.messages += 1;
        self.totals.bytes += message.len as u64;
        self.totals.errors += u64::from(!is_right);
        Ok(())
    }
}

/// Small messages are as frequent as large ones: the length's logarithm is drawn.
fn draw(dice: &mut StdRng, max_size: usize) -> SoakMessage {
    let bits = usize::BITS - max_size.leading_zeros();
    let most = (1usize << dice.random_range(0..=bits)) - 1;
    let len = dice.random_range(0..=most.min(max_size));
    SoakMessage { tag: Tag::new(dice.random_range(0..TAGS)), len, content: dice.random() }
}

/// The word at index `at` of a content: every bit of it depends on both.
#[inline]
fn word(content: u64, at: usize) -> u64 {
    let mixed = (content ^ at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ mixed >> 29
}

fn write(buffer: &mut Buffer, content: u64) {
    let mut chunks = buffer.chunks_exact_mut(8);
    let mut at = 0;
    for chunk in &mut chunks {
        chunk.copy_from_slice(&word(content, at).to_le_bytes());
        at += 1;
    }
    let rest = chunks.into_remainder();
    let len = rest.len();
    rest.copy_from_slice(&word(content, at).to_le_bytes()[..len]);
}

fn is_written(bytes: &[u8], content: u64) -> bool {
    let chunks = bytes.chunks_exact(8);
    let (rest, at) = (chunks.remainder(), bytes.len() / 8);
    let mut words = chunks.enumerate();
    words.all(|(at, chunk)| chunk == word(content, at).to_le_bytes())
        && *rest == word(content, at).to_le_bytes()[..rest.len()]
}

/// Returns whether there is another round. Rank 0 decides by its clock and sends the decision to the others.
fn another_round(worker: &mut impl Messaging, start: Instant, duration: Duration) -> Result<bool, Failure> {
    if worker.rank() == 0 {
        let go_on = start.elapsed() < duration;
        let mut tellings = Vec::new();
        for peer in 1..worker.size() {
            tellings.push(worker.send_bytes(peer, NEXT, &[u8::from(go_on)])?);
        }
        worker.wait_all(tellings)?;
        return Ok(go_on);
    }
    let buffer = worker.buffer(1)?;
    let next = worker.recv(0, NEXT, buffer)?;
    Ok(worker.wait(next)?.buffer.first() == Some(&1))
}

/// Rank 0 adds up what all have received, and finds out whose memory grew most; the others keep their own.
fn gather(worker: &mut impl Messaging, ours: SoakTotals) -> Result<SoakTotals, Failure> {
    if worker.rank() != 0 {
        let Growth { start, end, allowed } = ours.growth;
        let words = [ours.messages, ours.bytes, ours.errors, start, end, allowed].map(u64::to_le_bytes).concat();
        let send = worker.send_bytes(0, TOTALS, &words)?;
        worker.wait(send)?;
        return Ok(ours);
    }
    let mut sum = ours;
    for peer in 1..worker.size() {
        let buffer = worker.buffer(48)?;
        let receive = worker.recv(peer, TOTALS, buffer)?;
        let message = worker.wait(receive)?;
        let mut words = message.buffer.chunks_exact(8).map(|word| word.try_into().map_or(0, u64::from_le_bytes));
        let mut next = || words.next().unwrap_or(0);
        sum.messages += next();
        sum.bytes += next();
        sum.errors += next();
        sum.growth = sum.growth.worse(Growth { start: next(), end: next(), allowed: next() });
    }
    Ok(sum)
}

/// How often this rank has sent by each protocol, and fallen back to another one.
fn protocols_used(stats: &WorkerStats) -> Vec<(&'static str, u64)> {
    let is_shown = |&(name, count): &(&str, u64)| {
        count > 0 && ["tx_", "fallback_", "local_"].iter().any(|kind| name.starts_with(kind))
    };
    stats.iter().filter(is_shown).collect()
}

fn report(
    options: &SoakOptions,
    ranks: usize,
    totals: &SoakTotals,
    seconds: f64,
    faults: u64,
    (used, troubles): (&[(&'static str, u64)], &[String]),
) -> Result<(), Failure> {
    let SoakTotals { messages, bytes, errors, growth } = *totals;
    let seed = options.seed;
    if options.json {
        let known = |bytes: u64| growth.is_known().then_some(bytes);
        let row = json!({
            "test": "soak", "ranks": ranks, "seconds": seconds, "seed": seed, "max_size": options.max_size,
            "messages": messages, "bytes": bytes, "errors": errors, "injected_faults_rank0": faults,
            "rss_start_bytes": known(growth.start), "rss_end_bytes": known(growth.end),
            "rss_allowed_growth_bytes": known(growth.allowed),
            "protocols_rank0": used.iter().copied().collect::<BTreeMap<_, _>>(),
        });
        output::line(row)?;
    } else {
        let memory = if growth.is_known() {
            format!("memory from {} to {}", output::bytes(growth.start), output::bytes(growth.end))
        } else {
            "memory not judged".into()
        };
        let (volume, rate) = (output::bytes(bytes), bytes as f64 / seconds / 1e6);
        output::line(format!(
            "soak: {ranks} ranks, {seconds:.1} s, seed {seed}: {messages} messages, {volume}, {rate:.0} MB/s, {errors} errors, {memory}"
        ))?;
        let used: Vec<_> = used.iter().map(|(name, count)| format!("{name} {count}")).collect();
        output::line(format!("rank 0: {}", used.join(", ")))?;
        troubles.iter().try_for_each(|trouble| output::line(format!("rank 0: {trouble}")))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_content_is_recognised_and_a_flipped_bit_is_not() {
        let arena = roci_driver::Arena::new(1 << 16).expect("memory");
        for len in [0, 1, 7, 8, 9, 4096, 4099] {
            let mut buffer = arena.buffer(len).expect("room");
            write(&mut buffer, 42);
            assert!(is_written(&buffer, 42));
            assert!(len == 0 || !is_written(&buffer, 43));
            for at in [0, len / 2, len.saturating_sub(1)].into_iter().filter(|&at| at < len) {
                buffer[at] ^= 1;
                assert!(!is_written(&buffer, 42), "byte {at} of {len}");
                buffer[at] ^= 1;
            }
        }
    }

    #[test]
    fn drawn_lengths_reach_the_longest_and_no_further() {
        let mut dice = StdRng::seed_from_u64(1);
        for max_size in [0, 1, 1000, 1 << 20] {
            let lens: Vec<_> = (0..20_000).map(|_| draw(&mut dice, max_size).len).collect();
            assert!(lens.iter().all(|&len| len <= max_size));
            assert!(lens.iter().any(|&len| len > max_size / 2 || max_size == 0));
        }
    }
}
