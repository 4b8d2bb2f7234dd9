//! Faults of what rides in an append (R5).

use wow_store_api::{
    CheckedCommit, Error, ErrorKind, EventLog as _, Fence, Receipt, ReservationOp, ReservationOutcome,
    Reservations as _, Result, ScheduleTimer, TimerId, TimerOp, TimerScheduled, Timers as _, rules,
};

use super::{Mutant, mutants, rewrite::rewrite};

mutants! { RiderFault in "riders":
    /// Reservations that ride in a commit are lost.
    ReservationsAreLost => [
        "riders::ride_in_with_their_commit",
        "riders::taken_key_stores_nothing",
        "riders::key_not_held_stores_nothing",
        "riders::expired_key_cannot_be_confirmed",
        "riders::appends_race_for_one_key",
        "riders::append_races_a_plain_reserve",
        "riders::keys_see_earlier_riders",
        "riders::ride_in_several_commits",
        "riders::one_refused_rider_refuses_all_commits",
        "riders::number_is_limited",
        "riders::expiry_has_bounds",
        "riders::version_is_looked_at_first",
    ],
    /// Timers that ride in a commit are lost.
    TimersAreLost => [
        "riders::ride_in_with_their_commit",
        "riders::existing_timer_stores_nothing",
        "riders::replacing_timer_rides_in",
        "riders::appends_race_for_one_timer",
        "riders::timers_see_earlier_riders",
        "riders::ride_in_several_commits",
        "riders::one_refused_rider_refuses_all_commits",
        "riders::number_is_limited",
        "riders::timers_are_of_the_commits_context",
        "riders::fence_of_the_commit_counts",
        "riders::survive_reopen",
    ],
    /// The riders are run on their own, before the commit.
    RunBeforeTheCommit => [
        "riders::version_conflict_takes_them_all_back",
        "riders::fenced_append_takes_them_all_back",
        "riders::taken_key_stores_nothing",
        "riders::key_not_held_stores_nothing",
        "riders::existing_timer_stores_nothing",
        "riders::keys_see_earlier_riders",
        "riders::timers_see_earlier_riders",
        "riders::version_is_looked_at_first",
    ],
    /// The riders are run on their own, after the commit.
    RunAfterTheCommit => [
        "riders::taken_key_stores_nothing",
        "riders::key_not_held_stores_nothing",
        "riders::expired_key_cannot_be_confirmed",
        "riders::existing_timer_stores_nothing",
        "riders::appends_race_for_one_key",
        "riders::append_races_a_plain_reserve",
        "riders::appends_race_for_one_timer",
        "riders::keys_see_earlier_riders",
        "riders::timers_see_earlier_riders",
        "riders::version_is_looked_at_first",
    ],
    /// A key that is taken is no reason to refuse a commit.
    TakenIsFine => [
        "riders::taken_key_stores_nothing",
        "riders::expired_key_cannot_be_confirmed",
        "riders::appends_race_for_one_key",
        "riders::append_races_a_plain_reserve",
        "riders::keys_see_earlier_riders",
        "riders::version_is_looked_at_first",
    ],
    /// A key that is not held is no reason to refuse a commit.
    NotHeldIsFine => [
        "riders::key_not_held_stores_nothing",
        "riders::expired_key_cannot_be_confirmed",
        "riders::keys_see_earlier_riders",
    ],
    /// A timer that exists is no reason to refuse a commit.
    ExistingIsFine => [
        "riders::existing_timer_stores_nothing",
        "riders::appends_race_for_one_timer",
        "riders::timers_see_earlier_riders",
    ],
    /// A key is looked at first, and the commit is written then.
    LooksThenWrites => [
        "riders::taken_key_stores_nothing",
        "riders::key_not_held_stores_nothing",
        "riders::expired_key_cannot_be_confirmed",
        "riders::appends_race_for_one_key",
        "riders::appends_race_for_one_timer",
        "riders::keys_see_earlier_riders",
        "riders::timers_see_earlier_riders",
    ],
    /// A timer that rides in a commit replaces another.
    AlwaysReplaces => [
        "riders::existing_timer_stores_nothing",
        "riders::appends_race_for_one_timer",
        "riders::timers_see_earlier_riders",
        "riders::one_refused_rider_refuses_all_commits",
    ],
    /// A timer that rides in a commit never replaces another.
    NeverReplaces => [
        "riders::replacing_timer_rides_in",
        "riders::timers_see_earlier_riders",
    ],
    /// A timer that is not there cannot be cancelled by a commit.
    CancelMustFindIt => [
        "riders::cancel_of_an_absent_timer_is_fine",
        "riders::timers_see_earlier_riders",
        "riders::ride_in_several_commits",
    ],
    /// The riders of a commit that is stored already are run again.
    ReplayRunsThem => [
        "riders::replay_does_not_run_them_again",
        "riders::one_refused_rider_refuses_all_commits",
    ],
    /// The riders of a commit are run in reverse.
    RunInReverse => [
        "riders::ride_in_with_their_commit",
        "riders::version_conflict_takes_them_all_back",
        "riders::fenced_append_takes_them_all_back",
        "riders::taken_key_stores_nothing",
        "riders::existing_timer_stores_nothing",
        "riders::replay_does_not_run_them_again",
        "riders::keys_see_earlier_riders",
        "riders::timers_see_earlier_riders",
        "riders::one_refused_rider_refuses_all_commits",
        "riders::survive_reopen",
    ],
    /// Of several commits only the first has riders.
    OnlyOfTheFirstCommit => [
        "riders::ride_in_several_commits",
        "riders::one_refused_rider_refuses_all_commits",
    ],
    /// Several commits are appended one by one.
    CommitByCommit => ["riders::one_refused_rider_refuses_all_commits"],
    /// A commit has at most 50 riders.
    FiftyAtMost => ["riders::number_is_limited"],
    /// A key cannot be reserved by a commit for the longest time.
    LongestIsRefused => ["riders::expiry_has_bounds"],
    /// The fence of a timer that rides in a commit is looked at.
    TimersOwnFenceCounts => ["riders::fence_of_the_commit_counts"],
    /// Keys are looked at before the version.
    KeysBeforeTheVersion => ["riders::version_is_looked_at_first"],
    /// Timers are looked at before keys.
    TimersBeforeKeys => ["riders::version_is_looked_at_first"],
    /// Timers of a commit that does not go through stay.
    RefusedCommitLeavesTimers => [
        "riders::version_conflict_takes_them_all_back",
        "riders::fenced_append_takes_them_all_back",
        "riders::taken_key_stores_nothing",
        "riders::key_not_held_stores_nothing",
        "riders::existing_timer_stores_nothing",
        "riders::timers_see_earlier_riders",
    ],
}

