//! Faults that show when many write at once, or when a writer goes away (L1, L2, L3, L5, L8, L10, L11).

use std::{collections::BTreeSet, time::Duration};

use tokio::{task::yield_now, time::sleep};
use wow_store_api::{
    AggregateType, CheckedCommit, Error, ErrorKind, EventLog as _, ExpectedVersion, Page, ReadPage, Receipt,
    Result,
};

use super::{
    Mutant, admin::AdminFault, append_all::AppendAllFault, mutants, rewrite::rewrite, tail::TailFault,
};

mutants! { RaceFault in "append_races":
    /// The expected version is looked at before the lock is taken.
    LooksBeforeItLocks => ["append_races::one_version_has_one_winner"],
    /// Where any version is right, the one that is there is read first and then expected.
    AnyIsReadFirst => [
        "append_races::writers_that_expect_anything_all_succeed",
        "append_races::order_of_arrival_is_kept_for_one_aggregate",
        "append_races::a_reader_never_sees_a_hole_or_goes_back",
    ],
    /// The command is looked for before the lock is taken.
    CommandBeforeTheLock => ["append_races::one_command_from_many_tasks_is_stored_once"],
    /// Appends that meet in a partition are told of a conflict.
    NeighboursConflict => [
        "append_races::writers_that_expect_anything_all_succeed",
        "append_races::writers_on_different_aggregates_never_conflict",
        "append_races::one_command_from_many_tasks_is_stored_once",
        "append_races::every_append_of_a_batch_gets_its_own_outcome",
        "append_races::order_of_arrival_is_kept_for_one_aggregate",
        "append_races::new_aggregate_types_appear_from_many_tasks_at_once",
        "append_races::a_dropped_append_is_stored_whole_or_not_at_all",
        "append_races::a_reader_never_sees_a_hole_or_goes_back",
        "append_races::what_was_acknowledged_is_seen_by_all",
        "tail::nothing_is_missed_under_concurrent_writers",
        "riders::appends_race_for_one_key",
        "riders::appends_race_for_one_timer",
    ],
    /// A refused append takes those along that share its transaction.
    RefusalTakesNeighboursAlong => [
        "append_races::one_version_has_one_winner",
        "append_races::every_append_of_a_batch_gets_its_own_outcome",
        "riders::appends_race_for_one_key",
        "riders::appends_race_for_one_timer",
    ],
    /// What comes later goes first.
    LastComeFirstServed => ["append_races::order_of_arrival_is_kept_for_one_aggregate"],
    /// Two that create a new type at once are in each other's way.
    NewTypesCollide => [
        "append_races::one_version_has_one_winner",
        "append_races::writers_that_expect_anything_all_succeed",
        "append_races::writers_on_different_aggregates_never_conflict",
        "append_races::one_command_from_many_tasks_is_stored_once",
        "append_races::new_aggregate_types_appear_from_many_tasks_at_once",
        "append_races::a_dropped_append_is_stored_whole_or_not_at_all",
        "append_races::a_reader_never_sees_a_hole_or_goes_back",
        "append_races::what_was_acknowledged_is_seen_by_all",
        "tail::nothing_is_missed_under_concurrent_writers",
        "riders::appends_race_for_one_key",
        "riders::appends_race_for_one_timer",
    ],
    /// An append of several locks its partitions in the order of its commits.
    LocksInTheOrderGiven => [
        "append_races::appends_in_opposite_orders_never_deadlock",
        "append_races::several_commits_race_as_one",
        "append_races::a_dropped_append_of_several_is_stored_whole_or_not_at_all",
    ],
    /// An append that was dropped keeps its lock.
    DroppedAppendKeepsItsLock => ["append_races::a_dropped_append_is_stored_whole_or_not_at_all"],
    /// A command is remembered in a second step.
    CommandIsNotedLater => [
        "append_races::one_command_from_many_tasks_is_stored_once",
        "append_races::a_dropped_append_is_stored_whole_or_not_at_all",
    ],
    /// An append of several is made of one after the other.
    SeveralAreOneByOne => [
        "append_all::a_later_commit_sees_the_earlier_ones",
        "append_all::a_fence_counts_from_the_commit_that_brings_it",
        "append_all::thirty_two_mebibytes_are_taken_and_more_refused",
        "append_races::several_commits_race_as_one",
        "fence::one_fenced_commit_refuses_them_all",
        "riders::one_refused_rider_refuses_all_commits",
    ],
    /// A position can be seen before the one in front of it.
    BecomesVisibleLate => [
        "append_races::a_reader_never_sees_a_hole_or_goes_back",
        "tail::wakes_up_for_an_append_that_meets_it_going_idle",
        "tail::a_dropped_next_loses_nothing",
        "tail::nothing_is_missed_under_concurrent_writers",
    ],
}

