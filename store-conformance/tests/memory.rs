//! The in-memory store under the suite.

#![allow(clippy::unwrap_used, reason = "test code")]

use std::{process::ExitCode, sync::Arc};

use wow_store_api::{EventStore, ManualClock, MemoryStore, PartitionId, Position, Result, Timestamp};
use wow_store_conformance::{Backend, Place, Settings, async_trait, run};

struct Memory;

#[derive(Debug)]
struct MemoryPlace {
    clock: ManualClock,
    store: MemoryStore,
}

#[async_trait]
impl Backend for Memory {
    async fn place(&self, settings: Settings) -> Arc<dyn Place> {
        let clock = ManualClock::new(Timestamp::from_millis(1_800_000_000_000).unwrap());
        let store = MemoryStore::builder().partitions(settings.partitions).clock(clock.clone()).build();
        Arc::new(MemoryPlace { clock, store })
    }

    fn is_in_process(&self) -> bool {
        true
    }
}

#[async_trait]
impl Place for MemoryPlace {
    async fn open(&self) -> Result<Arc<dyn EventStore>> {
        Ok(Arc::new(self.store.reopen()))
    }

    async fn second_handle(&self, _first: &Arc<dyn EventStore>) -> Result<Arc<dyn EventStore>> {
        self.open().await
    }

    fn clock(&self) -> Option<&ManualClock> {
        Some(&self.clock)
    }

    async fn lose_log_after(&self, partition: &PartitionId, after_position: Position) -> bool {
        self.store.lose_log_after(partition, after_position);
        true
    }
}

fn main() -> ExitCode {
    run(Memory)
}
