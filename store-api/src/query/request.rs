//! What is asked.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{
    cursor::{Cursor, Order},
    eval::Item,
    filter::Filter,
    page::{EventItem, EventPage, SnapshotItem, SnapshotPage},
    path::{Path, Target},
    project::{self, Projection},
    sort::{self, Sort},
};
use crate::{
    commit::check_revision,
    error::{Error, Result},
    log::{MAX_COUNTER, Version},
    name::{AggregateId, AggregateType},
    snapshot::Snapshot,
};

/// Items in a page unless set otherwise.
pub const DEFAULT_QUERY_LIMIT: usize = 100;

/// Most items that a page can be asked to hold (inclusive).
pub const MAX_QUERY_LIMIT: usize = 1_000;

/// Longest time that a query waits for a write (inclusive): a minute.
pub const MAX_QUERY_WAIT: Duration = Duration::from_secs(60);

/// Which nodes of the database may answer a query (Q2). Stores on one node ignore it.
///
/// Whichever answers, it shows only what can no longer be lost; a secondary may be behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReadPreference {
    /// The primary only.
    #[default]
    Primary,
    /// The primary; a secondary while there is none.
    PrimaryPreferred,
    /// A secondary only.
    Secondary,
    /// A secondary; the primary while there is none.
    SecondaryPreferred,
    /// Whichever answers fastest.
    Nearest,
}

/// A write that a query must see (Q3).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AtLeast {
    /// An aggregate of the type that is queried.
    pub aggregate_id: AggregateId,
    /// Wait until it has this version (inclusive): its snapshot of the revision asked for, or its log if events are
    /// queried. 0 waits for nothing.
    pub version: Version,
    /// How long to wait at most, up to [`MAX_QUERY_WAIT`] (inclusive). Zero: look once.
    pub within: Duration,
}

impl AtLeast {
    /// How long to wait unless set otherwise.
    pub const DEFAULT_WITHIN: Duration = Duration::from_secs(5);

    /// At least `version` of this aggregate.
    #[must_use]
    pub fn new(aggregate_id: AggregateId, version: Version) -> Self {
        Self { aggregate_id, version, within: Self::DEFAULT_WITHIN }
    }

    /// Wait so long at most.
    #[must_use]
    pub fn within(mut self, within: Duration) -> Self {
        self.within = within;
        self
    }

    fn check(&self, aggregate_type: &AggregateType) -> Result<()> {
        if self.aggregate_id.aggregate_type() != aggregate_type {
            return Err(Error::invalid_input(format!(
                "a query of {aggregate_type} cannot wait for {}: name an aggregate of that type",
                self.aggregate_id
            )));
        }
        if self.version > MAX_COUNTER {
            return Err(Error::invalid_input(format!(
                "version {} is beyond the last possible one",
                self.version
            )));
        }
        if self.within > MAX_QUERY_WAIT {
            return Err(Error::invalid_input(format!(
                "a query waits {} s at most",
                MAX_QUERY_WAIT.as_secs()
            )));
        }
        Ok(())
    }
}

/// A query of the snapshots of one aggregate type, in one revision.
///
/// ```
/// use wow_store_api::query::{Field, Filter, Path, SnapshotQuery, Sort};
///
/// let query = SnapshotQuery::new("shop.order".parse()?, 1)
///     .with_filter(Filter::eq(Field::body(["status"])?, "open"))
///     .with_sort([Sort::descending(Field::body(["total"])?)])
///     .with_projection([Path::key("total")?])
///     .with_limit(20);
/// query.check()?;
/// # Ok::<_, wow_store_api::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a query does nothing until a store runs it"]
pub struct SnapshotQuery {
    /// The aggregate type.
    pub aggregate_type: AggregateType,
    /// Only snapshots of this revision are seen (S2).
    pub revision: u32,
    /// Which of them.
    pub filter: Filter,
    /// In which order, at most [`MAX_SORT_FIELDS`](super::MAX_SORT_FIELDS) fields; then by tenant and id.
    pub sort: Vec<Sort>,
    /// Which paths of the state to return; `None`: all of it.
    pub projection: Option<Vec<Path>>,
    /// At most so many, 1 to [`MAX_QUERY_LIMIT`] (inclusive).
    pub limit: usize,
    /// Go on behind this (exclusive).
    pub after: Option<Cursor>,
    /// Who may answer; `None`: as the store is configured.
    pub read_preference: Option<ReadPreference>,
    /// What it must see.
    pub at_least: Option<AtLeast>,
}

