//! The data path of a DPDK port: a receive queue, a transmit queue, a pool of packet buffers. It is opened in `bring_up`, and its
//! MTU is set in `configure`.

use std::ptr::NonNull;
use std::sync::Arc;

use arrayvec::ArrayVec;
use roci_protocol::Nanos;
use roci_protocol::wire::MacAddr;

use super::clock::TscClock;
use super::configure::{self, Description, Facts};
use super::device::Attachment;
use super::eal::{self, Setup, ThreadMark};
use super::gate::Gate;
use super::idle::{self, IdlePort};
use super::limits::TX_QUEUE;
use super::mbuf::{Mbuf, SpareMbufs, frame_len, segment};
use super::pool::PoolShare;
use super::queues::{PortQueue, is_without_udp_checksum};
use super::station::InterfaceClaim;
use super::train::Train;
use super::watch::LinkWatch;
use super::zero_copy::{Found, ZeroCopy};
use crate::lasting::Lasting;
use crate::link::{BURST, Batch, Full, Link, LinkState, LinkStats, Share, ZeroCopyError, ZeroCopyRanges, fill_around};

/// A port as a [`Link`].
///
/// It may move from thread to thread, and is used by one at a time, as DPDK expects it of a queue. What it has received stays on
/// the thread that received it.
pub struct DpdkLink {
    pub(super) port: u16,
    /// Which queue it is, and the numbers of queue pairs that lead to it.
    pub(super) share: Share,
    /// This link's queue, where several share the port.
    pub(super) claim: Option<PortQueue>,
    pub(super) pool: LinkPool,
    pub(super) clock: TscClock,
    pub(super) facts: LinkFacts,
    pub(super) watch: LinkWatch,
    pub(super) tx: ArrayVec<NonNull<dpdk_sys::rte_mbuf>, TX_QUEUE>,
    pub(super) train: Train,
    pub(super) gate: Option<Gate>,
    /// Dropped after the port is closed.
    pub(super) zero_copy: ZeroCopy,
    pub(super) stats: LinkStats,
}

/// The packet buffers of a link.
pub(super) struct LinkPool {
    pub(super) buffers: NonNull<dpdk_sys::rte_mempool>,
    /// Those for the next frames.
    pub(super) spare: SpareMbufs,
    /// What keeps them; goes after the port is closed. The pools of a port that is shared need nothing.
    pub(super) place: Option<PoolShare>,
    /// What its port is, where it is kept when the link goes.
    pub(super) lasting: Option<(Attachment, Facts)>,
    /// The thread that uses them.
    pub(super) thread: ThreadMark,
}

// SAFETY: a link is used by the thread that has it, and its pointers travel with it. They are to packet buffers that it alone has,
// to its pool, which any thread may take buffers from and return them to, and to memory that lives as long as it is attached. No
// function of DPDK that it calls is bound to a thread but the caches of pools, each of which is the calling thread's own. Packet
// buffers that were handed out stay where they are: `Mbuf` is not `Send`, and `LinkPool::note_thread` has the pool kept for ever
// where a second thread may have some.
unsafe impl Send for DpdkLink {}

impl LinkPool {
    /// This thread uses the buffers from here on, and may keep some. A thread that a link has moved to is none of DPDK's any more,
    /// each of which has a cache in every pool: it takes a buffer from the pool itself, which is slower, and returns it there, so
    /// that no cache keeps what another thread needs. Only the thread that started DPDK keeps its place.
    #[inline]
    fn note_thread(&mut self) {
        if self.thread != ThreadMark::current() {
            self.move_here();
        }
    }

    #[cold]
    fn move_here(&mut self) {
        self.thread = ThreadMark::current();
        eal::leave_thread();
        if let Some(place) = &self.place {
            place.note_thread();
        }
    }
}

/// What a link is, as long as it is open.
pub(super) struct LinkFacts {
    pub(super) mac: MacAddr,
    pub(super) max_frame: usize,
    /// Frames that are received at a time.
    pub(super) burst: u16,
    /// Marks of the device's for frames whose checksums are wrong.
    pub(super) suspicious: u64,
    pub(super) description: Description,
    /// Where it is a kernel's interface, this process's name on it.
    pub(super) _station: Option<Arc<InterfaceClaim>>,
}

