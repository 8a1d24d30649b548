//! Byte streams: a stream of bytes to each peer, and one back.
//!
//! [`Streams::stream`] opens them. [`Stream::put`] and [`Stream::get`] take and give as many bytes as they can now and never
//! wait. Streams and tagged messages go side by side in one worker, over the same connections.
//!
//! # Limits
//! 64 WRITEs of a stream that use up a receive may be unacknowledged; beyond them, where the ring is full, and where the send
//! queue is, puts take less or nothing. Where both sides put and neither gets, both puts return 0 until one of them gets.
//! A payload has at most 1 GiB; 65,536 of them can be adopted, and as many registered as the configuration says. Each
//! open stream takes twice its ring of the arena, and three times where zero-copy is on.
//!
//! # Quick start
//! ```
//! use roci_driver::Engine;
//! use roci_driver::link::sim::{Clock, SimLink};
//! use roci_msgcore::stream::Streams as _;
//! use roci_msgcore::{Config, Ports, Worker};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let clock = Clock::default();
//! let (near, far) = SimLink::pair(&clock);
//! let hosts = [[10, 0, 0, 1].into(), [10, 0, 0, 2].into()];
//! let mut engines = vec![Engine::new(32 << 20)?, Engine::new(32 << 20)?];
//! engines[0].add_port(near, hosts[0], true);
//! engines[1].add_port(far, hosts[1], true);
//! let mut workers = Vec::new();
//! for ports in Ports::group(engines, &hosts) {
//!     workers.push(Worker::assemble(ports, &Config::default())?);
//! }
//! let [near, far] = &mut workers[..] else { unreachable!() };
//!
//! let (mut sent, mut got, mut bytes) = (0, 0, [0; 5]);
//! while got < bytes.len() {
//!     sent += near.stream(1)?.put(&b"hello"[sent..])?;
//!     got += far.stream(0)?.get(&mut bytes[got..])?;
//!     clock.advance(1_000);
//! }
//! assert_eq!(&bytes, b"hello");
//! # Ok(())
//! # }
//! ```

use roci_driver::Buffer;
use roci_driver::link::Link;

use super::Worker;
use super::ports::LiveLink;
use crate::core::peer_id::PeerId;
use crate::core::refused::CallError;
use crate::endpoint::streams::OpenStreamError;

pub use crate::core::breach::StreamBreach;
pub use crate::services::stream::{BadStreamConfig, StreamConfig, StreamError, StreamPayload, StreamStats, StreamStep};

/// Byte streams between ranks, of a worker whose engine runs wherever it does. Calls that name a peer open its streams where they
/// are not, and make progress where they move nothing; [`Stream`] has the same calls with the peer named once.
pub trait Streams {
    /// Returns the streams to and from rank `peer`, which are opened where they are not, and the connection with them. Puts
    /// take nothing before the peer has opened its end.
    ///
    /// # Errors
    /// There is no such peer, it has failed before, or there is no memory for the rings.
    #[inline]
    fn stream(&mut self, peer: impl Into<PeerId>) -> Result<Stream<'_, Self>, StreamError>
    where
        Self: Sized,
    {
        Stream::open(self, peer)
    }

    /// Opens the streams to and from a rank, where they are not.
    ///
    /// # Errors
    /// As for [`Streams::stream`].
    fn open_stream(&mut self, peer: PeerId) -> Result<(), StreamError>;

    /// As [`Stream::is_open`].
    fn is_stream_open(&mut self, peer: PeerId) -> Result<bool, StreamError>;

    /// As [`Stream::put`].
    fn put_bytes(&mut self, to: PeerId, bytes: &[u8]) -> Result<usize, StreamError>;

    /// As [`Stream::put_payload`].
    fn put_payload(&mut self, to: PeerId, payload: StreamPayload) -> Result<usize, StreamError>;

    /// As [`Stream::get`].
    fn get_bytes(&mut self, from: PeerId, into: &mut [u8]) -> Result<usize, StreamError>;

    /// As [`Stream::get_into`].
    fn get_into(&mut self, from: PeerId, buffer: &mut Option<Buffer>) -> Result<usize, StreamError>;

    /// As [`Stream::flush`].
    fn flush_stream(&mut self, to: PeerId) -> Result<bool, StreamError>;

