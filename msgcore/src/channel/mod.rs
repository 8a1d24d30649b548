//! A byte channel: a pipe of bytes to each peer and one back, over RDMA WRITEs into a ring at the receiver.
//!
//! This is the design that MPICH2 had over InfiniBand (Liu et al., IPDPS 2004), beside the tagged messages of
//! [`crate::Worker`] and not below them. It knows two calls, [`Channel::put`] and [`Channel::get`], which take and
//! give as many bytes as they can now and never wait. Each step of that design is a switch of [`ChannelConfig`]:
//!
//! - *Basic.* The receiver has a ring in registered memory, the sender a staging ring of the same size. A put
//!   compares head and its replica of the tail, copies into the staging ring, and WRITEs the data, then the head. A
//!   get copies out of the ring and WRITEs the tail back.
//! - *Piggyback.* The ring is cut into chunks, each of which begins with a header: length, and the tail of the way
//!   back. One WRITE brings data and news of it. A tail of its own is told only when enough of the ring is free.
//! - *Pipelining.* A long put is cut into pieces, and each is sent as soon as it is copied, while the next is copied.
//! - *Zero-copy.* A long [`Payload`] stays where it is. Its announcement goes through the ring, the receiver READs
//!   it straight into the buffer of its [`Channel::get_into`], and the tail that passes the announcement says that it
//!   has: only then does the put answer, with the whole length.
//!
//! # No flag in memory is ever polled
//! The original polls memory: the head's word, and flags at the start and the end of each chunk. That rests on
//! hardware that writes a message from its first byte to its last, and that is no promise of IBTA's: the order in
//! which the bytes of a WRITE become visible is not defined before it has completed at the responder. A responder that
//! keeps early packets, as selective repeat does, might place the end of a WRITE, flag and all, before a lost
//! packet of its middle. So whoever ports the design and keeps the polling has a race that no test over a good wire
//! shows.
//!
//! Here all news comes by completion. What tells of data is a WRITE with immediate data, whose completion at the
//! receiver comes in the order of PSNs, after everything before it was executed, in both dialects. The immediate data
//! says how far head or tail has moved; the words in memory are there as in the original, and are compared with it.
//! A word may be newer than the news that is looked at, because a later WRITE was executed in the same poll: then
//! the news counts, not the word.
//!
//! Each such message takes a receive at the peer, so there must always be one; see `Peer::has_place`.
//!
//! # Limits
//! 64 messages that take a receive may be unacknowledged per peer, and 256 work requests in all: beyond them, and
//! where the ring is full, puts take less or nothing. Both sides may put more than fits without getting, and both get
//! 0 until somebody gets. A payload has at most 2 GiB; 65536 of them can be adopted, and as many registered as the
//! configuration says.
//!
//! # Hostile peers
//! A peer can write nonsense into the ring and the words, and nothing else. Whatever is read of them is copied
//! once and then checked; nonsense ends the connection with [`ChannelError::PeerProtocol`], which says what it was.
//!
//! # Quick start
//! ```
//! use roci_driver::Engine;
//! use roci_driver::link::sim::{Clock, SimLink};
//! use roci_msgcore::channel::{Channel, ChannelConfig};
//! use roci_msgcore::{Config, Fabric};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (near, far) = SimLink::pair(&Clock::default());
//! let mut engines = [Engine::new(16 << 20)?, Engine::new(16 << 20)?];
//! engines[0].add_port(near, [10, 0, 0, 1].into(), true);
//! engines[1].add_port(far, [10, 0, 0, 2].into(), true);
//! let [near, far] = Fabric::pair(engines, &Config::default());
//! let mut near = Channel::open(near, ChannelConfig::default())?;
//! let mut far = Channel::open(far, ChannelConfig::default())?;
//!
//! let (mut sent, mut got, mut bytes) = (0, 0, [0; 5]);
//! while got < bytes.len() {
//!     sent += near.put(1, &b"hello"[sent..])?;
//!     got += far.get(0, &mut bytes[got..])?;
//! }
//! assert_eq!(&bytes, b"hello");
//! # Ok(())
//! # }
//! ```

