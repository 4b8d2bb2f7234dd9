//! From the log to the totals: a subscription that can be killed at any time and loses and doubles nothing.
//!
//! A subscription is told every commit at least once: killed between handling a batch and saving the checkpoint, it is
//! told the batch again. For sums that is not good enough. So what was counted is stored together with the position up
//! to which it was counted, in one commit, and what comes again from before that position is passed over. (A read model
//! in a database does the same with the position in the same transaction.)

use std::sync::Arc;

use anyhow::{Context, Result};
use futures_util::TryStreamExt;
use serde::{Deserialize, Serialize};
use wow_store_api::{
    AggregateId, Commit, ContextName, EventStore, ExpectedVersion, PartitionId, Position, SaveCheckpoint,
    StoreExt, SubscriptionName, TailBatch, TailRequest, Version,
};
use wow_store_examples::progress::{Progress, Unit};

use crate::{case, totals::Totals};

/// The name that the checkpoints are saved under.
const SUBSCRIPTION: &str = "activity-report";
/// The context of what was counted. No log can have it: its own tallies would be counted with it.
pub(crate) const CONTEXT: &str = "replay-report";

/// Commits in a batch: one commit of the tally and one checkpoint for so many of the log.
const BATCH: usize = 5_000;

/// What the tally says of one batch.
#[derive(Debug, Serialize, Deserialize)]
struct BatchCounted {
    /// Everything in the partition up to here (inclusive) is counted.
    through: Position,
    counted: Totals,
}

/// What was counted of one partition. An aggregate like any other, in a context of its own: a subscription that writes
/// to the log that it reads would be told of its own commits.
#[derive(Debug)]
struct Tally {
    id: AggregateId,
    version: Version,
    through: Position,
    totals: Totals,
}

/// Goes on counting where the last run ended, up to the end of the log. The totals are those of the whole log.
pub(crate) async fn count(store: &Arc<dyn EventStore>, context: &ContextName) -> Result<Totals> {
    let subscription = SubscriptionName::new(SUBSCRIPTION)?;
    let mut tallies = Vec::new();
    let mut checkpoints = Vec::new();
    for partition in store.partitions(context).await?.partitions(context) {
        tallies.push(Tally::load(store, &partition).await?);
        let checkpoint = store.checkpoint(&subscription, &partition).await?;
        checkpoints.push((partition.index(), checkpoint.map_or(0, |checkpoint| checkpoint.position)));
    }
    let log: u64 = store.heads(context).await?.iter().sum();
    let done: u64 = checkpoints.iter().map(|(_, position)| position).sum();
    let progress = Progress::new("counting", log.saturating_sub(done), Unit::Count);

    let request = TailRequest::new(context.clone()).after_positions(checkpoints).with_max_commits(BATCH);
    let mut tail = store.tail(request).await?;
    // `next` would wait for more at the end of the log; a service does that, a report does not.
    while let Some(batch) = tail.try_next().await? {
        let tally =
            tallies.get_mut(usize::try_from(batch.partition.index())?).context("an unknown partition")?;
        tally.count(store, &batch).await?;
        store
            .save_checkpoint(SaveCheckpoint::new(subscription.clone(), batch.partition, batch.through))
            .await?;
        progress.advance(u64::try_from(batch.commits.len())?);
    }

    let mut totals = Totals::default();
    for tally in &tallies {
        totals.add(&tally.totals)?;
    }
    Ok(totals)
}

impl Tally {
    async fn load(store: &Arc<dyn EventStore>, partition: &PartitionId) -> Result<Self> {
        let id =
            AggregateId::new(CONTEXT, "tally", format!("{}/{}", partition.context(), partition.index()))?;
        let mut tally = Self { id, version: 0, through: 0, totals: Totals::default() };
        let mut commits = store.load(&tally.id, ..).await?;
        while let Some(commit) = commits.try_next().await? {
            for event in &commit.events {
                tally.apply(commit.version, &event.body.decode()?)?;
            }
        }
        Ok(tally)
    }

    fn apply(&mut self, version: Version, batch: &BatchCounted) -> Result<()> {
        self.totals.add(&batch.counted)?;
        self.through = batch.through;
        self.version = version;
        Ok(())
    }

    async fn count(&mut self, store: &Arc<dyn EventStore>, batch: &TailBatch) -> Result<()> {
        if batch.through <= self.through {
            return Ok(());
        }
        let mut counted = Totals::default();
        for commit in batch.commits.iter().filter(|commit| commit.position > self.through) {
            case::count(commit, &mut counted)?;
        }
        let batch = BatchCounted { through: batch.through, counted };
        // The expected version keeps out a second run of this program that counts the same at the same time.
        let commit = Commit::new(self.id.clone(), format!("through-{}", batch.through))
            .expect(ExpectedVersion::Exact(self.version))
            .event("BatchCounted", 1, &batch)?;
        let receipt = store.append(commit).await?;
        self.apply(receipt.version, &batch)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rust_decimal::{Decimal, dec};
    use serde_json::json;
    use wow_store_api::MemoryStore;

    use super::*;
    use crate::totals::Sum;

    async fn record(store: &Arc<dyn EventStore>, cases: std::ops::Range<u32>) {
        for case in cases {
            let id = AggregateId::new("log", "case", case.to_string()).expect("an id");
            let commit = Commit::new(id, "0")
                .event("CaseOpened", 1, &json!({}))
                .and_then(|commit| commit.event("Paid", 1, &json!({"amounts": {"amount": 1.1}})))
                .expect("a commit");
            store.append(commit).await.expect("it is stored");
        }
    }

    fn expected(cases: u64, sum: Decimal) -> Totals {
        Totals {
            cases,
            activities: BTreeMap::from([("Paid".to_owned(), cases)]),
            amounts: BTreeMap::from([("amount".to_owned(), Sum { count: cases, sum })]),
        }
    }

    #[tokio::test]
    async fn counting_goes_on_where_it_was() {
        let store: Arc<dyn EventStore> = Arc::new(MemoryStore::new());
        let context = ContextName::new("log").expect("a name");
        record(&store, 0..50).await;
        // The first part.
        assert_eq!(count(&store, &context).await.expect("it counts"), expected(50, dec!(55)));
        record(&store, 50..70).await;
        // The whole, of which only the second part was counted now.
        assert_eq!(count(&store, &context).await.expect("it counts"), expected(70, dec!(77)));
    }

    #[tokio::test]
    async fn what_comes_twice_is_counted_once() {
        let store: Arc<dyn EventStore> = Arc::new(MemoryStore::new());
        let context = ContextName::new("log").expect("a name");
        record(&store, 0..50).await;
        count(&store, &context).await.expect("it counts");
        // As if it had been killed before it could save a checkpoint; and meanwhile the log went on, so the batches
        // that come again are not even the same.
        let subscription = SubscriptionName::new(SUBSCRIPTION).expect("a name");
        for partition in store.partitions(&context).await.expect("it has some").partitions(&context) {
            let start = SaveCheckpoint::new(subscription.clone(), partition, 0);
            store.reset_checkpoint(start).await.expect("it goes back");
        }
        record(&store, 50..70).await;
        // Every case counts once.
        assert_eq!(count(&store, &context).await.expect("it counts"), expected(70, dec!(77)));
    }
}
