//! The disk is full: a clear error, a store that can be read, and that goes on after there is room.
//!
//! Runs in a process of its own that mounts a small file system in memory, in a mount namespace of its own, which asks
//! for no more rights than the tests have. Where the system does not let it, the test is reported as ignored, or fails
//! if `WOW_TEST_DISK_FULL` is `required`.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "test code")]

mod support;

use std::{
    env,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use libtest_mimic::{Arguments, Trial};
use support::{check_context, commit, context, order};
use wow_store_api::{Error, ErrorKind, Outcome, StoreAdmin as _, StoreExt as _};
use wow_store_embedded::{EmbeddedConfig, EmbeddedStore};

const DIRECTORY: &str = "WOW_FULL_CHILD_DIRECTORY";
/// `required`: it is a failure that no small disk can be made here.
const SETTING: &str = "WOW_TEST_DISK_FULL";
const MEMTABLE: &str = "WOW_FULL_CHILD_MEMTABLE";
/// The size of the disk, in MiB, and of a file on it that is removed to make room.
const DISK: usize = 24;
const BALLAST: usize = 8;

fn main() -> ExitCode {
    if let Ok(directory) = env::var(DIRECTORY) {
        let memtable = env::var(MEMTABLE).unwrap().parse().unwrap();
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(fill(&PathBuf::from(directory), memtable));
        return ExitCode::SUCCESS;
    }
    let refusal = in_namespace("true").status().map_or_else(
        |error| Some(error.to_string()),
        |status| (!status.success()).then(|| "a mount namespace cannot be made here".to_owned()),
    );
    if let Some(refusal) = refusal.as_ref().filter(|_| env::var(SETTING).is_ok_and(|it| it == "required")) {
        println!("a small disk is required ({SETTING}), but {refusal}");
        return ExitCode::FAILURE;
    }
    let trial = |name: &str, memtable: u64| {
        Trial::test(name, move || {
            on_a_small_disk(memtable);
            Ok(())
        })
        .with_ignored_flag(refusal.is_some())
        .with_kind(refusal.as_deref().unwrap_or_default())
    };
    let trials = vec![
        // What fills it is the journal, or the tables that are written behind it.
        trial("full_disk_is_told_and_survived", 64 * 1024 * 1024),
        trial("full_disk_is_told_and_survived_while_tables_are_written", 256 * 1024),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// A command in namespaces of its own, with a small disk at `$WOW_FULL_CHILD_DIRECTORY` if that is set.
fn in_namespace(command: &str) -> Command {
    let mut unshare = Command::new("unshare");
    let mount = format!("mount -t tmpfs -o size={DISK}m tmpfs \"${{{DIRECTORY}:-/tmp}}\" && exec \"$0\"");
    unshare.args(["--user", "--map-root-user", "--mount", "sh", "-c", &mount, command]);
    unshare
}

fn on_a_small_disk(memtable: u64) {
    let directory = tempfile::tempdir().unwrap();
    let this = env::current_exe().unwrap();
    let output = in_namespace(this.to_str().unwrap())
        .env(DIRECTORY, directory.path())
        .env(MEMTABLE, memtable.to_string())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    print!("{}", String::from_utf8_lossy(&output.stdout));
    assert!(output.status.success(), "{text}");
}

async fn open(directory: &Path, memtable: u64) -> Result<EmbeddedStore, Error> {
    EmbeddedStore::open(EmbeddedConfig::new(directory).with_memtable_bytes(memtable)).await
}

/// Appends until it is refused. Returns how many went in and the refusal.
async fn append_until_full(store: &EmbeddedStore, tag: &str) -> (u64, Error) {
    for n in 0.. {
        // The bytes of a text of one letter would be packed into nothing.
        let text: String = (0..20_000).map(|_| fastrand::alphanumeric()).collect();
        let commit = wow_store_api::Commit::new(order(format!("{tag}-{}", n / 10)), format!("c-{n}"));
        if let Err(error) = store.append(commit.event("Happened", 1, &text).unwrap()).await {
            return (n, error);
        }
    }
    unreachable!("a disk is full some time");
}

/// How many commits there are; checks all of them.
async fn count(store: &EmbeddedStore) -> u64 {
    u64::try_from(check_context(store, &context("shop")).await.unwrap().len()).unwrap()
}

/// Takes the last byte of the disk.
fn fill_up(disk: &Path) -> PathBuf {
    use std::io::Write as _;
    let path = disk.join("filler");
    let mut file = std::fs::File::create(&path).unwrap();
    for size in [1 << 20, 4096, 1] {
        while file.write_all(&vec![7; size]).is_ok() {}
    }
    let refused = std::fs::write(disk.join("one-byte"), "1").unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::StorageFull, "nothing is left");
    std::fs::remove_file(disk.join("one-byte")).unwrap();
    path
}

async fn fill(disk: &Path, memtable: u64) {
    let (directory, ballast) = (disk.join("store"), disk.join("ballast"));
    std::fs::write(&ballast, vec![7; BALLAST * 1024 * 1024]).unwrap();
    let store = open(&directory, memtable).await.unwrap();
    let (acknowledged, error) = append_until_full(&store, "a").await;
    println!("{acknowledged} acknowledged, then: {error}");
    assert!(acknowledged > 50, "it takes something before it is full");
    assert!(matches!(error.kind(), ErrorKind::StorageFull), "the refusal says why: {error:?}");

    // It takes no more, and says so at once; what it has can be read.
    let error = store.append(commit(&order("later"), "c", 10)).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Poisoned { .. }), "{error:?}");
    assert_eq!(error.outcome(), Outcome::NotApplied, "what is refused beforehand is not stored");
    let read = count(&store).await;
    assert_eq!(read, acknowledged, "every acknowledged commit can be read, and no other");
    store.close().await.unwrap();

    // On the full disk it opens again and is as it was, but perhaps for the one that failed.
    let store = open(&directory, memtable).await.unwrap();
    let read = count(&store).await;
    assert!((acknowledged..=acknowledged + 1).contains(&read), "{read} of {acknowledged}");
    let (more, error) = append_until_full(&store, "b").await;
    println!("{more} more, then: {error}");
    let read_before = count(&store).await;
    store.close().await.unwrap();

    // Not a byte is left, not even for a name: it can be read still, or says why not.
    let filler = fill_up(disk);
    let store = open(&directory, memtable).await.unwrap();
    let read = count(&store).await;
    assert!((read_before..=read_before + 1).contains(&read), "{read} of {read_before}");
    store.close().await.unwrap();
    std::fs::remove_file(filler).unwrap();

    std::fs::remove_file(&ballast).unwrap();
    let store = open(&directory, memtable).await.unwrap();
    for n in 0..20 {
        store.append(commit(&order("room"), format!("c-{n}"), 20_000)).await.unwrap();
    }
    let read = count(&store).await;
    assert!((read_before + 20..=read_before + 21).contains(&read), "with room it goes on");
    store.close().await.unwrap();
}
