//! One-sided operations and active messages between all ranks, beside the messages: each rank has areas of its own in the memory of
//! every other, which it writes and reads as dice have it, and all count on the same numbers.

use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use rand::{Rng, RngCore};
use roci_msgcore::active::{ActiveMessage, HandlerContext, HandlerId};
use roci_msgcore::one_sided::{AtomicOp, AtomicWidth, RemoteAccess, RemoteAddress, Segment, SegmentKey, Signal};
use roci_msgcore::{CallError, Done, OpError, Rank, Request, UserMemory};

use crate::common::{TestWorker, World};
use crate::names::Names;
use crate::oracle::{Violation, ensure, mix};
use crate::plan::Opening;
use crate::programme::is_of_the_dead;
use crate::run::Run;

/// Areas of a rank in the memory of another, and bytes of each.
const AREAS: usize = 3;
const AREA: usize = 12_000;
/// Where the numbers are that all count on: 8 bytes, 4 bytes, and one that signals count.
const LONG: usize = 0;
const SHORT: usize = 12;
const SIGNALS: usize = 16;
const FIRST_AREA: usize = 64;
/// What memory that is offered begins with.
const PAGE: usize = 4096;
/// The key that all ranks choose.
const REQUESTED: u64 = u64::MAX / 3;
/// Operations of one rank that have not ended.
const OPERATIONS: usize = 40;
const COUNT: &str = "count";
const ECHO: &str = "echo";

/// Whose memory it is in, whose it is, and which.
type AreaName = (Rank, Rank, usize);
/// Active messages by sender and receiver.
type Counts = BTreeMap<(Rank, Rank), u64>;

struct Area {
    content: Vec<u8>,
    /// An operation on it is under way: in which order two would be done is not said.
    is_busy: bool,
}

enum What {
    Put { area: AreaName, offset: usize, bytes: Vec<u8>, signals: u64 },
    Get { area: AreaName, offset: usize },
    Add { owner: Rank, width: AtomicWidth, by: u64 },
    Ask { sum: u64, payload: Vec<u8> },
}

struct PendingOperation {
    who: Rank,
    request: Request,
    what: What,
}

/// The memory of a rank that all operate on.
enum OwnMemory {
    Exposed(Segment),
    Offered(&'static [AtomicU64]),
}

impl OwnMemory {
    /// Opens so many bytes to peers.
    fn open(worker: &mut TestWorker, len: usize, opening: Opening) -> (Self, SegmentKey) {
        if opening == Opening::Offered {
            let room = (0..len.div_ceil(8) + PAGE / 8).map(|_| AtomicU64::new(0)).collect::<Vec<_>>().leak();
            // Where memory lies in its page decides where its buckets end: it is the same in each run.
            let ahead = room.as_ptr().align_offset(PAGE);
            let words: &'static [AtomicU64] = &room[ahead..ahead + len.div_ceil(8)];
            // SAFETY: they are mapped for ever, and all references to them are to atomics.
            let memory = unsafe { UserMemory::target(NonNull::from(words).cast(), len) };
            return (Self::Offered(words), worker.offer(memory).expect("keys are left").key());
        }
        let mut memory = worker.buffer(len).expect("memory");
        memory.fill(0);
        if opening == Opening::Requested {
            let segment = worker.expose_as(REQUESTED, 0, memory, RemoteAccess::ReadWrite).expect("a key");
            return (Self::Exposed(segment), SegmentKey::requested(REQUESTED));
        }
        let segment = worker.expose(memory).expect("a key");
        (Self::Exposed(segment), segment.key())
    }

    fn content(&self, worker: &mut TestWorker, len: usize) -> Result<Vec<u8>, CallError> {
        let mut bytes = vec![0; len];
        match self {
            Self::Exposed(segment) => worker.read_segment(*segment, 0, &mut bytes)?,
            Self::Offered(words) => {
                bytes = words.iter().flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes()).take(len).collect();
            }
        }
        Ok(bytes)
    }
}

