//! Many connections between the same two processes; their message rate, and what they take of memory.

use roci_driver::{Address, Buffer, QueuePair, SendWr, SharedReceiveQueue, UnconnectedQp};
use roci_protocol::Nanos;

use super::PerfPlan;
use super::lane::VerbsEnd;
use super::pattern::BytePattern;
use super::report::Row;
use crate::failure::{Failure, FailureContext};
use crate::resources::resident_bytes;

/// Addresses in one word on the job's board, whose lines are short.
const ADDRESSES: usize = 32;
/// Receives that all connections share: what is under way, and as much again that was taken and not yet given back.
const RECEIVES: usize = 128;
/// Requests that one queue pair holds: all that is under way may be on it.
const QUEUE: usize = 64;
/// A message says which one it is, so it is at least so long.
pub(super) const NUMBER: usize = size_of::<u64>();

/// Queue pairs in the order of the peer's.
pub(super) struct TurnTakers {
    pub(super) queue_pairs: Vec<QueuePair>,
    /// The receives that they share; none where there is one, with receives of its own.
    pub(super) stock: Option<SharedReceiveQueue>,
}

impl TurnTakers {
    pub(super) fn of_one(qp: QueuePair) -> Self {
        Self { queue_pairs: vec![qp], stock: None }
    }
}

/// Measures over so many queue pairs in turn, which share their receives, instead of over the fabric's.
pub(super) fn over_several(
    lane: &mut VerbsEnd,
    plan: PerfPlan,
    measure: impl FnOnce(&mut VerbsEnd, PerfPlan) -> Result<Option<Row>, Failure>,
) -> Result<Option<Row>, Failure> {
    let Some(count) = plan.connections.filter(|&count| count > 1) else { return measure(lane, plan) };
    let (queue_pairs, stock) = open(lane, count)?;
    let own = lane.use_connections(TurnTakers { queue_pairs, stock: Some(stock) });
    let row = measure(lane, plan)?;
    let opened = lane.use_connections(own);
    close(lane, opened.queue_pairs)?;
    Ok(row)
}

/// SENDs over `plan.connections` queue pairs in turn, as many under way as of one.
pub(super) fn rate(lane: &mut VerbsEnd, plan: PerfPlan) -> Result<Option<Row>, Failure> {
    let before = resident_bytes()?;
    let (connections, stock) = open(lane, plan.connections.unwrap_or(1))?;
    let row = if lane.is_active() {
        let elapsed = send_all(lane, plan, &connections)?;
        let errors = lane.exchange_count(0)?;
        let growth = resident_bytes()?.saturating_sub(before);
        Some(Row::bandwidth(plan, elapsed, errors).with_growth(growth))
    } else {
        let errors = receive_all(lane, plan, stock)?;
        lane.exchange_count(errors)?;
        None
    };
    close(lane, connections)?;
    Ok(row)
}

/// Queue pairs in the order of the peer's, which share their receives.
fn open(lane: &mut VerbsEnd, count: usize) -> Result<(Vec<QueuePair>, SharedReceiveQueue), Failure> {
    let stock = lane.stock(RECEIVES);
    let mut connections = Vec::with_capacity(count);
    while connections.len() < count {
        let some = ADDRESSES.min(count - connections.len());
        let (fresh, ours) = create(lane, stock, some)?;
        let theirs = lane.exchange(&ours)?;
        connect(lane, fresh, &theirs, &mut connections)?;
    }
    Ok((connections, stock))
}

fn create(
    lane: &mut VerbsEnd,
    stock: SharedReceiveQueue,
    count: usize,
) -> Result<(Vec<UnconnectedQp>, String), Failure> {
    let (fabric, params) = lane.parts();
    let (mut fresh, mut addresses) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let mut qp = fabric.engine.create_qp(0, fabric.pd, fabric.cq).map_err(Failure::new)?;
        fabric.engine.share_receives(&mut qp, stock).map_err(Failure::new)?;
        fabric.engine.fit_path(&mut qp, fabric.address_of(1 - fabric.rank).ip);
        addresses.push(fabric.engine.address_of(&qp, params).to_string());
        fresh.push(qp);
    }
    Ok((fresh, addresses.join(";")))
}

fn connect(
    lane: &mut VerbsEnd,
    fresh: Vec<UnconnectedQp>,
    theirs: &str,
    into: &mut Vec<QueuePair>,
) -> Result<(), Failure> {
    let (fabric, params) = lane.parts();
    let mut params = params.clone();
    (params.sq_depth, params.rq_depth) = (QUEUE, QUEUE);
    let addresses: Result<Vec<Address>, _> = theirs.split(';').map(str::parse).collect();
    let addresses = addresses.context("the peer's connections")?;
    if addresses.len() != fresh.len() {
        return Err(Failure::new("the peer makes another number of connections"));
    }
    for (qp, address) in fresh.into_iter().zip(&addresses) {
        into.push(fabric.engine.connect(qp, address, &params).map_err(Failure::new)?);
    }
    Ok(())
}

