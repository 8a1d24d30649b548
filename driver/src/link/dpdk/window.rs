//! Addresses for a device alone.
//!
//! A range of the application's may share pages with another one that a device knows, or lie where such a one lay before
//! the application unmapped it. So a device cannot name it as the process does: the IOMMU has one page for an address,
//! and DPDK takes the refusal of a second one for a map that is there already. What nothing else in the process can have
//! is an address that is taken in the process and holds nothing.

use std::ops::Range;

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// Bytes that an IOMMU can map by one entry, where they lie equally in both address spaces.
const HUGE: usize = 2 << 20;

/// A stretch of the process's addresses that nothing lies at, as long as the value lives: neither packet buffers nor an
/// arena, whose own addresses a device uses, nor another window.
pub(super) struct Window {
    reserved: Range<usize>,
    start: usize,
}

impl Window {
    /// One that is as long as `range`, and lies in huge pages as `range` does.
    pub(super) fn for_range(range: &Range<usize>) -> Result<Self, Errno> {
        let slack = if range.len() < HUGE { 0 } else { HUGE };
        let len = range.len().checked_add(slack).ok_or(Errno::NOMEM)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: without MAP_FIXED the kernel chooses a free place; what is there then (PROT_NONE) may not be
        // accessed, and no reference to it is made.
        let base = unsafe { mmap_anonymous(std::ptr::null_mut(), len, ProtFlags::empty(), flags) }?.addr();
        let shift = range.start.wrapping_sub(base) & slack.saturating_sub(1);
        Ok(Self { reserved: base..base + len, start: base + shift })
    }

    /// The device's address of its first byte.
    pub(super) fn start(&self) -> u64 {
        self.start as u64
    }

    /// Takes the addresses for good: a device may know them still.
    pub(super) fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        let base = std::ptr::without_provenance_mut(self.reserved.start);
        // SAFETY: exactly what `for_range` mapped, which nothing points into: it is only numbers to a device, which has
        // forgotten them. A failure leaves the addresses taken, and no harm done.
        let _ = unsafe { munmap(base, self.reserved.len()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: usize = 4096;

    /// The mappings' permissions at these addresses, first to last.
    fn permissions(range: &Range<usize>) -> Vec<String> {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("procfs");
        let lies_here = |line: &&str| {
            let ends = line.split_once(' ').and_then(|(range, _)| range.split_once('-')).expect("a range");
            let [from, to] = [ends.0, ends.1].map(|end| usize::from_str_radix(end, 16).expect("an address"));
            from < range.end && range.start < to
        };
        let permissions = |line: &str| line.split_whitespace().nth(1).map(str::to_owned);
        maps.lines().filter(lies_here).filter_map(permissions).collect()
    }

    #[test]
    fn windows_of_ranges_that_overlap_do_not() {
        let ranges = [0x1000_0000..0x1000_5000, 0x1000_4000..0x1000_9000, 0x1000_0000..0x1000_9000];
        let windows = ranges.each_ref().map(|range| Window::for_range(range).expect("addresses"));
        let ours = |index: usize| {
            let start = windows[index].start() as usize;
            start..start + ranges[index].len()
        };
        for (one, other) in [(0, 1), (0, 2), (1, 2)] {
            assert!(ours(one).end <= ours(other).start || ours(other).end <= ours(one).start);
        }
        for index in 0..3 {
            assert_eq!(permissions(&ours(index)), ["---p"], "reserved addresses, and nothing there");
        }
    }

    #[test]
    fn huge_pages_lie_in_a_window_as_they_do_in_memory() {
        for start in [0x7f00_0000_0000, 0x7f00_0000_1000, 0x7f00_001f_f000] {
            for len in [HUGE, HUGE + PAGE, 3 * HUGE] {
                let window = Window::for_range(&(start..start + len)).expect("addresses");
                let at = window.start() as usize;
                assert_eq!(at % HUGE, start % HUGE);
                assert!(window.reserved.start <= at && at + len <= window.reserved.end);
            }
        }
    }

    #[test]
    fn what_is_too_long_is_refused() {
        assert_eq!(Window::for_range(&(0..1 << 60)).err(), Some(Errno::NOMEM));
        assert_eq!(Window::for_range(&(0..usize::MAX)).err(), Some(Errno::NOMEM));
    }
}
