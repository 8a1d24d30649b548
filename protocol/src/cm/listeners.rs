//! Services that are listened on, and how many of their requests are undecided.

use std::collections::{BTreeMap, BTreeSet};

use super::ListenError;
use crate::wire::cm::ServiceId;

/// Who listens. Requests of a service that is no longer listened on are still counted until they are decided.
#[derive(Default)]
pub(super) struct Listeners {
    services: BTreeSet<ServiceIdKey>,
    pending: BTreeMap<ServiceIdKey, usize>,
}

/// [`ServiceId`] has no order.
type ServiceIdKey = u64;

impl Listeners {
    pub(super) fn add(&mut self, service: ServiceId, limit: usize) -> Result<(), ListenError> {
        if self.contains(service) {
            return Err(ListenError::InUse);
        }
        if self.services.len() >= limit {
            return Err(ListenError::TooManyListeners);
        }
        self.services.insert(service.0);
        Ok(())
    }

    pub(super) fn remove(&mut self, service: ServiceId) -> bool {
        self.services.remove(&service.0)
    }

    pub(super) fn contains(&self, service: ServiceId) -> bool {
        self.services.contains(&service.0)
    }

    pub(super) fn pending(&self, service: ServiceId) -> usize {
        self.pending.get(&service.0).copied().unwrap_or(0)
    }

    /// A request waits for the application.
    pub(super) fn asked(&mut self, service: ServiceId) {
        *self.pending.entry(service.0).or_default() += 1;
    }

    /// A request no longer does.
    pub(super) fn decided(&mut self, service: ServiceId) {
        if let Some(count) = self.pending.get_mut(&service.0) {
            *count -= 1;
            if *count == 0 {
                self.pending.remove(&service.0);
            }
        }
    }
}
