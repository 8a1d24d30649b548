//! SIGUSR1: somebody wants to know what a rank waits for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::SigId;
use signal_hook::consts::SIGUSR1;

/// Notices the signal as long as it lives. A handler that the application has set is called as well; without one the signal
/// ends the process no longer, also after this.
#[derive(Debug)]
pub(crate) struct ReportSignal {
    has_come: Arc<AtomicBool>,
    id: Option<SigId>,
}

impl ReportSignal {
    /// From now on.
    pub(crate) fn watch() -> Self {
        let has_come = Arc::new(AtomicBool::new(false));
        // Without a handler SIGUSR1 keeps its default action, and `take` never returns true.
        let id = signal_hook::flag::register(SIGUSR1, has_come.clone()).ok();
        Self { has_come, id }
    }

    /// Whether it has come since the last time.
    pub(crate) fn take(&self) -> bool {
        self.has_come.load(Ordering::Relaxed) && self.has_come.swap(false, Ordering::Relaxed)
    }
}

impl Drop for ReportSignal {
    fn drop(&mut self) {
        self.id.take().map(signal_hook::low_level::unregister);
    }
}
