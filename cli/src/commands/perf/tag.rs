//! Tagged messages through the messaging core.

use std::collections::VecDeque;
use std::time::Instant;

use roci_driver::Buffer;
use roci_msgcore::{OpError, Request, Tag};

use super::PerfPlan;
use super::messenger::Messenger;
use super::pattern::BytePattern;
use super::ping_clock::PingClock;
use super::report::Row;
use crate::failure::Failure;

const DATA: Tag = Tag::new(1);
const VERDICT: Tag = Tag::new(2);

/// Half a round trip of a tagged message.
pub(super) fn latency(worker: &mut impl Messenger, plan: PerfPlan) -> Result<Option<Row>, Failure> {
    let peer = 1 - worker.rank();
    let pattern = BytePattern::new(plan.size);
    let mut outgoing = filled(worker, &pattern, plan.size)?;
    let mut incoming = worker.buffer(plan.size)?;
    let mut errors = 0;
    worker.barrier()?;
    let origin = Instant::now();
    let mut clock = PingClock::start(plan, worker.now(origin));
    for number in clock.numbers() {
        BytePattern::stamp(&mut outgoing, number);
        // As MPI's ping-pongs do it: the one that begins sends, and then receives.
        let message = if worker.rank() == 0 {
            let send = worker.send(peer.into(), DATA, outgoing)?;
            let receive = worker.recv(peer, DATA, incoming)?;
            let message = worker.wait(receive)?;
            outgoing = worker.wait(send)?.buffer;
            message
        } else {
            let receive = worker.recv(peer, DATA, incoming)?;
            let message = worker.wait(receive)?;
            let send = worker.send(peer.into(), DATA, outgoing)?;
            outgoing = worker.wait(send)?.buffer;
            message
        };
        errors += u64::from(plan.verify && !pattern.matches(&message.buffer[..message.len], number));
        incoming = message.buffer;
        clock.answered(number, worker.now(origin));
    }
    let theirs = exchange(worker, errors)?;
    Ok(Some(clock.row(errors + theirs)))
}

/// A stream of tagged messages from rank 0 to rank 1, which checks every one; or one in each direction.
pub(super) fn bandwidth(worker: &mut impl Messenger, plan: PerfPlan) -> Result<Option<Row>, Failure> {
    if plan.is_bidirectional {
        return both_ways(worker, plan);
    }
    let pattern = BytePattern::new(plan.size);
    let depth = plan.depth();
    if worker.rank() == 1 {
        return receive_all(worker, plan, &pattern, depth).map(|()| None);
    }
    let mut free = Vec::new();
    for _ in 0..depth {
        free.push(filled(worker, &pattern, plan.size)?);
    }
    worker.barrier()?;
    let start = Instant::now();
    let mut sends = VecDeque::new();
    for number in 0..plan.iters {
        let mut buffer = match free.pop() {
            Some(buffer) => buffer,
            None => wait_oldest(worker, &mut sends)?,
        };
        BytePattern::stamp(&mut buffer, number);
        sends.push_back(worker.send(1.into(), DATA, buffer)?);
    }
    for send in sends {
        worker.wait(send)?;
    }
    // The clock stops when the receiver has checked the last one.
    let errors = receive_count(worker)?;
    let elapsed = start.elapsed().as_nanos() as u64;
    Ok(Some(Row::bandwidth(plan, elapsed, errors)))
}

