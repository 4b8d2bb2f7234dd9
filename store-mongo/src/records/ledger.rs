//! The failure ledger (F1 to F3).

use async_trait::async_trait;
use mongodb::bson::{Document, RawDocument, doc};
use wow_store_api::{
    AggregateId, AggregateType, Attempt, Discarded, Error, FailedCommit, Failure, FailureCounts,
    FailureLedger, FailureState, Fence, ListFailures, Park, PartitionId, Result, SubscriptionName, Timestamp,
    Version, rules,
};

use super::{lease, limit, starting_with};
use crate::{
    attempts::Kind,
    db::{Find, Work},
    document::{Fields as _, Writer, int, long},
    fault::Fault,
    macros::{attempt, transaction},
    names,
    store::{Inner, MongoStore},
};

fn state_name(state: FailureState) -> &'static str {
    match state {
        FailureState::Trying => "trying",
        FailureState::Parked => "parked",
        FailureState::Retrying => "retrying",
    }
}

fn state_named(name: &str) -> Result<FailureState, Fault> {
    match name {
        "trying" => Ok(FailureState::Trying),
        "parked" => Ok(FailureState::Parked),
        "retrying" => Ok(FailureState::Retrying),
        _ => {
            Err(Fault::from(Error::corrupt("the failure ledger", "an entry has a state that does not exist")))
        }
    }
}

/// In the order in which aggregates are listed.
fn id(subscription: &SubscriptionName, id: &AggregateId) -> Document {
    doc! {
        "subscription": subscription.as_str(),
        "context": id.context().as_str(),
        "aggregate": id.aggregate_type().name().as_str(),
        "tenant": id.tenant().unwrap_or_default(),
        "id": id.id(),
    }
}

fn of_subscription(subscription: &SubscriptionName, next: &str) -> Document {
    starting_with(&doc! { "subscription": subscription.as_str() }, next)
}

fn write_aggregate(to: &mut Writer, id: &AggregateId) {
    to.text("context", id.context().as_str());
    to.text("aggregate", id.aggregate_type().name().as_str());
    to.text("tenant", id.tenant().unwrap_or_default());
    to.text("id", id.id());
}

fn aggregate_id(found: &RawDocument) -> Result<AggregateId, Fault> {
    let aggregate_type = AggregateType::from_names(found.name("context")?, found.name("aggregate")?)?;
    let id = AggregateId::of(aggregate_type, found.text("id")?)?;
    match found.text("tenant")? {
        "" => Ok(id),
        tenant => Ok(id.with_tenant(tenant)?),
    }
}

fn commit(found: &RawDocument) -> Result<FailedCommit, Fault> {
    Ok(FailedCommit { position: found.counter("position")?, version: found.counter("version")? })
}

fn read(found: &RawDocument) -> Result<Failure, Fault> {
    let id = found.part("_id")?;
    let aggregate_id = aggregate_id(id)?;
    Ok(Failure {
        subscription: id.name("subscription")?,
        partition: PartitionId::new(aggregate_id.context().clone(), found.number("partition")?),
        aggregate_id,
        state: state_named(found.text("state")?)?,
        commit: commit(found)?,
        from_version: found.counter("from_version")?,
        attempts: u32::try_from(found.counter("attempts")?).unwrap_or(u32::MAX),
        event: found.text_or_none("event")?.map(str::to_owned),
        error: found.text_or_none("error")?.map(str::to_owned),
        since: found.instant("since")?,
        updated_at: found.instant("updated_at")?,
    })
}

async fn put(work: &mut Work<'_>, failure: &Failure) -> Result<(), Fault> {
    let mut to = Writer::new();
    to.begin_document("_id");
    to.text("subscription", failure.subscription.as_str());
    write_aggregate(&mut to, &failure.aggregate_id);
    to.close();
    to.int32("partition", int(failure.partition.index()));
    to.text("state", state_name(failure.state));
    to.int64("position", long(failure.commit.position));
    to.int64("version", long(failure.commit.version));
    to.int64("from_version", long(failure.from_version));
    to.int64("attempts", i64::from(failure.attempts));
    if let Some(event) = &failure.event {
        to.text("event", event);
    }
    if let Some(error) = &failure.error {
        to.text("error", error);
    }
    to.instant("since", failure.since);
    to.instant("updated_at", failure.updated_at);
    work.put(names::FAILURE_LEDGER, to.finish()?).await
}