/// A query of the events of one aggregate type.
///
/// ```
/// use wow_store_api::query::{EventQuery, Field, Filter, Sort};
///
/// let query = EventQuery::new("shop.order".parse()?)
///     .with_filter(
///         Filter::eq(Field::EventName, "OrderPlaced").and(Filter::eq(Field::metadata(["user"])?, "ann")),
///     )
///     .with_sort([Sort::descending(Field::At)]);
/// query.check()?;
/// # Ok::<_, wow_store_api::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a query does nothing until a store runs it"]
pub struct EventQuery {
    /// The aggregate type.
    pub aggregate_type: AggregateType,
    /// Which of its events.
    pub filter: Filter,
    /// In which order, at most [`MAX_SORT_FIELDS`](super::MAX_SORT_FIELDS) fields; then by partition, position and
    /// index in the commit.
    pub sort: Vec<Sort>,
    /// Which paths of the body to return; `None`: all of it.
    pub projection: Option<Vec<Path>>,
    /// At most so many, 1 to [`MAX_QUERY_LIMIT`] (inclusive).
    pub limit: usize,
    /// Go on behind this (exclusive).
    pub after: Option<Cursor>,
    /// Who may answer; `None`: as the store is configured.
    pub read_preference: Option<ReadPreference>,
    /// What it must see.
    pub at_least: Option<AtLeast>,
}

macro_rules! query_options {
    ($query:ty, $target:expr) => {
        impl $query {
            /// Only what the filter finds.
            pub fn with_filter(mut self, filter: Filter) -> Self {
                self.filter = filter;
                self
            }

            /// In this order. The cursor of a page is good for the same order only.
            pub fn with_sort(mut self, sort: impl IntoIterator<Item = Sort>) -> Self {
                self.sort = sort.into_iter().collect();
                self
            }

            /// Only these paths of the body: it becomes an object with nothing else in it, nested as it was, its keys
            /// in the order in which they were stored.
            ///
            /// A path covers everything below it. What is missing is left out, together with the objects around it in
            /// which nothing is left. Of a body that is no object nothing is left: it becomes `{}`, as with no path at
            /// all. The envelope and the metadata are returned as they are.
            pub fn with_projection(mut self, paths: impl IntoIterator<Item = Path>) -> Self {
                self.projection = Some(paths.into_iter().collect());
                self
            }

            /// At most so many items: 1 to [`MAX_QUERY_LIMIT`] (inclusive).
            pub fn with_limit(mut self, limit: usize) -> Self {
                self.limit = limit;
                self
            }

            /// Go on behind the page that ended here.
            pub fn with_after(mut self, after: Cursor) -> Self {
                self.after = Some(after);
                self
            }

            /// Let these nodes answer (Q2).
            pub fn with_read_preference(mut self, preference: ReadPreference) -> Self {
                self.read_preference = Some(preference);
                self
            }

            /// Wait for a write first (Q3).
            pub fn with_at_least(mut self, at_least: AtLeast) -> Self {
                self.at_least = Some(at_least);
                self
            }

            fn check_options(&self) -> Result<()> {
                self.filter.check($target)?;
                sort::check(&self.sort, $target)?;
                if let Some(paths) = &self.projection {
                    project::check(paths)?;
                }
                if self.limit == 0 || self.limit > MAX_QUERY_LIMIT {
                    return Err(Error::invalid_input(format!(
                        "a page of {} items: ask for 1 to {MAX_QUERY_LIMIT}",
                        self.limit
                    )));
                }
                if let Some(after) = &self.after {
                    after.check(self.order(), $target, &self.sort)?;
                }
                self.at_least.as_ref().map_or(Ok(()), |at_least| at_least.check(&self.aggregate_type))
            }

            fn order(&self) -> Order {
                Order::of($target, &self.aggregate_type, &self.sort)
            }

            /// The cursor behind an item.
            fn cursor_behind(&self, mut item: Item<'_>) -> Result<Cursor> {
                let values = item.sort_values(&self.sort);
                Cursor::new(self.order(), values, item.tie_breaker())
            }
        }
    };
}

