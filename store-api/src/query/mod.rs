//! Queries over snapshots and events, in words that no database owns (Q1 to Q3).
//!
//! A query is a value: a [`Filter`], a list of [`Sort`], a projection, a page size and a [`Cursor`]. Nothing in it is
//! ever read as code: keys, strings and ids are data, whatever they look like.
//!
//! **Same results on every backend.** What a filter holds for is on [`Filter`], the order of values on [`SortValue`],
//! what breaks ties on [`TieBreaker`]. [`run_snapshots`] and [`run_events`] are the same in code, for stores that
//! evaluate in process; backends that translate a query are compared with them.
//!
//! ```text
//!  sort by total, descending                       limit 2
//!
//!   total   12.50   9.90    9.9    4    "n/a"  missing
//!   id      "c"     "a"     "b"    "d"  "f"    "e"
//!          └────page 1───┘ └──page 2──┘ └───page 3───┘
//!                        ▲            ▲
//!                        └ cursor     └ cursor: the sort values and the tie-breaker of the item before it
//! ```
//!
//! Pages go by key, not by number: whatever is written between two pages, no item comes twice and none is skipped among
//! those that did not change. An item whose sort values changed may come again, or not at all; pages are no snapshot
//! of one instant.

use async_trait::async_trait;

use crate::error::Result;

mod cursor;
mod eval;
mod filter;
mod page;
mod path;
mod project;
mod request;
mod run;
mod sort;
mod wait;

pub use cursor::{Cursor, MAX_CURSOR_BYTES};
pub use filter::{Filter, MAX_FILTER_BYTES, MAX_FILTER_DEPTH, MAX_FILTER_NODES, Scalar};
pub use page::{EventItem, EventPage, SnapshotItem, SnapshotPage};
pub use path::{Field, MAX_PATH_DEPTH, MAX_QUERY_STRING_BYTES, Path, Target};
pub use project::MAX_PROJECTION_PATHS;
pub use request::{
    AtLeast, DEFAULT_QUERY_LIMIT, EventQuery, MAX_QUERY_LIMIT, MAX_QUERY_WAIT, ReadPreference, SnapshotQuery,
};
pub use run::{count_events, count_snapshots, run_events, run_snapshots};
pub use sort::{MAX_SORT_FIELDS, Sort, SortValue, TieBreaker};
pub use wait::wait_until;

/// Queries.
///
/// What holds for all methods:
///
/// - Q1 **Same results on every backend**: filter, order, pages, projection and count mean what [`Filter`],
///   [`SortValue`], [`TieBreaker`] and [`SnapshotQuery::with_projection`] say.
/// - Q2 **The primary answers** unless the query's [`ReadPreference`], or else the store's, says otherwise. Whoever
///   answers shows only what can no longer be lost; a secondary may be behind.
/// - Q3 **Read your writes**: a query with [`AtLeast`] first waits until the node that answers it has that version of
///   that aggregate, up to a deadline. What it then finds is at least as new.
/// - An aggregate type that was never used gives an empty page and a count of 0.
/// - **Cancel-safety**: nothing is written, so every method may be dropped at any time.
///
/// # Errors
/// All are `NotApplied`. [`InvalidInput`](crate::ErrorKind::InvalidInput) as for [`SnapshotQuery::check`], before the
/// store is asked anything; [`Timeout`](crate::ErrorKind::Timeout) if the version of [`AtLeast`] was not seen in time;
/// [`Unavailable`](crate::ErrorKind::Unavailable) also where no node meets the read preference; those of any read.
#[async_trait]
pub trait Queries: Send + Sync {
    /// One page of the snapshots of an aggregate type.
    ///
    /// - S2 Only of the revision asked for.
    /// - S3 Never one that is ahead of its log.
    /// - At most `limit` items, 1 to [`MAX_QUERY_LIMIT`] (inclusive), from behind the cursor (exclusive) on. There is
    ///   a next cursor if and only if there was more.
    /// - Snapshots are a cache: an aggregate without one is not found, and one that lags behind its log is found as it
    ///   was. [`AtLeast`] waits for a snapshot, it does not make one.
    ///
    /// # Errors
    /// Those of the trait; [`TooLarge`](crate::ErrorKind::TooLarge) if the cursor would be larger than
    /// [`MAX_CURSOR_BYTES`], as the page ends at an item with very long strings that it is sorted by.
    ///
    /// ```
    /// # futures::executor::block_on(async {
    /// use rust_decimal::dec;
    /// use serde_json::json;
    /// use wow_store_api::query::{AtLeast, Cursor, Field, Filter, Path, Queries, SnapshotQuery, Sort};
    /// use wow_store_api::{AggregateId, Commit, MemoryStore, SaveSnapshot, Snapshots, StoreExt};
    ///
    /// let store = MemoryStore::new();
    /// for (id, status, total) in [("a", "open", 990), ("b", "open", 1250), ("c", "paid", 700), ("d", "open", 5)] {
    ///     let id = AggregateId::new("shop", "order", id)?;
    ///     store.append(Commit::new(id.clone(), "cmd-1").event("OrderPlaced", 1, &json!({}))?).await?;
    ///     let state = json!({"status": status, "total": total, "lines": []});
    ///     store.save_snapshot(SaveSnapshot::new(id, 1, 1, &state)?).await?;
    /// }
    ///
    /// let total = Path::key("total")?;
    /// let query = SnapshotQuery::new("shop.order".parse()?, 1)
    ///     .with_filter(Filter::eq(Field::body(["status"])?, "open").and(Filter::ge(total.clone(), dec!(5.00))))
    ///     .with_sort([Sort::descending(total.clone())])
    ///     .with_projection([total])
    ///     .with_limit(2)
    ///     .with_at_least(AtLeast::new(AggregateId::new("shop", "order", "d")?, 1));
    ///
    /// let page = store.query_snapshots(query.clone()).await?;
    /// let states: Vec<_> = page.items.iter().map(|item| item.state.as_json()).collect();
    /// assert_eq!(states, [r#"{"total":1250}"#, r#"{"total":990}"#]);
    ///
    /// // The cursor may travel through a client.
    /// let next: Cursor = page.next.unwrap().to_string().parse()?;
    /// let page = store.query_snapshots(query.clone().with_after(next)).await?;
    /// assert_eq!(page.items[0].aggregate_id.id(), "d");
    /// assert!(page.next.is_none());
    ///
    /// assert_eq!(store.count_snapshots(query).await?, 3, "of all pages");
    /// # Ok::<_, wow_store_api::Error>(()) }).unwrap();
    /// ```
    async fn query_snapshots(&self, query: SnapshotQuery) -> Result<SnapshotPage>;