impl DpdkLink {
    /// Sets the length in bytes from which payloads in attached memory are sent without a copy; `None` copies all. Call
    /// it before [`Link::attach`].
    pub fn zero_copy_from(&mut self, len: Option<usize>) {
        self.zero_copy.set_from(len);
    }

    /// Makes room in the transmit queue for one frame.
    #[inline]
    fn make_room(&mut self) -> Result<(), Full> {
        if self.tx.is_full() {
            self.flush();
            if self.tx.is_full() {
                self.stats.tx_full += 1;
                return Err(Full);
            }
        }
        Ok(())
    }

    /// Asks the port for its link's state.
    pub(super) fn look(&mut self) -> LinkState {
        let port = self.port;
        self.watch.state = match &self.claim {
            Some(claim) => claim.look(|| state_of(port)),
            None => state_of(port),
        };
        self.watch.state
    }

    /// What the device does for this link.
    pub fn description(&self) -> &Description {
        &self.facts.description
    }

    /// A frame that the device has received, unless it found it broken, or it is of a kind that is not taken.
    #[inline]
    pub(super) fn inspect(&mut self, frame: NonNull<dpdk_sys::rte_mbuf>) -> Option<Mbuf> {
        // SAFETY: the burst handed over a valid packet buffer.
        let (segments, flags) = unsafe { (frame.as_ref().nb_segs, frame.as_ref().ol_flags) };
        // SAFETY: it is ours alone.
        let mbuf = unsafe { Mbuf::from_raw(frame) };
        if flags & self.facts.suspicious != 0 && self.is_broken(flags, &mbuf) {
            return None;
        }
        if segments != 1 {
            self.stats.rx_fragmented += 1;
            return None;
        }
        Some(mbuf)
    }

    /// Whether the device has found a checksum wrong; the mark of that may also be half of "do not know". A UDP checksum
    /// that was left out is not wrong.
    #[cold]
    fn is_broken(&mut self, flags: u64, frame: &Mbuf) -> bool {
        let is_bad = |mask, bad| self.facts.suspicious & bad != 0 && flags & mask == bad;
        let ip = is_bad(dpdk_sys::RTE_MBUF_F_RX_IP_CKSUM_MASK, dpdk_sys::RTE_MBUF_F_RX_IP_CKSUM_BAD);
        let udp = !ip
            && is_bad(dpdk_sys::RTE_MBUF_F_RX_L4_CKSUM_MASK, dpdk_sys::RTE_MBUF_F_RX_L4_CKSUM_BAD)
            && !is_without_udp_checksum(frame.as_ref());
        self.stats.rx_ip_csum_errors += u64::from(ip);
        self.stats.rx_udp_csum_errors += u64::from(udp);
        ip || udp
    }

    /// Queues a frame, or hands it to an engine on this very port.
    #[inline]
    fn push(&mut self, mbuf: NonNull<dpdk_sys::rte_mbuf>) {
        if self.claim.is_some() && self.is_for_own_station(mbuf) {
            return self.with_claim(|link, claim| link.deliver_here(claim, mbuf));
        }
        self.tx.push(mbuf);
        if self.train.queue(frame_len(mbuf)) {
            self.flush();
        }
    }

    /// Runs `action` where this link shares its port.
    #[inline]
    fn with_claim(&mut self, action: impl FnOnce(&mut Self, &PortQueue)) {
        if let Some(claim) = self.claim.take() {
            action(self, &claim);
            self.claim = Some(claim);
        }
    }

    /// Gives frames that wait their payloads' bytes. A driver that copies reads a payload when it takes the frame, and of
    /// what it has left that would be in some later poll: by then an acknowledgement of the frame's twin, or a forged one,
    /// may have given the payload to an owner on another thread, who writes it. A frame without room for its bytes is lost.
    #[cold]
    fn keep_whole(&mut self) {
        for frame in std::mem::take(&mut self.tx) {
            // SAFETY: the frame was in the transmit queue, and ours.
            match self.in_one_piece(unsafe { Mbuf::from_raw(frame) }) {
                Some(whole) => self.tx.push(whole.into_raw()),
                None => self.stats.tx_full += 1,
            }
        }
    }

