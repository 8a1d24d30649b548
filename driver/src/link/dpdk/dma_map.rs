//! Memory as a device knows it: DPDK's table, and the IOMMU's map.
//!
//! DPDK's table has about 120 entries; the IOMMU, where there is one, has a map. Both are undone in the reverse order.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::ptr::NonNull;

use rustix::io::Errno;

use super::device::External;
use super::eal::{describe, last_errno};
use super::window::Window;
use crate::lasting::Lasting;
use crate::link::ZeroCopyError;

/// What DPDK calls an address that is none.
const NO_ADDRESS: u64 = u64::MAX;
/// The size of ordinary pages.
const PAGE: usize = 4096;
/// The size of a page where there is no end to one.
const NO_PAGES: u64 = 1 << 63;
/// Only a map of the IOMMU's pins pages for the device.
const NO_KEEPER: ZeroCopyError =
    ZeroCopyError::Physical("there is no IOMMU that would keep pages which the application unmaps");

/// Memory that a device can reach, until it is dropped.
///
/// It does not keep the memory mapped: its creator must.
pub(super) struct DmaMap {
    base: usize,
    len: usize,
    /// Bytes that are one piece to a device wherever they lie: a power of two.
    page: u64,
    /// `None` where no device reads memory itself.
    device: Option<DmaMapping>,
}

/// What was registered with DPDK and mapped for a device.
struct DmaMapping {
    device: NonNull<dpdk_sys::rte_device>,
    addresses: Addresses,
    /// Pieces that the IOMMU knows, each by base and device address.
    pieces: Vec<(Range<usize>, u64)>,
}

// SAFETY: DPDK has one list of devices for all threads, and locks its maps. A device that maps memory is on it for as
// long as the process lives: only virtual ones are ever taken off, and those map nothing.
unsafe impl Send for DmaMapping {}
// SAFETY: as above; and nothing is changed through a shared reference.
unsafe impl Sync for DmaMapping {}

/// How a device names memory.
enum Addresses {
    /// As the process does.
    Virtual,
    /// By addresses of its own, one after the other.
    Window(Window),
    /// Physically: the address of each page, of this size.
    Physical { pages: Vec<u64>, size: usize },
}

impl DmaMap {
    /// Makes memory known to a device, by its port. DPDK refuses what it knows already.
    ///
    /// # Safety
    /// The memory stays mapped until the value is dropped.
    pub(super) unsafe fn new(port: u16, external: External, memory: &dyn Lasting) -> Result<Self, ZeroCopyError> {
        let (base, len) = (memory.base() as usize, memory.len());
        match external {
            External::Never(why) => Err(ZeroCopyError::Copies(why)),
            External::Copied => Ok(Self { base, len, page: NO_PAGES, device: None }),
            External::Mapped => {
                let page = memory.page_size();
                whole_pages(base, len, page)?;
                // SAFETY: the caller's promise.
                unsafe { Self::register_range(port, base..base + len, page, addresses(memory)?) }
            }
        }
    }

    /// Makes a range known to a device that keeps its pages: only an IOMMU's map does, for which the kernel pins them. They
    /// are the device's then, and not read through the process's own addresses, which may be gone meanwhile.
    pub(super) fn of_kept_pages(port: u16, range: Range<usize>) -> Result<Self, ZeroCopyError> {
        let (base, len) = (range.start, range.len());
        whole_pages(base, len, PAGE)?;
        if !are_addresses_virtual() {
            return Err(NO_KEEPER);
        }
        let no_window = |errno: Errno| ZeroCopyError::Refused { call: "mmap", base, len, cause: errno.to_string() };
        let window = Window::for_range(&range).map_err(no_window)?;
        // SAFETY: what the device reads stays: once `map_pieces` has succeeded the pages are pinned until the value is
        // dropped, and before that, or where it fails, nothing is read.
        let map = unsafe { Self::register_range(port, range, PAGE, Addresses::Window(window)) }?;
        match &map.device {
            Some(mapped) if !mapped.pieces.is_empty() => Ok(map),
            _ => Err(NO_KEEPER),
        }
    }

