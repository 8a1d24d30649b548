//! Closing an endpoint, and parting from a peer: what was sent is the peers' first.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use roci_msgcore::{FlushError, Pattern, PeerId, Source, TagMatch};

use crate::endpoint::{EnabledEndpoint, EndpointState};
use crate::message::Tagging;

/// How long an endpoint waits at a time, and where no other of its process has to make progress meanwhile.
const SLICE: Duration = Duration::from_micros(200);
const SLICE_ALONE: Duration = Duration::from_millis(16);

/// How long an endpoint waits before it forgets a peer. That peer may wait as well, and it takes nothing more then.
const PARTING: Duration = Duration::from_secs(1);

/// Endpoints of this process that are enabled.
static ENABLED: Mutex<Vec<Weak<EndpointState>>> = Mutex::new(Vec::new());

/// An endpoint has a worker from now on.
pub(crate) fn note_enabled(endpoint: &Arc<EndpointState>) {
    let mut enabled = enabled();
    enabled.retain(|endpoint| endpoint.strong_count() > 0);
    enabled.push(Arc::downgrade(endpoint));
}

/// Waits until what an endpoint has sent is its peers', as long as the domain says, and takes nothing more.
pub(crate) fn linger(endpoint: &Arc<EndpointState>) {
    enabled().retain(|other| other.as_ptr() != Arc::as_ptr(endpoint));
    wait_while(endpoint, endpoint.domain.linger, EnabledEndpoint::has_more_to_send);
}

/// Waits for a while until what was sent to a peer is its: a send may have ended before it has left.
pub(crate) fn part(endpoint: &Arc<EndpointState>, peer: PeerId) {
    wait_while(endpoint, PARTING, |active, moment| active.has_more_for(Some(peer), moment));
}

/// Waits as long as this holds. Other endpoints of this process go on meanwhile: they may be the peers, and the thread that waits may be
/// theirs, too.
fn wait_while(endpoint: &Arc<EndpointState>, limit: Duration, holds: impl Fn(&mut EnabledEndpoint, Duration) -> bool) {
    let deadline = Instant::now() + limit;
    let mut slice = SLICE;
    while endpoint.with(|active| Ok(holds(active, slice))).unwrap_or(false) && Instant::now() < deadline {
        let enabled = enabled();
        let others = enabled.iter().filter(|other| other.as_ptr() != Arc::as_ptr(endpoint));
        slice = SLICE_ALONE;
        // None of them is closed meanwhile, for that takes it off the list.
        for other in others.filter_map(Weak::upgrade) {
            slice = SLICE;
            // An endpoint that is not enabled any more needs none. Where a queue is full, what has ended waits in the worker.
            let _ = other.with(|active| Ok(active.progress() || active.worker.progress()));
        }
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
        self.has_more_for(None, moment) || self.remote_data.is_expected()
    }

    /// Waits for a moment until what was sent to a peer, or to all of them, is theirs; returns whether it is not yet.
    fn has_more_for(&mut self, peer: Option<PeerId>, moment: Duration) -> bool {
        matches!(self.worker.flush(peer, moment), Err(FlushError::Timeout { .. }))
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
