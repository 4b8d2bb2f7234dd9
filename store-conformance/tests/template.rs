//! My store under the suite.

use std::{process::ExitCode, sync::Arc, time::Duration};
use wow_store_api::{
    EventStore, ManualClock, MemoryStore as MyStore, PartitionId, Position, Result, Timestamp,
};
use wow_store_conformance::{Place, Settings, async_trait, run};

/// What it takes to open the store: a directory, a URL and a schema …
#[derive(Debug)]
struct MyPlace {
    store: MyStore,
    clock: ManualClock,
}

#[async_trait]
impl Place for MyPlace {
    async fn open(&self) -> Result<Arc<dyn EventStore>> {
        Ok(Arc::new(self.store.reopen()))
    }

    fn clock(&self) -> Option<&ManualClock> {
        Some(&self.clock)
    }

    async fn lose_log_after(&self, partition: &PartitionId, after_position: Position) -> bool {
        self.store.lose_log_after(partition, after_position);
        true
    }
}

fn place(settings: Settings) -> Arc<dyn Place> {
    let start = Timestamp::UNIX_EPOCH.saturating_add(Duration::from_secs(1_800_000_000)); // in 2027
    let clock = ManualClock::new(start);
    let store = MyStore::builder().partitions(settings.partitions).clock(clock.clone()).build();
    Arc::new(MyPlace { store, clock })
}

fn main() -> ExitCode {
    run(place)
}