/// All of a world.
#[derive(Default)]
pub(crate) struct OneSidedTraffic {
    memory: Vec<OwnMemory>,
    keys: Vec<SegmentKey>,
    areas: BTreeMap<AreaName, Area>,
    pending: Vec<PendingOperation>,
    /// What was added to each rank's numbers.
    added: BTreeMap<Rank, [u64; 3]>,
    sent: Counts,
    ran: Arc<Mutex<(Counts, Vec<String>)>>,
    ended: u64,
}

impl OneSidedTraffic {
    /// Exposes the memory of all ranks, or offers it, and registers their handlers.
    pub(crate) fn open(world: &mut World, opening: Opening, names: &Names) -> Self {
        let (size, mut traffic) = (world.workers.len(), Self::default());
        for (owner, worker) in world.workers.iter_mut().enumerate() {
            let (memory, key) = OwnMemory::open(worker, memory_len(size), opening);
            traffic.memory.push(memory);
            traffic.keys.push(key);
            traffic.added.insert(owner, [0; 3]);
            for (origin, number) in (0..size).flat_map(|origin| (0..AREAS).map(move |number| (origin, number))) {
                traffic.areas.insert((owner, origin, number), Area { content: vec![0; AREA], is_busy: false });
            }
            traffic.register(owner, worker, names.clone());
        }
        traffic
    }

    fn register(&self, owner: Rank, worker: &mut TestWorker, names: Names) {
        let ran = self.ran.clone();
        let count = move |_: &mut HandlerContext<'_>, message: ActiveMessage<'_>| {
            let (counts, wrong) = &mut *ran.lock().expect("no panic");
            *counts.entry((names.whom(owner, message.source), owner)).or_default() += 1;
            if message.payload != bytes(message.arguments[0], message.payload.len()) {
                wrong.push(format!("rank {owner} got other bytes from {}", message.source));
            }
        };
        worker.register_handler(COUNT, Box::new(count)).expect("a name");
        let echo = |context: &mut HandlerContext<'_>, message: ActiveMessage<'_>| {
            let backwards: Vec<u8> = message.payload.iter().rev().copied().collect();
            context.reply(&[message.arguments.iter().sum()], &backwards).expect("a request");
        };
        worker.register_handler(ECHO, Box::new(echo)).expect("a name");
    }

    fn at(&self, (owner, origin, number): AreaName, offset: usize) -> RemoteAddress {
        self.keys[owner].at(FIRST_AREA + (origin * AREAS + number) * AREA + offset)
    }

    /// Whether nothing is under way between ranks that live.
    pub(crate) fn is_idle(&self, is_alive: impl Fn(Rank) -> bool) -> bool {
        let counts = &self.ran.lock().expect("no panic").0;
        let has_run = |(&(from, to), &sent): (&(Rank, Rank), &u64)| {
            !(is_alive(from) && is_alive(to)) || counts.get(&(from, to)) == Some(&sent)
        };
        self.pending.iter().all(|pending| !is_alive(pending.who)) && self.sent.iter().all(has_run)
    }

    /// How many operations have ended.
    pub(crate) fn total(&self) -> u64 {
        self.ended
    }
}

/// Bytes of a rank's memory for all ranks.
fn memory_len(ranks: usize) -> usize {
    FIRST_AREA + ranks * AREAS * AREA
}

fn bytes(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|at| mix(seed ^ at) as u8).collect()
}

/// Does something.
pub(crate) fn act(run: &mut Run, who: Rank) -> Result<(), Violation> {
    if run.one_sided.pending.iter().filter(|pending| pending.who == who).count() > OPERATIONS {
        return Ok(());
    }
    let to = run.dice.random_range(0..run.world.workers.len());
    let area = (to, who, run.dice.random_range(0..AREAS));
    let offset = run.dice.random_range(0..AREA);
    let len = run.dice.random_range(0..=AREA - offset);
    let len = if run.dice.random_ratio(1, 2) { len.min(100) } else { len };
    let begun = match run.dice.random_range(0..10) {
        0..3 => put(run, area, offset, len),
        3 => put_and_look(run, area, offset, len),
        4..6 => get(run, area, offset, len),
        6..8 => add(run, who, to),
        8 => send(run, who, to, len),
        _ => ask(run, who, to, len),
    };
    match begun {
        Ok(()) | Err(CallError::TooMany(_)) => Ok(()),
        Err(CallError::Peer(error)) if is_of_the_dead(run, who, &error) => Ok(()),
        Err(error) => Err(format!("rank {who} may not: {error}").into()),
    }
}