/// Adds to the discarded, behind the last one of the subscription.
async fn put_discarded(work: &mut Work<'_>, discarded: &Discarded) -> Result<(), Fault> {
    let last = vec![
        doc! { "$match": of_subscription(&discarded.subscription, "number") },
        doc! { "$sort": { "_id": -1 } },
        doc! { "$limit": 1 },
        doc! { "$project": { "_id": 1 } },
    ];
    let last = work.aggregate(names::FAILURE_DISCARDED, last).await?;
    let last = last.first().map_or(Ok(0), |last| last.part("_id")?.counter("number"))?;
    let mut to = Writer::new();
    to.begin_document("_id");
    to.text("subscription", discarded.subscription.as_str());
    to.int64("number", long(last.saturating_add(1)));
    to.close();
    write_aggregate(&mut to, &discarded.aggregate_id);
    to.int64("position", long(discarded.commit.position));
    to.int64("version", long(discarded.commit.version));
    if let Some(event) = &discarded.event {
        to.text("event", event);
    }
    if let Some(error) = &discarded.error {
        to.text("error", error);
    }
    to.instant("discarded_at", discarded.discarded_at);
    work.insert(names::FAILURE_DISCARDED, &[to.finish()?]).await
}

/// What to do about an entry.
struct Decision<T> {
    write: Option<Failure>,
    delete: bool,
    discarded: Option<Discarded>,
    answer: T,
}

impl<T> Decision<T> {
    fn answer(answer: T) -> Self {
        Self { write: None, delete: false, discarded: None, answer }
    }

    fn writing(mut self, failure: Failure) -> Self {
        self.write = Some(failure);
        self
    }
}

impl Inner {
    /// Reads an entry, decides and writes, in one transaction.
    async fn change<T: Send>(
        &self,
        work: &mut Work<'_>,
        subscription: &SubscriptionName,
        aggregate_id: &AggregateId,
        fence: Option<Fence>,
        decide: impl Fn(Option<&Failure>, Timestamp) -> Decision<T> + Send + Sync,
    ) -> Result<T, Fault> {
        lease::check_fence(work, fence.as_ref()).await?;
        let key = doc! { "_id": id(subscription, aggregate_id) };
        let known = work.find_one(names::FAILURE_LEDGER, key.clone()).await?;
        let known = known.map(|known| read(&known)).transpose()?;
        let decision = decide(known.as_ref(), self.now_in(work).await?);
        if let Some(failure) = &decision.write {
            put(work, failure).await?;
        }
        if decision.delete {
            work.delete(names::FAILURE_LEDGER, key).await?;
        }
        if let Some(discarded) = &decision.discarded {
            put_discarded(work, discarded).await?;
        }
        Ok(decision.answer)
    }
}

#[async_trait]
impl FailureLedger for MongoStore {
    async fn record_attempt(&self, attempt: Attempt) -> Result<Failure> {
        self.check_open("record_attempt")?;
        let inner = &self.inner;
        attempt.check().map_err(|error| inner.named("record_attempt", error))?;
        transaction!(inner, Kind::Once, "record_attempt", |work| {
            let decide = |known: Option<&Failure>, now| {
                let failure = rules::ledger::record_attempt(&attempt, known, now);
                Decision::answer(failure.clone()).writing(failure)
            };
            let (subscription, id) = (&attempt.subscription, &attempt.aggregate_id);
            inner.change(work, subscription, id, attempt.fence(), decide).await
        })
    }

    async fn park(&self, park: Park) -> Result<Failure> {
        self.check_open("park")?;
        let inner = &self.inner;
        let attempt = &park.attempt;
        attempt.check().map_err(|error| inner.named("park", error))?;
        transaction!(inner, Kind::Repeatable, "park", |work| {
            let decide = |known: Option<&Failure>, now| {
                let failure = rules::ledger::park(&park, known, now);
                Decision::answer(failure.clone()).writing(failure)
            };
            let (subscription, id) = (&attempt.subscription, &attempt.aggregate_id);
            inner.change(work, subscription, id, attempt.fence(), decide).await
        })
    }

    async fn retry(&self, subscription: &SubscriptionName, aggregate_id: &AggregateId) -> Result<bool> {
        self.check_open("retry")?;
        let inner = &self.inner;
        transaction!(inner, Kind::Repeatable, "retry", |work| {
            let decide = |known: Option<&Failure>, now| match rules::ledger::retry(known, now) {
                Some(failure) => Decision::answer(true).writing(failure),
                None => Decision::answer(false),
            };
            inner.change(work, subscription, aggregate_id, None, decide).await
        })
    }

    async fn discard(
        &self,
        subscription: &SubscriptionName,
        aggregate_id: &AggregateId,
        version: Version,
    ) -> Result<bool> {
        self.check_open("discard")?;
        let inner = &self.inner;
        transaction!(inner, Kind::Once, "discard", |work| {
            let decide = |known: Option<&Failure>, now| match rules::ledger::discard(known, version, now) {
                Some((failure, discarded)) => {
                    let mut decision = Decision::answer(true).writing(failure);
                    decision.discarded = Some(discarded);
                    decision
                }
                None => Decision::answer(false),
            };
            inner.change(work, subscription, aggregate_id, None, decide).await
        })
    }

