//! The two ends of a measurement below the messaging core: an engine, one queue pair, and the job's board.

use std::net::IpAddr;

use roci_driver::link::Link;
use roci_driver::link::udp::station;
use roci_driver::{
    Buffer, Engine, EngineStats, MemoryRegion, Operation, QpParams, QueuePair, SendWr, SharedReceiveQueue, State,
    WorkCompletion,
};
use roci_msgcore::{Config, EndpointAddress, Fabric, LiveLink};
use roci_protocol::wire::MacAddr;
use roci_protocol::{Nanos, Rkey};

use super::connections::TurnTakers;
use super::memory::{PayloadMemory, of_our_own};
use super::raw_header::RawHeader;
use crate::failure::{Failure, FailureContext};

/// Polls between two looks at what is slow to look at.
const SLOW: u32 = 256;
/// And at what is slower still, many times a second.
const VERY_SLOW: u32 = 1 << 16;
/// So many polls that find nothing are no measurement any more: the peer may wait for this very processor.
const YIELD_AFTER: u32 = 1024;

/// One end of a measurement with verbs: an engine and its queue pairs.
pub(super) struct VerbsEnd {
    fabric: Fabric,
    /// The queue pair of the fabric.
    qp: QueuePair,
    /// Those that messages go over, in turn: the one above, or several of their own.
    in_use: TurnTakers,
    turn: usize,
    params: QpParams,
    /// Polls in a row that found nothing.
    idle_polls: u32,
    /// Counts the exchanges over the board, so that each has a key of its own.
    exchanges: u32,
    memory: PayloadMemory,
    /// The receives that several queue pairs share, from the first time on.
    stock: Option<SharedReceiveQueue>,
}

impl VerbsEnd {
    /// `params` are those of the fabric's queue pairs.
    pub(super) fn new(fabric: Fabric, params: QpParams) -> Result<Self, Failure> {
        let qp = fabric.queue_pairs[1 - fabric.rank].ok_or_else(|| Failure::new("no queue pair to the peer"))?;
        let in_use = TurnTakers::of_one(qp);
        Ok(Self {
            fabric,
            qp,
            in_use,
            turn: 0,
            params,
            idle_polls: 0,
            exchanges: 0,
            memory: PayloadMemory::Arena,
            stock: None,
        })
    }

    /// Ends the use of the queue pair by hand.
    pub(super) fn finish(mut self) -> Result<Fabric, Failure> {
        self.meet()?;
        Ok(self.fabric)
    }

    /// Whether this is the side that starts, times and prints.
    pub(super) fn is_active(&self) -> bool {
        self.fabric.rank == 0
    }

    #[inline]
    pub(super) fn now(&self) -> Nanos {
        self.fabric.engine.now()
    }

    pub(super) fn link(&mut self) -> &mut LiveLink {
        self.fabric.engine.link_mut(0)
    }

    /// From here on buffers are of this program's own memory, registered as `config` has it.
    pub(super) fn use_own_memory(&mut self, config: &Config) -> Result<(), Failure> {
        self.memory = PayloadMemory::User;
        self.fabric.engine.configure_registration(config.registration()).map_err(Failure::new)
    }

    pub(super) fn buffer(&mut self, len: usize) -> Result<Buffer, Failure> {
        match self.memory {
            PayloadMemory::Arena => Ok(self.fabric.engine.buffer(len)?),
            PayloadMemory::User => self.fabric.engine.adopt(of_our_own(len)).map_err(Failure::new),
        }
    }

    /// Returns the number of frames whose payload the device has read in place, without a copy.
    pub(super) fn zero_copy_frames(&self) -> u64 {
        self.fabric.engine.link_stats(0).tx_zero_copy
    }

    pub(super) fn engine_stats(&self) -> EngineStats {
        self.fabric.engine.stats()
    }

    /// The next completion that worked, if there is one now.
    #[inline(always)]
    pub(super) fn poll(&mut self) -> Result<Option<WorkCompletion>, Failure> {
        if let Some(done) = self.next_end()? {
            return Ok(Some(done));
        }
        if self.fabric.engine.poll() == 0 {
            self.idle()?;
            return Ok(None);
        }
        self.idle_polls = 0;
        self.next_end()
    }

