//! Directories that are somebody else's, and those that were moved or removed while a store was open in them.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]

mod support;

use std::path::Path;

use support::{check_context, commit, context, order};
use tempfile::TempDir;
use wow_store_api::{Error, ErrorKind, Outcome, StoreAdmin as _, StoreExt as _};
use wow_store_embedded::{EmbeddedConfig, EmbeddedStore};

async fn open(directory: &Path) -> Result<EmbeddedStore, Error> {
    EmbeddedStore::open(EmbeddedConfig::new(directory)).await
}

async fn append(store: &EmbeddedStore, command: &str) -> Result<(), Error> {
    store.append(commit(&order("1"), command, 10)).await.map(drop)
}

/// The commands of everything that is stored.
async fn commands(store: &EmbeddedStore) -> Vec<String> {
    let content = check_context(store, &context("shop")).await.unwrap();
    content.keys().map(|(_, command)| command.to_string()).collect()
}

/// Nothing more is written, and nobody is told that it was.
async fn is_refused(store: &EmbeddedStore, state: &str) {
    for command in ["late", "later"] {
        let error = append(store, command).await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Poisoned { .. }), "{state}: {error:?}");
        assert_eq!(error.outcome(), Outcome::NotApplied, "{state}");
    }
}

fn is_misconfigured(refused: Result<EmbeddedStore, Error>, state: &str) {
    let error = refused.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Misconfigured { .. }), "{state}: {error:?}");
    assert_eq!(error.outcome(), Outcome::NotApplied, "{state}");
}

#[tokio::test]
async fn directory_that_was_moved_is_written_to_no_more_and_loses_nothing() {
    let root = TempDir::new().unwrap();
    let (here, there) = (root.path().join("here"), root.path().join("there"));
    let store = open(&here).await.unwrap();
    append(&store, "a").await.unwrap();
    std::fs::rename(&here, &there).unwrap();
    is_refused(&store, "moved").await;
    // Somebody makes a new one in its place.
    let other = open(&here).await.unwrap();
    append(&other, "b").await.unwrap();
    is_refused(&store, "moved, and another one in its place").await;
    store.close().await.unwrap();
    append(&other, "c").await.unwrap();
    other.close().await.unwrap();
    assert_eq!(commands(&open(&here).await.unwrap()).await, ["b", "c"], "the new one is left alone");
    assert_eq!(
        commands(&open(&there).await.unwrap()).await,
        ["a"],
        "the moved one has what was acknowledged"
    );
}

#[tokio::test]
async fn directory_that_was_removed_acknowledges_nothing_more() {
    let root = TempDir::new().unwrap();
    let path = root.path().join("store");
    let store = open(&path).await.unwrap();
    append(&store, "a").await.unwrap();
    std::fs::remove_dir_all(&path).unwrap();
    is_refused(&store, "removed").await;
    store.close().await.unwrap();
}

#[tokio::test]
async fn store_whose_locks_were_removed_gives_way_to_whoever_opens_it_next() {
    let root = TempDir::new().unwrap();
    let store = open(root.path()).await.unwrap();
    append(&store, "a").await.unwrap();
    for lock in ["owner", "db/lock"] {
        std::fs::remove_file(root.path().join(lock)).unwrap();
    }
    let second = open(root.path()).await.unwrap();
    append(&second, "b").await.unwrap();
    is_refused(&store, "taken over").await;
    append(&second, "c").await.unwrap();
    store.close().await.unwrap();
    second.close().await.unwrap();
    let store = open(root.path()).await.unwrap();
    assert_eq!(commands(&store).await, ["a", "b", "c"], "what was acknowledged is there");
}

#[tokio::test]
async fn files_of_somebody_else_are_not_touched_whatever_their_names() {
    for name in ["owner", "probe", "acknowledged", "acknowledged.new", "db", "db.unfinished", "letter.txt"] {
        let root = TempDir::new().unwrap();
        let file = root.path().join(name);
        std::fs::write(&file, "dear reader").unwrap();
        is_misconfigured(open(root.path()).await, name);
        assert_eq!(std::fs::read(&file).unwrap(), b"dear reader", "{name}");
        assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 1, "nothing is put beside {name}");
    }
}

#[cfg(unix)]
#[tokio::test]
async fn links_and_pipes_are_refused_and_not_waited_for() {
    let root = TempDir::new().unwrap();
    for (name, target) in [("dangling", "nowhere"), ("loop", "loop")] {
        let path = root.path().join(name);
        std::os::unix::fs::symlink(target, &path).unwrap();
        is_misconfigured(open(&path).await, name);
        assert!(path.is_symlink(), "{name} is left alone");
    }
    // A database that is elsewhere, and was not finished there.
    let (linked, elsewhere) = (root.path().join("linked"), root.path().join("elsewhere"));
    for made in [&linked, &elsewhere] {
        std::fs::create_dir(made).unwrap();
    }
    std::os::unix::fs::symlink(&elsewhere, linked.join("db")).unwrap();
    is_misconfigured(open(&linked).await, "a linked database");
    assert!(linked.join("db").is_symlink() && elsewhere.is_dir(), "the link is left alone");
    for name in ["acknowledged", "owner", "probe"] {
        let path = root.path().join(format!("pipe-{name}"));
        open(&path).await.unwrap().close().await.unwrap();
        let pipe = path.join(name);
        let _ = std::fs::remove_file(&pipe);
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        is_misconfigured(open(&path).await, name);
    }
}
