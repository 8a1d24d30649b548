//! Raw bindings to libdpdk, from release 22.11 on.
//!
//! They are few and written by hand, so that an ordinary build needs no libclang, and one source serves every release: what
//! differs between them is behind the shim (`shim/`), which the installed headers are compiled into. What Rust reads of
//! DPDK's structures is in `layout`; the build compares that, and each function that is declared here, with the headers.
//!
//! The drivers are linked statically with their constructors kept: a binary needs only libnuma and libbsd at run time, and no
//! plugin folder. Nothing here is safe to call without reading DPDK's documentation; the one safe layer above it is
//! `roci_driver::link::dpdk`.
#![no_std]
#![allow(non_camel_case_types, reason = "names are DPDK's")]

mod layout;

use core::ffi::{c_char, c_int, c_uint, c_void};

pub use layout::*;

// DPDK's own functions: its documentation is theirs. `shim/declared.h` declares them once more, for the C compiler.
#[allow(missing_docs, reason = "documented by DPDK")]
unsafe extern "C" {
    pub fn rte_dev_dma_map(dev: *mut rte_device, addr: *mut c_void, iova: u64, len: usize) -> c_int;
    pub fn rte_dev_dma_unmap(dev: *mut rte_device, addr: *mut c_void, iova: u64, len: usize) -> c_int;
    pub fn rte_eal_alarm_set(us: u64, cb: Option<unsafe extern "C" fn(*mut c_void)>, arg: *mut c_void) -> c_int;
    pub fn rte_eth_allmulticast_enable(port: u16) -> c_int;
    pub fn rte_eth_dev_adjust_nb_rx_tx_desc(port: u16, rx: *mut u16, tx: *mut u16) -> c_int;
    pub fn rte_eth_dev_close(port: u16) -> c_int;
    pub fn rte_eth_dev_count_avail() -> u16;
    pub fn rte_eth_dev_get_port_by_name(name: *const c_char, port: *mut u16) -> c_int;
    pub fn rte_eth_dev_is_valid_port(port: u16) -> c_int;
    pub fn rte_eth_dev_start(port: u16) -> c_int;
    pub fn rte_eth_dev_stop(port: u16) -> c_int;
    pub fn rte_eth_macaddr_get(port: u16, mac: *mut rte_ether_addr) -> c_int;
    pub fn rte_extmem_register(
        addr: *mut c_void,
        len: usize,
        iova_addrs: *mut u64,
        n_pages: c_uint,
        page: usize,
    ) -> c_int;
    pub fn rte_extmem_unregister(addr: *mut c_void, len: usize) -> c_int;
    pub fn rte_get_tsc_hz() -> u64;
    pub fn rte_mem_virt2iova(addr: *const c_void) -> u64;
    pub fn rte_mempool_avail_count(pool: *const rte_mempool) -> c_uint;
    pub fn rte_mempool_free(pool: *mut rte_mempool);
    pub fn rte_pktmbuf_pool_create(
        name: *const c_char,
        n: c_uint,
        cache: c_uint,
        priv_size: u16,
        room: u16,
        socket: c_int,
    ) -> *mut rte_mempool;
    pub fn rte_strerror(errnum: c_int) -> *const c_char;
    pub fn rte_thread_register() -> c_int;
    pub fn rte_thread_unregister();
    pub fn rte_vdev_uninit(name: *const c_char) -> c_int;
    pub fn rte_version() -> *const c_char;
}