    /// Registers the range with DPDK and maps it for the device.
    ///
    /// # Safety
    /// What the device reads stays until the value is dropped.
    unsafe fn register_range(
        port: u16,
        range: Range<usize>,
        page: usize,
        addresses: Addresses,
    ) -> Result<Self, ZeroCopyError> {
        let mut map = Self { base: range.start, len: range.len(), page: page as u64, device: None };
        let addresses = map.register(page, addresses)?;
        let device = device_of(port).ok_or_else(|| map.refused("rte_eth_dev_info_get"));
        let device = device.inspect_err(|_| map.unregister())?;
        // From here on dropping it undoes both.
        map.device = Some(DmaMapping { device, addresses, pieces: Vec::new() });
        map.map_pieces()?;
        Ok(map)
    }

    /// See the field.
    #[inline]
    pub(super) fn page(&self) -> u64 {
        self.page
    }

    /// The device's address of bytes in the memory; `None` where it has no single one, or they lie elsewhere.
    #[inline]
    pub(super) fn address_of(&self, at: usize, len: usize) -> Option<u64> {
        let offset = at.checked_sub(self.base)?;
        if offset.checked_add(len)? > self.len {
            return None;
        }
        match self.device.as_ref().map(|mapped| &mapped.addresses) {
            // It is not used.
            None => Some(0),
            Some(Addresses::Virtual) => Some(at as u64),
            Some(Addresses::Window(window)) => Some(window.start() + offset as u64),
            Some(Addresses::Physical { pages, size }) => {
                // A page's size is a power of two.
                let (page, within) = (offset >> size.trailing_zeros(), offset & (size - 1));
                (within + len <= *size).then(|| pages[page] + within as u64)
            }
        }
    }

    /// Enters the memory into DPDK's table.
    fn register(&self, page: usize, mut addresses: Addresses) -> Result<Addresses, ZeroCopyError> {
        let (base, len) = (self.base, self.len);
        let (table, count) = match &mut addresses {
            Addresses::Virtual | Addresses::Window(_) => (std::ptr::null_mut(), 0),
            Addresses::Physical { pages, .. } => (pages.as_mut_ptr(), pages.len() as u32),
        };
        // SAFETY: DPDK notes numbers and reads none of the memory; the table, where there is one, has an address for each
        // page, and is copied.
        let status = unsafe { dpdk_sys::rte_extmem_register(base as *mut c_void, len, table, count, page) };
        if status == 0 {
            return Ok(addresses);
        }
        match last_errno().abs() {
            libc::ENOSPC => Err(ZeroCopyError::NoSlot),
            _ => Err(self.refused("rte_extmem_register")),
        }
    }

    /// Maps the pieces in the IOMMU.
    fn map_pieces(&mut self) -> Result<(), ZeroCopyError> {
        let pieces = self.pieces();
        let Some(mapped) = &mut self.device else { return Ok(()) };
        for (range, address) in pieces {
            let (start, len) = (range.start as *mut c_void, range.len());
            // SAFETY: the device is that of a port that exists; the range is registered, and what the device reads of it
            // stays until it is unmapped again, which dropping this does. The error number is this thread's own.
            let status = unsafe {
                dpdk_sys::roci_clear_errno();
                dpdk_sys::rte_dev_dma_map(mapped.device.as_ptr(), start, address, len)
            };
            if status == 0 {
                mapped.pieces.push((range, address));
            } else if last_errno().abs() != libc::ENOTSUP {
                return Err(self.no_map());
            }
            // A bus that maps nothing, and a NIC without an IOMMU before it (uio), need no map.
        }
        Ok(())
    }

