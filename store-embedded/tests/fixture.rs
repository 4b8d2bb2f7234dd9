//! Stores that earlier versions have written are read by this one.
//!
//! `cargo run -p wow-store-embedded --example fixture -- store-embedded/fixtures/v<n>` writes one, when a format changes;
//! the earlier ones stay as they are.

#![allow(clippy::unwrap_used, reason = "test code")]

mod support;

use std::path::Path;

use wow_store_api::ManualClock;
use wow_store_conformance::story;
use wow_store_embedded::{EmbeddedConfig, EmbeddedStore};

#[tokio::test]
async fn store_of_version_1_is_read_and_goes_on() {
    reads_and_goes_on("v1").await;
}

async fn reads_and_goes_on(version: &str) {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(version);
    let directory = tempfile::tempdir().unwrap();
    support::copy(&fixture, directory.path());
    let clock = ManualClock::new(story::start());
    story::is_read_and_goes_on(&clock, async || {
        let config = EmbeddedConfig::new(directory.path()).with_clock(clock.clone());
        let store = EmbeddedStore::open(config).await.unwrap();
        for context in ["shop", "bank"] {
            support::check_context(&store, &support::context(context)).await.unwrap();
        }
        store
    })
    .await;
}
