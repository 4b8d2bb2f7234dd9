//! Faults of the failure ledger (F1 to F3).

use async_trait::async_trait;
use wow_store_api::{
    AggregateId, Attempt, Discarded, Error, Failure, FailureCounts, FailureLedger, FailureState,
    ListFailures, MAX_COUNTER, MAX_FAILURE_TEXT_BYTES, MemoryStore, Park, Result, SubscriptionName, Version,
};

use super::{Mutant, fence::FenceFault, mutants};

mutants! { LedgerFault in "ledger":
    /// The first attempt is not counted.
    FirstIsNotCounted => [
        "ledger::first_attempt_makes_an_entry",
        "ledger::attempts_count_whatever_the_version",
        "ledger::attempts_of_many_nodes_all_count",
        "ledger::success_starts_the_count_again",
        "ledger::parked_again_while_retrying",
        "ledger::subscriptions_are_separate",
    ],
    /// Another version starts the count again.
    CountsByVersion => ["ledger::attempts_count_whatever_the_version"],
    /// Two attempts at one time count as one.
    LooksThenCounts => [
        "ledger::attempts_of_many_nodes_all_count",
        "ledger::parked_one_counts_no_attempts",
    ],
    /// The count goes on after a success.
    SuccessKeepsTheCount => ["ledger::success_starts_the_count_again"],
    /// The count goes on when an aggregate is retried.
    RetryKeepsTheCount => [
        "ledger::success_starts_the_count_again",
        "ledger::retry_starts_from_the_parked_commit",
    ],
    /// The event that failed is not kept.
    ForgetsTheEvent => [
        "ledger::park_keeps_what_failed",
        "ledger::discard_skips_one_commit_once",
        "ledger::error_text_is_cut",
        "ledger::nul_does_not_keep_from_parking",
    ],
    /// Parking does not say when.
    ForgetsWhenItWasParked => ["ledger::park_keeps_what_failed"],
    /// Only what was tried can be parked.
    ParkNeedsAnAttempt => [
        "fence::overtaken_owner_cannot_append",
        "fence::overtaken_owner_cannot_append_all",
        "fence::overtaken_owner_cannot_save_a_checkpoint",
        "fence::overtaken_owner_cannot_reset_a_checkpoint",
        "fence::overtaken_owner_cannot_write_the_ledger",
        "fence::overtaken_owner_cannot_schedule_a_timer",
        "fence::writes_without_a_fence_are_let_through",
        "fence::epoch_of_every_fenced_write_is_remembered",
        "ledger::park_without_an_attempt_is_enough",
        "ledger::parked_one_keeps_its_first_failure",
        "ledger::parked_one_counts_no_attempts",
        "ledger::advance_moves_behind_the_commit_and_never_back",
        "ledger::parked_again_while_retrying",
        "ledger::parking_while_retrying_skips_none",
        "ledger::discard_skips_no_more_than_one",
        "ledger::late_resolve_does_not_end_a_retry",
        "ledger::resolve_leaves_a_parked_one",
        "ledger::discarded_commit_is_never_handled_again",
        "ledger::list_pages_by_aggregate",
        "ledger::discarded_are_listed_newest_first",
        "ledger::error_text_is_cut",
        "ledger::nul_does_not_keep_from_parking",
        "ledger::subscriptions_are_separate",
    ],
    /// A parked aggregate moves to the commit it is parked at again.
    ParkedMoves => [
        "fence::overtaken_owner_cannot_write_the_ledger",
        "ledger::parked_one_keeps_its_first_failure",
    ],
    /// A parked aggregate goes on counting attempts.
    ParkedCounts => [
        "fence::overtaken_owner_cannot_write_the_ledger",
        "fence::epoch_of_every_fenced_write_is_remembered",
        "fence::remembered_epoch_survives_reopen",
        "ledger::parked_one_counts_no_attempts",
    ],
    /// An attempt on a parked aggregate takes it out.
    AttemptUnparks => [
        "fence::overtaken_owner_cannot_write_the_ledger",
        "ledger::parked_one_counts_no_attempts",
    ],
    /// A retry starts behind the commit that failed.
    RetrySkips => [
        "ledger::retry_starts_from_the_parked_commit",
        "ledger::parked_again_while_retrying",
        "ledger::parking_while_retrying_skips_none",
        "ledger::late_resolve_does_not_end_a_retry",
        "ledger::later_commits_wait_then_go_on_in_order",
    ],
    /// A retry of anything says that it was parked.
    RetryOfAnything => [
        "ledger::retry_of_what_is_not_parked_says_so",
        "ledger::subscriptions_are_separate",
    ],
    /// Asked twice, a retry says that there was nothing to retry.
    RetryOnce => ["ledger::retry_starts_from_the_parked_commit"],
    /// A late advance moves back.
    AdvanceGoesBack => ["ledger::advance_moves_behind_the_commit_and_never_back"],
    /// An advance moves nothing.
    AdvanceStandsStill => [
        "ledger::success_starts_the_count_again",
        "ledger::advance_moves_behind_the_commit_and_never_back",
        "ledger::parked_again_while_retrying",
        "ledger::parking_while_retrying_skips_none",
        "ledger::discard_skips_no_more_than_one",
        "ledger::late_resolve_does_not_end_a_retry",
        "ledger::discarded_commit_is_never_handled_again",
    ],
    /// An advance says yes whatever the state.
    AdvanceOfAnything => ["ledger::advance_needs_a_retry"],
    /// An aggregate that is retrying cannot be parked again.
    ParkOnce => [
        "ledger::parked_again_while_retrying",
        "ledger::parking_while_retrying_skips_none",
        "ledger::discard_skips_no_more_than_one",
        "ledger::later_commits_wait_then_go_on_in_order",
        "ledger::discarded_commit_is_never_handled_again",
        "ledger::counts_by_state",
        "ledger::discarded_are_listed_newest_first",
    ],
    /// Parked while retrying, it goes on from there, whatever was to be handled before.
    ParkSkips => [
        "ledger::parking_while_retrying_skips_none",
        "ledger::discard_skips_no_more_than_one",
    ],
    /// Parked while retrying at a commit that it has passed, it goes on behind that.
    ParkStaysAhead => ["ledger::parking_while_retrying_skips_none"],
    /// A discard skips what is still to be handled before the commit, too.
    DiscardSkipsMore => ["ledger::discard_skips_no_more_than_one"],
    /// A resolve does not look at the version.
    ResolvesAnything => [
        "ledger::resolve_needs_the_commit_that_failed",
        "ledger::late_resolve_does_not_end_a_retry",
    ],
    /// A resolve right before the commit that is to be retried ends the retry.
    LateResolveEndsTheRetry => ["ledger::late_resolve_does_not_end_a_retry"],
    /// A resolve takes a parked one out.
    ResolvesParked => [
        "fence::overtaken_owner_cannot_write_the_ledger",
        "ledger::resolve_leaves_a_parked_one",
    ],
    /// A resolve where there is no entry says that there is one.
    ResolvesOnce => ["ledger::resolve_needs_the_commit_that_failed"],
    /// A discard does not look at the version.
    DiscardsAnyVersion => ["ledger::discard_of_another_version_changes_nothing"],
    /// A discard goes on with the commit that it should skip.
    DiscardRetries => [
        "ledger::discard_skips_no_more_than_one",
        "ledger::discard_skips_one_commit_once",
        "ledger::discarded_commit_is_never_handled_again",
        "ledger::counts_by_state",
        "ledger::discarded_are_listed_newest_first",
    ],
    /// Asked twice, a discard says twice that it skipped.
    DiscardSaysYes => ["ledger::discard_skips_one_commit_once"],
    /// A discard leaves no record.
    DiscardLeavesNoRecord => [
        "ledger::discard_skips_one_commit_once",
        "ledger::discarded_are_listed_newest_first",
    ],
    /// A parked aggregate cannot be seen.
    ParkedIsHidden => [
        "ledger::park_keeps_what_failed",
        "ledger::park_without_an_attempt_is_enough",
        "ledger::parked_one_keeps_its_first_failure",
        "ledger::parked_one_counts_no_attempts",
        "ledger::advance_needs_a_retry",
        "ledger::discard_skips_no_more_than_one",
        "ledger::resolve_leaves_a_parked_one",
        "ledger::discard_of_another_version_changes_nothing",
        "ledger::later_commits_wait_then_go_on_in_order",
        "ledger::discarded_commit_is_never_handled_again",
        "ledger::error_text_is_cut",
        "ledger::nul_does_not_keep_from_parking",
        "ledger::subscriptions_are_separate",
    ],
    /// Discarded commits are not counted.
    CountsNoDiscarded => [
        "ledger::discarded_commit_is_never_handled_again",
        "ledger::counts_by_state",
    ],
    /// Those that are retrying are counted as parked.
    CountsRetryingAsParked => ["ledger::counts_by_state"],
    /// A page starts with the aggregate that it should start behind.
    PageRepeats => ["ledger::list_pages_by_aggregate"],
    /// Pages go by when an aggregate failed.
    PagesByTime => [
        "ledger::list_pages_by_aggregate",
        "ledger::list_filters",
    ],
    /// A page has as many as there are.
    PageHasNoLimit => [
        "ledger::list_pages_by_aggregate",
        "ledger::list_filters",
    ],
    /// The state that is asked for does not count.
    ListIgnoresState => ["ledger::list_filters"],
    /// The partition that is asked for does not count.
    ListIgnoresPartition => ["ledger::list_filters"],
    /// The oldest discarded ones come first.
    OldestDiscardedFirst => ["ledger::discarded_are_listed_newest_first"],
    /// A long text is refused.
    RefusesLongTexts => ["ledger::error_text_is_cut"],
    /// Texts are cut to half of what is promised.
    CutsShort => ["ledger::error_text_is_cut"],
    /// A text with U+0000 is refused.
    RefusesNul => ["ledger::nul_does_not_keep_from_parking"],
    /// The case of a subscription does not count.
    SubscriptionsIgnoreCase => ["ledger::subscriptions_are_separate"],
    /// All subscriptions share one ledger.
    SubscriptionsShare => [
        "ledger::counts_by_state",
        "ledger::discarded_are_listed_newest_first",
        "ledger::subscriptions_are_separate",
    ],
    /// What cannot be is moved to what can.
    MovesIntoBounds => [
        "fence::epoch_beyond_the_last_is_refused",
        "ledger::invalid_attempts_are_refused",
    ],
    /// Opened again, the ledger is empty.
    ForgetsAtReopen => [
        "fence::remembered_epoch_survives_reopen",
        "ledger::discarded_commit_is_never_handled_again",
        "ledger::survives_reopen",
    ],
}

