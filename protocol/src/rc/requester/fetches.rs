//! The READs and atomics that are in flight, and the READ that was asked for again.

use std::collections::VecDeque;

use crate::Psn;
use crate::rc::Config;
use crate::rc::congestion::Algorithm;

/// A READ between two ends of ours is sent in parts of an eighth of the window, or of more where fewer READs may be in
/// flight: so the window, and with it congestion control, bounds its answers, and a lost one holds up little.
const PART_SHIFT: u32 = 3;
/// But a part is of so many bytes, if that is no more of the window than [`MOST_OF_WINDOW`]; not where delays change the window, because
/// a part waits until there is room for all of it, and what large ones leave of such a window is idle. UDP sockets send and receive the
/// answers to it at once, as a train of packets of one length. With parts of 16 KiB, which are an eighth of a window of 1-KiB packets,
/// READs were half as fast as WRITEs there. With two of 64 KiB the next one is asked for when all of one has come, and the
/// answering end is idle meanwhile: a tenth slower.
const PART_BYTES: u32 = 48 << 10;
/// Eighths of a window that a part of [`PART_BYTES`] takes at most: then the next one leaves before the last of two is answered.
const MOST_OF_WINDOW: u32 = 3;

/// A READ or an atomic as it was sent: the PSNs of its answers. A long READ is sent as several between two ends of ours.
#[derive(Clone, Copy, Debug)]
pub(in crate::rc) struct Fetch {
    pub(in crate::rc) first: Psn,
    pub(in crate::rc) end: Psn,
}

impl Fetch {
    /// Whether `psn` is one of its answers.
    pub(in crate::rc) fn contains(&self, psn: Psn) -> bool {
        !psn.before(self.first) && psn.before(self.end)
    }
}

/// READs and atomics sent and not complete, in the order of their PSNs.
#[derive(Clone, Debug)]
pub(in crate::rc) struct Fetches {
    in_flight: VecDeque<Fetch>,
    /// A READ was asked for again: later responses of the first stream are stale, not a new gap.
    rereading: bool,
    /// Where a READ was asked for from its middle on, last: its answers begin with FIRST there, even if the cursor has gone
    /// back once more before they came.
    reread_from: Psn,
    /// A READ is sent in parts of the window's size shifted by so much.
    part_shift: u32,
    /// Or of so many packets.
    part_packets: u32,
}

impl Fetches {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            in_flight: VecDeque::new(),
            rereading: false,
            reread_from: config.sq_psn,
            part_shift: config.max_rd_atomic.max(1).ilog2().min(PART_SHIFT),
            part_packets: if config.congestion == Algorithm::Delay { 0 } else { PART_BYTES >> config.mtu.shift() },
        }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.in_flight.is_empty()
    }

    #[inline]
    pub(in crate::rc) fn len(&self) -> usize {
        self.in_flight.len()
    }

    pub(in crate::rc) fn iter(&self) -> impl Iterator<Item = &Fetch> {
        self.in_flight.iter()
    }

    /// The one that waits for the answer `psn`.
    pub(in crate::rc) fn waiting_for(&self, psn: Psn) -> Option<&Fetch> {
        self.in_flight.iter().find(|fetch| fetch.contains(psn))
    }

    /// How many packets of a window a part of a READ may be.
    pub(super) fn largest_part(&self, window: u32) -> u32 {
        (window >> self.part_shift).max(self.part_packets.min(window / 8 * MOST_OF_WINDOW)).max(1)
    }

    /// A READ or an atomic leaves, at its beginning or from its middle on.
    pub(super) fn push(&mut self, fetch: Fetch, is_first: bool) {
        self.in_flight.push_back(fetch);
        if !is_first {
            self.reread_from = fetch.first;
        }
    }

    /// Forgets those that are answered in full: everything before `una` is.
    #[inline]
    pub(super) fn forget_before(&mut self, una: Psn) {
        if !self.in_flight.is_empty() {
            self.forget_answered(una);
        }
    }

    fn forget_answered(&mut self, una: Psn) {
        while self.in_flight.front().is_some_and(|fetch| !una.before(fetch.end)) {
            self.in_flight.pop_front();
        }
    }

    /// Forgets those that will be sent again, from `psn` on.
    pub(super) fn rewind(&mut self, psn: Psn) {
        while self.in_flight.back().is_some_and(|fetch| psn.before(fetch.end)) {
            self.in_flight.pop_back();
        }
    }

    /// Whether answers may begin with FIRST at `psn`, in the middle of their READ.
    pub(in crate::rc) fn is_reread_from(&self, psn: Psn) -> bool {
        psn == self.reread_from
    }

    #[inline]
    pub(super) const fn is_rereading(&self) -> bool {
        self.rereading
    }

    /// A READ is asked for again, until an answer comes or a timeout.
    pub(super) fn begin_rereading(&mut self) {
        self.rereading = true;
    }

    #[inline]
    pub(super) fn end_rereading(&mut self) {
        self.rereading = false;
    }

    /// Forgets all that are in flight.
    pub(super) fn clear(&mut self) {
        self.in_flight.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Mtu;

    #[test]
    fn a_part_is_of_a_share_of_the_window_or_of_48_kib() {
        let part = |mtu: Mtu, max_rd_atomic: usize, window: u32| {
            Fetches::new(&Config { mtu, max_rd_atomic, ..Config::default() }).largest_part(window)
        };
        let of_delay = Fetches::new(&Config { congestion: Algorithm::Delay, mtu: Mtu::Mtu1024, ..Config::default() });
        assert_eq!([1, 31, 128, 512].map(|window| of_delay.largest_part(window)), [1, 3, 16, 64]);
        let parts = [1, 2, 31, 128, 512, 4096].map(|window| part(Mtu::Mtu1024, 16, window));
        assert_eq!(parts, [1, 1, 9, 48, 64, 512]);
        let parts = [1, 2, 31, 128, 512, 4096].map(|window| part(Mtu::Mtu4096, 16, window));
        assert_eq!(parts, [1, 1, 9, 16, 64, 512]);
        assert_eq!((part(Mtu::Mtu4096, 1, 128), part(Mtu::Mtu4096, 2, 128), part(Mtu::Mtu256, 1, 128)), (128, 64, 128));
    }
}
