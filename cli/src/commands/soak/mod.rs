//! `roci soak`: verified all-to-all traffic between all ranks of a job.
//!
//! For every pair of ranks a seed gives the sizes, tags and contents of its messages, so a receiver knows what
//! must come; of some it does not say from whom ([`any_source`]). Beside the messages each rank writes to, and counts on, the memory of others. The work goes in rounds; after each, rank 0 sends the others whether there is another one. Each rank
//! watches that its memory does not grow.

mod any_source;
mod memory;
mod one_sided;
mod report;
mod workers;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use roci_driver::Buffer;
use roci_launcher::Job;
use roci_msgcore::{
    Config, DedicatedWorker, Messaging, OpError, Rank, Request, Source, Tag, TagMatch, Worker, WorkerEvent,
};

use self::any_source::{OpenLetters, open_match};
use self::memory::MemoryWatch;
use self::one_sided::OneSidedSoak;
use self::report::{SoakReport, SoakTotals, gather, protocols_used};
use super::perf::EngineMode;
use crate::failure::Failure;
use crate::options::SoakOptions;
use crate::resources::resident_bytes;
use crate::{output, troubles};

/// Messages of a pair in one round, if the arena holds them.
const ROUND: usize = 16;
/// Tags below this are drawn by the dice; those from here on are the soak's own.
const TAGS: u64 = 8;
const NEXT: Tag = Tag::new(TAGS);
const TOTALS: Tag = Tag::new(TAGS + 1);
const MEETING: Tag = Tag::new(TAGS + 2);
const PAGE: usize = 4096;
/// This part of the time is the warm-up.
const WARM_UP: u32 = 4;

pub(crate) fn run(options: &SoakOptions) -> Result<ExitCode, Failure> {
    let begun = Instant::now();
    let config = options.device.config()?;
    let jobs = Job::all_from_environment(Duration::from_secs(config.connect_timeout_s))?;
    workers::run_all(jobs, |job, is_alone| run_rank((options, begun), &config, job, is_alone))
}

/// One rank's part; where the process has others beside it, its memory is not this one's alone, and not judged.
fn run_rank(
    (options, begun): (&SoakOptions, Instant),
    config: &Config,
    job: Job,
    is_alone: bool,
) -> Result<ExitCode, Failure> {
    if options.engine == EngineMode::Dedicated {
        return soak((options, begun), config, DedicatedWorker::spawn(config, job)?, is_alone, |_| Ok(()));
    }
    let of_queue = |worker: &Worker| {
        if config.queues > 1 { workers::tell_of_queue(worker, options.json) } else { Ok(()) }
    };
    soak((options, begun), config, Worker::open_job(config, job)?, is_alone, of_queue)
}

