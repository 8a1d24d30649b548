//! Closing an endpoint, and parting from a peer: what was sent is the peers' first.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use std::{process, thread};

use roci_msgcore::{FlushError, Pattern, PeerId, Source, TagMatch};

use crate::abi::flags::FI_SEND;
use crate::endpoint::{EnabledEndpoint, EndpointState};
use crate::message::Tagging;

/// How long an endpoint is waited with at a time, and how long the thread sleeps between two times at which nothing happened, at most.
const SLICE: Duration = Duration::from_micros(200);
const PAUSE: Duration = Duration::from_millis(1);
/// Looks of each other endpoint between two times: to connect takes many.
const LOOKS: u32 = 16;
/// How long an endpoint waits before it forgets a peer. That peer may wait as well, and it takes nothing more then.
const PARTING: Duration = Duration::from_secs(1);

/// The list of the process, which is never freed.
static ENABLED: AtomicPtr<EnabledList> = AtomicPtr::new(null_mut());

/// Endpoints of a process that are enabled. A forked child has a list of its own: its parent's may be locked by a thread that it has not.
struct EnabledList {
    process: u32,
    endpoints: Mutex<Vec<Weak<EndpointState>>>,
}

/// An endpoint has a worker from now on.
pub(crate) fn note_enabled(endpoint: &Arc<EndpointState>) {
    let mut enabled = enabled();
    enabled.retain(|endpoint| endpoint.strong_count() > 0);
    enabled.push(Arc::downgrade(endpoint));
}

/// Waits until what an endpoint has sent is its peers', as long as the domain says, and takes nothing more.
pub(crate) fn linger(endpoint: &Arc<EndpointState>) {
    enabled().retain(|other| other.as_ptr() != Arc::as_ptr(endpoint));
    // It is of no matter where it is not enabled.
    let _ = endpoint.with(|active| {
        active.leave_sends_alone();
        Ok(())
    });
    wait_while(endpoint, endpoint.domain.linger, EnabledEndpoint::has_more_to_send);
}

/// Waits for a while until what was sent to these peers is theirs: a send may have ended before it has left.
pub(crate) fn part(endpoint: &Arc<EndpointState>, peers: &[PeerId]) {
    wait_while(endpoint, PARTING, |active, moment| {
        let behind = peers.iter().find(|&&peer| !active.worker.is_flushed(peer));
        behind.is_some_and(|&peer| active.has_more_for(Some(peer), moment) || peers.len() > 1)
    });
}

/// Waits as long as this holds. Other endpoints of this process go on meanwhile: they may be the peers, and the thread that waits may be
/// theirs, too.
fn wait_while(endpoint: &Arc<EndpointState>, limit: Duration, holds: impl Fn(&mut EnabledEndpoint, Duration) -> bool) {
    let (deadline, mut pause) = (Instant::now() + limit, Duration::ZERO);
    while endpoint.with(|active| Ok(holds(active, SLICE))).unwrap_or(false) && Instant::now() < deadline {
        pause = if others_progress(endpoint) { Duration::ZERO } else { PAUSE.min(pause + SLICE / 8) };
        thread::sleep(pause);
    }
}

/// Lets the other endpoints of this process make progress; returns whether anything happened.
fn others_progress(endpoint: &Arc<EndpointState>) -> bool {
    let enabled = enabled();
    // None of them is closed meanwhile, for that takes it off the list.
    let others = enabled.iter().filter(|other| other.as_ptr() != Arc::as_ptr(endpoint)).filter_map(Weak::upgrade);
    others.fold(false, |happened, other| (0..LOOKS).fold(happened, |happened, _| other.progress() | happened))
}

fn enabled() -> MutexGuard<'static, Vec<Weak<EndpointState>>> {
    list_of_process().endpoints.lock().unwrap_or_else(PoisonError::into_inner)
}

fn list_of_process() -> &'static EnabledList {
    let process = process::id();
    let last = ENABLED.load(Ordering::Acquire);
    // SAFETY: a list that was put there is never freed.
    if let Some(list) = unsafe { last.as_ref() }.filter(|list| list.process == process) {
        return list;
    }
    let own = Box::into_raw(Box::new(EnabledList { process, endpoints: Mutex::default() }));
    match ENABLED.compare_exchange(last, own, Ordering::AcqRel, Ordering::Acquire) {
        // SAFETY: as above.
        Ok(_) => unsafe { &*own },
        Err(others) => {
            // SAFETY: it was made here, and no other thread has seen it. What one of them has put there is never freed.
            unsafe {
                drop(Box::from_raw(own));
                &*others
            }
        }
    }
}

impl EnabledEndpoint {
    /// No completion of a send will be read: short ones, which are copies, are waited for like those that have ended.
    fn leave_sends_alone(&mut self) {
        let requests =
            self.operations.iter().filter(|(_, it)| it.flags & FI_SEND != 0).filter_map(|(_, it)| it.request);
        for request in requests.collect::<Vec<_>>() {
            self.worker.detach(request);
        }
    }

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
