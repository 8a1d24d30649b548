//! What both ends of a stream must agree on: sizes, and which of the optimizations are on.

use thiserror::Error;

/// Bytes before the data of a chunk.
pub(super) const HEADER: usize = 16;

/// The largest ring: positions in it fit the immediate data many times over.
const MOST_RING: usize = 64 << 20;
/// The smallest chunk; an announcement fits into it.
const LEAST_CHUNK: usize = 64;
/// Chunks of a ring, at least: one may be read while another is written.
const LEAST_SLOTS: usize = 4;
/// Chunks of a ring, at most: each has a staging buffer at the sender.
const MOST_SLOTS: usize = 4096;
/// A delayed tail is reported when this part of the ring is free again.
const DELAY: u64 = 4;

/// How streams work. The switches are the steps of MPICH2's RDMA channel; each can be on or off for itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamConfig {
    /// Bytes of the ring that a peer writes into; a multiple of `chunk`. 1 MiB: 64 chunks, as many messages as may be
    /// unacknowledged, and twice a window of packets.
    pub ring: usize,
    /// The longest piece that is copied and written at once. With `piggyback` it begins with a header of 16 bytes.
    /// 16 KiB: four packets, long enough to hide the cost of a work request.
    pub chunk: usize,
    /// The news of data travels with the data, in one WRITE: the ring is cut into chunks that begin with a header,
    /// which also carries the tail of the way back. Without it the head is a WRITE of its own.
    pub piggyback: bool,
    /// The tail is reported when a quarter of the ring is free again, not after every get.
    pub tail_delay: bool,
    /// Each piece of a long put is sent as soon as it is copied. Without it the whole put is copied first, and waits
    /// until the put before it has arrived.
    pub pipelining: bool,
    /// Payloads of at least so many bytes are fetched by the receiver by RDMA READ; `None` copies all. Measured over
    /// memif: one payload at a time pays a round trip, which only longer ones than 256 KiB earn back. The paper's
    /// network, where copying was slower, had its threshold at 32 KiB.
    pub zero_copy: Option<usize>,
    /// Payloads that stay registered between their uses; the one that was not used for longest gives way.
    pub registrations: usize,
}

/// The steps of the ablation, each with all those before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StreamStep {
    /// Data, head and tail are three WRITEs.
    Basic,
    /// One WRITE a chunk, and delayed tails.
    Piggyback,
    /// A chunk is copied while the one before it is on its way.
    Pipelining,
    /// Long payloads are fetched from where they are.
    ZeroCopy,
}

/// Why a configuration makes no stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum BadStreamConfig {
    /// The chunk is too short or longer than the ring.
    #[error("a chunk of {0} bytes: it has at least {LEAST_CHUNK}, and is a multiple of 8")]
    Chunk(usize),
    /// The ring does not consist of chunks, or of too few or too many.
    #[error(
        "a ring of {ring} bytes: it has {LEAST_SLOTS} to {MOST_SLOTS} chunks of {chunk}, and at most {MOST_RING} bytes"
    )]
    Ring {
        /// Its length.
        ring: usize,
        /// The chunk's length.
        chunk: usize,
    },
    /// No payload could be registered, or an empty one would be.
    #[error("zero-copy needs a threshold and a number of registrations above 0")]
    ZeroCopy,
}

impl Default for StreamConfig {
    fn default() -> Self {
        Self {
            ring: 1 << 20,
            chunk: 16 << 10,
            piggyback: true,
            tail_delay: true,
            pipelining: true,
            zero_copy: Some(512 << 10),
            registrations: 16,
        }
    }
}

impl StreamConfig {
    /// The defaults, up to a step.
    pub fn of(step: StreamStep) -> Self {
        let all = Self::default();
        let reaches = |other: StreamStep| step as u8 >= other as u8;
        Self {
            piggyback: reaches(StreamStep::Piggyback),
            tail_delay: reaches(StreamStep::Piggyback),
            pipelining: reaches(StreamStep::Pipelining),
            zero_copy: all.zero_copy.filter(|_| reaches(StreamStep::ZeroCopy)),
            ..all
        }
    }

    pub(super) fn check(&self) -> Result<(), BadStreamConfig> {
        let Self { ring, chunk, .. } = *self;
        if chunk < LEAST_CHUNK || !chunk.is_multiple_of(8) {
            return Err(BadStreamConfig::Chunk(chunk));
        }
        if ring > MOST_RING || !ring.is_multiple_of(chunk) || !(LEAST_SLOTS..=MOST_SLOTS).contains(&(ring / chunk)) {
            return Err(BadStreamConfig::Ring { ring, chunk });
        }
        if self.zero_copy.is_some_and(|threshold| threshold == 0 || self.registrations == 0) {
            return Err(BadStreamConfig::ZeroCopy);
        }
        Ok(())
    }

    pub(super) fn slots(&self) -> usize {
        self.ring / self.chunk
    }

    pub(super) fn sizes(&self) -> Sizes {
        let capacity = if self.piggyback { self.slots() } else { self.ring } as u64;
        let header = if self.piggyback { HEADER } else { 0 };
        let patience = if self.tail_delay { capacity / DELAY } else { 1 };
        Sizes { capacity, patience, header, piece: self.chunk - header, slots: self.slots() }
    }
}

/// What follows from a configuration: computed once, so that no call divides.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    /// How far the head may be ahead of the tail: in chunks where the ring is cut into them, else in bytes.
    pub(super) capacity: u64,
    /// How far the tail may advance before it is reported.
    pub(super) patience: u64,
    /// Bytes before the application's in a staging buffer.
    pub(super) header: usize,
    /// Bytes of the application's that a staging buffer holds.
    pub(super) piece: usize,
    /// Staging buffers.
    pub(super) slots: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_has_what_the_steps_before_it_have() {
        let switches = |step| {
            let StreamConfig { piggyback, pipelining, zero_copy, .. } = StreamConfig::of(step);
            [piggyback, pipelining, zero_copy.is_some()]
        };
        assert_eq!(switches(StreamStep::Basic), [false; 3]);
        assert_eq!(switches(StreamStep::Piggyback), [true, false, false]);
        assert_eq!(switches(StreamStep::Pipelining), [true, true, false]);
        assert_eq!(StreamConfig::of(StreamStep::ZeroCopy), StreamConfig::default());
    }

    #[test]
    fn sizes_that_make_no_ring_are_refused() {
        let good = StreamConfig::default();
        assert_eq!(good.check(), Ok(()));
        for chunk in [0, 8, 63, 65, 100] {
            assert_eq!(StreamConfig { chunk, ..good }.check(), Err(BadStreamConfig::Chunk(chunk)));
        }
        for (ring, chunk) in [(0, 64), (192, 64), (300, 64), (128 << 20, 1 << 20), (1 << 20, 64)] {
            assert_eq!(StreamConfig { ring, chunk, ..good }.check(), Err(BadStreamConfig::Ring { ring, chunk }));
        }
        assert!(StreamConfig { zero_copy: Some(0), ..good }.check().is_err());
        assert!(StreamConfig { registrations: 0, ..good }.check().is_err());
        assert!(StreamConfig { registrations: 0, zero_copy: None, ..good }.check().is_ok());
    }
}
