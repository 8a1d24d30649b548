//! The layout of the messaging core's own header, which every message between two of its workers starts with.
//!
//! The header has one shape for all kinds: what a kind does not need is zero. Messages that are matched (*eager* ones
//! and *requests to send*) carry a sequence number per peer, because a peer may be reached over several queue
//! pairs, whose messages overtake each other.

mod atomic;
mod coalesced;
mod terms;

pub use atomic::{AtomicOp, AtomicWidth};
pub use coalesced::{ALIGN, Coalesced, span};
pub use terms::{BadTerms, Capabilities, ConnectionTerms, MAX_QUEUES, QueueTerms};

use static_assertions::const_assert_eq;
use thiserror::Error;
use zerocopy::byteorder::network_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::Rkey;

/// The header's length.
pub const LEN: usize = 40;
/// The length of the sender's data behind the header of a request to send, and of the address behind that.
pub const DATA_LEN: usize = 8;
/// The length of both.
pub const BEHIND_LEN: usize = 2 * DATA_LEN;

/// Flags: the mode of a matched message, and whether the sender's data goes with it; behind them the protocol of a rendezvous, in two
/// bits, and whether the payload's address goes with it.
const MODE: u8 = 0x07;
const WITH_DATA: u8 = 0x08;
const PROTOCOL_SHIFT: u32 = 4;
const WITH_ADDRESS: u8 = 0x40;
/// Flag of an eager message: another one lies behind it.
const MORE: u8 = 0x80;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct View {
    kind: u8,
    flags: u8,
    queue: u8,
    reserved: u8,
    credits: U16,
    sequence: U16,
    word: U32,
    rkey: U32,
    first: U64,
    second: U64,
    id: U64,
}
const_assert_eq!(size_of::<View>(), LEN);

const EAGER: u8 = 1;
const FRAGMENT: u8 = 2;
const REQUEST_TO_SEND: u8 = 3;
const CANCEL: u8 = 4;
const CLEAR_TO_SEND: u8 = 5;
const DATA: u8 = 6;
const WRITTEN: u8 = 7;
const FINISHED: u8 = 8;
const MATCHED: u8 = 9;
const CANCELLED: u8 = 10;
const CREDIT: u8 = 11;
const TERMS: u8 = 12;
const STREAM_OFFER: u8 = 13;
const PUT: u8 = 14;
const GET: u8 = 15;
const GOT: u8 = 16;
const ATOMIC: u8 = 17;
const EXECUTED: u8 = 18;
const ACTIVE: u8 = 19;
const FIREHOSE: u8 = 20;
const FIND_KEY: u8 = 21;
const KEY_FOUND: u8 = 22;
const KEY_GONE: u8 = 23;

/// Flags: of a put that the sender asks about, and of a move that a get goes with; of a get that the sender's memory is open; of an answer that memory was denied, and that there is
/// no such key.
const ASKS: u8 = 0x01;
const OPEN: u8 = 0x01;
const DENIED: u8 = 0x01;
/// Flags: an atomic's code, and whether its number has 8 bytes.
const ATOMIC_CODE: u8 = 0x0f;
const ATOMIC_U64: u8 = 0x10;
/// Flags: how many arguments an active message has in its header, and behind them what it is.
const ARGUMENTS: u8 = 0x03;

/// How a rendezvous moves its payload.
///
/// MVICH's documentation swaps two names against its own code. Here RPUT is the rendezvous by RDMA WRITE and RGET the
/// one by RDMA READ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum RendezvousProtocol {
    /// A stream of vbufs, once the receiver has said that it is ready for them.
    R3 = 0,
    /// The receiver fetches it by RDMA READ.
    Rget = 1,
    /// The sender writes it by RDMA WRITE, in one go.
    Rput = 2,
    /// The sender writes it by RDMA WRITE, piece by piece as the receiver makes room.
    Pipeline = 3,
}

/// What the sender of a matched message wants to know.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum Mode {
    /// Nothing.
    #[default]
    Standard = 0,
    /// When it is matched (`MPI_Ssend`).
    Synchronous = 1,
    /// That it was met by a receive posted before (`MPI_Rsend`): the receiver counts where it was not.
    Ready = 2,
}

