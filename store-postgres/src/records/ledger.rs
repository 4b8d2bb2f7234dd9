//! The failure ledger (F1 to F3).

use async_trait::async_trait;
use sqlx::postgres::{PgArguments, PgRow};
use wow_store_api::{
    AggregateId, AggregateType, Attempt, Discarded, Error, FailedCommit, Failure, FailureCounts,
    FailureLedger, FailureState, Fence, ListFailures, Park, PartitionId, Result, SubscriptionName, Timestamp,
    Version, rules,
};

use super::limit;
use crate::{
    attempts::Kind,
    fault::Fault,
    macros::{args, attempt},
    pool::Conn,
    store::{Inner, PostgresStore},
    value::{Cells as _, Instant, bigint, integer},
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

/// An aggregate from `context, aggregate, tenant, id`.
fn aggregate_id(row: &PgRow) -> Result<AggregateId, Fault> {
    let aggregate_type = AggregateType::from_names(row.name(0)?, row.name(1)?)?;
    let id = AggregateId::of(aggregate_type, row.cell::<&str>(3)?)?;
    match row.cell::<&str>(2)? {
        "" => Ok(id),
        tenant => Ok(id.with_tenant(tenant)?),
    }
}

fn failure(row: &PgRow, subscription: &SubscriptionName) -> Result<Failure, Fault> {
    let aggregate_id = aggregate_id(row)?;
    Ok(Failure {
        subscription: subscription.clone(),
        partition: PartitionId::new(aggregate_id.context().clone(), row.number(4)?),
        aggregate_id,
        state: state_named(row.cell(5)?)?,
        commit: FailedCommit { position: row.counter(6)?, version: row.counter(7)? },
        from_version: row.counter(8)?,
        attempts: u32::try_from(row.counter(9)?).unwrap_or(u32::MAX),
        event: row.cell(10)?,
        error: row.cell(11)?,
        since: row.instant(12)?,
        updated_at: row.instant(13)?,
    })
}

fn key(subscription: &SubscriptionName, id: &AggregateId) -> Result<PgArguments, Fault> {
    Ok(args![
        subscription.as_str(),
        id.context().as_str(),
        id.aggregate_type().name().as_str(),
        id.tenant().unwrap_or_default(),
        id.id(),
    ])
}

fn columns(failure: &Failure) -> Result<PgArguments, Fault> {
    let id = &failure.aggregate_id;
    Ok(args![
        failure.subscription.as_str(),
        id.context().as_str(),
        id.aggregate_type().name().as_str(),
        id.tenant().unwrap_or_default(),
        id.id(),
        integer(failure.partition.index()),
        state_name(failure.state),
        bigint(failure.commit.position),
        bigint(failure.commit.version),
        bigint(failure.from_version),
        i64::from(failure.attempts),
        failure.event.as_deref(),
        failure.error.as_deref(),
        Instant(failure.since),
        Instant(failure.updated_at),
    ])
}

/// What a rule decided about an entry.
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
    /// Counts an attempt in one statement, or finds in a second one that the aggregate is parked. `None` where neither
    /// is the case: then the rules say why.
    async fn count_at_once(&self, conn: &mut Conn, attempt: &Attempt) -> Result<Option<Failure>, Fault> {
        let (subscription, id) = (&attempt.subscription, &attempt.aggregate_id);
        let epoch = attempt.fence().map(|fence| fence.epoch);
        let partition = integer(attempt.partition.index());
        let arguments = args![
            subscription.as_str(),
            id.context().as_str(),
            id.aggregate_type().name().as_str(),
            id.tenant().unwrap_or_default(),
            id.id(),
            partition,
            bigint(attempt.commit.position),
            bigint(attempt.commit.version),
            epoch.map(bigint),
        ];
        if let Some(row) = conn.row(&self.statements.failure_count, arguments).await? {
            return failure(&row, subscription).map(Some);
        }
        let mut arguments = key(subscription, id)?;
        sqlx::Arguments::add(&mut arguments, partition)
            .map_err(|_| Fault::from(Error::internal("a parameter was refused")))?;
        let Some(row) = conn.row(&self.statements.failure_and_epoch, arguments).await? else {
            return Ok(None);
        };
        let overtaken = epoch.is_some_and(|epoch| epoch < row.counter(14).unwrap_or(u64::MAX));
        let known = failure(&row, subscription)?;
        Ok(Some(known).filter(|known| known.state == FailureState::Parked && !overtaken))
    }

    /// One change of an entry: fence, lock, rule, write.
    async fn change<T: Send>(
        &self,
        conn: &mut Conn,
        subscription: &SubscriptionName,
        id: &AggregateId,
        fence: Option<Fence>,
        decide: impl Fn(Option<&Failure>, Timestamp) -> Decision<T> + Send + Sync,
    ) -> Result<T, Fault> {
        conn.begin().await?;
        self.check_fence(conn, fence.as_ref()).await?;
        let known = conn.row(&self.statements.failure_lock, key(subscription, id)?).await?;
        let known = known.map(|row| failure(&row, subscription)).transpose()?;
        let decision = decide(known.as_ref(), self.now_in(conn).await?);
        if let Some(failure) = &decision.write {
            let sql = match known {
                Some(_) => &self.statements.failure_update,
                None => &self.statements.failure_insert,
            };
            if conn.execute(sql, columns(failure)?).await? == 0 {
                // Somebody made the entry at the same moment: decide again, on that.
                return Err(Fault::overtaken());
            }
        }
        if decision.delete {
            conn.execute(&self.statements.failure_delete, key(subscription, id)?).await?;
        }
        if let Some(discarded) = &decision.discarded {
            let arguments = args![
                subscription.as_str(),
                id.context().as_str(),
                id.aggregate_type().name().as_str(),
                id.tenant().unwrap_or_default(),
                id.id(),
                bigint(discarded.commit.position),
                bigint(discarded.commit.version),
                discarded.event.as_deref(),
                discarded.error.as_deref(),
                Instant(discarded.discarded_at),
            ];
            conn.execute(&self.statements.discarded_insert, arguments).await?;
        }
        conn.commit().await?;
        Ok(decision.answer)
    }
}