impl Mutant {
    fn ledger(&self) -> &MemoryStore {
        match self.reopened() > 0 && self.is(LedgerFault::ForgetsAtReopen) {
            true => self.spare(),
            false => self.store(),
        }
    }

    fn ledger_of(&self, subscription: &SubscriptionName) -> SubscriptionName {
        let lower = subscription.as_str().to_lowercase();
        let shared = match () {
            () if lower != subscription.as_str() && self.is(LedgerFault::SubscriptionsIgnoreCase) => lower,
            () if subscription != "mailer" && self.is(LedgerFault::SubscriptionsShare) => "mailer".to_owned(),
            () => return subscription.clone(),
        };
        SubscriptionName::new(shared).expect("a valid name")
    }

    async fn known_failure(
        &self,
        subscription: &SubscriptionName,
        id: &AggregateId,
    ) -> Result<Option<Failure>> {
        self.ledger().failure(&self.ledger_of(subscription), id).await
    }

    async fn faulty_attempt(&self, mut attempt: Attempt, fence: FenceFault) -> Result<Attempt> {
        if attempt.check().is_err() && self.is(LedgerFault::MovesIntoBounds) {
            attempt.commit.position = attempt.commit.position.clamp(1, MAX_COUNTER);
            attempt.commit.version = attempt.commit.version.clamp(1, MAX_COUNTER);
            attempt.epoch = attempt.epoch.map(|epoch| epoch.min(MAX_COUNTER));
        }
        attempt.check()?;
        attempt.subscription = self.ledger_of(&attempt.subscription);
        Ok(self.fenced_attempt(attempt, fence).await)
    }