/// What a matched message says of itself: what it is matched by, besides its sender, and what goes with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Label {
    /// The communicator.
    pub context: u32,
    /// The tag.
    pub tag: u64,
    /// The sender's data, which its receive gets with the message (libfabric's remote CQ data).
    pub data: Option<u64>,
}

/// What a message is. `id` is the sender's name for the operation, `reply` the receiver's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Message {
    /// The payload follows, or its beginning: the rest comes in fragments.
    Eager {
        /// What it is matched by.
        label: Label,
        /// All of the payload's length in bytes.
        len: u64,
        /// The operation.
        id: u64,
        /// What the sender wants to know.
        mode: Mode,
    },
    /// More of an eager message follows.
    Fragment {
        /// Where in the payload.
        offset: u64,
        /// The operation.
        id: u64,
    },
    /// Rendezvous, RTS: the payload waits at the sender.
    RequestToSend {
        /// What it is matched by.
        label: Label,
        /// The payload's length in bytes.
        len: u64,
        /// The operation.
        id: u64,
        /// How the payload is to move.
        protocol: RendezvousProtocol,
        /// The key to the payload, where the receiver fetches it.
        rkey: Rkey,
        /// Where the payload lies in the sender's address space, for a receiver that reads it there (Cross Memory Attach).
        address: Option<u64>,
        /// What the sender wants to know; a rendezvous is synchronous by nature.
        mode: Mode,
    },
    /// The sender takes an operation back, if it was not received yet.
    Cancel {
        /// The operation.
        id: u64,
    },
    /// Rendezvous, CTS: the receiver is ready for `len` bytes.
    ClearToSend {
        /// The operation.
        id: u64,
        /// The receiver's name for it.
        reply: u64,
        /// How: R3, or by RDMA WRITE.
        protocol: RendezvousProtocol,
        /// The key to the memory that is to be written.
        rkey: Rkey,
        /// Where to write.
        va: u64,
        /// How much.
        len: u32,
    },
    /// R3: a part of the payload follows.
    Data {
        /// The receiver's name for the operation.
        reply: u64,
        /// Where in the payload.
        offset: u64,
    },
    /// Rendezvous, FIN of the sender: what a clear-to-send asked for has been written.
    Written {
        /// The receiver's name for the operation.
        reply: u64,
        /// How much.
        len: u64,
    },
    /// Rendezvous, FIN of the receiver: the payload has arrived, or is not wanted.
    Finished {
        /// The operation.
        id: u64,
    },
    /// A synchronous message has been matched.
    Matched {
        /// The operation.
        id: u64,
    },
    /// The answer to [`Message::Cancel`].
    Cancelled {
        /// The operation.
        id: u64,
        /// Whether it was taken back.
        is_withdrawn: bool,
    },
    /// Nothing but credits.
    Credit,
    /// The first message on a connection: receives are posted, and the terms follow ([`ConnectionTerms`]).
    Terms,
    /// The sender's end of a byte stream is open; its configuration and keys follow.
    StreamOffer,
    /// One-sided, where there is no RDMA: what follows is to be written.
    Put {
        /// The key to the memory.
        rkey: Rkey,
        /// Where to write.
        va: u64,
        /// The operation that ends with this part, if it does: the sender waits for [`Message::Executed`].
        id: Option<u64>,
    },
    /// One-sided: the receiver is to send what it has there, or to write it.
    Get {
        /// The key to what is wanted.
        rkey: Rkey,
        /// Where it begins.
        va: u64,
        /// How much it is.
        len: u32,
        /// The key to the sender's memory, whose addresses begin at 0, where that is open to peers.
        into: Option<Rkey>,
        /// The operation.
        id: u64,
    },
    /// One-sided: a part of what [`Message::Get`] has asked for follows.
    Got {
        /// Where in it.
        offset: u64,
        /// The asker's name for the operation.
        reply: u64,
    },
    /// One-sided: a number is to be changed.
    Atomic {
        /// The key to it.
        rkey: Rkey,
        /// Where it is.
        va: u64,
        /// How.
        op: AtomicOp,
        /// How long it is.
        width: AtomicWidth,
        /// The operation, in 32 bits.
        id: u32,
    },
    /// One-sided: the answer to [`Message::Put`], [`Message::Atomic`] and, where it was not by [`Message::Got`], [`Message::Get`].
    Executed {
        /// The asker's name for the operation.
        reply: u64,
        /// What the number was, of an atomic.
        value: u64,
        /// The memory under that key does not allow it; of a put, some part of it was not written.
        is_denied: bool,
    },
    /// An active message; its payload follows.
    Active {
        /// What it is.
        kind: ActiveKind,
        /// The handler, by a hash of its name; of a reply the asker's name for the request.
        handler: u32,
        /// Of a request the sender's name for it, which the reply names. Of a long one the key to where its payload was written.
        token: u32,
        /// The arguments; unused ones are 0.
        arguments: [u64; MAX_ARGUMENTS],
        /// How many of them there are.
        count: u8,
    },
    /// One-sided, to memory that is offered: the sender wants firehoses moved, or answers that. What it says follows.
    Firehose {
        /// What it wants of that memory as soon as it is pinned.
        get: Option<GetOnMiss>,
    },
    /// One-sided: which key opens the memory that the receiver has exposed under a key of its own choice?
    FindKey {
        /// The key that was chosen.
        key: u64,
    },
    /// The answer to [`Message::FindKey`].
    KeyFound {
        /// The key that was chosen.
        key: u64,
        /// The one that opens the memory; none where there is no such memory.
        rkey: Option<Rkey>,
    },
    /// One-sided: the sender has withdrawn the memory that it had exposed under a key of its own choice.
    KeyGone {
        /// The key that was chosen.
        key: u64,
    },
}