    /// The next completion that was there at the last poll. It is seen through by the compiler, so that a completion is not
    /// copied from place to place: each copy waits for all stores before it, those to a port's ring among them.
    #[inline(always)]
    fn next_end(&mut self) -> Result<Option<WorkCompletion>, Failure> {
        let done = self.fabric.engine.poll_cq(self.fabric.cq);
        match done {
            Some(failure) if !failure.status.is_success() => Err(failed(&failure)),
            done => Ok(done),
        }
    }

    fn idle(&mut self) -> Result<(), Failure> {
        self.idle_polls = self.idle_polls.wrapping_add(1);
        if self.idle_polls > YIELD_AFTER {
            std::thread::yield_now();
        }
        if self.idle_polls.is_multiple_of(VERY_SLOW)
            && let Some(job) = &mut self.fabric.job
        {
            job.check()?;
        }
        if self.idle_polls.is_multiple_of(SLOW) && self.fabric.engine.qp_state(self.qp) == Some(State::Error) {
            return Err(Failure::new("the peer is gone"));
        }
        Ok(())
    }

    /// Waits for the next completion.
    #[inline(always)]
    pub(super) fn wait(&mut self) -> Result<WorkCompletion, Failure> {
        loop {
            if let Some(done) = self.poll()? {
                return Ok(done);
            }
        }
    }

    #[inline]
    pub(super) fn post_send(&mut self, wr: SendWr) -> Result<(), Failure> {
        Ok(self.fabric.engine.post_send(self.qp, wr)?)
    }

    /// The receives that several queue pairs share.
    pub(super) fn stock(&mut self, capacity: usize) -> SharedReceiveQueue {
        let Fabric { engine, cq, .. } = &mut self.fabric;
        *self.stock.get_or_insert_with(|| engine.create_srq(capacity, *cq))
    }

    /// The queue pairs that messages go over.
    pub(super) fn queue_pairs(&self) -> &[QueuePair] {
        &self.in_use.queue_pairs
    }

    /// Sends and receives over others from here on. Returns those that were in use.
    pub(super) fn use_connections(&mut self, others: TurnTakers) -> TurnTakers {
        self.turn = 0;
        std::mem::replace(&mut self.in_use, others)
    }

    /// Whether the queue pairs take their receives from one queue.
    pub(super) const fn shares_receives(&self) -> bool {
        self.in_use.stock.is_some()
    }

    /// The place among the queue pairs of the one that the next list goes over.
    #[inline]
    pub(super) const fn turn(&self) -> usize {
        self.turn
    }

    /// The place of a queue pair among those in use.
    #[inline]
    pub(super) fn index_of(&self, qp: QueuePair) -> usize {
        let all = &self.in_use.queue_pairs;
        if all.len() == 1 { 0 } else { all.iter().position(|&one| one == qp).unwrap_or(0) }
    }

    /// Posts all of a list, over the queue pair whose turn it is.
    #[inline]
    pub(super) fn post_sends(&mut self, mut wrs: impl Iterator<Item = SendWr>) -> Result<(), Failure> {
        let qp = self.in_use.queue_pairs[self.turn];
        self.turn = if self.turn + 1 == self.in_use.queue_pairs.len() { 0 } else { self.turn + 1 };
        Ok(self.fabric.engine.post_sends(qp, &mut wrs)?)
    }

    #[inline]
    pub(super) fn post_recv(&mut self, buffer: Buffer) -> Result<(), Failure> {
        let engine = &mut self.fabric.engine;
        let posted = match self.in_use.stock {
            None => engine.post_recv(self.in_use.queue_pairs[0], 0, buffer),
            Some(stock) => engine.post_srq_recv(stock, 0, buffer),
        };
        Ok(posted?)
    }

    /// Lets the peer reach `buffer`, and learns the key to what the peer gave.
    pub(super) fn share(&mut self, buffer: Buffer) -> Result<(MemoryRegion, Rkey), Failure> {
        let access = roci_driver::Access::REMOTE_READ.and(roci_driver::Access::REMOTE_WRITE);
        let access = access.and(roci_driver::Access::REMOTE_ATOMIC);
        let Fabric { engine, pd, .. } = &mut self.fabric;
        let region = engine.register(*pd, buffer, access).map_err(|_| Failure::new("no key is free"))?;
        let theirs = self.exchange(&region.rkey().0.to_string())?;
        let key = theirs.parse().context("the peer's key")?;
        Ok((region, Rkey(key)))
    }

