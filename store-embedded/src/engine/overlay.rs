//! The writes of the batch being built, with a way back for each operation.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use fjall::Slice;
use wow_store_api::PartitionId;

use crate::engine::hot::Hot;
use crate::engine::space::{PerSpace, Space};

/// A key's bounds.
pub(crate) type Range<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

/// `None` deletes the key.
pub(crate) type Value = Option<Slice>;

/// What later operations of the batch see in place of the database. Holds the last write of each key, so that a
/// batch never writes a key twice.
#[derive(Debug, Default)]
pub(crate) struct Overlay {
    writes: PerSpace<BTreeMap<Slice, Value>>,
    /// The partitions with new commits, perhaps also of an operation that was taken back.
    touched: BTreeSet<PartitionId>,
    /// What the running operation replaced, oldest first.
    undo: Vec<Undo>,
    bytes: usize,
}

#[derive(Debug)]
enum Undo {
    Write(Space, Slice, Option<Value>),
    Fact(Slice, Option<Slice>),
}

impl Overlay {
    /// The batch's write of a key, if it has one.
    pub(crate) fn get(&self, space: Space, key: &[u8]) -> Option<&Value> {
        self.writes.get(space).get(key)
    }

    pub(crate) fn set(&mut self, space: Space, key: Slice, value: Value) {
        let size = key.len().saturating_add(value.as_ref().map_or(0, |value| value.len()));
        self.bytes = self.bytes.saturating_add(size);
        let previous = self.writes.get_mut(space).insert(key.clone(), value);
        self.undo.push(Undo::Write(space, key, previous));
    }

    pub(crate) fn touch(&mut self, partition: &PartitionId) {
        if !self.touched.contains(partition) {
            self.touched.insert(partition.clone());
        }
    }

    /// Hands out the partitions that were touched, and forgets them.
    pub(crate) fn take_touched(&mut self) -> BTreeSet<PartitionId> {
        std::mem::take(&mut self.touched)
    }

    /// Notes a fact, to be taken back with the running operation.
    pub(crate) fn set_fact(&mut self, hot: &Hot, key: Slice, value: Slice) {
        let previous = hot.set_fact(key.clone(), value);
        self.undo.push(Undo::Fact(key, previous));
    }

    pub(crate) fn range<'a>(
        &'a self,
        space: Space,
        range: Range<'_>,
    ) -> impl DoubleEndedIterator<Item = (&'a Slice, &'a Value)> + use<'a> {
        // An empty or inverted range would panic in the map.
        let empty = match range {
            (Bound::Included(from), Bound::Included(to)) => from > to,
            (Bound::Included(from), Bound::Excluded(to)) | (Bound::Excluded(from), Bound::Included(to)) => {
                from >= to
            }
            (Bound::Excluded(from), Bound::Excluded(to)) => from >= to,
            (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
        };
        (!empty).then(|| self.writes.get(space).range::<[u8], _>(range)).into_iter().flatten()
    }

    /// Makes the running operation's writes part of the batch.
    pub(crate) fn keep(&mut self) {
        self.undo.clear();
    }

    /// Takes back the running operation's writes and facts.
    pub(crate) fn take_back(&mut self, hot: &Hot) {
        while let Some(undo) = self.undo.pop() {
            match undo {
                Undo::Write(space, key, Some(value)) => {
                    self.writes.get_mut(space).insert(key, value);
                }
                Undo::Write(space, key, None) => {
                    self.writes.get_mut(space).remove(&key);
                }
                Undo::Fact(key, previous) => hot.restore_fact(key, previous),
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        Space::ALL.iter().all(|space| self.writes.get(*space).is_empty())
    }

    /// How many keys are written.
    pub(crate) fn len(&self) -> usize {
        Space::ALL.iter().map(|space| self.writes.get(*space).len()).sum()
    }

    /// An upper bound of the bytes written: refused operations count too.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Hands out all writes, in key order, and forgets them.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = (Space, Slice, Value)> + '_ {
        self.bytes = 0;
        self.undo.clear();
        let mut writes = std::mem::take(&mut self.writes);
        Space::ALL.into_iter().flat_map(move |space| {
            std::mem::take(writes.get_mut(space)).into_iter().map(move |(key, value)| (space, key, value))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(text: &str) -> Slice {
        Slice::from(text)
    }

    fn keys(overlay: &Overlay, range: Range<'_>) -> Vec<String> {
        overlay.range(Space::State, range).map(|(key, _)| String::from_utf8(key.to_vec()).unwrap()).collect()
    }

    #[test]
    fn refused_operation_leaves_its_neighbours_alone() {
        let (mut overlay, hot) = (Overlay::default(), Hot::default());
        overlay.set(Space::State, slice("a"), Some(slice("1")));
        overlay.set(Space::Log, slice("x"), Some(slice("1")));
        overlay.set_fact(&hot, slice("f"), slice("1"));
        overlay.keep();

        overlay.set_fact(&hot, slice("f"), slice("2"));
        overlay.set_fact(&hot, slice("g"), slice("2"));
        overlay.set(Space::State, slice("a"), Some(slice("2")));
        overlay.set(Space::State, slice("a"), None);
        overlay.set(Space::State, slice("b"), Some(slice("2")));
        overlay.set(Space::Log, slice("x"), None);
        assert_eq!(overlay.get(Space::State, b"a"), Some(&None));
        overlay.take_back(&hot);

        assert_eq!(overlay.get(Space::State, b"a"), Some(&Some(slice("1"))));
        assert_eq!(overlay.get(Space::State, b"b"), None);
        assert_eq!(overlay.get(Space::Log, b"x"), Some(&Some(slice("1"))));
        assert_eq!(hot.fact(b"f"), Some(slice("1")));
        assert_eq!(hot.fact(b"g"), None);
    }

    #[test]
    fn only_the_last_write_of_a_key_is_handed_out() {
        let mut overlay = Overlay::default();
        assert!(overlay.is_empty());
        overlay.set(Space::State, slice("b"), Some(slice("1")));
        overlay.set(Space::State, slice("a"), Some(slice("1")));
        overlay.set(Space::State, slice("b"), None);
        overlay.keep();
        let written: Vec<_> = overlay.drain().collect();
        assert_eq!(written, [(Space::State, slice("a"), Some(slice("1"))), (Space::State, slice("b"), None)]);
        assert!(overlay.is_empty());
        assert_eq!(overlay.bytes(), 0);
    }

    #[test]
    fn ranges_respect_their_bounds() {
        let mut overlay = Overlay::default();
        for key in ["a", "b", "c"] {
            overlay.set(Space::State, slice(key), Some(slice("1")));
        }
        let (a, b, c) = (b"a".as_slice(), b"b".as_slice(), b"c".as_slice());
        assert_eq!(keys(&overlay, (Bound::Excluded(a), Bound::Included(c))), ["b", "c"]);
        assert_eq!(keys(&overlay, (Bound::Included(b), Bound::Unbounded)), ["b", "c"]);
        assert!(keys(&overlay, (Bound::Excluded(b), Bound::Excluded(b))).is_empty());
        assert!(keys(&overlay, (Bound::Included(c), Bound::Excluded(a))).is_empty());
        assert!(keys(&overlay, (Bound::Included(b), Bound::Excluded(b))).is_empty());
    }
}