/// A get that goes with the request for its memory: the answer to both is [`Message::Got`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GetOnMiss {
    /// Where it begins.
    pub va: u64,
    /// How much it is.
    pub len: u32,
    /// The operation.
    pub id: u64,
}

/// Arguments of an active message: what its header has room for.
pub const MAX_ARGUMENTS: usize = 3;

/// What an active message is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum ActiveKind {
    /// It runs a handler, and nothing comes back.
    OneWay = 0,
    /// It runs a handler that replies.
    Request = 1,
    /// The answer to a request.
    Reply = 2,
    /// The answer to a request that found no handler, or no memory for its reply.
    Unanswered = 3,
    /// It runs a handler once what was written before it is in memory: its first two arguments are address and length.
    Long = 4,
}

/// A message with what rides on every message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Receive buffers that the sender of this header gives back to its peer ...
    pub credits: u16,
    /// ... and the receive queue that they belong to.
    pub queue: u8,
    /// Of a matched message: its place among those of this sender; of [`Message::Cancel`]: the place behind the last
    /// one that was sent before it.
    pub sequence: u16,
    /// Another eager message lies behind the payload of this one: see [`span`].
    pub has_more: bool,
    /// What it is.
    pub message: Message,
}

/// What there is to know of an eager message that is all there: the header's fields but for what its payload says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WholeEager {
    /// [`Header::credits`].
    pub credits: u16,
    /// [`Header::queue`].
    pub queue: u8,
    /// [`Header::sequence`].
    pub sequence: u16,
    /// What it is matched by.
    pub label: Label,
}

/// Why bytes are no message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum BadMessage {
    /// Shorter than a header.
    #[error("a message of {0} bytes is shorter than its header")]
    Short(usize),
    /// The kind is unknown.
    #[error("a message of unknown kind {0}")]
    Kind(u8),
    /// A flag is unknown.
    #[error("a message of kind {kind} with unknown flags {flags:#x}")]
    Flags {
        /// The kind.
        kind: u8,
        /// The flags.
        flags: u8,
    },
    /// There is more payload than was announced.
    #[error("a message announces {announced} bytes and brings {brought}")]
    Length {
        /// In the header.
        announced: u64,
        /// Behind the header.
        brought: usize,
    },
}

impl Header {
    /// A header that gives back no credits.
    pub const fn new(message: Message) -> Self {
        Self { credits: 0, queue: 0, sequence: 0, has_more: false, message }
    }

