//! Packets that arrived out of order and wait for their turn (the out-of-order buffer), as copies: a link needs no buffers for them, and what loses nothing
//! costs nothing.
//!
//! No queue pair can take all of it: one may keep another packet while it keeps fewer than are still free (Choudhury
//! and Hahne's dynamic threshold, IEEE/ACM ToN 1998). One alone gets half of the places, two a third each, and one more
//! finds some free whatever the others do. What waits in vain gives its place back.

use std::collections::BTreeMap;

use roci_protocol::rc::Held;
use roci_protocol::{Nanos, Qpn};

/// Packets that an engine keeps, and their bytes.
const LIMIT: usize = 4096;
const LIMIT_BYTES: usize = 16 << 20;
/// How often it is looked whether packets wait in vain.
const SWEEP_NS: Nanos = 10_000_000;
/// A gap is given up after so many timeouts of its connection, within these bounds.
const PATIENCE_TIMEOUTS: Nanos = 4;
const PATIENCE_NS: std::ops::RangeInclusive<Nanos> = SWEEP_NS..=1_000_000_000;

/// What all queue pairs of an engine keep.
#[derive(Default)]
pub(super) struct HeldPackets {
    holders: BTreeMap<Qpn, Holder>,
    len: usize,
    bytes: usize,
    next_sweep: Nanos,
}

/// What one queue pair keeps.
#[derive(Default)]
struct Holder {
    packets: BTreeMap<Held, Box<[u8]>>,
    /// Sweeps since a packet's turn came.
    sweeps: u64,
}

impl HeldPackets {
    /// Keeps a packet, from the BTH to the ICRC; `false` where its queue pair keeps as many as it may.
    pub(super) fn keep(&mut self, qpn: Qpn, held: Held, transport: &[u8]) -> bool {
        let own = self.holders.get(&qpn).map_or(0, |holder| holder.packets.len());
        if own >= LIMIT - self.len || self.bytes + transport.len() > LIMIT_BYTES {
            return false;
        }
        self.release(qpn, held);
        self.holders.entry(qpn).or_default().packets.insert(held, transport.into());
        self.len += 1;
        self.bytes += transport.len();
        true
    }

    /// A packet that is kept.
    pub(super) fn get(&self, qpn: Qpn, held: Held) -> Option<&[u8]> {
        self.holders.get(&qpn)?.packets.get(&held).map(AsRef::as_ref)
    }

    /// Takes a packet whose turn has come.
    pub(super) fn take(&mut self, qpn: Qpn, held: Held) -> Option<Box<[u8]>> {
        let packet = self.release(qpn, held)?;
        if let Some(holder) = self.holders.get_mut(&qpn) {
            holder.sweeps = 0;
        }
        Some(packet)
    }

    /// Takes a packet that is not wanted any more.
    pub(super) fn release(&mut self, qpn: Qpn, held: Held) -> Option<Box<[u8]>> {
        let holder = self.holders.get_mut(&qpn)?;
        let packet = holder.packets.remove(&held)?;
        if holder.packets.is_empty() {
            self.holders.remove(&qpn);
        }
        self.len -= 1;
        self.bytes -= packet.len();
        Some(packet)
    }

    /// The queue pair is gone, or gives up, and what it kept with it.
    pub(super) fn forget(&mut self, qpn: Qpn) {
        if let Some(Holder { packets, .. }) = self.holders.remove(&qpn) {
            self.len -= packets.len();
            self.bytes -= packets.values().map(|packet| packet.len()).sum::<usize>();
        }
    }

    /// Asserts what holds between any two calls; `is_there` returns whether a queue pair exists.
    pub(super) fn check(&self, is_there: impl Fn(Qpn) -> bool) {
        let packets = || self.holders.values().flat_map(|holder| holder.packets.values());
        assert_eq!(self.len, packets().count(), "packets that are kept are counted");
        assert_eq!(self.bytes, packets().map(|packet| packet.len()).sum::<usize>(), "and so are their bytes");
        assert!(self.len <= LIMIT && self.bytes <= LIMIT_BYTES, "more is kept than there is room for");
        for (&qpn, holder) in &self.holders {
            assert!(is_there(qpn) && !holder.packets.is_empty(), "packets are kept for a queue pair that is gone");
        }
    }

