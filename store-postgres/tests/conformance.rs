//! The suite on PostgreSQL: a schema for each case, and a clock that cases can set.

#![allow(clippy::unwrap_used, reason = "a panic is how a test says no")]

mod support;

use std::{process::ExitCode, sync::Arc};

use support::Schema;
use wow_store_api::{EventStore, ManualClock, PartitionId, Position, Result, Timestamp};
use wow_store_conformance::{Backend, Place, Settings, async_trait, run};
use wow_store_postgres::{PostgresConfig, PostgresStore};

struct Postgres;

#[derive(Debug)]
struct PostgresPlace {
    schema: Schema,
    settings: Settings,
    clock: ManualClock,
}

#[async_trait]
impl Backend for Postgres {
    async fn place(&self, settings: Settings) -> Arc<dyn Place> {
        let clock = ManualClock::new(Timestamp::from_millis(1_800_000_000_000).unwrap());
        Arc::new(PostgresPlace { schema: Schema::fresh(), settings, clock })
    }
}

impl PostgresPlace {
    fn config(&self) -> PostgresConfig {
        self.schema.config().with_partitions(self.settings.partitions).with_clock(self.clock.clone())
    }
}

#[async_trait]
impl Place for PostgresPlace {
    async fn open(&self) -> Result<Arc<dyn EventStore>> {
        Ok(Arc::new(PostgresStore::open(self.config()).await?))
    }

    async fn second_handle(&self, _first: &Arc<dyn EventStore>) -> Result<Arc<dyn EventStore>> {
        self.open().await
    }

    fn clock(&self) -> Option<&ManualClock> {
        Some(&self.clock)
    }

    async fn lose_log_after(&self, partition: &PartitionId, after_position: Position) -> bool {
        // The cases that need it have commits of one type only.
        let (log, counter) =
            (self.schema.at("wow_log__shop__order"), self.schema.at("wow_log__shop__partition"));
        let sql = format!(
            "DELETE FROM {log} WHERE partition = {0} AND position > {after_position}; \
             UPDATE {counter} SET position = {after_position} WHERE partition = {0}",
            partition.index()
        );
        self.schema.execute(&sql).await;
        true
    }
}

fn main() -> ExitCode {
    run(Postgres)
}
