//! Queries (Q1 to Q3): compiled to SQL over `jsonb`, with bound parameters for everything that comes from the query.

mod ask;
mod compile;
mod sort;

use async_trait::async_trait;
use sqlx::postgres::PgRow;
use wow_store_api::{
    AggregateId, AggregateType, Queries, Result, Snapshot,
    query::{AtLeast, EventItem, EventPage, EventQuery, SnapshotPage, SnapshotQuery},
};

pub(crate) use self::ask::Turn;
use self::{
    ask::{Probe, Question},
    compile::{Bound, Source},
};
use crate::{
    fault::Fault,
    names,
    pool::Sql,
    store::PostgresStore,
    value::{Cells as _, integer},
};

fn aggregate_id(row: &PgRow, aggregate_type: &AggregateType) -> Result<AggregateId, Fault> {
    let id = AggregateId::of(aggregate_type.clone(), row.cell::<&str>(1)?)?;
    match row.cell::<&str>(0)? {
        "" => Ok(id),
        tenant => Ok(id.with_tenant(tenant)?),
    }
}

fn snapshot(row: &PgRow, aggregate_type: &AggregateType) -> Result<Snapshot, Fault> {
    Ok(Snapshot {
        aggregate_id: aggregate_id(row, aggregate_type)?,
        version: row.counter(2)?,
        revision: row.number(3)?,
        saved_at: row.instant(4)?,
        state: row.payload(5)?,
    })
}

fn event(row: &PgRow, aggregate_type: &AggregateType) -> Result<EventItem, Fault> {
    let metadata = match row.cell::<Option<&str>>(11)? {
        Some(_) => Some(row.payload(11)?),
        None => None,
    };
    Ok(EventItem {
        aggregate_id: aggregate_id(row, aggregate_type)?,
        version: row.counter(2)?,
        index: u32::try_from(row.counter(3)?).unwrap_or(u32::MAX),
        command_id: row.name(4)?,
        partition: row.number(5)?,
        position: row.counter(6)?,
        committed_at: row.instant(7)?,
        name: row.name(8)?,
        revision: row.number(9)?,
        body: row.payload(10)?,
        metadata,
    })
}

/// How many there are, from the only row; 0 if there is no table.
fn count(rows: &[PgRow]) -> Result<u64, Fault> {
    rows.first().map_or(Ok(0), |row| row.counter(0))
}

impl PostgresStore {
    fn snapshot_source(&self, aggregate_type: &AggregateType) -> Source {
        let schema = &self.inner.schema;
        Source::Snapshots {
            snapshots: schema.at(&names::snapshot(aggregate_type)),
            log: schema.at(&names::log(aggregate_type)),
        }
    }

    fn event_source(&self, aggregate_type: &AggregateType) -> Source {
        Source::Events { log: self.inner.schema.at(&names::log(aggregate_type)) }
    }

    /// What asks a node for the version that a snapshot query waits for.
    fn snapshot_probe(&self, at_least: Option<&AtLeast>, revision: u32) -> Option<Probe> {
        self.probe(at_least, |tables, bound| {
            let revision = bound.integer(i64::from(integer(revision)));
            format!(
                "SELECT s.version FROM {} AS s WHERE s.tenant = $1 AND s.id = $2 AND s.revision = {revision} \
                 AND EXISTS (SELECT 1 FROM {} AS l WHERE l.tenant = $1 AND l.id = $2 AND l.version = s.version)",
                tables.0, tables.1
            )
        })
    }

    fn event_probe(&self, at_least: Option<&AtLeast>) -> Option<Probe> {
        self.probe(at_least, |tables, _| {
            format!(
                "SELECT l.version FROM {} AS l WHERE l.tenant = $1 AND l.id = $2 ORDER BY l.version DESC LIMIT 1",
                tables.1
            )
        })
    }

