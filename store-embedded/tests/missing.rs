//! Files that are not there, as somebody removed them or as a crash during the first opening left them: what holds
//! commits is refused and loses nothing, what never held any becomes a store. It never looks like an empty one.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]

mod support;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use support::{check_context, commit, context, copy, order};
use tempfile::TempDir;
use wow_store_api::{
    CommandId, Error, ErrorKind, EventLog as _, Outcome, OwnerId, ReservationKey, ReservationOp,
    ReservationScope, Reservations as _, SaveSnapshot, Snapshots as _, StoreAdmin as _, StoreExt as _,
};
use wow_store_embedded::{EmbeddedConfig, EmbeddedStore};

/// The files that are locked: made again by whoever opens the store, and nothing of it is in them.
const OWNER: &str = "owner";
const DATABASE_LOCK: &str = "db/lock";
const MARK: &str = "acknowledged";

/// A fresh directory, in memory where there is some: these tests open many stores.
fn folder() -> TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory).unwrap() } else { tempfile::tempdir().unwrap() }
}

async fn open(directory: &Path) -> Result<EmbeddedStore, Error> {
    EmbeddedStore::open(EmbeddedConfig::new(directory).with_memtable_bytes(64 * 1024)).await
}

async fn count(store: &EmbeddedStore) -> Result<usize, Error> {
    Ok(check_context(store, &context("shop")).await?.len())
}

/// All files by their names, with what is in them.
fn files(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    fn collect(root: &Path, directory: &Path, found: &mut BTreeMap<PathBuf, Vec<u8>>) {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                collect(root, &path, found);
            } else {
                found.insert(path.strip_prefix(root).unwrap().to_path_buf(), std::fs::read(&path).unwrap());
            }
        }
    }
    let mut found = BTreeMap::new();
    collect(directory, directory, &mut found);
    found.remove(Path::new(OWNER));
    found.remove(Path::new(DATABASE_LOCK));
    found
}

/// A store with so many commits, that was closed. Its journal has no room at the end, which would be copied many times.
async fn with_commits(commits: u32) -> TempDir {
    let directory = folder();
    let store = open(directory.path()).await.unwrap();
    for n in 0..commits {
        // Letters at random, or they would be packed into nothing.
        let text: String = (0..8_000).map(|_| fastrand::alphanumeric()).collect();
        let commit = wow_store_api::Commit::new(order(format!("{}", n % 3)), format!("c-{n}"));
        store.append(commit.event("Happened", 1, &text).unwrap()).await.unwrap();
    }
    store.close().await.unwrap();
    let store = open(directory.path()).await.unwrap();
    assert_eq!(count(&store).await.unwrap(), usize::try_from(commits).unwrap());
    store.close().await.unwrap();
    directory
}

/// Nothing was changed, but for tables and lists of tables that were left over.
fn is_left_alone(before: &BTreeMap<PathBuf, Vec<u8>>, after: &BTreeMap<PathBuf, Vec<u8>>) {
    for (name, bytes) in before {
        let is_there = after.get(name) == Some(bytes);
        let is_cleared = name.starts_with("db/keyspaces") && !after.contains_key(name);
        assert!(is_there || is_cleared, "{name:?} is left alone");
    }
    assert!(after.keys().all(|name| before.contains_key(name)), "and nothing is put there");
}

/// Removes files, opens what is left, and sees that it has everything, or is refused and loses nothing.
async fn without(pristine: &Path, commits: u32, removed: &[&PathBuf]) -> bool {
    let image = folder();
    copy(pristine, image.path());
    for name in removed {
        std::fs::remove_file(image.path().join(name)).unwrap();
    }
    // Whether it was locked or not, as may be.
    if removed.iter().map(|name| name.as_os_str().len()).sum::<usize>() % 2 == 0 {
        std::fs::remove_file(image.path().join(DATABASE_LOCK)).unwrap();
    }
    let before = files(image.path());
    match open(image.path()).await {
        Ok(store) => {
            match count(&store).await {
                Ok(found) => {
                    assert_eq!(found, usize::try_from(commits).unwrap(), "all is there without {removed:?}");
                }
                Err(error) => assert!(error.is_corrupt(), "without {removed:?}: {error:?}"),
            }
            store.close().await.unwrap();
            false
        }
        Err(error) => {
            assert!(error.is_corrupt(), "without {removed:?}: {error:?}");
            assert_eq!(error.outcome(), Outcome::NotApplied);
            is_left_alone(&before, &files(image.path()));
            // Nothing was lost by trying: with the files back, all of it is there.
            for name in removed {
                std::fs::copy(pristine.join(name), image.path().join(name)).unwrap();
            }
            let store = open(image.path()).await.unwrap();
            assert_eq!(
                count(&store).await.unwrap(),
                usize::try_from(commits).unwrap(),
                "{removed:?} are back"
            );
            store.close().await.unwrap();
            true
        }
    }
}

