//! Everything that is a record under a key: read it, ask the rule, write what it says.

use std::time::Duration;

use async_trait::async_trait;

use super::MemoryStore;
use crate::{
    AcquireLease, AggregateId, AggregateType, Attempt, Checkpoint, CheckpointSaved, Checkpoints, ClaimTimers,
    ContextName, Discarded, Failure, FailureCounts, FailureLedger, FailureState, Heartbeat, Lease,
    LeaseAcquired, LeaseRenewed, LeaseToken, Leases, ListFailures, ListReservations, Member, MemberId, Park,
    PartitionId, Reservation, ReservationKey, ReservationOp, ReservationOutcome, ReservationScope,
    Reservations, Result, SaveCheckpoint, SaveSnapshot, ScheduleTimer, Snapshot, SnapshotSaved, Snapshots,
    SubscriptionName, Timer, TimerId, TimerScheduled, TimerToken, Timers, Timestamp, Version,
    lease::check_ttl,
    rules::{self, reservation::Write},
};

#[async_trait]
impl Checkpoints for MemoryStore {
    async fn checkpoint(
        &self,
        subscription: &SubscriptionName,
        partition: &PartitionId,
    ) -> Result<Option<Checkpoint>> {
        let key = (subscription.clone(), partition.clone());
        self.with("checkpoint", |state, _| Ok(state.checkpoints.get(&key).cloned()))
    }

    async fn checkpoints(&self, context: &ContextName) -> Result<Vec<Checkpoint>> {
        self.with("checkpoints", |state, _| {
            let all = state.checkpoints.values();
            Ok(all.filter(|checkpoint| checkpoint.partition.context() == context).cloned().collect())
        })
    }

    async fn save_checkpoint(&self, save: SaveCheckpoint) -> Result<CheckpointSaved> {
        self.with("save_checkpoint", |state, now| {
            save.check()?;
            state.fence(save.fence().as_ref())?;
            let key = (save.subscription.clone(), save.partition.clone());
            let (next, saved) = rules::checkpoint::save(&save, state.checkpoints.get(&key), now)?;
            state.checkpoints.insert(key, next);
            Ok(saved)
        })
    }

    async fn reset_checkpoint(&self, reset: SaveCheckpoint) -> Result<()> {
        self.with("reset_checkpoint", |state, now| {
            reset.check()?;
            state.fence(reset.fence().as_ref())?;
            let key = (reset.subscription.clone(), reset.partition.clone());
            let next = rules::checkpoint::set(&reset, state.checkpoints.get(&key), now)?;
            state.checkpoints.insert(key, next);
            Ok(())
        })
    }
}

#[async_trait]
impl Leases for MemoryStore {
    async fn acquire_lease(&self, request: AcquireLease) -> Result<LeaseAcquired> {
        self.with("acquire_lease", |state, now| {
            let key = (request.group.clone(), request.partition.clone());
            let answer = rules::lease::acquire(&request, state.leases.get(&key), now)?;
            if let LeaseAcquired::Acquired(lease) = &answer {
                state.leases.insert(key, lease.clone());
            }
            Ok(answer)
        })
    }

    async fn renew_leases(&self, tokens: &[LeaseToken], ttl: Duration) -> Result<Vec<LeaseRenewed>> {
        self.with("renew_leases", |state, now| {
            check_ttl("lease", ttl)?;
            let mut answers = Vec::with_capacity(tokens.len());
            for token in tokens {
                let key = (token.group.clone(), token.partition.clone());
                let (lease, answer) = rules::lease::renew(token, ttl, state.leases.get(&key), now);
                if let Some(lease) = lease {
                    state.leases.insert(key, lease);
                }
                answers.push(answer);
            }
            Ok(answers)
        })
    }

    async fn release_lease(&self, token: &LeaseToken) -> Result<bool> {
        self.with("release_lease", |state, _| {
            let key = (token.group.clone(), token.partition.clone());
            match rules::lease::release(token, state.leases.get(&key)) {
                Some(lease) => {
                    state.leases.insert(key, lease);
                    Ok(true)
                }
                None => Ok(false),
            }
        })
    }