type Hidden = BTreeSet<(String, u32, u64)>;

impl Mutant {
    fn key(receipt: &Receipt) -> (String, u32, u64) {
        (receipt.partition.context().to_string(), receipt.partition.index(), receipt.position)
    }

    fn hide(&self, change: impl FnOnce(&mut Hidden)) {
        let mut hidden: Hidden = self.shared().get("hidden").unwrap_or_default();
        change(&mut hidden);
        self.shared().put("hidden", hidden);
    }

    /// What a reader sees of a page.
    pub(super) fn visible(&self, request: &ReadPage, mut page: Page) -> Page {
        let Some(hidden) = self.shared().get::<Hidden>("hidden").filter(|hidden| !hidden.is_empty()) else {
            return page;
        };
        let is_hidden = |position| {
            let partition = &request.partition;
            hidden.contains(&(partition.context().to_string(), partition.index(), position))
        };
        page.commits.retain(|commit| !is_hidden(commit.position));
        page
    }

    async fn lock(&self, name: String) {
        while self.shared().get(&name) == Some(true) {
            // Counts how often it was asked for, so that it gives up in the end where nobody else does.
            let _ = self.store();
            sleep(Duration::from_millis(1)).await;
        }
        self.shared().put(name, true);
    }

    fn unlock(&self, name: &str) {
        self.shared().put(name, false);
    }

    async fn first_come(&self, commit: &CheckedCommit) -> Result<CheckedCommit> {
        let id = commit.aggregate_id();
        let known = self.store().receipt(id, commit.command_id()).await?.is_some();
        let head = self.store().head(id).await?;
        let any = commit.expected() == ExpectedVersion::Any;
        if !known && !any && commit.expected().is_met_by(head) && self.is(RaceFault::LooksBeforeItLocks) {
            yield_now().await;
            return Ok(rewrite(commit, |parts| parts.expected = ExpectedVersion::Any));
        }
        if !known && any && self.is(RaceFault::AnyIsReadFirst) {
            yield_now().await;
            return Ok(rewrite(commit, |parts| parts.expected = ExpectedVersion::Exact(head)));
        }
        if !known && self.is(RaceFault::CommandBeforeTheLock) {
            yield_now().await;
            if self.store().receipt(id, commit.command_id()).await?.is_some() {
                let number = self.shared().count("doubled");
                return Ok(rewrite(commit, |parts| parts.command_id = format!("doubled-{number}")));
            }
        }
        Ok(commit.clone())
    }

    async fn new_type(&self, aggregate_type: &AggregateType) -> Result<()> {
        let key = format!("creating {aggregate_type}");
        let exists = self.store().aggregate_types().await?.contains(aggregate_type);
        if !exists && self.is(RaceFault::NewTypesCollide) {
            if self.shared().get(&key) == Some(true) {
                return Err(Error::not_applied(ErrorKind::Internal {
                    reason: "the table exists".to_owned(),
                }));
            }
            self.shared().put(key.clone(), true);
            yield_now().await;
            self.shared().put(key, false);
        }
        Ok(())
    }