    /// Reads the header and returns the payload, and with it what lies behind it.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), BadMessage> {
        let (view, payload) = View::ref_from_prefix(bytes).map_err(|_| BadMessage::Short(bytes.len()))?;
        let message = view.message()?;
        let (message, payload) = match message {
            Message::RequestToSend { .. } => view.request_to_send(message, payload)?,
            message => (message, payload),
        };
        let mut has_more = false;
        if let Message::Eager { len, .. } = message {
            has_more = view.flags & MORE != 0;
            if has_more {
                coalesced::check(len, bytes.len())?;
            } else if payload.len() as u64 > len {
                return Err(BadMessage::Length { announced: len, brought: payload.len() });
            }
        }
        let (credits, queue, sequence) = (view.credits.get(), view.queue, view.sequence.get());
        Ok((Self { credits, queue, sequence, has_more, message }, payload))
    }

    /// Reads the header of an eager message in standard mode that is all there and alone, and returns its label and its payload. None
    /// for every other message, and for bytes that are none.
    #[inline]
    pub fn parse_whole(bytes: &[u8]) -> Option<(WholeEager, &[u8])> {
        let (view, payload) = View::ref_from_prefix(bytes).ok()?;
        let (len, data) = view.eager_len_and_data();
        if (view.kind, view.flags & (MODE | MORE)) != (EAGER, Mode::Standard as u8) || len != payload.len() as u64 {
            return None;
        }
        Some((view.whole_eager(data), payload))
    }

    /// Writes the header to the front of `bytes`, which must hold [`LEN`].
    #[inline(always)]
    pub fn emit(&self, bytes: &mut [u8]) {
        let mut view = View::of(&self.message);
        view.credits = self.credits.into();
        view.queue = self.queue;
        view.sequence = self.sequence.into();
        debug_assert!(!self.has_more || view.kind == EAGER, "only eager messages have others behind them");
        view.flags |= if self.has_more { MORE } else { 0 };
        bytes[..LEN].copy_from_slice(view.as_bytes());
    }
}

impl View {
    #[inline]
    fn whole_eager(&self, data: Option<u64>) -> WholeEager {
        let label = Label { context: self.word.get(), tag: self.first.get(), data };
        WholeEager { credits: self.credits.get(), queue: self.queue, sequence: self.sequence.get(), label }
    }

    #[inline]
    fn message(&self) -> Result<Message, BadMessage> {
        let label = Label { context: self.word.get(), tag: self.first.get(), data: None };
        let (first, second, id) = (self.first.get(), self.second.get(), self.id.get());
        let rkey = Rkey(self.rkey.get());
        Ok(match self.kind {
            EAGER => {
                let (len, data) = self.eager_len_and_data();
                Message::Eager { label: Label { data, ..label }, len, id, mode: self.mode()? }
            }
            FRAGMENT => Message::Fragment { offset: first, id },
            REQUEST_TO_SEND => Message::RequestToSend {
                label,
                len: second,
                id,
                protocol: self.rendezvous_protocol(self.flags & !WITH_ADDRESS)?,
                rkey,
                address: None,
                mode: self.mode()?,
            },
            CANCEL => Message::Cancel { id },
            CLEAR_TO_SEND => Message::ClearToSend {
                id,
                reply: first,
                protocol: self.rendezvous_protocol(self.flags)?,
                rkey,
                va: second,
                len: self.word.get(),
            },
            DATA => Message::Data { reply: first, offset: second },
            WRITTEN => Message::Written { reply: first, len: second },
            FINISHED => Message::Finished { id },
            MATCHED => Message::Matched { id },
            CANCELLED => Message::Cancelled { id, is_withdrawn: first != 0 },
            CREDIT => Message::Credit,
            TERMS => Message::Terms,
            STREAM_OFFER => Message::StreamOffer,
            _ => return self.one_sided(),
        })
    }

    /// Messages of one-sided transfers, and active ones.
    #[inline]
    fn one_sided(&self) -> Result<Message, BadMessage> {
        let (first, second, id) = (self.first.get(), self.second.get(), self.id.get());
        let rkey = Rkey(self.rkey.get());
        Ok(match self.kind {
            PUT => Message::Put { rkey, va: first, id: (self.flags & ASKS != 0).then_some(id) },
            GET => Message::Get {
                rkey,
                va: first,
                len: self.word.get(),
                into: (self.flags & OPEN != 0).then_some(Rkey(second as u32)),
                id,
            },
            GOT => Message::Got { offset: second, reply: first },
            ATOMIC => self.atomic()?,
            EXECUTED => Message::Executed { reply: first, value: second, is_denied: self.flags & DENIED != 0 },
            ACTIVE => self.active()?,
            FIREHOSE => {
                let get = GetOnMiss { va: first, len: self.word.get(), id };
                Message::Firehose { get: (self.flags & ASKS != 0).then_some(get) }
            }
            FIND_KEY => Message::FindKey { key: first },
            KEY_GONE => Message::KeyGone { key: first },
            KEY_FOUND => Message::KeyFound { key: first, rkey: (self.flags & DENIED == 0).then_some(rkey) },
            unknown => return Err(BadMessage::Kind(unknown)),
        })
    }

