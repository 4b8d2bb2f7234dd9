//! Faults of fences (L7): of what the store makes of the epoch that a write carries, and of how it remembers it.

use wow_store_api::{
    AggregateId, Attempt, CheckedCommit, CheckpointSaved, Checkpoints as _, Epoch, Error, ErrorKind,
    EventLog as _, FailedCommit, FailureLedger as _, Fence, Lease, Leases as _, MAX_COUNTER, Receipt, Result,
    SaveCheckpoint, ScheduleTimer, SubscriptionName, rules,
};

use super::{Mutant, mutants, rewrite::rewrite};

mutants! { FenceFault in "fence":
    /// An append does not look at its fence.
    AppendIgnoresIt => [
        "log::refused_append_leaves_no_trace",
        "append_all::a_fence_counts_from_the_commit_that_brings_it",
        "append_races::every_append_of_a_batch_gets_its_own_outcome",
        "checkpoint::a_lease_taken_over_fences_before_anything_was_saved",
        "checkpoint::a_fenced_append_fences_it_and_the_other_way_round",
        "fence::overtaken_owner_cannot_append",
        "fence::epoch_of_every_fenced_write_is_remembered",
        "fence::remembered_epoch_survives_reopen",
        "fence::fence_of_one_lease_leaves_the_others_alone",
        "fence::fence_need_not_be_of_the_written_partition",
        "fence::fence_is_looked_at_before_the_version",
        "fence::last_epoch_can_be_used_but_not_overtaken",
        "riders::fenced_append_takes_them_all_back",
        "admin::an_error_names_the_operation_and_the_store",
        "admin::no_payload_is_shown_anywhere",
    ],
    /// An append of several commits does not look at their fences.
    AppendAllIgnoresThem => [
        "append_all::a_fence_counts_from_the_commit_that_brings_it",
        "append_all::the_first_refusal_is_told",
        "fence::overtaken_owner_cannot_append_all",
        "fence::epoch_of_every_fenced_write_is_remembered",
        "fence::remembered_epoch_survives_reopen",
        "fence::one_fenced_commit_refuses_them_all",
        "fence::epoch_beyond_the_last_is_refused",
    ],
    /// An append of several commits looks at the fence of the first only.
    AppendAllLooksAtTheFirst => [
        "append_all::a_fence_counts_from_the_commit_that_brings_it",
        "fence::one_fenced_commit_refuses_them_all",
    ],
    /// Saving a checkpoint does not look at the epoch.
    SaveIgnoresIt => [
        "checkpoint::a_lower_epoch_is_refused",
        "checkpoint::a_lower_epoch_is_refused_also_behind_the_checkpoint",
        "checkpoint::a_save_that_finds_it_ahead_raises_its_epoch",
        "checkpoint::a_lease_taken_over_fences_before_anything_was_saved",
        "checkpoint::a_fenced_append_fences_it_and_the_other_way_round",
        "checkpoint::reset_keeps_the_epoch",
        "checkpoint::reopen_keeps_checkpoints",
        "fence::overtaken_owner_cannot_save_a_checkpoint",
        "fence::epoch_of_every_fenced_write_is_remembered",
        "fence::remembered_epoch_survives_reopen",
        "admin::an_error_names_the_operation_and_the_store",
    ],
    /// Resetting a checkpoint does not look at the epoch.
    ResetIgnoresIt => [
        "checkpoint::a_lower_epoch_is_refused",
        "checkpoint::a_lease_taken_over_fences_before_anything_was_saved",
        "fence::overtaken_owner_cannot_reset_a_checkpoint",
        "fence::epoch_of_every_fenced_write_is_remembered",
        "fence::remembered_epoch_survives_reopen",
        "admin::an_error_names_the_operation_and_the_store",
    ],
    /// Counting an attempt does not look at the epoch.
    RecordIgnoresIt => [
        "fence::overtaken_owner_cannot_write_the_ledger",
        "fence::epoch_of_every_fenced_write_is_remembered",
        "fence::remembered_epoch_survives_reopen",
    ],
    /// Parking does not look at the epoch.
    ParkIgnoresIt => [
        "fence::overtaken_owner_cannot_write_the_ledger",
        "fence::epoch_of_every_fenced_write_is_remembered",
        "fence::remembered_epoch_survives_reopen",
    ],
    /// Advancing does not look at the epoch.
    AdvanceIgnoresIt => [
        "fence::overtaken_owner_cannot_write_the_ledger",
        "fence::epoch_of_every_fenced_write_is_remembered",
        "fence::remembered_epoch_survives_reopen",
    ],
    /// Resolving does not look at the epoch.
    ResolveIgnoresIt => [
        "fence::overtaken_owner_cannot_write_the_ledger",
        "fence::epoch_of_every_fenced_write_is_remembered",
        "fence::remembered_epoch_survives_reopen",
    ],
    /// Scheduling a timer does not look at the fence.
    TimerIgnoresIt => [
        "fence::overtaken_owner_cannot_schedule_a_timer",
        "fence::epoch_of_every_fenced_write_is_remembered",
        "fence::remembered_epoch_survives_reopen",
    ],
    /// The owner itself is taken for overtaken when it schedules a timer.
    OwnerIsRefused => [
        "fence::overtaken_owner_cannot_append",
        "fence::overtaken_owner_cannot_append_all",
        "fence::overtaken_owner_cannot_save_a_checkpoint",
        "fence::overtaken_owner_cannot_reset_a_checkpoint",
        "fence::overtaken_owner_cannot_write_the_ledger",
        "fence::overtaken_owner_cannot_schedule_a_timer",
        "fence::owner_is_let_through_everywhere",
        "fence::owner_nobody_overtook_is_let_through",
        "fence::writes_without_a_fence_are_let_through",
        "fence::epoch_of_every_fenced_write_is_remembered",
    ],
    /// An owner is refused when its time is over, though nobody took the lease.
    TimeDecides => ["fence::owner_nobody_overtook_is_let_through"],
    /// A timer without a fence is refused once the lease of partition 0 was held.
    UnfencedIsRefused => ["fence::writes_without_a_fence_are_let_through"],
    /// An append with a newer epoch than any known leaves no trace of it.
    NewerEpochIsNotRemembered => [
        "log::refused_append_leaves_no_trace",
        "append_all::the_first_refusal_is_told",
        "append_races::every_append_of_a_batch_gets_its_own_outcome",
        "checkpoint::a_fenced_append_fences_it_and_the_other_way_round",
        "fence::epoch_of_every_fenced_write_is_remembered",
        "fence::remembered_epoch_survives_reopen",
        "fence::newer_fence_ends_the_lease_it_overtakes",
        "fence::fence_of_one_lease_leaves_the_others_alone",
        "fence::fence_need_not_be_of_the_written_partition",
        "fence::fence_is_looked_at_before_the_version",
        "fence::one_fenced_commit_refuses_them_all",
        "fence::epoch_beyond_the_last_is_refused",
        "fence::last_epoch_can_be_used_but_not_overtaken",
        "riders::fenced_append_takes_them_all_back",
        "admin::an_error_names_the_operation_and_the_store",
        "admin::no_payload_is_shown_anywhere",
    ],
    /// Opened again, the store forgets which epochs it saw on appends.
    ForgetsAtReopen => ["fence::remembered_epoch_survives_reopen"],
    /// A newer epoch on an append raises no epoch of the lease itself.
    LeaseDoesNotLearn => [
        "append_all::the_first_refusal_is_told",
        "checkpoint::a_fenced_append_fences_it_and_the_other_way_round",
        "fence::epoch_of_every_fenced_write_is_remembered",
        "fence::remembered_epoch_survives_reopen",
        "fence::newer_fence_ends_the_lease_it_overtakes",
        "fence::fence_of_one_lease_leaves_the_others_alone",
        "fence::fence_need_not_be_of_the_written_partition",
        "fence::fence_is_looked_at_before_the_version",
        "fence::one_fenced_commit_refuses_them_all",
        "fence::last_epoch_can_be_used_but_not_overtaken",
        "admin::an_error_names_the_operation_and_the_store",
    ],
    /// All partitions of a group share one epoch.
    OneEpochPerGroup => [
        "fence::epoch_of_every_fenced_write_is_remembered",
        "fence::fence_of_one_lease_leaves_the_others_alone",
    ],
    /// All groups share the epochs of a partition.
    OneEpochPerPartition => ["fence::fence_of_one_lease_leaves_the_others_alone"],
    /// A fence counts only for appends to the partition that it is of.
    OnlyForItsPartition => [
        "append_all::a_fence_counts_from_the_commit_that_brings_it",
        "checkpoint::a_lease_taken_over_fences_before_anything_was_saved",
        "checkpoint::a_fenced_append_fences_it_and_the_other_way_round",
        "fence::overtaken_owner_cannot_append",
        "fence::epoch_of_every_fenced_write_is_remembered",
        "fence::remembered_epoch_survives_reopen",
        "fence::fence_of_one_lease_leaves_the_others_alone",
        "fence::fence_need_not_be_of_the_written_partition",
        "fence::fence_is_looked_at_before_the_version",
        "fence::last_epoch_can_be_used_but_not_overtaken",
        "riders::fenced_append_takes_them_all_back",
        "admin::an_error_names_the_operation_and_the_store",
        "admin::no_payload_is_shown_anywhere",
    ],
    /// The fence is looked at before the command id.
    BeforeTheReplay => [
        "fence::replay_is_answered_whatever_the_fence",
        "admin::an_error_names_the_operation_and_the_store",
    ],
    /// The version is looked at before the fence.
    AfterTheVersion => ["fence::fence_is_looked_at_before_the_version"],
    /// An epoch beyond the last one counts as the last one.
    EpochIsNotChecked => ["fence::epoch_beyond_the_last_is_refused"],
    /// The last epoch is refused.
    LastEpochIsRefused => ["fence::last_epoch_can_be_used_but_not_overtaken"],
    /// The fence is looked at, then let go, then the commit is written.
    LooksThenWrites => ["fence::no_stale_append_lands_behind_a_take_over"],
}

