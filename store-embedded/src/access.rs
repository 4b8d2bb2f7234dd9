//! Records by place, for reading and in operations.

use std::ops::Bound;

use fjall::Slice;
use wow_store_api::Result;

use crate::{
    codec::{Record, seal, unseal},
    engine::{
        keys::{Key, after_prefix},
        view::{Entry, Source, Tx},
    },
    places::Place,
};

/// Reading records.
pub(crate) trait Records: Source {
    /// The record at a place.
    fn record<R: Record>(&self, place: &Place) -> Result<Option<R>> {
        let key = place.key.as_slice();
        match self.get(place.space, key)? {
            Some(value) => Ok(Some(unseal(place.space, key, &value)?)),
            None => Ok(None),
        }
    }

    /// The records at all places under this one, in key order.
    fn records<'s, R: Record>(&'s self, under: &Place) -> impl Iterator<Item = Result<R>> + use<'s, Self, R> {
        self.records_from(under, Bound::Included(under.key.as_slice()))
    }

    /// The same, from a key on.
    fn records_from<'s, R: Record>(
        &'s self,
        under: &Place,
        from: Bound<&[u8]>,
    ) -> impl Iterator<Item = Result<R>> + use<'s, Self, R> {
        let space = under.space;
        let end = after_prefix(under.key.as_slice());
        self.scan(space, (from, end_of(end.as_deref()))).map(move |entry| {
            let (key, value) = entry?;
            Ok(unseal(space, &key, &value)?)
        })
    }

    /// The same from the last one on, backwards.
    fn records_back<R: Record>(&self, under: &Place) -> impl Iterator<Item = Result<R>> {
        let space = under.space;
        self.entries_back(under).map(move |entry| {
            let (key, value) = entry?;
            Ok(unseal(space, &key, &value)?)
        })
    }

    /// Keys and values under this place, from the last one on, backwards.
    fn entries_back(&self, under: &Place) -> impl Iterator<Item = Result<Entry>> {
        let end = after_prefix(under.key.as_slice());
        let from = Bound::Included(under.key.as_slice());
        self.scan_back(under.space, (from, end_of(end.as_deref()))).map(|entry| Ok(entry?))
    }
}

impl<S: Source> Records for S {}

fn end_of(end: Option<&[u8]>) -> Bound<&[u8]> {
    end.map_or(Bound::Unbounded, Bound::Excluded)
}

/// The first key behind this one and behind all that go on from it.
pub(crate) fn behind(key: &Key) -> Vec<u8> {
    let mut next = key.as_slice().to_vec();
    next.push(0);
    next
}

impl Tx<'_> {
    /// Stores a record.
    pub(crate) fn store<R: Record>(&mut self, place: Place, record: &R) {
        let value = seal(place.key.as_slice(), record);
        self.put(place.space, place.key, value);
    }

    /// The keys of what is under a place, from behind one of them, at most so many.
    pub(crate) fn keys_from(&self, under: &Place, after: Option<&[u8]>, limit: usize) -> Result<Vec<Slice>> {
        let end = after_prefix(under.key.as_slice());
        let start = after.map_or(Bound::Included(under.key.as_slice()), Bound::Excluded);
        let range = (start, end_of(end.as_deref()));
        self.range(under.space, range).take(limit).map(|entry| Ok(entry?.0)).collect()
    }

    /// Removes what is stored at a place.
    pub(crate) fn remove(&mut self, place: Place) {
        self.delete(place.space, place.key);
    }
}
