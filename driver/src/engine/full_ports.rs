//! Which ports a poll has found full.

use arrayvec::ArrayVec;

/// Ports whose links take nothing more in this poll.
#[derive(Default)]
pub(super) struct FullPorts(ArrayVec<usize, 8>);

impl FullPorts {
    #[inline]
    pub(super) fn any(&self) -> bool {
        !self.0.is_empty()
    }

    pub(super) fn has(&self, port: usize) -> bool {
        self.0.contains(&port)
    }

    /// Of more ports than can be noted the rest are tried in vain.
    pub(super) fn add(&mut self, port: usize) {
        if !self.has(port) {
            let _ = self.0.try_push(port);
        }
    }
}
