//! The sides: each appends the same items to the same server, in the best way that it has.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use cqrs_es::persist::{PersistedEventRepository as _, SerializedEvent};
use postgres_es::PostgresEventRepository;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection};
use tokio::{sync::Mutex, task::JoinSet};
use wow_store_api::{
    AggregateId, AggregateType, Commit, ExpectedVersion, PartitionCount, StoreAdmin as _, StoreExt as _,
};
use wow_store_postgres::{Pooler, PostgresConfig, PostgresStore};

use super::{bare, peer::Order};
use crate::{
    load::{Appends, Body, EVENT, Item, Until, Written, write},
    sides::{AGGREGATE, CONTEXT},
};

/// Where the store keeps its tables.
const SCHEMA: &str = "wow";
/// How long a turn warms up, as a part of the turn.
const WARM_UP: u32 = 4;

/// One side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Who {
    /// The store, through its public interface, as it is by default but for its partitions.
    Store { partitions: u32, push: bool },
    /// The store without a queue: every writer has a store of its own, with one connection.
    Unqueued,
    /// postgres-es, with so many connections.
    Peer { pool: u32 },
    /// A bare INSERT of the row, one at a time on one connection.
    Insert,
    /// A bare INSERT of a whole batch out of arrays, on so many connections, one after the other on each.
    Batches { rows: usize, connections: u32 },
}

impl Who {
    pub(crate) fn name(self) -> String {
        match self {
            Self::Store { push: true, .. } => "wow-store".to_owned(),
            Self::Store { push: false, .. } => "wow-store without push".to_owned(),
            Self::Unqueued => "wow-store without queueing".to_owned(),
            Self::Peer { pool } => format!("postgres-es 0.5, {pool} connections"),
            Self::Insert => "bare INSERT".to_owned(),
            Self::Batches { rows, connections: 1 } => format!("bare UNNEST of {rows}"),
            Self::Batches { rows, connections } => {
                format!("bare UNNEST of {rows}, {connections} connections")
            }
        }
    }

    /// Lets it write for a while, into tables of its own.
    pub(crate) async fn turn(
        self,
        url: &str,
        writers: usize,
        body: &Arc<Body>,
        time: Duration,
    ) -> Result<Written> {
        fresh(url).await?;
        match self {
            Self::Store { partitions, push } => {
                let side = Store::open(url, partitions, push).await?;
                // Another node, as push has nobody to tell without.
                let other = Store::open(url, partitions, push).await?;
                let written = measure(side, writers, body, time).await;
                other.store.close().await?;
                written
            }
            Self::Unqueued => measure(Unqueued::open(url, writers).await?, writers, body, time).await,
            Self::Peer { pool } => measure(Peer::open(url, pool).await?, writers, body, time).await,
            Self::Insert => measure(Insert::open(url).await?, writers, body, time).await,
            Self::Batches { rows, connections } => {
                batches(url, rows, connections, body, time / WARM_UP).await?;
                batches(url, rows, connections, body, time).await
            }
        }
        .with_context(|| format!("{} failed", self.name()))
    }
}

/// Empties the database, and lets the server write what it has put off.
pub(crate) async fn fresh(url: &str) -> Result<()> {
    let mut connection = PgConnection::connect(url).await?;
    for sql in [
        "SET client_min_messages = warning",
        &format!("DROP SCHEMA IF EXISTS {SCHEMA} CASCADE"),
        "DROP SCHEMA public CASCADE",
        "CREATE SCHEMA public",
        bare::TABLES,
        super::peer::TABLES,
        "CHECKPOINT",
    ] {
        connection.execute(sqlx::raw_sql(AssertSqlSafe(sql.to_owned()))).await?;
    }
    connection.close().await?;
    Ok(())
}

async fn measure<S: Appends>(side: S, writers: usize, body: &Arc<Body>, time: Duration) -> Result<Written> {
    let side = Arc::new(side);
    write(&side, body, "warm", writers, Until::Elapsed(time / WARM_UP)).await?;
    write(&side, body, "turn", writers, Until::Elapsed(time)).await
}

/// The store.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) store: Arc<PostgresStore>,
    aggregates: AggregateType,
}

impl Store {
    pub(crate) async fn open(url: &str, partitions: u32, push: bool) -> Result<Self> {
        Self::with(config(url)?.with_partitions(PartitionCount::new(partitions)?).with_push(push)).await
    }

