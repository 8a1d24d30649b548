//! Whether this process is the engine's, for those that hold no engine.

use std::fmt;
use std::sync::Arc;

use super::board::WatchTable;

/// Detects on any thread, by one load, whether this process was forked from the one that opened the engine: see
/// [`Engine::fork_watch`](crate::Engine::fork_watch).
#[derive(Clone)]
pub struct ForkWatch(Arc<WatchTable>);

impl ForkWatch {
    pub(super) fn new(board: Arc<WatchTable>) -> Self {
        Self(board)
    }

    /// Whether this process was forked from the engine's.
    #[inline]
    pub fn is_forked(&self) -> bool {
        self.0.is_forked()
    }
}

impl fmt::Debug for ForkWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ForkWatch({})", if self.is_forked() { "forked" } else { "the engine's process" })
    }
}
