//! What can be measured, and how.

use clap::ValueEnum;
use roci_msgcore::stream::{StreamConfig, StreamStep};

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum PerfTest {
    RawLat,
    RawBw,
    SendLat,
    SendBw,
    WriteLat,
    WriteBw,
    ReadLat,
    ReadBw,
    AtomicLat,
    SendRate,
    TagLat,
    TagBw,
    StreamLat,
    StreamBw,
    PutLat,
    PutBw,
    GetLat,
    GetBw,
    FaddLat,
    AmLat,
    AmRate,
}

/// Up to which step byte streams are optimized.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum UpToStep {
    /// Data, head and tail are three WRITEs
    Basic,
    /// One WRITE a chunk, and delayed tails
    Piggyback,
    /// A chunk is copied while the one before it is on its way
    Pipelining,
    /// Long payloads are fetched from where they are
    Zerocopy,
}

impl UpToStep {
    pub(super) fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    pub(super) fn config(self) -> StreamConfig {
        StreamConfig::of(match self {
            Self::Basic => StreamStep::Basic,
            Self::Piggyback => StreamStep::Piggyback,
            Self::Pipelining => StreamStep::Pipelining,
            Self::Zerocopy => StreamStep::ZeroCopy,
        })
    }
}

/// Where the worker of a tagged test lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum EngineMode {
    /// On the thread that sends and receives
    Inline,
    /// On a thread of its own
    Dedicated,
}

impl EngineMode {
    pub(super) fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

impl PerfTest {
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    pub(super) const fn is_latency(self) -> bool {
        use PerfTest::{
            AmLat, AtomicLat, FaddLat, GetLat, PutLat, RawLat, ReadLat, SendLat, StreamLat, TagLat, WriteLat,
        };
        matches!(
            self,
            RawLat | SendLat | WriteLat | ReadLat | AtomicLat | TagLat | StreamLat | PutLat | GetLat | FaddLat | AmLat
        )
    }

    /// Whether each message is a round trip of its own, and not half of one.
    pub(super) const fn is_answered(self) -> bool {
        matches!(self, Self::ReadLat | Self::AtomicLat | Self::PutLat | Self::GetLat | Self::FaddLat)
    }

    pub(super) const fn is_raw(self) -> bool {
        matches!(self, Self::RawLat | Self::RawBw)
    }

    pub(super) const fn is_of_verbs(self) -> bool {
        use PerfTest::{ReadBw, ReadLat, SendBw, SendLat, WriteBw, WriteLat};
        matches!(self, SendLat | SendBw | WriteLat | WriteBw | ReadLat | ReadBw)
    }

    /// Whether messages go over several queue pairs in turn, where that is asked for.
    pub(super) const fn takes_connections(self) -> bool {
        matches!(self, Self::SendBw | Self::WriteBw | Self::ReadBw | Self::SendRate)
    }

    /// Whether both sides send at once, where that is asked for.
    pub(super) const fn has_two_directions(self) -> bool {
        matches!(self, Self::SendBw | Self::WriteBw | Self::ReadBw | Self::TagBw)
    }

    /// Whether messages follow each other without waiting for answers, as many at once as the plan says.
    pub(super) const fn is_stream(self) -> bool {
        matches!(self, Self::SendBw | Self::WriteBw | Self::ReadBw | Self::TagBw | Self::PutBw | Self::GetBw)
    }

    pub(super) const fn is_tagged(self) -> bool {
        matches!(self, Self::TagLat | Self::TagBw)
    }

    pub(super) const fn is_of_streams(self) -> bool {
        matches!(self, Self::StreamLat | Self::StreamBw)
    }

    /// Whether a worker is measured, and not its queue pairs.
    pub(super) const fn is_above_verbs(self) -> bool {
        self.is_tagged() || self.is_of_streams() || self.is_one_sided()
    }

    /// Whether it is of one-sided operations, or active messages.
    pub(super) const fn is_one_sided(self) -> bool {
        use PerfTest::{AmLat, AmRate, FaddLat, GetBw, GetLat, PutBw, PutLat};
        matches!(self, PutLat | PutBw | GetLat | GetBw | FaddLat | AmLat | AmRate)
    }

    pub(super) fn default_sizes(self) -> Vec<usize> {
        if self == Self::SendRate {
            vec![64]
        } else if self == Self::AmRate {
            vec![8]
        } else if self == Self::AmLat {
            vec![8, 64, 512, 4 << 10]
        } else if self.is_latency() {
            vec![8, 64, 512, 4 << 10, 32 << 10]
        } else {
            vec![8, 64, 512, 4 << 10, 32 << 10, 256 << 10, 1 << 20, 4 << 20]
        }
    }

    /// As many messages as take about a second at the most; both sides compute the same.
    pub(super) const fn default_iters(self, size: usize) -> u64 {
        let budget: u64 = if self.is_latency() { 64 << 20 } else { 2 << 30 };
        let most = if self.is_latency() { 100_000 } else { 1_000_000 };
        let fitting = budget / size as u64;
        if fitting > most {
            most
        } else if fitting < 20 {
            20
        } else {
            fitting
        }
    }
}