    /// Has streams work in another way than the usual one. All ranks do so, with the same configuration, before they open the
    /// first stream or adopt the first payload.
    ///
    /// # Errors
    /// The configuration is wrong, or something uses the one that was.
    fn configure_streams(&mut self, config: StreamConfig) -> Result<(), StreamError>;

    /// Takes a buffer in, to be put to streams without a copy. All of it is the payload.
    ///
    /// # Errors
    /// It is too long, or there are too many.
    fn adopt_payload(&mut self, buffer: Buffer) -> Result<StreamPayload, StreamError>;

    /// Writes to a payload that is not being put; it stays registered if it was.
    ///
    /// # Errors
    /// There is no such payload or no such range in it, or it is being put.
    fn write_payload(&mut self, payload: StreamPayload, offset: usize, bytes: &[u8]) -> Result<(), StreamError>;

    /// Gives a payload's memory back, which no peer can read from here on.
    ///
    /// # Errors
    /// There is no such payload, or it is being put.
    fn release_payload(&mut self, payload: StreamPayload) -> Result<Buffer, StreamError>;

    /// Returns the counters of all streams.
    ///
    /// # Errors
    /// The engine is gone.
    fn stream_stats(&mut self) -> Result<StreamStats, StreamError>;
}

/// The stream of bytes to a peer, and the one back.
#[derive(Debug)]
pub struct Stream<'a, W: ?Sized = Worker<LiveLink>> {
    worker: &'a mut W,
    peer: PeerId,
}

impl<'a, W: Streams + ?Sized> Stream<'a, W> {
    /// As [`Streams::stream`].
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn open(worker: &'a mut W, peer: impl Into<PeerId>) -> Result<Self, StreamError> {
        let peer = peer.into();
        worker.open_stream(peer)?;
        Ok(Self { worker, peer })
    }

    /// Whether the peer has opened its end, so that puts take something.
    ///
    /// # Errors
    /// The stream has failed.
    pub fn is_open(&mut self) -> Result<bool, StreamError> {
        self.worker.is_stream_open(self.peer)
    }

    /// Puts bytes, as many as there is room for now, and returns how many those are. Makes progress where there is room for
    /// none.
    ///
    /// # Errors
    /// The stream has failed, or a payload is being put.
    #[inline]
    pub fn put(&mut self, bytes: &[u8]) -> Result<usize, StreamError> {
        self.worker.put_bytes(self.peer, bytes)
    }

    /// Puts a whole payload. Returns 0 as long as it is under way, and then, once, its length: so the call is repeated until
    /// then. Meanwhile nothing else can be put to this peer, and the payload can neither be written nor released.
    ///
    /// From the threshold on the peer reads it from where it is; below, or where zero-copy is off, it is copied through the
    /// ring. An empty payload is never under way.
    ///
    /// # Errors
    /// The stream has failed, another payload is being put, or there is no such payload.
    pub fn put_payload(&mut self, payload: StreamPayload) -> Result<usize, StreamError> {
        self.worker.put_payload(self.peer, payload)
    }

    /// Gets what has come, as much as there is and as fits, and returns how much that was. The bytes come in the order in
    /// which they were put; where one put ended and the next began is not kept. Makes progress where nothing has come.
    ///
    /// # Errors
    /// The peer is gone and all that had come from it was got, or a payload is being read into a buffer.
    #[inline]
    pub fn get(&mut self, into: &mut [u8]) -> Result<usize, StreamError> {
        self.worker.get_bytes(self.peer, into)
    }

    /// As [`Stream::get`], into a buffer. A payload that is next in the stream and fits the buffer whole is read straight into
    /// it: then the buffer is taken, the call returns 0, and is repeated without a buffer until it returns the payload's
    /// length and the buffer is back. A payload that does not fit comes piece by piece.
    ///
    /// Where the peer fails meanwhile the buffer is back, too.
    ///
    /// # Errors
    /// As for [`Stream::get`]; or there is no buffer, here or in an earlier call.
    pub fn get_into(&mut self, buffer: &mut Option<Buffer>) -> Result<usize, StreamError> {
        self.worker.get_into(self.peer, buffer)
    }