fn without_riders(commit: &CheckedCommit) -> CheckedCommit {
    rewrite(commit, |parts| {
        parts.reservations.clear();
        parts.timers.clear();
    })
}

fn has_riders(commit: &CheckedCommit) -> bool {
    !commit.reservations().is_empty() || !commit.timers().is_empty()
}

fn exists(id: &TimerId) -> Error {
    Error::not_applied(ErrorKind::TimerExists { id: id.clone() })
}

impl Mutant {
    async fn is_stored(&self, commit: &CheckedCommit) -> Result<bool> {
        Ok(self.store().receipt(commit.aggregate_id(), commit.command_id()).await?.is_some())
    }

    async fn run_timer(&self, op: &TimerOp) -> Result<()> {
        match op {
            TimerOp::Schedule(schedule) => {
                let alone = ScheduleTimer { fence: None, ..schedule.clone() };
                match self.store().schedule_timer(alone).await? {
                    TimerScheduled::Scheduled(_) => Ok(()),
                    TimerScheduled::Exists(timer) => Err(exists(&timer.id)),
                }
            }
            TimerOp::Cancel { context, id } => self.store().cancel_timer(context, id).await.map(drop),
        }
    }

    async fn run_riders(&self, commit: &CheckedCommit) -> Result<()> {
        for op in commit.reservations() {
            rules::reservation::ride(op, self.store().reserve(op.clone()).await?)?;
        }
        for op in commit.timers() {
            self.run_timer(op).await?;
        }
        Ok(())
    }

