//! Queries (Q1 to Q3): compiled to aggregation, in which everything that comes from the query is a literal.

mod compile;
mod sort;

use async_trait::async_trait;
use mongodb::bson::{Document, RawDocument, doc};
use tokio::sync::Mutex;
use wow_store_api::{
    AggregateType, Error, Outcome, Queries, Result, Snapshot,
    query::{
        AtLeast, EventItem, EventPage, EventQuery, ReadPreference, SnapshotPage, SnapshotQuery, wait_until,
    },
};

use self::compile::Source;
use crate::{
    attempts::Kind,
    db::{Nodes, Raw},
    document::{Fields as _, int, long},
    fault::{Again, Fault},
    log::commit::aggregate_id,
    macros::attempt,
    names,
    store::{Inner, MongoStore},
};

fn snapshot(found: &RawDocument, aggregate_type: &AggregateType) -> Result<Snapshot, Fault> {
    Ok(Snapshot {
        aggregate_id: aggregate_id(found.part("_id")?, aggregate_type)?,
        version: found.counter("version")?,
        revision: found.number("revision")?,
        saved_at: found.instant("saved_at")?,
        state: found.payload("state")?,
    })
}

fn event(found: &RawDocument, aggregate_type: &AggregateType) -> Result<EventItem, Fault> {
    let (key, event) = (found.part("_id")?, found.part("events")?);
    let metadata = match found.get("metadata") {
        Ok(Some(_)) => Some(found.payload("metadata")?),
        _ => None,
    };
    Ok(EventItem {
        aggregate_id: aggregate_id(found, aggregate_type)?,
        version: found.counter("version")?,
        index: found.number("index")?,
        command_id: found.name("command_id")?,
        partition: key.number("partition")?,
        position: key.counter("position")?,
        committed_at: found.instant("committed_at")?,
        name: event.name("name")?,
        revision: event.number("revision")?,
        body: event.payload("body")?,
        metadata,
    })
}

/// How many there are, from the only document; 0 if there is none.
fn counted(found: &[Raw]) -> Result<u64, Fault> {
    found.first().map_or(Ok(0), |found| found.counter("count"))
}

/// What is asked.
struct Question {
    operation: &'static str,
    preference: Option<ReadPreference>,
    at_least: Option<AtLeast>,
    /// Where the version that is waited for is looked up, and how.
    probe: (String, Vec<Document>),
    collection: String,
    pipeline: Vec<Document>,
}

fn snapshot_probe(at_least: Option<&AtLeast>, revision: u32) -> (String, Vec<Document>) {
    let Some(at_least) = at_least else { return Default::default() };
    let id = &at_least.aggregate_id;
    let log = names::log(id.aggregate_type());
    let key = doc! { "tenant": id.tenant().unwrap_or_default(), "id": id.id() };
    let logged = doc! { "$lookup": {
        "from": log,
        "let": { "version": "$version" },
        "pipeline": [
            { "$match": {
                "tenant": id.tenant().unwrap_or_default(),
                "id": id.id(),
                "$expr": { "$eq": ["$version", "$$version"] },
            } },
            { "$limit": 1 },
            { "$project": { "_id": 1 } },
        ],
        "as": "logged",
    } };
    let wanted =
        doc! { "_id": key, "revision": int(revision), "version": { "$gte": long(at_least.version) } };
    let pipeline = vec![
        doc! { "$match": wanted },
        doc! { "$project": { "version": 1 } },
        logged,
        doc! { "$match": { "logged": { "$ne": [] } } },
    ];
    (names::snapshot(id.aggregate_type()), pipeline)
}

fn event_probe(at_least: Option<&AtLeast>) -> (String, Vec<Document>) {
    let Some(at_least) = at_least else { return Default::default() };
    let id = &at_least.aggregate_id;
    let wanted = doc! {
        "tenant": id.tenant().unwrap_or_default(),
        "id": id.id(),
        "version": { "$gte": long(at_least.version) },
    };
    let pipeline =
        vec![doc! { "$match": wanted }, doc! { "$limit": 1 }, doc! { "$project": { "version": 1 } }];
    (names::log(id.aggregate_type()), pipeline)
}