fn send_all(lane: &mut VerbsEnd, plan: PerfPlan, connections: &[QueuePair]) -> Result<Nanos, Failure> {
    let pattern = BytePattern::new(plan.size);
    let mut free = Vec::new();
    for _ in 0..plan.depth() {
        let mut buffer = lane.buffer(plan.size)?;
        pattern.fill(&mut buffer);
        free.push(buffer);
    }
    lane.meet()?;
    let start = lane.now();
    let (mut posted, mut ended) = (0, 0);
    let mut turn = connections.iter().cycle();
    while ended < plan.iters {
        while posted < plan.iters
            && let Some(buffer) = free.pop()
            && let Some(&qp) = turn.next()
        {
            post(lane, qp, posted, buffer)?;
            posted += 1;
        }
        if let Some(done) = lane.poll()? {
            free.push(done.buffer);
            ended += 1;
        }
    }
    Ok(lane.now() - start)
}

#[inline]
fn post(lane: &mut VerbsEnd, qp: QueuePair, number: u64, mut buffer: Buffer) -> Result<(), Failure> {
    BytePattern::stamp(&mut buffer, number);
    let (fabric, _) = lane.parts();
    Ok(fabric.engine.post_send(qp, SendWr::send(number, buffer))?)
}

/// Receives every message, and counts what is wrong: other bytes, or a number that came before. Connections overtake
/// each other, so numbers come in any order.
fn receive_all(lane: &mut VerbsEnd, plan: PerfPlan, stock: SharedReceiveQueue) -> Result<u64, Failure> {
    let pattern = BytePattern::new(plan.size);
    let mut seen = MessageBitmap::new(plan.iters);
    let receives = plan.iters.min(RECEIVES as u64);
    for _ in 0..receives {
        let buffer = lane.buffer(plan.size)?;
        post_receive(lane, stock, buffer)?;
    }
    lane.meet()?;
    let mut errors = 0;
    for count in 0..plan.iters {
        let done = lane.wait()?;
        errors += u64::from(plan.verify && !is_new(&pattern, &done.buffer[..done.len], &mut seen));
        if count + receives < plan.iters {
            post_receive(lane, stock, done.buffer)?;
        }
    }
    Ok(errors)
}

fn post_receive(lane: &mut VerbsEnd, stock: SharedReceiveQueue, buffer: Buffer) -> Result<(), Failure> {
    let (fabric, _) = lane.parts();
    Ok(fabric.engine.post_srq_recv(stock, 0, buffer)?)
}

/// Whether this is a whole message, and for the first time.
fn is_new(pattern: &BytePattern, bytes: &[u8], seen: &mut MessageBitmap) -> bool {
    let Some(number) = bytes.first_chunk().map(|bytes| u64::from_le_bytes(*bytes)) else { return false };
    seen.is_first(number) && pattern.matches(bytes, number)
}

/// A bitmap of the messages that have come.
struct MessageBitmap {
    words: Vec<u64>,
    count: u64,
}

impl MessageBitmap {
    fn new(count: u64) -> Self {
        Self { words: vec![0; count.div_ceil(u64::BITS.into()) as usize], count }
    }

    #[inline]
    fn is_first(&mut self, number: u64) -> bool {
        if number >= self.count {
            return false;
        }
        let (word, bit) = (&mut self.words[(number / u64::from(u64::BITS)) as usize], 1 << (number % 64));
        let is_first = *word & bit == 0;
        *word |= bit;
        is_first
    }
}

/// Ends the connections, once the peer has no more need of them.
fn close(lane: &mut VerbsEnd, connections: Vec<QueuePair>) -> Result<(), Failure> {
    lane.meet()?;
    let (fabric, _) = lane.parts();
    for qp in connections {
        fabric.engine.destroy_qp(qp);
    }
    lane.meet()
}

#[cfg(test)]
mod tests {
    use super::{BytePattern, MessageBitmap, is_new};

    #[test]
    fn a_message_counts_once_and_only_whole() {
        let pattern = BytePattern::new(2000);
        let message = |number: u64| {
            let mut bytes = vec![0; 2000];
            pattern.fill(&mut bytes);
            BytePattern::stamp(&mut bytes, number);
            bytes
        };
        let mut seen = MessageBitmap::new(3);
        assert!(is_new(&pattern, &message(2), &mut seen));
        assert!(is_new(&pattern, &message(0), &mut seen));
        assert!(!is_new(&pattern, &message(2), &mut seen), "again");
        assert!(!is_new(&pattern, &message(3), &mut seen), "never sent");
        assert!(!is_new(&pattern, &message(1)[..7], &mut seen), "no number");
        let mut wrong = message(1);
        wrong[1999] ^= 1;
        assert!(!is_new(&pattern, &wrong, &mut seen), "another byte");
    }
}
