//! The suite on PostgreSQL: a schema for each case, and a clock that cases can set.

#![allow(clippy::unwrap_used, reason = "a panic is how a test says no")]

mod support;

use std::{process::ExitCode, sync::Arc};

use support::Schema;
use wow_store_api::{EventStore, ManualClock, PartitionId, Position, Result, Timestamp};
use wow_store_conformance::{Backend, Place, Settings, async_trait, run, server::PostgresServer};
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
        self.schema.lose_log_after(partition, after_position).await;
        true
    }
}

fn main() -> ExitCode {
    // Once, instead of once for each test, where there is no server to be had.
    if !std::env::args().any(|argument| argument == "--list") {
        let _ = PostgresServer::shared();
    }
    run(Postgres)
}
