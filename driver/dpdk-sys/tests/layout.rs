//! The committed bindings agree with the headers that are installed.

use std::mem::{offset_of, size_of, zeroed};

use dpdk_sys::{
    roci_layout, rte_eth_conf, rte_eth_dev_info, rte_eth_link, rte_eth_rxconf, rte_eth_stats, rte_eth_txconf, rte_mbuf,
};

#[test]
fn layouts_are_those_of_the_installed_headers() {
    // SAFETY: `roci_layout` is plain integers, for which all zeroes is a value, and the shim only writes to it.
    let seen = unsafe {
        let mut layout: roci_layout = zeroed();
        roci_layout(&raw mut layout);
        layout
    };
    assert_eq!(seen.mbuf_size, size_of::<rte_mbuf>());
    assert_eq!(seen.eth_conf_size, size_of::<rte_eth_conf>());
    assert_eq!(seen.eth_dev_info_size, size_of::<rte_eth_dev_info>());
    assert_eq!(seen.eth_stats_size, size_of::<rte_eth_stats>());
    assert_eq!(seen.eth_link_size, size_of::<rte_eth_link>());
    assert_eq!(seen.eth_rxconf_size, size_of::<rte_eth_rxconf>());
    assert_eq!(seen.eth_txconf_size, size_of::<rte_eth_txconf>());
    assert_eq!(seen.mbuf_data_off, offset_of!(rte_mbuf, data_off));
    assert_eq!(seen.mbuf_nb_segs, offset_of!(rte_mbuf, nb_segs));
    assert_eq!(seen.mbuf_data_len, offset_of!(rte_mbuf, data_len));
    assert_eq!(seen.mbuf_pkt_len, offset_of!(rte_mbuf, pkt_len));
}

#[test]
fn the_library_is_the_release_of_the_bindings() {
    // SAFETY: the function takes nothing and returns a static, NUL-terminated string.
    let version = unsafe { std::ffi::CStr::from_ptr(dpdk_sys::rte_version()) }.to_string_lossy();
    assert!(version.contains("22.11"), "{version}");
}