    /// Ranges that are contiguous for the device.
    fn pieces(&self) -> Vec<(Range<usize>, u64)> {
        match self.device.as_ref().map(|mapped| &mapped.addresses) {
            None => Vec::new(),
            Some(Addresses::Virtual) => vec![(self.base..self.base + self.len, self.base as u64)],
            Some(Addresses::Window(window)) => vec![(self.base..self.base + self.len, window.start())],
            Some(Addresses::Physical { pages, size }) => {
                let page = |(index, address): (usize, &u64)| {
                    let start = self.base + index * size;
                    (start..start + size, *address)
                };
                pages.iter().enumerate().map(page).collect()
            }
        }
    }

    fn unregister(&self) {
        // SAFETY: DPDK forgets a range; what it does not know it refuses.
        unsafe { dpdk_sys::rte_extmem_unregister(self.base as *mut c_void, self.len) };
    }

    /// The last call's failure.
    fn refused(&self, call: &'static str) -> ZeroCopyError {
        ZeroCopyError::Refused { call, base: self.base, len: self.len, cause: describe(last_errno()) }
    }

    /// The failure of the last map.
    fn no_map(&self) -> ZeroCopyError {
        // Where vfio's call fails, DPDK leaves the number to the C library.
        let errno = match last_errno() {
            0 => std::io::Error::last_os_error().raw_os_error().unwrap_or(0),
            errno => errno.abs(),
        };
        why_no_map(self.base, self.len, errno)
    }
}

/// Only where pages, memory or places in the IOMMU's map have run out do registrations that end help. What the kernel
/// refuses otherwise, as the pages of a file or an address that the IOMMU does not reach, it refuses always.
fn why_no_map(base: usize, len: usize, errno: i32) -> ZeroCopyError {
    let cause = describe(errno);
    if !matches!(errno, libc::ENOMEM | libc::EAGAIN | libc::ENOSPC) {
        return ZeroCopyError::Refused { call: "rte_dev_dma_map", base, len, cause };
    }
    let limit = match rustix::process::getrlimit(rustix::process::Resource::Memlock).current {
        Some(bytes) if bytes < len as u64 => {
            format!(" (vfio pins memory, and RLIMIT_MEMLOCK allows {bytes} bytes: ulimit -l unlimited)")
        }
        _ => String::new(),
    };
    ZeroCopyError::NoMap { base, len, cause: cause + &limit }
}

impl Drop for DmaMap {
    fn drop(&mut self) {
        let Some(mapped) = self.device.take() else { return };
        let mut is_forgotten = true;
        for (range, address) in mapped.pieces.iter().rev() {
            let (start, len) = (range.start as *mut c_void, range.len());
            // SAFETY: this very range was mapped for this device, and no frame needs it any more.
            let status = unsafe { dpdk_sys::rte_dev_dma_unmap(mapped.device.as_ptr(), start, *address, len) };
            if status != 0 {
                tracing::warn!("rte_dev_dma_unmap failed for {len} bytes at {start:p}: {}", describe(last_errno()));
                is_forgotten = false;
            }
        }
        self.unregister();
        if let Addresses::Window(window) = mapped.addresses
            && !is_forgotten
        {
            window.keep();
        }
    }
}

/// How devices of this process name the memory.
fn addresses(memory: &dyn Lasting) -> Result<Addresses, ZeroCopyError> {
    if are_addresses_virtual() {
        return Ok(Addresses::Virtual);
    }
    if !memory.is_pinned() {
        return Err(ZeroCopyError::Physical("ordinary pages move: make huge ones, roci hugepages set"));
    }
    let size = memory.page_size();
    let address = |at: usize| {
        // SAFETY: only looks the address up.
        unsafe { dpdk_sys::rte_mem_virt2iova(at as *const c_void) }
    };
    let base = memory.base() as usize;
    let pages: Vec<u64> = (0..memory.len() / size).map(|page| address(base + page * size)).collect();
    if pages.contains(&NO_ADDRESS) {
        return Err(ZeroCopyError::Physical("only root may see them"));
    }
    Ok(Addresses::Physical { pages, size })
}

