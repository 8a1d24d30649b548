//! Keys of 64 bits that the application has chosen for memory that it exposes, and what they stand for.

use hashbrown::HashMap;
use roci_protocol::Rkey;

/// The chosen keys of an engine's memory, and the keys that the engine has given to the same memory.
#[derive(Debug, Default)]
pub(crate) struct ExposedKeys {
    by_choice: HashMap<u64, Rkey>,
    by_rkey: HashMap<Rkey, u64>,
}

impl ExposedKeys {
    /// Whether memory is exposed under a key.
    pub(crate) fn is_taken(&self, chosen: u64) -> bool {
        self.by_choice.contains_key(&chosen)
    }

    /// Memory is exposed under a key that is not taken.
    pub(crate) fn insert(&mut self, chosen: u64, rkey: Rkey) {
        let is_first = self.by_choice.insert(chosen, rkey).is_none();
        let is_only = self.by_rkey.insert(rkey, chosen).is_none();
        assert!(is_first && is_only, "a key stands for one segment, and a segment has one");
    }

    /// Memory is withdrawn. Returns the key that was chosen for it, if one was.
    pub(crate) fn remove(&mut self, rkey: Rkey) -> Option<u64> {
        let chosen = self.by_rkey.remove(&rkey)?;
        let stood_for = self.by_choice.remove(&chosen);
        assert_eq!(stood_for, Some(rkey), "a key stands for its segment");
        Some(chosen)
    }

    /// Returns what a key stands for.
    pub(crate) fn find(&self, chosen: u64) -> Option<Rkey> {
        self.by_choice.get(&chosen).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_its_segments_until_that_is_withdrawn() {
        let mut keys = ExposedKeys::default();
        keys.insert(u64::MAX, Rkey(3));
        keys.insert(0, Rkey(4));
        assert_eq!((keys.find(u64::MAX), keys.find(0), keys.find(1)), (Some(Rkey(3)), Some(Rkey(4)), None));
        assert_eq!(keys.remove(Rkey(5)), None, "it was exposed under no such key");
        assert_eq!(keys.remove(Rkey(3)), Some(u64::MAX));
        assert!(!keys.is_taken(u64::MAX) && keys.is_taken(0));
        keys.insert(u64::MAX, Rkey(3));
    }
}