#[tokio::test]
async fn store_without_some_of_its_files_is_whole_or_refused_never_empty() {
    // All in the journal; some in tables; the first journal gone.
    for commits in [3, 30, 60] {
        let pristine = with_commits(commits).await;
        let all: Vec<PathBuf> = files(pristine.path()).into_keys().collect();
        let mut refused = 0;
        for (n, first) in all.iter().enumerate() {
            refused += u32::from(without(pristine.path(), commits, &[first]).await);
            for second in &all[n + 1..] {
                refused += u32::from(without(pristine.path(), commits, &[first, second]).await);
            }
        }
        assert!(refused > 100, "most files matter: {refused}");
    }
}

/// The journals of a store, in order.
fn journals(directory: &Path) -> Vec<PathBuf> {
    let names = std::fs::read_dir(directory.join("db")).unwrap().map(|entry| entry.unwrap().file_name());
    let names = names.map(|name| Path::new("db").join(name));
    let mut names: Vec<_> = names.filter(|name| name.extension().is_some_and(|it| it == "jnl")).collect();
    names.sort();
    names
}

fn key() -> (ReservationScope, ReservationKey) {
    (ReservationScope::new("mail").unwrap(), ReservationKey::new("a@b.c").unwrap())
}

/// What was written first, and is in no table yet.
async fn check_first(store: &EmbeddedStore) {
    let (scope, key) = key();
    assert!(store.reservation(&scope, &key).await.unwrap().is_some());
    assert_eq!(store.snapshot(&order("0"), 1).await.unwrap().unwrap().version, 1);
    assert!(store.receipt(&order("0"), &CommandId::new("first").unwrap()).await.unwrap().is_some());
}

#[tokio::test]
async fn journal_that_is_still_needed_is_refused_when_it_is_missing() {
    let pristine = folder();
    let store = open(pristine.path()).await.unwrap();
    let (scope, key) = key();
    let owner = OwnerId::new("somebody").unwrap();
    store.reserve(ReservationOp::Reserve { scope, key, owner, expires_in: None }).await.unwrap();
    store.append(commit(&order("0"), "first", 10)).await.unwrap();
    store.save_snapshot(SaveSnapshot::new(order("0"), 1, 1, &"state").unwrap()).await.unwrap();
    let mut commits: usize = 1;
    // So much that one journal follows the other, while what comes first waits in memory.
    while journals(pristine.path()).len() < 3 {
        let text: String = (0..400_000).map(|_| fastrand::alphanumeric()).collect();
        let commit = wow_store_api::Commit::new(order("1"), format!("c-{commits}"));
        store.append(commit.event("Happened", 1, &text).unwrap()).await.unwrap();
        commits += 1;
    }
    store.append(commit(&order("1"), "last", 10)).await.unwrap();
    commits += 1;
    store.close().await.unwrap();
    let names = journals(pristine.path());
    let all = files(pristine.path());
    for removed in [&names[..1], &names[1..2], &names[2..], &names[..2]] {
        for name in removed {
            std::fs::remove_file(pristine.path().join(name)).unwrap();
        }
        let before = files(pristine.path());
        let error = open(pristine.path()).await.unwrap_err();
        assert!(error.is_corrupt(), "without {removed:?}: {error:?}");
        is_left_alone(&before, &files(pristine.path()));
        for name in removed {
            std::fs::write(pristine.path().join(name), &all[name]).unwrap();
        }
    }
    let store = open(pristine.path()).await.unwrap();
    check_first(&store).await;
    assert_eq!(count(&store).await.unwrap(), commits, "with all journals back, all of it is there");
    store.close().await.unwrap();
}

