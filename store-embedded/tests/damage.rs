//! Files that a crash has cut off are made good; files that are damaged are refused, with the place; wrong content is
//! never served.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]

mod support;

use std::{
    collections::BTreeMap,
    env,
    path::{Path, PathBuf},
};

use fastrand::Rng;
use support::{check_context, commit, context, copy, order};
use tempfile::TempDir;
use wow_store_api::{
    AggregateId, CommandId, Error, ErrorKind, Outcome, RecordedCommit, SaveSnapshot, Snapshots as _,
    StoreAdmin as _, StoreExt as _,
};
use wow_store_embedded::{EmbeddedConfig, EmbeddedStore};

type Content = BTreeMap<(AggregateId, CommandId), RecordedCommit>;

/// A fresh directory, in memory where there is some: these tests open many stores.
fn folder() -> TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory).unwrap() } else { tempfile::tempdir().unwrap() }
}

async fn open(directory: &Path) -> Result<EmbeddedStore, Error> {
    EmbeddedStore::open(EmbeddedConfig::new(directory).with_memtable_bytes(64 * 1024)).await
}

async fn content(store: &EmbeddedStore) -> Result<Content, Error> {
    check_context(store, &context("shop")).await
}

async fn append(store: &EmbeddedStore, commands: impl IntoIterator<Item = &str>) {
    for command in commands {
        store.append(commit(&order("1"), command, 30)).await.unwrap();
    }
}

fn commands(content: &Content) -> Vec<&str> {
    let mut commits: Vec<&RecordedCommit> = content.values().collect();
    commits.sort_by_key(|commit| commit.version);
    commits.iter().map(|commit| commit.command_id.as_str()).collect()
}

const MARK: &str = "acknowledged";

fn journal(directory: &Path) -> PathBuf {
    directory.join("db").join("0.jnl")
}

/// A directory as it was when the process died: after `a`, `b` and `c`.
struct Crashed {
    directory: TempDir,
    /// The journal, without the zeros at its end.
    journal: Vec<u8>,
    /// Where the journal ended before `c`.
    before_last: usize,
    /// The mark as it was then.
    mark: Vec<u8>,
}

async fn crashed() -> Crashed {
    let (live, directory) = (folder(), folder());
    let store = open(live.path()).await.unwrap();
    append(&store, ["a", "b"]).await;
    let used = |path: &Path| {
        let mut bytes = std::fs::read(path).unwrap();
        bytes.truncate(bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1);
        bytes
    };
    let before_last = used(&journal(live.path())).len();
    let mark = std::fs::read(live.path().join(MARK)).unwrap();
    append(&store, ["c"]).await;
    copy(live.path(), directory.path());
    let bytes = used(&journal(directory.path()));
    // Without the zeros: it is copied many times.
    std::fs::write(journal(directory.path()), &bytes).unwrap();
    Crashed { directory, journal: bytes, before_last, mark }
}

impl Crashed {
    /// A copy with another journal, as if the last append had not been acknowledged.
    fn unacknowledged(&self, bytes: &[u8]) -> TempDir {
        let copied = self.acknowledged(bytes);
        std::fs::write(copied.path().join(MARK), &self.mark).unwrap();
        copied
    }

    /// A copy with another journal.
    fn acknowledged(&self, bytes: &[u8]) -> TempDir {
        let copied = folder();
        copy(self.directory.path(), copied.path());
        std::fs::write(journal(copied.path()), bytes).unwrap();
        copied
    }
}

#[tokio::test]
async fn torn_end_is_cut_off_and_appends_go_on_behind_it() {
    let crashed = crashed().await;
    let (start, end) = (crashed.before_last, crashed.journal.len());
    let cuts = (start + 1..end).step_by(29).chain([end - 1]);
    let mut torn: Vec<Vec<u8>> = cuts.map(|keep| crashed.journal[..keep].to_vec()).collect();
    for garbage in [&[0xff][..], &[0; 4096], &[1], &crashed.journal[..9]] {
        torn.push([&crashed.journal[..start], garbage].concat());
    }
    for bytes in torn {
        let image = crashed.unacknowledged(&bytes);
        let store = open(image.path()).await.unwrap();
        assert_eq!(commands(&content(&store).await.unwrap()), ["a", "b"], "{} bytes kept", bytes.len());
        // Zeros at the end may be the file's room for more.
        let expected = bytes[start..].iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        assert_eq!(store.torn_bytes(), u64::try_from(expected).unwrap(), "it says what it cut off");
        append(&store, ["d", "e"]).await;
        store.close().await.unwrap();
        let store = open(image.path()).await.unwrap();
        assert_eq!(
            commands(&content(&store).await.unwrap()),
            ["a", "b", "d", "e"],
            "{} bytes kept",
            bytes.len()
        );
    }
}

#[tokio::test]
async fn lost_end_of_what_was_acknowledged_is_refused() {
    let crashed = crashed().await;
    let (start, end) = (crashed.before_last, crashed.journal.len());
    for keep in (start..end).step_by(41) {
        let image = crashed.acknowledged(&crashed.journal[..keep]);
        let error = open(image.path()).await.unwrap_err();
        let ErrorKind::Corrupt { location, .. } = error.kind() else { panic!("{error:?}") };
        assert!(location.contains("0.jnl"), "it says in which file: {location}");
        assert_eq!(error.outcome(), Outcome::NotApplied);
        let left = std::fs::read(journal(image.path())).unwrap();
        assert_eq!(left, crashed.journal[..keep], "the evidence is left as it was");
    }
}