/// Whether devices of this process may be given any address, and not only physical ones.
fn are_addresses_virtual() -> bool {
    // SAFETY: takes nothing, and DPDK runs where there is a port.
    unsafe { dpdk_sys::roci_addresses_are_virtual() }
}

/// Refuses what is not made of pages.
fn whole_pages(base: usize, len: usize, page: usize) -> Result<(), ZeroCopyError> {
    if len == 0 || page < PAGE || !page.is_power_of_two() || !base.is_multiple_of(page) || !len.is_multiple_of(page) {
        return Err(ZeroCopyError::Unaligned { base, len, page });
    }
    Ok(())
}

fn device_of(port: u16) -> Option<NonNull<dpdk_sys::rte_device>> {
    let mut info = MaybeUninit::uninit();
    // SAFETY: looks the port up, and writes to a local, all of it where it succeeds.
    unsafe {
        let status = dpdk_sys::roci_port_info(port, info.as_mut_ptr());
        if status == 0 { NonNull::new(info.assume_init().device) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(addresses: Option<Addresses>) -> DmaMap {
        let device =
            addresses.map(|addresses| DmaMapping { device: NonNull::dangling(), addresses, pieces: Vec::new() });
        DmaMap { base: 0x20_0000, len: 0x40_0000, page: 0x20_0000, device }
    }

    /// Nothing was registered, so nothing is undone.
    fn ask<R>(map: DmaMap, question: impl FnOnce(&DmaMap) -> R) -> R {
        let mut map = std::mem::ManuallyDrop::new(map);
        let answer = question(&map);
        map.device = None;
        answer
    }

    #[test]
    fn only_bytes_within_have_an_address() {
        ask(map(Some(Addresses::Virtual)), |map| {
            assert_eq!(map.address_of(0x20_0000, 0x40_0000), Some(0x20_0000));
            assert_eq!(map.address_of(0x5f_ffff, 1), Some(0x5f_ffff));
            assert_eq!(map.address_of(0x5f_ffff, 2), None);
            assert_eq!(map.address_of(0x1f_ffff, 1), None);
            assert_eq!(map.address_of(usize::MAX, 2), None);
        });
        ask(map(None), |map| assert_eq!(map.address_of(0x20_0000, 1), Some(0)));
    }

    #[test]
    fn only_an_exhausted_limit_ends_other_registrations() {
        for errno in [libc::ENOMEM, libc::EAGAIN, libc::ENOSPC] {
            assert!(matches!(why_no_map(0x1000, 0x1000, errno), ZeroCopyError::NoMap { .. }), "{errno}");
        }
        for errno in [libc::EFAULT, libc::EINVAL, libc::EPERM, libc::EEXIST, 0] {
            assert!(matches!(why_no_map(0x1000, 0x1000, errno), ZeroCopyError::Refused { .. }), "{errno}");
        }
    }

    #[test]
    fn bytes_across_physical_pages_have_no_single_address() {
        let pages = vec![0x8000_0000, 0x4000_0000];
        ask(map(Some(Addresses::Physical { pages, size: 0x20_0000 })), |map| {
            assert_eq!(map.address_of(0x20_0010, 0x100), Some(0x8000_0010));
            assert_eq!(map.address_of(0x40_0000, 0x20_0000), Some(0x4000_0000));
            assert_eq!(map.address_of(0x3f_ffff, 1), Some(0x801f_ffff));
            assert_eq!(map.address_of(0x3f_ffff, 2), None);
            let pieces: Vec<_> = map.pieces();
            assert_eq!(pieces, [(0x20_0000..0x40_0000, 0x8000_0000), (0x40_0000..0x60_0000, 0x4000_0000)]);
        });
    }
}
