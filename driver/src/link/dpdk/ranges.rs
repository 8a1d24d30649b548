//! Ranges of the application's memory that are registered with a device which reads memory itself.
//!
//! A range is found by its name alone, never by its addresses: the application may unmap it and have other memory there,
//! while the device keeps the old pages.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::external::Attached;
use crate::link::{ZeroCopyError, ZeroCopyRanges};

/// Ranges of the application's memory that frames of one port are sent from, by name.
pub(super) type Ranges = Arc<Mutex<BTreeMap<u64, Attached>>>;

/// The ranges themselves. The lock is for payloads long enough to leave without a copy, and the engine alone takes it.
pub(super) fn locked(ranges: &Ranges) -> MutexGuard<'_, BTreeMap<u64, Attached>> {
    ranges.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Attaches such ranges to a port.
#[derive(Debug)]
pub(super) struct PortRanges {
    pub(super) port: u16,
    pub(super) ranges: Ranges,
}

impl ZeroCopyRanges for PortRanges {
    fn attach(&mut self, name: u64, base: usize, len: usize) -> Result<(), ZeroCopyError> {
        let attached = Attached::of_range(self.port, name, base..base + len)?;
        locked(&self.ranges).insert(name, attached);
        Ok(())
    }

    fn detach(&mut self, name: u64) {
        locked(&self.ranges).remove(&name);
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::super::shared_map::TABLE;
    use super::super::{Attachment, Device, DpdkLink};
    use super::*;
    use crate::link::{Batch, Link};

    const PAGE: usize = 4096;

    /// memif copies a frame out of whatever segments it has; the table of memory, the windows and the frames are real.
    fn ports(directory: &std::path::Path) -> Vec<DpdkLink> {
        let end = |is_server| {
            let mac = [2, 0, 0, 0, 0, 1 + u8::from(is_server)];
            Attachment::pair(Device::Memif, &directory.join("s"), is_server, mac)
        };
        DpdkLink::open_all(&[end(false), end(true)], Duration::from_mins(1), &mut || false).expect("ports")
    }

    /// Takes the frame from the first to the second, as a poll loop does: a burst while the gate is open carries nothing.
    fn carry(links: &mut [DpdkLink]) -> Vec<u8> {
        let deadline = Instant::now() + Duration::from_secs(10);
        let mut batch = Batch::new();
        while batch.is_empty() {
            assert!(Instant::now() < deadline, "no frame");
            links[0].flush();
            links[1].maintain(links[1].now());
            links[1].receive(&mut batch);
        }
        batch[0].as_ref().to_vec()
    }

    /// Sends bytes of the range around which there are others, and returns the frame that arrives.
    fn through(links: &mut [DpdkLink], payload: &[u8], name: u64) -> Vec<u8> {
        assert!(links[0].is_zero_copy(payload, Some(name)));
        let fill = |head: &mut [u8], tail: &mut [u8]| {
            head.fill(b'h');
            tail.fill(b't');
        };
        links[0].transmit_around(60, payload, Some(name), 7, fill).expect("room");
        carry(links)
    }

    #[test]
    fn a_payload_is_whole_however_many_pages_it_touches() {
        let _alone = TABLE.lock().unwrap_or_else(PoisonError::into_inner);
        let directory = tempfile::TempDir::new().expect("a directory");
        let mut links = ports(directory.path());
        links[0].zero_copy_from(Some(1));
        let bytes: Vec<u8> = (0..5 * PAGE).map(|at| (at / 7) as u8).collect();
        let from = bytes.as_ptr().align_offset(PAGE);
        let pages = &bytes[from..from + 4 * PAGE];
        let mut port = PortRanges { port: links[0].port, ranges: links[0].zero_copy.ranges.clone() };
        let name = u64::MAX / 4;
        port.attach(name, pages.as_ptr().addr(), pages.len()).expect("a slot");
        let cases =
            [(0, 1), (0, PAGE), (5, PAGE), (PAGE - 1, 2), (PAGE, 1), (1, 2 * PAGE), (4095, PAGE + 2), (8192, 8192)];
        for (start, len) in cases {
            let payload = &pages[start..start + len];
            let frame = through(&mut links, payload, name);
            assert_eq!(frame.len(), 60 + len + 7, "{start} {len}");
            assert!(frame[..60].iter().all(|&byte| byte == b'h') && frame[60 + len..].iter().all(|&byte| byte == b't'));
            assert!(frame[60..60 + len] == *payload, "{start} {len}: the bytes differ");
        }
        assert_eq!(links[0].stats().tx_zero_copy, cases.len() as u64);
        port.detach(name);
        assert!(!links[0].is_zero_copy(&pages[..1], Some(name)));
        port.attach(name + 1, pages.as_ptr().addr(), pages.len()).expect("all frames have let it go");
    }
}
