//! Stores that earlier versions have written are read by this one.
//!
//! `cargo run -p wow-store-embedded --example fixture -- store-embedded/fixtures/v<n>` writes one, when a format changes;
//! the earlier ones stay as they are.

#![allow(clippy::unwrap_used, reason = "test code")]

#[path = "support/story.rs"]
mod story;
mod support;

use std::path::Path;

use wow_store_api::{ManualClock, MemoryStore, PartitionCount, StoreAdmin as _};
use wow_store_embedded::{EmbeddedConfig, EmbeddedStore};

#[tokio::test]
async fn store_of_version_1_is_read_and_goes_on() {
    reads_and_goes_on("v1").await;
}

async fn reads_and_goes_on(version: &str) {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(version);
    let directory = tempfile::tempdir().unwrap();
    support::copy(&fixture, directory.path());

    // The same story on the store that the contract is written in.
    let clock = ManualClock::new(story::start());
    let partitions = PartitionCount::new(story::PARTITIONS).unwrap();
    let memory = MemoryStore::builder().partitions(partitions).clock(clock.clone()).build();
    story::tell(&memory, &clock).await;
    let now = clock.clone();

    let open = || EmbeddedStore::open(EmbeddedConfig::new(directory.path()).with_clock(now.clone()));
    let store = open().await.unwrap();
    assert_eq!(story::read(&store).await, story::read(&memory).await, "all of it is there");
    for context in ["shop", "bank"] {
        support::check_context(&store, &support::context(context)).await.unwrap();
    }

    // One clock for both: each gets it as it was.
    let paused = wow_store_api::Clock::now(&clock);
    story::go_on(&memory, &clock).await;
    clock.set(paused);
    story::go_on(&store, &clock).await;
    store.close().await.unwrap();
    let store = open().await.unwrap();
    assert_eq!(story::read(&store).await, story::read(&memory).await, "and what came after it");
}
