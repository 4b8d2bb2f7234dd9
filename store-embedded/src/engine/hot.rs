//! What the writer has read or written lately. It is the only writer, so what it knows stays true.

use std::cell::RefCell;
use std::collections::HashMap;

use fjall::Slice;

use crate::engine::overlay::Value;

/// Small values of the state keyspace.
const STATE_ENTRIES: usize = 8 * 1024;
const STATE_VALUE_BYTES: usize = 1024;
const FACT_ENTRIES: usize = 32 * 1024;

/// A bounded map that forgets what was not asked for lately: entries live in the young half, which becomes the old
/// half when it is full, which is dropped then.
#[derive(Debug)]
struct Generations<V> {
    young: HashMap<Slice, V>,
    old: HashMap<Slice, V>,
    capacity: usize,
}

impl<V: Clone> Generations<V> {
    fn new(capacity: usize) -> Self {
        Self { young: HashMap::new(), old: HashMap::new(), capacity }
    }

    fn get(&mut self, key: &[u8]) -> Option<V> {
        if let Some(value) = self.young.get(key) {
            return Some(value.clone());
        }
        let (key, value) = self.old.remove_entry(key)?;
        self.set(key, value.clone());
        Some(value)
    }

    /// Gives the value that was known before; `None` may also mean that there is one in the old half.
    fn set(&mut self, key: Slice, value: V) -> Option<V> {
        if self.young.len() >= self.capacity && !self.young.contains_key(&key) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, value)
    }

    /// Forgets a key; it must not come back from the old half.
    fn remove(&mut self, key: &[u8]) {
        self.young.remove(key);
        self.old.remove(key);
    }
}

#[derive(Debug)]
pub(crate) struct Hot {
    state: RefCell<Generations<Value>>,
    facts: RefCell<Generations<Slice>>,
}

impl Default for Hot {
    fn default() -> Self {
        Self {
            state: RefCell::new(Generations::new(STATE_ENTRIES)),
            facts: RefCell::new(Generations::new(FACT_ENTRIES)),
        }
    }
}

impl Hot {
    /// A durable value of the state keyspace, or that there is none; `None` if it is not known.
    pub(crate) fn state(&self, key: &[u8]) -> Option<Value> {
        self.state.borrow_mut().get(key)
    }

    pub(crate) fn set_state(&self, key: Slice, value: Value) {
        let mut state = self.state.borrow_mut();
        if value.as_ref().is_none_or(|value| value.len() <= STATE_VALUE_BYTES) {
            let _ = state.set(key, value);
        } else {
            state.remove(&key);
        }
    }

    pub(crate) fn fact(&self, key: &[u8]) -> Option<Slice> {
        self.facts.borrow_mut().get(key)
    }

    /// Gives what takes it back, together with the key: see [`restore_fact`](Self::restore_fact).
    pub(crate) fn set_fact(&self, key: Slice, value: Slice) -> Option<Slice> {
        self.facts.borrow_mut().set(key, value)
    }

    /// Takes back a fact: what it was before, or that nothing is known.
    pub(crate) fn restore_fact(&self, key: Slice, before: Option<Slice>) {
        let mut facts = self.facts.borrow_mut();
        match before {
            Some(value) => {
                facts.set(key, value);
            }
            None => facts.remove(&key),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newest_value_wins_over_an_older_generation() {
        let mut map = Generations::new(2);
        for (key, value) in [("a", 1), ("b", 1), ("c", 1), ("a", 2), ("d", 1)] {
            map.set(Slice::from(key), value);
        }
        assert_eq!(map.get(b"a"), Some(2));
        map.remove(b"a");
        assert_eq!(map.get(b"a"), None);
    }

    #[test]
    fn holds_a_bounded_number() {
        let mut map = Generations::new(10);
        for n in 0..1000_u32 {
            map.set(Slice::from(n.to_be_bytes()), n);
            assert!(map.get(&0_u32.to_be_bytes()).is_some());
        }
        assert!(map.young.len() + map.old.len() <= 20);
        assert_eq!(map.get(&500_u32.to_be_bytes()), None);
    }

    #[test]
    fn facts_can_be_taken_back() {
        let hot = Hot::default();
        let (key, value) = (Slice::from("a"), |text: &str| Slice::from(text));
        assert_eq!(hot.set_fact(key.clone(), value("1")), None);
        let before = hot.set_fact(key.clone(), value("2"));
        hot.restore_fact(key.clone(), before);
        assert_eq!(hot.fact(&key), Some(value("1")));
        // So many others that it is in the old half, or gone, when it is taken back.
        for others in [FACT_ENTRIES, 2 * FACT_ENTRIES] {
            let before = hot.set_fact(key.clone(), value("3"));
            for n in 0..u32::try_from(others).unwrap() {
                let _ = hot.set_fact(Slice::from(n.to_be_bytes()), value("other"));
            }
            hot.restore_fact(key.clone(), before.clone());
            assert_eq!(hot.fact(&key), before);
        }
    }

    #[test]
    fn large_values_are_not_kept() {
        let hot = Hot::default();
        hot.set_state(Slice::from("a"), Some(Slice::from("small")));
        hot.set_state(Slice::from("a"), Some(Slice::from(vec![0; STATE_VALUE_BYTES + 1])));
        assert_eq!(hot.state(b"a"), None);
        hot.set_state(Slice::from("a"), None);
        assert_eq!(hot.state(b"a"), Some(None));
    }
}
