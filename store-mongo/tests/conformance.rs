//! The suite on MongoDB: a database for each case, and a clock that cases can set.

#![allow(clippy::unwrap_used, reason = "a panic is how a test says no")]

mod support;

use std::{process::ExitCode, sync::Arc};

use mongodb::bson::{Document, doc};
use support::Database;
use wow_store_api::{EventStore, ManualClock, PartitionId, Position, Result, Timestamp};
use wow_store_conformance::{Backend, Place, Settings, async_trait, run, server::MongoServer};
use wow_store_mongo::{MongoConfig, MongoStore};

struct Mongo;

#[derive(Debug)]
struct MongoPlace {
    database: Database,
    settings: Settings,
    clock: ManualClock,
}

#[async_trait]
impl Backend for Mongo {
    async fn place(&self, settings: Settings) -> Arc<dyn Place> {
        let clock = ManualClock::new(Timestamp::from_millis(1_800_000_000_000).unwrap());
        Arc::new(MongoPlace { database: Database::fresh(), settings, clock })
    }
}

impl MongoPlace {
    fn config(&self) -> MongoConfig {
        self.database.config().with_partitions(self.settings.partitions).with_clock(self.clock.clone())
    }
}

#[async_trait]
impl Place for MongoPlace {
    async fn open(&self) -> Result<Arc<dyn EventStore>> {
        Ok(Arc::new(MongoStore::open(self.config()).await?))
    }

    async fn second_handle(&self, _first: &Arc<dyn EventStore>) -> Result<Arc<dyn EventStore>> {
        self.open().await
    }

    fn clock(&self) -> Option<&ManualClock> {
        Some(&self.clock)
    }

    async fn lose_log_after(&self, partition: &PartitionId, after_position: Position) -> bool {
        let database = self.database.connect().await;
        let index = i32::try_from(partition.index()).unwrap();
        let position = i64::try_from(after_position).unwrap();
        let prefix = format!("wow_log__{}__", partition.context());
        for name in database.list_collection_names().await.unwrap() {
            let collection = database.collection::<Document>(&name);
            if name == format!("{prefix}partition") {
                let back = doc! { "$set": { "position": position } };
                collection.update_one(doc! { "_id": index }, back).await.unwrap();
            } else if name.starts_with(&prefix) {
                let lost = doc! { "_id.partition": index, "_id.position": { "$gt": position } };
                collection.delete_many(lost).await.unwrap();
            }
        }
        true
    }
}

fn main() -> ExitCode {
    // Once, instead of once for each test, where there is no server to be had. It lives as long as this.
    let listing = std::env::args().any(|argument| argument == "--list");
    let _server = (!listing).then(MongoServer::shared);
    run(Mongo)
}