#[async_trait]
impl FailureLedger for PostgresStore {
    async fn record_attempt(&self, attempt: Attempt) -> Result<Failure> {
        self.check_open("record_attempt")?;
        let inner = &self.inner;
        attempt.check().map_err(|error| inner.named("record_attempt", error))?;
        attempt!(inner, Kind::Once, "record_attempt", |conn| {
            if let Some(counted) = inner.count_at_once(conn, &attempt).await? {
                return Ok(counted);
            }
            let decide = |known: Option<&Failure>, now| {
                let failure = rules::ledger::record_attempt(&attempt, known, now);
                Decision::answer(failure.clone()).writing(failure)
            };
            let (subscription, id) = (&attempt.subscription, &attempt.aggregate_id);
            inner.change(conn, subscription, id, attempt.fence(), decide).await
        })
    }

    async fn park(&self, park: Park) -> Result<Failure> {
        self.check_open("park")?;
        let inner = &self.inner;
        let attempt = &park.attempt;
        attempt.check().map_err(|error| inner.named("park", error))?;
        attempt!(inner, Kind::Repeatable, "park", |conn| {
            let decide = |known: Option<&Failure>, now| {
                let failure = rules::ledger::park(&park, known, now);
                Decision::answer(failure.clone()).writing(failure)
            };
            let (subscription, id) = (&attempt.subscription, &attempt.aggregate_id);
            inner.change(conn, subscription, id, attempt.fence(), decide).await
        })
    }

    async fn retry(&self, subscription: &SubscriptionName, aggregate_id: &AggregateId) -> Result<bool> {
        self.check_open("retry")?;
        attempt!(self.inner, Kind::Repeatable, "retry", |conn| {
            let decide = |known: Option<&Failure>, now| match rules::ledger::retry(known, now) {
                Some(failure) => Decision::answer(true).writing(failure),
                None => Decision::answer(false),
            };
            self.inner.change(conn, subscription, aggregate_id, None, decide).await
        })
    }

