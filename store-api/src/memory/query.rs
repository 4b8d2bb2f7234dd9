//! Queries: run over everything there is, under the one lock.

use std::future::ready;

use async_trait::async_trait;

use super::{MemoryStore, State};
use crate::{
    AggregateId, Queries, RecordedCommit, Result, Snapshot, Version,
    query::{self, AtLeast, EventPage, EventQuery, SnapshotPage, SnapshotQuery},
    rules::snapshot::is_usable,
};

impl State {
    /// The snapshots that the query may see: S2, S3.
    fn queried_snapshots(&self, query: &SnapshotQuery) -> impl Iterator<Item = Result<Snapshot>> {
        let of = |snapshot: &&Snapshot| {
            *snapshot.aggregate_id.aggregate_type() == query.aggregate_type
                && is_usable(snapshot, query.revision, self.head(&snapshot.aggregate_id))
        };
        self.snapshots.values().filter(of).cloned().map(Ok)
    }

    fn queried_commits(&self, query: &EventQuery) -> impl Iterator<Item = Result<RecordedCommit>> {
        let of = |commit: &&RecordedCommit| *commit.aggregate_id.aggregate_type() == query.aggregate_type;
        let partitions = self.logs.get(query.aggregate_type.context()).into_iter().flatten();
        partitions.flatten().filter(of).cloned().map(Ok)
    }

    fn snapshot_version(&self, aggregate_id: &AggregateId, revision: u32) -> Version {
        let head = self.head(aggregate_id);
        let stored = self.snapshots.get(aggregate_id);
        stored.filter(|stored| is_usable(stored, revision, head)).map_or(0, |stored| stored.version)
    }
}

impl MemoryStore {
    /// Waits for what a query must see (Q3).
    async fn wait(
        &self,
        operation: &'static str,
        at_least: Option<&AtLeast>,
        version: impl Fn(&State, &AggregateId) -> Version + Sync,
    ) -> Result<()> {
        let Some(at_least) = at_least else { return Ok(()) };
        query::wait_until(at_least.within, || {
            ready(
                self.with(operation, |state, _| {
                    Ok(version(state, &at_least.aggregate_id) >= at_least.version)
                }),
            )
        })
        .await
        .map_err(|error| {
            error.with_operation(operation).with_store(&self.name).with_context(&at_least.aggregate_id)
        })
    }
}

#[async_trait]
impl Queries for MemoryStore {
    async fn query_snapshots(&self, query: SnapshotQuery) -> Result<SnapshotPage> {
        let operation = "query_snapshots";
        self.with(operation, |_, _| query.check())?;
        self.wait(operation, query.at_least.as_ref(), |state, id| state.snapshot_version(id, query.revision))
            .await?;
        self.with(operation, |state, _| query::run_snapshots(&query, state.queried_snapshots(&query)))
    }

    async fn count_snapshots(&self, query: SnapshotQuery) -> Result<u64> {
        let operation = "count_snapshots";
        self.with(operation, |_, _| query.check())?;
        self.wait(operation, query.at_least.as_ref(), |state, id| state.snapshot_version(id, query.revision))
            .await?;
        self.with(operation, |state, _| query::count_snapshots(&query, state.queried_snapshots(&query)))
    }

    async fn query_events(&self, query: EventQuery) -> Result<EventPage> {
        let operation = "query_events";
        self.with(operation, |_, _| query.check())?;
        self.wait(operation, query.at_least.as_ref(), State::head).await?;
        self.with(operation, |state, _| query::run_events(&query, state.queried_commits(&query)))
    }

    async fn count_events(&self, query: EventQuery) -> Result<u64> {
        let operation = "count_events";
        self.with(operation, |_, _| query.check())?;
        self.wait(operation, query.at_least.as_ref(), State::head).await?;
        self.with(operation, |state, _| query::count_events(&query, state.queried_commits(&query)))
    }
}