    /// Makes progress, and returns whether everything that was put has arrived in the peer's memory. Payloads have when their
    /// put has returned their length. Nothing has before the peer has opened its end, not even nothing.
    ///
    /// # Errors
    /// The stream has failed.
    pub fn flush(&mut self) -> Result<bool, StreamError> {
        self.worker.flush_stream(self.peer)
    }
}

impl<L: Link> Streams for Worker<L> {
    #[inline]
    fn open_stream(&mut self, peer: PeerId) -> Result<(), StreamError> {
        if self.endpoint.has_open_stream(peer) { Ok(()) } else { self.open_stream_anew(peer) }
    }

    fn is_stream_open(&mut self, peer: PeerId) -> Result<bool, StreamError> {
        Streams::open_stream(self, peer)?;
        self.endpoint.services.stream.is_open(peer)
    }

    #[inline]
    fn put_bytes(&mut self, to: PeerId, bytes: &[u8]) -> Result<usize, StreamError> {
        Streams::open_stream(self, to)?;
        self.twice(bytes.is_empty(), |worker| worker.endpoint.put(to, bytes))
    }

    fn put_payload(&mut self, to: PeerId, payload: StreamPayload) -> Result<usize, StreamError> {
        Streams::open_stream(self, to)?;
        self.twice(false, |worker| worker.endpoint.put_payload(to, payload))
    }

    #[inline]
    fn get_bytes(&mut self, from: PeerId, into: &mut [u8]) -> Result<usize, StreamError> {
        Streams::open_stream(self, from)?;
        self.twice(into.is_empty(), |worker| worker.endpoint.get(from, into))
    }

    fn get_into(&mut self, from: PeerId, buffer: &mut Option<Buffer>) -> Result<usize, StreamError> {
        Streams::open_stream(self, from)?;
        let is_empty = buffer.as_ref().is_some_and(Buffer::is_empty);
        self.twice(is_empty, |worker| worker.endpoint.get_into(from, buffer))
    }

    fn flush_stream(&mut self, to: PeerId) -> Result<bool, StreamError> {
        Streams::open_stream(self, to)?;
        self.progress();
        self.endpoint.services.stream.is_flushed(to)
    }

    fn configure_streams(&mut self, config: StreamConfig) -> Result<(), StreamError> {
        self.endpoint.services.stream.configure(config)
    }

    fn adopt_payload(&mut self, buffer: Buffer) -> Result<StreamPayload, StreamError> {
        self.endpoint.check_fork()?;
        self.endpoint.services.stream.adopt(buffer)
    }

    fn write_payload(&mut self, payload: StreamPayload, offset: usize, bytes: &[u8]) -> Result<(), StreamError> {
        self.endpoint.check_fork()?;
        let core = &mut self.endpoint.core;
        self.endpoint.services.stream.write_payload(core, (payload, offset), bytes)
    }

    fn release_payload(&mut self, payload: StreamPayload) -> Result<Buffer, StreamError> {
        self.endpoint.check_fork()?;
        self.endpoint.services.stream.release_payload(&mut self.endpoint.core, payload)
    }

    fn stream_stats(&mut self) -> Result<StreamStats, StreamError> {
        Ok(Worker::stream_stats(self))
    }
}

impl<L: Link> Worker<L> {
    /// Returns the counters of all streams.
    pub fn stream_stats(&self) -> StreamStats {
        self.endpoint.services.stream.stats()
    }

    #[cold]
    fn open_stream_anew(&mut self, peer: PeerId) -> Result<(), StreamError> {
        let opened = self.endpoint.open_stream(peer).map_err(|why| match why {
            OpenStreamError::Call(CallError::Forked) => StreamError::Forked,
            OpenStreamError::Call(_) => StreamError::NoPeer(peer),
            OpenStreamError::Stream(error) => error,
        });
        self.carry_mail();
        opened
    }

    /// Before and after what comes in, where the first time moves nothing. What was put has left when the call returns, as it has for who
    /// writes to a socket.
    #[inline]
    fn twice(
        &mut self,
        is_empty: bool,
        mut call: impl FnMut(&mut Self) -> Result<usize, StreamError>,
    ) -> Result<usize, StreamError> {
        let mut moved = call(self);
        if matches!(moved, Ok(0)) && !is_empty {
            self.progress();
            moved = call(self);
        }
        self.ring_doorbell();
        moved
    }
}