    async fn discard(
        &self,
        subscription: &SubscriptionName,
        aggregate_id: &AggregateId,
        version: Version,
    ) -> Result<bool> {
        self.check_open("discard")?;
        attempt!(self.inner, Kind::Once, "discard", |conn| {
            let decide = |known: Option<&Failure>, now| match rules::ledger::discard(known, version, now) {
                Some((failure, discarded)) => {
                    let mut decision = Decision::answer(true).writing(failure);
                    decision.discarded = Some(discarded);
                    decision
                }
                None => Decision::answer(false),
            };
            self.inner.change(conn, subscription, aggregate_id, None, decide).await
        })
    }

    async fn advance(&self, attempt: Attempt) -> Result<bool> {
        self.check_open("advance")?;
        let inner = &self.inner;
        attempt.check().map_err(|error| inner.named("advance", error))?;
        attempt!(inner, Kind::Repeatable, "advance", |conn| {
            let decide = |known: Option<&Failure>, now| match rules::ledger::advance(&attempt, known, now) {
                Some(failure) => Decision::answer(true).writing(failure),
                None => Decision::answer(false),
            };
            let (subscription, id) = (&attempt.subscription, &attempt.aggregate_id);
            inner.change(conn, subscription, id, attempt.fence(), decide).await
        })
    }

    async fn resolve(&self, attempt: Attempt) -> Result<bool> {
        self.check_open("resolve")?;
        let inner = &self.inner;
        attempt.check().map_err(|error| inner.named("resolve", error))?;
        attempt!(inner, Kind::Repeatable, "resolve", |conn| {
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
            inner.change(conn, subscription, id, attempt.fence(), decide).await
        })
    }

    async fn failure(
        &self,
        subscription: &SubscriptionName,
        aggregate_id: &AggregateId,
    ) -> Result<Option<Failure>> {
        self.check_open("failure")?;
        attempt!(self.inner, Kind::Read, "failure", |conn| {
            let row = conn.row(&self.inner.statements.failure_get, key(subscription, aggregate_id)?).await?;
            row.map(|row| failure(&row, subscription)).transpose()
        })
    }

    async fn failures(&self, list: ListFailures) -> Result<Vec<Failure>> {
        self.check_open("failures")?;
        attempt!(self.inner, Kind::Read, "failures", |conn| {
            let after = list.after.as_ref();
            let arguments = args![
                list.subscription.as_str(),
                list.partition.as_ref().map(|partition| partition.context().as_str()),
                list.partition.as_ref().map(|partition| integer(partition.index())),
                list.state.map(state_name),
                after.map(|id| id.context().as_str()),
                after.map(|id| id.aggregate_type().name().as_str()),
                after.map(|id| id.tenant().unwrap_or_default()),
                after.map(AggregateId::id),
                limit(list.limit),
            ];
            let rows = conn.rows(&self.inner.statements.failures, arguments).await?;
            rows.iter().map(|row| failure(row, &list.subscription)).collect()
        })
    }

    async fn discarded(&self, subscription: &SubscriptionName, most: usize) -> Result<Vec<Discarded>> {
        self.check_open("discarded")?;
        attempt!(self.inner, Kind::Read, "discarded", |conn| {
            let arguments = args![subscription.as_str(), limit(most)];
            let rows = conn.rows(&self.inner.statements.discarded, arguments).await?;
            rows.iter()
                .map(|row| {
                    Ok(Discarded {
                        subscription: subscription.clone(),
                        aggregate_id: aggregate_id(row)?,
                        commit: FailedCommit { position: row.counter(4)?, version: row.counter(5)? },
                        event: row.cell(6)?,
                        error: row.cell(7)?,
                        discarded_at: row.instant(8)?,
                    })
                })
                .collect()
        })
    }

    async fn failure_counts(&self, subscription: &SubscriptionName) -> Result<FailureCounts> {
        self.check_open("failure_counts")?;
        attempt!(self.inner, Kind::Read, "failure_counts", |conn| {
            let row = conn.row(&self.inner.statements.failure_counts, args![subscription.as_str()]).await?;
            let row = row.ok_or_else(|| Fault::from(Error::internal("a count without a row")))?;
            Ok(FailureCounts {
                trying: row.counter(0)?,
                parked: row.counter(1)?,
                retrying: row.counter(2)?,
                discarded: row.counter(3)?,
            })
        })
    }
}
