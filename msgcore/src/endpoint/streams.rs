//! Calls of the application on streams.

use roci_driver::Buffer;
use roci_driver::link::Link;

use super::Endpoint;
use super::sending::advance;
use crate::core::peer::{Peer, PeerId};
use crate::core::refused::CallError;
use crate::services::stream::{StreamError, StreamPayload};

const OPENED: &str = "who has opened a stream is in the table";

/// Why a stream was not opened.
pub(crate) enum OpenStreamError {
    /// There is no such peer, or the process is forked.
    Call(CallError),
    /// The stream cannot be.
    Stream(StreamError),
}

impl<L: Link> Endpoint<L> {
    /// Whether this end of the streams with a peer is open, and the connection.
    #[inline]
    pub(crate) fn has_open_stream(&self, id: PeerId) -> bool {
        self.services.stream.is_opened(id) && self.peers.get(id).is_some_and(Peer::is_open) && !self.is_forked()
    }

    /// Opens this end of the streams with a peer, where it is not.
    pub(crate) fn open_stream(&mut self, id: PeerId) -> Result<(), OpenStreamError> {
        self.check_peer(id).map_err(OpenStreamError::Call)?;
        let Self { core, services, peers, .. } = self;
        let peer = peers.entry(id);
        services.stream.open(core, peer).map_err(OpenStreamError::Stream)?;
        let is_open = peer.is_open() || peer.failure.is_some();
        advance(core, services, peer);
        if !is_open {
            self.ensure_connecting(id);
        }
        Ok(())
    }

    /// Puts bytes to a stream that is open at this end.
    pub(crate) fn put(&mut self, id: PeerId, bytes: &[u8]) -> Result<usize, StreamError> {
        self.check_fork()?;
        let Self { core, services, peers, .. } = self;
        services.stream.put(core, peers.get_mut(id).expect(OPENED), bytes)
    }

    /// Puts a payload to a stream that is open at this end.
    pub(crate) fn put_payload(&mut self, id: PeerId, payload: StreamPayload) -> Result<usize, StreamError> {
        self.check_fork()?;
        let Self { core, services, peers, .. } = self;
        services.stream.put_payload(core, peers.get_mut(id).expect(OPENED), payload)
    }

    /// Gets bytes from a stream that is open at this end.
    pub(crate) fn get(&mut self, id: PeerId, into: &mut [u8]) -> Result<usize, StreamError> {
        self.check_fork()?;
        let Self { core, services, peers, .. } = self;
        services.stream.get(core, peers.get_mut(id).expect(OPENED), into)
    }

    /// Gets bytes or a payload from a stream that is open at this end.
    pub(crate) fn get_into(&mut self, id: PeerId, buffer: &mut Option<Buffer>) -> Result<usize, StreamError> {
        self.check_fork()?;
        let Self { core, services, peers, .. } = self;
        services.stream.get_into(core, peers.get_mut(id).expect(OPENED), buffer)
    }

    /// Streams are the parent's in a forked child.
    #[inline]
    pub(crate) fn check_fork(&self) -> Result<(), StreamError> {
        if self.is_forked() { Err(StreamError::Forked) } else { Ok(()) }
    }
}