#[tokio::test]
async fn journals_that_have_gone_to_tables_are_not_missed() {
    let directory = folder();
    let mut commits = 0;
    let mut first = BTreeSet::new();
    for round in 0..8_u32 {
        let store = open(directory.path()).await.unwrap_or_else(|error| panic!("round {round}: {error:?}"));
        for _ in 0..60 {
            let text: String = (0..200_000).map(|_| fastrand::alphanumeric()).collect();
            let commit = wow_store_api::Commit::new(order("1"), format!("c-{commits}"));
            store.append(commit.event("Happened", 1, &text).unwrap()).await.unwrap();
            commits += 1;
        }
        // What is written and taken back at once leaves nothing in the tables once they are merged.
        let (scope, key) = key();
        let owner = OwnerId::new("somebody").unwrap();
        let reserve = ReservationOp::Reserve {
            scope: scope.clone(),
            key: key.clone(),
            owner: owner.clone(),
            expires_in: None,
        };
        store.reserve(reserve).await.unwrap();
        store.reserve(ReservationOp::Release { scope, key, owner }).await.unwrap();
        if round % 2 == 0 {
            store.save_snapshot(SaveSnapshot::new(order("1"), 1, 1, &round).unwrap()).await.unwrap();
            store.delete_snapshot(&order("1")).await.unwrap();
        }
        store.close().await.unwrap();
        first.extend(journals(directory.path()).into_iter().next());
    }
    assert!(first.len() > 1, "some journals have gone: {first:?}");
    let store = open(directory.path()).await.unwrap();
    assert_eq!(count(&store).await.unwrap(), commits);
    store.close().await.unwrap();
}

#[tokio::test]
async fn store_without_its_mark_is_refused_and_says_so() {
    let store = with_commits(3).await;
    std::fs::remove_file(store.path().join(MARK)).unwrap();
    let error = open(store.path()).await.unwrap_err();
    let ErrorKind::Corrupt { location, .. } = error.kind() else { panic!("{error:?}") };
    assert!(location.ends_with(MARK), "it says which file: {location}");
}

/// The files of a new store in the order in which they are made.
fn in_order_of_making(image: &Path) -> Vec<PathBuf> {
    let mut names: Vec<PathBuf> = files(image).into_keys().filter(|name| name != Path::new(MARK)).collect();
    names.push(DATABASE_LOCK.into());
    names.sort_by_key(|name| {
        let text = name.to_str().unwrap().to_owned();
        let first = ["db/lock", "db/0.jnl", "db/version"].iter().position(|it| *it == text);
        // A list of tables before the file that names it.
        (first.unwrap_or(3), text.replace("current", "z"))
    });
    names
}

/// A store that was made, before its first batch: what is in its files, and the mark as it is made.
async fn just_made() -> (TempDir, Vec<u8>) {
    let made = folder();
    let store = open(made.path()).await.unwrap();
    store.close().await.unwrap();
    std::fs::write(made.path().join("db").join("0.jnl"), [0; 512]).unwrap();
    let mark = std::fs::read(made.path().join(MARK)).unwrap();
    // The slot that the first batch was not written to.
    (made, mark[..32].repeat(2))
}

async fn becomes_a_store(directory: &Path, state: &str) {
    let store = open(directory).await.unwrap_or_else(|error| panic!("{state}: {error:?}"));
    store.append(commit(&order("1"), "c", 10)).await.unwrap();
    store.close().await.unwrap();
    let store = open(directory).await.unwrap_or_else(|error| panic!("{state}, again: {error:?}"));
    assert_eq!(count(&store).await.unwrap(), 1, "{state}");
    store.close().await.unwrap();
    assert!(!directory.join("acknowledged.new").exists(), "nothing is left over: {state}");
}

#[tokio::test]
async fn first_opening_that_was_cut_off_anywhere_is_made_good() {
    let (made, mark) = just_made().await;
    let order = in_order_of_making(made.path());
    assert!(order.len() > 10, "there is a database: {order:?}");
    for steps in 0..=order.len() {
        // The last file is there but empty, or whole.
        for is_empty in [true, false] {
            let image = folder();
            std::fs::write(image.path().join(OWNER), "").unwrap();
            for (n, name) in order[..steps].iter().enumerate() {
                let (from, to) = (made.path().join(name), image.path().join(name));
                std::fs::create_dir_all(to.parent().unwrap()).unwrap();
                if n + 1 == steps && is_empty {
                    std::fs::write(to, "").unwrap();
                } else {
                    std::fs::copy(from, to).unwrap();
                }
            }
            becomes_a_store(image.path(), &format!("{:?}, empty {is_empty}", &order[..steps])).await;
        }
    }
    // The mark, under the name that it is made with, or cut off under its own.
    for (name, bytes) in [
        ("acknowledged.new", &mark[..0]),
        ("acknowledged.new", &mark[..40]),
        ("acknowledged.new", &mark[..]),
        (MARK, &mark[..0]),
        (MARK, &mark[..9]),
        (MARK, &mark[..32]),
        (MARK, &mark[..]),
    ] {
        let image = folder();
        copy(made.path(), image.path());
        std::fs::remove_file(image.path().join(MARK)).unwrap();
        std::fs::write(image.path().join(name), bytes).unwrap();
        becomes_a_store(image.path(), &format!("{} bytes of {name}", bytes.len())).await;
    }
    // Folders only.
    for folders in ["db", "db/keyspaces"] {
        let image = folder();
        std::fs::write(image.path().join(OWNER), "").unwrap();
        std::fs::create_dir_all(image.path().join(folders)).unwrap();
        becomes_a_store(image.path(), folders).await;
    }
}