    async fn leases(&self, group: &SubscriptionName, context: &ContextName) -> Result<Vec<Lease>> {
        self.with("leases", |state, _| {
            let all = state.leases.values();
            Ok(all
                .filter(|lease| lease.group == *group && lease.partition.context() == context)
                .cloned()
                .collect())
        })
    }

    async fn heartbeat(&self, heartbeat: Heartbeat) -> Result<Member> {
        self.with("heartbeat", |state, now| {
            let key = (heartbeat.group.clone(), heartbeat.member.clone());
            let member = rules::lease::heartbeat(&heartbeat, state.members.get(&key), now)?;
            state.members.insert(key, member.clone());
            Ok(member)
        })
    }

    async fn members(&self, group: &SubscriptionName) -> Result<Vec<Member>> {
        self.with("members", |state, now| {
            let all = state.members.values();
            Ok(all.filter(|member| member.group == *group && now < member.expires_at).cloned().collect())
        })
    }

    async fn leave(&self, group: &SubscriptionName, member: &MemberId) -> Result<bool> {
        self.with("leave", |state, now| {
            let left = state.members.remove(&(group.clone(), member.clone()));
            Ok(left.is_some_and(|member| now < member.expires_at))
        })
    }
}

#[async_trait]
impl Snapshots for MemoryStore {
    async fn save_snapshot(&self, save: SaveSnapshot) -> Result<SnapshotSaved> {
        self.with("save_snapshot", |state, now| {
            save.check()?;
            let stored = state.snapshots.get(&save.aggregate_id);
            let stored = stored.map(|snapshot| (snapshot.revision, snapshot.version));
            let answer = rules::snapshot::save(&save, stored, state.head(&save.aggregate_id))?;
            if answer == SnapshotSaved::Saved {
                state.snapshots.insert(save.aggregate_id.clone(), save.into_snapshot(now));
            }
            Ok(answer)
        })
    }

    async fn snapshot(&self, aggregate_id: &AggregateId, revision: u32) -> Result<Option<Snapshot>> {
        self.with("snapshot", |state, _| {
            let head = state.head(aggregate_id);
            let stored = state.snapshots.get(aggregate_id);
            Ok(stored.filter(|snapshot| rules::snapshot::is_usable(snapshot, revision, head)).cloned())
        })
    }

    async fn delete_snapshot(&self, aggregate_id: &AggregateId) -> Result<bool> {
        self.with("delete_snapshot", |state, _| Ok(state.snapshots.remove(aggregate_id).is_some()))
    }

    async fn drop_snapshots(&self, aggregate_type: &AggregateType) -> Result<u64> {
        self.with("drop_snapshots", |state, _| {
            let before = state.snapshots.len();
            state.snapshots.retain(|id, _| id.aggregate_type() != aggregate_type);
            Ok(u64::try_from(before - state.snapshots.len()).unwrap_or(u64::MAX))
        })
    }
}

#[async_trait]
impl FailureLedger for MemoryStore {
    async fn record_attempt(&self, attempt: Attempt) -> Result<Failure> {
        self.with("record_attempt", |state, now| {
            attempt.check()?;
            state.fence(attempt.fence().as_ref())?;
            let key = (attempt.subscription.clone(), attempt.aggregate_id.clone());
            let failure = rules::ledger::record_attempt(&attempt, state.failures.get(&key), now);
            state.failures.insert(key, failure.clone());
            Ok(failure)
        })
    }

    async fn park(&self, park: Park) -> Result<Failure> {
        self.with("park", |state, now| {
            park.attempt.check()?;
            state.fence(park.attempt.fence().as_ref())?;
            let key = (park.attempt.subscription.clone(), park.attempt.aggregate_id.clone());
            let failure = rules::ledger::park(&park, state.failures.get(&key), now);
            state.failures.insert(key, failure.clone());
            Ok(failure)
        })
    }

