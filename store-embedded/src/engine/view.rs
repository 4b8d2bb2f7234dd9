//! Reading: a durable view of the database, and the same with a batch's own writes on top.

use std::fmt;
use std::iter::Peekable;
use std::ops::Bound;
use std::sync::Arc;

use fjall::{Keyspace, Readable, Slice, Snapshot};
use wow_store_api::{PartitionId, Timestamp};

use crate::engine::error::ReadError;
use crate::engine::hot::Hot;
use crate::engine::overlay::{Overlay, Range};
use crate::engine::space::{PerSpace, Space};

/// A consistent state of the whole database, all of it durable.
///
/// The database makes a batch visible in one step and only after its sync, so a snapshot never shows what a crash
/// could take back. (Reading a keyspace without a snapshot could show half a batch.)
pub(crate) struct View {
    snapshot: Snapshot,
    spaces: Arc<PerSpace<Keyspace>>,
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View").field("seqno", &self.snapshot.seqno()).finish_non_exhaustive()
    }
}

/// A key and its value.
pub(crate) type Entry = (Slice, Slice);

impl View {
    pub(crate) fn new(snapshot: Snapshot, spaces: &Arc<PerSpace<Keyspace>>) -> Self {
        Self { snapshot, spaces: Arc::clone(spaces) }
    }

    pub(crate) fn get(&self, space: Space, key: &[u8]) -> Result<Option<Slice>, ReadError> {
        self.snapshot.get(self.spaces.get(space), key).map_err(|e| ReadError::at(space.name(), key, e))
    }

    pub(crate) fn contains(&self, space: Space, key: &[u8]) -> Result<bool, ReadError> {
        self.snapshot
            .contains_key(self.spaces.get(space), key)
            .map_err(|e| ReadError::at(space.name(), key, e))
    }

    /// Entries in key order. After an error the iterator should be dropped.
    pub(crate) fn range(
        &self,
        space: Space,
        range: Range<'_>,
    ) -> impl DoubleEndedIterator<Item = Result<Entry, ReadError>> + use<> {
        // Only for the message: where the damage lies.
        let near = match range.0 {
            Bound::Included(key) | Bound::Excluded(key) => key.to_vec(),
            Bound::Unbounded => Vec::new(),
        };
        self.snapshot
            .range::<&[u8], _>(self.spaces.get(space), range)
            .map(move |guard| guard.into_inner().map_err(|e| ReadError::at(space.name(), &near, e)))
    }
}

/// Entries in some order, the first error last.
pub(crate) type Entries<'a> = Box<dyn Iterator<Item = Result<Entry, ReadError>> + 'a>;