mod config;
mod error;
mod get;
mod payload;
mod peer;
mod progress;
mod put;
mod stats;
mod wire;

pub use config::{BadChannelConfig, ChannelConfig, Step};
pub use error::{Breach, ChannelError, OpenError};
pub use payload::Payload;
pub use stats::ChannelStats;

use roci_driver::link::Link;
use roci_driver::{ArenaError, Buffer, EngineStats};

use crate::Rank;
use crate::backoff::{self, Backoff, Idle, Limits, Look};
use crate::worker::ports::{Fabric, LiveLink};
use payload::Payloads;
use peer::{Core, Peer};
use roci_launcher::{Job, JobError};

/// One rank's ends of the pipes to and from all others.
pub struct Channel<L: Link = LiveLink> {
    rank: Rank,
    size: usize,
    core: Core<L>,
    /// By rank; none for itself.
    peers: Vec<Option<Peer>>,
    payloads: Payloads,
    limits: Limits,
    job: Option<Job>,
}

impl<L: Link> Channel<L> {
    /// A channel over queue pairs that are connected and were not used. All ranks call this, with the same
    /// configuration; puts take nothing before the peer has.
    pub fn open(fabric: Fabric<L>, config: ChannelConfig) -> Result<Self, OpenError> {
        config.check()?;
        let Fabric { rank, size, engine, pd, cq, queue_pairs, mut job, limits, .. } = fabric;
        let mut core = Core { engine, pd, cq, config, sizes: config.sizes(), stats: ChannelStats::default() };
        let mut peers = Vec::with_capacity(size);
        for (rank, qp) in queue_pairs.into_iter().enumerate() {
            peers.push(qp.map(|qp| Peer::open(&mut core, rank, qp)).transpose()?);
        }
        // Nobody sends before everybody has posted receives.
        job.as_mut().map_or(Ok(()), Job::barrier)?;
        for peer in peers.iter_mut().flatten() {
            peer.say_hello(&mut core)?;
        }
        Ok(Self { rank, size, core, peers, payloads: Payloads::new(config.registrations), limits, job })
    }

    /// This rank.
    pub fn rank(&self) -> Rank {
        self.rank
    }

    /// How many ranks there are.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Whether a peer has opened its end, so that puts take something.
    pub fn is_open(&self, peer: Rank) -> Result<bool, ChannelError> {
        let peer = self.peers.get(peer).and_then(Option::as_ref).ok_or_else(|| self.no_peer(peer))?;
        peer.failure.clone().map_or(Ok(peer.keys.is_some()), Err)
    }

    /// Memory for payloads and for [`Channel::get_into`], returned to the arena when dropped.
    pub fn buffer(&self, len: usize) -> Result<Buffer, ArenaError> {
        self.core.engine.buffer(len)
    }

    /// Takes a buffer in, to be put without a copy. All of it is the payload.
    pub fn adopt(&mut self, buffer: Buffer) -> Result<Payload, ChannelError> {
        self.payloads.adopt(buffer)
    }

    /// Writes to a payload that is not being put; it stays registered if it was.
    pub fn write_payload(&mut self, payload: Payload, offset: usize, bytes: &[u8]) -> Result<(), ChannelError> {
        self.payloads.write(payload, offset, bytes, &mut self.core.engine, self.core.pd)
    }

    /// Gives a payload's memory back, which no peer can read from here on.
    pub fn release(&mut self, payload: Payload) -> Result<Buffer, ChannelError> {
        self.payloads.release(payload, &mut self.core.engine)
    }

    /// Makes progress, and says whether everything that was put to a peer has arrived in its memory. Payloads have
    /// when their put has answered with their length.
    pub fn flush(&mut self, to: Rank) -> Result<bool, ChannelError> {
        self.progress();
        self.live_peer(to).map(|peer| peer.is_flushed())
    }

