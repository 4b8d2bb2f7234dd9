//! Writes the store that later versions must be able to read: `fixture DIRECTORY`.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a tool of the tests")]

use wow_store_api::{ManualClock, PartitionCount, StoreAdmin as _};
use wow_store_conformance::story;
use wow_store_embedded::{EmbeddedConfig, EmbeddedStore};

#[tokio::main]
async fn main() {
    let directory = std::env::args_os().nth(1).expect("usage: fixture DIRECTORY");
    let clock = ManualClock::new(story::start());
    let config = EmbeddedConfig::new(&directory)
        .with_partitions(PartitionCount::new(story::PARTITIONS).unwrap())
        .with_clock(clock.clone())
        // Small, so that there are tables too.
        .with_memtable_bytes(64 * 1024);
    let store = EmbeddedStore::open(config.clone()).await.unwrap();
    story::tell(&store, &clock).await;
    store.close().await.unwrap();
    // Opened once more it gives back the room at the end of its journal.
    EmbeddedStore::open(config).await.unwrap().close().await.unwrap();
}