/// The subscription under whose name a fence is kept where it does not belong.
fn elsewhere() -> SubscriptionName {
    SubscriptionName::new("elsewhere").expect("a valid name")
}

fn with_fence(commit: &CheckedCommit, fence: Option<Fence>) -> CheckedCommit {
    rewrite(commit, |parts| parts.fence = fence)
}

fn overtaken(fence: &Fence, current: Epoch) -> Error {
    Error::not_applied(ErrorKind::Fenced {
        group: fence.group.clone(),
        partition: fence.partition.clone(),
        epoch: fence.epoch,
        current,
    })
}

impl Mutant {
    /// The lease that a fence is of, as the store knows it.
    async fn fenced_lease(&self, fence: &Fence) -> Option<Lease> {
        let leases = self.store().leases(&fence.group, fence.partition.context()).await.ok()?;
        leases.into_iter().find(|lease| lease.partition == fence.partition)
    }

    pub(super) async fn known_epoch(&self, fence: &Fence) -> Epoch {
        self.fenced_lease(fence).await.map_or(0, |lease| lease.epoch)
    }

    /// Whether a fence was overtaken, and it makes no difference.
    async fn is_let_through(&self, fence: Option<Fence>, fault: FenceFault) -> bool {
        match fence {
            Some(fence) => fence.epoch < self.known_epoch(&fence).await && self.is(fault),
            None => false,
        }
    }