    fn atomic(&self) -> Result<Message, BadMessage> {
        let op = AtomicOp::from_wire(self.flags & ATOMIC_CODE, self.second.get(), self.id.get());
        let op = op.filter(|_| self.flags & !(ATOMIC_CODE | ATOMIC_U64) == 0).ok_or(self.bad_flags())?;
        let width = if self.flags & ATOMIC_U64 != 0 { AtomicWidth::U64 } else { AtomicWidth::U32 };
        Ok(Message::Atomic { rkey: Rkey(self.rkey.get()), va: self.first.get(), op, width, id: self.word.get() })
    }

    #[inline]
    fn active(&self) -> Result<Message, BadMessage> {
        let kind = match self.flags >> 4 {
            0 => ActiveKind::OneWay,
            1 => ActiveKind::Request,
            2 => ActiveKind::Reply,
            3 => ActiveKind::Unanswered,
            4 => ActiveKind::Long,
            _ => return Err(self.bad_flags()),
        };
        Ok(Message::Active {
            kind,
            handler: self.word.get(),
            token: self.rkey.get(),
            arguments: [self.first.get(), self.second.get(), self.id.get()],
            count: self.flags & ARGUMENTS,
        })
    }

    fn bad_flags(&self) -> BadMessage {
        BadMessage::Flags { kind: self.kind, flags: self.flags }
    }

    /// Whether the sender's data goes with it: in an eager message's own header, and behind that of a request to send.
    #[inline]
    fn has_data(&self) -> bool {
        self.flags & WITH_DATA != 0
    }

    /// An eager message has no key, and a length of 32 bits where data goes with it: there is room for that.
    #[inline]
    fn eager_len_and_data(&self) -> (u64, Option<u64>) {
        let second = self.second.get();
        if self.has_data() {
            let high = second & !u64::from(u32::MAX);
            (second & u64::from(u32::MAX), Some(high | u64::from(self.rkey.get())))
        } else {
            (second, None)
        }
    }

