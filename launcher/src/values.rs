//! Values that ranks leave for each other.

use std::collections::BTreeMap;

use crate::refusal::RequestRefusal;

/// Values that one job may leave, whose keys and bytes fit a line: a rank gone wild must not fill the launcher.
const VALUE_LIMIT: usize = 100_000;

/// What ranks have left for others of the same generation, by generation and key.
#[derive(Default)]
pub(super) struct Values(BTreeMap<(u64, String), String>);

impl Values {
    /// Leaves a value.
    pub(super) fn put(&mut self, generation: u64, key: &str, value: &str) -> Result<(), RequestRefusal> {
        if self.0.len() == VALUE_LIMIT {
            return Err(RequestRefusal::Full);
        }
        let place = (generation, key.to_owned());
        if self.0.contains_key(&place) {
            return Err(RequestRefusal::LeftBefore(key.into()));
        }
        self.0.insert(place, value.into());
        Ok(())
    }

    /// Returns a value, if it was left.
    pub(super) fn get(&self, generation: u64, key: &str) -> Option<&str> {
        self.0.get(&(generation, key.to_owned())).map(String::as_str)
    }

    /// Forgets what generations before this one have left.
    pub(super) fn forget_before(&mut self, oldest: u64) {
        self.0.retain(|&(generation, _), _| generation >= oldest);
    }
}