    /// Lets the store see an epoch.
    pub(super) async fn raise(&self, fence: &Fence) -> Result<()> {
        let nobody = AggregateId::new(fence.partition.context(), "nobody", "nobody")?;
        let attempt = Attempt {
            subscription: fence.group.clone(),
            aggregate_id: nobody,
            partition: fence.partition.clone(),
            commit: FailedCommit { position: 1, version: 1 },
            epoch: Some(fence.epoch),
        };
        self.store().resolve(attempt).await.map(drop)
    }

    /// An append of one commit, from its fence on.
    pub(super) async fn append_fenced(&self, commit: CheckedCommit) -> Result<Receipt> {
        let Some(fence) = commit.fence().cloned() else { return self.append_laden(commit).await };
        let lease = self.fenced_lease(&fence).await;
        let known = lease.as_ref().map_or(0, |lease| lease.epoch);
        if fence.partition.index() > 0 && self.is(FenceFault::OneEpochPerGroup) {
            let partition = wow_store_api::PartitionId::new(fence.partition.context().clone(), 0);
            return self.append_laden(with_fence(&commit, Some(Fence { partition, ..fence }))).await;
        }
        if fence.group != "mailer" && self.is(FenceFault::OneEpochPerPartition) {
            let group = SubscriptionName::new("mailer")?;
            return self.append_laden(with_fence(&commit, Some(Fence { group, ..fence }))).await;
        }
        if fence.epoch > MAX_COUNTER && self.is(FenceFault::EpochIsNotChecked) {
            return self.append_laden(with_fence(&commit, Some(Fence { epoch: MAX_COUNTER, ..fence }))).await;
        }
        if fence.epoch == MAX_COUNTER && self.is(FenceFault::LastEpochIsRefused) {
            return Err(Error::invalid_input("that is no epoch"));
        }
        match fence.epoch.cmp(&known) {
            std::cmp::Ordering::Less => self.append_overtaken(commit, &fence, known).await,
            std::cmp::Ordering::Equal => self.append_owned(commit, &fence, lease).await,
            std::cmp::Ordering::Greater => self.append_newer(commit, fence).await,
        }
    }