/// What can be read: a [`View`] or a [`Tx`].
pub(crate) trait Source {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Slice>, ReadError>;
    fn contains(&self, space: Space, key: &[u8]) -> Result<bool, ReadError>;
    /// Entries in key order.
    fn scan(&self, space: Space, range: Range<'_>) -> Entries<'_>;
    /// Entries in reverse key order.
    fn scan_back(&self, space: Space, range: Range<'_>) -> Entries<'_>;
}

impl Source for View {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Slice>, ReadError> {
        Self::get(self, space, key)
    }

    fn contains(&self, space: Space, key: &[u8]) -> Result<bool, ReadError> {
        Self::contains(self, space, key)
    }

    fn scan(&self, space: Space, range: Range<'_>) -> Entries<'_> {
        Box::new(self.range(space, range))
    }

    fn scan_back(&self, space: Space, range: Range<'_>) -> Entries<'_> {
        Box::new(self.range(space, range).rev())
    }
}

impl Source for Tx<'_> {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Slice>, ReadError> {
        Tx::get(self, space, key)
    }

    fn contains(&self, space: Space, key: &[u8]) -> Result<bool, ReadError> {
        Tx::contains(self, space, key)
    }

    fn scan(&self, space: Space, range: Range<'_>) -> Entries<'_> {
        Box::new(self.range(space, range))
    }

    fn scan_back(&self, space: Space, range: Range<'_>) -> Entries<'_> {
        Box::new(self.range_back(space, range))
    }
}

/// What an operation works on: it reads the durable state and all writes queued before its own.
#[derive(Debug)]
pub(crate) struct Tx<'a> {
    view: &'a View,
    hot: &'a Hot,
    overlay: &'a mut Overlay,
    now: Timestamp,
}

impl<'a> Tx<'a> {
    pub(crate) fn new(view: &'a View, hot: &'a Hot, overlay: &'a mut Overlay, now: Timestamp) -> Self {
        Self { view, hot, overlay, now }
    }

    /// The store's clock, read after the operation was queued; for many of a batch at once.
    pub(crate) fn now(&self) -> Timestamp {
        self.now
    }

    /// The partition has a new commit: who watches it is told once that is durable.
    pub(crate) fn touch(&mut self, partition: &PartitionId) {
        self.overlay.touch(partition);
    }

    pub(crate) fn get(&self, space: Space, key: &[u8]) -> Result<Option<Slice>, ReadError> {
        match self.overlay.get(space, key) {
            Some(value) => Ok(value.clone()),
            None if space == Space::State => {
                if let Some(value) = self.hot.state(key) {
                    return Ok(value);
                }
                let value = self.view.get(space, key)?;
                self.hot.set_state(key.into(), value.clone());
                Ok(value)
            }
            None => self.view.get(space, key),
        }
    }

    pub(crate) fn contains(&self, space: Space, key: &[u8]) -> Result<bool, ReadError> {
        match self.overlay.get(space, key) {
            Some(value) => Ok(value.is_some()),
            None if space == Space::State => Ok(self.get(space, key)?.is_some()),
            None => self.view.contains(space, key),
        }
    }

    pub(crate) fn put(&mut self, space: Space, key: impl Into<Slice>, value: impl Into<Slice>) {
        self.overlay.set(space, key.into(), Some(value.into()));
    }

    pub(crate) fn delete(&mut self, space: Space, key: impl Into<Slice>) {
        self.overlay.set(space, key.into(), None);
    }

    /// What an earlier operation noted under `key`, if it is still known.
    pub(crate) fn fact(&self, key: &[u8]) -> Option<Slice> {
        self.hot.fact(key)
    }

    /// Notes something that follows from what is stored, to save later operations the look-up. It is kept in memory
    /// only, may be forgotten, and falls with this operation's writes. Whoever changes what it follows from notes it
    /// again in the same operation.
    pub(crate) fn note(&mut self, key: impl Into<Slice>, value: impl Into<Slice>) {
        self.overlay.set_fact(self.hot, key.into(), value.into());
    }

    /// Entries in key order.
    pub(crate) fn range(
        &self,
        space: Space,
        range: Range<'_>,
    ) -> impl Iterator<Item = Result<Entry, ReadError>> + use<'_> {
        Merge::new(self.overlay.range(space, range), self.view.range(space, range), |ours, theirs| {
            ours <= theirs
        })
    }

    /// Entries in reverse key order.
    pub(crate) fn range_back(
        &self,
        space: Space,
        range: Range<'_>,
    ) -> impl Iterator<Item = Result<Entry, ReadError>> + use<'_> {
        Merge::new(
            self.overlay.range(space, range).rev(),
            self.view.range(space, range).rev(),
            |ours, theirs| ours >= theirs,
        )
    }
}

/// The overlay's writes over the database's entries; deleted keys are left out.
struct Merge<O: Iterator, V: Iterator> {
    ours: Peekable<O>,
    theirs: Peekable<V>,
    ours_first: fn(&Slice, &Slice) -> bool,
}

impl<'o, O, V> Merge<O, V>
where
    O: Iterator<Item = (&'o Slice, &'o Option<Slice>)>,
    V: Iterator<Item = Result<Entry, ReadError>>,
{
    fn new(ours: O, theirs: V, ours_first: fn(&Slice, &Slice) -> bool) -> Self {
        Self { ours: ours.peekable(), theirs: theirs.peekable(), ours_first }
    }
}

impl<'o, O, V> Iterator for Merge<O, V>
where
    O: Iterator<Item = (&'o Slice, &'o Option<Slice>)>,
    V: Iterator<Item = Result<Entry, ReadError>>,
{
    type Item = Result<Entry, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let ours_first = match (self.ours.peek(), self.theirs.peek()) {
                (None, _) | (_, Some(Err(_))) => false,
                (Some(_), None) => true,
                (Some((ours, _)), Some(Ok((theirs, _)))) => {
                    if ours == &theirs {
                        self.theirs.next();
                        continue;
                    }
                    (self.ours_first)(ours, theirs)
                }
            };
            if !ours_first {
                return self.theirs.next();
            }
            if let (key, Some(value)) = self.ours.next()? {
                return Some(Ok((key.clone(), value.clone())));
            }
        }
    }
}
