//! The sides: each appends the same items to the same server, in the best way that it has.

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, Result};
use mongodb::bson::RawDocumentBuf;
use tokio::sync::Mutex;
use wow_store_api::{PartitionCount, StoreAdmin as _};
use wow_store_mongo::{MongoConfig, MongoStore};

use super::{
    bare::{self, Documents, Log},
    peer::Peer,
};
use crate::{
    load::{Appends, Body, Item, Written},
    sides::node::Node,
    turns::{self, Contender, measure},
};

/// The store, through its public interface.
pub(crate) type Store = Node<MongoStore>;

/// One side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Who {
    /// The store, through its public interface, as it is by default but for its partitions.
    Store { partitions: u32 },
    /// The same, but one append at a time: a transaction for each.
    OneByOne,
    /// mongo-es.
    Peer,
    /// A bare `insertOne`, one at a time.
    Insert,
    /// A bare `insertMany` without a transaction, on so many connections, one after the other on each.
    Batches { rows: usize, connections: i32 },
}

impl Contender for Who {
    fn name(self) -> String {
        match self {
            Self::Store { .. } => "wow-store".to_owned(),
            Self::OneByOne => "wow-store, one append per transaction".to_owned(),
            Self::Peer => "mongo-es 0.4.1".to_owned(),
            Self::Insert => "bare insertOne".to_owned(),
            Self::Batches { rows, connections: 1 } => format!("bare insertMany of {rows}"),
            Self::Batches { rows, connections } => {
                format!("bare insertMany of {rows}, {connections} connections")
            }
        }
    }

    async fn turn(self, url: &str, writers: usize, body: &Arc<Body>, time: Duration) -> Result<Written> {
        fresh(url).await?;
        match self {
            Self::Store { partitions } => {
                let side = store(url, partitions, true).await?;
                measure(side, writers, body, time).await
            }
            Self::OneByOne => {
                let side = OneByOne(Mutex::new(store(url, 1, true).await?));
                measure(side, writers, body, time).await
            }
            Self::Peer => measure(Peer::open(bare::client(url).await?).await?, writers, body, time).await,
            Self::Insert => measure(Insert::open(url, body).await?, writers, body, time).await,
            Self::Batches { rows, connections } => {
                let log = bare::log(&bare::client(url).await?).await?;
                let bulk =
                    |partition| Ok(Bulk { log: log.clone(), documents: Documents::new(body)?, partition });
                let bulks = (0..connections).map(bulk).collect::<Result<_>>()?;
                turns::batches(bulks, rows, time).await
            }
        }
        .with_context(|| format!("{} failed", self.name()))
    }
}

/// Empties the database.
pub(crate) async fn fresh(url: &str) -> Result<()> {
    bare::client(url).await?.default_database().context("a database in the URL")?.drop().await?;
    Ok(())
}

pub(crate) fn config(url: &str) -> Result<MongoConfig> {
    Ok(MongoConfig::new(url)?)
}

/// The store, with so many partitions.
pub(crate) async fn store(url: &str, partitions: u32, push: bool) -> Result<Store> {
    with(config(url)?.with_partitions(PartitionCount::new(partitions)?).with_push(push)).await
}

pub(crate) async fn with(config: MongoConfig) -> Result<Store> {
    Node::new(MongoStore::open(config).await?)
}

struct OneByOne(Mutex<Store>);

impl Appends for OneByOne {
    async fn append(&self, item: Item) -> Result<()> {
        self.0.lock().await.append(item).await
    }
}

struct Insert {
    log: Log,
    documents: Documents,
    position: Mutex<i64>,
}

impl Insert {
    async fn open(url: &str, body: &Arc<Body>) -> Result<Self> {
        let log = bare::log(&bare::client(url).await?).await?;
        Ok(Self { log, documents: Documents::new(body)?, position: Mutex::new(0) })
    }
}

impl Appends for Insert {
    async fn append(&self, item: Item) -> Result<()> {
        let mut position = self.position.lock().await;
        *position += 1;
        self.log.insert_one(self.documents.of(*position, &item)?).await?;
        Ok(())
    }
}

/// A bare `insertMany` into a partition of its own.
struct Bulk {
    log: Log,
    documents: Documents,
    partition: i32,
}

impl turns::Bulk for Bulk {
    type Batch = Vec<RawDocumentBuf>;

    fn batch(&self, rows: usize) -> Result<Self::Batch> {
        self.documents.batch(self.partition, rows)
    }

    async fn insert(&mut self, batch: Self::Batch) -> Result<()> {
        self.log.insert_many(&batch).await?;
        Ok(())
    }
}

/// Ends what a store does in the background.
pub(crate) async fn close(store: &Store) -> Result<()> {
    Ok(store.store.close().await?)
}
