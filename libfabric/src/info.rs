//! `fi_getinfo`: what the provider can do, for an application that says what it needs.
//!
//! It is called several times in a process, and opens nothing. libfabric frees what it returns, with `free`: so it is allocated
//! with `calloc`, each structure with room behind it for what later versions append, which is zero.

use std::ffi::{CStr, CString, c_char, c_int};
use std::net::ToSocketAddrs as _;
use std::ptr::null_mut;

use roci_msgcore::EndpointAddress;

use crate::PROVIDER_VERSION;
use crate::abi::attributes::{
    FI_AV_TABLE, FI_AV_UNSPEC, FI_EP_RDM, FI_EP_UNSPEC, FI_FORMAT_UNSPEC, FI_PROGRESS_MANUAL, FI_PROGRESS_UNSPEC,
    FI_PROV_SPECIFIC, FI_RM_ENABLED, FI_THREAD_SAFE, FI_THREAD_UNSPEC, fi_domain_attr, fi_ep_attr, fi_fabric_attr,
    fi_info, fi_rx_attr, fi_tx_attr,
};
use crate::abi::flags::{
    FI_ATOMIC, FI_COMPLETION, FI_DELIVERY_COMPLETE, FI_DIRECTED_RECV, FI_INJECT, FI_INJECT_COMPLETE, FI_LOCAL_COMM,
    FI_MSG, FI_MULTI_RECV, FI_ORDER_SAS, FI_READ, FI_RECV, FI_REMOTE_COMM, FI_REMOTE_READ, FI_REMOTE_WRITE, FI_RMA,
    FI_SEND, FI_SOURCE, FI_TAGGED, FI_TRANSMIT_COMPLETE, FI_WRITE, OFI_CORE_PROV_ONLY,
};
use crate::abi::memory::{FI_MR_ALLOCATED, FI_MR_BASIC, FI_MR_PROV_KEY, FI_MR_SCALABLE, FI_MR_VIRT_ADDR};
use crate::abi::{OLDEST_API, fi_version};
use crate::domain::device;

/// The provider's name, and its fabric's.
pub const NAME: &CStr = c"roci";
/// Addresses are opaque bytes: those of [`EndpointAddress::to_bytes`].
pub const ADDRESS_FORMAT: u32 = FI_PROV_SPECIFIC | 0x726f_6369;
/// The longest message that is the application's again when the call returns.
pub const INJECT_SIZE: usize = 192;
/// Operations that an application may count on having under way.
pub const QUEUE_SIZE: usize = 1024;
/// Pieces of a message.
pub const IOV_LIMIT: usize = 4;
/// The longest message.
pub const MAX_MESSAGE: usize = 1 << 31;

/// What an endpoint can do.
const PRIMARY: u64 = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC;
const OF_MESSAGES: u64 = FI_SEND | FI_RECV;
const OF_RMA: u64 = FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
const SECONDARY: u64 = FI_MULTI_RECV | FI_LOCAL_COMM | FI_REMOTE_COMM | FI_SOURCE | FI_DIRECTED_RECV;
/// All of it.
pub(crate) const CAPABILITIES: u64 = PRIMARY | OF_MESSAGES | OF_RMA | SECONDARY;
const OF_TRANSMIT: u64 = PRIMARY | FI_SEND | FI_READ | FI_WRITE;
const OF_RECEIVE: u64 =
    PRIMARY | FI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE | FI_MULTI_RECV | FI_SOURCE | FI_DIRECTED_RECV;
const OF_DOMAIN: u64 = FI_LOCAL_COMM | FI_REMOTE_COMM;
const TRANSMIT_FLAGS: u64 =
    FI_COMPLETION | FI_INJECT | FI_INJECT_COMPLETE | FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE;
const RECEIVE_FLAGS: u64 = FI_COMPLETION | FI_MULTI_RECV;

