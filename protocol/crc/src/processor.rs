//! What the processor has, looked at once.

use std::sync::atomic::{AtomicU8, Ordering};

/// Whether the processor has what something is compiled for. The answer is remembered as one byte, which is looked at for each packet.
pub(super) struct Feature(AtomicU8);

impl Feature {
    const YES: u8 = 1;
    const NO: u8 = 2;

    pub(super) const fn new() -> Self {
        Self(AtomicU8::new(0))
    }

    #[inline]
    pub(super) fn is_there(&self, look: impl FnOnce() -> bool) -> bool {
        match self.0.load(Ordering::Relaxed) {
            Self::YES => true,
            Self::NO => false,
            _ => self.find_out(look),
        }
    }

    #[cold]
    fn find_out(&self, look: impl FnOnce() -> bool) -> bool {
        let is_there = look();
        self.0.store(if is_there { Self::YES } else { Self::NO }, Ordering::Relaxed);
        is_there
    }
}