    /// Whether a timer is there.
    async fn has_timer(&self, op: &TimerOp) -> Result<bool> {
        let id = match op {
            TimerOp::Schedule(schedule) => &schedule.id,
            TimerOp::Cancel { id, .. } => id,
        };
        let timers = self.store().timers(op.context(), None, usize::MAX).await?;
        Ok(timers.iter().any(|timer| timer.id == *id))
    }

    /// A commit with riders that are changed by faults.
    async fn faulty_riders(&self, commit: CheckedCommit) -> Result<CheckedCommit> {
        if !has_riders(&commit) {
            return Ok(commit);
        }
        let (reservations, timers) = (commit.reservations().to_vec(), commit.timers().to_vec());
        if !reservations.is_empty() && self.is(RiderFault::ReservationsAreLost) {
            return Ok(rewrite(&commit, |parts| parts.reservations.clear()));
        }
        if !timers.is_empty() && self.is(RiderFault::TimersAreLost) {
            return Ok(rewrite(&commit, |parts| parts.timers.clear()));
        }
        if reservations.len() + timers.len() > 50 && self.is(RiderFault::FiftyAtMost) {
            return Err(Error::invalid_input("that is too much"));
        }
        let is_longest = |op: &ReservationOp| matches!(op, ReservationOp::Reserve { expires_in: Some(ttl), .. } if *ttl == wow_store_api::MAX_TTL);
        if reservations.iter().any(is_longest) && self.is(RiderFault::LongestIsRefused) {
            return Err(Error::invalid_input("that is too long"));
        }
        if reservations.len().max(timers.len()) > 1 && self.is(RiderFault::RunInReverse) {
            return Ok(rewrite(&commit, |parts| {
                parts.reservations.reverse();
                parts.timers.reverse();
            }));
        }
        let mut kept = Vec::new();
        for op in &timers {
            match op {
                TimerOp::Schedule(schedule) => kept.push(self.faulty_schedule(schedule.clone()).await?),
                TimerOp::Cancel { id, .. } => {
                    if !self.has_timer(op).await? && self.is(RiderFault::CancelMustFindIt) {
                        return Err(exists(id));
                    }
                    kept.push(op.clone());
                }
            }
        }
        if kept != timers {
            return Ok(rewrite(&commit, |parts| parts.timers = kept));
        }
        Ok(commit)
    }

    async fn faulty_schedule(&self, mut schedule: ScheduleTimer) -> Result<TimerOp> {
        if let Some(fence) = &schedule.fence {
            let Fence { group, partition, epoch } = fence.clone();
            let current = self.known_epoch(fence).await;
            if epoch < current && self.is(RiderFault::TimersOwnFenceCounts) {
                return Err(Error::not_applied(ErrorKind::Fenced { group, partition, epoch, current }));
            }
        }
        if schedule.replace && self.is(RiderFault::NeverReplaces) {
            schedule.replace = false;
        } else if !schedule.replace && self.is(RiderFault::AlwaysReplaces) {
            schedule.replace = true;
        }
        Ok(TimerOp::Schedule(schedule))
    }

    /// An append of one commit, from its riders on.
    pub(super) async fn append_laden(&self, commit: CheckedCommit) -> Result<Receipt> {
        if !has_riders(&commit) {
            return self.store().append_checked(commit).await;
        }
        if self.is_stored(&commit).await? {
            if self.is(RiderFault::ReplayRunsThem) {
                self.run_riders(&commit).await?;
            }
            return self.store().append_checked(commit).await;
        }
        let commit = self.faulty_riders(commit).await?;
        if self.is(RiderFault::KeysBeforeTheVersion) {
            for op in commit.reservations() {
                if let Some(held) = self.store().reservation(op.scope(), key_of(op)).await?
                    && held.owner != *owner_of(op)
                {
                    rules::reservation::ride(op, ReservationOutcome::Taken(held))?;
                }
            }
        }
        if self.is(RiderFault::RunBeforeTheCommit) {
            self.run_riders(&commit).await?;
            return self.store().append_checked(without_riders(&commit)).await;
        }
        if self.is(RiderFault::RunAfterTheCommit) {
            let receipt = self.store().append_checked(without_riders(&commit)).await?;
            return self.run_riders(&commit).await.map(|()| receipt);
        }
        if self.is(RiderFault::LooksThenWrites) {
            return self.look_then_write(&commit).await;
        }
        match self.store().append_checked(commit.clone()).await {
            Err(error) => self.append_refused(&commit, error).await,
            stored => stored,
        }
    }

