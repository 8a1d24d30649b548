//! The clock of all links of a process: one, because an engine may have ports of several kinds.

use std::sync::LazyLock;
use std::time::Instant;

use roci_protocol::Nanos;

static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Returns the nanoseconds since the first call in this process, by the kernel's clock.
pub(super) fn since_origin() -> Nanos {
    ORIGIN.elapsed().as_nanos() as Nanos
}