    async fn retry(&self, subscription: &SubscriptionName, aggregate_id: &AggregateId) -> Result<bool> {
        self.with("retry", |state, now| {
            let key = (subscription.clone(), aggregate_id.clone());
            match rules::ledger::retry(state.failures.get(&key), now) {
                Some(failure) => {
                    state.failures.insert(key, failure);
                    Ok(true)
                }
                None => Ok(false),
            }
        })
    }

    async fn discard(
        &self,
        subscription: &SubscriptionName,
        aggregate_id: &AggregateId,
        version: Version,
    ) -> Result<bool> {
        self.with("discard", |state, now| {
            let key = (subscription.clone(), aggregate_id.clone());
            match rules::ledger::discard(state.failures.get(&key), version, now) {
                Some((failure, discarded)) => {
                    state.failures.insert(key, failure);
                    state.discarded.push(discarded);
                    Ok(true)
                }
                None => Ok(false),
            }
        })
    }

    async fn advance(&self, attempt: Attempt) -> Result<bool> {
        self.with("advance", |state, now| {
            attempt.check()?;
            state.fence(attempt.fence().as_ref())?;
            let key = (attempt.subscription.clone(), attempt.aggregate_id.clone());
            match rules::ledger::advance(&attempt, state.failures.get(&key), now) {
                Some(failure) => {
                    state.failures.insert(key, failure);
                    Ok(true)
                }
                None => Ok(false),
            }
        })
    }

    async fn resolve(&self, attempt: Attempt) -> Result<bool> {
        self.with("resolve", |state, _| {
            attempt.check()?;
            state.fence(attempt.fence().as_ref())?;
            let key = (attempt.subscription.clone(), attempt.aggregate_id.clone());
            match state.failures.get(&key) {
                Some(known) if rules::ledger::resolves(&attempt, known) => {
                    state.failures.remove(&key);
                    Ok(true)
                }
                Some(_) => Ok(false),
                None => Ok(true),
            }
        })
    }

    async fn failure(
        &self,
        subscription: &SubscriptionName,
        aggregate_id: &AggregateId,
    ) -> Result<Option<Failure>> {
        let key = (subscription.clone(), aggregate_id.clone());
        self.with("failure", |state, _| Ok(state.failures.get(&key).cloned()))
    }

    async fn failures(&self, list: ListFailures) -> Result<Vec<Failure>> {
        self.with("failures", |state, _| {
            let all = state.failures.values();
            Ok(all.filter(|failure| list.matches(failure)).take(list.limit).cloned().collect())
        })
    }

    async fn discarded(&self, subscription: &SubscriptionName, limit: usize) -> Result<Vec<Discarded>> {
        self.with("discarded", |state, _| {
            let newest_first = state.discarded.iter().rev();
            Ok(newest_first.filter(|it| it.subscription == *subscription).take(limit).cloned().collect())
        })
    }

    async fn failure_counts(&self, subscription: &SubscriptionName) -> Result<FailureCounts> {
        self.with("failure_counts", |state, _| {
            let mut counts = FailureCounts::default();
            for failure in state.failures.values().filter(|failure| failure.subscription == *subscription) {
                match failure.state {
                    FailureState::Trying => counts.trying += 1,
                    FailureState::Parked => counts.parked += 1,
                    FailureState::Retrying => counts.retrying += 1,
                }
            }
            let discarded = state.discarded.iter().filter(|it| it.subscription == *subscription).count();
            counts.discarded = u64::try_from(discarded).unwrap_or(u64::MAX);
            Ok(counts)
        })
    }
}

#[async_trait]
impl Reservations for MemoryStore {
    async fn reserve(&self, op: ReservationOp) -> Result<ReservationOutcome> {
        self.with("reserve", |state, now| {
            let scope = op.scope();
            let (writes, outcome) = rules::reservation::decide(&op, now, |key| {
                Ok(state.reservations.get(&(scope.clone(), key.clone())).cloned())
            })?;
            for write in writes {
                match write {
                    Write::Put(put) => state.reservations.insert((scope.clone(), put.key.clone()), put),
                    Write::Delete(key) => state.reservations.remove(&(scope.clone(), key)),
                };
            }
            Ok(outcome)
        })
    }