query_options!(SnapshotQuery, Target::Snapshots);
query_options!(EventQuery, Target::Events);

impl SnapshotQuery {
    /// All snapshots of an aggregate type that have this revision, by tenant and id, [`DEFAULT_QUERY_LIMIT`] at a
    /// time.
    pub fn new(aggregate_type: AggregateType, revision: u32) -> Self {
        Self {
            aggregate_type,
            revision,
            filter: Filter::All,
            sort: Vec::new(),
            projection: None,
            limit: DEFAULT_QUERY_LIMIT,
            after: None,
            read_preference: None,
            at_least: None,
        }
    }

    /// What every backend checks first.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput): as for [`Filter::check`]; a revision beyond
    /// [`MAX_REVISION`](crate::MAX_REVISION); too many sort fields or projected paths, or fields that snapshots do not
    /// have; a limit that is out of bounds; a cursor of another query; a wait for an aggregate of another type or
    /// longer than [`MAX_QUERY_WAIT`].
    pub fn check(&self) -> Result<()> {
        check_revision(self.revision)?;
        self.check_options()
    }

    /// Makes the page of what a database returned: snapshots that match, in the order of the query, from behind its
    /// cursor on, whole, and up to **one more than the limit**. The surplus one only says that there is more.
    ///
    /// # Errors
    /// [`TooLarge`](crate::ErrorKind::TooLarge) for a cursor beyond [`MAX_CURSOR_BYTES`](super::MAX_CURSOR_BYTES).
    pub fn page(&self, mut snapshots: Vec<Snapshot>) -> Result<SnapshotPage> {
        let more = snapshots.len() > self.limit;
        snapshots.truncate(self.limit);
        let next = match snapshots.last() {
            Some(last) if more => Some(self.cursor_behind(last.into())?),
            _ => None,
        };
        let mut items: Vec<SnapshotItem> = snapshots.into_iter().map(Into::into).collect();
        if let Some(paths) = &self.projection {
            let projection = Projection::new(paths);
            for item in &mut items {
                item.state = projection.of(&item.state)?;
            }
        }
        Ok(SnapshotPage { items, next })
    }
}

impl EventQuery {
    /// All events of an aggregate type, in the order of the log, [`DEFAULT_QUERY_LIMIT`] at a time.
    pub fn new(aggregate_type: AggregateType) -> Self {
        Self {
            aggregate_type,
            filter: Filter::All,
            sort: Vec::new(),
            projection: None,
            limit: DEFAULT_QUERY_LIMIT,
            after: None,
            read_preference: None,
            at_least: None,
        }
    }

    /// What every backend checks first.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput), as for [`SnapshotQuery::check`].
    pub fn check(&self) -> Result<()> {
        self.check_options()
    }

    /// Makes the page of what a database returned: events that match, in the order of the query, from behind its
    /// cursor on, whole, and up to **one more than the limit**. The surplus one only says that there is more.
    ///
    /// # Errors
    /// As for [`SnapshotQuery::page`].
    pub fn page(&self, mut items: Vec<EventItem>) -> Result<EventPage> {
        let more = items.len() > self.limit;
        items.truncate(self.limit);
        let next = match items.last() {
            Some(last) if more => Some(self.cursor_behind(last.into())?),
            _ => None,
        };
        if let Some(paths) = &self.projection {
            let projection = Projection::new(paths);
            for item in &mut items {
                item.body = projection.of(&item.body)?;
            }
        }
        Ok(EventPage { items, next })
    }
}
