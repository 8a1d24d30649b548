//! Handlers of active messages: under which names they stand, what they are given, and what they may do.

use std::fmt;

use hashbrown::HashMap;
use roci_driver::link::Link;
use roci_protocol::msg::MAX_ARGUMENTS;

use crate::core::Core;
use crate::core::peer::PeerId;
use crate::core::refused::CallError;
use crate::core::segment::Segment;

/// What runs when an active message comes. It runs inside [`Worker::progress`](crate::Worker::progress), never inside a call that
/// sends; of a dedicated worker on the engine's thread.
pub type Handler = Box<dyn FnMut(&mut HandlerContext<'_>, ActiveMessage<'_>) + Send>;

/// The name of a handler, which is the same at every end that has registered it under that name, in whatever order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct HandlerId(pub(super) u32);

/// An active message, as its handler is given it.
#[derive(Clone, Copy, Debug)]
pub struct ActiveMessage<'a> {
    /// Who sent it.
    pub source: PeerId,
    /// Its arguments.
    pub arguments: &'a [u64],
    /// Its payload, until the handler returns. Of a long one it is empty.
    pub payload: &'a [u8],
    /// Of a long one: where its payload is.
    pub written: Option<Written>,
}

/// Where the payload of a long active message was written to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Written {
    pub(super) key: u32,
    pub(super) va: u64,
    /// Its length in bytes.
    pub len: u64,
}

impl Written {
    /// Returns where in a segment it was written to; none where that is another segment.
    pub fn offset_in(&self, segment: Segment) -> Option<usize> {
        let region = segment.0;
        let is_it = region.rkey().0 == self.key;
        is_it.then(|| self.va.checked_sub(region.base()).and_then(|offset| usize::try_from(offset).ok())).flatten()
    }
}

/// What a handler may do: reply, once, and access this end's segments. It may not send, wait or make progress.
pub struct HandlerContext<'a> {
    pub(super) memory: &'a mut dyn SegmentMemory,
    pub(super) reply: &'a mut Reply,
    pub(super) may_reply: bool,
}

/// What a handler has replied.
#[derive(Default)]
pub(super) struct Reply {
    pub(super) arguments: [u64; MAX_ARGUMENTS],
    pub(super) count: u8,
    pub(super) payload: Vec<u8>,
}

/// Why a handler cannot reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplyError {
    /// The message is no request: its sender waits for no reply.
    #[error("the active message is no request")]
    NoRequest,
    /// Too many arguments.
    #[error("{0} arguments are more than the {MAX_ARGUMENTS} that an active message has")]
    Arguments(usize),
}

/// The memory of this end that handlers reach.
pub(super) trait SegmentMemory {
    fn read(&mut self, segment: Segment, offset: usize, into: &mut [u8]) -> Option<()>;
    fn write(&mut self, segment: Segment, offset: usize, from: &[u8]) -> Option<()>;
}

impl<L: Link> SegmentMemory for Core<L> {
    fn read(&mut self, segment: Segment, offset: usize, into: &mut [u8]) -> Option<()> {
        self.engine.read_region(self.pd, segment.0, offset, into)
    }

    fn write(&mut self, segment: Segment, offset: usize, from: &[u8]) -> Option<()> {
        self.engine.write_region(self.pd, segment.0, offset, from)
    }
}

impl HandlerContext<'_> {
    /// Replies to a request; the last reply counts. A request whose handler does not reply is replied to with nothing.
    ///
    /// # Errors
    /// It is no request, or there are too many arguments. A payload that is longer than an active message may be ends the request
    /// as unanswered.
    pub fn reply(&mut self, arguments: &[u64], payload: &[u8]) -> Result<(), ReplyError> {
        if !self.may_reply {
            return Err(ReplyError::NoRequest);
        }
        let (padded, count) = pad(arguments).ok_or(ReplyError::Arguments(arguments.len()))?;
        (self.reply.arguments, self.reply.count) = (padded, count);
        self.reply.payload.clear();
        self.reply.payload.extend_from_slice(payload);
        Ok(())
    }

    /// Copies bytes out of a segment of this end's.
    ///
    /// # Errors
    /// There is no such segment, or it is shorter.
    pub fn read_segment(&mut self, segment: Segment, offset: usize, into: &mut [u8]) -> Result<(), CallError> {
        self.memory.read(segment, offset, into).ok_or(CallError::NoSegment)
    }

    /// Copies bytes into a segment of this end's.
    ///
    /// # Errors
    /// There is no such segment, or it is shorter or read only.
    pub fn write_segment(&mut self, segment: Segment, offset: usize, from: &[u8]) -> Result<(), CallError> {
        self.memory.write(segment, offset, from).ok_or(CallError::NoSegment)
    }
}

impl fmt::Debug for HandlerContext<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandlerContext").field("may_reply", &self.may_reply).finish_non_exhaustive()
    }
}

/// Returns arguments as a header has them, and how many they are; none where they are too many.
#[inline]
pub(crate) fn pad(arguments: &[u64]) -> Option<([u64; MAX_ARGUMENTS], u8)> {
    let mut padded = [0; MAX_ARGUMENTS];
    padded.get_mut(..arguments.len())?.copy_from_slice(arguments);
    Some((padded, arguments.len() as u8))
}

/// All handlers of one end, by the hashes of their names.
#[derive(Default)]
pub(super) struct Handlers(HashMap<u32, (String, Handler)>);

impl Handlers {
    /// Registers a handler under a name.
    ///
    /// # Errors
    /// The name is taken, or another one has its hash.
    pub(super) fn register(&mut self, name: &str, handler: Handler) -> Result<HandlerId, CallError> {
        let id = HandlerId::of(name);
        if self.0.contains_key(&id.0) {
            return Err(CallError::HandlerTaken(name.to_owned()));
        }
        self.0.insert(id.0, (name.to_owned(), handler));
        Ok(id)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, id: u32) -> Option<&mut Handler> {
        self.0.get_mut(&id).map(|(_, handler)| handler)
    }
}

impl HandlerId {
    /// Returns what a handler of this name is called by, here and at every peer (FNV-1a, 32 bits).
    pub const fn of(name: &str) -> Self {
        let bytes = name.as_bytes();
        let (mut hash, mut at) = (0x811c_9dc5_u32, 0);
        while at < bytes.len() {
            hash = (hash ^ bytes[at] as u32).wrapping_mul(0x0100_0193);
            at += 1;
        }
        Self(hash)
    }

    #[inline]
    pub(crate) fn to_wire(self) -> u32 {
        self.0
    }
}

/// Returns the description of memory that a long active message was written to.
pub(super) fn written(key: u32, va: u64, len: u64) -> Written {
    Written { key, va, len }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_taken_once_and_means_the_same_everywhere() {
        let mut handlers = Handlers::default();
        let id = handlers.register("add", Box::new(|_, _| {})).expect("free");
        assert_eq!((id, HandlerId::of("")), (HandlerId::of("add"), HandlerId(0x811c_9dc5)));
        assert!(
            matches!(handlers.register("add", Box::new(|_, _| {})), Err(CallError::HandlerTaken(name)) if name == "add")
        );
        assert!(handlers.get_mut(id.0).is_some() && handlers.get_mut(id.0 ^ 1).is_none());
    }
}