    async fn append_overtaken(&self, commit: CheckedCommit, fence: &Fence, known: Epoch) -> Result<Receipt> {
        let id = commit.aggregate_id();
        if self.is(FenceFault::BeforeTheReplay) {
            return Err(overtaken(fence, known));
        }
        if self.is(FenceFault::AfterTheVersion) {
            rules::append::next_version(&commit, self.store().head(id).await?)?;
        }
        let count = self.store().partitions(id.context()).await?;
        let is_elsewhere = count.partition_of(id) != fence.partition;
        if self.is(FenceFault::AppendIgnoresIt)
            || is_elsewhere && self.is(FenceFault::OnlyForItsPartition)
            || self.reopened() > 0 && self.is(FenceFault::ForgetsAtReopen)
        {
            return self.append_laden(with_fence(&commit, None)).await;
        }
        self.append_laden(commit).await
    }

    async fn append_owned(
        &self,
        commit: CheckedCommit,
        fence: &Fence,
        lease: Option<Lease>,
    ) -> Result<Receipt> {
        let now = self.time().await;
        let is_over = lease.is_some_and(|lease| {
            lease.live_owner(now).is_none() && lease.expires_at > wow_store_api::Timestamp::UNIX_EPOCH
        });
        if is_over && self.is(FenceFault::TimeDecides) {
            return Err(overtaken(fence, fence.epoch));
        }
        if self.is(FenceFault::LooksThenWrites) {
            tokio::task::yield_now().await;
            return self.append_laden(with_fence(&commit, None)).await;
        }
        self.append_laden(commit).await
    }

    async fn append_newer(&self, commit: CheckedCommit, fence: Fence) -> Result<Receipt> {
        if self.is(FenceFault::NewerEpochIsNotRemembered) {
            return self.append_laden(with_fence(&commit, None)).await;
        }
        if self.is(FenceFault::LeaseDoesNotLearn) {
            let fence = Fence { group: elsewhere(), ..fence };
            return self.append_laden(with_fence(&commit, Some(fence))).await;
        }
        self.append_laden(commit).await
    }

    /// An append of several commits, from their fences on.
    pub(super) async fn append_all_fenced(&self, commits: Vec<CheckedCommit>) -> Result<Vec<Receipt>> {
        let fenced = commits.iter().filter(|commit| commit.fence().is_some()).count();
        if fenced > 1 && self.is(FenceFault::AppendAllLooksAtTheFirst) {
            let first = commits.iter().position(|commit| commit.fence().is_some());
            let commits = commits.iter().enumerate().map(|(n, commit)| match Some(n) == first {
                true => commit.clone(),
                false => with_fence(commit, None),
            });
            return self.append_all_laden(commits.collect()).await;
        }
        if fenced > 0 && self.is(FenceFault::AppendAllIgnoresThem) {
            let commits = commits.iter().map(|commit| with_fence(commit, None)).collect();
            return self.append_all_laden(commits).await;
        }
        self.append_all_laden(commits).await
    }

    /// What [`wow_store_api::Checkpoints::save_checkpoint`] does.
    pub(super) async fn save_fenced(&self, mut save: SaveCheckpoint) -> Result<CheckpointSaved> {
        if self.is_let_through(save.fence(), FenceFault::SaveIgnoresIt).await {
            save.epoch = None;
        }
        self.store().save_checkpoint(save).await
    }

    /// What [`wow_store_api::Checkpoints::reset_checkpoint`] does.
    pub(super) async fn reset_fenced(&self, mut reset: SaveCheckpoint) -> Result<()> {
        if self.is_let_through(reset.fence(), FenceFault::ResetIgnoresIt).await {
            reset.epoch = None;
        }
        self.store().reset_checkpoint(reset).await
    }

    /// An attempt as the ledger sees it.
    pub(super) async fn fenced_attempt(&self, mut attempt: Attempt, fault: FenceFault) -> Attempt {
        if self.is_let_through(attempt.fence(), fault).await {
            attempt.epoch = None;
        }
        attempt
    }

    /// A timer as it is scheduled on its own.
    pub(super) async fn fenced_timer(&self, mut timer: ScheduleTimer) -> Result<ScheduleTimer> {
        let Some(fence) = timer.fence.clone() else {
            let partition = wow_store_api::PartitionId::new(timer.context.clone(), 0);
            let fence = Fence { group: SubscriptionName::new("mailer")?, partition, epoch: 0 };
            let known = self.known_epoch(&fence).await;
            if known > 0 && self.is(FenceFault::UnfencedIsRefused) {
                return Err(overtaken(&fence, known));
            }
            return Ok(timer);
        };
        let known = self.known_epoch(&fence).await;
        if fence.epoch < known && self.is(FenceFault::TimerIgnoresIt) {
            timer.fence = None;
        }
        if fence.epoch == known && known > 0 && self.is(FenceFault::OwnerIsRefused) {
            return Err(overtaken(&fence, known));
        }
        Ok(timer)
    }
}