    fn extra(&self, failure: &Failure) -> String {
        format!("{} {} counted before", failure.subscription, failure.aggregate_id)
    }

    fn served(&self, mut failure: Failure) -> Failure {
        let more: u32 = self.shared().get(&self.extra(&failure)).unwrap_or_default();
        failure.attempts += more;
        if failure.event.is_some() && self.is(LedgerFault::ForgetsTheEvent) {
            failure.event = None;
        }
        if failure.updated_at > failure.since
            && failure.state == FailureState::Parked
            && self.is(LedgerFault::ForgetsWhenItWasParked)
        {
            failure.updated_at = failure.since;
        }
        if failure.attempts == 1 && self.is(LedgerFault::FirstIsNotCounted) {
            failure.attempts = 0;
        }
        failure
    }

    /// Takes an entry out, whatever its state.
    async fn take_out(&self, attempt: &Attempt) -> Result<()> {
        self.ledger().retry(&attempt.subscription, &attempt.aggregate_id).await?;
        let mut last = attempt.clone();
        last.commit.version = MAX_COUNTER;
        self.ledger().resolve(last).await.map(drop)
    }
}

/// The same attempt on another version.
fn at_version(attempt: &Attempt, version: Version) -> Attempt {
    let mut attempt = attempt.clone();
    attempt.commit.version = version;
    attempt
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl FailureLedger for Mutant {
    async fn record_attempt(&self, attempt: Attempt) -> Result<Failure> {
        let attempt = self.faulty_attempt(attempt, FenceFault::RecordIgnoresIt).await?;
        let known = self.known_failure(&attempt.subscription, &attempt.aggregate_id).await?;
        if let Some(known) = &known {
            let parked = known.state == FailureState::Parked;
            if known.state == FailureState::Trying
                && known.commit.version != attempt.commit.version
                && self.is(LedgerFault::CountsByVersion)
            {
                self.take_out(&attempt).await?;
            }
            if parked && self.is(LedgerFault::ParkedCounts) {
                return Ok(Failure { attempts: known.attempts + 1, ..known.clone() });
            }
            if parked && self.is(LedgerFault::AttemptUnparks) {
                self.ledger().retry(&attempt.subscription, &attempt.aggregate_id).await?;
            }
        }
        if self.is(LedgerFault::LooksThenCounts) {
            tokio::task::yield_now().await;
            let mut failure = self.ledger().record_attempt(attempt).await?;
            failure.attempts = known.map_or(0, |known| known.attempts) + 1;
            return Ok(self.served(failure));
        }
        self.ledger().record_attempt(attempt).await.map(|failure| self.served(failure))
    }

    async fn park(&self, mut park: Park) -> Result<Failure> {
        park.attempt = self.faulty_attempt(park.attempt, FenceFault::ParkIgnoresIt).await?;
        let texts = [Some(park.error.clone()), park.event.clone()];
        let texts: Vec<String> = texts.into_iter().flatten().collect();
        if texts.iter().any(|text| text.len() > MAX_FAILURE_TEXT_BYTES)
            && self.is(LedgerFault::RefusesLongTexts)
            || texts.iter().any(|text| text.contains('\0')) && self.is(LedgerFault::RefusesNul)
        {
            return Err(Error::invalid_input("that text cannot be kept"));
        }
        if park.error.len() > MAX_FAILURE_TEXT_BYTES / 2 && self.is(LedgerFault::CutsShort) {
            park.error = park.error.chars().take(MAX_FAILURE_TEXT_BYTES / 4).collect();
        }
        let known = self.known_failure(&park.attempt.subscription, &park.attempt.aggregate_id).await?;
        match known.map(|known| (known.state, known)) {
            None if self.is(LedgerFault::ParkNeedsAnAttempt) => {
                return Err(Error::invalid_input("nothing was tried"));
            }
            Some((FailureState::Parked, _)) if self.is(LedgerFault::ParkedMoves) => {
                self.ledger().retry(&park.attempt.subscription, &park.attempt.aggregate_id).await?;
            }
            Some((FailureState::Retrying, known)) if self.is(LedgerFault::ParkOnce) => {
                return Ok(self.served(known));
            }
            Some((FailureState::Retrying, known))
                if park.attempt.commit.version > known.from_version && self.is(LedgerFault::ParkSkips) =>
            {
                self.ledger().advance(at_version(&park.attempt, park.attempt.commit.version - 1)).await?;
            }
            Some((FailureState::Retrying, known))
                if park.attempt.commit.version < known.from_version
                    && self.is(LedgerFault::ParkStaysAhead) =>
            {
                park.attempt.commit.version = known.from_version;
            }
            _ => {}
        }
        self.ledger().park(park).await.map(|failure| self.served(failure))
    }

    async fn retry(&self, subscription: &SubscriptionName, aggregate_id: &AggregateId) -> Result<bool> {
        let subscription = self.ledger_of(subscription);
        let known = self.known_failure(&subscription, aggregate_id).await?;
        let retried = self.ledger().retry(&subscription, aggregate_id).await?;
        let Some(known) = known else {
            return Ok(self.is(LedgerFault::RetryOfAnything));
        };
        match known.state {
            FailureState::Parked if self.is(LedgerFault::RetrySkips) => {
                let (aggregate_id, partition) = (aggregate_id.clone(), known.partition);
                let failed =
                    Attempt { subscription, aggregate_id, partition, commit: known.commit, epoch: None };
                self.ledger().advance(failed).await
            }
            FailureState::Parked if self.is(LedgerFault::RetryKeepsTheCount) => {
                self.shared().put(self.extra(&known), known.attempts);
                Ok(retried)
            }
            FailureState::Retrying if self.is(LedgerFault::RetryOnce) => Ok(false),
            FailureState::Trying if self.is(LedgerFault::RetryOfAnything) => Ok(true),
            _ => Ok(retried),
        }
    }

    async fn discard(
        &self,
        subscription: &SubscriptionName,
        aggregate_id: &AggregateId,
        mut version: Version,
    ) -> Result<bool> {
        let subscription = self.ledger_of(subscription);
        if let Some(known) = self.known_failure(&subscription, aggregate_id).await? {
            let is_it = known.state == FailureState::Parked && known.commit.version == version;
            if is_it && self.is(LedgerFault::DiscardRetries) {
                return self.ledger().retry(&subscription, aggregate_id).await;
            }
            if known.state == FailureState::Retrying
                && known.from_version == version.saturating_add(1)
                && self.is(LedgerFault::DiscardSaysYes)
            {
                return Ok(true);
            }
            if is_it && known.from_version < version && self.is(LedgerFault::DiscardSkipsMore) {
                let (partition, commit) = (known.partition.clone(), known.commit.clone());
                let failed = Attempt {
                    subscription: subscription.clone(),
                    aggregate_id: aggregate_id.clone(),
                    partition,
                    commit,
                    epoch: None,
                };
                self.ledger().retry(&subscription, aggregate_id).await?;
                return self.ledger().advance(failed).await;
            }
            if !is_it && self.is(LedgerFault::DiscardsAnyVersion) {
                version = known.commit.version;
            }
        }
        self.ledger().discard(&subscription, aggregate_id, version).await
    }

    async fn advance(&self, attempt: Attempt) -> Result<bool> {
        let attempt = self.faulty_attempt(attempt, FenceFault::AdvanceIgnoresIt).await?;
        let known = self.known_failure(&attempt.subscription, &attempt.aggregate_id).await?;
        let Some(known) = known.filter(|known| known.state == FailureState::Retrying) else {
            return Ok(self.ledger().advance(attempt).await? || self.is(LedgerFault::AdvanceOfAnything));
        };
        if self.is(LedgerFault::AdvanceStandsStill) {
            return Ok(true);
        }
        let next = attempt.commit.version + 1;
        if next < known.from_version && self.is(LedgerFault::AdvanceGoesBack) {
            self.ledger().park(Park::new(at_version(&attempt, next), "back")).await?;
            return self.ledger().retry(&attempt.subscription, &attempt.aggregate_id).await;
        }
        self.ledger().advance(attempt).await
    }

    async fn resolve(&self, attempt: Attempt) -> Result<bool> {
        let mut attempt = self.faulty_attempt(attempt, FenceFault::ResolveIgnoresIt).await?;
        let Some(known) = self.known_failure(&attempt.subscription, &attempt.aggregate_id).await? else {
            let resolved = self.ledger().resolve(attempt).await?;
            return Ok(resolved && !self.is(LedgerFault::ResolvesOnce));
        };
        let is_late = attempt.commit.version < known.commit.version;
        match known.state {
            FailureState::Parked if self.is(LedgerFault::ResolvesParked) => {
                self.take_out(&attempt).await?;
                return Ok(true);
            }
            FailureState::Retrying
                if is_late
                    && attempt.commit.version + 1 >= known.from_version
                    && self.is(LedgerFault::LateResolveEndsTheRetry) =>
            {
                attempt = at_version(&attempt, MAX_COUNTER);
            }
            FailureState::Trying if !is_late && self.is(LedgerFault::SuccessKeepsTheCount) => {
                self.shared().put(self.extra(&known), known.attempts);
            }
            _ if is_late && self.is(LedgerFault::ResolvesAnything) => {
                attempt = at_version(&attempt, MAX_COUNTER);
            }
            _ => {}
        }
        self.ledger().resolve(attempt).await
    }

    async fn failure(
        &self,
        subscription: &SubscriptionName,
        aggregate_id: &AggregateId,
    ) -> Result<Option<Failure>> {
        let known = self.known_failure(subscription, aggregate_id).await?;
        let is_parked = known.as_ref().is_some_and(|known| known.state == FailureState::Parked);
        if is_parked && self.is(LedgerFault::ParkedIsHidden) {
            return Ok(None);
        }
        Ok(known.map(|known| self.served(known)))
    }

    async fn failures(&self, mut list: ListFailures) -> Result<Vec<Failure>> {
        list.subscription = self.ledger_of(&list.subscription);
        if list.state.is_some() && self.is(LedgerFault::ListIgnoresState) {
            list.state = None;
        }
        if list.partition.is_some() && self.is(LedgerFault::ListIgnoresPartition) {
            list.partition = None;
        }
        let wanted = list.limit;
        if self.is(LedgerFault::PageHasNoLimit) {
            list.limit = usize::MAX;
        }
        if let Some(after) = list.after.clone()
            && self.is(LedgerFault::PageRepeats)
        {
            list.limit = usize::MAX;
            list.after = None;
            let mut all = self.ledger().failures(list).await?;
            all.retain(|failure| failure.aggregate_id >= after);
            all.truncate(wanted);
            return Ok(all);
        }
        let mut found = self.ledger().failures(list).await?;
        if found.len() > 1 && self.is(LedgerFault::PagesByTime) {
            found.sort_by_key(|failure| (failure.since, failure.commit.position));
        }
        Ok(found.into_iter().map(|failure| self.served(failure)).collect())
    }

    async fn discarded(&self, subscription: &SubscriptionName, limit: usize) -> Result<Vec<Discarded>> {
        let mut discarded = self.ledger().discarded(&self.ledger_of(subscription), limit).await?;
        if !discarded.is_empty() && self.is(LedgerFault::DiscardLeavesNoRecord) {
            discarded.clear();
        }
        if discarded.len() > 1 && self.is(LedgerFault::OldestDiscardedFirst) {
            discarded.reverse();
        }
        Ok(discarded)
    }

    async fn failure_counts(&self, subscription: &SubscriptionName) -> Result<FailureCounts> {
        let mut counts = self.ledger().failure_counts(&self.ledger_of(subscription)).await?;
        if counts.discarded > 0 && self.is(LedgerFault::CountsNoDiscarded) {
            counts.discarded = 0;
        }
        if counts.retrying > 0 && self.is(LedgerFault::CountsRetryingAsParked) {
            counts.parked += std::mem::take(&mut counts.retrying);
        }
        Ok(counts)
    }
}
