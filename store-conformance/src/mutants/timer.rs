//! Faults of timers (M1, M2). Those of timers that ride in an append are in [`super::riders`].

use std::time::Duration;

use async_trait::async_trait;
use wow_store_api::{
    ClaimTimers, ContextName, Due, MAX_CLAIM, MAX_TTL, MemoryStore, Result, ScheduleTimer, Timer, TimerId,
    TimerScheduled, TimerToken, Timers, Timestamp,
};

use super::{Mutant, mutant::at_another_time, mutants, snapshot::through_floats};

mutants! { TimerFault in "timer":
    /// The aggregate that a timer is for is not kept.
    ForgetsTheTarget => [
        "timer::timer_comes_back_as_scheduled",
        "timer::list_pages_by_id",
        "riders::ride_in_with_their_commit",
    ],
    /// The numbers of a body go through floats.
    BodyThroughFloats => ["timer::body_comes_back_exactly"],
    /// Fractions of a millisecond are cut off.
    CutsMilliseconds => ["timer::due_after_counts_from_the_stores_clock"],
    /// A timer fires a millisecond late.
    FiresLate => [
        "timer::due_at_the_very_instant",
        "timer::not_claimed_before_its_time",
        "timer::past_due_fires_at_once",
        "timer::claim_ends_at_the_very_instant",
        "timer::expired_claim_is_due_again",
        "timer::old_claim_is_void_once_claimed_again",
        "timer::released_one_can_wait",
        "timer::survives_reopen",
        "riders::survive_reopen",
    ],
    /// A timer fires a millisecond early.
    FiresEarly => [
        "timer::due_at_the_very_instant",
        "timer::claim_ends_at_the_very_instant",
    ],
    /// A timer fires hours before its time.
    FiresHoursEarly => [
        "timer::due_at_the_very_instant",
        "timer::not_claimed_before_its_time",
        "timer::expired_claim_is_due_again",
        "timer::released_one_can_wait",
        "timer::next_due_is_the_earliest_to_be_claimed",
        "timer::survives_reopen",
    ],
    /// What is due before 1970 never fires.
    MissesThePast => ["timer::past_due_fires_at_once"],
    /// Claimed timers come by id.
    ClaimedById => ["timer::claimed_in_the_order_they_are_due"],
    /// A claim takes one at most.
    ClaimsOneAtMost => [
        "timer::past_due_fires_at_once",
        "timer::claimed_in_the_order_they_are_due",
        "timer::expired_claim_still_completes",
        "timer::contexts_and_ids_are_separate",
    ],
    /// A claim looks first and takes then: in between another may have claimed.
    LooksThenClaims => ["timer::each_timer_goes_to_one_claimer"],
    /// Who has claimed a timer claims it again.
    ClaimsItsOwnAgain => [
        "timer::body_comes_back_exactly",
        "timer::due_at_the_very_instant",
        "timer::not_claimed_before_its_time",
        "timer::claimed_in_the_order_they_are_due",
        "timer::each_timer_goes_to_one_claimer",
        "timer::claimed_one_is_left_alone",
    ],
    /// A claim holds for a millisecond after its end.
    ClaimEndsLate => [
        "timer::claim_ends_at_the_very_instant",
        "timer::expired_claim_is_due_again",
        "timer::old_claim_is_void_once_claimed_again",
    ],
    /// A claim is over a millisecond before its end.
    ClaimEndsEarly => ["timer::claim_ends_at_the_very_instant"],
    /// A claim never ends.
    ClaimNeverEnds => [
        "timer::claim_ends_at_the_very_instant",
        "timer::expired_claim_is_due_again",
        "timer::old_claim_is_void_once_claimed_again",
        "timer::next_due_is_the_earliest_to_be_claimed",
    ],
    /// Claims are not counted.
    AttemptsAreNotCounted => [
        "timer::claim_ends_at_the_very_instant",
        "timer::expired_claim_is_due_again",
        "timer::expired_claim_still_completes",
        "timer::released_one_is_due_at_once",
        "timer::released_one_can_wait",
    ],
    /// Completing does not look at the claim.
    CompletesForAnyone => ["timer::old_claim_is_void_once_claimed_again"],
    /// Releasing does not look at the claim.
    ReleasesForAnyone => ["timer::old_claim_is_void_once_claimed_again"],
    /// Once the time of a claim is over, it completes nothing.
    ExpiredClaimIsVoid => ["timer::expired_claim_still_completes"],
    /// What is completed stays, and is due again.
    CompleteDoesNothing => [
        "timer::expired_claim_still_completes",
        "timer::completed_one_is_gone_for_good",
        "timer::next_due_is_the_earliest_to_be_claimed",
    ],
    /// What is completed can be completed again.
    CompletesTwice => [
        "timer::old_claim_is_void_once_claimed_again",
        "timer::completed_one_is_gone_for_good",
        "timer::cancelled_while_claimed",
    ],
    /// What is released stays claimed.
    ReleaseDoesNothing => [
        "timer::released_one_is_due_at_once",
        "timer::released_one_can_wait",
    ],
    /// What is released is due at once, whatever was asked for.
    ReleaseDoesNotWait => ["timer::released_one_can_wait"],
    /// What is released at once is due a millisecond later.
    ReleaseWaits => [
        "timer::expired_claim_still_completes",
        "timer::released_one_is_due_at_once",
    ],
    /// A timer replaces another whether asked or not.
    AlwaysReplaces => [
        "timer::existing_one_stays",
        "timer::one_of_many_schedulers_wins",
    ],
    /// A timer never replaces another.
    NeverReplaces => ["timer::replacing_takes_over_and_voids_the_claim"],
    /// A timer is looked for first and scheduled then.
    LooksThenSchedules => ["timer::one_of_many_schedulers_wins"],
    /// Cancelling says that it was there, whether it was or not.
    CancelSaysYes => [
        "timer::completed_one_is_gone_for_good",
        "timer::cancel_says_whether_it_was_there",
        "timer::contexts_and_ids_are_separate",
    ],
    /// Cancelling does nothing.
    CancelDoesNothing => [
        "timer::cancel_says_whether_it_was_there",
        "timer::cancelled_while_claimed",
        "timer::next_due_is_the_earliest_to_be_claimed",
    ],
    /// What is claimed cannot be cancelled.
    CancelLeavesClaimed => ["timer::cancelled_while_claimed"],
    /// What is out of bounds is moved into them.
    MovesIntoBounds => ["timer::claims_have_bounds"],
    /// The most that can be claimed is refused.
    RefusesTheMost => ["timer::claims_have_bounds"],
    /// When to look again does not look at claims.
    NextIgnoresClaims => ["timer::next_due_is_the_earliest_to_be_claimed"],
    /// When to look again does not look at what is claimed.
    NextForgetsClaimed => ["timer::next_due_is_the_earliest_to_be_claimed"],
    /// All contexts share their timers.
    ContextsShare => [
        "timer::contexts_and_ids_are_separate",
        "riders::timers_are_of_the_commits_context",
    ],
    /// The case of ids does not count.
    IdsIgnoreCase => [
        "timer::claimed_in_the_order_they_are_due",
        "timer::contexts_and_ids_are_separate",
        "timer::list_pages_by_id",
    ],
    /// A page starts with the timer that it should start behind.
    PageRepeats => ["timer::list_pages_by_id"],
    /// Timers are listed by when they are due.
    ListedByDue => [
        "timer::cancel_says_whether_it_was_there",
        "timer::list_pages_by_id",
    ],
    /// Claimed timers are not listed.
    ListForgetsClaimed => [
        "timer::body_comes_back_exactly",
        "timer::claimed_one_is_left_alone",
        "timer::old_claim_is_void_once_claimed_again",
        "timer::cancel_says_whether_it_was_there",
        "timer::list_pages_by_id",
        "timer::survives_reopen",
    ],
    /// Opened again, the store knows of no timer.
    ForgetsAtReopen => [
        "fence::remembered_epoch_survives_reopen",
        "timer::survives_reopen",
        "riders::survive_reopen",
    ],
}

