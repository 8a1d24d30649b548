//! A link around a link that loses, repeats, holds back and corrupts the frames that it sends.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;

use roci_protocol::Nanos;
use roci_protocol::sim::{FaultInjector, Faults, Verdict};
use roci_protocol::wire::MacAddr;

use super::{Batch, FailedFrame, Full, Link, LinkState, LinkStats, Share, ZeroCopyError, ZeroCopyRanges, fill_around};
use crate::lasting::Lasting;
use crate::same_as_inner_link;

/// Frames held back at once; one more passes instead.
const HELD_LIMIT: usize = 64;
/// How long a frame is held back when no later frame passes it.
const HOLD_NS: Nanos = 200_000;

/// Injects faults on the way out, or nothing at all where it was given no plan.
pub struct Faulty<L> {
    inner: L,
    injector: Option<FaultInjector>,
    held: VecDeque<HeldFrame>,
    scratch: Vec<u8>,
    injected: u64,
}

/// A frame that is held back.
struct HeldFrame {
    frame: Vec<u8>,
    /// Later frames that still have to pass.
    frames: u8,
    until: Nanos,
}

impl<L: Link> Faulty<L> {
    /// A link without faults costs one predictable branch a frame.
    pub fn new(inner: L, faults: Option<Faults>, stream: u64) -> Self {
        let injector = faults.map(|faults| FaultInjector::new(faults, stream));
        Self { inner, injector, held: VecDeque::new(), scratch: Vec::new(), injected: 0 }
    }

    /// The link inside.
    pub fn inner(&self) -> &L {
        &self.inner
    }

    /// What happens to the next frame.
    fn throw(&mut self) -> Verdict {
        let verdict = self.injector.as_mut().map_or(Verdict::Pass, FaultInjector::throw);
        self.injected += u64::from(verdict != Verdict::Pass);
        verdict
    }

    fn transmit_as(&mut self, verdict: Verdict, len: usize, fill: impl FnOnce(&mut [u8])) -> Result<(), Full> {
        match verdict {
            Verdict::Pass => self.inner.transmit(len, fill)?,
            Verdict::Lose => {}
            Verdict::Corrupt(bit) => self.inner.transmit(len, |bytes| {
                fill(bytes);
                let bit = bit as usize % (len * 8);
                bytes[bit / 8] ^= 1 << (bit % 8);
            })?,
            Verdict::Duplicate => {
                self.scratch.resize(len, 0);
                fill(&mut self.scratch);
                self.inner.transmit(len, |bytes| bytes.copy_from_slice(&self.scratch))?;
                // The second copy is a courtesy of the fault: a full link may swallow it.
                let _ = self.inner.transmit(len, |bytes| bytes.copy_from_slice(&self.scratch));
            }
            Verdict::Hold(_) if self.held.len() == HELD_LIMIT => self.inner.transmit(len, fill)?,
            Verdict::Hold(frames) => {
                let mut frame = vec![0; len];
                fill(&mut frame);
                self.held.push_back(HeldFrame { frame, frames, until: self.inner.now() + HOLD_NS });
                return Ok(());
            }
        }
        self.let_pass();
        Ok(())
    }

    /// A frame has passed those that are held back.
    fn let_pass(&mut self) {
        self.held.iter_mut().for_each(|held| held.frames = held.frames.saturating_sub(1));
        self.release(0);
    }

    /// Sends the held frames whose time has come.
    fn release(&mut self, now: Nanos) {
        let due = |held: &HeldFrame| held.frames == 0 || held.until <= now;
        while let Some(at) = self.held.iter().position(due) {
            let frame = &self.held[at].frame;
            if self.inner.transmit(frame.len(), |bytes| bytes.copy_from_slice(frame)).is_err() {
                return;
            }
            self.held.remove(at);
        }
    }
}

impl<L: Link> Link for Faulty<L> {
    type Frame = L::Frame;

