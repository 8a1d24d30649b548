//! The data path of a shared port: frames that come in at one engine's queue, and reach the one that they are for.

use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use super::super::mbuf::{Mbuf, allocate, segment};
use super::super::port::DpdkLink;
use super::steer::{Addressee, addressee};
use super::{PortQueue, SharedPort};
use crate::link::{BURST, Batch, LinkStats, Share};

/// Frames that others have handed over, of those that one call receives: half, so that neither stream starves the other.
const TAKEN_OVER: usize = BURST / 2;

impl DpdkLink {
    /// Appends what others have handed over, what came in at this engine's queue, and at those that no engine has.
    #[inline(never)]
    pub(in super::super) fn receive_shared(&mut self, claim: &PortQueue, batch: &mut Batch<Mbuf>) {
        let shared = &*claim.shared;
        let handover = &shared.queues[usize::from(claim.queue)].handover;
        let limit = (batch.len() + TAKEN_OVER).min(BURST);
        while !handover.is_empty() && batch.len() < limit {
            let Some(frame) = handover.take() else { break };
            self.stats.rx_taken_over += 1;
            self.stats.rx_frames += 1;
            self.stats.rx_bytes += frame.as_ref().len() as u64;
            batch.push(frame);
        }
        self.sort_burst(claim, claim.queue, batch);
        if shared.free.load(Ordering::Relaxed) > 0 {
            for (queue, place) in (0..).zip(&shared.queues) {
                place.foster(|| self.sort_burst(claim, queue, batch));
            }
        }
    }

    /// Receives at a queue, and hands over what is for others.
    fn sort_burst(&mut self, claim: &PortQueue, queue: u16, batch: &mut Batch<Mbuf>) {
        let mut frames = [std::ptr::null_mut(); BURST];
        let room = self.facts.burst.min((BURST - batch.len()) as u16);
        if room == 0 {
            return;
        }
        // SAFETY: the port is started and the queue is set up; it is this engine's, or no engine's and fostered by this
        // one alone, so that no other thread polls it; `frames` holds at least `room` pointers.
        let count = unsafe { dpdk_sys::roci_eth_rx_burst(self.port, queue, frames.as_mut_ptr(), room) };
        for frame in frames.iter().take(count.into()).copied().filter_map(NonNull::new) {
            let Some(frame) = self.inspect(frame) else { continue };
            let to = addressee(frame.as_ref());
            if to == Addressee::Everyone {
                self.tell_others(claim, frame.as_ref());
            }
            match claim.shared.recipient(to, self.share) {
                Some(other) if other != claim.queue => {
                    let is_taken = claim.shared.queues[usize::from(other)].handover.give(frame);
                    count_given(&mut self.stats, is_taken);
                }
                // A queue pair of no other engine is answered here, or counted as unknown.
                _ => {
                    self.stats.rx_frames += 1;
                    self.stats.rx_bytes += frame.as_ref().len() as u64;
                    batch.push(frame);
                }
            }
        }
    }

    /// Every other engine gets a copy: a short frame, and a rare one.
    #[cold]
    fn tell_others(&mut self, claim: &PortQueue, frame: &[u8]) {
        for (queue, place) in (0..).zip(&claim.shared.queues) {
            if queue != claim.queue && place.is_held() {
                let copy = self.copy(frame.len(), |bytes| bytes.copy_from_slice(frame));
                let is_taken = copy.is_some_and(|copy| place.handover.give(copy));
                count_given(&mut self.stats, is_taken);
            }
        }
    }

    /// Whether a frame is for this very station, and so for an engine on this port.
    #[inline]
    pub(in super::super) fn is_for_own_station(&self, frame: NonNull<dpdk_sys::rte_mbuf>) -> bool {
        // SAFETY: the frame was made by this link, has a first segment that was filled, and is ours alone.
        let head = unsafe { segment(frame, 0) };
        head.get(..6) == Some(&self.facts.mac.0)
    }

    /// Hands a frame for this station to the engine that it is for. A full ring loses it, as a wire would: the other engine
    /// may not poll for long, and must not hold up what is for the network.
    pub(in super::super) fn deliver_here(&mut self, claim: &PortQueue, frame: NonNull<dpdk_sys::rte_mbuf>) {
        // SAFETY: the frame was made by this link and not queued: it is ours alone.
        let frame = unsafe { Mbuf::from_raw(frame) };
        self.stats.tx_own_station += 1;
        let Some(frame) = self.in_one_piece(frame) else {
            self.stats.handover_lost += 1;
            return;
        };
        let to = claim.shared.recipient(addressee(frame.as_ref()), self.share).unwrap_or(claim.queue);
        let is_taken = claim.shared.queues[usize::from(to)].handover.give(frame);
        self.stats.handover_lost += u64::from(!is_taken);
    }

    /// The frame, or a copy where its payload lies elsewhere: memory is attached to this link alone.
    pub(in super::super) fn in_one_piece(&self, frame: Mbuf) -> Option<Mbuf> {
        let len = frame.len();
        if len == frame.as_ref().len() {
            return Some(frame);
        }
        self.copy(len, |bytes| frame.read(bytes))
    }

    fn copy(&self, len: usize, fill: impl FnOnce(&mut [u8])) -> Option<Mbuf> {
        // SAFETY: the pool lives as long as the link.
        let (copy, bytes) = unsafe { allocate(self.pool.buffers, len) }?;
        fill(bytes);
        // SAFETY: the buffer is fresh and ours.
        Some(unsafe { Mbuf::from_raw(copy) })
    }
}

impl SharedPort {
    /// The queue of the engine that a frame is for; `None` where there is no such engine.
    #[inline]
    fn recipient(&self, to: Addressee, share: Share) -> Option<u16> {
        match to {
            Addressee::Owner(qpn) => {
                let owner = share.owner(qpn);
                self.queues.get(usize::from(owner)).is_some_and(|queue| queue.is_held()).then_some(owner)
            }
            Addressee::Steward => Some(self.steward.load(Ordering::Relaxed)),
            Addressee::Everyone => None,
        }
    }
}

fn count_given(stats: &mut LinkStats, is_taken: bool) {
    if is_taken {
        stats.rx_handed_over += 1;
    } else {
        stats.handover_lost += 1;
    }
}