    /// An append beside others.
    pub(super) async fn append_racing(&self, commit: CheckedCommit) -> Result<Receipt> {
        let commit = match self.first_come(&commit).await {
            Ok(commit) => commit,
            Err(_) => commit,
        };
        let id = commit.aggregate_id().clone();
        if let Err(error) = self.new_type(id.aggregate_type()).await
            && *error.kind() != ErrorKind::Closed
        {
            return Err(error);
        }
        let Ok((partition, _)) = self.place(&id).await else { return self.append_one(commit).await };
        if self.is(RaceFault::NeighboursConflict) {
            let busy = format!("busy {partition}");
            if self.shared().put(busy.clone(), true) == Some(true) {
                return Err(Self::conflict(&commit, self.store().head(&id).await?));
            }
            yield_now().await;
            let outcome = self.append_one(commit).await;
            self.shared().put(busy, false);
            return outcome;
        }
        if self.is(RaceFault::RefusalTakesNeighboursAlong) {
            let key = format!("refusals {partition}");
            let before: u64 = self.shared().get(&key).unwrap_or_default();
            yield_now().await;
            let now: u64 = self.shared().get(&key).unwrap_or_default();
            if now > before {
                let reason = "the transaction was aborted".to_owned();
                return Err(Error::not_applied(ErrorKind::Unavailable { reason }));
            }
            let outcome = self.append_one(commit).await;
            self.shared().put(key, now + u64::from(outcome.is_err()));
            return outcome;
        }
        if commit.expected() == ExpectedVersion::Any && self.is(RaceFault::LastComeFirstServed) {
            for _ in 0..3 - self.shared().count("come") % 3 {
                yield_now().await;
            }
        }
        if self.is(RaceFault::DroppedAppendKeepsItsLock) {
            let lock = format!("lock {partition}");
            self.lock(lock.clone()).await;
            yield_now().await;
            let outcome = self.append_one(commit).await;
            self.unlock(&lock);
            return outcome;
        }
        if self.is(TailFault::WakesBeforeTheCommit) {
            self.wake_now(&partition);
            yield_now().await;
        }
        self.append_and_note(commit).await
    }

    async fn append_and_note(&self, commit: CheckedCommit) -> Result<Receipt> {
        let (id, command) = (commit.aggregate_id().clone(), commit.command_id().clone());
        if self.is(RaceFault::CommandIsNotedLater) {
            let noted = format!("noted {id:?} {command:?}");
            if self.store().receipt(&id, &command).await?.is_some()
                && self.shared().get::<bool>(&noted).is_none()
            {
                // It is there, and yet not known.
                let number = self.shared().count("doubled");
                let again = rewrite(&commit, |parts| {
                    parts.command_id = format!("doubled-{number}");
                    parts.expected = ExpectedVersion::Any;
                });
                return self.append_one(again).await;
            }
            let receipt = self.append_one(commit).await?;
            yield_now().await;
            self.shared().put(noted, true);
            return Ok(receipt);
        }
        if self.is(AdminFault::CloseDeniesWhatItStored) {
            let receipt = self.append_one(commit).await?;
            yield_now().await;
            yield_now().await;
            return match self.own().get("closed") {
                Some(true) => Err(Error::not_applied(ErrorKind::Closed)),
                _ => Ok(receipt),
            };
        }
        if self.is(RaceFault::BecomesVisibleLate) {
            let receipt = self.append_one(commit).await?;
            self.hide(|hidden| {
                hidden.insert(Self::key(&receipt));
            });
            for _ in 0..1 + receipt.position % 3 {
                yield_now().await;
            }
            self.hide(|hidden| {
                hidden.remove(&Self::key(&receipt));
            });
            return Ok(receipt);
        }
        let receipt = self.append_one(commit).await?;
        Ok(self.faulty_receipt(receipt).await)
    }

    /// An append of several beside others.
    pub(super) async fn append_all_racing(&self, commits: Vec<CheckedCommit>) -> Result<Vec<Receipt>> {
        if commits.len() > 1 && commits.len() < 10 && self.is(RaceFault::SeveralAreOneByOne) {
            let mut receipts = Vec::new();
            // All that is known of it before is looked at; then one is stored after the other.
            for commit in &commits {
                let id = commit.aggregate_id();
                let known = self.store().receipt(id, commit.command_id()).await?.is_some();
                let head = self.store().head(id).await?;
                if !known && !commit.expected().is_met_by(head) {
                    return self.append_all_last(commits).await;
                }
            }
            for commit in commits {
                yield_now().await;
                receipts.push(self.store().append_checked(commit).await?);
            }
            return Ok(receipts);
        }
        if commits.len() > 1 && commits.len() < 10 && self.is(RaceFault::LocksInTheOrderGiven) {
            let mut locks = Vec::new();
            for commit in &commits {
                let (partition, _) = self.place(commit.aggregate_id()).await?;
                let lock = format!("lock {partition}");
                if !locks.contains(&lock) {
                    self.lock(lock.clone()).await;
                    locks.push(lock);
                    yield_now().await;
                }
            }
            let outcome = self.append_all_last(commits).await;
            locks.iter().for_each(|lock| self.unlock(lock));
            return outcome;
        }
        if self.is_fault(AppendAllFault::TakesAnyNumber) || self.is_fault(AppendAllFault::TakesAnySize) {
            return self.append_all_unlimited(commits).await;
        }
        self.append_all_alone(commits).await
    }
}