fn begin(run: &mut Run, who: Rank, request: Request, what: What) {
    run.one_sided.pending.push(PendingOperation { who, request, what });
}

/// Takes an area for an operation; `false` where it has one.
fn take(run: &mut Run, area: AreaName) -> bool {
    run.one_sided.areas.get_mut(&area).is_some_and(|area| !std::mem::replace(&mut area.is_busy, true))
}

/// An operation on an area has ended, or has not begun.
fn leave(run: &mut Run, area: AreaName) -> &mut Vec<u8> {
    let area = run.one_sided.areas.get_mut(&area).expect("there are all");
    area.is_busy = false;
    &mut area.content
}

fn put(run: &mut Run, area: AreaName, offset: usize, len: usize) -> Result<(), CallError> {
    let (to, who, _) = area;
    if !take(run, area) {
        return Ok(());
    }
    let (bytes, at) = (bytes(run.dice.next_u64(), len), run.one_sided.at(area, offset));
    let signals = u64::from(run.dice.random_ratio(1, 3));
    let signal = (signals > 0).then(|| (Signal::Add(1), run.one_sided.keys[to].at(SIGNALS)));
    let (name, worker) = (run.names.of(who, to), &mut run.world.workers[who]);
    let begun = worker.buffer(len).map_err(CallError::from).and_then(|mut buffer| {
        buffer.copy_from_slice(&bytes);
        Ok(worker.put_with(name, buffer, at, signal)?)
    });
    match begun {
        Ok(request) => begin(run, who, request, What::Put { area, offset, bytes, signals }),
        Err(why) => {
            leave(run, area);
            return Err(why);
        }
    }
    Ok(())
}

/// A put that is not waited for, and a get that a fence keeps behind it.
fn put_and_look(run: &mut Run, area: AreaName, offset: usize, len: usize) -> Result<(), CallError> {
    let (to, who, _) = area;
    if run.one_sided.areas[&area].is_busy {
        return Ok(());
    }
    let (bytes, at) = (bytes(run.dice.next_u64(), len), run.one_sided.at(area, offset));
    let name = run.names.of(who, to);
    run.world.workers[who].put_copy(name, &bytes, at)?;
    run.one_sided.areas.get_mut(&area).expect("there are all").content[offset..][..len].copy_from_slice(&bytes);
    run.world.workers[who].fence_to(name)?;
    get(run, area, 0, AREA)
}

fn get(run: &mut Run, area: AreaName, offset: usize, len: usize) -> Result<(), CallError> {
    let (from, who, _) = area;
    if !take(run, area) {
        return Ok(());
    }
    let (at, name) = (run.one_sided.at(area, offset), run.names.of(who, from));
    let worker = &mut run.world.workers[who];
    let begun = worker.buffer(len).map_err(CallError::from).and_then(|buffer| Ok(worker.get_from(name, buffer, at)?));
    match begun {
        Ok(request) => begin(run, who, request, What::Get { area, offset }),
        Err(why) => {
            leave(run, area);
            return Err(why);
        }
    }
    Ok(())
}

fn add(run: &mut Run, who: Rank, owner: Rank) -> Result<(), CallError> {
    let by = run.dice.random_range(1..1000);
    let (width, at) =
        *[(AtomicWidth::U64, LONG), (AtomicWidth::U32, SHORT)].get(run.dice.random_range(0..2)).expect("two");
    let at = run.one_sided.keys[owner].at(at);
    let request = run.world.workers[who].atomic_with(run.names.of(who, owner), AtomicOp::Add(by), width, at)?;
    begin(run, who, request, What::Add { owner, width, by });
    Ok(())
}

fn send(run: &mut Run, who: Rank, to: Rank, len: usize) -> Result<(), CallError> {
    let seed = run.dice.next_u64();
    let worker = &mut run.world.workers[who];
    let payload = bytes(seed, len.min(worker.max_active()));
    worker.send_active(run.names.of(who, to), HandlerId::of(COUNT), &[seed], &payload)?;
    *run.one_sided.sent.entry((who, to)).or_default() += 1;
    Ok(())
}