/// Both ranks send and receive at once. The slower one's time counts.
fn both_ways(worker: &mut impl Messenger, plan: PerfPlan) -> Result<Option<Row>, Failure> {
    let (pattern, peer) = (BytePattern::new(plan.size), 1 - worker.rank());
    let depth = plan.iters.min(plan.depth() as u64);
    let (mut free, mut receives, mut sends) = (Vec::new(), VecDeque::new(), VecDeque::new());
    for _ in 0..depth {
        free.push(filled(worker, &pattern, plan.size)?);
        let buffer = worker.buffer(plan.size)?;
        receives.push_back(worker.recv(peer, DATA, buffer)?);
    }
    worker.barrier()?;
    let start = Instant::now();
    let (mut sent, mut errors) = (0, 0);
    for number in 0..plan.iters {
        while sent < plan.iters && sent < number + depth {
            let mut buffer = match free.pop() {
                Some(buffer) => buffer,
                None => wait_oldest(worker, &mut sends)?,
            };
            BytePattern::stamp(&mut buffer, sent);
            sends.push_back(worker.send(peer.into(), DATA, buffer)?);
            sent += 1;
        }
        let Some(receive) = receives.pop_front() else { break };
        let message = worker.wait(receive)?;
        errors += u64::from(plan.verify && !pattern.matches(&message.buffer[..message.len], number));
        if number + depth < plan.iters {
            receives.push_back(worker.recv(peer, DATA, message.buffer)?);
        }
    }
    for send in sends {
        worker.wait(send)?;
    }
    let elapsed = start.elapsed().as_nanos() as u64;
    let longest = elapsed.max(exchange(worker, elapsed)?);
    errors += exchange(worker, errors)?;
    Ok(Some(Row::bandwidth(plan, longest, errors)))
}

/// Sends a word to the peer, and returns the peer's.
pub(super) fn exchange_words(worker: &mut impl Messenger, ours: &str) -> Result<String, Failure> {
    let peer = 1 - worker.rank();
    let theirs = exchange(worker, ours.len() as u64)?;
    let buffer = worker.buffer(theirs as usize)?;
    let receive = worker.recv(peer, VERDICT, buffer)?;
    let send = worker.send_bytes(peer.into(), VERDICT, ours.as_bytes())?;
    worker.wait(send)?;
    let message = worker.wait(receive)?;
    Ok(String::from_utf8_lossy(&message.buffer[..message.len]).into_owned())
}

/// Sends a count to the peer, and returns the peer's.
pub(super) fn exchange(worker: &mut impl Messenger, ours: u64) -> Result<u64, Failure> {
    send_count(worker, ours)?;
    receive_count(worker)
}

fn send_count(worker: &mut impl Messenger, count: u64) -> Result<(), Failure> {
    let send = worker.send_bytes((1 - worker.rank()).into(), VERDICT, &count.to_le_bytes())?;
    worker.wait(send)?;
    Ok(())
}

fn receive_count(worker: &mut impl Messenger) -> Result<u64, Failure> {
    let buffer = worker.buffer(8)?;
    let receive = worker.recv(1 - worker.rank(), VERDICT, buffer)?;
    let message = worker.wait(receive)?;
    Ok(message.buffer.first_chunk().map_or(u64::MAX / 2, |bytes| u64::from_le_bytes(*bytes)))
}

fn receive_all(
    worker: &mut impl Messenger,
    plan: PerfPlan,
    pattern: &BytePattern,
    depth: usize,
) -> Result<(), Failure> {
    let mut receives = VecDeque::new();
    for _ in 0..plan.iters.min(depth as u64) {
        let buffer = worker.buffer(plan.size)?;
        receives.push_back(worker.recv(0, DATA, buffer)?);
    }
    worker.barrier()?;
    let mut errors = 0u64;
    for number in 0..plan.iters {
        let Some(receive) = receives.pop_front() else { break };
        let message = worker.wait(receive)?;
        errors += u64::from(plan.verify && !pattern.matches(&message.buffer[..message.len], number));
        if number + (depth as u64) < plan.iters {
            receives.push_back(worker.recv(0, DATA, message.buffer)?);
        }
    }
    send_count(worker, errors)
}

fn wait_oldest<M: Messenger>(worker: &mut M, sends: &mut VecDeque<Request>) -> Result<Buffer, Failure> {
    let oldest = sends.pop_front().ok_or(OpError::NoRequest)?;
    Ok(worker.wait(oldest)?.buffer)
}

fn filled(worker: &impl Messenger, pattern: &BytePattern, size: usize) -> Result<Buffer, Failure> {
    let mut buffer = worker.buffer(size)?;
    pattern.fill(&mut buffer);
    Ok(buffer)
}