impl Inner {
    /// The documents that answer a question; none where a collection is missing. All is asked in one causal order: the
    /// node that answers has what an earlier one was seen to have.
    async fn ask(&self, question: &Question) -> Result<Vec<Raw>> {
        let preference = question.preference.unwrap_or(self.config.read_preference);
        let named = |error: Error| self.named(question.operation, error.with_outcome(Outcome::NotApplied));
        let nodes = self.db.nodes(preference).await.map_err(|fault| named(fault.error))?;
        let nodes = Mutex::new(nodes);
        if let Some(at_least) = question.at_least.as_ref().filter(|at_least| at_least.version > 0) {
            let waiting = wait_until(at_least.within, || probe(&nodes, question));
            waiting.await.map_err(|error| named(error.with_context(&at_least.aggregate_id)))?;
        }
        let found: Result<Vec<Raw>> = attempt!(self, Kind::Read, question.operation, {
            nodes.lock().await.aggregate(&question.collection, question.pipeline.clone()).await
        });
        found.map_err(named)
    }
}

async fn probe(nodes: &Mutex<Nodes>, question: &Question) -> Result<bool> {
    let (collection, pipeline) = &question.probe;
    match nodes.lock().await.aggregate(collection, pipeline.clone()).await {
        Ok(found) => Ok(!found.is_empty()),
        // It may come up in time.
        Err(fault) if fault.again != Again::No => Ok(false),
        Err(fault) => Err(fault.error),
    }
}

#[async_trait]
impl Queries for MongoStore {
    async fn query_snapshots(&self, query: SnapshotQuery) -> Result<SnapshotPage> {
        const OPERATION: &str = "query_snapshots";
        self.check_open(OPERATION)?;
        query.check().map_err(|error| self.inner.named(OPERATION, error))?;
        let log = names::log(&query.aggregate_type);
        let source = Source::Snapshots { revision: query.revision, log: &log };
        let question = Question {
            operation: OPERATION,
            preference: query.read_preference,
            probe: snapshot_probe(query.at_least.as_ref(), query.revision),
            at_least: query.at_least.clone(),
            collection: names::snapshot(&query.aggregate_type),
            pipeline: compile::page(source, &query.filter, &query.sort, query.after.as_ref(), query.limit),
        };
        let found = self.inner.ask(&question).await?;
        let page = || -> Result<SnapshotPage, Fault> {
            let found = found.iter().map(|found| snapshot(found, &query.aggregate_type));
            Ok(query.page(found.collect::<Result<_, _>>()?)?)
        };
        page().map_err(|fault| self.inner.named(OPERATION, fault.error))
    }

    async fn count_snapshots(&self, query: SnapshotQuery) -> Result<u64> {
        const OPERATION: &str = "count_snapshots";
        self.check_open(OPERATION)?;
        query.check().map_err(|error| self.inner.named(OPERATION, error))?;
        let log = names::log(&query.aggregate_type);
        let source = Source::Snapshots { revision: query.revision, log: &log };
        let question = Question {
            operation: OPERATION,
            preference: query.read_preference,
            probe: snapshot_probe(query.at_least.as_ref(), query.revision),
            at_least: query.at_least.clone(),
            collection: names::snapshot(&query.aggregate_type),
            pipeline: compile::count(source, &query.filter),
        };
        let found = self.inner.ask(&question).await?;
        counted(&found).map_err(|fault| self.inner.named(OPERATION, fault.error))
    }

    async fn query_events(&self, query: EventQuery) -> Result<EventPage> {
        const OPERATION: &str = "query_events";
        self.check_open(OPERATION)?;
        query.check().map_err(|error| self.inner.named(OPERATION, error))?;
        let question = Question {
            operation: OPERATION,
            preference: query.read_preference,
            probe: event_probe(query.at_least.as_ref()),
            at_least: query.at_least.clone(),
            collection: names::log(&query.aggregate_type),
            pipeline: compile::page(
                Source::Events,
                &query.filter,
                &query.sort,
                query.after.as_ref(),
                query.limit,
            ),
        };
        let found = self.inner.ask(&question).await?;
        let page = || -> Result<EventPage, Fault> {
            let found = found.iter().map(|found| event(found, &query.aggregate_type));
            Ok(query.page(found.collect::<Result<_, _>>()?)?)
        };
        page().map_err(|fault| self.inner.named(OPERATION, fault.error))
    }

    async fn count_events(&self, query: EventQuery) -> Result<u64> {
        const OPERATION: &str = "count_events";
        self.check_open(OPERATION)?;
        query.check().map_err(|error| self.inner.named(OPERATION, error))?;
        let question = Question {
            operation: OPERATION,
            preference: query.read_preference,
            probe: event_probe(query.at_least.as_ref()),
            at_least: query.at_least.clone(),
            collection: names::log(&query.aggregate_type),
            pipeline: compile::count(Source::Events, &query.filter),
        };
        let found = self.inner.ask(&question).await?;
        counted(&found).map_err(|fault| self.inner.named(OPERATION, fault.error))
    }
}
