//! One-sided operations: what the application asks for, and what is under way.

use roci_driver::Buffer;
use roci_protocol::msg::{AtomicOp, AtomicWidth, Message};

use super::reach::Reach;
use super::requested::Requested;
use crate::core::completion::{Done, OpError};
use crate::core::peer_id::PeerId;
use crate::core::refused::{CallError, Refused};
use crate::core::request::Request;
use crate::core::segment::RemoteAddress;
use crate::core::transfer::TRANSFER_LIMIT;

/// Bytes of a number that a signal changes.
pub(super) const SIGNAL: usize = 8;

/// What a put does once its bytes are in the peer's memory: a number of 8 bytes there changes, for the peer to see that they have
/// come (OpenSHMEM's `shmem_put_signal`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Signal {
    /// It becomes this.
    Set(u64),
    /// This is added to it: a counter of puts.
    Add(u64),
}

/// A one-sided operation that is asked for.
#[derive(Debug)]
pub(crate) enum OneSidedCall {
    /// Writes to a peer's memory; something more may follow.
    Put { buffer: Buffer, at: RemoteAddress, then: Option<Box<Then>> },
    /// Reads a peer's memory.
    Get { buffer: Buffer, at: RemoteAddress },
    /// Changes a number in a peer's memory. The buffer takes what it was.
    Atomic { buffer: Buffer, at: RemoteAddress, op: AtomicOp, width: AtomicWidth },
}

/// What follows a put.
#[derive(Debug)]
pub(crate) enum Then {
    /// A number changes, which the buffer is for.
    Signal { buffer: Buffer, at: RemoteAddress, signal: Signal },
    /// The peer gets a message.
    Message(Message),
}

impl Then {
    /// A signal, and memory for its number.
    pub(crate) fn signal(mut buffer: Buffer, at: RemoteAddress, signal: Signal) -> Self {
        if let Signal::Set(value) = signal {
            buffer.copy_from_slice(&value.to_ne_bytes());
        }
        Self::Signal { buffer, at, signal }
    }

    /// Returns the message, if it is one.
    pub(crate) fn message(&self) -> Option<Message> {
        match self {
            Self::Signal { .. } => None,
            Self::Message(message) => Some(*message),
        }
    }
}

impl OneSidedCall {
    /// A put, with a signal behind it if there is one, whose number takes memory.
    ///
    /// # Errors
    /// There is no memory for the number.
    pub(crate) fn put(
        buffer: Buffer,
        at: RemoteAddress,
        signal: Option<(Signal, RemoteAddress)>,
        memory: impl FnOnce(usize) -> Result<Buffer, CallError>,
    ) -> Result<Self, Refused<Buffer>> {
        let then = match signal {
            None => None,
            Some((signal, at)) => match memory(SIGNAL) {
                Ok(number) => Some(Box::new(Then::signal(number, at, signal))),
                Err(why) => return Err(Refused::new(why, buffer)),
            },
        };
        Ok(Self::Put { buffer, at, then })
    }

    /// Returns the memory that it was given.
    pub(crate) fn into_buffer(self) -> Buffer {
        match self {
            Self::Put { buffer, .. } | Self::Get { buffer, .. } | Self::Atomic { buffer, .. } => buffer,
        }
    }

    /// Whether its memory is of the kind that it takes, and all of it lies within its segments.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn check(&self) -> Result<(), CallError> {
        let len = self.buffer().len();
        if len > TRANSFER_LIMIT {
            return Err(CallError::TooLongToTransfer { len, limit: TRANSFER_LIMIT });
        }
        match self {
            Self::Put { buffer, at, then } => {
                buffer.check_sent()?;
                at.resolve(len)?;
                if let Some(Then::Signal { at, .. }) = then.as_deref() {
                    at.resolve_number(SIGNAL)?;
                }
            }
            Self::Get { buffer, at } => {
                buffer.check_filled()?;
                at.resolve(len)?;
            }
            Self::Atomic { at, width, .. } => drop(at.resolve_number(width.len())?),
        }
        Ok(())
    }

    fn buffer(&self) -> &Buffer {
        match self {
            Self::Put { buffer, .. } | Self::Get { buffer, .. } | Self::Atomic { buffer, .. } => buffer,
        }
    }
}

/// An operation under way.
#[derive(Debug)]
pub(super) struct RmaOperation {
    pub(super) request: Request,
    pub(super) peer: PeerId,
    /// Transfers that have not ended. The first to end is the one with the application's memory.
    pub(super) transfers: u8,
    /// That memory, and how it went, once it is back.
    pub(super) first: Option<Result<Done, OpError>>,
    /// What follows once that has ended well.
    pub(super) signal: Option<Box<(Buffer, RemoteAddress, Signal)>>,
    /// It returns a number of so many bytes.
    pub(super) number: Option<AtomicWidth>,
    /// What it does with memory that the peer offers.
    pub(super) reach: Option<Box<Reach>>,
    /// What it does with memory under a key that the peer has chosen.
    pub(super) requested: Option<Box<Requested>>,
}

impl RmaOperation {
    /// An operation of one transfer.
    pub(super) fn new(request: Request, peer: PeerId, number: Option<AtomicWidth>) -> Self {
        Self { request, peer, transfers: 1, first: None, signal: None, number, reach: None, requested: None }
    }

    /// Whether its transfer is of memory whose key is known.
    pub(super) fn is_plain(&self) -> bool {
        self.reach.is_none() && self.requested.is_none()
    }

    /// Returns how often it is no transfer yet: one that reaches memory in this way before its signal is two.
    pub(super) fn partial(&self) -> usize {
        usize::from(!self.is_plain()) + usize::from(self.signal.is_some())
    }
}
