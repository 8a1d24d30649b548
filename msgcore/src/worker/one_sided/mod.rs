//! One-sided operations: put, get and atomics on memory that peers have exposed.
//!
//! A peer exposes a buffer ([`OneSided::expose`]), or offers memory ([`Offering`]), and gives its key ([`Segment::key`]) to others: by
//! name ([`KeyNames`]), by a collective call ([`gather_keys`](crate::collectives::Collectives::gather_keys)), or by hand. From then on
//! others read and write it without a call of its owner's, who looks at a segment by [`OneSided::read_segment`]. The owner must make
//! progress: its engine does what a NIC would.
//!
//! # How an operation ends
//! [`OneSided::put`], [`OneSided::get`] and [`OneSided::atomic`] give a [`Request`] for one that is waited for or tested (an explicit
//! handle). [`OneSided::put_nbi`] and [`OneSided::atomic_nbi`] copy and return, and
//! [`Messaging::flush`](crate::Messaging::flush) waits for all of those to a peer or to all (an implicit handle; quiet).
//! [`AccessRegion`] groups operations that are waited for together. A put has ended, and a flush is over, when the bytes are in the
//! target's memory. Until then the origin's buffer is the worker's.
//!
//! # Order
//! Operations to one peer may be seen in any order, but that a put is in memory before its own signal changes. [`OneSided::fence`]
//! puts an order between those before it and those after it.
//!
//! # Atomics
//! Every atomic on a number is one step as to every other that comes through a worker, the owner's own by [`OneSided::atomic`] among them.
//! Puts and writes of the owner are not. Numbers are in the byte order of the owner's processor, at a multiple of their length.
//!
//! # Where it goes wrong
//! Reaching beyond a segment is refused by the call, and so is a number that is not aligned. What only the target knows ends the
//! connection where it goes by RDMA ([`OpError::PeerGone`], with `IBV_WC_REM_ACCESS_ERR`): that a segment was withdrawn, so withdraw one
//! when no peer uses it any more; that it is read only; that a key is another peer's. By message the operation alone ends
//! ([`OpError::Denied`]), and one that is not waited for is an event ([`WorkerEvent::Denied`](crate::WorkerEvent::Denied)).
//!
//! ```
//! use roci_driver::Engine;
//! use roci_driver::link::sim::{Clock, SimLink};
//! use roci_msgcore::one_sided::OneSided as _;
//! use roci_msgcore::{Config, Ports, Worker};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let clock = Clock::default();
//! # let (near, far) = SimLink::pair(&clock);
//! # let hosts = [[10, 0, 0, 1].into(), [10, 0, 0, 2].into()];
//! # let mut engines = vec![Engine::new(32 << 20)?, Engine::new(32 << 20)?];
//! # engines[0].add_port(near, hosts[0], true);
//! # engines[1].add_port(far, hosts[1], true);
//! # let ports = Ports::group(engines, &hosts).into_iter();
//! # let mut workers = ports.map(|ports| Worker::assemble(ports, &Config::default())).collect::<Result<Vec<_>, _>>()?;
//! # let [near, far] = &mut workers[..] else { unreachable!() };
//! let segment = far.expose(far.buffer(4096)?)?;
//! let theirs = segment.key();
//!
//! near.put_nbi(1, b"hello", theirs.at(100))?;
//! let mut bytes = [0; 5];
//! while bytes != *b"hello" {
//!     near.progress();
//!     far.progress();
//!     far.read_segment(segment, 100, &mut bytes)?;
//! #   clock.advance(1_000);
//! }
//! # Ok(())
//! # }
//! ```

mod access_region;
mod inline;
mod names;
mod non_contiguous;
mod offering;

use roci_driver::Buffer;

use crate::Source;
use crate::core::completion::{Done, OpError};
use crate::core::peer_id::PeerId;
use crate::core::refused::{CallError, Refused};
use crate::core::request::Request;

pub use crate::core::segment::{OfferedMemory, RemoteAccess, RemoteAddress, Segment, SegmentKey};
pub use crate::services::rma::operation::Signal;
pub use access_region::AccessRegion;
pub use names::KeyNames;
pub use non_contiguous::NonContiguous;
pub use offering::Offering;
pub use roci_protocol::msg::{AtomicOp, AtomicWidth};

/// Bytes of the numbers that values and signals are.
const NUMBER: usize = 8;

/// One-sided operations of a worker, whose engine runs wherever it does.
pub trait OneSided {
    /// Exposes memory to peers: a worker's buffer, or the application's own that was adopted. They may read a read-only source alone;
    /// in memory that the application accesses meanwhile they may change numbers only where it begins at a multiple of 8.
    ///
    /// # Errors
    /// All keys are in use. The buffer comes back, unless it went with a dedicated worker's thread.
    fn expose(&mut self, buffer: Buffer) -> Result<Segment, Refused<Option<Buffer>>>;