    /// A link that is down takes no frames: those that wait are lost, as on a cut cable.
    fn discard_queued(&mut self) {
        self.stats.tx_link_down += self.tx.len() as u64;
        for mbuf in self.tx.drain(..) {
            // SAFETY: the frame is in the transmit queue, and ours.
            drop(unsafe { Mbuf::from_raw(mbuf) });
        }
    }
}

impl Link for DpdkLink {
    type Frame = Mbuf;

    #[inline]
    fn now(&self) -> Nanos {
        self.clock.now()
    }

    fn max_frame(&self) -> usize {
        self.facts.max_frame
    }

    fn mac(&self) -> MacAddr {
        self.facts.mac
    }

    fn share(&self) -> Share {
        self.share
    }

    fn hears_management(&self) -> bool {
        self.claim.as_ref().is_none_or(PortQueue::is_steward)
    }

    fn receive_at_most(&mut self, frames: usize) {
        self.facts.burst = frames.clamp(1, BURST) as u16;
    }

    #[inline]
    fn receive(&mut self, batch: &mut Batch<Mbuf>) {
        self.train.look();
        if self.watch.is_down() {
            return;
        }
        self.pool.note_thread();
        if self.claim.is_some() {
            return self.with_claim(|link, claim| link.receive_shared(claim, batch));
        }
        let mut frames = [std::ptr::null_mut(); BURST];
        let room = self.facts.burst.min((BURST - batch.len()) as u16);
        let count = gated(self.gate.as_ref(), || {
            // SAFETY: the port is started, queue 0 is set up, this is the only thread that polls it, no disconnect can
            // run within the gate's burst, and `frames` holds at least `room` pointers.
            unsafe { dpdk_sys::roci_eth_rx_burst(self.port, 0, frames.as_mut_ptr(), room) }
        });
        for frame in frames.iter().take(count.into()).copied().filter_map(NonNull::new) {
            let Some(mbuf) = self.inspect(frame) else { continue };
            self.stats.rx_frames += 1;
            self.stats.rx_bytes += mbuf.as_ref().len() as u64;
            batch.push(mbuf);
        }
    }

