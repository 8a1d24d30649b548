//! Verbs in software: queue pairs, registered memory and completion queues over a port that DPDK drives.
//!
//! # Quick start
//! Two engines in one process, over a simulated wire:
//!
//! ```
//! use roci_driver::link::sim::{Clock, SimLink};
//! use roci_driver::{Engine, QpParams, SendWr};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (near, far) = SimLink::pair(&Clock::default());
//! let mut client = Engine::new(1 << 20)?;
//! let mut server = Engine::new(1 << 20)?;
//! client.add_port(near, [10, 0, 0, 1].into(), true);
//! server.add_port(far, [10, 0, 0, 2].into(), true);
//!
//! // Each side makes a queue pair, and the addresses travel out of band.
//! let params = QpParams::default();
//! let (client_pd, server_pd) = (client.alloc_pd(), server.alloc_pd());
//! let (client_cq, server_cq) = (client.create_cq(16), server.create_cq(16));
//! let ours = client.create_qp(0, client_pd, client_cq)?;
//! let theirs = server.create_qp(0, server_pd, server_cq)?;
//! let (our_address, their_address) = (client.address_of(&ours, &params), server.address_of(&theirs, &params));
//! let qp = client.connect(ours, &their_address, &params)?;
//! let peer = server.connect(theirs, &our_address, &params)?;
//!
//! // The buffer moves into the work request and returns in its completion.
//! server.post_recv(peer, 1, server.buffer(64)?)?;
//! let mut message = client.buffer(5)?;
//! message.copy_from_slice(b"hello");
//! client.post_send(qp, SendWr::send(2, message))?;
//!
//! let received = loop {
//!     server.poll();
//!     client.poll();
//!     if let Some(done) = server.poll_cq(server_cq) {
//!         break done;
//!     }
//! };
//! assert_eq!(&received.buffer[..received.len], b"hello");
//! # Ok(())
//! # }
//! ```
//!
//! # A port
//! What `ibv_open_device` is to verbs is here a link that an engine takes as a port. A UDP socket needs no privilege:
//!
//! ```no_run
//! use roci_driver::link::udp::{ROCE_PORT, UdpAddress, UdpLink};
//! use roci_driver::{Access, Engine, PortSpace, ServiceId};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // A server has RoCEv2's own port, where peers look for it. A client takes `UdpAddress::default()`, and any port.
//! let link = UdpLink::open(UdpAddress { ip: Some([127, 0, 0, 1].into()), port: Some(ROCE_PORT) }, None)?;
//! let ip = link.own().ip();
//! let mut engine = Engine::new(8 << 20)?;
//! engine.add_port(link, ip, false);
//!
//! let (pd, cq) = (engine.alloc_pd(), engine.create_cq(256));
//! let table = engine.register(pd, engine.buffer(4096)?, Access::REMOTE_READ)?;
//! engine.cm_listen(ServiceId::of_port(PortSpace::Tcp, 7471))?;
//! loop {
//!     engine.poll();
//!     while let Some(event) = engine.poll_cm() { /* cm_prepare, post_recv, cm_accept */ }
//!     while let Some(done) = engine.poll_cq(cq) { /* its buffer is yours again */ }
//! }
//! # }
//! ```
//!
//! Processes on one host have an address each: 127.0.0.1, 127.0.0.2, or one by [`UdpLink::open_on_loopback`](
//! link::udp::UdpLink::open_on_loopback). The example `rdma_cm` is a whole server and client. [`link::live::AnyLink`] is a link
//! that is chosen when the program runs.
//!
//! # Threads
//! An [`Engine`] is used by one thread at a time, and runs to completion there. It is `Send` where its links are, as those of
//! DPDK: it may move to another thread, or be behind a lock that several take. It is not `Sync`. A [`Buffer`] is `Send`: other
//! threads fill, read and drop buffers, and an [`Arena`] may be shared with them to cut more. A process may have several
//! engines, each with ports of its own, or with a queue each of one port ([`link::dpdk::Attachment::with_queues`]).
//!
//! A process that was forked from the engine's has no engine: see [`Engine::is_forked`].
//!
//! # Memory
//! Buffers are cut from the engine's arena, or made of memory of the application's own by [`Engine::adopt`], which
//! registers it as [`RegistrationConfig`] has it. Such memory is exclusive, a source or a target: [`MemoryKind`] says who else
//! may access it meanwhile, and what it is for. The application may unmap, move or discard such memory as soon as its
//! buffers are dropped: the registration cache is notified before the call that did it returns. Of three things it is
//! not notified, or too late. A device that reads memory itself then sends what the old pages held; the processor reads
//! what is there.
//! - Guard regions (madvise(2), `MADV_GUARD_INSTALL`) belong into memory that is never adopted.
//! - A System V segment must not be attached over memory that was adopted (shmat(2), `SHM_REMAP`): the memory vanishes
//!   without an event. Unmap it first.
//! - While one thread unmaps memory, the kernel may give its addresses to another before it sends the event. For this
//!   moment, microseconds as a rule, until the first thread's call returns, the other may still find the registration
//!   of the old memory, if it sends from the new. With [`MonitorChoice::None`] nothing is cached, and nothing is ever
//!   stale.
//!
//! # Cleanup
//! Dropping an engine ends its RDMA-CM connections, stops its ports, and ends its registrations. Finish your sends first: what
//! was not acknowledged is lost with it.
//!
//! # Non-goals
//! Interrupt-driven operation, kernel bypass for other protocols, unreliable connections.
#![deny(unsafe_code)]

