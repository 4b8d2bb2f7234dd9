//! Faults of the failure ledger (F1 to F3).

use async_trait::async_trait;
use wow_store_api::{
    AggregateId, Attempt, Discarded, Failure, FailureCounts, FailureLedger, ListFailures, Park, Result,
    SubscriptionName, Version,
};

use super::{Mutant, mutants};

mutants! { LedgerFault in "ledger": }

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl FailureLedger for Mutant {
    async fn record_attempt(&self, attempt: Attempt) -> Result<Failure> {
        self.store().record_attempt(attempt).await
    }

    async fn park(&self, park: Park) -> Result<Failure> {
        self.store().park(park).await
    }

    async fn retry(&self, subscription: &SubscriptionName, aggregate_id: &AggregateId) -> Result<bool> {
        self.store().retry(subscription, aggregate_id).await
    }

    async fn discard(
        &self,
        subscription: &SubscriptionName,
        aggregate_id: &AggregateId,
        version: Version,
    ) -> Result<bool> {
        self.store().discard(subscription, aggregate_id, version).await
    }

    async fn advance(&self, attempt: Attempt) -> Result<bool> {
        self.store().advance(attempt).await
    }

    async fn resolve(&self, attempt: Attempt) -> Result<bool> {
        self.store().resolve(attempt).await
    }

    async fn failure(
        &self,
        subscription: &SubscriptionName,
        aggregate_id: &AggregateId,
    ) -> Result<Option<Failure>> {
        self.store().failure(subscription, aggregate_id).await
    }

    async fn failures(&self, list: ListFailures) -> Result<Vec<Failure>> {
        self.store().failures(list).await
    }

    async fn discarded(&self, subscription: &SubscriptionName, limit: usize) -> Result<Vec<Discarded>> {
        self.store().discarded(subscription, limit).await
    }

    async fn failure_counts(&self, subscription: &SubscriptionName) -> Result<FailureCounts> {
        self.store().failure_counts(subscription).await
    }
}