const HOURS: i64 = 100_000_000;

impl Mutant {
    fn clockwork(&self) -> &MemoryStore {
        match self.reopened() > 0 && self.is(TimerFault::ForgetsAtReopen) {
            true => self.spare(),
            false => self.store(),
        }
    }

    fn timer_context(&self, context: &ContextName) -> ContextName {
        match context != "shop" && self.is(TimerFault::ContextsShare) {
            true => ContextName::new("shop").expect("a valid name"),
            false => context.clone(),
        }
    }

    fn faulty_timer_id(&self, id: &TimerId) -> TimerId {
        let lower = id.as_str().to_lowercase();
        match lower != id.as_str() && self.is(TimerFault::IdsIgnoreCase) {
            true => TimerId::new(lower).expect("a valid id"),
            false => id.clone(),
        }
    }

    fn faulty_token(&self, token: &TimerToken) -> TimerToken {
        let (context, id) = (self.timer_context(&token.context), self.faulty_timer_id(&token.id));
        TimerToken { context, id, claim: token.claim }
    }

    async fn all_timers(&self, context: &ContextName) -> Result<Vec<Timer>> {
        self.clockwork().timers(context, None, usize::MAX).await
    }

    async fn known_timer(&self, context: &ContextName, id: &TimerId) -> Result<Option<Timer>> {
        Ok(self.all_timers(context).await?.into_iter().find(|timer| timer.id == *id))
    }