mod address;
mod attendance;
mod cm;
mod cq;
mod engine;
mod event;
mod handles;
#[doc(hidden)]
pub mod internals;
#[allow(unsafe_code)] // a promise, and no code
mod lasting;
#[allow(unsafe_code)] // the devices
pub mod link;
#[allow(unsafe_code)] // the mapping
mod mem;
pub mod neighbour;
mod qp;
mod refused;
mod sentence;
mod srq;
mod sync;
mod wr;

pub use address::{Address, ParseAddressError};
pub use cm::{CmCallError, CmEvent};
pub use cq::{Notify, WorkCompletion};
pub use engine::{
    AddressHandle, AddressHandleError, DatagramQp, Engine, EngineStats, MemoryRegion, MemoryWindow, PortConfig,
    PortConfigError, PostError, Sink, WindowView,
};
pub use event::Event;
pub use handles::{CmChannel, CompletionQueue, QueuePair, SharedReceiveQueue};
pub use lasting::Lasting;
pub use mem::{
    AdoptError, Arena, ArenaConfig, ArenaError, Buffer, ForkWatch, HugePage, ListError, MAX_PIECES, MarkPlace,
    MemoryError, MemoryKind, MemoryMark, MonitorChoice, MonitorError, Number, PageChoice, Pages, PassedOver, PdId,
    PeerMemory, PeerMemoryError, Pin, Placement, RegionError, RegisterError, RegistrationConfig, RegistrationInfo,
    RegistrationStats, UserMemory, WrongKind,
};
pub use qp::{ConnectError, QpParams, UnconnectedQp};
pub use refused::Refused;
pub use roci_protocol::cm::{CmError, CmStats, ConnId, Ending, ListenError, PrivateData, SidrFailure, SidrId, Terms};
pub use roci_protocol::rc::congestion::Algorithm;
pub use roci_protocol::rc::{AtomicOperation, Denied, Dialect, Operation, RcPostError, State, WcStatus};
pub use roci_protocol::ud::{Destination, GRH_LEN};
pub use roci_protocol::wire::MacAddr;
pub use roci_protocol::wire::cm::{PortSpace, RejReason, ServiceId};
pub use roci_protocol::{Access, Mtu, Nanos, Pkey, Psn, Qpn, Rkey};
pub use wr::SendWr;

static_assertions::assert_impl_all!(Engine<link::dpdk::DpdkLink>: Send);
