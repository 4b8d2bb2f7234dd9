//! A store that keeps nothing and says yes to everything: every case must reject it.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use futures_util::{StreamExt as _, stream};
use wow_store_api::{
    AcquireLease, AggregateId, AggregateType, Attempt, CheckedCommit, Checkpoint, CheckpointSaved,
    Checkpoints, ClaimTimers, Clock as _, CommandId, CommitStream, ContextName, Discarded, EventLog,
    EventStore, Failure, FailureCounts, FailureLedger, Format, Heartbeat, Lease, LeaseAcquired, LeaseRenewed,
    LeaseToken, Leases, ListFailures, ListReservations, ManualClock, Member, MemberId, Page, Park,
    PartitionCount, PartitionId, Position, Queries, ReadPage, Receipt, Reservation, ReservationKey,
    ReservationOp, ReservationOutcome, ReservationScope, Reservations, Result, SaveCheckpoint, SaveSnapshot,
    ScheduleTimer, Snapshot, SnapshotSaved, Snapshots, StoreAdmin, SubscriptionName, Timer, TimerId,
    TimerScheduled, TimerToken, Timers, Timestamp, Version, VersionRange, Wakeups, Watcher,
    query::{EventPage, EventQuery, SnapshotPage, SnapshotQuery},
    rules,
};

use crate::harness::{Backend, Place, Settings};

/// The store.
#[derive(Debug)]
struct Nothing {
    name: Arc<str>,
    clock: ManualClock,
    partitions: PartitionCount,
    wakeups: Wakeups,
}

