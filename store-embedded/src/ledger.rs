//! The failure ledger (F1 to F3).

use std::ops::Bound;

use async_trait::async_trait;
use wow_store_api::{
    AggregateId, Attempt, Discarded, Failure, FailureCounts, FailureLedger, FailureState, ListFailures, Park,
    Result, SubscriptionName, Version, rules,
};

use crate::{
    access::{Records as _, behind},
    append::version_of,
    engine::view::{Source, Tx},
    leases::fence,
    places::{self, Place},
    store::EmbeddedStore,
};

fn place_of(attempt: &Attempt) -> Place {
    places::failure(&attempt.subscription, &attempt.aggregate_id)
}

/// How many discards a subscription has: they are numbered without a gap.
fn count_discards(source: &impl Source, subscription: &SubscriptionName) -> Result<u64> {
    match source.entries_back(&places::discards(subscription)).next() {
        Some(entry) => Ok(version_of(&entry?.0)),
        None => Ok(0),
    }
}

fn store_changed(tx: &mut Tx<'_>, place: Place, changed: Option<Failure>) -> bool {
    match changed {
        Some(failure) => {
            tx.store(place, &failure);
            true
        }
        None => false,
    }
}

#[async_trait]
impl FailureLedger for EmbeddedStore {
    async fn record_attempt(&self, attempt: Attempt) -> Result<Failure> {
        self.write("record_attempt", 0, move |tx| {
            attempt.check()?;
            fence(tx, attempt.fence().as_ref())?;
            let place = place_of(&attempt);
            let known: Option<Failure> = tx.record(&place)?;
            let failure = rules::ledger::record_attempt(&attempt, known.as_ref(), tx.now());
            tx.store(place, &failure);
            Ok(failure)
        })
        .await
    }

    async fn park(&self, park: Park) -> Result<Failure> {
        self.write("park", park.error.len(), move |tx| {
            park.attempt.check()?;
            fence(tx, park.attempt.fence().as_ref())?;
            let place = place_of(&park.attempt);
            let known: Option<Failure> = tx.record(&place)?;
            let failure = rules::ledger::park(&park, known.as_ref(), tx.now());
            tx.store(place, &failure);
            Ok(failure)
        })
        .await
    }

    async fn retry(&self, subscription: &SubscriptionName, aggregate_id: &AggregateId) -> Result<bool> {
        let place = places::failure(subscription, aggregate_id);
        self.write("retry", 0, move |tx| {
            let known: Option<Failure> = tx.record(&place)?;
            let changed = rules::ledger::retry(known.as_ref(), tx.now());
            Ok(store_changed(tx, place, changed))
        })
        .await
    }

    async fn discard(
        &self,
        subscription: &SubscriptionName,
        aggregate_id: &AggregateId,
        version: Version,
    ) -> Result<bool> {
        let (subscription, place) = (subscription.clone(), places::failure(subscription, aggregate_id));
        self.write("discard", 0, move |tx| {
            let known: Option<Failure> = tx.record(&place)?;
            let Some((failure, discarded)) = rules::ledger::discard(known.as_ref(), version, tx.now()) else {
                return Ok(false);
            };
            let number = count_discards(tx, &subscription)?.saturating_add(1);
            tx.store(places::discarded(&subscription, number), &discarded);
            tx.store(place, &failure);
            Ok(true)
        })
        .await
    }

    async fn advance(&self, attempt: Attempt) -> Result<bool> {
        self.write("advance", 0, move |tx| {
            attempt.check()?;
            fence(tx, attempt.fence().as_ref())?;
            let place = place_of(&attempt);
            let known: Option<Failure> = tx.record(&place)?;
            let changed = rules::ledger::advance(&attempt, known.as_ref(), tx.now());
            Ok(store_changed(tx, place, changed))
        })
        .await
    }

    async fn resolve(&self, attempt: Attempt) -> Result<bool> {
        self.write("resolve", 0, move |tx| {
            attempt.check()?;
            fence(tx, attempt.fence().as_ref())?;
            let place = place_of(&attempt);
            match tx.record::<Failure>(&place)? {
                Some(known) if rules::ledger::resolves(&attempt, &known) => {
                    tx.remove(place);
                    Ok(true)
                }
                Some(_) => Ok(false),
                None => Ok(true),
            }
        })
        .await
    }

    async fn failure(
        &self,
        subscription: &SubscriptionName,
        aggregate_id: &AggregateId,
    ) -> Result<Option<Failure>> {
        self.read("failure", |view| view.record(&places::failure(subscription, aggregate_id)))
    }

    async fn failures(&self, list: ListFailures) -> Result<Vec<Failure>> {
        self.scan("failures", move |view| {
            let under = places::failures(&list.subscription);
            let after = list.after.as_ref().map(|id| behind(&places::failure(&list.subscription, id).key));
            let from = after.as_deref().unwrap_or(under.key.as_slice());
            let is_listed = |failure: &Result<Failure>| failure.as_ref().map_or(true, |it| list.matches(it));
            view.records_from(&under, Bound::Included(from)).filter(is_listed).take(list.limit).collect()
        })
        .await
    }

    async fn discarded(&self, subscription: &SubscriptionName, limit: usize) -> Result<Vec<Discarded>> {
        let under = places::discards(subscription);
        self.scan("discarded", move |view| view.records_back(&under).take(limit).collect()).await
    }

    async fn failure_counts(&self, subscription: &SubscriptionName) -> Result<FailureCounts> {
        let subscription = subscription.clone();
        self.scan("failure_counts", move |view| {
            let mut counts = FailureCounts::default();
            for failure in view.records::<Failure>(&places::failures(&subscription)) {
                let count = match failure?.state {
                    FailureState::Trying => &mut counts.trying,
                    FailureState::Parked => &mut counts.parked,
                    FailureState::Retrying => &mut counts.retrying,
                };
                *count = count.saturating_add(1);
            }
            counts.discarded = count_discards(view, &subscription)?;
            Ok(counts)
        })
        .await
    }
}
