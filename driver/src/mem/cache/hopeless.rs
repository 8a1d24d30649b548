//! Ranges that are too long to be registered: asking for them evicts all that is idle, and then fails.

/// Ranges that are refused beforehand until one is tried again. A try costs the cache all its idle regions, of which
/// there are 1024 by default: so each range that is copied costs about one registration.
const PATIENCE: u32 = 1024;

/// From which length on registering is not tried. The limit is the process's, and may be raised or be reached for a moment
/// only: so this is forgotten when another engine has ended a registration, and after some time.
#[derive(Debug)]
pub(super) struct Hopeless {
    /// So many bytes were too many when the cache had nothing else registered.
    bytes: usize,
    /// Registrations that the other engines had ended by then. What this cache ends, it did not have.
    ended_by_others: u64,
    refused: u32,
}

impl Hopeless {
    pub(super) const fn nothing() -> Self {
        Self { bytes: usize::MAX, ended_by_others: 0, refused: 0 }
    }

    /// `len` bytes were too many for an empty cache.
    pub(super) fn learn(&mut self, len: usize, ended_by_others: u64) {
        *self = Self { bytes: self.bytes.min(len), ended_by_others, refused: 0 };
    }

    /// Whether so many bytes were too many.
    pub(super) const fn covers(&self, len: usize) -> bool {
        len >= self.bytes
    }

    /// Whether registering `len` bytes is to be given up beforehand.
    pub(super) fn refuses(&mut self, len: usize, ended_by_others: u64) -> bool {
        if !self.covers(len) {
            return false;
        }
        self.refused += 1;
        if self.refused >= PATIENCE || self.ended_by_others != ended_by_others {
            *self = Self::nothing();
        }
        self.covers(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_too_long_is_refused_until_others_have_ended_something_or_for_some_time() {
        let mut hopeless = Hopeless::nothing();
        assert!(!hopeless.refuses(usize::MAX - 1, 0));
        hopeless.learn(100, 3);
        hopeless.learn(200, 3);
        assert!(!hopeless.refuses(99, 3) && hopeless.refuses(100, 3));
        assert!(!hopeless.refuses(100, 4) && !hopeless.refuses(100, 4));
        hopeless.learn(100, 4);
        assert_eq!((1..=PATIENCE).find(|_| !hopeless.refuses(100, 4)), Some(PATIENCE));
    }
}