    /// Whether it is time to look for packets that wait in vain.
    #[inline]
    pub(super) const fn wants_sweep(&self, now: Nanos) -> bool {
        self.len > 0 && self.next_sweep <= now
    }

    /// The queue pairs whose packets have waited too long; `timeout_of` returns a connection's timeout, 0 for none.
    pub(super) fn sweep(&mut self, now: Nanos, timeout_of: impl Fn(Qpn) -> Nanos) -> Vec<Qpn> {
        self.next_sweep = now + SWEEP_NS;
        let mut expired = Vec::new();
        for (&qpn, holder) in &mut self.holders {
            holder.sweeps += 1;
            let timeout = match timeout_of(qpn) {
                0 => *PATIENCE_NS.end(),
                timeout => timeout,
            };
            let patience = timeout.saturating_mul(PATIENCE_TIMEOUTS).clamp(*PATIENCE_NS.start(), *PATIENCE_NS.end());
            if holder.sweeps * SWEEP_NS > patience {
                expired.push(qpn);
            }
        }
        expired
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Qpn = Qpn::new(1);
    const OTHER: Qpn = Qpn::new(2);

    #[test]
    fn packets_are_kept_by_queue_pair_and_name() {
        let mut held = HeldPackets::default();
        assert!(held.keep(ONE, Held::Request(7), b"a"));
        assert!(held.keep(ONE, Held::Response(7), b"b"));
        assert!(held.keep(OTHER, Held::Request(7), b"c"));
        assert_eq!(held.get(ONE, Held::Request(7)), Some(&b"a"[..]));
        assert_eq!(held.take(ONE, Held::Request(7)).as_deref(), Some(&b"a"[..]));
        assert_eq!(held.take(ONE, Held::Request(7)), None);
        held.forget(ONE);
        assert_eq!(held.take(ONE, Held::Response(7)), None);
        assert_eq!(held.take(OTHER, Held::Request(7)).as_deref(), Some(&b"c"[..]));
        assert!(held.len == 0 && held.bytes == 0 && held.holders.is_empty());
    }

    #[test]
    fn the_last_queue_pair_finds_a_place_whatever_the_others_keep() {
        let mut held = HeldPackets::default();
        for holder in 1..=8 {
            let kept = (0..LIMIT as u32).filter(|&psn| held.keep(Qpn::new(holder), Held::Request(psn), b"x")).count();
            assert_eq!(kept, LIMIT >> holder, "half of what is free");
        }
        held.forget(ONE);
        assert!(held.keep(Qpn::new(9), Held::Request(0), b"x"));
    }

    #[test]
    fn bytes_are_bounded_too() {
        let mut held = HeldPackets::default();
        let packet = vec![0; LIMIT_BYTES / 4];
        assert!((0..4).all(|psn| held.keep(ONE, Held::Request(psn), &packet)));
        assert!(!held.keep(OTHER, Held::Request(0), b"x"));
    }

    #[test]
    fn what_waits_in_vain_for_some_timeouts_expires_and_progress_gives_more_time() {
        let mut held = HeldPackets::default();
        held.keep(ONE, Held::Request(7), b"x");
        held.keep(ONE, Held::Request(8), b"x");
        let sweep = |held: &mut HeldPackets, at: u64| held.sweep(at * SWEEP_NS, |_| 2 * SWEEP_NS);
        assert!(held.wants_sweep(0));
        assert!((0..8).all(|at| sweep(&mut held, at).is_empty()));
        assert!(!held.wants_sweep(8 * SWEEP_NS - 1));
        held.take(ONE, Held::Request(7));
        assert!((8..16).all(|at| sweep(&mut held, at).is_empty()));
        assert_eq!(sweep(&mut held, 16), [ONE]);
    }
}