/// The same on either kind of worker; `begun` is when the process began, and `of_queue` reports on its queue of the port.
fn soak<M: Messaging>(
    (options, begun): (&SoakOptions, Instant),
    config: &Config,
    mut worker: M,
    is_alone: bool,
    of_queue: impl FnOnce(&M) -> Result<(), Failure>,
) -> Result<ExitCode, Failure> {
    meet_all(&mut worker).map_err(|failure| cause_of(failure, &mut worker))?;
    let start = Instant::now();
    let duration = Duration::from_secs(options.seconds);
    let mut soak = Soak::new(&worker, options, config);
    let mut one_sided = OneSidedSoak::open(&mut worker, options.max_size, config.arena_size)?;
    let mut watch = MemoryWatch::default();
    let mut progress = SoakProgress::new(worker.rank());
    loop {
        let asked = soak.round(&mut worker).map_err(|failure| cause_of(failure, &mut worker))?;
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
    let ours = SoakTotals { growth, resident: resident_bytes()?, ..soak.totals };
    let totals = gather(&mut worker, ours)?;
    let (rank, stats) = (worker.rank(), worker.stats()?);
    let report = SoakReport {
        options,
        totals: &totals,
        started_in: start - begun,
        seconds,
        faults: worker.injected_faults()?,
        used: &protocols_used(&stats),
        troubles: &troubles::of(&worker.engine_stats()?, &stats),
    };
    of_queue(&worker)?;
    worker.close()?;
    let reported = if rank == 0 { report.print() } else { Ok(()) };
    // Wrong bytes are a failure even if the report cannot be printed, and so is memory that grew: each rank checks its own.
    growth.check(rank)?;
    if totals.iter().any(|totals| totals.errors > 0) {
        return Ok(ExitCode::FAILURE);
    }
    reported.map(|()| ExitCode::SUCCESS)
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

/// A receive from any source knows that no peer is left, and not why: the worker's events say that.
fn cause_of(failure: Failure, worker: &mut impl Messaging) -> Failure {
    let events = std::iter::from_fn(|| worker.poll_event());
    let gone =
        events.filter_map(|event| if let WorkerEvent::PeerGone { error, .. } = event { Some(error) } else { None });
    gone.map(Failure::from).next().unwrap_or(failure)
}

/// Each rank has an empty message from every other one, and so a connection.
fn meet_all(worker: &mut impl Messaging) -> Result<(), Failure> {
    let mut requests = Vec::new();
    for peer in 0..worker.size() {
        let buffer = worker.buffer(0)?;
        requests.push(worker.recv(Source::Any, MEETING, buffer)?);
        requests.push(worker.send_bytes(peer.into(), MEETING, &[])?);
    }
    worker.wait_all(requests)?;
    Ok(worker.barrier()?)
}

struct Soak {
    /// Dice of the messages to each rank, and from each rank.
    outgoing: Vec<StdRng>,
    incoming: Vec<StdRng>,
    /// The dice of this rank alone, for what a peer need not know.
    own: StdRng,
    longest: Longest,
    per_round: usize,
    rounds: u64,
    totals: SoakTotals,
}

/// The longest messages: any, and those that are received from any source.
#[derive(Clone, Copy)]
struct Longest {
    named: usize,
    open: usize,
}

/// A message that a pair's random numbers describe.
struct SoakMessage {
    tag: Tag,
    len: usize,
    content: u64,
}

/// A receive that is posted: the message of a named peer, or of the one that sends first.
struct SoakReceive {
    request: Request,
    awaited: SoakExpectation,
}

enum SoakExpectation {
    Named(Rank, SoakMessage),
    Open(TagMatch),
}

impl Soak {
    fn new(worker: &impl Messaging, options: &SoakOptions, config: &Config) -> Self {
        let (rank, size) = (worker.rank(), worker.size());
        let dice = |from: Rank, to: Rank| {
            StdRng::seed_from_u64(options.seed.wrapping_mul(1 << 20) ^ (from as u64) << 10 ^ to as u64)
        };
        let fitting = config.arena_size / 4 / (size * options.max_size.max(1));
        let per_round = fitting.clamp(1, ROUND);
        let open = any_source::LONGEST.min(config.arena_size / any_source::ARENA_PART / (size * per_round));
        Self {
            outgoing: (0..size).map(|peer| dice(rank, peer)).collect(),
            incoming: (0..size).map(|peer| dice(peer, rank)).collect(),
            own: dice(rank, 1 << 9),
            longest: Longest { named: options.max_size, open: options.max_size.min(open) },
            per_round,
            rounds: 0,
            totals: SoakTotals::default(),
        }
    }

    /// Every pair exchanges its messages, itself included; receives and sends are posted in a random order. Returns
    /// how many bytes of buffers were held at once.
    fn round(&mut self, worker: &mut impl Messaging) -> Result<u64, Failure> {
        let mut asked = 0;
        let (mut receives, mut sends) = (Vec::new(), Vec::new());
        let size = worker.size();
        let mut open = OpenLetters::new(size);
        let mut steps: Vec<(bool, Rank)> = Vec::new();
        for peer in 0..size {
            steps.extend((0..self.per_round).flat_map(|_| [(true, peer), (false, peer)]));
        }
        while !steps.is_empty() {
            let (is_send, peer) = steps.swap_remove(self.own.random_range(0..steps.len()));
            if is_send {
                let letter = draw(&mut self.outgoing[peer], self.longest, self.rounds);
                asked += letter.len as u64;
                let mut payload = worker.buffer(letter.len)?;
                write(&mut payload, letter.content);
                sends.push(worker.send(peer.into(), letter.tag, payload)?);
            } else {
                let letter = draw(&mut self.incoming[peer], self.longest, self.rounds);
                let (posted, bytes) = self.post(worker, peer, letter, &mut open)?;
                asked += bytes as u64;
                receives.push(posted);
            }
        }
        for SoakReceive { request, awaited } in receives {
            self.judge(worker.wait(request), awaited, &mut open)?;
        }
        worker.wait_all(sends)?;
        self.rounds += 1;
        Ok(asked)
    }

    /// Posts a receive for a message, and returns how long its buffer is. One from any source may get another peer's.
    fn post(
        &self,
        worker: &mut impl Messaging,
        peer: Rank,
        letter: SoakMessage,
        open: &mut OpenLetters,
    ) -> Result<(SoakReceive, usize), Failure> {
        let Some(tags) = open_match(letter.tag) else {
            let (len, buffer) = (letter.len, worker.buffer(letter.len)?);
            let request = worker.recv(Source::from(peer), TagMatch::Exact(letter.tag), buffer)?;
            return Ok((SoakReceive { request, awaited: SoakExpectation::Named(peer, letter) }, len));
        };
        let mut buffer = worker.buffer(self.longest.open)?;
        // All of it is resident in the first rounds, however short the messages are.
        buffer.iter_mut().step_by(PAGE).for_each(|byte| *byte = 0);
        open.push(peer, letter);
        let request = worker.recv(Source::Any, tags, buffer)?;
        Ok((SoakReceive { request, awaited: SoakExpectation::Open(tags) }, self.longest.open))
    }

    /// Whether the message is the one that must come: from a named peer its next one, and from any source the next one of its sender
    /// for such a receive.
    fn judge(
        &mut self,
        outcome: Result<roci_msgcore::Done, OpError>,
        awaited: SoakExpectation,
        open: &mut OpenLetters,
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
        let expected = match awaited {
            SoakExpectation::Named(peer, letter) => Some(letter).filter(|_| message.peer == peer),
            SoakExpectation::Open(tags) => message.peer.rank().and_then(|peer| open.take(peer, tags)),
        };
        let is_right = expected.is_some_and(|letter| {
            message.len == letter.len
                && message.tag == letter.tag
                && is_written(&message.buffer[..message.len], letter.content)
        });
        self.totals.messages += 1;
        self.totals.bytes += message.len as u64;
        self.totals.errors += u64::from(!is_right);
        Ok(())
    }
}

/// Small messages are as frequent as large ones: the length's logarithm is drawn.
fn draw(dice: &mut StdRng, longest: Longest, round: u64) -> SoakMessage {
    let drawn = dice.random_range(0..TAGS);
    let max_size = if drawn < any_source::OPEN_TAGS { longest.open } else { longest.named };
    let bits = usize::BITS - max_size.leading_zeros();
    let most = (1usize << dice.random_range(0..=bits)) - 1;
    let len = dice.random_range(0..=most.min(max_size));
    SoakMessage { tag: any_source::tag_in_round(drawn, round), len, content: dice.random() }
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
            tellings.push(worker.send_bytes(peer.into(), NEXT, &[u8::from(go_on)])?);
        }
        worker.wait_all(tellings)?;
        return Ok(go_on);
    }
    let buffer = worker.buffer(1)?;
    let next = worker.recv(0, NEXT, buffer)?;
    Ok(worker.wait(next)?.buffer.first() == Some(&1))
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
            let longest = Longest { named: max_size, open: max_size / 2 };
            let drawn: Vec<_> = (0..40_000).map(|_| draw(&mut dice, longest, 0)).collect();
            for (is_open, most) in [(false, max_size), (true, max_size / 2)] {
                let is_meant = |letter: &&SoakMessage| open_match(letter.tag).is_some() == is_open;
                let lens: Vec<_> = drawn.iter().filter(is_meant).map(|letter| letter.len).collect();
                assert!(lens.iter().all(|&len| len <= most));
                assert!(lens.iter().any(|&len| len > most / 2 || most == 0));
            }
        }
    }
}
