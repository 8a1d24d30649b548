//! The first process of a container, or of any PID namespace: the kernel brings it no signal that it has no handler for, not even
//! one that would end any other process.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::flag::register_conditional_shutdown;

/// Whether they end this process at once; a launcher has them end its ranks first.
static END_AT_ONCE: LazyLock<Arc<AtomicBool>> = LazyLock::new(|| Arc::new(AtomicBool::new(true)));

/// Has signals end this process, where they would not.
pub(crate) fn obey_signals() {
    if std::process::id() != 1 {
        return;
    }
    for signal in [SIGHUP, SIGINT, SIGQUIT, SIGTERM] {
        // Without a handler only SIGKILL ends it, which is what comes next.
        let _ = register_conditional_shutdown(signal, 128 + signal, END_AT_ONCE.clone());
    }
}

/// Leaves them to handlers that come later.
pub(crate) fn leave_signals() {
    END_AT_ONCE.store(false, Ordering::Relaxed);
}