    #[inline]
    fn now(&self) -> Nanos {
        self.inner.now()
    }

    same_as_inner_link!();

    #[inline]
    fn receive(&mut self, batch: &mut Batch<L::Frame>) {
        self.inner.receive(batch);
    }

    #[inline]
    fn transmit(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> Result<(), Full> {
        if self.injector.is_none() {
            return self.inner.transmit(len, fill);
        }
        let verdict = self.throw();
        self.transmit_as(verdict, len, fill)
    }

    fn attach(&mut self, memory: Arc<dyn Lasting>) -> Result<(), ZeroCopyError> {
        self.inner.attach(memory)
    }

    fn zero_copy_ranges(&self) -> Option<Box<dyn ZeroCopyRanges>> {
        self.inner.zero_copy_ranges()
    }

    #[inline]
    fn is_zero_copy(&self, payload: &[u8], range: Option<u64>) -> bool {
        self.inner.is_zero_copy(payload, range)
    }

    /// A frame that something happens to is put together first.
    #[inline]
    fn transmit_around(
        &mut self,
        head: usize,
        payload: &[u8],
        range: Option<u64>,
        tail: usize,
        fill: impl FnOnce(&mut [u8], &mut [u8]),
    ) -> Result<(), Full> {
        if self.injector.is_none() {
            return self.inner.transmit_around(head, payload, range, tail, fill);
        }
        let verdict = self.throw();
        if verdict == Verdict::Pass {
            self.inner.transmit_around(head, payload, range, tail, fill)?;
            self.let_pass();
            return Ok(());
        }
        let len = head + payload.len() + tail;
        self.transmit_as(verdict, len, |frame| fill_around(frame, head, payload, fill))
    }

    #[inline]
    fn flush(&mut self) {
        self.inner.flush();
    }

    #[inline]
    fn maintain(&mut self, now: Nanos) -> LinkState {
        if !self.held.is_empty() {
            self.release(now);
            self.inner.flush();
        }
        self.inner.maintain(now)
    }

    fn stats(&self) -> LinkStats {
        LinkStats { injected_faults: self.injected, ..self.inner.stats() }
    }
}

#[cfg(test)]
mod tests {
    use super::super::sim::{Clock, SimLink};
    use super::*;

    fn send_through(faults: Faults, count: u8) -> Vec<u8> {
        let clock = Clock::default();
        let (near, mut far) = SimLink::pair(&clock);
        let mut near = Faulty::new(near, Some(faults), 0);
        for number in 0..count {
            near.transmit(1, |bytes| bytes[0] = number).expect("the wire has room");
        }
        clock.advance(HOLD_NS);
        near.maintain(near.now());
        near.flush();
        let mut arrived = Vec::new();
        loop {
            let mut batch = Batch::new();
            far.receive(&mut batch);
            if batch.is_empty() {
                return arrived;
            }
            arrived.extend(batch.iter().map(|frame| frame[0]));
        }
    }

    #[test]
    fn loss_loses_and_duplication_repeats() {
        assert!(send_through(Faults { loss: 1.0, ..Faults::default() }, 10).is_empty());
        let twice = send_through(Faults { dup: 1.0, ..Faults::default() }, 3);
        assert_eq!(twice, [0, 0, 1, 1, 2, 2]);
    }

    #[test]
    fn reordering_changes_the_order_and_loses_nothing() {
        let mut arrived = send_through(Faults { reorder: 0.3, seed: 3, ..Faults::default() }, 100);
        assert!(!arrived.is_sorted());
        arrived.sort_unstable();
        assert!(arrived.into_iter().eq(0..100));
    }

    #[test]
    fn corruption_flips_one_bit() {
        let arrived = send_through(Faults { corrupt: 1.0, ..Faults::default() }, 20);
        assert!(arrived.iter().zip(0u8..).all(|(got, sent)| (got ^ sent).is_power_of_two()));
    }
}