unsafe extern "C" {
    /// `rte_eth_rx_burst`.
    pub fn roci_eth_rx_burst(port: u16, queue: u16, pkts: *mut *mut rte_mbuf, count: u16) -> u16;
    /// `rte_eth_tx_burst`.
    pub fn roci_eth_tx_burst(port: u16, queue: u16, pkts: *mut *mut rte_mbuf, count: u16) -> u16;
    /// `rte_pktmbuf_alloc`.
    pub fn roci_pktmbuf_alloc(pool: *mut rte_mempool) -> *mut rte_mbuf;
    /// `rte_pktmbuf_alloc_bulk`: all or none, and 0 where it is all.
    pub fn roci_pktmbuf_alloc_bulk(pool: *mut rte_mempool, mbufs: *mut *mut rte_mbuf, count: c_uint) -> c_int;
    /// `rte_pktmbuf_free`.
    pub fn roci_pktmbuf_free(mbuf: *mut rte_mbuf);
    /// Copies `len` bytes from `offset` of a chained packet into `to`, unless they lie in one piece, whose address it
    /// returns; null where the packet is shorter.
    pub fn roci_pktmbuf_read(mbuf: *const rte_mbuf, offset: u32, len: u32, to: *mut c_void) -> *const c_void;
    /// A packet of room for a head and for a tail from the pool, and between them a payload that stays where it is, in a
    /// segment for each page of the device's that it touches: a page is a power of two from 4096 on. `shinfo` counts a
    /// user for each until the packet is freed. Null where the pool is empty.
    pub fn roci_pktmbuf_around(
        pool: *mut rte_mempool,
        head_len: u16,
        payload: *mut c_void,
        iova: u64,
        payload_len: u16,
        page: u64,
        shinfo: *mut rte_mbuf_ext_shared_info,
        tail_len: u16,
    ) -> *mut rte_mbuf;
    /// Adds to the users of external memory, and returns how many there are.
    pub fn roci_ext_refcnt_update(shinfo: *mut rte_mbuf_ext_shared_info, value: i16) -> u16;
    /// Writes to every page of a pool's buffers, all of which are in it: so that no packet waits for one.
    pub fn roci_pktmbuf_pool_touch(pool: *mut rte_mempool);
    /// The processor's time stamp counter.
    pub fn roci_tsc() -> u64;
    /// What a port can do. Not 0 where DPDK does not say.
    pub fn roci_port_info(port: u16, info: *mut roci_port_info) -> c_int;
    /// `rte_eth_dev_configure` with so many pairs of queues.
    pub fn roci_port_configure(port: u16, queues: u16, wanted: *const roci_port_conf) -> c_int;
    /// `rte_eth_rx_queue_setup` with the driver's defaults, on any socket.
    pub fn roci_port_rx_queue(port: u16, queue: u16, descriptors: u16, pool: *mut rte_mempool) -> c_int;
    /// `rte_eth_tx_queue_setup` with the driver's defaults, on any socket.
    pub fn roci_port_tx_queue(port: u16, queue: u16, descriptors: u16) -> c_int;
    /// Whether the link is up, as far as the driver knows now.
    pub fn roci_port_is_up(port: u16) -> bool;
    /// `rte_vdev_init`, which leaves nothing behind when it fails.
    pub fn roci_vdev_init(name: *const c_char, args: *const c_char) -> c_int;
    /// Whether devices take virtual addresses: `RTE_IOVA_VA`.
    pub fn roci_addresses_are_virtual() -> bool;
    /// `rte_errno` of this thread.
    pub fn roci_errno() -> c_int;
    /// Before a call that may fail without saying why: a reason from before would be taken for its own.
    pub fn roci_clear_errno();
    /// Keeps DPDK's log, and echoes it to stderr if so wished; once DPDK runs, what is critical in any case. Call it before
    /// DPDK starts. Not 0 where that fails.
    pub fn roci_log_open(echo: bool) -> c_int;
    /// Takes the last `room` bytes at most of what DPDK has said since the last call, and returns how many there were.
    pub fn roci_log_take(to: *mut c_char, room: usize) -> usize;
    /// Takes the last error number that the kernel has answered a driver of shared memory with since the last call, and the
    /// name of what was called, which lives for ever; 0 where there was none.
    pub fn roci_refusal_take(call: *mut *const c_char) -> c_int;
    /// Starts DPDK by `rte_eal_init`; what that prints is kept with the log. Call it once.
    pub fn roci_eal_init(argc: c_int, argv: *mut *mut c_char) -> c_int;
}
