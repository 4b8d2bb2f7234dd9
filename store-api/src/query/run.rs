//! Running a query in process, over all candidates: for stores without a database under them, and the yardstick for
//! those with one. Memory is bounded by the page, not by the candidates.

use std::{cmp::Ordering, collections::BinaryHeap};

use super::{
    cursor::Cursor,
    eval::{Item, Needs},
    page::{EventItem, EventPage, SnapshotPage},
    request::{EventQuery, SnapshotQuery},
    sort::{Key, Sort},
};
use crate::{
    commit::{Event, RecordedCommit},
    error::Result,
    snapshot::Snapshot,
};

/// Runs a query over snapshots. Those of another type or revision are passed over; those ahead of their log must not
/// be among them (S3). They may come in any order, each aggregate once.
///
/// # Errors
/// The first error among the snapshots, and those of [`SnapshotQuery::check`] and [`SnapshotQuery::page`].
pub fn run_snapshots(
    query: &SnapshotQuery,
    snapshots: impl IntoIterator<Item = Result<Snapshot>>,
) -> Result<SnapshotPage> {
    query.check()?;
    let needs = Needs::of_filter(&query.filter);
    let mut best = Best::new(query.limit, query.after.as_ref(), &query.sort);
    for snapshot in snapshots {
        let snapshot = snapshot?;
        if !is_asked(query, &snapshot) {
            continue;
        }
        let mut item = Item::from(&snapshot);
        if item.matches(&query.filter, needs)
            && let Some(key) = best.key(&mut item)
        {
            best.keep(key, snapshot);
        }
    }
    query.page(best.into_sorted())
}

/// Counts what a query over snapshots finds; see [`run_snapshots`]. Sort, limit and cursor make no difference.
///
/// # Errors
/// The first error among the snapshots, and those of [`SnapshotQuery::check`].
pub fn count_snapshots(
    query: &SnapshotQuery,
    snapshots: impl IntoIterator<Item = Result<Snapshot>>,
) -> Result<u64> {
    query.check()?;
    let needs = Needs::of_filter(&query.filter);
    let mut count = 0;
    for snapshot in snapshots {
        let snapshot = snapshot?;
        let found = is_asked(query, &snapshot) && Item::from(&snapshot).matches(&query.filter, needs);
        count += u64::from(found);
    }
    Ok(count)
}

/// Runs a query over the events of commits. Commits of another aggregate type are passed over. They may come in any
/// order, each once.
///
/// # Errors
/// The first error among the commits, and those of [`EventQuery::check`] and [`EventQuery::page`].
pub fn run_events(
    query: &EventQuery,
    commits: impl IntoIterator<Item = Result<RecordedCommit>>,
) -> Result<EventPage> {
    query.check()?;
    let mut best = Best::new(query.limit, query.after.as_ref(), &query.sort);
    each_event(query, commits, |item, commit, event, index| {
        if let Some(key) = best.key(item) {
            best.keep(key, EventItem::new(commit, event, index));
        }
    })?;
    query.page(best.into_sorted())
}

/// Counts what a query over events finds; see [`run_events`]. Sort, limit and cursor make no difference.
///
/// # Errors
/// The first error among the commits, and those of [`EventQuery::check`].
pub fn count_events(
    query: &EventQuery,
    commits: impl IntoIterator<Item = Result<RecordedCommit>>,
) -> Result<u64> {
    query.check()?;
    let mut count = 0;
    each_event(query, commits, |_, _, _, _| count += 1)?;
    Ok(count)
}

fn is_asked(query: &SnapshotQuery, snapshot: &Snapshot) -> bool {
    snapshot.revision == query.revision && *snapshot.aggregate_id.aggregate_type() == query.aggregate_type
}

fn each_event(
    query: &EventQuery,
    commits: impl IntoIterator<Item = Result<RecordedCommit>>,
    mut found: impl FnMut(&mut Item<'_>, &RecordedCommit, &Event, u32),
) -> Result<()> {
    let needs = Needs::of_filter(&query.filter);
    for commit in commits {
        let commit = commit?;
        if *commit.aggregate_id.aggregate_type() != query.aggregate_type {
            continue;
        }
        for (index, event) in (0_u32..).zip(&commit.events) {
            let mut item = Item::of_event(&commit, event, index);
            if item.matches(&query.filter, needs) {
                found(&mut item, &commit, event, index);
            }
        }
    }
    Ok(())
}

/// The first items behind the cursor: as many as the limit, and one more to know whether there are more.
struct Best<'a, T> {
    sort: &'a [Sort],
    after: Option<Key>,
    capacity: usize,
    /// The worst is on top.
    heap: BinaryHeap<Keyed<T>>,
}

impl<'a, T> Best<'a, T> {
    fn new(limit: usize, after: Option<&Cursor>, sort: &'a [Sort]) -> Self {
        let capacity = limit.saturating_add(1);
        Self { sort, after: after.map(|cursor| cursor.key(sort)), capacity, heap: BinaryHeap::new() }
    }

    /// The item's key, if it is to be kept as things stand.
    fn key(&self, item: &mut Item<'_>) -> Option<Key> {
        let values = item.sort_values(self.sort);
        let key = Key::new(self.sort, values, item.tie_breaker());
        let is_behind = self.after.as_ref().is_none_or(|after| key > *after);
        let has_room =
            self.heap.len() < self.capacity || self.heap.peek().is_some_and(|worst| key < worst.key);
        (is_behind && has_room).then_some(key)
    }

    fn keep(&mut self, key: Key, item: T) {
        if self.heap.len() == self.capacity {
            self.heap.pop();
        }
        self.heap.push(Keyed { key, item });
    }

    fn into_sorted(self) -> Vec<T> {
        self.heap.into_sorted_vec().into_iter().map(|keyed| keyed.item).collect()
    }
}

struct Keyed<T> {
    key: Key,
    item: T,
}

impl<T> PartialEq for Keyed<T> {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl<T> Eq for Keyed<T> {}

impl<T> PartialOrd for Keyed<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Keyed<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key.cmp(&other.key)
    }
}