fn ask(run: &mut Run, who: Rank, to: Rank, len: usize) -> Result<(), CallError> {
    let (one, two) = (run.dice.random_range(0..1 << 40), run.dice.random_range(0..1 << 40));
    let worker = &mut run.world.workers[who];
    let mut payload = bytes(one, len.min(worker.max_active()));
    let request = worker.request_active(run.names.of(who, to), HandlerId::of(ECHO), &[one, two], &payload)?;
    payload.reverse();
    begin(run, who, request, What::Ask { sum: one + two, payload });
    Ok(())
}

/// Takes what has ended.
pub(crate) fn look(run: &mut Run, who: Rank) -> Result<(), Violation> {
    let mut at = 0;
    while at < run.one_sided.pending.len() {
        let PendingOperation { who: whose, request, .. } = run.one_sided.pending[at];
        let outcome = if whose == who { run.world.workers[who].test(request) } else { None };
        match outcome {
            Some(outcome) => {
                let pending = run.one_sided.pending.swap_remove(at);
                run.one_sided.ended += 1;
                run.note(who, mix(outcome.as_ref().map_or(0, |done| done.len as u64)));
                end(run, who, pending.what, outcome)?;
            }
            None => at += 1,
        }
    }
    Ok(())
}

fn end(run: &mut Run, who: Rank, what: What, outcome: Result<Done, OpError>) -> Result<(), Violation> {
    let done = match outcome {
        Ok(done) => done,
        Err(error) if is_of_the_dead(run, who, &error) => return Ok(()),
        Err(error) => return Err(format!("rank {who}, a one-sided operation: {error}").into()),
    };
    match what {
        What::Put { area, offset, bytes, signals } => {
            ensure(done.buffer[..] == bytes[..], || format!("rank {who} got another buffer back from a put"))?;
            leave(run, area)[offset..][..bytes.len()].copy_from_slice(&bytes);
            run.one_sided.added.get_mut(&area.0).expect("all are there")[2] += signals;
        }
        What::Get { area, offset } => {
            let is_right = leave(run, area)[offset..][..done.len] == done.buffer[..];
            ensure(is_right, || format!("rank {who} got other bytes than it had put, of {area:?} from {offset} on"))?;
        }
        What::Add { owner, width, by } => {
            let which = usize::from(width == AtomicWidth::U32);
            run.one_sided.added.get_mut(&owner).expect("all are there")[which] += by;
        }
        What::Ask { sum, payload } => {
            let is_right = done.data == Some(sum) && done.buffer[..] == payload[..];
            ensure(is_right, || format!("rank {who} got another reply: {:?}, {} bytes", done.data, done.len))?;
        }
    }
    Ok(())
}

/// Whether everything is as it was written, and every addition was done once. What the dead had under way is not known.
pub(crate) fn check(run: &mut Run) -> Result<(), Violation> {
    let wrong = run.one_sided.ran.lock().expect("no panic").1.first().cloned();
    ensure(wrong.is_none(), || wrong.unwrap_or_default())?;
    if run.oracle.dead().is_some() || !run.plan.is_one_sided {
        return Ok(());
    }
    for owner in 0..run.world.workers.len() {
        let (memory, len) = (&run.one_sided.memory[owner], memory_len(run.world.workers.len()));
        let memory = memory.content(&mut run.world.workers[owner], len).map_err(|error| error.to_string())?;
        let number = |at: usize| u64::from_ne_bytes(memory[at..at + 8].try_into().expect("8 bytes"));
        let short = u32::from_ne_bytes(memory[SHORT..SHORT + 4].try_into().expect("4 bytes"));
        let [long_added, short_added, signals] = run.one_sided.added[&owner];
        let found = (number(LONG), short, number(SIGNALS));
        ensure(found == (long_added, short_added as u32, signals), || format!("rank {owner} counted {found:?}"))?;
        for (&(its, origin, which), area) in &run.one_sided.areas {
            let from = FIRST_AREA + (origin * AREAS + which) * AREA;
            let is_right = its != owner || memory[from..from + AREA] == area.content[..];
            ensure(is_right, || format!("area {which} of {origin} at {owner} has other bytes"))?;
        }
    }
    Ok(())
}