    pub(crate) async fn with(config: PostgresConfig) -> Result<Self> {
        let store = Arc::new(PostgresStore::open(config).await?);
        Ok(Self { store, aggregates: AggregateType::new(CONTEXT, AGGREGATE)? })
    }

    pub(crate) fn id(&self, id: &str) -> Result<AggregateId> {
        Ok(AggregateId::of(self.aggregates.clone(), id)?)
    }
}

pub(crate) fn config(url: &str) -> Result<PostgresConfig> {
    Ok(PostgresConfig::new(url)?.with_schema(SCHEMA).with_pooler(Pooler::Direct))
}

impl Appends for Store {
    async fn append(&self, item: Item) -> Result<()> {
        let commit = Commit::new(self.id(&item.id)?, item.command)
            .expect(ExpectedVersion::Exact(item.expected))
            .with_event(item.body.event.clone());
        self.store.append(commit).await?;
        Ok(())
    }
}

struct Unqueued {
    stores: Vec<Store>,
    next: AtomicUsize,
}

impl Unqueued {
    async fn open(url: &str, writers: usize) -> Result<Self> {
        let mut stores = Vec::new();
        for _ in 0..writers {
            let config = config(url)?.with_partitions(PartitionCount::new(1)?);
            let hour = Duration::from_secs(3_600);
            let config = config.with_push(false).with_max_connections(1).with_poll_interval(hour);
            stores.push(Store::with(config.with_transaction_timeout(Duration::from_secs(60))).await?);
        }
        Ok(Self { stores, next: AtomicUsize::new(0) })
    }
}

impl Appends for Unqueued {
    async fn append(&self, item: Item) -> Result<()> {
        // A writer's name ends with its number, before that of its aggregate.
        let number = item.id.split('-').nth(1).and_then(|number| number.parse().ok());
        let number: usize = number.unwrap_or_else(|| self.next.fetch_add(1, Ordering::Relaxed));
        let store = self.stores.get(number % self.stores.len()).context("a store for each writer")?;
        store.append(item).await
    }
}

/// postgres-es.
pub(crate) struct Peer(pub(crate) PostgresEventRepository);

impl Peer {
    pub(crate) async fn open(url: &str, pool: u32) -> Result<Self> {
        let pool = sqlx_peer::postgres::PgPoolOptions::new().max_connections(pool).connect(url).await?;
        Ok(Self(PostgresEventRepository::new(pool)))
    }
}

impl Appends for Peer {
    async fn append(&self, item: Item) -> Result<()> {
        let event = SerializedEvent::new(
            item.id,
            usize::try_from(item.expected)? + 1,
            AGGREGATE.to_owned(),
            EVENT.to_owned(),
            "1".to_owned(),
            item.body.value.clone(),
            serde_json::Value::Object(serde_json::Map::new()),
        );
        self.0.persist::<Order>(&[event], None).await?;
        Ok(())
    }
}

struct Insert(Mutex<(PgConnection, i64)>);

impl Insert {
    async fn open(url: &str) -> Result<Self> {
        Ok(Self(Mutex::new((PgConnection::connect(url).await?, 0))))
    }
}

impl Appends for Insert {
    async fn append(&self, item: Item) -> Result<()> {
        let mut guard = self.0.lock().await;
        let (connection, position) = &mut *guard;
        *position += 1;
        bare::insert(connection, *position, &item).await
    }
}

async fn batches(
    url: &str,
    rows: usize,
    connections: u32,
    body: &Arc<Body>,
    time: Duration,
) -> Result<Written> {
    let mut tasks = JoinSet::new();
    let mut ready = Vec::new();
    for _ in 0..connections {
        ready.push(PgConnection::connect(url).await?);
    }
    let start = Instant::now();
    for (partition, mut connection) in (0..).zip(ready) {
        let body = Arc::clone(body);
        tasks.spawn(async move {
            let mut latencies = Vec::new();
            while start.elapsed() < time {
                let batch = bare::Batch::new(partition, rows, &body);
                let asked = Instant::now();
                batch.insert(&mut connection).await?;
                latencies.push(asked.elapsed());
            }
            connection.close().await?;
            Ok::<_, anyhow::Error>(latencies)
        });
    }
    let mut latencies = Vec::new();
    while let Some(task) = tasks.join_next().await {
        latencies.append(&mut task??);
    }
    Ok(Written::of(latencies.len() * rows, start.elapsed(), latencies))
}
