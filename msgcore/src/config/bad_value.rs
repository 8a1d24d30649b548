//! Why a knob does not take a value.

use std::convert::Infallible;
use std::net::AddrParseError;

use roci_driver::link::live::ParseLinkDeviceError;
use roci_protocol::NoPkey;
use roci_protocol::sim::ParseFaultsError;
use thiserror::Error;

use crate::receive_queues::ReceiveQueuesError;
use crate::units::show_size;

/// Why a knob does not take a value.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum BadKnobValue {
    /// The value is not text.
    #[error("is not UTF-8")]
    NotUtf8,
    /// The value is not a number.
    #[error("is not a whole number")]
    NotANumber,
    /// The value is not a size.
    #[error("is not a size such as 4096, 8KiB, 1MiB")]
    NotASize,
    /// The value is not an amount of memory as GASNet writes it.
    #[error("is not a number of megabytes such as 512, 512M or 2G")]
    NotMegabytes,
    /// The value is not a part of one.
    #[error("is not a ratio such as 0.75")]
    NotARatio,
    /// The value is too small, or too large.
    #[error("lies outside {least}..{most}")]
    OutOfRange {
        /// The smallest value that is taken, in the knob's notation.
        least: String,
        /// The largest.
        most: String,
    },
    /// The value is none of those that there are.
    #[error("is not one of {}", .0.join(", "))]
    NoChoice(Vec<&'static str>),
    /// The size is not whole.
    #[error("is no multiple of {}", show_size(.0))]
    NoMultiple(usize),
    /// The size is no power of two.
    #[error("is no power of two")]
    NoPowerOfTwo,
    /// A part of a list of stations is not a station.
    #[error("'{0}' is not of the form IP=MAC")]
    NotAStation(String),
    /// The first wait is longer than the longest.
    #[error("is more than ack_timeout_max_us={0}, which waits grow to: lower it, or raise that")]
    LongerThanLongestWait(u64),
    /// The value is not an address.
    #[error(transparent)]
    Address(#[from] AddrParseError),
    /// The value is not a partition.
    #[error(transparent)]
    Partition(#[from] NoPkey),
    /// The value is not a device.
    #[error(transparent)]
    Device(#[from] ParseLinkDeviceError),
    /// The value does not describe receive queues.
    #[error(transparent)]
    Queues(#[from] ReceiveQueuesError),
    /// The value is not a fault plan.
    #[error(transparent)]
    Faults(#[from] ParseFaultsError),
}

impl BadKnobValue {
    pub(super) fn out_of_range(least: impl ToString, most: impl ToString) -> Self {
        Self::OutOfRange { least: least.to_string(), most: most.to_string() }
    }
}

/// What takes every text refuses none.
impl From<Infallible> for BadKnobValue {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}