    fn served_timer(&self, mut timer: Timer) -> Timer {
        timer.body = self.served_payload(timer.body);
        if timer.body.as_json().contains(|c: char| c.is_ascii_digit())
            && self.is(TimerFault::BodyThroughFloats)
        {
            timer.body = through_floats(&timer.body);
        }
        if timer.target.is_some() && self.is(TimerFault::ForgetsTheTarget) {
            timer.target = None;
        }
        if timer.attempts > 1 && self.is(TimerFault::AttemptsAreNotCounted) {
            timer.attempts = 1;
        }
        timer
    }

    async fn claim_faulty(&self, mut claim: ClaimTimers) -> Result<Vec<Timer>> {
        let limit = claim.limit;
        let right = self.claimable(&claim, 0).await?;
        for (fault, beside) in
            [(TimerFault::FiresLate, -1), (TimerFault::FiresEarly, 1), (TimerFault::FiresHoursEarly, HOURS)]
        {
            if self.claimable(&claim, beside).await? != right && self.is(fault) {
                return at_another_time(beside, self.clockwork().claim_timers(claim)).await;
            }
        }
        if self.is(TimerFault::ClaimNeverEnds) {
            claim.ttl = MAX_TTL;
        }
        if limit > 1 && self.is(TimerFault::ClaimsOneAtMost) {
            claim.limit = 1;
        }
        if self.is(TimerFault::LooksThenClaims) {
            tokio::task::yield_now().await;
            let mut claimed = self.clockwork().claim_timers(claim.clone()).await?;
            let all = self.all_timers(&claim.context).await?;
            let lost = all.into_iter().filter(|timer| right.contains(&timer.id) && timer.claim.is_some());
            let lost: Vec<Timer> =
                lost.filter(|timer| !claimed.iter().any(|mine| mine.id == timer.id)).collect();
            claimed.extend(lost.into_iter().map(|timer| Timer {
                claim: timer.claim.map(|of| wow_store_api::TimerClaim { member: claim.member.clone(), ..of }),
                ..timer
            }));
            claimed.truncate(limit);
            return Ok(claimed);
        }
        let all = self.all_timers(&claim.context).await?;
        let own: Vec<Timer> = all
            .into_iter()
            .filter(|timer| timer.claim.as_ref().is_some_and(|of| of.member == claim.member))
            .filter(|timer| !right.contains(&timer.id))
            .collect();
        let mut claimed = self.clockwork().claim_timers(claim).await?;
        if !own.is_empty() && self.is(TimerFault::ClaimsItsOwnAgain) {
            claimed.extend(own);
        }
        if claimed.iter().any(|timer| timer.due_at < Timestamp::UNIX_EPOCH)
            && self.is(TimerFault::MissesThePast)
        {
            claimed.retain(|timer| timer.due_at >= Timestamp::UNIX_EPOCH);
        }
        if claimed.len() > 1 && self.is(TimerFault::ClaimedById) {
            claimed.sort_by(|a, b| a.id.cmp(&b.id));
        }
        Ok(claimed)
    }

