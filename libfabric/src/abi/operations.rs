//! Tables of functions. Whatever an object does not do is a function that answers `-FI_ENOSYS`, and never a null pointer.

use std::ffi::{c_char, c_int, c_void};
use std::mem::size_of;

use libc::ssize_t;

use super::attributes::{fi_av_attr, fi_cntr_attr, fi_cq_attr, fi_eq_attr, fi_info};
use super::memory::{fi_mr_attr, fi_msg_rma, fid_mr};
use super::queues::{fi_cq_err_entry, fi_msg, fi_msg_tagged};
use super::{fi_addr_t, fid, fid_av, fid_cntr, fid_cq, fid_domain, fid_ep, fid_eq, fid_fabric, iovec};

/// A function that does nothing, and says so.
pub(crate) trait Missing {
    const MISSING: Self;
}

macro_rules! missing {
    ($(($($argument:ident),*)),* $(,)?) => {$(
        impl<$($argument),*> Missing for unsafe extern "C" fn($($argument),*) -> c_int {
            const MISSING: Self = {
                unsafe extern "C" fn missing<$($argument),*>($(_: $argument),*) -> c_int { -libc::ENOSYS }
                missing::<$($argument),*>
            };
        }
        impl<$($argument),*> Missing for unsafe extern "C" fn($($argument),*) -> ssize_t {
            const MISSING: Self = {
                unsafe extern "C" fn missing<$($argument),*>($(_: $argument),*) -> ssize_t { -(libc::ENOSYS as ssize_t) }
                missing::<$($argument),*>
            };
        }
        impl<$($argument),*> Missing for unsafe extern "C" fn($($argument),*) -> u64 {
            const MISSING: Self = {
                unsafe extern "C" fn missing<$($argument),*>($(_: $argument),*) -> u64 { 0 }
                missing::<$($argument),*>
            };
        }
        impl<$($argument),*> Missing for unsafe extern "C" fn($($argument),*) -> *const c_char {
            const MISSING: Self = {
                unsafe extern "C" fn missing<$($argument),*>($(_: $argument),*) -> *const c_char { c"".as_ptr() }
                missing::<$($argument),*>
            };
        }
    )*};
}
missing!(
    (A),
    (A, B),
    (A, B, C),
    (A, B, C, D),
    (A, B, C, D, E),
    (A, B, C, D, E, F),
    (A, B, C, D, E, F, G),
    (A, B, C, D, E, F, G, H),
    (A, B, C, D, E, F, G, H, I),
    (A, B, C, D, E, F, G, H, I, J),
    (A, B, C, D, E, F, G, H, I, J, K),
    (A, B, C, D, E, F, G, H, I, J, K, L),
    (A, B, C, D, E, F, G, H, I, J, K, L, M),
    (A, B, C, D, E, F, G, H, I, J, K, L, M, N),
    (A, B, C, D, E, F, G, H, I, J, K, L, M, N, O),
    (A, B, C, D, E, F, G, H, I, J, K, L, M, N, O, P),
);

