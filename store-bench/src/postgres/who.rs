//! The sides: each appends the same items to the same server, in the best way that it has.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, Result};
use cqrs_es::persist::PersistedEventRepository as _;
use postgres_es::PostgresEventRepository;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection};
use tokio::sync::Mutex;
use wow_store_api::{PartitionCount, StoreAdmin as _};
use wow_store_postgres::{Pooler, PostgresConfig, PostgresStore};

use super::bare;
use crate::{
    load::{Appends, Body, Item, Written},
    sides::{
        cqrs::{self, Order},
        node::Node,
    },
    turns::{self, Contender, measure},
};

/// The store, through its public interface.
pub(crate) type Store = Node<PostgresStore>;

/// Where the store keeps its tables.
const SCHEMA: &str = "wow";
/// The tables of postgres-es, as its `db/init.sql` has them.
const PEER_TABLES: &str = "
    CREATE TABLE events (
        aggregate_type text NOT NULL,
        aggregate_id text NOT NULL,
        sequence bigint CHECK (sequence >= 0) NOT NULL,
        event_type text NOT NULL,
        event_version text NOT NULL,
        payload json NOT NULL,
        metadata json NOT NULL,
        PRIMARY KEY (aggregate_type, aggregate_id, sequence)
    );
";

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
    Batches { rows: usize, connections: i32 },
}

impl Contender for Who {
    fn name(self) -> String {
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

    /// Into tables of its own.
    async fn turn(self, url: &str, writers: usize, body: &Arc<Body>, time: Duration) -> Result<Written> {
        fresh(url).await?;
        match self {
            Self::Store { partitions, push } => {
                let side = store(url, partitions, push).await?;
                // Another node, as push has nobody to tell without.
                let other = store(url, partitions, push).await?;
                let written = measure(side, writers, body, time).await;
                other.store.close().await?;
                written
            }
            Self::Unqueued => measure(Unqueued::open(url, writers).await?, writers, body, time).await,
            Self::Peer { pool } => measure(Peer::open(url, pool).await?, writers, body, time).await,
            Self::Insert => measure(Insert::open(url).await?, writers, body, time).await,
            Self::Batches { rows, connections } => {
                let mut bulks = Vec::new();
                for partition in 0..connections {
                    let connection = PgConnection::connect(url).await?;
                    bulks.push(Bulk { connection, body: Arc::clone(body), partition });
                }
                turns::batches(bulks, rows, time).await
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
        PEER_TABLES,
        "CHECKPOINT",
    ] {
        connection.execute(sqlx::raw_sql(AssertSqlSafe(sql.to_owned()))).await?;
    }
    connection.close().await?;
    Ok(())
}

/// The store, with so many partitions.
pub(crate) async fn store(url: &str, partitions: u32, push: bool) -> Result<Store> {
    with(config(url)?.with_partitions(PartitionCount::new(partitions)?).with_push(push)).await
}

pub(crate) async fn with(config: PostgresConfig) -> Result<Store> {
    Node::new(PostgresStore::open(config).await?)
}

pub(crate) fn config(url: &str) -> Result<PostgresConfig> {
    Ok(PostgresConfig::new(url)?.with_schema(SCHEMA).with_pooler(Pooler::Direct))
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
            stores.push(with(config.with_transaction_timeout(Duration::from_secs(60))).await?);
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
        let event = cqrs::event(item)?;
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

/// A bare INSERT of whole batches into a partition of its own, on a connection of its own.
struct Bulk {
    connection: PgConnection,
    body: Arc<Body>,
    partition: i32,
}

impl turns::Bulk for Bulk {
    type Batch = bare::Batch;

    fn batch(&self, rows: usize) -> Result<Self::Batch> {
        Ok(bare::Batch::new(self.partition, rows, &self.body))
    }

    async fn insert(&mut self, batch: Self::Batch) -> Result<()> {
        batch.insert(&mut self.connection).await
    }
}