    /// Reads what is behind the header of a request to send.
    fn request_to_send<'a>(&self, message: Message, payload: &'a [u8]) -> Result<(Message, &'a [u8]), BadMessage> {
        let Message::RequestToSend { mut label, len, id, protocol, rkey, mut address, mode } = message else {
            unreachable!("no other has words behind its header")
        };
        let mut rest = payload;
        let mut word = || {
            let (&word, behind) = rest.split_first_chunk().ok_or(BadMessage::Short(LEN + payload.len()))?;
            rest = behind;
            Ok(u64::from_be_bytes(word))
        };
        if self.has_data() {
            label.data = Some(word()?);
        }
        if self.flags & WITH_ADDRESS != 0 {
            address = Some(word()?);
        }
        Ok((Message::RequestToSend { label, len, id, protocol, rkey, address, mode }, rest))
    }

    fn mode(&self) -> Result<Mode, BadMessage> {
        match self.flags & MODE {
            0 => Ok(Mode::Standard),
            1 => Ok(Mode::Synchronous),
            2 => Ok(Mode::Ready),
            _ => Err(BadMessage::Flags { kind: self.kind, flags: self.flags }),
        }
    }

    fn rendezvous_protocol(&self, flags: u8) -> Result<RendezvousProtocol, BadMessage> {
        match flags >> PROTOCOL_SHIFT {
            0 => Ok(RendezvousProtocol::R3),
            1 => Ok(RendezvousProtocol::Rget),
            2 => Ok(RendezvousProtocol::Rput),
            3 => Ok(RendezvousProtocol::Pipeline),
            _ => Err(BadMessage::Flags { kind: self.kind, flags: self.flags }),
        }
    }

    #[inline(always)]
    fn of(message: &Message) -> Self {
        match *message {
            Message::Eager { label, len, id, mode } => {
                let (flag, data) = label.data.map_or((0, 0), |data| (WITH_DATA, data));
                Self {
                    flags: mode as u8 | flag,
                    word: label.context.into(),
                    rkey: (data as u32).into(),
                    ..Self::new(EAGER, label.tag, len | data & !u64::from(u32::MAX), id)
                }
            }
            Message::Fragment { offset, id } => Self::new(FRAGMENT, offset, 0, id),
            Message::RequestToSend { label, len, id, protocol, rkey, address, mode } => Self {
                flags: mode as u8
                    | (protocol as u8) << PROTOCOL_SHIFT
                    | if label.data.is_some() { WITH_DATA } else { 0 }
                    | if address.is_some() { WITH_ADDRESS } else { 0 },
                word: label.context.into(),
                rkey: rkey.0.into(),
                ..Self::new(REQUEST_TO_SEND, label.tag, len, id)
            },
            Message::Cancel { id } => Self::new(CANCEL, 0, 0, id),
            Message::ClearToSend { id, reply, protocol, rkey, va, len } => Self {
                flags: (protocol as u8) << 4,
                word: len.into(),
                rkey: rkey.0.into(),
                ..Self::new(CLEAR_TO_SEND, reply, va, id)
            },
            Message::Data { reply, offset } => Self::new(DATA, reply, offset, 0),
            Message::Written { reply, len } => Self::new(WRITTEN, reply, len, 0),
            Message::Finished { id } => Self::new(FINISHED, 0, 0, id),
            Message::Matched { id } => Self::new(MATCHED, 0, 0, id),
            Message::Cancelled { id, is_withdrawn } => Self::new(CANCELLED, is_withdrawn.into(), 0, id),
            Message::Credit => Self::new(CREDIT, 0, 0, 0),
            Message::Terms => Self::new(TERMS, 0, 0, 0),
            Message::StreamOffer => Self::new(STREAM_OFFER, 0, 0, 0),
            _ => Self::of_one_sided(message),
        }
    }

    #[inline(always)]
    fn of_one_sided(message: &Message) -> Self {
        match *message {
            Message::Put { rkey, va, id } => Self {
                flags: if id.is_some() { ASKS } else { 0 },
                rkey: rkey.0.into(),
                ..Self::new(PUT, va, 0, id.unwrap_or(0))
            },
            Message::Get { rkey, va, len, into, id } => {
                let (flags, key) = into.map_or((0, 0), |key| (OPEN, key.0));
                Self { flags, word: len.into(), rkey: rkey.0.into(), ..Self::new(GET, va, key.into(), id) }
            }
            Message::Got { offset, reply } => Self::new(GOT, reply, offset, 0),
            Message::Atomic { rkey, va, op, width, id } => {
                let (code, operand, compare) = op.to_wire();
                let flags = code | if width == AtomicWidth::U64 { ATOMIC_U64 } else { 0 };
                Self { flags, word: id.into(), rkey: rkey.0.into(), ..Self::new(ATOMIC, va, operand, compare) }
            }
            Message::Executed { reply, value, is_denied } => {
                Self { flags: if is_denied { DENIED } else { 0 }, ..Self::new(EXECUTED, reply, value, 0) }
            }
            Message::Active { kind, handler, token, arguments: [first, second, third], count } => Self {
                flags: (kind as u8) << 4 | count & ARGUMENTS,
                word: handler.into(),
                rkey: token.into(),
                ..Self::new(ACTIVE, first, second, third)
            },
            Message::Firehose { get: None } => Self::new(FIREHOSE, 0, 0, 0),
            Message::Firehose { get: Some(GetOnMiss { va, len, id }) } => {
                Self { flags: ASKS, word: len.into(), ..Self::new(FIREHOSE, va, 0, id) }
            }
            Message::FindKey { key } => Self::new(FIND_KEY, key, 0, 0),
            Message::KeyGone { key } => Self::new(KEY_GONE, key, 0, 0),
            Message::KeyFound { key, rkey } => {
                let (flags, rkey) = rkey.map_or((DENIED, 0), |rkey| (0, rkey.0));
                Self { flags, rkey: rkey.into(), ..Self::new(KEY_FOUND, key, 0, 0) }
            }
            _ => unreachable!("the caller has looked"),
        }
    }

    #[inline]
    fn new(kind: u8, first: u64, second: u64, id: u64) -> Self {
        Self {
            kind,
            flags: 0,
            queue: 0,
            reserved: 0,
            credits: 0.into(),
            sequence: 0.into(),
            word: 0.into(),
            rkey: 0.into(),
            first: first.into(),
            second: second.into(),
            id: id.into(),
        }
    }
}

