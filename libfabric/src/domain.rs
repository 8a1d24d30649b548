//! The domain: a device, and the configuration of the endpoints on it.

use std::ffi::{c_int, c_void};
use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use roci_msgcore::config::Origin;
use roci_msgcore::{Config, ConfigError};

use crate::abi::attributes::{FI_PROGRESS_AUTO, fi_info};
use crate::abi::operations::{fi_ops, fi_ops_domain};
use crate::abi::{FI_CLASS_DOMAIN, fid, fid_domain, fid_fabric};
use crate::attached::AttachedEndpoints;
use crate::fabric::{self, FabricState};
use crate::memory::{MemoryMode, RegisteredMemory};
use crate::object::{Object, fid_of};
use crate::{atomic, counter, endpoint, memory, queue, vector};

/// The variable that names the device, so that what is set for other programs does not count here.
const DEVICE: &str = "FI_ROCI_DEVICE";
/// What is taken where it is not set: sockets, which need no privilege and no configuration.
const DEFAULT_DEVICE: &str = "udp";

/// How long that is unless a knob says otherwise: an MPI's rank ends while another one computes, and receives what it was sent after
/// that. A peer that is gone is not waited for.
const LINGER: Duration = Duration::from_mins(1);

/// What endpoints of a domain have in common.
pub(crate) struct DomainState {
    _fabric: Arc<FabricState>,
    pub(crate) config: Config,
    /// How long a closed endpoint waits for its peers.
    pub(crate) linger: Duration,
    /// A thread makes progress where the application asks for it.
    pub(crate) is_automatic: bool,
    pub(crate) memory: RegisteredMemory,
    /// All that are enabled.
    pub(crate) endpoints: AttachedEndpoints,
}

type FiDomain = Object<fid_domain, DomainState>;

static OPS: fi_ops = fi_ops { close, bind, ..fi_ops::MISSING };
static DOMAIN_OPS: fi_ops_domain = fi_ops_domain {
    av_open: vector::open,
    cq_open: queue::open,
    cntr_open: counter::open,
    endpoint: endpoint::open,
    query_atomic: atomic::calls::query,
    ..fi_ops_domain::MISSING
};

/// Returns the device that endpoints are opened on.
pub(crate) fn device() -> String {
    std::env::var(DEVICE).ok().filter(|device| !device.is_empty()).unwrap_or_else(|| DEFAULT_DEVICE.into())
}

/// The configuration of the endpoints: the core's own, on this provider's device; and how long they linger when they are closed, which
/// is done here ([`crate::linger`]).
fn configure() -> Result<(Config, Duration), ConfigError> {
    let mut config = Config::load(None)?;
    config.set("device", &device(), Origin::Environment)?;
    let is_chosen = config.origin("linger_ms") != Origin::Default;
    let linger = if is_chosen { Duration::from_millis(config.linger_ms) } else { LINGER };
    config.set("linger_ms", "0", Origin::Code)?;
    Ok((config, linger))
}

/// `fi_domain`.
pub(crate) unsafe extern "C" fn open(
    fabric: *mut fid_fabric,
    info: *mut fi_info,
    domain: *mut *mut fid_domain,
    context: *mut c_void,
) -> c_int {
    let (config, linger) = match configure() {
        Ok(config) => config,
        Err(why) => return refuse(&why.to_string()),
    };
    // SAFETY: the fabric is ours; the attributes are valid where they are there.
    unsafe {
        let attributes = info.as_ref().and_then(|info| info.domain_attr.as_ref());
        let is_automatic = attributes.is_some_and(|it| it.data_progress == FI_PROGRESS_AUTO);
        let mode = MemoryMode::of(attributes.map_or(0, |it| it.mr_mode));
        let memory = RegisteredMemory::new(mode);
        let (fabric, endpoints) = (fabric::state(fabric), AttachedEndpoints::default());
        let state = DomainState { _fabric: fabric, config, linger, is_automatic, memory, endpoints };
        let base = fid_of(FI_CLASS_DOMAIN, context, &OPS);
        let (ops, mr) = (&raw const DOMAIN_OPS, &raw const memory::MEMORY_OPS);
        *domain = FiDomain::open(fid_domain { fid: base, ops, mr }, Arc::new(state));
    }
    0
}

/// Says on stderr what is wrong with the configuration or the device: an error number does not say it.
pub(crate) fn refuse(why: &str) -> c_int {
    // In one piece: other ranks may write to the same terminal. Where there is none to write to, the error number remains.
    let line = format!("roci: {why}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
    -libc::EINVAL
}

/// The state of an open domain.
///
/// # Safety
/// It is one of ours.
pub(crate) unsafe fn state(domain: *mut fid_domain) -> Arc<DomainState> {
    // SAFETY: the caller says so.
    unsafe { FiDomain::state(domain) }.clone()
}

unsafe extern "C" fn close(fid: *mut fid) -> c_int {
    // SAFETY: libfabric closes an object by its own function.
    unsafe { FiDomain::close(fid) }
}

/// An event queue may be bound, and has nothing to say.
unsafe extern "C" fn bind(_fid: *mut fid, _to: *mut fid, _flags: u64) -> c_int {
    0
}