#[tokio::test]
async fn removal_of_an_unfinished_database_that_was_cut_off_is_gone_on_with() {
    let (made, _) = just_made().await;
    std::fs::remove_file(made.path().join(MARK)).unwrap();
    std::fs::rename(made.path().join("db"), made.path().join("db.unfinished")).unwrap();
    // Without its first journal it would be taken for one that has lost it.
    std::fs::remove_file(made.path().join("db.unfinished/0.jnl")).unwrap();
    becomes_a_store(made.path(), "half-removed").await;
    assert!(!made.path().join("db.unfinished").exists());
}

#[tokio::test]
async fn owner_removed_while_a_store_is_open_harms_nothing() {
    let directory = folder();
    let store = open(directory.path()).await.unwrap();
    store.append(commit(&order("1"), "a", 10)).await.unwrap();
    // Half a batch at the end of the journal, as one that is being written looks: it would be cut off.
    let journal = directory.path().join("db").join("0.jnl");
    let end = std::fs::read(&journal).unwrap().iter().rposition(|byte| *byte != 0).unwrap() + 1;
    {
        use std::io::{Seek as _, Write as _};
        let mut file = std::fs::OpenOptions::new().write(true).open(&journal).unwrap();
        file.seek(std::io::SeekFrom::Start(u64::try_from(end).unwrap())).unwrap();
        file.write_all(&[1, 7, 0]).unwrap();
    }
    let before = files(directory.path());
    for _ in 0..2 {
        std::fs::remove_file(directory.path().join(OWNER)).unwrap();
        let error = open(directory.path()).await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Locked { .. }), "{error:?}");
        assert!(files(directory.path()) == before, "no file was changed");
    }
    // Written over what stood there.
    for command in ["b", "c"] {
        store.append(commit(&order("1"), command, 10)).await.unwrap();
    }
    assert_eq!(count(&store).await.unwrap(), 3);
    store.close().await.unwrap();
    assert_eq!(count(&open(directory.path()).await.unwrap()).await.unwrap(), 3);
}

#[tokio::test]
async fn what_is_missing_or_in_the_way_is_called_by_its_kind() {
    let pristine = with_commits(3).await;
    for name in ["db/version", "db/keyspaces", "db"] {
        let image = folder();
        copy(pristine.path(), image.path());
        let path = image.path().join(name);
        if path.is_dir() {
            std::fs::remove_dir_all(path).unwrap()
        } else {
            std::fs::remove_file(path).unwrap()
        }
        let error = open(image.path()).await.unwrap_err();
        let ErrorKind::Corrupt { location, .. } = error.kind() else { panic!("{name}: {error:?}") };
        assert!(location.ends_with(name), "it says which: {location}");
    }
    let image = folder();
    copy(pristine.path(), image.path());
    std::fs::remove_file(image.path().join(OWNER)).unwrap();
    std::fs::create_dir(image.path().join(OWNER)).unwrap();
    let error = open(image.path()).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Misconfigured { .. }), "{error:?}");

    let image = folder();
    copy(pristine.path(), image.path());
    std::fs::remove_file(image.path().join("db/version")).unwrap();
    std::fs::create_dir(image.path().join("db/version")).unwrap();
    let error = open(image.path()).await.unwrap_err();
    let source = std::error::Error::source(&error).unwrap();
    assert!(source.is::<std::io::Error>(), "the source is what the system said: {source:?}");
    assert!(source.source().is_none(), "and not said twice");
}

#[tokio::test]
async fn empty_path_is_refused() {
    let before = files_here();
    let error = open(Path::new("")).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Misconfigured { .. }), "{error:?}");
    assert_eq!(files_here(), before, "nothing is left in the current directory");
}

fn files_here() -> Vec<std::ffi::OsString> {
    let mut names: Vec<_> = std::fs::read_dir(".").unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    names
}
