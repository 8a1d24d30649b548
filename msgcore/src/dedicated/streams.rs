//! Byte streams of a dedicated worker. Each call is answered by the engine, and bytes are copied once more on their way between
//! the two threads.

use std::mem;

use roci_driver::Buffer;

use super::questions::ask;
use super::rings::{Answer, Command, Question};
use super::stream_calls::{StreamAnswer, StreamCall};
use super::{DedicatedWorker, EngineHost};
use crate::stream::{StreamConfig, StreamError, StreamPayload, StreamStats, Streams};
use crate::{OpError, PeerId};

/// Bytes that one call moves at most: what the handle keeps for its copies does not grow beyond them.
const MOST: usize = 256 << 10;

/// Asks the engine, and takes the answer of that kind.
macro_rules! call {
    ($worker:expr, $kind:ident $(($what:expr))?) => {
        match ask!($worker, Stream(StreamCall::$kind $(($what))?)) {
            Ok(StreamAnswer::$kind(answer)) => Ok(answer),
            Ok(_) => unreachable!("a call has its own answer"),
            Err(OpError::Forked) => Err(StreamError::Forked),
            Err(error) => Err(StreamError::Peer(error)),
        }
    };
}

/// What the handle keeps for streams.
#[derive(Default)]
pub(super) struct StreamHandle {
    /// Whose streams the engine was asked to open, by slot.
    opened: Vec<Option<PeerId>>,
    /// Bytes that are put, on their way between the threads: here, or with the call and its answer.
    copies: Vec<u8>,
    /// Room for bytes that are got, likewise. It is as long as was ever asked for, so that it is cleared once.
    room: Vec<u8>,
}

impl StreamHandle {
    fn is_opened(&self, peer: PeerId) -> bool {
        self.opened.get(peer.slot()) == Some(&Some(peer))
    }

    fn note_opened(&mut self, peer: PeerId) {
        if self.opened.len() <= peer.slot() {
            self.opened.resize(peer.slot() + 1, None);
        }
        self.opened[peer.slot()] = Some(peer);
    }

    /// Takes the memory for copies, filled with `bytes`.
    fn copy_of(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut copies = mem::take(&mut self.copies);
        copies.clear();
        copies.extend_from_slice(bytes);
        copies
    }

    /// Takes the room for bytes, at least `len` of them.
    fn room_for(&mut self, len: usize) -> Vec<u8> {
        let mut room = mem::take(&mut self.room);
        if room.len() < len {
            room.resize(len, 0);
        }
        room
    }
}

impl<H: EngineHost> Streams for DedicatedWorker<H> {
    fn open_stream(&mut self, peer: PeerId) -> Result<(), StreamError> {
        if self.streams.is_opened(peer) && !self.is_forked() {
            return Ok(());
        }
        call!(self, Open(peer))??;
        self.streams.note_opened(peer);
        Ok(())
    }

    fn is_stream_open(&mut self, peer: PeerId) -> Result<bool, StreamError> {
        call!(self, IsOpen(peer))?
    }

    fn put_bytes(&mut self, to: PeerId, bytes: &[u8]) -> Result<usize, StreamError> {
        let copies = self.streams.copy_of(&bytes[..bytes.len().min(MOST)]);
        let (taken, copies) = call!(self, Put((to, copies)))?;
        self.streams.copies = copies;
        taken
    }

    fn put_payload(&mut self, to: PeerId, payload: StreamPayload) -> Result<usize, StreamError> {
        call!(self, PutPayload((to, payload)))?
    }

    fn get_bytes(&mut self, from: PeerId, into: &mut [u8]) -> Result<usize, StreamError> {
        let len = into.len().min(MOST);
        let room = self.streams.room_for(len);
        let (got, room) = call!(self, Get((from, room, len)))?;
        if let Ok(got) = got {
            assert!(got <= len, "no more is got than was asked for");
            into[..got].copy_from_slice(&room[..got]);
        }
        self.streams.room = room;
        got
    }

    fn get_into(&mut self, from: PeerId, buffer: &mut Option<Buffer>) -> Result<usize, StreamError> {
        if self.is_forked() {
            return Err(StreamError::Forked);
        }
        let (got, back) = call!(self, GetInto((from, buffer.take())))?;
        *buffer = back;
        got
    }

    fn flush_stream(&mut self, to: PeerId) -> Result<bool, StreamError> {
        call!(self, Flush(to))?
    }

    fn configure_streams(&mut self, config: StreamConfig) -> Result<(), StreamError> {
        call!(self, Configure(config))?
    }

    fn adopt_payload(&mut self, buffer: Buffer) -> Result<StreamPayload, StreamError> {
        call!(self, Adopt(buffer))?
    }

    fn write_payload(&mut self, payload: StreamPayload, offset: usize, bytes: &[u8]) -> Result<(), StreamError> {
        // All of it or nothing is written, so it is not cut.
        let copies = self.streams.copy_of(bytes);
        let (written, mut copies) = call!(self, Write((payload, offset, copies)))?;
        copies.clear();
        copies.shrink_to(MOST);
        self.streams.copies = copies;
        written
    }

    fn release_payload(&mut self, payload: StreamPayload) -> Result<Buffer, StreamError> {
        call!(self, Release(payload))?
    }

    fn stream_stats(&mut self) -> Result<StreamStats, StreamError> {
        call!(self, Stats).map(|stats| *stats)
    }
}