    /// Waits until every rank has called this, and makes progress meanwhile.
    pub fn barrier(&mut self) -> Result<(), ChannelError> {
        let ended = |error: JobError| ChannelError::Job(error.to_string());
        let Some(job) = &mut self.job else { return Ok(()) };
        job.start_barrier().map_err(ended)?;
        backoff::wait_until(self.limits, || {
            if let Some(job) = &mut self.job
                && job.poll_barrier().map_err(ended)?
            {
                return Ok(Look::Over);
            }
            Ok(if self.progress() { Look::Busy } else { Look::Idle })
        })
    }

    /// Waits until everything that was put has arrived, at every peer that is there, and ends the channel.
    pub fn close(mut self) -> Result<(), ChannelError> {
        let mut backoff = Backoff::new(self.limits);
        while !self.peers.iter().flatten().all(Peer::is_quiet) {
            if self.progress() {
                backoff.reset();
            } else if backoff.idle() == Idle::Doubt
                && let Some(job) = &mut self.job
            {
                job.check().map_err(|error| ChannelError::Job(error.to_string()))?;
            }
        }
        // Peers may still need an acknowledgement of ours.
        self.barrier()
    }

    /// The job's board, for words between ranks that are none of the pipe's.
    pub fn job_mut(&mut self) -> Option<&mut Job> {
        self.job.as_mut()
    }

    /// The time of the ports' clock in nanoseconds.
    #[inline]
    pub fn now(&self) -> u64 {
        self.core.engine.now()
    }

    /// The channel's counters.
    pub fn stats(&self) -> ChannelStats {
        self.core.stats
    }

    /// The engine's counters.
    pub fn engine_stats(&self) -> EngineStats {
        self.core.engine.stats()
    }

    fn no_peer(&self, rank: Rank) -> ChannelError {
        ChannelError::NoPeer { rank, size: self.size }
    }

    /// A peer, whether it has failed or not, and what is needed to do something with it.
    #[inline]
    fn parts(&mut self, rank: Rank) -> Result<(&mut Core<L>, &mut Peer, &mut Payloads), ChannelError> {
        let size = self.size;
        let peer = self.peers.get_mut(rank).and_then(Option::as_mut);
        let peer = peer.ok_or(ChannelError::NoPeer { rank, size })?;
        Ok((&mut self.core, peer, &mut self.payloads))
    }

    #[inline]
    fn core_and_peer(&mut self, rank: Rank) -> Result<(&mut Core<L>, &mut Peer), ChannelError> {
        let (core, peer, _) = self.parts(rank)?;
        match &peer.failure {
            Some(failure) => Err(failure.clone()),
            None => Ok((core, peer)),
        }
    }

    #[inline]
    fn live_peer(&mut self, rank: Rank) -> Result<&mut Peer, ChannelError> {
        self.core_and_peer(rank).map(|(_, peer)| peer)
    }
}

#[cfg(test)]
mod tests {
    use roci_driver::Engine;
    use roci_driver::link::sim::{Clock, SimLink};

    use super::*;
    use crate::config::{Config, Origin};

    #[test]
    fn waits_are_as_the_configuration_wants_them() {
        let mut config = Config::default();
        for (knob, value) in [("spin_us", "3"), ("yield_us", "5"), ("sleep_max_us", "77")] {
            config.set(knob, value, Origin::Code).expect("in range");
        }
        let (near, far) = SimLink::pair(&Clock::default());
        let mut host = 0;
        let engines = [near, far].map(|link| {
            host += 1;
            let mut engine = Engine::new(16 << 20).expect("memory");
            engine.add_port(link, [10, 0, 0, host].into(), true);
            engine
        });
        let [fabric, _far] = Fabric::pair(engines, &config);
        let channel = Channel::open(fabric, ChannelConfig::default()).expect("memory");
        assert_eq!(channel.limits, Limits::new(&config, 2, 2));
        assert_ne!(channel.limits, Limits::new(&Config::default(), 2, 2));
    }
}