impl Nothing {
    fn taken(&self, commit: &CheckedCommit) -> Receipt {
        let partition = self.partitions.partition_of(commit.aggregate_id());
        rules::append::receipt(partition, 1, 1, self.clock.now())
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl EventLog for Nothing {
    async fn append_checked(&self, commit: CheckedCommit) -> Result<Receipt> {
        Ok(self.taken(&commit))
    }

    async fn append_all_checked(&self, commits: Vec<CheckedCommit>) -> Result<Vec<Receipt>> {
        Ok(commits.iter().map(|commit| self.taken(commit)).collect())
    }

    async fn receipt(&self, _: &AggregateId, _: &CommandId) -> Result<Option<Receipt>> {
        Ok(None)
    }

    async fn head(&self, _: &AggregateId) -> Result<Version> {
        Ok(0)
    }

    async fn load_range(&self, _: &AggregateId, _: VersionRange) -> Result<CommitStream> {
        Ok(stream::empty().boxed())
    }

    async fn load_as_of(&self, _: &AggregateId, _: Timestamp) -> Result<CommitStream> {
        Ok(stream::empty().boxed())
    }

    async fn partitions(&self, _: &ContextName) -> Result<PartitionCount> {
        Ok(self.partitions)
    }

    async fn heads(&self, context: &ContextName) -> Result<Vec<Position>> {
        Ok(self.partitions.partitions(context).map(|_| 0).collect())
    }

    async fn read(&self, page: ReadPage) -> Result<Page> {
        Ok(Page::empty(page.after_position))
    }

    async fn aggregate_types(&self) -> Result<Vec<AggregateType>> {
        Ok(Vec::new())
    }

    async fn watch(&self, context: &ContextName) -> Result<Watcher> {
        self.wakeups.watch(context)
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Checkpoints for Nothing {
    async fn checkpoint(&self, _: &SubscriptionName, _: &PartitionId) -> Result<Option<Checkpoint>> {
        Ok(None)
    }

    async fn checkpoints(&self, _: &ContextName) -> Result<Vec<Checkpoint>> {
        Ok(Vec::new())
    }

    async fn save_checkpoint(&self, _: SaveCheckpoint) -> Result<CheckpointSaved> {
        Ok(CheckpointSaved::Saved)
    }

    async fn reset_checkpoint(&self, _: SaveCheckpoint) -> Result<()> {
        Ok(())
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Leases for Nothing {
    async fn acquire_lease(&self, request: AcquireLease) -> Result<LeaseAcquired> {
        rules::lease::acquire(&request, None, self.clock.now())
    }

    async fn renew_leases(&self, tokens: &[LeaseToken], ttl: Duration) -> Result<Vec<LeaseRenewed>> {
        let until = self.clock.now().saturating_add(ttl);
        Ok(tokens.iter().map(|_| LeaseRenewed::Renewed(until)).collect())
    }

    async fn release_lease(&self, _: &LeaseToken) -> Result<bool> {
        Ok(true)
    }

    async fn leases(&self, _: &SubscriptionName, _: &ContextName) -> Result<Vec<Lease>> {
        Ok(Vec::new())
    }

    async fn heartbeat(&self, heartbeat: Heartbeat) -> Result<Member> {
        rules::lease::heartbeat(&heartbeat, None, self.clock.now())
    }

    async fn members(&self, _: &SubscriptionName) -> Result<Vec<Member>> {
        Ok(Vec::new())
    }

    async fn leave(&self, _: &SubscriptionName, _: &MemberId) -> Result<bool> {
        Ok(true)
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Snapshots for Nothing {
    async fn save_snapshot(&self, _: SaveSnapshot) -> Result<SnapshotSaved> {
        Ok(SnapshotSaved::Saved)
    }

    async fn snapshot(&self, _: &AggregateId, _: u32) -> Result<Option<Snapshot>> {
        Ok(None)
    }

    async fn delete_snapshot(&self, _: &AggregateId) -> Result<bool> {
        Ok(true)
    }

    async fn drop_snapshots(&self, _: &AggregateType) -> Result<u64> {
        Ok(0)
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl FailureLedger for Nothing {
    async fn record_attempt(&self, attempt: Attempt) -> Result<Failure> {
        Ok(rules::ledger::record_attempt(&attempt, None, self.clock.now()))
    }

    async fn park(&self, park: Park) -> Result<Failure> {
        Ok(rules::ledger::park(&park, None, self.clock.now()))
    }

    async fn retry(&self, _: &SubscriptionName, _: &AggregateId) -> Result<bool> {
        Ok(true)
    }

    async fn discard(&self, _: &SubscriptionName, _: &AggregateId, _: Version) -> Result<bool> {
        Ok(true)
    }

    async fn advance(&self, _: Attempt) -> Result<bool> {
        Ok(true)
    }

    async fn resolve(&self, _: Attempt) -> Result<bool> {
        Ok(true)
    }

    async fn failure(&self, _: &SubscriptionName, _: &AggregateId) -> Result<Option<Failure>> {
        Ok(None)
    }

    async fn failures(&self, _: ListFailures) -> Result<Vec<Failure>> {
        Ok(Vec::new())
    }

    async fn discarded(&self, _: &SubscriptionName, _: usize) -> Result<Vec<Discarded>> {
        Ok(Vec::new())
    }

    async fn failure_counts(&self, _: &SubscriptionName) -> Result<FailureCounts> {
        Ok(FailureCounts::default())
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Reservations for Nothing {
    async fn reserve(&self, op: ReservationOp) -> Result<ReservationOutcome> {
        match op {
            ReservationOp::Reserve { .. } => {
                rules::reservation::decide(&op, self.clock.now(), |_| Ok(None)).map(|(_, outcome)| outcome)
            }
            ReservationOp::Release { .. } => Ok(ReservationOutcome::Released),
            ReservationOp::Confirm { scope, key, owner }
            | ReservationOp::Swap { scope, to: key, owner, .. } => {
                let reserved_at = self.clock.now();
                Ok(ReservationOutcome::Held(Reservation { scope, key, owner, expires_at: None, reserved_at }))
            }
        }
    }

    async fn reservation(&self, _: &ReservationScope, _: &ReservationKey) -> Result<Option<Reservation>> {
        Ok(None)
    }

    async fn reservations(&self, _: ListReservations) -> Result<Vec<Reservation>> {
        Ok(Vec::new())
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Timers for Nothing {
    async fn schedule_timer(&self, schedule: ScheduleTimer) -> Result<TimerScheduled> {
        Ok(TimerScheduled::Scheduled(schedule.into_timer(self.clock.now())))
    }

    async fn cancel_timer(&self, _: &ContextName, _: &TimerId) -> Result<bool> {
        Ok(true)
    }

    async fn claim_timers(&self, _: ClaimTimers) -> Result<Vec<Timer>> {
        Ok(Vec::new())
    }

    async fn complete_timer(&self, _: &TimerToken) -> Result<bool> {
        Ok(true)
    }

    async fn release_timer(&self, _: &TimerToken, _: Duration) -> Result<bool> {
        Ok(true)
    }

    async fn next_due(&self, _: &ContextName) -> Result<Option<Timestamp>> {
        Ok(None)
    }

    async fn timers(&self, _: &ContextName, _: Option<&TimerId>, _: usize) -> Result<Vec<Timer>> {
        Ok(Vec::new())
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Queries for Nothing {
    async fn query_snapshots(&self, _: SnapshotQuery) -> Result<SnapshotPage> {
        Ok(SnapshotPage { items: Vec::new(), next: None })
    }

    async fn count_snapshots(&self, _: SnapshotQuery) -> Result<u64> {
        Ok(0)
    }

    async fn query_events(&self, _: EventQuery) -> Result<EventPage> {
        Ok(EventPage { items: Vec::new(), next: None })
    }

    async fn count_events(&self, _: EventQuery) -> Result<u64> {
        Ok(0)
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl StoreAdmin for Nothing {
    fn name(&self) -> &Arc<str> {
        &self.name
    }

    fn backend(&self) -> &'static str {
        "memory"
    }

    async fn now(&self) -> Result<Timestamp> {
        Ok(self.clock.now())
    }

    async fn formats(&self) -> Result<Vec<Format>> {
        Ok(Vec::new())
    }

    async fn close(&self) -> Result<()> {
        Ok(())
    }
}

/// A backend of such stores.
#[derive(Debug)]
pub(super) struct NothingBackend;

#[derive(Debug)]
struct NothingPlace {
    clock: ManualClock,
    partitions: PartitionCount,
}

#[async_trait]
impl Backend for NothingBackend {
    async fn place(&self, settings: Settings) -> Arc<dyn Place> {
        let clock = ManualClock::new(Timestamp::from_millis(1_800_000_000_000).expect("an instant"));
        Arc::new(NothingPlace { clock, partitions: settings.partitions })
    }
}

#[async_trait]
impl Place for NothingPlace {
    async fn open(&self) -> Result<Arc<dyn EventStore>> {
        Ok(Arc::new(Nothing {
            name: Arc::from("memory"),
            clock: self.clock.clone(),
            partitions: self.partitions,
            wakeups: Wakeups::new(),
        }))
    }

    async fn second_handle(&self, _first: &Arc<dyn EventStore>) -> Result<Arc<dyn EventStore>> {
        self.open().await
    }

    fn clock(&self) -> Option<&ManualClock> {
        Some(&self.clock)
    }

    async fn lose_log_after(&self, _partition: &PartitionId, _after_position: Position) -> bool {
        true
    }
}
