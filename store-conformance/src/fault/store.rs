//! The traits of a store, call by call.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use futures_util::{StreamExt as _, stream};
use wow_store_api::{
    AcquireLease, AggregateId, AggregateType, Attempt, CheckedCommit, Checkpoint, CheckpointSaved,
    Checkpoints, ClaimTimers, CommandId, CommitStream, ContextName, Discarded, EventLog, Failure,
    FailureCounts, FailureLedger, Format, Heartbeat, Lease, LeaseAcquired, LeaseRenewed, LeaseToken, Leases,
    ListFailures, ListReservations, Member, MemberId, Page, Park, PartitionCount, PartitionId, Position,
    Queries, ReadPage, Receipt, Reservation, ReservationKey, ReservationOp, ReservationOutcome,
    ReservationScope, Reservations, Result, SaveCheckpoint, SaveSnapshot, ScheduleTimer, Snapshot,
    SnapshotSaved, Snapshots, StoreAdmin, SubscriptionName, Timer, TimerId, TimerScheduled, TimerToken,
    Timers, Timestamp, Version, VersionRange, Watcher,
    query::{EventPage, EventQuery, SnapshotPage, SnapshotQuery},
};

use super::{Fate, Faulty, lost};

impl Faulty {
    /// A stream may break in the middle.
    fn breaking(&self, commits: CommitStream) -> CommitStream {
        let Fate { applied, dropped, delay, .. } = self.fate();
        if applied && dropped.is_none() {
            return commits;
        }
        let whole = usize::try_from(delay).unwrap_or_default();
        commits.take(whole).chain(stream::iter([Err(lost())])).boxed()
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl EventLog for Faulty {
    async fn append_checked(&self, commit: CheckedCommit) -> Result<Receipt> {
        self.write(self.inner.append_checked(commit)).await
    }

    async fn append_all_checked(&self, commits: Vec<CheckedCommit>) -> Result<Vec<Receipt>> {
        self.write(self.inner.append_all_checked(commits)).await
    }

    async fn receipt(&self, aggregate_id: &AggregateId, command_id: &CommandId) -> Result<Option<Receipt>> {
        self.read(self.inner.receipt(aggregate_id, command_id)).await
    }

    async fn head(&self, aggregate_id: &AggregateId) -> Result<Version> {
        self.read(self.inner.head(aggregate_id)).await
    }

    async fn load_range(&self, aggregate_id: &AggregateId, versions: VersionRange) -> Result<CommitStream> {
        let commits = self.read(self.inner.load_range(aggregate_id, versions)).await?;
        Ok(self.breaking(commits))
    }

    async fn load_as_of(&self, aggregate_id: &AggregateId, instant: Timestamp) -> Result<CommitStream> {
        let commits = self.read(self.inner.load_as_of(aggregate_id, instant)).await?;
        Ok(self.breaking(commits))
    }

    async fn partitions(&self, context: &ContextName) -> Result<PartitionCount> {
        self.read(self.inner.partitions(context)).await
    }

    async fn heads(&self, context: &ContextName) -> Result<Vec<Position>> {
        self.read(self.inner.heads(context)).await
    }

    async fn read(&self, page: ReadPage) -> Result<Page> {
        self.read(self.inner.read(page)).await
    }

    async fn aggregate_types(&self) -> Result<Vec<AggregateType>> {
        self.read(self.inner.aggregate_types()).await
    }

    async fn watch(&self, context: &ContextName) -> Result<Watcher> {
        let inner = self.inner.watch(context).await?;
        self.wakeups.watch(context, inner)
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Checkpoints for Faulty {
    async fn checkpoint(
        &self,
        subscription: &SubscriptionName,
        partition: &PartitionId,
    ) -> Result<Option<Checkpoint>> {
        self.read(self.inner.checkpoint(subscription, partition)).await
    }

    async fn checkpoints(&self, context: &ContextName) -> Result<Vec<Checkpoint>> {
        self.read(self.inner.checkpoints(context)).await
    }

    async fn save_checkpoint(&self, save: SaveCheckpoint) -> Result<CheckpointSaved> {
        self.write(self.inner.save_checkpoint(save)).await
    }

    async fn reset_checkpoint(&self, reset: SaveCheckpoint) -> Result<()> {
        self.write(self.inner.reset_checkpoint(reset)).await
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Leases for Faulty {
    async fn acquire_lease(&self, request: AcquireLease) -> Result<LeaseAcquired> {
        self.write(self.inner.acquire_lease(request)).await
    }

    async fn renew_leases(&self, tokens: &[LeaseToken], ttl: Duration) -> Result<Vec<LeaseRenewed>> {
        self.write(self.inner.renew_leases(tokens, ttl)).await
    }

    async fn release_lease(&self, token: &LeaseToken) -> Result<bool> {
        self.write(self.inner.release_lease(token)).await
    }

    async fn leases(&self, group: &SubscriptionName, context: &ContextName) -> Result<Vec<Lease>> {
        self.read(self.inner.leases(group, context)).await
    }

    async fn heartbeat(&self, heartbeat: Heartbeat) -> Result<Member> {
        self.write(self.inner.heartbeat(heartbeat)).await
    }

    async fn members(&self, group: &SubscriptionName) -> Result<Vec<Member>> {
        self.read(self.inner.members(group)).await
    }

    async fn leave(&self, group: &SubscriptionName, member: &MemberId) -> Result<bool> {
        self.write(self.inner.leave(group, member)).await
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Snapshots for Faulty {
    async fn save_snapshot(&self, save: SaveSnapshot) -> Result<SnapshotSaved> {
        self.write(self.inner.save_snapshot(save)).await
    }

    async fn snapshot(&self, aggregate_id: &AggregateId, revision: u32) -> Result<Option<Snapshot>> {
        self.read(self.inner.snapshot(aggregate_id, revision)).await
    }

    async fn delete_snapshot(&self, aggregate_id: &AggregateId) -> Result<bool> {
        self.write(self.inner.delete_snapshot(aggregate_id)).await
    }

    async fn drop_snapshots(&self, aggregate_type: &AggregateType) -> Result<u64> {
        self.write(self.inner.drop_snapshots(aggregate_type)).await
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl FailureLedger for Faulty {
    async fn record_attempt(&self, attempt: Attempt) -> Result<Failure> {
        self.write(self.inner.record_attempt(attempt)).await
    }

    async fn park(&self, park: Park) -> Result<Failure> {
        self.write(self.inner.park(park)).await
    }

    async fn retry(&self, subscription: &SubscriptionName, aggregate_id: &AggregateId) -> Result<bool> {
        self.write(self.inner.retry(subscription, aggregate_id)).await
    }

    async fn discard(
        &self,
        subscription: &SubscriptionName,
        aggregate_id: &AggregateId,
        version: Version,
    ) -> Result<bool> {
        self.write(self.inner.discard(subscription, aggregate_id, version)).await
    }

    async fn advance(&self, attempt: Attempt) -> Result<bool> {
        self.write(self.inner.advance(attempt)).await
    }

    async fn resolve(&self, attempt: Attempt) -> Result<bool> {
        self.write(self.inner.resolve(attempt)).await
    }

    async fn failure(
        &self,
        subscription: &SubscriptionName,
        aggregate_id: &AggregateId,
    ) -> Result<Option<Failure>> {
        self.read(self.inner.failure(subscription, aggregate_id)).await
    }

    async fn failures(&self, list: ListFailures) -> Result<Vec<Failure>> {
        self.read(self.inner.failures(list)).await
    }

    async fn discarded(&self, subscription: &SubscriptionName, limit: usize) -> Result<Vec<Discarded>> {
        self.read(self.inner.discarded(subscription, limit)).await
    }

    async fn failure_counts(&self, subscription: &SubscriptionName) -> Result<FailureCounts> {
        self.read(self.inner.failure_counts(subscription)).await
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Reservations for Faulty {
    async fn reserve(&self, op: ReservationOp) -> Result<ReservationOutcome> {
        self.write(self.inner.reserve(op)).await
    }

    async fn reservation(
        &self,
        scope: &ReservationScope,
        key: &ReservationKey,
    ) -> Result<Option<Reservation>> {
        self.read(self.inner.reservation(scope, key)).await
    }

    async fn reservations(&self, list: ListReservations) -> Result<Vec<Reservation>> {
        self.read(self.inner.reservations(list)).await
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Timers for Faulty {
    async fn schedule_timer(&self, schedule: ScheduleTimer) -> Result<TimerScheduled> {
        self.write(self.inner.schedule_timer(schedule)).await
    }

    async fn cancel_timer(&self, context: &ContextName, id: &TimerId) -> Result<bool> {
        self.write(self.inner.cancel_timer(context, id)).await
    }

    async fn claim_timers(&self, claim: ClaimTimers) -> Result<Vec<Timer>> {
        self.write(self.inner.claim_timers(claim)).await
    }

    async fn complete_timer(&self, token: &TimerToken) -> Result<bool> {
        self.write(self.inner.complete_timer(token)).await
    }

    async fn release_timer(&self, token: &TimerToken, retry_in: Duration) -> Result<bool> {
        self.write(self.inner.release_timer(token, retry_in)).await
    }

    async fn next_due(&self, context: &ContextName) -> Result<Option<Timestamp>> {
        self.read(self.inner.next_due(context)).await
    }

    async fn timers(
        &self,
        context: &ContextName,
        after: Option<&TimerId>,
        limit: usize,
    ) -> Result<Vec<Timer>> {
        self.read(self.inner.timers(context, after, limit)).await
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Queries for Faulty {
    async fn query_snapshots(&self, query: SnapshotQuery) -> Result<SnapshotPage> {
        self.read(self.inner.query_snapshots(query)).await
    }

    async fn count_snapshots(&self, query: SnapshotQuery) -> Result<u64> {
        self.read(self.inner.count_snapshots(query)).await
    }

    async fn query_events(&self, query: EventQuery) -> Result<EventPage> {
        self.read(self.inner.query_events(query)).await
    }

    async fn count_events(&self, query: EventQuery) -> Result<u64> {
        self.read(self.inner.count_events(query)).await
    }
}

/// Nothing goes wrong here: it is not about what is stored.
#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl StoreAdmin for Faulty {
    fn name(&self) -> &Arc<str> {
        self.inner.name()
    }

    fn backend(&self) -> &'static str {
        self.inner.backend()
    }

    async fn now(&self) -> Result<Timestamp> {
        self.inner.now().await
    }

    async fn formats(&self) -> Result<Vec<Format>> {
        self.inner.formats().await
    }

    async fn close(&self) -> Result<()> {
        let closed = self.inner.close().await;
        self.wakeups.close();
        closed
    }
}