#[tokio::test]
async fn flipped_byte_of_the_journal_is_refused_or_harmless() {
    let crashed = crashed().await;
    let mut refused = 0;
    for at in (0..crashed.journal.len()).step_by(31) {
        let mut bytes = crashed.journal.clone();
        bytes[at] ^= 0x10;
        let image = crashed.acknowledged(&bytes);
        match open(image.path()).await {
            Ok(store) => {
                assert_eq!(commands(&content(&store).await.unwrap()), ["a", "b", "c"], "byte {at}");
            }
            Err(error) => {
                let ErrorKind::Corrupt { location, .. } = error.kind() else { panic!("{error:?}") };
                assert!(location.contains("0.jnl"), "it says in which file: {location}");
                refused += 1;
            }
        }
    }
    assert!(refused > 10, "most flips matter");
}

/// A store with tables of every kind, and what is in it.
async fn with_tables() -> (TempDir, Content) {
    let directory = folder();
    let store = open(directory.path()).await.unwrap();
    for n in 0..400_u32 {
        // Letters at random, or a table would be one block.
        let text: String = (0..500).map(|_| fastrand::alphanumeric()).collect();
        let id = order(format!("{}", n % 7));
        let receipt = store
            .append(
                wow_store_api::Commit::new(id.clone(), format!("c-{n}")).event("Happened", 1, &text).unwrap(),
            )
            .await
            .unwrap();
        store.save_snapshot(SaveSnapshot::new(id, receipt.version, 1, &text).unwrap()).await.unwrap();
    }
    store.close().await.unwrap();
    // Opened again its journal has no room at the end, which would be copied many times.
    let store = open(directory.path()).await.unwrap();
    let content = content(&store).await.unwrap();
    store.close().await.unwrap();
    assert!(files(directory.path()).iter().any(|path| is_table(path)), "some of it is in tables");
    (directory, content)
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

fn is_table(path: &Path) -> bool {
    path.components().any(|part| part.as_os_str() == "tables")
}

/// Opens the directory and reads everything: what is served is right, or an error says what is damaged.
async fn read_all(directory: &Path, expected: &Content) -> Result<(), Error> {
    let store = open(directory).await?;
    let found = content(&store).await?;
    assert!(found == *expected, "what is served is what was stored");
    for n in 0..7 {
        let head = store.load(&order(n.to_string()), ..).await.is_ok();
        assert!(head);
        let snapshot = store.snapshot(&order(n.to_string()), 1).await?;
        assert!(snapshot.is_some(), "a snapshot does not vanish");
    }
    Ok(())
}

#[tokio::test]
async fn damaged_files_are_told_or_harmless_never_served() {
    let seed: u64 = env::var("WOW_DAMAGE_SEED").map_or_else(|_| fastrand::u64(..), |it| it.parse().unwrap());
    println!("WOW_DAMAGE_SEED={seed}");
    let mut random = Rng::with_seed(seed);
    let (pristine, expected) = with_tables().await;
    let all = files(pristine.path());
    let tables: Vec<&PathBuf> = all.iter().filter(|path| is_table(path)).collect();
    let mut told = 0;
    for round in 0..120 {
        let image = folder();
        copy(pristine.path(), image.path());
        // Most of the bytes are in few tables; the small files matter as much.
        let path =
            if round % 2 == 0 { random.choice(&all).unwrap() } else { random.choice(&tables).unwrap() };
        let name = path.strip_prefix(pristine.path()).unwrap();
        let mut bytes = std::fs::read(path).unwrap();
        if bytes.is_empty() {
            continue;
        }
        let at = random.usize(..bytes.len());
        let damage = random.u8(..8);
        match damage {
            0 => bytes.truncate(at),
            1 => bytes[at..].fill(0),
            bit => bytes[at] ^= 1 << bit,
        }
        std::fs::write(image.path().join(name), &bytes).unwrap();
        println!("damage {damage} at byte {at} of {} ({} bytes)", name.display(), bytes.len());
        if let Err(error) = read_all(image.path(), &expected).await {
            assert!(
                error.is_corrupt() || matches!(error.kind(), ErrorKind::FormatUnsupported { .. }),
                "{error:?}"
            );
            told += 1;
        }
    }
    assert!(told > 20, "much of it is found: {told}");
}

#[tokio::test]
async fn missing_table_is_told() {
    let (pristine, expected) = with_tables().await;
    for table in files(pristine.path()).iter().filter(|path| is_table(path)) {
        let image = folder();
        copy(pristine.path(), image.path());
        let name = table.strip_prefix(pristine.path()).unwrap();
        std::fs::remove_file(image.path().join(name)).unwrap();
        let error = read_all(image.path(), &expected).await.unwrap_err();
        assert!(error.is_corrupt(), "{}: {error:?}", name.display());
    }
}
