//! The endpoints that are bound to a queue or a counter: reading it lets them make progress, and now and then all of the domain's.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::endpoint::EndpointState;
use crate::object::try_lock;

/// Looks in vain at its own endpoints before a queue or a counter looks at the others of the domain. A send of theirs may have ended
/// before it has left, and the application may wait for its answer elsewhere.
const LOOKS_AT_OWN: u32 = 16;

/// Endpoints that are bound to one queue or counter, or that a domain has. They may be closed before it.
///
/// The list is locked while they make progress. An endpoint that another thread has is left out: it is waited for by none.
#[derive(Default)]
pub(crate) struct AttachedEndpoints {
    list: Mutex<Vec<Weak<EndpointState>>>,
    in_vain: AtomicU32,
}

impl AttachedEndpoints {
    /// An endpoint is bound from now on.
    pub(crate) fn attach(&self, endpoint: &Arc<EndpointState>) {
        let mut endpoints = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        endpoints.retain(|other| other.strong_count() > 0);
        if !endpoints.iter().any(|other| other.as_ptr() == Arc::as_ptr(endpoint)) {
            endpoints.push(Arc::downgrade(endpoint));
        }
    }

    /// Lets these endpoints make progress, and now and then those of `domain`; returns whether anything happened.
    #[inline]
    pub(crate) fn progress(&self, domain: &Self) -> bool {
        let (own, happened) = self.progress_own();
        if !happened {
            // Two threads that look at once may lose a count.
            let in_vain = self.in_vain.load(Ordering::Relaxed) + 1;
            self.in_vain.store(in_vain % LOOKS_AT_OWN, Ordering::Relaxed);
            return in_vain == LOOKS_AT_OWN && domain.progress_beside(own);
        }
        happened
    }

    /// Returns how many there are, and whether anything happened.
    fn progress_own(&self) -> (usize, bool) {
        let Some(endpoints) = try_lock(&self.list) else { return (0, false) };
        let progress = |(count, happened), endpoint: Arc<EndpointState>| (count + 1, endpoint.progress() | happened);
        endpoints.iter().filter_map(Weak::upgrade).fold((0, false), progress)
    }

    /// Lets all make progress, where they are more than those that have done so.
    #[cold]
    fn progress_beside(&self, own: usize) -> bool {
        let count = |endpoints: &[Weak<EndpointState>]| endpoints.iter().filter(|it| it.strong_count() > 0).count();
        let are_more = try_lock(&self.list).is_some_and(|endpoints| count(&endpoints) > own);
        are_more && self.progress_own().1
    }
}