/// Declares a table: its size, and its functions in their order; and one in which all are missing.
macro_rules! table {
    ($(#[$about:meta])* $name:ident { $($function:ident: fn($($argument:ty),* $(,)?) -> $answer:ty,)* }) => {
        $(#[$about])*
        #[repr(C)]
        #[derive(Debug)]
        pub struct $name {
            pub size: usize,
            $(pub $function: unsafe extern "C" fn($($argument),*) -> $answer,)*
        }

        impl $name {
            #[allow(dead_code)]
            pub(crate) const MISSING: Self = Self {
                size: size_of::<Self>(),
                $($function: <unsafe extern "C" fn($($argument),*) -> $answer as Missing>::MISSING,)*
            };
        }
    };
}

table!(fi_ops {
    close: fn(*mut fid) -> c_int,
    bind: fn(*mut fid, *mut fid, u64) -> c_int,
    control: fn(*mut fid, c_int, *mut c_void) -> c_int,
    ops_open: fn(*mut fid, *const c_char, u64, *mut *mut c_void, *mut c_void) -> c_int,
    tostr: fn(*const fid, *mut c_char, usize) -> c_int,
    ops_set: fn(*mut fid, *const c_char, u64, *mut c_void, *mut c_void) -> c_int,
});

table!(fi_ops_fabric {
    domain: fn(*mut fid_fabric, *mut fi_info, *mut *mut fid_domain, *mut c_void) -> c_int,
    passive_ep: fn(*mut fid_fabric, *mut fi_info, *mut *mut c_void, *mut c_void) -> c_int,
    eq_open: fn(*mut fid_fabric, *mut fi_eq_attr, *mut *mut fid_eq, *mut c_void) -> c_int,
    wait_open: fn(*mut fid_fabric, *mut c_void, *mut *mut c_void) -> c_int,
    trywait: fn(*mut fid_fabric, *mut *mut fid, c_int) -> c_int,
    domain2: fn(*mut fid_fabric, *mut fi_info, *mut *mut fid_domain, u64, *mut c_void) -> c_int,
});

table!(fi_ops_domain {
    av_open: fn(*mut fid_domain, *mut fi_av_attr, *mut *mut fid_av, *mut c_void) -> c_int,
    cq_open: fn(*mut fid_domain, *mut fi_cq_attr, *mut *mut fid_cq, *mut c_void) -> c_int,
    endpoint: fn(*mut fid_domain, *mut fi_info, *mut *mut fid_ep, *mut c_void) -> c_int,
    scalable_ep: fn(*mut fid_domain, *mut fi_info, *mut *mut fid_ep, *mut c_void) -> c_int,
    cntr_open: fn(*mut fid_domain, *mut fi_cntr_attr, *mut *mut fid_cntr, *mut c_void) -> c_int,
    poll_open: fn(*mut fid_domain, *mut c_void, *mut *mut c_void) -> c_int,
    stx_ctx: fn(*mut fid_domain, *mut c_void, *mut *mut c_void, *mut c_void) -> c_int,
    srx_ctx: fn(*mut fid_domain, *mut c_void, *mut *mut c_void, *mut c_void) -> c_int,
    query_atomic: fn(*mut fid_domain, c_int, c_int, *mut c_void, u64) -> c_int,
    query_collective: fn(*mut fid_domain, c_int, *mut c_void, u64) -> c_int,
    endpoint2: fn(*mut fid_domain, *mut fi_info, *mut *mut fid_ep, u64, *mut c_void) -> c_int,
});

table!(fi_ops_mr {
    reg: fn(*mut fid, *const c_void, usize, u64, u64, u64, u64, *mut *mut fid_mr, *mut c_void) -> c_int,
    regv: fn(*mut fid, *const iovec, usize, u64, u64, u64, u64, *mut *mut fid_mr, *mut c_void) -> c_int,
    regattr: fn(*mut fid, *const fi_mr_attr, u64, *mut *mut fid_mr) -> c_int,
});

table!(fi_ops_ep {
    cancel: fn(*mut fid, *mut c_void) -> ssize_t,
    getopt: fn(*mut fid, c_int, c_int, *mut c_void, *mut usize) -> c_int,
    setopt: fn(*mut fid, c_int, c_int, *const c_void, usize) -> c_int,
    tx_ctx: fn(*mut fid_ep, c_int, *mut c_void, *mut *mut fid_ep, *mut c_void) -> c_int,
    rx_ctx: fn(*mut fid_ep, c_int, *mut c_void, *mut *mut fid_ep, *mut c_void) -> c_int,
    rx_size_left: fn(*mut fid_ep) -> ssize_t,
    tx_size_left: fn(*mut fid_ep) -> ssize_t,
});

table!(fi_ops_cm {
    setname: fn(*mut fid, *mut c_void, usize) -> c_int,
    getname: fn(*mut fid, *mut c_void, *mut usize) -> c_int,
    getpeer: fn(*mut fid_ep, *mut c_void, *mut usize) -> c_int,
    connect: fn(*mut fid_ep, *const c_void, *const c_void, usize) -> c_int,
    listen: fn(*mut c_void) -> c_int,
    accept: fn(*mut fid_ep, *const c_void, usize) -> c_int,
    reject: fn(*mut c_void, *mut fid, *const c_void, usize) -> c_int,
    shutdown: fn(*mut fid_ep, u64) -> c_int,
    join: fn(*mut fid_ep, *const c_void, u64, *mut *mut c_void, *mut c_void) -> c_int,
});

table!(fi_ops_msg {
    recv: fn(*mut fid_ep, *mut c_void, usize, *mut c_void, fi_addr_t, *mut c_void) -> ssize_t,
    recvv: fn(*mut fid_ep, *const iovec, *mut *mut c_void, usize, fi_addr_t, *mut c_void) -> ssize_t,
    recvmsg: fn(*mut fid_ep, *const fi_msg, u64) -> ssize_t,
    send: fn(*mut fid_ep, *const c_void, usize, *mut c_void, fi_addr_t, *mut c_void) -> ssize_t,
    sendv: fn(*mut fid_ep, *const iovec, *mut *mut c_void, usize, fi_addr_t, *mut c_void) -> ssize_t,
    sendmsg: fn(*mut fid_ep, *const fi_msg, u64) -> ssize_t,
    inject: fn(*mut fid_ep, *const c_void, usize, fi_addr_t) -> ssize_t,
    senddata: fn(*mut fid_ep, *const c_void, usize, *mut c_void, u64, fi_addr_t, *mut c_void) -> ssize_t,
    injectdata: fn(*mut fid_ep, *const c_void, usize, u64, fi_addr_t) -> ssize_t,
});

table!(fi_ops_tagged {
    recv: fn(*mut fid_ep, *mut c_void, usize, *mut c_void, fi_addr_t, u64, u64, *mut c_void) -> ssize_t,
    recvv: fn(*mut fid_ep, *const iovec, *mut *mut c_void, usize, fi_addr_t, u64, u64, *mut c_void) -> ssize_t,
    recvmsg: fn(*mut fid_ep, *const fi_msg_tagged, u64) -> ssize_t,
    send: fn(*mut fid_ep, *const c_void, usize, *mut c_void, fi_addr_t, u64, *mut c_void) -> ssize_t,
    sendv: fn(*mut fid_ep, *const iovec, *mut *mut c_void, usize, fi_addr_t, u64, *mut c_void) -> ssize_t,
    sendmsg: fn(*mut fid_ep, *const fi_msg_tagged, u64) -> ssize_t,
    inject: fn(*mut fid_ep, *const c_void, usize, fi_addr_t, u64) -> ssize_t,
    senddata: fn(*mut fid_ep, *const c_void, usize, *mut c_void, u64, fi_addr_t, u64, *mut c_void) -> ssize_t,
    injectdata: fn(*mut fid_ep, *const c_void, usize, u64, fi_addr_t, u64) -> ssize_t,
});

table!(fi_ops_rma {
    read: fn(*mut fid_ep, *mut c_void, usize, *mut c_void, fi_addr_t, u64, u64, *mut c_void) -> ssize_t,
    readv: fn(*mut fid_ep, *const iovec, *mut *mut c_void, usize, fi_addr_t, u64, u64, *mut c_void) -> ssize_t,
    readmsg: fn(*mut fid_ep, *const fi_msg_rma, u64) -> ssize_t,
    write: fn(*mut fid_ep, *const c_void, usize, *mut c_void, fi_addr_t, u64, u64, *mut c_void) -> ssize_t,
    writev: fn(*mut fid_ep, *const iovec, *mut *mut c_void, usize, fi_addr_t, u64, u64, *mut c_void) -> ssize_t,
    writemsg: fn(*mut fid_ep, *const fi_msg_rma, u64) -> ssize_t,
    inject: fn(*mut fid_ep, *const c_void, usize, fi_addr_t, u64, u64) -> ssize_t,
    writedata: fn(*mut fid_ep, *const c_void, usize, *mut c_void, u64, fi_addr_t, u64, u64, *mut c_void) -> ssize_t,
    injectdata: fn(*mut fid_ep, *const c_void, usize, u64, fi_addr_t, u64, u64) -> ssize_t,
});

table!(fi_ops_av {
    insert: fn(*mut fid_av, *const c_void, usize, *mut fi_addr_t, u64, *mut c_void) -> c_int,
    insertsvc: fn(*mut fid_av, *const c_char, *const c_char, *mut fi_addr_t, u64, *mut c_void) -> c_int,
    insertsym: fn(*mut fid_av, *const c_char, usize, *const c_char, usize, *mut fi_addr_t, u64, *mut c_void) -> c_int,
    remove: fn(*mut fid_av, *mut fi_addr_t, usize, u64) -> c_int,
    lookup: fn(*mut fid_av, fi_addr_t, *mut c_void, *mut usize) -> c_int,
    straddr: fn(*mut fid_av, *const c_void, *mut c_char, *mut usize) -> *const c_char,
    av_set: fn(*mut fid_av, *mut c_void, *mut *mut c_void, *mut c_void) -> c_int,
});

table!(fi_ops_cq {
    read: fn(*mut fid_cq, *mut c_void, usize) -> ssize_t,
    readfrom: fn(*mut fid_cq, *mut c_void, usize, *mut fi_addr_t) -> ssize_t,
    readerr: fn(*mut fid_cq, *mut fi_cq_err_entry, u64) -> ssize_t,
    sread: fn(*mut fid_cq, *mut c_void, usize, *const c_void, c_int) -> ssize_t,
    sreadfrom: fn(*mut fid_cq, *mut c_void, usize, *mut fi_addr_t, *const c_void, c_int) -> ssize_t,
    signal: fn(*mut fid_cq) -> c_int,
    strerror: fn(*mut fid_cq, c_int, *const c_void, *mut c_char, usize) -> *const c_char,
});

table!(fi_ops_cntr {
    read: fn(*mut fid_cntr) -> u64,
    readerr: fn(*mut fid_cntr) -> u64,
    add: fn(*mut fid_cntr, u64) -> c_int,
    set: fn(*mut fid_cntr, u64) -> c_int,
    wait: fn(*mut fid_cntr, u64, c_int) -> c_int,
    adderr: fn(*mut fid_cntr, u64) -> c_int,
    seterr: fn(*mut fid_cntr, u64) -> c_int,
});

table!(fi_ops_eq {
    read: fn(*mut fid_eq, *mut u32, *mut c_void, usize, u64) -> ssize_t,
    readerr: fn(*mut fid_eq, *mut c_void, u64) -> ssize_t,
    write: fn(*mut fid_eq, u32, *const c_void, usize, u64) -> ssize_t,
    sread: fn(*mut fid_eq, *mut u32, *mut c_void, usize, c_int, u64) -> ssize_t,
    strerror: fn(*mut fid_eq, c_int, *const c_void, *mut c_char, usize) -> *const c_char,
});

table!(fi_ops_collective {
    barrier: fn(*mut fid_ep, fi_addr_t, *mut c_void) -> ssize_t,
    broadcast: fn(*mut fid_ep, *mut c_void, usize, *mut c_void, fi_addr_t, fi_addr_t, c_int, u64, *mut c_void) -> ssize_t,
    alltoall: fn(*mut fid_ep, *const c_void, usize, *mut c_void, *mut c_void, *mut c_void, fi_addr_t, c_int, u64, *mut c_void) -> ssize_t,
    allreduce: fn(*mut fid_ep, *const c_void, usize, *mut c_void, *mut c_void, *mut c_void, fi_addr_t, c_int, c_int, u64, *mut c_void) -> ssize_t,
    allgather: fn(*mut fid_ep, *const c_void, usize, *mut c_void, *mut c_void, *mut c_void, fi_addr_t, c_int, u64, *mut c_void) -> ssize_t,
    reduce_scatter: fn(*mut fid_ep, *const c_void, usize, *mut c_void, *mut c_void, *mut c_void, fi_addr_t, c_int, c_int, u64, *mut c_void) -> ssize_t,
    reduce: fn(*mut fid_ep, *const c_void, usize, *mut c_void, *mut c_void, *mut c_void, fi_addr_t, fi_addr_t, c_int, c_int, u64, *mut c_void) -> ssize_t,
    scatter: fn(*mut fid_ep, *const c_void, usize, *mut c_void, *mut c_void, *mut c_void, fi_addr_t, fi_addr_t, c_int, u64, *mut c_void) -> ssize_t,
    gather: fn(*mut fid_ep, *const c_void, usize, *mut c_void, *mut c_void, *mut c_void, fi_addr_t, fi_addr_t, c_int, u64, *mut c_void) -> ssize_t,
    msg: fn(*mut fid_ep, *const c_void, *mut c_void, *mut *mut c_void, usize, u64) -> ssize_t,
    barrier2: fn(*mut fid_ep, fi_addr_t, u64, *mut c_void) -> ssize_t,
});

table!(fi_ops_atomic {
    write: fn(*mut fid_ep, *const c_void, usize, *mut c_void, fi_addr_t, u64, u64, c_int, c_int, *mut c_void) -> ssize_t,
    writev: fn(*mut fid_ep, *const c_void, *mut *mut c_void, usize, fi_addr_t, u64, u64, c_int, c_int, *mut c_void) -> ssize_t,
    writemsg: fn(*mut fid_ep, *const c_void, u64) -> ssize_t,
    inject: fn(*mut fid_ep, *const c_void, usize, fi_addr_t, u64, u64, c_int, c_int) -> ssize_t,
    readwrite: fn(*mut fid_ep, *const c_void, usize, *mut c_void, *mut c_void, *mut c_void, fi_addr_t, u64, u64, c_int, c_int, *mut c_void) -> ssize_t,
    readwritev: fn(*mut fid_ep, *const c_void, *mut *mut c_void, usize, *mut c_void, *mut *mut c_void, usize, fi_addr_t, u64, u64, c_int, c_int, *mut c_void) -> ssize_t,
    readwritemsg: fn(*mut fid_ep, *const c_void, *mut c_void, *mut *mut c_void, usize, u64) -> ssize_t,
    compwrite: fn(*mut fid_ep, *const c_void, usize, *mut c_void, *const c_void, *mut c_void, *mut c_void, *mut c_void, fi_addr_t, u64, u64, c_int, c_int, *mut c_void) -> ssize_t,
    compwritev: fn(*mut fid_ep, *const c_void, *mut *mut c_void, usize, *const c_void, *mut *mut c_void, usize, *mut c_void, *mut *mut c_void, usize, fi_addr_t, u64, u64, c_int, c_int, *mut c_void) -> ssize_t,
    compwritemsg: fn(*mut fid_ep, *const c_void, *const c_void, *mut *mut c_void, usize, *mut c_void, *mut *mut c_void, usize, u64) -> ssize_t,
    writevalid: fn(*mut fid_ep, c_int, c_int, *mut usize) -> c_int,
    readwritevalid: fn(*mut fid_ep, c_int, c_int, *mut usize) -> c_int,
    compwritevalid: fn(*mut fid_ep, c_int, c_int, *mut usize) -> c_int,
});
