//! Queries (Q1 to Q3): everything of the aggregate type is looked at, from one snapshot, a page's worth is kept.

use std::future::ready;

use async_trait::async_trait;
use wow_store_api::{
    AggregateId, CommitFilter, Error, Queries, RecordedCommit, Result, Snapshot, Version,
    query::{self, AtLeast, EventPage, EventQuery, SnapshotPage, SnapshotQuery},
};

use crate::{
    access::Records as _,
    append,
    commit::Reader,
    engine::{error::Hex, keys::after_prefix, space::Space, view::View},
    places, snapshots,
    store::EmbeddedStore,
};

/// The snapshots that the query may see: S2, S3.
fn candidates<'a>(view: &'a View, query: &SnapshotQuery) -> impl Iterator<Item = Result<Snapshot>> + use<'a> {
    let revision = query.revision;
    let usable = move |snapshot: Result<Snapshot>| -> Option<Result<Snapshot>> {
        snapshot.and_then(|snapshot| snapshots::usable(view, snapshot, revision)).transpose()
    };
    view.records::<Snapshot>(&snapshots::of_type(&query.aggregate_type)).filter_map(usable)
}

fn commits<'a>(view: &'a View, query: &EventQuery) -> impl Iterator<Item = Result<RecordedCommit>> + use<'a> {
    let under = places::of_type(&query.aggregate_type);
    let end = after_prefix(under.as_slice());
    let end = end.as_deref().map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded);
    let mut reader = Reader::new(query.aggregate_type.context().clone());
    let everything = CommitFilter::all();
    let range = (std::ops::Bound::Included(under.as_slice()), end);
    view.range(Space::Stream, range).filter_map(move |entry| {
        let read = |(key, value): (fjall::Slice, fjall::Slice)| {
            reader.read(&key, &value, &everything).map_err(|reason| {
                Error::corrupt(format!("{}, key {}", Space::Stream.name(), Hex(&key)), reason)
            })
        };
        entry.map_err(Error::from).and_then(read).transpose()
    })
}

impl EmbeddedStore {
    /// Waits for what a query must see (Q3).
    async fn wait(
        &self,
        operation: &'static str,
        at_least: Option<&AtLeast>,
        version: impl Fn(&View, &AggregateId) -> Result<Version> + Sync,
    ) -> Result<()> {
        let Some(at_least) = at_least else { return Ok(()) };
        let id = &at_least.aggregate_id;
        query::wait_until(at_least.within, || {
            ready(self.read(operation, |view| Ok(version(view, id)? >= at_least.version)))
        })
        .await
        .map_err(self.describe(operation))
        .map_err(|error| error.with_context(id))
    }

    async fn query_after_snapshot<T: Send + 'static>(
        &self,
        operation: &'static str,
        query: SnapshotQuery,
        run: impl FnOnce(&View, &SnapshotQuery) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.read(operation, |_| query.check())?;
        self.wait(operation, query.at_least.as_ref(), |view, id| {
            Ok(snapshots::find(view, id, query.revision)?.map_or(0, |snapshot| snapshot.version))
        })
        .await?;
        self.scan(operation, move |view| run(view, &query)).await
    }

    async fn query_after_commit<T: Send + 'static>(
        &self,
        operation: &'static str,
        query: EventQuery,
        run: impl FnOnce(&View, &EventQuery) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.read(operation, |_| query.check())?;
        self.wait(operation, query.at_least.as_ref(), |view, id| append::head(view, &places::aggregate(id)))
            .await?;
        self.scan(operation, move |view| run(view, &query)).await
    }
}

#[async_trait]
impl Queries for EmbeddedStore {
    async fn query_snapshots(&self, query: SnapshotQuery) -> Result<SnapshotPage> {
        self.query_after_snapshot("query_snapshots", query, |view, query| {
            query::run_snapshots(query, candidates(view, query))
        })
        .await
    }

    async fn count_snapshots(&self, query: SnapshotQuery) -> Result<u64> {
        self.query_after_snapshot("count_snapshots", query, |view, query| {
            query::count_snapshots(query, candidates(view, query))
        })
        .await
    }

    async fn query_events(&self, query: EventQuery) -> Result<EventPage> {
        self.query_after_commit("query_events", query, |view, query| {
            query::run_events(query, commits(view, query))
        })
        .await
    }

    async fn count_events(&self, query: EventQuery) -> Result<u64> {
        self.query_after_commit("count_events", query, |view, query| {
            query::count_events(query, commits(view, query))
        })
        .await
    }
}
