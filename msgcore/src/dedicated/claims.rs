//! Messages that the application has claimed and not received: the handle knows its own, as the engine does.

use std::collections::HashSet;

use crate::ClaimedMessage;

/// The claims that are open, by number.
#[derive(Default)]
pub(super) struct Claims(HashSet<u64>);

impl Claims {
    /// The engine has claimed this one.
    pub(super) fn note(&mut self, message: &ClaimedMessage) {
        self.0.insert(message.claim());
    }

    /// It is to be received; `false` where it is another worker's.
    pub(super) fn take(&mut self, message: &ClaimedMessage) -> bool {
        self.0.remove(&message.claim())
    }
}