/// Room behind each structure for what later versions of libfabric append.
const APPENDED: usize = 256;

/// What an application needs, as far as it says so.
#[derive(Clone, Copy)]
struct Hints<'a> {
    info: Option<&'a fi_info>,
    tx: Option<&'a fi_tx_attr>,
    rx: Option<&'a fi_rx_attr>,
    ep: Option<&'a fi_ep_attr>,
    domain: Option<&'a fi_domain_attr>,
    fabric: Option<&'a fi_fabric_attr>,
}

impl<'a> Hints<'a> {
    /// # Safety
    /// `hints` is null, or valid with all that it points to.
    unsafe fn of(hints: *const fi_info) -> Self {
        // SAFETY: they are null or valid, says the caller.
        unsafe {
            let info: Option<&'a fi_info> = hints.as_ref();
            Self {
                info,
                tx: info.and_then(|info| info.tx_attr.as_ref()),
                rx: info.and_then(|info| info.rx_attr.as_ref()),
                ep: info.and_then(|info| info.ep_attr.as_ref()),
                domain: info.and_then(|info| info.domain_attr.as_ref()),
                fabric: info.and_then(|info| info.fabric_attr.as_ref()),
            }
        }
    }

    /// Whether an endpoint of this provider is what the application needs.
    fn are_met(&self) -> bool {
        let info = self.info.is_none_or(|it| {
            it.caps & !CAPABILITIES == 0 && matches!(it.addr_format, FI_FORMAT_UNSPEC | ADDRESS_FORMAT)
        });
        let endpoint = self.ep.is_none_or(|it| {
            matches!(it.r#type, FI_EP_UNSPEC | FI_EP_RDM)
                && matches!(it.protocol, 0 | PROTOCOL)
                && it.max_msg_size <= MAX_MESSAGE
                && it.tx_ctx_cnt <= 1
                && it.rx_ctx_cnt <= 1
                && it.auth_key_size == 0
        });
        let transmit = self.tx.is_none_or(|it| {
            it.caps & !(OF_TRANSMIT | SECONDARY) == 0
                && it.op_flags & !TRANSMIT_FLAGS == 0
                && it.msg_order & !FI_ORDER_SAS == 0
                && it.comp_order == 0
                && it.inject_size <= INJECT_SIZE
                && it.size <= QUEUE_SIZE
                && it.iov_limit <= IOV_LIMIT
                && it.rma_iov_limit <= IOV_LIMIT
        });
        let receive = self.rx.is_none_or(|it| {
            it.caps & !(OF_RECEIVE | SECONDARY) == 0
                && it.op_flags & !RECEIVE_FLAGS == 0
                && it.msg_order & !FI_ORDER_SAS == 0
                && it.comp_order == 0
                && it.size <= QUEUE_SIZE
                && it.iov_limit <= IOV_LIMIT
        });
        info && endpoint && transmit && receive && self.domain_is_met() && self.names_are_met()
    }

    fn domain_is_met(&self) -> bool {
        self.domain.is_none_or(|it| {
            it.caps & !OF_DOMAIN == 0
                && it.cq_data_size <= size_of::<u64>()
                && it.mr_key_size <= size_of::<u64>()
                && it.max_ep_stx_ctx == 0
                && it.max_ep_srx_ctx == 0
        })
    }

    /// Whether the fabric and the domain that are asked for by name are these.
    fn names_are_met(&self) -> bool {
        let is = |name: *const c_char, ours: &CStr| {
            // SAFETY: a name that is not null is a string, says libfabric.
            name.is_null() || unsafe { CStr::from_ptr(name) } == ours
        };
        self.fabric.is_none_or(|fabric| is(fabric.name, NAME))
            && self.domain.is_none_or(|domain| is(domain.name, &domain_name()))
    }
}

/// The number of the protocol between our endpoints, of those that libfabric does not name.
const PROTOCOL: u32 = FI_PROV_SPECIFIC | 0x726f;

/// The domain is the device.
fn domain_name() -> CString {
    CString::new(device()).unwrap_or_default()
}

/// A structure of zeros that libfabric may free.
fn zeroed<T>() -> *mut T {
    // SAFETY: it allocates.
    unsafe { libc::calloc(1, size_of::<T>() + APPENDED).cast() }
}

/// Copies a text so that libfabric may free it.
fn copied(text: &CStr) -> *mut c_char {
    // SAFETY: it is a string.
    unsafe { libc::strdup(text.as_ptr()) }
}

/// `fi_getinfo`. The core of libfabric writes the provider's name into the answer.
pub(crate) unsafe extern "C" fn getinfo(
    version: u32,
    node: *const c_char,
    _service: *const c_char,
    flags: u64,
    hints: *const fi_info,
    found: *mut *mut fi_info,
) -> c_int {
    // Layers of libfabric's that build reliable datagrams ask for what they can stand on. These endpoints are reliable datagrams.
    let is_too_old = version != 0 && version < OLDEST_API;
    if is_too_old || flags & OFI_CORE_PROV_ONLY != 0 {
        return -libc::ENODATA;
    }
    // SAFETY: libfabric hands in what it was given, or null.
    let hints = unsafe { Hints::of(hints) };
    // SAFETY: the name is a string where it is not null.
    if !hints.are_met() || !unsafe { is_known(node) } {
        return -libc::ENODATA;
    }
    match answer_to(version, &hints) {
        // SAFETY: libfabric wants the answer there.
        Some(info) => unsafe {
            *found = info;
            0
        },
        None => -libc::ENOMEM,
    }
}

/// Whether a host is there that the application names. Nothing else comes of it: addresses of endpoints are exchanged by the application.
///
/// # Safety
/// The name is null or a string.
unsafe fn is_known(node: *const c_char) -> bool {
    if node.is_null() {
        return true;
    }
    // SAFETY: the caller says so.
    let name = unsafe { CStr::from_ptr(node) };
    name.to_str().is_ok_and(|name| (name, 0_u16).to_socket_addrs().is_ok())
}

/// Makes the answer.
fn answer_to(version: u32, hints: &Hints<'_>) -> Option<*mut fi_info> {
    let info = zeroed::<fi_info>();
    let attributes = (zeroed(), zeroed(), zeroed(), zeroed(), zeroed());
    // SAFETY: each is null, or has room for what is written to it.
    unsafe {
        let info = info.as_mut()?;
        (info.tx_attr, info.rx_attr, info.ep_attr, info.domain_attr, info.fabric_attr) = attributes;
        info.caps = capabilities_for(hints);
        info.addr_format = ADDRESS_FORMAT;
        *info.tx_attr.as_mut()? = transmit(info.caps, hints);
        *info.rx_attr.as_mut()? = receive(info.caps, hints);
        *info.ep_attr.as_mut()? = endpoint();
        *info.domain_attr.as_mut()? = domain(hints);
        let fabric = info.fabric_attr.as_mut()?;
        fabric.name = copied(NAME);
        fabric.prov_version = PROVIDER_VERSION;
        fabric.api_version = if version == 0 { fi_version(1, 5) } else { version };
    }
    Some(info)
}

/// What the application asks for, and what comes with that; everything where it asks for nothing.
fn capabilities_for(hints: &Hints<'_>) -> u64 {
    let asked = hints.info.map_or(0, |info| info.caps);
    if asked == 0 {
        return CAPABILITIES;
    }
    let both = |primary, directions| if asked & primary != 0 && asked & directions == 0 { directions } else { 0 };
    asked | both(FI_MSG | FI_TAGGED, OF_MESSAGES) | both(FI_RMA | FI_ATOMIC, OF_RMA) | OF_DOMAIN
}

/// Flags of operations that have none of their own are the application's to choose.
fn transmit(caps: u64, hints: &Hints<'_>) -> fi_tx_attr {
    fi_tx_attr {
        caps: caps & (OF_TRANSMIT | OF_DOMAIN),
        mode: 0,
        op_flags: hints.tx.map_or(0, |it| it.op_flags),
        msg_order: FI_ORDER_SAS,
        comp_order: 0,
        inject_size: INJECT_SIZE,
        size: QUEUE_SIZE,
        iov_limit: IOV_LIMIT,
        rma_iov_limit: IOV_LIMIT,
        tclass: 0,
    }
}

fn receive(caps: u64, hints: &Hints<'_>) -> fi_rx_attr {
    fi_rx_attr {
        caps: caps & (OF_RECEIVE | OF_DOMAIN),
        mode: 0,
        op_flags: hints.rx.map_or(0, |it| it.op_flags),
        msg_order: FI_ORDER_SAS,
        comp_order: 0,
        total_buffered_recv: 0,
        size: QUEUE_SIZE,
        iov_limit: IOV_LIMIT,
    }
}

fn endpoint() -> fi_ep_attr {
    fi_ep_attr {
        r#type: FI_EP_RDM,
        protocol: PROTOCOL,
        protocol_version: 1,
        max_msg_size: MAX_MESSAGE,
        msg_prefix_size: 0,
        max_order_raw_size: 0,
        max_order_war_size: 0,
        max_order_waw_size: 0,
        mem_tag_format: u64::MAX,
        tx_ctx_cnt: 1,
        rx_ctx_cnt: 1,
        auth_key_size: 0,
        auth_key: null_mut(),
    }
}

/// The threads, progress and address vectors that are asked for are those that there are.
fn domain(hints: &Hints<'_>) -> fi_domain_attr {
    let asked = hints.domain;
    let or = |value: Option<c_int>, unspecified: c_int, default: c_int| match value {
        Some(value) if value != unspecified => value,
        _ => default,
    };
    // Only memory that peers reach is registered. Keys and addresses are as the application would have them.
    let modes = FI_MR_BASIC | FI_MR_SCALABLE | FI_MR_VIRT_ADDR | FI_MR_PROV_KEY | FI_MR_ALLOCATED;
    let mr_mode = asked.map_or(0, |it| it.mr_mode & modes);
    fi_domain_attr {
        domain: null_mut(),
        name: copied(&domain_name()),
        threading: or(asked.map(|it| it.threading), FI_THREAD_UNSPEC, FI_THREAD_SAFE),
        control_progress: or(asked.map(|it| it.control_progress), FI_PROGRESS_UNSPEC, FI_PROGRESS_MANUAL),
        data_progress: or(asked.map(|it| it.data_progress), FI_PROGRESS_UNSPEC, FI_PROGRESS_MANUAL),
        resource_mgmt: FI_RM_ENABLED,
        av_type: or(asked.map(|it| it.av_type), FI_AV_UNSPEC, FI_AV_TABLE),
        mr_mode,
        mr_key_size: size_of::<u64>(),
        cq_data_size: size_of::<u64>(),
        cq_cnt: QUEUE_SIZE,
        ep_cnt: QUEUE_SIZE,
        tx_ctx_cnt: QUEUE_SIZE,
        rx_ctx_cnt: QUEUE_SIZE,
        max_ep_tx_ctx: 1,
        max_ep_rx_ctx: 1,
        max_ep_stx_ctx: 0,
        max_ep_srx_ctx: 0,
        cntr_cnt: QUEUE_SIZE,
        mr_iov_limit: 1,
        caps: OF_DOMAIN,
        mode: 0,
        auth_key: null_mut(),
        auth_key_size: 0,
        max_err_data: 0,
        mr_cnt: QUEUE_SIZE,
        tclass: 0,
    }
}

/// Bytes of an address.
pub const ADDRESS_LEN: usize = EndpointAddress::LEN;
