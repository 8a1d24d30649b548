//! What a peer may not do. Whatever does not fit ends its connection by name; nothing of it is acted upon.

use roci_protocol::msg::{BadMessage, BadTerms};
use thiserror::Error;

use super::stage::IllegalStep;

/// How a peer broke the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Breach {
    /// Its message does not parse.
    #[error(transparent)]
    Message(#[from] BadMessage),
    /// Its terms do not parse.
    #[error(transparent)]
    Terms(#[from] BadTerms),
    /// Its connection is not at the stage for that.
    #[error(transparent)]
    Stage(#[from] IllegalStep),
    /// It returned credits that it was not given.
    #[error("it gave back {count} credits too many for its queue {queue}")]
    CreditsReturned {
        /// How many it returned.
        count: u16,
        /// Of which of its receive queues.
        queue: u8,
    },
    /// It sent without a credit.
    #[error("it sent more messages than it had credits for")]
    NoCredit,
    /// It asks for more answers than it lets leave.
    #[error("it asks for more answers than it lets us give")]
    TooManyAnswers,
    /// It announces more messages than may wait for receives.
    #[error("it announces more than {0} messages that no receive waits for")]
    TooManyAnnounced(usize),
    /// A matched message is not the next one.
    #[error("its message {sequence} is out of sequence")]
    Sequence {
        /// The number that it gave.
        sequence: u16,
    },
    /// It broke the rules of firehoses, as the log says.
    #[error("it asks for firehoses that are not its own, or answers what was not asked")]
    Firehoses,
    /// It broke the rules of the stream service.
    #[error(transparent)]
    Stream(#[from] StreamBreach),
    /// It wrote by RDMA WRITE with immediate, which nothing asks for.
    #[error("an unasked RDMA WRITE")]
    UnaskedWrite,
    /// Its terms came over another lane than the first.
    #[error("its terms came over another lane")]
    TermsLane,
    /// Its first message is not its terms.
    #[error("its first message is not its terms")]
    NoTerms,
    /// It sent its terms twice.
    #[error("it sent its terms twice")]
    TermsTwice,
    /// Its terms name another rank.
    #[error("it says that it is rank {0}")]
    OtherRank(u32),
    /// It grants fewer credits than anything could be sent with.
    #[error("it grants too few credits to send anything")]
    TooFewCredits,
    /// It has another number of receive queues.
    #[error("{ours} receive queues here, {theirs} at the peer")]
    QueueCount {
        /// Here.
        ours: usize,
        /// There.
        theirs: usize,
    },
    /// A receive queue is shared at one end and not at the other.
    #[error(
        "receive queue {number} is {} here and {} at the peer",
        if *.is_shared_here { "shared" } else { "per peer" }, if *.is_shared_here { "per peer" } else { "shared" }
    )]
    QueueKind {
        /// Which, from 1.
        number: usize,
        /// What it is here.
        is_shared_here: bool,
    },
    /// A receive queue has buffers of other sizes.
    #[error("receive queue {number} has buffers of {ours} bytes here and of {theirs} at the peer")]
    QueueSize {
        /// Which, from 1.
        number: usize,
        /// Bytes here.
        ours: usize,
        /// Bytes there.
        theirs: usize,
    },
    /// A message is longer than there are any.
    #[error("it announced a message of {0} bytes")]
    TooLong(u64),
    /// The first part of a message has come that cannot begin.
    #[error("it began message {id:#x} in vain")]
    Beginning {
        /// The peer's name for the message.
        id: u64,
    },
    /// A part of a message is not the next one.
    #[error("a fragment of message {id:#x} does not fit")]
    Fragment {
        /// The peer's name for the message.
        id: u64,
    },
    /// Data for a receive that expects none.
    #[error("it sent data for {reply:#x}, which waits for none")]
    UnaskedData {
        /// Our name for the receive.
        reply: u64,
    },
    /// Data for a receive that does not fit it.
    #[error("data for {reply:#x} does not fit")]
    Data {
        /// Our name for the receive.
        reply: u64,
    },
    /// A match of a message that does not wait for one.
    #[error("it matched message {id:#x}, which does not wait for that")]
    Matched {
        /// Our name for the send.
        id: u64,
    },
    /// The end of a transfer that is none of its own.
    #[error("it finished transfer {id:#x}, which is none of its own")]
    Finished {
        /// Our name for the send.
        id: u64,
    },
    /// A clear-to-send that fits no announcement of ours.
    #[error("its clear-to-send for transfer {id:#x} does not fit it")]
    ClearToSend {
        /// Our name for the send.
        id: u64,
    },
    /// It wrote for a receive that expects nothing.
    #[error("it wrote for {reply:#x}, which waits for nothing")]
    UnaskedWritten {
        /// Our name for the receive.
        reply: u64,
    },
    /// It wrote another number of bytes than the message has.
    #[error("it wrote {len} bytes of a message of {all}")]
    Written {
        /// What it wrote.
        len: u64,
        /// What the message has.
        all: usize,
    },
    /// It wrote another number of bytes than a piece has.
    #[error("it wrote a piece of {len} bytes where {granted} were granted")]
    Piece {
        /// What it wrote.
        len: u64,
        /// What was granted.
        granted: usize,
    },
    /// It answered a transfer or an active message that is none of its own, or other than was asked.
    #[error("it answered {reply:#x}, which waits for no such answer")]
    UnaskedAnswer {
        /// Our name for what it answers.
        reply: u64,
    },
    /// It gave a message back that nothing asked for.
    #[error("it gave back message {id:#x}, which was not asked for")]
    Cancelled {
        /// Our name for the send.
        id: u64,
    },
}

/// How a peer broke the rules of the stream service.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum StreamBreach {
    /// Its offer of a stream does not parse, or is a second one.
    #[error("it offered a stream that is none, or a second one")]
    Offer,
    /// It wrote before it offered its own end.
    #[error("it wrote into a stream before it offered its own end")]
    EarlyNews,
    /// The immediate data means nothing, or nothing in this configuration.
    #[error("it wrote with immediate data {0:#010x}, which means nothing")]
    Immediate(u32),
    /// The head does not advance, or advances beyond the ring.
    #[error("its head advances by {advance}, with room for {room}")]
    Head {
        /// How far it moved.
        advance: u64,
        /// How far it may.
        room: u64,
    },
    /// The head's word contradicts the immediate data.
    #[error("its head's word says {0}")]
    HeadWord(u64),
    /// The tail is beyond the head, or behind what it was.
    #[error("its tail is {tail}, which lies outside {known}..={head}")]
    Tail {
        /// What it says.
        tail: u64,
        /// What it was.
        known: u64,
        /// What was sent.
        head: u64,
    },
    /// A chunk's header has another number, or another length than was written.
    #[error("it wrote a chunk of number {number} and length {len} in {written} bytes")]
    Chunk {
        /// Its number's low bits.
        number: u32,
        /// The length in its header.
        len: u32,
        /// Bytes that were written.
        written: usize,
    },
    /// A head or a tail is not a word long.
    #[error("it wrote a head or tail of {0} bytes")]
    Word(usize),
    /// It announced a payload that is empty or longer than a READ, or is no announcement at all.
    #[error("it announced a payload of {0} bytes in a stream")]
    Announcement(u64),
    /// It announced a payload though zero-copy is off, or sent more before its announced payload was read.
    #[error("it sent more before its announced payload was read, or announced one though zero-copy is off")]
    Unasked,
}
