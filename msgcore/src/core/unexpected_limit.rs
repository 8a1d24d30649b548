//! Memory that unexpected messages may take (`ROCI_UNEXPECTED_LIMIT`, and the floor of the arena). Credits are withheld where they take too much, or where the arena runs
//! low: the application must be able to receive them.

/// The account of that memory.
#[derive(Debug)]
pub(crate) struct UnexpectedBudget {
    /// Bytes that may be taken.
    limit: usize,
    /// Free bytes of the arena below which no message is stored without its credit being withheld.
    floor: usize,
    /// Bytes that are taken.
    stored: usize,
    is_withholding: bool,
    /// Bytes that copies have taken since the arena's free bytes were last looked at.
    unseen: usize,
}

/// The arena is looked at when copies have taken this part of the floor.
const LOOK_SHARE: usize = 16;

impl UnexpectedBudget {
    /// An account of at most `limit` bytes, in an arena that shall keep `floor` bytes free.
    pub(crate) fn new(limit: usize, floor: usize) -> Self {
        Self { limit, floor, stored: 0, is_withholding: false, unseen: 0 }
    }

    /// Messages without a receive take so many bytes now.
    #[inline]
    pub(crate) fn note_stored(&mut self, bytes: usize) {
        self.stored = bytes;
        self.is_withholding |= bytes > self.limit;
    }

    /// The arena has so many free bytes, and buffers for receives are about to be made.
    #[cold]
    pub(crate) fn note_free(&mut self, bytes: usize) {
        self.is_withholding |= bytes < self.floor;
    }

    /// A copy takes so many bytes; returns whether it is time to look at the arena, which takes its lock.
    pub(crate) fn is_look_due(&mut self, bytes: usize) -> bool {
        self.unseen += bytes;
        let is_due = self.unseen > self.floor / LOOK_SHARE;
        if is_due {
            self.unseen = 0;
        }
        is_due
    }

    /// Whether the credits of messages that are stored are withheld.
    #[inline]
    pub(crate) fn is_withholding(&self) -> bool {
        self.is_withholding
    }

    /// Whether no copy of another message may be stored.
    pub(crate) fn is_exceeded(&self) -> bool {
        self.stored > self.limit
    }

    /// Ends the withholding where it is time; returns whether it did.
    #[must_use]
    pub(crate) fn release(&mut self) -> bool {
        let ends = self.is_withholding && self.stored <= self.limit / 2;
        self.is_withholding &= !ends;
        ends
    }

    /// Whether no message without a receive takes anything: what receives lack then is nothing that such messages have.
    pub(crate) fn is_idle(&self) -> bool {
        self.stored == 0 && !self.is_withholding
    }

    /// Whether more of the arena may be taken for receives.
    pub(crate) fn is_above_floor(&self, free_bytes: usize) -> bool {
        free_bytes >= self.floor
    }

    /// Whether the arena is far from its floor.
    pub(crate) fn has_room(&self, free_bytes: usize) -> bool {
        free_bytes >= 2 * self.floor
    }
}