    /// Exposes memory to peers under a key of the caller's choice, with addresses from `base` on: peers need nothing but the number
    /// ([`SegmentKey::requested`]), and may do what `access` says. An address is `base` for the first byte, be that 0 or the memory's
    /// own address. It may be exposed under several keys at a time, where it is the application's
    /// ([`UserMemory::target`](roci_driver::UserMemory::target)).
    ///
    /// Operations under such keys go by messages, whatever RDMA there is, and where the key is not known, or not any more, they end
    /// alone ([`OpError::Denied`]).
    ///
    /// # Errors
    /// The key is taken, all of the worker's are in use, or the last address would be beyond 64 bits. The buffer comes back, unless it
    /// went with a dedicated worker's thread.
    fn expose_as(
        &mut self,
        key: u64,
        base: u64,
        buffer: Buffer,
        access: RemoteAccess,
    ) -> Result<Segment, Refused<Option<Buffer>>>;

    /// Withdraws a segment from peers, and returns its memory. Operations of peers that come later are denied.
    ///
    /// # Errors
    /// There is no such segment.
    fn withdraw(&mut self, segment: Segment) -> Result<Buffer, CallError>;

    /// Copies bytes out of a segment of this worker's, from `offset` on.
    ///
    /// # Errors
    /// There is no such segment, or it is shorter.
    fn read_segment(&mut self, segment: Segment, offset: usize, into: &mut [u8]) -> Result<(), CallError>;

    /// Copies bytes into a segment of this worker's, from `offset` on.
    ///
    /// # Errors
    /// There is no such segment, or it is shorter or read only.
    fn write_segment(&mut self, segment: Segment, offset: usize, from: &[u8]) -> Result<(), CallError>;

    /// Waits until a number of 8 bytes in a segment of this worker's is another than `was`, and returns it: `source` has put it there,
    /// or changed it. `offset` is a multiple of 8.
    ///
    /// # Errors
    /// There is no such segment, or it is shorter; the source is gone; or the job is over. Of any source, the job has failed or
    /// all peers are gone.
    fn wait_for_change(&mut self, source: Source, segment: Segment, offset: usize, was: u64) -> Result<u64, CallError>;

    /// Writes all of a buffer to a peer's memory, and changes a number there behind it if a signal is given. The buffer returns when
    /// the request ends: then the bytes are there.
    ///
    /// # Errors
    /// It reaches beyond the segment, the peer is gone, or too many operations are under way.
    fn put_with(
        &mut self,
        to: PeerId,
        buffer: Buffer,
        at: RemoteAddress,
        signal: Option<(Signal, RemoteAddress)>,
    ) -> Result<Request, Refused<Buffer>>;

    /// Fills a buffer from a peer's memory.
    ///
    /// # Errors
    /// As for [`OneSided::put_with`].
    fn get_from(&mut self, from: PeerId, buffer: Buffer, at: RemoteAddress) -> Result<Request, Refused<Buffer>>;

    /// Changes a number in a peer's memory. What it was is the outcome's [`Done::data`].
    ///
    /// # Errors
    /// As for [`OneSided::put_with`].
    fn atomic_with(
        &mut self,
        to: PeerId,
        op: AtomicOp,
        width: AtomicWidth,
        at: RemoteAddress,
    ) -> Result<Request, CallError>;

    /// Writes bytes to a peer's memory; they are the caller's again when the call returns. There is no operation to wait for but a
    /// flush; that the peer is gone is an event alone.
    ///
    /// # Errors
    /// As for [`OneSided::put_with`].
    fn put_copy(&mut self, to: PeerId, bytes: &[u8], at: RemoteAddress) -> Result<(), CallError>;

    /// Has the next operation on a peer's memory wait until those before it are done.
    ///
    /// # Errors
    /// There is no such peer, or it is gone.
    fn fence_to(&mut self, to: PeerId) -> Result<(), CallError>;

    #[doc(hidden)]
    fn wait_for_one_sided(&mut self, request: Request) -> Result<Done, OpError>;

    #[doc(hidden)]
    fn leave_one_sided(&mut self, request: Request);

    #[doc(hidden)]
    fn memory_for_one_sided(&self, len: usize) -> Result<Buffer, CallError>;

    /// Waits until a number of 8 bytes in a segment of this worker's is at least `value`, and returns it: so many signals have come.
    ///
    /// # Errors
    /// As for [`OneSided::wait_for_change`].
    fn wait_for_at_least(
        &mut self,
        source: Source,
        segment: Segment,
        offset: usize,
        value: u64,
    ) -> Result<u64, CallError> {
        let mut bytes = [0; NUMBER];
        self.read_segment(segment, offset, &mut bytes)?;
        let mut now = u64::from_ne_bytes(bytes);
        while now < value {
            now = self.wait_for_change(source, segment, offset, now)?;
        }
        Ok(now)
    }

