//! One map for all ports of a process to which the same memory is attached.
//!
//! vfio puts all devices of a process behind one map, and DPDK's table has one entry for a piece of memory: a second
//! port would be refused the entry, and the first port to close would take the map from under the other. So the ports
//! share it, and the last to go undoes it. Memory that each of them keeps mapped is shared by its addresses, which hold the
//! same for all; a range of the application's, which may be unmapped, by its name.

use std::collections::BTreeMap;
use std::ops::{Deref, Range};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::device::External;
use super::dma_map::DmaMap;
use crate::lasting::Lasting;
use crate::link::ZeroCopyError;

/// By base and length, or by a range's name.
static MAPS: Mutex<BTreeMap<(usize, usize), Weak<DmaMap>>> = Mutex::new(BTreeMap::new());

/// Tests that count the entries of DPDK's table, or need one, run one at a time.
#[cfg(test)]
pub(super) static TABLE: Mutex<()> = Mutex::new(());

/// A share in a map.
pub(super) struct SharedMap {
    /// `None` only while it is dropped.
    map: Option<Arc<DmaMap>>,
    key: (usize, usize),
}

impl SharedMap {
    /// The map of this memory, which is made where there is none.
    ///
    /// # Safety
    /// The memory stays mapped until the value is dropped.
    pub(super) unsafe fn of(port: u16, external: External, memory: &dyn Lasting) -> Result<Self, ZeroCopyError> {
        let key = (memory.base() as usize, memory.len());
        // SAFETY: the caller's promise; a map that is shared is not dropped before the last share.
        let make = || unsafe { DmaMap::new(port, external, memory) }.map(Arc::new);
        if external != External::Mapped {
            return Ok(Self { map: Some(make()?), key });
        }
        Self::shared(key, make)
    }

    /// The map of a range whose pages the device keeps. Its name is one that no other range of the process ever had: at
    /// its addresses there may have been other memory, which a device still keeps.
    pub(super) fn of_range(port: u16, name: u64, range: Range<usize>) -> Result<Self, ZeroCopyError> {
        // No memory that is kept mapped begins at an odd address.
        let key = (2 * name as usize + 1, range.len());
        Self::shared(key, || DmaMap::of_kept_pages(port, range).map(Arc::new))
    }

    fn shared(
        key: (usize, usize),
        make: impl FnOnce() -> Result<Arc<DmaMap>, ZeroCopyError>,
    ) -> Result<Self, ZeroCopyError> {
        let mut maps = lock();
        let map = match maps.get(&key).and_then(Weak::upgrade) {
            Some(map) => map,
            None => make()?,
        };
        maps.insert(key, Arc::downgrade(&map));
        Ok(Self { map: Some(map), key })
    }
}

impl Deref for SharedMap {
    type Target = DmaMap;

    #[inline]
    fn deref(&self) -> &DmaMap {
        self.map.as_ref().expect("it is not being dropped")
    }
}

impl Drop for SharedMap {
    /// Under the lock: the same memory is registered again only after this has unregistered it.
    fn drop(&mut self) {
        let mut maps = lock();
        self.map = None;
        if maps.get(&self.key).is_some_and(|map| map.strong_count() == 0) {
            maps.remove(&self.key);
        }
    }
}

