//! The error number, which DPDK sets where a call fails and never resets.

#[test]
fn a_reason_is_forgotten_when_it_is_cleared() {
    // SAFETY: a call that is refused for its arguments, before it looks at anything; and a number of this thread's own.
    let reasons = unsafe {
        assert_eq!(dpdk_sys::rte_extmem_unregister(std::ptr::null_mut(), 0), -1);
        let refused = dpdk_sys::roci_errno();
        dpdk_sys::roci_clear_errno();
        (refused, dpdk_sys::roci_errno())
    };
    assert_eq!(reasons, (22, 0), "EINVAL, and nothing");
}
