//! Which events of a session came already.

use std::{
    collections::{HashSet, VecDeque, hash_map::RandomState},
    hash::BuildHasher,
};

/// How many of the latest are known.
const KEPT: usize = 1024;

/// The ids of the latest events, as hashes with a key of our own. It holds nothing until the first event with an id.
#[derive(Debug, Default)]
pub(super) struct Seen {
    hasher: RandomState,
    order: VecDeque<u64>,
    ids: HashSet<u64>,
}

impl Seen {
    /// Notes an id; true if it is new.
    pub(super) fn note(&mut self, id: &[u8]) -> bool {
        let hash = self.hasher.hash_one(id);
        if !self.ids.insert(hash) {
            return false;
        }
        self.order.push_back(hash);
        if self.order.len() > KEPT {
            if let Some(oldest) = self.order.pop_front() {
                self.ids.remove(&oldest);
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_ids_are_known_and_no_more_than_that_is_kept() {
        let mut seen = Seen::default();
        for round in 0..3 {
            assert_eq!(seen.note(b"a"), round == 0);
        }
        for id in 0..5000_u32 {
            assert!(seen.note(&id.to_le_bytes()));
            assert!(seen.ids.len() <= KEPT && seen.order.len() <= KEPT);
        }
        assert!(!seen.note(&4999_u32.to_le_bytes()));
        assert!(seen.note(b"a"), "forgotten long ago");
    }
}
