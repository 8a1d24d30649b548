//! Where payloads lie.

use clap::ValueEnum;
use roci_driver::UserMemory;

/// Whose memory holds the payloads.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum PayloadMemory {
    /// The arena's
    Arena,
    /// The application's own, registered with a device that reads memory itself
    User,
}

impl PayloadMemory {
    pub(super) fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// Memory of this program's, for good: it measures, and ends.
pub(super) fn of_our_own(len: usize) -> UserMemory {
    vec![0; len].leak().into()
}
