//! The embedded store under the suite.

#![allow(clippy::unwrap_used, reason = "test code")]

use std::{path::Path, process::ExitCode, sync::Arc};

use tempfile::TempDir;
use wow_store_api::{EventStore, ManualClock, PartitionCount, Result, Timestamp};
use wow_store_conformance::{Backend, Exception, Place, Settings, async_trait, run};
use wow_store_embedded::{EmbeddedConfig, EmbeddedStore};

struct Embedded;

#[derive(Debug)]
struct Directory {
    clock: ManualClock,
    partitions: PartitionCount,
    directory: TempDir,
}

#[async_trait]
impl Backend for Embedded {
    async fn place(&self, settings: Settings) -> Arc<dyn Place> {
        let clock = ManualClock::new(Timestamp::from_millis(1_800_000_000_000).unwrap());
        // In memory where there is some: hundreds of stores are made, and a disk that survives a crash is not what the
        // suite can see. The tests that kill the process use the disk.
        let memory = Path::new("/dev/shm");
        let directory = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        let directory = directory.unwrap();
        Arc::new(Directory { clock, partitions: settings.partitions, directory })
    }

    fn exceptions(&self) -> &'static [Exception] {
        &[Exception {
            case: "snapshot::ahead_of_a_restored_log_is_not_used",
            reason: "log and snapshots are in one database, which is copied and restored as one",
        }]
    }
}

#[async_trait]
impl Place for Directory {
    async fn open(&self) -> Result<Arc<dyn EventStore>> {
        let config = EmbeddedConfig::new(self.directory.path())
            .with_partitions(self.partitions)
            .with_clock(self.clock.clone());
        Ok(Arc::new(EmbeddedStore::open(config).await?))
    }

    async fn second_handle(&self, first: &Arc<dyn EventStore>) -> Result<Arc<dyn EventStore>> {
        Ok(Arc::clone(first))
    }

    fn clock(&self) -> Option<&ManualClock> {
        Some(&self.clock)
    }
}

fn main() -> ExitCode {
    run(Embedded)
}