    #[inline]
    fn transmit(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> Result<(), Full> {
        assert!(len <= self.facts.max_frame, "a frame of {len} bytes on a link that carries {}", self.facts.max_frame);
        self.make_room()?;
        // SAFETY: `pool.place` keeps the pool.
        let Some((mbuf, frame)) = (unsafe { self.pool.spare.allocate(self.pool.buffers, len) }) else {
            self.stats.tx_full += 1;
            return Err(Full);
        };
        fill(frame);
        self.push(mbuf);
        Ok(())
    }

    fn attach(&mut self, memory: Arc<dyn Lasting>) -> Result<(), ZeroCopyError> {
        self.zero_copy.attach(self.port, memory)
    }

    fn zero_copy_ranges(&self) -> Option<Box<dyn ZeroCopyRanges>> {
        self.zero_copy.ranges_of(self.port)
    }

    #[inline]
    fn is_zero_copy(&self, payload: &[u8], range: Option<u64>) -> bool {
        self.zero_copy.takes(payload, range)
    }

    #[inline]
    fn transmit_around(
        &mut self,
        head: usize,
        payload: &[u8],
        range: Option<u64>,
        tail: usize,
        fill: impl FnOnce(&mut [u8], &mut [u8]),
    ) -> Result<(), Full> {
        let len = head + payload.len() + tail;
        assert!(len <= self.facts.max_frame, "a frame of {len} bytes on a link that carries {}", self.facts.max_frame);
        self.make_room()?;
        let Some(Found { address, page, shared }) = self.zero_copy.find(payload, range) else {
            return self.transmit(len, |frame| fill_around(frame, head, payload, fill));
        };
        let start = payload.as_ptr().cast_mut().cast();
        let (head, payload, tail) = (head as u16, payload.len() as u16, tail as u16);
        // SAFETY: `pool.place` keeps the pool, whose buffers hold the longest frame, and so head and tail; the payload
        // lies in memory that the region of `shared` keeps mapped until the frame, which counts as its user from here
        // on, is freed. `page` is a power of two from 4096 on, as every `DmaMap`'s. A null result is handled.
        //
        // Who reads the payload later, and whether somebody may write it meanwhile:
        // - A driver that copies (`External::Copied`) does so on this thread, inside `flush`, and keeps nothing of what it
        //   has taken; `keep_whole` copies what it has left before `flush` returns. The engine flushes before its call
        //   returns or gives buffers away, so until then the payload has no other owner, and no other thread writes it.
        // - A device (`External::Mapped`) reads it at any time until the frame is freed, when the payload may have a next
        //   owner who writes it. That is no access of a thread of this program: the device gets bytes, old or new, the
        //   frame is damaged at most, and the receiver detects that by its ICRC. Its driver looks at addresses and
        //   lengths. One that puts the bytes of short frames into its descriptors (mlx5, some hundred bytes; none that
        //   we know to work) would read them in a later burst: there `zcopy_threshold` must stay above that, as it is
        //   by default.
        let frame = unsafe {
            dpdk_sys::roci_pktmbuf_around(self.pool.buffers.as_ptr(), head, start, address, payload, page, shared, tail)
        };
        let Some(frame) = NonNull::new(frame) else {
            self.stats.tx_full += 1;
            return Err(Full);
        };
        // SAFETY: a frame of three segments or more, fresh and ours: the first and the last lie in packet buffers of their
        // own, are as long as was asked for, and are initialised as in `transmit`.
        let (head, tail) = unsafe { (segment(frame, 0), segment(frame, usize::from(frame.as_ref().nb_segs) - 1)) };
        fill(head, tail);
        self.stats.tx_zero_copy += 1;
        self.push(frame);
        Ok(())
    }

    #[inline]
    fn flush(&mut self) {
        if self.tx.is_empty() {
            return;
        }
        self.train.offer();
        if self.watch.is_down() {
            self.discard_queued();
            return;
        }
        let count = self.tx.len() as u16;
        let bytes: u64 = self.tx.iter().map(|mbuf| frame_len(*mbuf)).sum();
        let frames = self.tx.as_mut_ptr().cast::<*mut dpdk_sys::rte_mbuf>();
        let sent = gated(self.gate.as_ref(), || {
            // SAFETY: the port is started, the queue is set up, this is the only thread that uses it, no disconnect can
            // run within the gate's burst; `tx` holds `count` packet buffers that we own (`NonNull<T>` is laid out as
            // `*mut T`). The driver owns the first `sent` of them from here on.
            unsafe { dpdk_sys::roci_eth_tx_burst(self.port, self.share.queue(), frames, count) }
        });
        self.tx.drain(..usize::from(sent.min(count)));
        let left: u64 = self.tx.iter().map(|mbuf| frame_len(*mbuf)).sum();
        self.stats.tx_bursts += u64::from(sent > 0);
        self.stats.tx_frames += u64::from(sent);
        self.stats.tx_bytes += bytes - left;
        if left > 0 && self.zero_copy.is_copied_by_driver() {
            self.keep_whole();
        }
    }

    #[inline]
    fn maintain(&mut self, now: Nanos) -> LinkState {
        if !self.watch.is_due(now) {
            return self.watch.state;
        }
        if let Some(gate) = &self.gate {
            gate.cycle();
        }
        let before = self.watch.state;
        let state = self.look();
        if state != before && self.hears_management() {
            self.watch.report();
        }
        state
    }

    fn stats(&self) -> LinkStats {
        self.stats
    }
}

impl Drop for DpdkLink {
    /// Stops the port, and closes it unless it is kept, while the gate is held, and before this side of it goes (a field, so dropped after
    /// this): the interrupt thread must not tear down what is being closed.
    fn drop(&mut self) {
        self.flush();
        self.watch.state = LinkState::Down;
        self.discard_queued();
        // The pool is looked at, whether all are there.
        self.pool.spare.give_back();
        if self.share != Share::WHOLE {
            // The port is not this link's: the last claim to it that is dropped closes it.
            return drop(self.claim.take());
        }
        let setup = Setup::begin();
        let Some(place) = self.pool.place.take() else { return configure::close(&setup, self.port) };
        match self.pool.lasting.take() {
            Some((attachment, facts)) => idle::keep(&setup, IdlePort { attachment, facts, place }),
            None => {
                configure::close(&setup, self.port);
                place.settle();
            }
        }
    }
}

/// Asks a port for its link's state.
fn state_of(port: u16) -> LinkState {
    // SAFETY: takes the number of a port and looks it up.
    if unsafe { dpdk_sys::roci_port_is_up(port) } { LinkState::Up } else { LinkState::Down }
}

/// Runs a burst; while the gate is open nothing is received, and what was to be sent waits.
#[inline]
fn gated(gate: Option<&Gate>, burst: impl FnOnce() -> u16) -> u16 {
    match gate {
        Some(gate) => gate.burst(burst).unwrap_or(0),
        None => burst(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::{Attachment, Device};
    use super::*;
    use crate::mem::Arena;

    const HEAD: usize = 60;
    const LEN: usize = 4096;
    const PATIENCE_NS: Nanos = 60_000_000_000;

    /// A port whose driver copies, with its ring full and frames left over, and the port at the other end.
    struct Jam {
        ends: Vec<DpdkLink>,
        frames: usize,
        _directory: tempfile::TempDir,
    }

    impl Jam {
        /// Sends the payload again and again until no frame finds room.
        fn of(payload: &[u8], memory: Arc<Arena>) -> Self {
            let directory = tempfile::TempDir::new().expect("a directory");
            let end = |is_server| {
                let mac = [2, 0, 0, 0, 0, 1 + u8::from(is_server)];
                Attachment::pair(Device::Memif, &directory.path().join("s"), is_server, mac)
            };
            let both = [end(false), end(true)];
            let mut ends = DpdkLink::open_all(&both, Duration::from_mins(1), &mut || false).expect("ports");
            ends[0].zero_copy_from(Some(1));
            ends[0].attach(memory).expect("it copies, and so may");
            assert!(ends[0].is_zero_copy(payload, None));
            let mut jam = Self { ends, frames: 0, _directory: directory };
            let mut refused = 0;
            // Another test may have opened the gate, which also takes nothing: that is over in a moment.
            while refused < 100 {
                let frame = jam.ends[0].transmit_around(HEAD, payload, None, 4, |head, _| head.fill(b'h'));
                match frame {
                    Ok(()) => (jam.frames, refused) = (jam.frames + 1, 0),
                    Err(Full) => refused += 1,
                }
                if refused > 0 {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            assert!(jam.ends[0].tx.is_full(), "the ring takes no more");
            jam
        }

        /// Receives all of them.
        fn payloads(&mut self) -> Vec<Vec<u8>> {
            let mut payloads = Vec::new();
            let deadline = self.ends[1].now() + PATIENCE_NS;
            while payloads.len() < self.frames {
                assert!(self.ends[1].now() < deadline, "{} of {} frames", payloads.len(), self.frames);
                let mut batch = Batch::new();
                self.ends[1].receive(&mut batch);
                payloads.extend(batch.iter().map(|frame| frame.as_ref()[HEAD..HEAD + LEN].to_vec()));
                self.ends[0].flush();
            }
            payloads
        }
    }

    #[test]
    fn no_more_frames_come_at_a_time_than_were_asked_for() {
        let arena = Arena::new(1 << 20).expect("memory");
        let payload = arena.buffer(LEN).expect("room");
        let mut jam = Jam::of(&payload, arena.clone());
        for most in [1, 8, 0, 1000] {
            jam.ends[1].receive_at_most(most);
            let mut batch = Batch::new();
            let deadline = jam.ends[1].now() + PATIENCE_NS;
            // Another test may have opened the gate: nothing comes for a moment.
            while batch.is_empty() && jam.ends[1].now() < deadline {
                jam.ends[1].receive(&mut batch);
            }
            assert_eq!(batch.len(), most.clamp(1, BURST), "at most {most}");
        }
    }

    #[test]
    fn what_waits_for_a_driver_that_copies_is_not_read_from_its_payload_after_a_flush() {
        let arena = Arena::new(1 << 20).expect("memory");
        let mut payload = arena.buffer(LEN).expect("room");
        payload.fill(b'o');
        let mut jam = Jam::of(&payload, arena.clone());
        // As its next owner would, once the queue pair has given it away.
        payload.fill(b'n');
        let is_whole = |payload: &Vec<u8>| payload.iter().all(|&byte| byte == b'o');
        assert!(jam.payloads().iter().all(is_whole), "the new bytes were sent");
        let stats = jam.ends[0].stats();
        assert_eq!((stats.tx_frames, stats.tx_zero_copy), (jam.frames as u64, jam.frames as u64));
    }
}