/// A panic under the lock leaves an entry that leads to no map, or a map without an entry, which DPDK refuses to make
/// again.
fn lock() -> MutexGuard<'static, BTreeMap<(usize, usize), Weak<DmaMap>>> {
    MAPS.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    //! Over the bus of virtual devices, which takes every map: DPDK's table is the real one.

    use std::path::Path;
    use std::time::Duration;

    use memmap2::{MmapOptions, MmapRaw};

    use super::super::{Attachment, Device, DpdkLink};
    use super::*;

    const PAGE: usize = 4096;

    struct Memory {
        map: MmapRaw,
        page: usize,
    }

    // SAFETY: the mapping is owned, and that long.
    unsafe impl Lasting for Memory {
        fn base(&self) -> *const u8 {
            self.map.as_ptr()
        }

        fn len(&self) -> usize {
            self.map.len()
        }

        fn page_size(&self) -> usize {
            self.page
        }

        fn is_pinned(&self) -> bool {
            false
        }
    }

    fn memory(pages: usize, page: usize) -> Memory {
        Memory { map: MmapOptions::new().len(pages * PAGE).map_anon().expect("memory").into(), page }
    }

    /// Two ports, whose devices are asked to map what they would only copy.
    fn ports(directory: &Path) -> Vec<DpdkLink> {
        let end = |is_server| {
            let mac = [2, 0, 0, 0, 0, 1 + u8::from(is_server)];
            Attachment::pair(Device::Memif, &directory.join("s"), is_server, mac)
        };
        DpdkLink::open_all(&[end(false), end(true)], Duration::from_mins(1), &mut || false).expect("ports")
    }

    fn map(link: &DpdkLink, memory: &Memory) -> Result<SharedMap, ZeroCopyError> {
        // SAFETY: the tests keep the memory longer than the map.
        unsafe { SharedMap::of(link.port, External::Mapped, memory) }
    }

    fn refusal(link: &DpdkLink, memory: &Memory) -> Option<ZeroCopyError> {
        map(link, memory).err()
    }

    #[test]
    fn memory_is_known_to_dpdk_once_for_all_ports_and_not_longer_than_somebody_needs_it() {
        let _alone = TABLE.lock().unwrap_or_else(PoisonError::into_inner);
        let directory = tempfile::TempDir::new().expect("a directory");
        let links = ports(directory.path());
        let ours = memory(16, PAGE);
        let key = (ours.base() as usize, ours.len());
        let [first, second] = [0, 1].map(|index| map(&links[index], &ours).expect("a slot"));
        drop(first);
        assert_eq!(second.address_of(key.0 + 5, key.1 - 5), Some(key.0 as u64 + 5), "the device uses our addresses");
        // SAFETY: the memory stays mapped until the value is dropped, which is at once.
        let again = unsafe { DmaMap::new(links[0].port, External::Mapped, &ours) };
        assert!(matches!(again.err(), Some(ZeroCopyError::Refused { .. })), "it is known still");
        drop(second);
        assert!(!lock().contains_key(&key));
        drop(map(&links[0], &ours).expect("it is forgotten"));
        assert!(matches!(refusal(&links[0], &memory(1, 3)), Some(ZeroCopyError::Unaligned { .. })));
        a_range_is_shared_by_its_name_and_by_nothing_else(&links, &ours);
        ranges_may_share_pages(&links, &ours);
        a_full_table_is_reported_and_empties_again(&links[0]);
    }

    fn a_range_is_shared_by_its_name_and_by_nothing_else(links: &[DpdkLink], memory: &Memory) {
        let base = memory.base() as usize;
        let range = |link: &DpdkLink, name| SharedMap::of_range(link.port, name, base..base + 4 * PAGE);
        let [first, second] = [0, 1].map(|index| range(&links[index], 1).expect("a slot"));
        drop(first);
        assert!(range(&links[0], 2).is_err(), "pages of an earlier range are kept still, at the same addresses");
        drop(second);
        drop(range(&links[0], 2).expect("they are forgotten"));
    }

    /// The device knows each by addresses of its own: those of the process are in the IOMMU's map once.
    fn ranges_may_share_pages(links: &[DpdkLink], memory: &Memory) {
        let base = memory.base() as usize;
        let pages = [0..4, 3..8, 0..8, 6..7].map(|pages| base + pages.start * PAGE..base + pages.end * PAGE);
        let place = |name: usize| {
            let range = pages[name].clone();
            let map = SharedMap::of_range(links[0].port, 10 + name as u64, range.clone()).expect("a slot");
            let at = map.address_of(range.start, range.len()).expect("it is all there") as usize;
            assert_eq!(map.address_of(range.start + 5, 1), Some(at as u64 + 5));
            assert_eq!((map.address_of(range.start - 1, 1), map.address_of(range.end, 1)), (None, None));
            (map, at..at + range.len())
        };
        let places = [place(0), place(1), place(2), place(3)];
        let mut addresses = places.each_ref().map(|(_, addresses)| addresses.clone()).to_vec();
        addresses.push(base..base + memory.len());
        addresses.sort_unstable_by_key(|addresses| addresses.start);
        assert!(addresses.windows(2).all(|pair| pair[0].end <= pair[1].start), "{addresses:x?}");
    }

    fn a_full_table_is_reported_and_empties_again(link: &DpdkLink) {
        let pieces: Vec<_> = (0..200).map(|_| memory(1, PAGE)).collect();
        for _ in 0..2 {
            let maps: Vec<_> = pieces.iter().map_while(|piece| map(link, piece).ok()).collect();
            assert!((64..200).contains(&maps.len()), "{} entries", maps.len());
            assert_eq!(refusal(link, &pieces[maps.len()]), Some(ZeroCopyError::NoSlot));
        }
        assert!(lock().is_empty(), "a failure leaves nothing behind");
    }
}
