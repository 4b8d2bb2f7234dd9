//! Versions that aggregates are known to have: a hint that saves a look before a write.
//!
//! What was stored or read once stays stored, so a known version is never wrong; it may only not be the last. Whether it
//! was is told by the unique index when the next one is written.

use std::{
    collections::HashMap,
    mem,
    sync::{Mutex, PoisonError},
};

use crate::{log::Version, name::AggregateId};

/// Most aggregates in one generation.
const GENERATION: usize = 50_000;

/// Versions that aggregates are known to have, for at most so many aggregates that were met last.
#[derive(Debug, Default)]
pub struct Heads(Mutex<Generations>);

/// What was not used while a generation filled up is forgotten with the next.
#[derive(Debug, Default)]
struct Generations {
    young: HashMap<AggregateId, Version>,
    old: HashMap<AggregateId, Version>,
}

impl Generations {
    fn put(&mut self, id: AggregateId, version: Version) {
        if self.young.len() >= GENERATION {
            self.old = mem::take(&mut self.young);
        }
        self.young.insert(id, version);
    }
}

impl Heads {
    fn with<T>(&self, work: impl FnOnce(&mut Generations) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A version that the aggregate has; its head, if nobody else has written to it since.
    #[must_use]
    pub fn get(&self, id: &AggregateId) -> Option<Version> {
        self.with(|heads| heads.young.get(id).or_else(|| heads.old.get(id)).copied())
    }

    /// The aggregate has this version.
    pub fn seen(&self, id: &AggregateId, version: Version) {
        if version == 0 {
            return;
        }
        self.with(|heads| match heads.young.get_mut(id) {
            Some(known) => *known = version.max(*known),
            None => {
                let known = heads.old.get(id).copied().unwrap_or_default();
                heads.put(id.clone(), version.max(known));
            }
        });
    }

    /// Nothing that is known holds any more.
    pub fn forget_all(&self) {
        self.with(|heads| *heads = Generations::default());
    }

    /// What is known did not help.
    pub fn forget(&self, id: &AggregateId) {
        self.with(|heads| {
            heads.young.remove(id);
            heads.old.remove(id);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_version_is_kept_and_memory_is_bounded() {
        let heads = Heads::default();
        let id = |n: usize| AggregateId::new("shop", "order", n.to_string()).unwrap();
        heads.seen(&id(0), 7);
        heads.seen(&id(0), 3);
        assert_eq!(heads.get(&id(0)), Some(7));
        for n in 1..=2 * GENERATION {
            heads.seen(&id(n), 1);
        }
        assert_eq!(heads.get(&id(0)), None, "not used for two generations");
        assert_eq!(heads.get(&id(2 * GENERATION)), Some(1));
        let kept = heads.with(|heads| heads.young.len() + heads.old.len());
        assert!(kept <= 2 * GENERATION, "bounded");
        heads.forget(&id(2 * GENERATION));
        assert_eq!(heads.get(&id(2 * GENERATION)), None);
    }
}