    /// The timers that can be claimed at another time.
    async fn claimable(&self, claim: &ClaimTimers, beside: i64) -> Result<Vec<TimerId>> {
        let now = self.time().await.as_millis().saturating_add(beside);
        let all = self.all_timers(&claim.context).await?;
        let claimable = all.into_iter().filter(|timer| timer.claimable_at().as_millis() <= now);
        // A claim that holds is another matter, but for the millisecond around its end.
        let early = claimable.filter(|timer| beside < HOURS || timer.claim.is_none());
        Ok(early.map(|timer| timer.id).collect())
    }

    /// The claim that counts: the one of the token, or the timer's own.
    async fn faulty_claim(&self, token: &TimerToken, anyone: TimerFault) -> Result<Option<TimerToken>> {
        let token = self.faulty_token(token);
        let Some(timer) = self.known_timer(&token.context, &token.id).await? else { return Ok(Some(token)) };
        let claim = timer.claim.as_ref();
        if claim.is_some_and(|claim| claim.claim != token.claim) && self.is(anyone) {
            return Ok(timer.token());
        }
        let now = self.time().await;
        let is_over = claim.is_some_and(|claim| claim.claim == token.claim && now >= claim.expires_at);
        if is_over && self.is(TimerFault::ExpiredClaimIsVoid) {
            return Ok(None);
        }
        Ok(Some(token))
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Timers for Mutant {
    async fn schedule_timer(&self, schedule: ScheduleTimer) -> Result<TimerScheduled> {
        let mut schedule = self.fenced_timer(schedule).await?;
        schedule.body = self.stored_payload(schedule.body);
        let context = schedule.context.clone();
        schedule.context = self.timer_context(&context);
        schedule.id = self.faulty_timer_id(&schedule.id);
        if let Due::After(after) = schedule.due
            && after.subsec_nanos() % 1_000_000 > 0
            && self.is(TimerFault::CutsMilliseconds)
        {
            schedule.due = Due::After(Duration::new(after.as_secs(), after.subsec_millis() * 1_000_000));
        }
        match self.known_timer(&schedule.context, &schedule.id).await? {
            Some(_) if schedule.replace && self.is(TimerFault::NeverReplaces) => schedule.replace = false,
            Some(_) if !schedule.replace && self.is(TimerFault::AlwaysReplaces) => schedule.replace = true,
            None if self.is(TimerFault::LooksThenSchedules) => {
                tokio::task::yield_now().await;
                schedule.replace = true;
            }
            _ => {}
        }
        let here = |timer: Timer| self.served_timer(Timer { context: context.clone(), ..timer });
        Ok(match self.clockwork().schedule_timer(schedule).await? {
            TimerScheduled::Scheduled(timer) => TimerScheduled::Scheduled(here(timer)),
            TimerScheduled::Exists(timer) => TimerScheduled::Exists(here(timer)),
        })
    }

    async fn cancel_timer(&self, context: &ContextName, id: &TimerId) -> Result<bool> {
        let (context, id) = (self.timer_context(context), self.faulty_timer_id(id));
        let known = self.known_timer(&context, &id).await?;
        if known.is_some() && self.is(TimerFault::CancelDoesNothing) {
            return Ok(true);
        }
        let is_claimed = known.is_some_and(|timer| timer.claim.is_some());
        if is_claimed && self.is(TimerFault::CancelLeavesClaimed) {
            return Ok(false);
        }
        let cancelled = self.clockwork().cancel_timer(&context, &id).await?;
        Ok(cancelled || self.is(TimerFault::CancelSaysYes))
    }

    async fn claim_timers(&self, mut claim: ClaimTimers) -> Result<Vec<Timer>> {
        if claim.check().is_err() && self.is(TimerFault::MovesIntoBounds) {
            claim.limit = claim.limit.clamp(1, MAX_CLAIM);
            claim.ttl = claim.ttl.clamp(Duration::from_millis(1), MAX_TTL);
        }
        if claim.limit == MAX_CLAIM && claim.ttl == MAX_TTL && self.is(TimerFault::RefusesTheMost) {
            claim.limit += 1;
        }
        claim.check()?;
        let context = claim.context.clone();
        claim.context = self.timer_context(&context);
        let all = self.all_timers(&claim.context).await?;
        let now = self.time().await;
        for (fault, beside) in [(TimerFault::ClaimEndsLate, -1), (TimerFault::ClaimEndsEarly, 1)] {
            let at = Timestamp::from_millis(now.as_millis() + beside)?;
            let differs = |timer: &Timer| {
                timer.claim.as_ref().is_some_and(|of| (of.expires_at <= now) != (of.expires_at <= at))
            };
            if all.iter().any(differs) && self.is(fault) {
                return at_another_time(beside, self.clockwork().claim_timers(claim)).await;
            }
        }
        let claimed = self.claim_faulty(claim).await?;
        Ok(claimed
            .into_iter()
            .map(|timer| self.served_timer(Timer { context: context.clone(), ..timer }))
            .collect())
    }

    async fn complete_timer(&self, token: &TimerToken) -> Result<bool> {
        let Some(token) = self.faulty_claim(token, TimerFault::CompletesForAnyone).await? else {
            return Ok(false);
        };
        let known = self.known_timer(&token.context, &token.id).await?;
        let is_mine = known.as_ref().is_some_and(|timer| timer.token().as_ref() == Some(&token));
        if is_mine && self.is(TimerFault::CompleteDoesNothing) {
            return Ok(true);
        }
        if known.is_none() && self.is(TimerFault::CompletesTwice) {
            return Ok(true);
        }
        self.clockwork().complete_timer(&token).await
    }

    async fn release_timer(&self, token: &TimerToken, mut retry_in: Duration) -> Result<bool> {
        let Some(token) = self.faulty_claim(token, TimerFault::ReleasesForAnyone).await? else {
            return Ok(false);
        };
        let known = self.known_timer(&token.context, &token.id).await?;
        let is_mine = known.is_some_and(|timer| timer.token().as_ref() == Some(&token));
        if is_mine && self.is(TimerFault::ReleaseDoesNothing) {
            return Ok(true);
        }
        if !retry_in.is_zero() && self.is(TimerFault::ReleaseDoesNotWait) {
            retry_in = Duration::ZERO;
        } else if retry_in.is_zero() && self.is(TimerFault::ReleaseWaits) {
            retry_in = Duration::from_millis(1);
        }
        self.clockwork().release_timer(&token, retry_in).await
    }

    async fn next_due(&self, context: &ContextName) -> Result<Option<Timestamp>> {
        let context = self.timer_context(context);
        let all = self.all_timers(&context).await?;
        if all.iter().any(|timer| timer.claim.is_some()) {
            if self.is(TimerFault::NextIgnoresClaims) {
                return Ok(all.iter().map(|timer| timer.due_at).min());
            }
            if self.is(TimerFault::NextForgetsClaimed) {
                return Ok(all.iter().filter(|timer| timer.claim.is_none()).map(|timer| timer.due_at).min());
            }
        }
        self.clockwork().next_due(&context).await
    }

    async fn timers(
        &self,
        context: &ContextName,
        after: Option<&TimerId>,
        limit: usize,
    ) -> Result<Vec<Timer>> {
        let asked = self.timer_context(context);
        let mut timers = self.clockwork().timers(&asked, after, limit).await?;
        if let Some(after) = after
            && self.is(TimerFault::PageRepeats)
        {
            timers = self.all_timers(&asked).await?;
            timers.retain(|timer| timer.id >= *after);
            timers.truncate(limit);
        }
        if timers.len() > 1 && self.is(TimerFault::ListedByDue) {
            timers.sort_by_key(|timer| timer.due_at);
        }
        if timers.iter().any(|timer| timer.claim.is_some()) && self.is(TimerFault::ListForgetsClaimed) {
            timers.retain(|timer| timer.claim.is_none());
        }
        Ok(timers
            .into_iter()
            .map(|timer| self.served_timer(Timer { context: context.clone(), ..timer }))
            .collect())
    }
}
