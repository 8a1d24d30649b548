//! Byte streams between all ranks, beside the messages: put and got as dice have it, and checked byte by byte.

use std::collections::BTreeMap;

use rand::Rng;
use roci_msgcore::stream::{StreamConfig, StreamError};
use roci_msgcore::{OpError, Rank};

use crate::oracle::{Violation, ensure, mix};
use crate::programme::is_of_the_dead;
use crate::run::Run;

/// Small enough to be full often, and to wrap around; its memory is set aside before the world is measured.
pub(crate) const CONFIG: StreamConfig = StreamConfig {
    ring: 8 << 10,
    chunk: 1 << 10,
    piggyback: true,
    tail_delay: true,
    pipelining: true,
    zero_copy: None,
    registrations: 1,
};
/// Bytes of the longest put or get.
const MOST: usize = 20_000;

/// What was put from one rank to another, and got.
#[derive(Clone, Copy, Default)]
struct Progress {
    put: u64,
    got: u64,
}

/// All streams of a world, by sender and receiver.
#[derive(Default)]
pub(crate) struct Streams(BTreeMap<(Rank, Rank), Progress>);

impl Streams {
    /// Whether all that was put between ranks that live was got.
    pub(crate) fn are_drained(&self, is_alive: impl Fn(Rank) -> bool) -> bool {
        let binds = |&(&(from, to), _): &(&(Rank, Rank), &Progress)| is_alive(from) && is_alive(to);
        self.0.iter().filter(binds).all(|(_, progress)| progress.put == progress.got)
    }

    /// How many bytes were got.
    pub(crate) fn total(&self) -> u64 {
        self.0.values().map(|progress| progress.got).sum()
    }
}

/// Puts some bytes to a rank.
pub(crate) fn put(run: &mut Run, from: Rank) -> Result<(), Violation> {
    let to = run.dice.random_range(0..run.world.workers.len());
    if to == from {
        return Ok(());
    }
    let position = run.streams.0.entry((from, to)).or_default().put;
    let bytes = bytes(from, to, position, run.dice.random_range(0..MOST));
    let outcome = run.world.workers[from].stream(run.names.of(from, to)).and_then(|mut stream| stream.put(&bytes));
    let taken = moved(run, from, to, outcome)?;
    run.streams.0.entry((from, to)).or_default().put += taken as u64;
    Ok(())
}

/// Gets what has come from a rank.
pub(crate) fn get(run: &mut Run, to: Rank, from: Rank) -> Result<(), Violation> {
    if to == from {
        return Ok(());
    }
    let mut into = vec![0; run.dice.random_range(0..MOST)];
    let outcome = run.world.workers[to].stream(run.names.of(to, from)).and_then(|mut stream| stream.get(&mut into));
    let got = moved(run, to, from, outcome)?;
    let position = run.streams.0.entry((from, to)).or_default().got;
    ensure(into[..got] == bytes(from, to, position, got), || {
        format!("rank {to} got other bytes than {from} put, from {position} on")
    })?;
    run.streams.0.entry((from, to)).or_default().got += got as u64;
    if got > 0 {
        run.note(to, mix(position ^ got as u64));
    }
    Ok(())
}

/// How much a call moved; nothing where the peer is dead.
fn moved(run: &Run, who: Rank, peer: Rank, outcome: Result<usize, StreamError>) -> Result<usize, Violation> {
    match outcome {
        Ok(moved) => Ok(moved),
        Err(StreamError::Peer(error)) if is_of_the_dead(run, who, &error) => Ok(0),
        Err(StreamError::Peer(OpError::PeerLeft { .. })) if !run.oracle.is_alive(peer) => Ok(0),
        Err(StreamError::NoRdma(_)) if !(run.plan.configs[who].rdma && run.plan.configs[peer].rdma) => Ok(0),
        Err(error) => Err(format!("rank {who}, the stream with {peer}: {error}").into()),
    }
}

/// A part of the stream from one rank to another.
fn bytes(from: Rank, to: Rank, position: u64, len: usize) -> Vec<u8> {
    let key = mix((from as u64) << 32 | to as u64);
    (position..).take(len).map(|at| mix(key ^ at) as u8).collect()
}