    /// How many snapshots the query finds on all pages together (Q1): limit, sort, cursor and projection make no difference
    /// (but are checked).
    ///
    /// # Errors
    /// Those of the trait.
    ///
    /// ```
    /// # futures::executor::block_on(async {
    /// # use wow_store_api::{AggregateId, Commit, MemoryStore, SaveSnapshot, Snapshots, StoreExt};
    /// # use wow_store_api::query::{Queries, SnapshotQuery};
    /// let store = MemoryStore::new();
    /// for id in ["a", "b"] {
    ///     let id = AggregateId::new("shop", "order", id)?;
    ///     store.append(Commit::new(id.clone(), "cmd-1").event("OrderPlaced", 1, &42)?).await?;
    ///     store.save_snapshot(SaveSnapshot::new(id, 1, 1, &42)?).await?;
    /// }
    /// let query = SnapshotQuery::new("shop.order".parse()?, 1).with_limit(1);
    /// assert_eq!(store.count_snapshots(query).await?, 2, "whatever the limit");
    /// # Ok::<_, wow_store_api::Error>(()) }).unwrap();
    /// ```
    async fn count_snapshots(&self, query: SnapshotQuery) -> Result<u64>;

    /// One page of the events of an aggregate type, each with the envelope of its commit.
    ///
    /// - L5 Only events of commits that can be read, which no reader will see taken back.
    /// - Events are found one by one: of a commit with three events, the filter may find one.
    /// - At most `limit` items, as for [`query_snapshots`](Self::query_snapshots). Without a sort they come in the
    ///   order of the log: by partition, position and index in the commit.
    ///
    /// # Errors
    /// As for [`query_snapshots`](Self::query_snapshots).
    ///
    /// ```
    /// # futures::executor::block_on(async {
    /// use serde_json::json;
    /// use wow_store_api::query::{EventQuery, Field, Filter, Queries, Sort};
    /// use wow_store_api::{AggregateId, Commit, MemoryStore, StoreExt};
    ///
    /// let store = MemoryStore::new();
    /// let id = AggregateId::new("shop", "order", "42")?;
    /// let place = Commit::new(id.clone(), "cmd-1")
    ///     .event("OrderPlaced", 1, &json!({"by": "ann"}))?
    ///     .event("LineAdded", 1, &json!({"tags": ["gift", "fragile"]}))?;
    /// store.append(place).await?;
    /// store.append(Commit::new(id, "cmd-2").event("LineAdded", 1, &json!({"tags": ["$gt"]}))?).await?;
    ///
    /// let gifts = EventQuery::new("shop.order".parse()?)
    ///     .with_filter(Filter::contains(Field::body(["tags"])?, "gift"))
    ///     .with_sort([Sort::descending(Field::At)]);
    /// let page = store.query_events(gifts.clone()).await?;
    /// assert_eq!(page.items.len(), 1);
    /// assert_eq!((page.items[0].version, page.items[0].index), (1, 1));
    /// assert_eq!(store.count_events(gifts.with_filter(Filter::eq(Field::EventName, "LineAdded"))).await?, 2);
    /// # Ok::<_, wow_store_api::Error>(()) }).unwrap();
    /// ```
    async fn query_events(&self, query: EventQuery) -> Result<EventPage>;

    /// How many events the query finds on all pages together (Q1): limit, sort, cursor and projection make no difference
    /// (but are checked).
    ///
    /// # Errors
    /// Those of the trait.
    ///
    /// ```
    /// # futures::executor::block_on(async {
    /// # use wow_store_api::{AggregateId, Commit, MemoryStore, StoreExt};
    /// # use wow_store_api::query::{EventQuery, Queries};
    /// let store = MemoryStore::new();
    /// let id = AggregateId::new("shop", "order", "42")?;
    /// store.append(Commit::new(id, "cmd-7").event("OrderPlaced", 1, &42)?.event("LineAdded", 1, &1)?).await?;
    /// let query = EventQuery::new("shop.order".parse()?).with_limit(1);
    /// assert_eq!(store.count_events(query).await?, 2, "whatever the limit");
    /// # Ok::<_, wow_store_api::Error>(()) }).unwrap();
    /// ```
    async fn count_events(&self, query: EventQuery) -> Result<u64>;
}

#[cfg(test)]
mod tests;