/// What goes behind the header of a request to send.
#[derive(Clone, Copy, Debug)]
pub struct BehindRequest {
    bytes: [u8; BEHIND_LEN],
    len: usize,
}

impl BehindRequest {
    /// The data of a label, and an address, as far as they are there.
    pub fn new(label: &Label, address: Option<u64>) -> Self {
        let mut behind = Self { bytes: [0; BEHIND_LEN], len: 0 };
        for word in [label.data, address].into_iter().flatten() {
            behind.bytes[behind.len..][..DATA_LEN].copy_from_slice(&word.to_be_bytes());
            behind.len += DATA_LEN;
        }
        behind
    }
}

impl AsRef<[u8]> for BehindRequest {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one_of_each() -> Vec<Message> {
        let label = Label { context: 0xffff_fffe, tag: u64::MAX, data: None };
        let (id, reply, rkey) = (u64::MAX - 1, 3, Rkey(0xdead_beef));
        let mut messages = vec![
            Message::Fragment { offset: 1 << 40, id },
            Message::Cancel { id },
            Message::Data { reply, offset: 7 },
            Message::Written { reply, len: 8 },
            Message::Finished { id },
            Message::Matched { id },
            Message::Cancelled { id, is_withdrawn: true },
            Message::Cancelled { id, is_withdrawn: false },
            Message::Credit,
            Message::Terms,
            Message::StreamOffer,
            Message::Put { rkey, va: 1 << 50, id: Some(id) },
            Message::Put { rkey, va: 0, id: None },
            Message::Get { rkey, va: 1 << 50, len: u32::MAX, into: Some(Rkey(0)), id },
            Message::Get { rkey, va: 0, len: 0, into: None, id },
            Message::Got { offset: 1 << 30, reply },
            Message::Firehose { get: None },
            Message::Firehose { get: Some(GetOnMiss { va: 1 << 50, len: u32::MAX, id }) },
            Message::FindKey { key: u64::MAX },
            Message::KeyGone { key: u64::MAX },
            Message::KeyFound { key: u64::MAX, rkey: Some(rkey) },
            Message::KeyFound { key: 1, rkey: Some(Rkey(0)) },
            Message::KeyFound { key: 0, rkey: None },
            Message::Executed { reply, value: u64::MAX, is_denied: true },
            Message::Executed { reply, value: 9, is_denied: false },
        ];
        for op in [
            AtomicOp::Add(1),
            AtomicOp::CompareSwap { compare: 1, swap: u64::MAX },
            AtomicOp::Swap(2),
            AtomicOp::And(3),
            AtomicOp::Or(4),
            AtomicOp::Xor(5),
            AtomicOp::Min(6),
            AtomicOp::Max(7),
            AtomicOp::SignedMin(8),
            AtomicOp::SignedMax(9),
        ] {
            for width in [AtomicWidth::U32, AtomicWidth::U64] {
                messages.push(Message::Atomic { rkey, va: 1 << 40, op, width, id: u32::MAX });
            }
        }
        for kind in
            [ActiveKind::OneWay, ActiveKind::Request, ActiveKind::Reply, ActiveKind::Unanswered, ActiveKind::Long]
        {
            let arguments = [u64::MAX, 2, 3];
            messages.push(Message::Active { kind, handler: 0xdead_beef, token: u32::MAX, arguments, count: 3 });
        }
        for mode in [Mode::Standard, Mode::Synchronous, Mode::Ready] {
            messages.push(Message::Eager { label, len: 1 << 40, id, mode });
            let with_data = Label { data: Some(0xfedc_ba98_7654_3210), ..label };
            messages.push(Message::Eager { label: with_data, len: 1 << 31, id, mode });
            for protocol in [
                RendezvousProtocol::R3,
                RendezvousProtocol::Rget,
                RendezvousProtocol::Rput,
                RendezvousProtocol::Pipeline,
            ] {
                for (label, len) in [(label, 1 << 40), (with_data, 1 << 31)] {
                    for address in [None, Some(u64::MAX - 7)] {
                        messages.push(Message::RequestToSend { label, len, id, protocol, rkey, address, mode });
                    }
                }
                messages.push(Message::ClearToSend { id, reply, protocol, rkey, va: 1 << 50, len: u32::MAX });
            }
        }
        messages
    }