    async fn advance(&self, attempt: Attempt) -> Result<bool> {
        self.check_open("advance")?;
        let inner = &self.inner;
        attempt.check().map_err(|error| inner.named("advance", error))?;
        transaction!(inner, Kind::Repeatable, "advance", |work| {
            let decide = |known: Option<&Failure>, now| match rules::ledger::advance(&attempt, known, now) {
                Some(failure) => Decision::answer(true).writing(failure),
                None => Decision::answer(false),
            };
            let (subscription, id) = (&attempt.subscription, &attempt.aggregate_id);
            inner.change(work, subscription, id, attempt.fence(), decide).await
        })
    }

    async fn resolve(&self, attempt: Attempt) -> Result<bool> {
        self.check_open("resolve")?;
        let inner = &self.inner;
        attempt.check().map_err(|error| inner.named("resolve", error))?;
        transaction!(inner, Kind::Repeatable, "resolve", |work| {
            let decide = |known: Option<&Failure>, _| match known {
                Some(known) => {
                    let resolves = rules::ledger::resolves(&attempt, known);
                    let mut decision = Decision::answer(resolves);
                    decision.delete = resolves;
                    decision
                }
                None => Decision::answer(true),
            };
            let (subscription, id) = (&attempt.subscription, &attempt.aggregate_id);
            inner.change(work, subscription, id, attempt.fence(), decide).await
        })
    }

    async fn failure(
        &self,
        subscription: &SubscriptionName,
        aggregate_id: &AggregateId,
    ) -> Result<Option<Failure>> {
        self.check_open("failure")?;
        let find = Find::new(doc! { "_id": id(subscription, aggregate_id) });
        attempt!(self.inner, Kind::Read, "failure", {
            let found = self.inner.db.find_one(names::FAILURE_LEDGER, find.clone()).await?;
            found.map(|found| read(&found)).transpose()
        })
    }

    async fn failures(&self, list: ListFailures) -> Result<Vec<Failure>> {
        self.check_open("failures")?;
        if list.limit == 0 {
            return Ok(Vec::new());
        }
        let mut conditions = vec![of_subscription(&list.subscription, "context")];
        if let Some(partition) = &list.partition {
            conditions.push(doc! {
                "_id.context": partition.context().as_str(),
                "partition": int(partition.index()),
            });
        }
        if let Some(state) = list.state {
            conditions.push(doc! { "state": state_name(state) });
        }
        if let Some(after) = &list.after {
            conditions.push(doc! { "_id": { "$gt": id(&list.subscription, after) } });
        }
        let find =
            Find::new(doc! { "$and": conditions }).sorted(doc! { "_id": 1 }).limited(limit(list.limit));
        attempt!(self.inner, Kind::Read, "failures", {
            let found = self.inner.db.find(names::FAILURE_LEDGER, find.clone()).await?;
            found.iter().map(|found| read(found)).collect()
        })
    }

    async fn discarded(&self, subscription: &SubscriptionName, most: usize) -> Result<Vec<Discarded>> {
        self.check_open("discarded")?;
        if most == 0 {
            return Ok(Vec::new());
        }
        let find = Find::new(of_subscription(subscription, "number")).sorted(doc! { "_id": -1 });
        let find = find.limited(limit(most));
        attempt!(self.inner, Kind::Read, "discarded", {
            let found = self.inner.db.find(names::FAILURE_DISCARDED, find.clone()).await?;
            let read = |found: &RawDocument| {
                Ok(Discarded {
                    subscription: subscription.clone(),
                    aggregate_id: aggregate_id(found)?,
                    commit: commit(found)?,
                    event: found.text_or_none("event")?.map(str::to_owned),
                    error: found.text_or_none("error")?.map(str::to_owned),
                    discarded_at: found.instant("discarded_at")?,
                })
            };
            found.iter().map(|found| read(found)).collect()
        })
    }

    async fn failure_counts(&self, subscription: &SubscriptionName) -> Result<FailureCounts> {
        self.check_open("failure_counts")?;
        let by_state = vec![
            doc! { "$match": of_subscription(subscription, "context") },
            doc! { "$group": { "_id": "$state", "count": { "$sum": 1_i64 } } },
        ];
        let discarded =
            vec![doc! { "$match": of_subscription(subscription, "number") }, doc! { "$count": "count" }];
        attempt!(self.inner, Kind::Read, "failure_counts", {
            let mut counts = FailureCounts::default();
            for found in self.inner.db.aggregate(names::FAILURE_LEDGER, by_state.clone()).await? {
                let count = found.counter("count")?;
                match state_named(found.text("_id")?)? {
                    FailureState::Trying => counts.trying = count,
                    FailureState::Parked => counts.parked = count,
                    FailureState::Retrying => counts.retrying = count,
                }
            }
            let found = self.inner.db.aggregate(names::FAILURE_DISCARDED, discarded.clone()).await?;
            counts.discarded = found.first().map_or(Ok(0), |found| found.counter("count"))?;
            Ok(counts)
        })
    }
}
