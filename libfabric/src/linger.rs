//! Closing an endpoint: what it has sent is its peers' first.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use roci_msgcore::{FlushError, Pattern, Source, TagMatch};

use crate::endpoint::{EnabledEndpoint, EndpointState};
use crate::message::Tagging;

/// How long an endpoint waits before others make progress: at first, and at most.
const SLICES: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(16)];

/// Endpoints of this process that are enabled.
static ENABLED: Mutex<Vec<Weak<EndpointState>>> = Mutex::new(Vec::new());

/// An endpoint has a worker from now on.
pub(crate) fn note_enabled(endpoint: &Arc<EndpointState>) {
    let mut enabled = enabled();
    enabled.retain(|endpoint| endpoint.strong_count() > 0);
    enabled.push(Arc::downgrade(endpoint));
}

/// Waits until what an endpoint has sent is its peers', as long as the domain says. Others of this process go on meanwhile: they may be
/// those peers, and the thread that closes this one may be theirs, too.
pub(crate) fn linger(endpoint: &Arc<EndpointState>) {
    let deadline = Instant::now() + endpoint.domain.linger;
    enabled().retain(|other| other.as_ptr() != Arc::as_ptr(endpoint));
    let [mut slice, longest] = SLICES;
    while endpoint.with(|active| Ok(active.has_more_to_send(slice))).unwrap_or(false) && Instant::now() < deadline {
        // None of them is closed meanwhile, for that takes it off the list.
        for other in enabled().iter().filter_map(Weak::upgrade) {
            // An endpoint that is not enabled any more needs none. Where a queue is full, what has ended waits in the worker.
            let _ = other.with(|active| Ok(active.progress() || active.worker.progress()));
        }
        slice = longest.min(slice * 2);
    }
}

fn enabled() -> MutexGuard<'static, Vec<Weak<EndpointState>>> {
    ENABLED.lock().unwrap_or_else(PoisonError::into_inner)
}

impl EnabledEndpoint {
    /// Waits for a moment until what was sent is its peers'; returns whether it is not yet.
    fn has_more_to_send(&mut self, moment: Duration) -> bool {
        if self.worker.is_forked() {
            return false;
        }
        // What has ended may have data behind it.
        while let Some(completion) = self.worker.next_completion() {
            self.complete(completion);
        }
        self.carry_remote_data();
        self.discard_unexpected();
        let is_flushed = !matches!(self.worker.flush(None, moment), Err(FlushError::Timeout { .. }));
        !is_flushed || self.remote_data.is_expected()
    }

    /// There will be no receive for what has come: peers that have announced it need not keep it.
    fn discard_unexpected(&mut self) {
        for kind in [Tagging::Tagged, Tagging::Untagged] {
            let all = Pattern::new(Source::Any, TagMatch::Any).within(kind.context());
            while let Some(claimed) = self.worker.claim(all) {
                self.worker.discard(claimed);
            }
        }
    }
}