    /// Takes the memory back; the peer must be done with it.
    pub(super) fn unshare(&mut self, region: MemoryRegion) -> Result<Buffer, Failure> {
        self.fabric.engine.deregister(region).ok_or_else(|| Failure::new("the region is gone"))
    }

    /// One byte of shared memory.
    #[inline]
    pub(super) fn peek(&self, region: MemoryRegion, offset: usize) -> u8 {
        let mut byte = [0];
        let Fabric { engine, pd, .. } = &self.fabric;
        engine.read_region(*pd, region, offset, &mut byte).map_or(0, |()| byte[0])
    }

    /// A copy of shared memory.
    pub(super) fn copy_out(&self, region: MemoryRegion, into: &mut [u8]) {
        let Fabric { engine, pd, .. } = &self.fabric;
        let copied = engine.read_region(*pd, region, 0, into);
        debug_assert!(copied.is_some(), "the region is as long as its copy");
    }

    /// Waits for the peer, and serves it meanwhile.
    pub(super) fn meet(&mut self) -> Result<(), Failure> {
        Ok(self.fabric.barrier()?)
    }

    /// Waits for the peer without touching the port: the next frame on it is none of the engine's.
    pub(super) fn meet_in_silence(&mut self) -> Result<(), Failure> {
        self.meet()?;
        let job = self.fabric.job.as_mut().ok_or_else(|| Failure::new("no job"))?;
        Ok(job.barrier()?)
    }

    /// Gives the peer a word over the board, and gets one.
    pub(super) fn exchange(&mut self, word: &str) -> Result<String, Failure> {
        self.meet()?;
        self.exchanges += 1;
        let (rank, count) = (self.fabric.rank, self.exchanges);
        let job = self.fabric.job.as_mut().ok_or_else(|| Failure::new("no job"))?;
        job.put(&format!("lane/{count}/{rank}"), word)?;
        Ok(job.get(&format!("lane/{count}/{}", 1 - rank))?)
    }

    /// Gives the peer a count, and gets one.
    pub(super) fn exchange_count(&mut self, ours: u64) -> Result<u64, Failure> {
        self.exchange(&ours.to_string())?.parse().context("the peer's count")
    }

    /// What more queue pairs are made of, and how.
    pub(super) fn parts(&mut self) -> (&mut Fabric, &QpParams) {
        (&mut self.fabric, &self.params)
    }

    /// The station address of this side's port.
    pub(super) fn own_station(&self) -> MacAddr {
        self.engine().link(0).mac()
    }

    /// The address of the peer's port.
    pub(super) fn peer_ip(&self) -> IpAddr {
        self.fabric.address_of(1 - self.fabric.rank).ip
    }

    /// The header of bare frames to the peer: over a socket they are datagrams of its own.
    pub(super) fn raw_header(&self) -> RawHeader {
        let (link, ours) = (self.engine().link(0), self.engine().ip(0));
        let EndpointAddress { ip, udp_port, .. } = self.fabric.address_of(1 - self.fabric.rank);
        let over_udp = link
            .source_port()
            .and_then(|port| RawHeader::over_udp([link.mac(), station::of_port(udp_port)], [ours, ip], port));
        over_udp.unwrap_or_else(|| RawHeader::to_all(link.mac()))
    }

    /// The longest frame of the port.
    pub(super) fn max_frame(&self) -> usize {
        self.engine().link(0).max_frame()
    }

    fn engine(&self) -> &Engine<LiveLink> {
        &self.fabric.engine
    }
}

/// Whether an operation is one of ours that sends.
pub(super) fn is_send(done: &WorkCompletion) -> bool {
    matches!(done.operation, Operation::Send | Operation::Write | Operation::Read)
}

#[cold]
fn failed(done: &WorkCompletion) -> Failure {
    Failure::new(format!("{:?} failed: {} ({})", done.operation, done.status, done.status.verbs_name()))
}
