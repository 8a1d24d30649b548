//! A provider for libfabric: MPI, GASNet and whatever else speaks libfabric reach the messaging core without a change.
//!
//! libfabric loads this library where `FI_PROVIDER_PATH` names its folder, and finds the provider `roci`: reliable datagrams
//! (`FI_EP_RDM`) with tagged and untagged messages, and RMA. An endpoint is a [`Worker`](roci_msgcore::Worker) without a job behind a lock, an
//! address vector its peers' addresses. All protocols are the core's; here calls become the core's calls, and its completions
//! entries of completion queues.
//!
//! | libfabric | here | the core |
//! |---|---|---|
//! | `fi_getinfo` | [`info`] | |
//! | fabric, domain, event queue | `fabric`, `domain`, `event_queue` | the configuration |
//! | endpoint | `endpoint` | `Worker::open_alone` |
//! | `fi_send`, `fi_tsend` and their kin | `transmit` | `inject`, `send_with` |
//! | `fi_recv`, `fi_trecv` and their kin | `receive` | `recv_with`, `recv_multi`, `claim` |
//! | memory regions | `memory` | `expose_as`, `withdraw` |
//! | `fi_read`, `fi_write` and their kin | `rma`, `remote_data` | `put`, `get`, active messages |
//! | completion queue, counter | `queue`, `counter` | `poll_completion` |
//! | address vector | `vector` | `insert`, `remove` |
//!
//! Knobs are the core's (`ROCI_*`). `FI_ROCI_DEVICE` names the device, and without it a UDP socket is taken; peers of the same host
//! are met over memif. Nothing is opened before the first endpoint is enabled.

pub mod abi;
mod atomic;
mod attached;
mod completion;
mod counter;
mod domain;
mod endpoint;
mod errors;
mod event_queue;
mod fabric;
pub mod info;
mod linger;
mod memory;
mod message;
mod object;
mod progress;
mod progress_thread;
mod queue;
mod receive;
mod remote_data;
mod rma;
mod transmit;
mod vector;
mod wait_fd;

use std::ptr::null_mut;

use abi::{fi_context, fi_provider, fi_version};

/// The version of the provider, which `fi_info` shows.
pub const PROVIDER_VERSION: u32 = fi_version(0, 1);
/// The interface that it was written for, or any later one: structures are only ever appended to, and what is appended is zero here.
const INTERFACE: u32 = fi_version(2, 0xffff);

/// The provider. libfabric keeps a pointer to it, and writes to its context.
struct Provider(std::cell::UnsafeCell<fi_provider>);

// SAFETY: nothing here reads or writes it; libfabric does, under its own lock.
unsafe impl Sync for Provider {}

static PROVIDER: Provider = Provider(std::cell::UnsafeCell::new(fi_provider {
    version: PROVIDER_VERSION,
    fi_version: INTERFACE,
    context: fi_context { internal: [null_mut(); 4] },
    name: info::NAME.as_ptr(),
    getinfo: info::getinfo,
    fabric: fabric::open,
    cleanup,
}));

/// Nothing outlives the objects that the application closes.
unsafe extern "C" fn cleanup() {}

/// Returns the provider. libfabric calls this when it has loaded the library.
#[unsafe(no_mangle)]
pub extern "C" fn fi_prov_ini() -> *mut fi_provider {
    PROVIDER.0.get()
}