    /// Writes all of a buffer to a peer's memory, as [`OneSided::put_with`] without a signal.
    ///
    /// # Errors
    /// As there.
    fn put(&mut self, to: impl Into<PeerId>, buffer: Buffer, at: RemoteAddress) -> Result<Request, Refused<Buffer>>
    where
        Self: Sized,
    {
        self.put_with(to.into(), buffer, at, None)
    }

    /// Fills a buffer from a peer's memory, as [`OneSided::get_from`].
    ///
    /// # Errors
    /// As there.
    fn get(&mut self, from: impl Into<PeerId>, buffer: Buffer, at: RemoteAddress) -> Result<Request, Refused<Buffer>>
    where
        Self: Sized,
    {
        self.get_from(from.into(), buffer, at)
    }

    /// Changes a number of 8 bytes in a peer's memory, as [`OneSided::atomic_with`].
    ///
    /// # Errors
    /// As there.
    fn atomic(&mut self, to: impl Into<PeerId>, op: AtomicOp, at: RemoteAddress) -> Result<Request, CallError>
    where
        Self: Sized,
    {
        self.atomic_with(to.into(), op, AtomicWidth::U64, at)
    }

    /// Changes a number of 8 bytes in a peer's memory, and does not ask what it was.
    ///
    /// # Errors
    /// As for [`OneSided::put_with`].
    fn atomic_nbi(&mut self, to: impl Into<PeerId>, op: AtomicOp, at: RemoteAddress) -> Result<(), CallError>
    where
        Self: Sized,
    {
        let request = self.atomic_with(to.into(), op, AtomicWidth::U64, at)?;
        self.leave_one_sided(request);
        Ok(())
    }

    /// Changes a number of 8 bytes in a peer's memory, and returns what it was.
    ///
    /// # Errors
    /// As for [`OneSided::put_with`]; or the peer has gone meanwhile.
    fn fetch(&mut self, from: impl Into<PeerId>, op: AtomicOp, at: RemoteAddress) -> Result<u64, CallError>
    where
        Self: Sized,
    {
        let request = self.atomic_with(from.into(), op, AtomicWidth::U64, at)?;
        Ok(self.wait_for_one_sided(request)?.data.unwrap_or_default())
    }

    /// Writes bytes to a peer's memory, as [`OneSided::put_copy`].
    ///
    /// # Errors
    /// As there.
    fn put_nbi(&mut self, to: impl Into<PeerId>, bytes: &[u8], at: RemoteAddress) -> Result<(), CallError>
    where
        Self: Sized,
    {
        self.put_copy(to.into(), bytes, at)
    }

    /// Writes bytes to a peer's memory, and returns when they are there.
    ///
    /// # Errors
    /// As for [`OneSided::put_with`]; or the peer has gone meanwhile.
    fn put_blocking(&mut self, to: impl Into<PeerId>, bytes: &[u8], at: RemoteAddress) -> Result<(), CallError>
    where
        Self: Sized,
    {
        let mut copy = self.memory_for_one_sided(bytes.len())?;
        copy.copy_from_slice(bytes);
        let request = self.put_with(to.into(), copy, at, None)?;
        self.wait_for_one_sided(request)?;
        Ok(())
    }

    /// Reads bytes of a peer's memory, and returns when they are here.
    ///
    /// # Errors
    /// As for [`OneSided::put_with`]; or the peer has gone meanwhile.
    fn get_blocking(&mut self, from: impl Into<PeerId>, into: &mut [u8], at: RemoteAddress) -> Result<(), CallError>
    where
        Self: Sized,
    {
        let buffer = self.memory_for_one_sided(into.len())?;
        let request = self.get_from(from.into(), buffer, at)?;
        into.copy_from_slice(&self.wait_for_one_sided(request)?.buffer);
        Ok(())
    }

    /// Writes a number to a peer's memory, as [`OneSided::put_nbi`] does bytes.
    ///
    /// # Errors
    /// As there.
    fn put_value(&mut self, to: impl Into<PeerId>, value: u64, at: RemoteAddress) -> Result<(), CallError>
    where
        Self: Sized,
    {
        self.put_copy(to.into(), &value.to_ne_bytes(), at)
    }

    /// Reads a number of a peer's memory, and returns when it is here.
    ///
    /// # Errors
    /// As for [`OneSided::get_blocking`].
    fn get_value(&mut self, from: impl Into<PeerId>, at: RemoteAddress) -> Result<u64, CallError>
    where
        Self: Sized,
    {
        let mut bytes = [0; NUMBER];
        self.get_blocking(from, &mut bytes, at)?;
        Ok(u64::from_ne_bytes(bytes))
    }

    /// Has the next operation on a peer's memory wait until those before it are done, as [`OneSided::fence_to`].
    ///
    /// # Errors
    /// As there.
    fn fence(&mut self, to: impl Into<PeerId>) -> Result<(), CallError>
    where
        Self: Sized,
    {
        self.fence_to(to.into())
    }
}