    async fn reservation(
        &self,
        scope: &ReservationScope,
        key: &ReservationKey,
    ) -> Result<Option<Reservation>> {
        let key = (scope.clone(), key.clone());
        self.with("reservation", |state, now| {
            Ok(state.reservations.get(&key).filter(|reservation| reservation.is_live(now)).cloned())
        })
    }

    async fn reservations(&self, list: ListReservations) -> Result<Vec<Reservation>> {
        self.with("reservations", |state, now| {
            let all = state.reservations.iter();
            Ok(all
                .filter(|(key, _)| list.after.as_ref().is_none_or(|after| *key > after))
                .map(|(_, reservation)| reservation)
                .filter(|it| list.scope.as_ref().is_none_or(|scope| it.scope == *scope) && it.is_live(now))
                .take(list.limit)
                .cloned()
                .collect())
        })
    }
}

#[async_trait]
impl Timers for MemoryStore {
    async fn schedule_timer(&self, schedule: ScheduleTimer) -> Result<TimerScheduled> {
        self.with("schedule_timer", |state, now| {
            state.fence(schedule.fence.as_ref())?;
            let key = (schedule.context.clone(), schedule.id.clone());
            let outcome = rules::timer::schedule(schedule, state.timers.get(&key), now);
            if let TimerScheduled::Scheduled(timer) = &outcome {
                state.timers.insert(key, timer.clone());
            }
            Ok(outcome)
        })
    }

    async fn cancel_timer(&self, context: &ContextName, id: &TimerId) -> Result<bool> {
        let key = (context.clone(), id.clone());
        self.with("cancel_timer", |state, _| Ok(state.timers.remove(&key).is_some()))
    }

    async fn claim_timers(&self, claim: ClaimTimers) -> Result<Vec<Timer>> {
        self.with("claim_timers", |state, now| {
            claim.check()?;
            let of_context = state.timers.values().filter(|timer| timer.context == claim.context);
            let mut due: Vec<&Timer> = of_context.filter(|timer| timer.claimable_at() <= now).collect();
            due.sort_by(|a, b| (a.due_at, &a.id).cmp(&(b.due_at, &b.id)));
            let due = due.into_iter().take(claim.limit);
            let claimed: Vec<Timer> =
                due.filter_map(|timer| rules::timer::claim(&claim, timer, now)).collect();
            for timer in &claimed {
                state.timers.insert((timer.context.clone(), timer.id.clone()), timer.clone());
            }
            Ok(claimed)
        })
    }

    async fn complete_timer(&self, token: &TimerToken) -> Result<bool> {
        let key = (token.context.clone(), token.id.clone());
        self.with("complete_timer", |state, _| {
            let is_mine =
                state.timers.get(&key).is_some_and(|timer| rules::timer::is_claimed_by(token, timer));
            if is_mine {
                state.timers.remove(&key);
            }
            Ok(is_mine)
        })
    }

    async fn release_timer(&self, token: &TimerToken, retry_in: Duration) -> Result<bool> {
        let key = (token.context.clone(), token.id.clone());
        self.with("release_timer", |state, now| {
            let released =
                state.timers.get(&key).and_then(|timer| rules::timer::release(token, timer, retry_in, now));
            match released {
                Some(timer) => {
                    state.timers.insert(key, timer);
                    Ok(true)
                }
                None => Ok(false),
            }
        })
    }

    async fn next_due(&self, context: &ContextName) -> Result<Option<Timestamp>> {
        self.with("next_due", |state, _| {
            let of_context = state.timers.values().filter(|timer| timer.context == *context);
            Ok(of_context.map(Timer::claimable_at).min())
        })
    }

    async fn timers(
        &self,
        context: &ContextName,
        after: Option<&TimerId>,
        limit: usize,
    ) -> Result<Vec<Timer>> {
        self.with("timers", |state, _| {
            let of_context = state.timers.values().filter(|timer| timer.context == *context);
            Ok(of_context
                .filter(|timer| after.is_none_or(|after| timer.id > *after))
                .take(limit)
                .cloned()
                .collect())
        })
    }
}