    /// What is between a message's header and its payload.
    fn behind(message: &Message) -> Vec<u8> {
        match message {
            Message::RequestToSend { label, address, .. } => BehindRequest::new(label, *address).as_ref().to_vec(),
            _ => Vec::new(),
        }
    }

    #[test]
    fn headers_round_trip() {
        for message in one_of_each() {
            let header = Header { credits: 7, queue: 3, sequence: 0xfedc, has_more: false, message };
            let mut bytes = vec![0; LEN];
            header.emit(&mut bytes);
            bytes.extend(behind(&message));
            bytes.extend([0, 0]);
            assert_eq!(Header::parse(&bytes), Ok((header, &[0, 0][..])));
        }
    }

    proptest::proptest! {
        #[test]
        fn a_whole_eager_message_is_read_as_its_header_is(mut bytes: Vec<u8>, has_len: bool, kind in 0..3u8, flags in 0..0x1bu8, more in 0..2u8) {
            if bytes.len() >= LEN {
                (bytes[0], bytes[1]) = (kind, flags | (more * MORE));
                if has_len {
                    let len = (bytes.len() - LEN) as u64;
                    bytes[28..32].copy_from_slice(&(len as u32).to_be_bytes());
                    if flags & WITH_DATA == 0 {
                        bytes[24..28].fill(0);
                    }
                }
            }
            let whole = match Header::parse(&bytes) {
                Ok((Header { credits, queue, sequence, has_more: false, message: Message::Eager { label, len, mode: Mode::Standard, .. } }, payload))
                    if len == payload.len() as u64 => Some((WholeEager { credits, queue, sequence, label }, payload)),
                _ => None,
            };
            proptest::prop_assert_eq!(Header::parse_whole(&bytes), whole);
        }

        /// Whatever a peer sends is refused by name, or says the same when it is written again.
        #[test]
        fn arbitrary_bytes_are_a_message_or_refused(mut bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..2 * LEN), kind in 0u8..23) {
            if let Some(first) = bytes.first_mut() {
                *first = kind;
            }
            if let Ok((header, payload)) = Header::parse(&bytes) {
                let mut again = [0; LEN];
                header.emit(&mut again);
                let again = Header::parse(&[&again[..], &behind(&header.message), payload].concat()).map(|(header, _)| header);
                proptest::prop_assert_eq!(again, Ok(header));
            }
            let _ = ConnectionTerms::parse(&bytes);
        }
    }

    #[test]
    fn bad_messages_are_refused_by_name() {
        assert_eq!(Header::parse(&[1; LEN - 1]), Err(BadMessage::Short(LEN - 1)));
        assert_eq!(Header::parse(&[99; LEN]), Err(BadMessage::Kind(99)));
        let mut bytes = [0; LEN + 5];
        let label = Label::default();
        Header::new(Message::Eager { label, len: 4, id: 0, mode: Mode::Standard }).emit(&mut bytes);
        assert_eq!(Header::parse(&bytes), Err(BadMessage::Length { announced: 4, brought: 5 }));
        bytes[1] = 3;
        assert_eq!(Header::parse(&bytes), Err(BadMessage::Flags { kind: EAGER, flags: 3 }));
        for (flags, brought) in [(WITH_DATA, 7), (WITH_ADDRESS, 7), (WITH_DATA | WITH_ADDRESS, 15)] {
            let mut bytes = vec![0; LEN + brought];
            (bytes[0], bytes[1]) = (REQUEST_TO_SEND, flags);
            assert_eq!(Header::parse(&bytes), Err(BadMessage::Short(LEN + brought)));
        }
        bytes[0] = CLEAR_TO_SEND;
        bytes[1] = 0x40;
        assert_eq!(Header::parse(&bytes), Err(BadMessage::Flags { kind: CLEAR_TO_SEND, flags: 0x40 }));
    }
}