    fn probe(
        &self,
        at_least: Option<&AtLeast>,
        sql: impl FnOnce((String, String), &mut Bound) -> String,
    ) -> Option<Probe> {
        let at_least = at_least.filter(|at_least| at_least.version > 0)?;
        let id = &at_least.aggregate_id;
        let schema = &self.inner.schema;
        let tables =
            (schema.at(&names::snapshot(id.aggregate_type())), schema.at(&names::log(id.aggregate_type())));
        let mut bound = Bound::default();
        bound.text(id.tenant().unwrap_or_default());
        bound.text(id.id());
        let sql = Sql::from(sql(tables, &mut bound));
        Some(Probe { sql, bound, at_least: at_least.clone() })
    }
}

#[async_trait]
impl Queries for PostgresStore {
    async fn query_snapshots(&self, query: SnapshotQuery) -> Result<SnapshotPage> {
        const OPERATION: &str = "query_snapshots";
        self.check_open(OPERATION)?;
        query.check().map_err(|error| self.inner.named(OPERATION, error))?;
        let source = self.snapshot_source(&query.aggregate_type);
        let mut bound = Bound::default();
        let revision = bound.integer(i64::from(integer(query.revision)));
        let sql = compile::page(
            &source,
            &mut bound,
            Some(&revision),
            &query.filter,
            &query.sort,
            query.after.as_ref(),
            query.limit,
        );
        let question = Question {
            operation: OPERATION,
            preference: query.read_preference,
            probe: self.snapshot_probe(query.at_least.as_ref(), query.revision),
            sql,
            bound,
        };
        let rows = self.inner.ask(&question).await?;
        let page = || -> Result<SnapshotPage, Fault> {
            let found = rows.iter().map(|row| snapshot(row, &query.aggregate_type));
            Ok(query.page(found.collect::<Result<_, _>>()?)?)
        };
        page().map_err(|fault| self.inner.named(OPERATION, fault.error))
    }

    async fn count_snapshots(&self, query: SnapshotQuery) -> Result<u64> {
        const OPERATION: &str = "count_snapshots";
        self.check_open(OPERATION)?;
        query.check().map_err(|error| self.inner.named(OPERATION, error))?;
        let source = self.snapshot_source(&query.aggregate_type);
        let mut bound = Bound::default();
        let revision = bound.integer(i64::from(integer(query.revision)));
        let sql = compile::count(&source, &mut bound, Some(&revision), &query.filter);
        let question = Question {
            operation: OPERATION,
            preference: query.read_preference,
            probe: self.snapshot_probe(query.at_least.as_ref(), query.revision),
            sql,
            bound,
        };
        let rows = self.inner.ask(&question).await?;
        count(&rows).map_err(|fault| self.inner.named(OPERATION, fault.error))
    }

    async fn query_events(&self, query: EventQuery) -> Result<EventPage> {
        const OPERATION: &str = "query_events";
        self.check_open(OPERATION)?;
        query.check().map_err(|error| self.inner.named(OPERATION, error))?;
        let source = self.event_source(&query.aggregate_type);
        let mut bound = Bound::default();
        let sql = compile::page(
            &source,
            &mut bound,
            None,
            &query.filter,
            &query.sort,
            query.after.as_ref(),
            query.limit,
        );
        let question = Question {
            operation: OPERATION,
            preference: query.read_preference,
            probe: self.event_probe(query.at_least.as_ref()),
            sql,
            bound,
        };
        let rows = self.inner.ask(&question).await?;
        let page = || -> Result<EventPage, Fault> {
            let found = rows.iter().map(|row| event(row, &query.aggregate_type));
            Ok(query.page(found.collect::<Result<_, _>>()?)?)
        };
        page().map_err(|fault| self.inner.named(OPERATION, fault.error))
    }

    async fn count_events(&self, query: EventQuery) -> Result<u64> {
        const OPERATION: &str = "count_events";
        self.check_open(OPERATION)?;
        query.check().map_err(|error| self.inner.named(OPERATION, error))?;
        let source = self.event_source(&query.aggregate_type);
        let mut bound = Bound::default();
        let sql = compile::count(&source, &mut bound, None, &query.filter);
        let question = Question {
            operation: OPERATION,
            preference: query.read_preference,
            probe: self.event_probe(query.at_least.as_ref()),
            sql,
            bound,
        };
        let rows = self.inner.ask(&question).await?;
        count(&rows).map_err(|fault| self.inner.named(OPERATION, fault.error))
    }
}
