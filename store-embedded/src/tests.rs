//! What can only be brought about from inside: newer formats, a disk that fails.

use std::path::Path;

use futures_util::TryStreamExt as _;
use wow_store_api::{AggregateId, Commit, Error, ErrorKind, Outcome, Result, StoreAdmin as _, StoreExt as _};

use crate::{EmbeddedConfig, EmbeddedStore, codec::FormatRecord, engine::view::Tx, places};

async fn open(directory: &Path) -> Result<EmbeddedStore> {
    EmbeddedStore::open(EmbeddedConfig::new(directory)).await
}

fn commit(command: &str) -> Commit {
    let id = AggregateId::new("shop", "order", "1").unwrap();
    Commit::new(id, command).event("Happened", 1, &1).unwrap()
}

/// Changes a store behind its back, and opens it again.
async fn reopened_after(change: impl FnOnce(&mut Tx<'_>) + Send + 'static) -> Result<EmbeddedStore> {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path()).await.unwrap();
    let change = move |tx: &mut Tx<'_>| {
        change(tx);
        Ok(())
    };
    store.write("test", 0, change).await.unwrap();
    store.close().await.unwrap();
    open(directory.path()).await
}

fn format(structure: &str, version: u32) -> FormatRecord {
    FormatRecord { structure: structure.to_owned(), version }
}

#[tokio::test]
async fn newer_format_is_refused() {
    let refused = reopened_after(|tx| tx.store(places::format("timer"), &format("timer", 2))).await;
    let expected = ErrorKind::FormatUnsupported { structure: "timer".to_owned(), found: 2, supported: 1 };
    assert_eq!(*refused.unwrap_err().kind(), expected);
    let refused = reopened_after(|tx| tx.store(places::format("graph"), &format("graph", 1))).await;
    let error = refused.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::FormatUnsupported { .. }), "an unknown structure: {error:?}");
}

#[tokio::test]
async fn missing_format_is_damage() {
    let refused = reopened_after(|tx| tx.remove(places::format("log"))).await;
    assert!(refused.unwrap_err().is_corrupt());
}

#[tokio::test]
async fn formats_are_listed() {
    let directory = tempfile::tempdir().unwrap();
    let formats = open(directory.path()).await.unwrap().formats().await.unwrap();
    assert!(formats.iter().any(|format| format.structure == "log" && format.version == 1), "{formats:?}");
    assert!(formats.is_sorted_by_key(|format| &format.structure));
}

#[tokio::test]
async fn failed_sync_poisons_until_the_store_is_opened_again() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path()).await.unwrap();
    store.append(commit("a")).await.unwrap();
    store.fail_commits(true);
    let error = store.append(commit("b")).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Poisoned { .. }), "{error:?}");
    assert_eq!(error.outcome(), Outcome::Unknown, "it may be on disk");

    // The disk works again, which says nothing about what it has lost.
    store.fail_commits(false);
    let error = store.append(commit("c")).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Poisoned { .. }), "{error:?}");
    assert_eq!(error.outcome(), Outcome::NotApplied, "it was not even tried");
    let id = AggregateId::new("shop", "order", "1").unwrap();
    let loaded: Vec<_> = store.load(&id, ..).await.unwrap().try_collect().await.unwrap();
    assert_eq!(loaded.len(), 1, "what is durable can be read");

    store.close().await.unwrap();
    let store = open(directory.path()).await.unwrap();
    let receipt = store.append(commit("b")).await.unwrap();
    assert_eq!((receipt.version, receipt.replayed), (2, false), "the retry settles what was unknown");
}

#[tokio::test]
async fn panic_of_one_operation_is_its_own() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path()).await.unwrap();
    let broken = |_: &mut Tx<'_>| -> Result<()> { panic!("a bug") };
    let error: Error = store.write("test", 0, broken).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Internal { .. }), "{error:?}");
    store.append(commit("a")).await.unwrap();
}