    async fn look_then_write(&self, commit: &CheckedCommit) -> Result<Receipt> {
        for op in commit.reservations() {
            let held = self.store().reservation(op.scope(), key_of(op)).await?;
            if held.is_some_and(|held| held.owner != *owner_of(op)) {
                return self.store().append_checked(commit.clone()).await;
            }
        }
        for op in commit.timers() {
            let is_new = matches!(op, TimerOp::Schedule(schedule) if !schedule.replace);
            if is_new && self.has_timer(op).await? {
                return self.store().append_checked(commit.clone()).await;
            }
        }
        tokio::task::yield_now().await;
        match self.store().append_checked(commit.clone()).await {
            Err(_) => self.store().append_checked(without_riders(commit)).await,
            stored => stored,
        }
    }

    /// What becomes of a commit that is refused.
    async fn append_refused(&self, commit: &CheckedCommit, error: Error) -> Result<Receipt> {
        let is_fine = match error.kind() {
            ErrorKind::ReservationTaken { .. } => self.is(RiderFault::TakenIsFine),
            ErrorKind::ReservationNotHeld { .. } => self.is(RiderFault::NotHeldIsFine),
            ErrorKind::TimerExists { .. } => self.is(RiderFault::ExistingIsFine),
            _ => false,
        };
        if is_fine {
            return self.store().append_checked(without_riders(commit)).await;
        }
        if matches!(error.kind(), ErrorKind::ReservationTaken { .. }) {
            for op in commit.timers() {
                if let TimerOp::Schedule(schedule) = op
                    && !schedule.replace
                    && self.has_timer(op).await?
                    && self.is(RiderFault::TimersBeforeKeys)
                {
                    return Err(exists(&schedule.id));
                }
            }
        }
        if !commit.timers().is_empty() && self.is(RiderFault::RefusedCommitLeavesTimers) {
            for op in commit.timers() {
                let _ = self.run_timer(op).await;
            }
        }
        Err(error)
    }

    /// An append of several commits, from their riders on.
    pub(super) async fn append_all_laden(&self, commits: Vec<CheckedCommit>) -> Result<Vec<Receipt>> {
        if !commits.iter().any(has_riders) {
            return self.store().append_all_checked(commits).await;
        }
        let mut faulty = Vec::new();
        for (n, commit) in commits.into_iter().enumerate() {
            let is_stored = self.is_stored(&commit).await?;
            if is_stored && has_riders(&commit) && self.is(RiderFault::ReplayRunsThem) {
                self.run_riders(&commit).await?;
            }
            let commit = if is_stored { commit } else { self.faulty_riders(commit).await? };
            match n > 0 && has_riders(&commit) && self.is(RiderFault::OnlyOfTheFirstCommit) {
                true => faulty.push(without_riders(&commit)),
                false => faulty.push(commit),
            }
        }
        if faulty.len() > 1 && self.is(RiderFault::CommitByCommit) {
            let mut receipts = Vec::new();
            for commit in faulty {
                receipts.push(self.store().append_checked(commit).await?);
            }
            return Ok(receipts);
        }
        self.store().append_all_checked(faulty).await
    }
}

fn key_of(op: &ReservationOp) -> &wow_store_api::ReservationKey {
    match op {
        ReservationOp::Reserve { key, .. }
        | ReservationOp::Confirm { key, .. }
        | ReservationOp::Release { key, .. } => key,
        ReservationOp::Swap { to, .. } => to,
    }
}

fn owner_of(op: &ReservationOp) -> &wow_store_api::OwnerId {
    match op {
        ReservationOp::Reserve { owner, .. }
        | ReservationOp::Confirm { owner, .. }
        | ReservationOp::Release { owner, .. }
        | ReservationOp::Swap { owner, .. } => owner,
    }
}
