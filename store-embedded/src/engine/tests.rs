//! The engine as a whole: groups, failures, crashes and damage.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};

use tempfile::TempDir;
use wow_store_api::{SystemClock, Wakeups};

use crate::engine::error::{OpenError, ReadError, WriteError, WriteErrorKind};
use crate::engine::journal::{self, Journals};
use crate::engine::space::Space;
use crate::engine::view::Tx;
use crate::engine::{Engine, Options};

#[derive(Debug)]
enum Refused {
    Full,
    Read,
}

impl From<ReadError> for Refused {
    fn from(_: ReadError) -> Self {
        Self::Read
    }
}

fn folder() -> TempDir {
    // Memory where there is some: these tests sync a lot.
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory).unwrap() } else { tempfile::tempdir().unwrap() }
}

fn open(directory: &Path) -> Result<Engine, OpenError> {
    let options = Options {
        cache_bytes: 1 << 20,
        memtable_bytes: 64 << 20,
        worker_threads: 1,
        max_journal_bytes: 64 << 20,
        clock: Arc::new(SystemClock),
        wakeups: Wakeups::new(),
    };
    Engine::open(directory, &options)
}

fn number(value: Option<fjall::Slice>) -> u64 {
    value.map_or(0, |value| u64::from_be_bytes(value[..].try_into().unwrap()))
}

/// Counts in two keyspaces at once, so that half an operation shows.
fn count(tx: &mut Tx<'_>) -> Result<u64, Refused> {
    let next = number(tx.get(Space::State, b"count")?) + 1;
    assert_eq!(number(tx.get(Space::Command, b"count")?) + 1, next);
    tx.put(Space::State, b"count", next.to_be_bytes());
    tx.put(Space::Command, b"count", next.to_be_bytes());
    Ok(next)
}

fn counted(engine: &Engine) -> u64 {
    let view = engine.view();
    let state = number(view.get(Space::State, b"count").unwrap());
    assert_eq!(number(view.get(Space::Command, b"count").unwrap()), state);
    state
}

async fn add(engine: &Engine, n: u64) {
    for _ in 0..n {
        engine.queue().write(1, count).await.unwrap().unwrap();
    }
}

fn journal_file(directory: &Path) -> PathBuf {
    directory.join("db").join("0.jnl")
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// A directory as a crash leaves it after `batches` batches of one count each, and where each batch ends.
async fn crashed(batches: u64) -> (TempDir, Vec<usize>) {
    let live = folder();
    let image = folder();
    let engine = open(live.path()).unwrap();
    add(&engine, batches).await;
    copy(live.path(), image.path());
    drop(engine);
    let bytes = std::fs::read(journal_file(image.path())).unwrap();
    let ends: Vec<usize> = (4..=bytes.len()).filter(|end| bytes[end - 4..*end] == *b"FJL\x03").collect();
    assert_eq!(ends.len(), usize::try_from(batches).unwrap());
    (image, ends)
}

/// The number of the last batch, and how many bytes were cut off behind it.
fn check(directory: &Path, acknowledged: u64) -> Result<(u64, u64), OpenError> {
    let journals: Journals = journal::check(&directory.join("db"), acknowledged)?;
    Ok((journals.last.unwrap().batch, journals.cut()?))
}

fn is_corrupt<T>(result: &Result<T, OpenError>) -> bool {
    matches!(result, Err(OpenError::Corrupt(_)))
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_operations_see_each_other() {
    let directory = folder();
    let engine = Arc::new(open(directory.path()).unwrap());
    let tasks: Vec<_> = (0..64)
        .map(|_| {
            let engine = Arc::clone(&engine);
            tokio::spawn(async move {
                for _ in 0..50 {
                    let seen = engine.queue().write(1, count).await.unwrap().unwrap();
                    // What was answered is visible and durable.
                    assert!(counted(&engine) >= seen);
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(counted(&engine), 64 * 50);
    drop(engine);
    assert_eq!(counted(&open(directory.path()).unwrap()), 64 * 50);
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_and_panics_leave_the_neighbours_alone() {
    let directory = folder();
    let engine = Arc::new(open(directory.path()).unwrap());
    let tasks: Vec<_> = (0..300)
        .map(|n| {
            let engine = Arc::clone(&engine);
            tokio::spawn(async move {
                engine
                    .queue()
                    .write(1, move |tx| {
                        let next = count(tx)?;
                        match n % 3 {
                            0 => Ok(next),
                            1 => Err(Refused::Full),
                            _ => panic!("operation {n}"),
                        }
                    })
                    .await
            })
        })
        .collect();
    for (n, task) in tasks.into_iter().enumerate() {
        match (n % 3, task.await.unwrap()) {
            (0, Ok(Ok(_))) | (1, Ok(Err(Refused::Full))) => {}
            (2, Err(WriteError { kind: WriteErrorKind::Panicked, maybe_applied: false, reason })) => {
                assert_eq!(*reason, format!("operation {n}"));
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(counted(&engine), 100);
}

#[tokio::test(flavor = "multi_thread")]
async fn dropped_futures_neither_wedge_nor_half_apply() {
    let directory = folder();
    let engine = open(directory.path()).unwrap();
    let mut context = Context::from_waker(Waker::noop());
    for n in 0..2000_u32 {
        let mut write = pin!(engine.queue().write(1, count));
        for _ in 0..n % 3 {
            if let Poll::Ready(answer) = write.as_mut().poll(&mut context) {
                answer.unwrap().unwrap();
                break;
            }
            std::thread::yield_now();
        }
    }
    let before = counted(&engine);
    engine.queue().write(1, count).await.unwrap().unwrap();
    assert!(counted(&engine) > before);
    // One that waits and is never polled again does not hold up closing.
    let mut stuck = pin!(engine.queue().write(1, count));
    let _ = stuck.as_mut().poll(&mut context);
    engine.close();
}

#[tokio::test]
async fn failed_commit_poisons_the_store_until_it_is_opened_again() {
    let directory = folder();
    let engine = open(directory.path()).unwrap();
    add(&engine, 3).await;
    engine.fail_commits.store(true, Ordering::Release);
    let error = engine.queue().write(1, count).await.unwrap_err();
    assert_eq!((error.kind, error.maybe_applied), (WriteErrorKind::CommitFailed, true), "{error}");
    engine.fail_commits.store(false, Ordering::Release);
    let error = engine.queue().write(1, count).await.unwrap_err();
    assert_eq!((error.kind, error.maybe_applied), (WriteErrorKind::Poisoned, false), "{error}");
    assert_eq!(counted(&engine), 3);
    drop(engine);
    let engine = open(directory.path()).unwrap();
    add(&engine, 1).await;
    assert_eq!(counted(&engine), 4);
}

#[tokio::test]
async fn refused_operation_of_a_failed_batch_is_not_applied() {
    let directory = folder();
    let engine = Arc::new(open(directory.path()).unwrap());
    engine.fail_commits.store(true, Ordering::Release);
    // Holds the writer, alone in its batch, until the two others are queued.
    let (entered, inside) = tokio::sync::oneshot::channel();
    let (leave, wait) = std::sync::mpsc::channel::<()>();
    let blocker = {
        let engine = Arc::clone(&engine);
        let hold = move |_: &mut Tx<'_>| -> Result<(), Refused> {
            entered.send(()).unwrap();
            wait.recv().map_err(|_| Refused::Full)
        };
        tokio::spawn(async move { engine.queue().write(1, hold).await })
    };
    inside.await.unwrap();
    let writer = {
        let engine = Arc::clone(&engine);
        tokio::spawn(async move { engine.queue().write(1, count).await })
    };
    let reader = {
        let engine = Arc::clone(&engine);
        tokio::spawn(
            async move { engine.queue().write(1, |tx| count(tx).and(Err::<(), _>(Refused::Full))).await },
        )
    };
    tokio::task::yield_now().await;
    leave.send(()).unwrap();
    blocker.await.unwrap().unwrap().unwrap();
    assert!(writer.await.unwrap().unwrap_err().maybe_applied);
    assert!(!reader.await.unwrap().unwrap_err().maybe_applied);
}

#[tokio::test]
async fn closed_store_refuses_writes_and_still_reads() {
    let directory = folder();
    let engine = open(directory.path()).unwrap();
    add(&engine, 2).await;
    engine.close();
    let error = engine.queue().write(1, count).await.unwrap_err();
    assert_eq!((error.kind, error.maybe_applied), (WriteErrorKind::Closed, false));
    assert_eq!(counted(&engine), 2);
}

#[tokio::test]
async fn second_opening_is_told_who_holds_the_directory() {
    let directory = folder();
    let _engine = open(directory.path()).unwrap();
    let error = open(directory.path()).unwrap_err();
    assert!(error.to_string().contains(&format!("process {}", std::process::id())), "{error}");
}

#[tokio::test]
async fn facts_are_kept_with_their_operation() {
    let directory = folder();
    let engine = open(directory.path()).unwrap();
    let noted = |tx: &mut Tx<'_>| {
        let seen = tx.fact(b"f");
        tx.note(b"f", b"1");
        Ok::<_, Refused>(seen)
    };
    let seen = engine.queue().write(1, noted).await.unwrap().unwrap();
    assert_eq!(seen, None);
    let refused = |tx: &mut Tx<'_>| {
        tx.note(b"f", b"2");
        Err::<(), _>(Refused::Full)
    };
    assert!(engine.queue().write(1, refused).await.unwrap().is_err());
    let seen = engine.queue().write(1, noted).await.unwrap().unwrap();
    assert_eq!(seen.as_deref(), Some(b"1".as_slice()));
    drop(engine);
    let seen = open(directory.path()).unwrap().queue().write(1, noted).await.unwrap().unwrap();
    assert_eq!(seen, None);
}

#[tokio::test]
async fn ranges_merge_the_batch_over_the_store() {
    let directory = folder();
    let engine = open(directory.path()).unwrap();
    let put = |tx: &mut Tx<'_>| {
        for key in ["b", "d", "f"] {
            tx.put(Space::State, key, "old");
        }
        Ok::<_, Refused>(())
    };
    engine.queue().write(1, put).await.unwrap().unwrap();
    let merged = |tx: &mut Tx<'_>| {
        tx.put(Space::State, "a", "new");
        tx.put(Space::State, "d", "new");
        tx.put(Space::State, "e", "new");
        tx.delete(Space::State, "f");
        let all = (std::ops::Bound::Included(b"a".as_slice()), std::ops::Bound::Unbounded);
        let text = |entry: Result<crate::engine::view::Entry, ReadError>| {
            let (key, value) = entry.unwrap();
            format!("{}={}", String::from_utf8_lossy(&key), String::from_utf8_lossy(&value))
        };
        let forward: Vec<_> = tx.range(Space::State, all).map(text).collect();
        let mut back: Vec<_> = tx.range_back(Space::State, all).map(text).collect();
        back.reverse();
        assert_eq!(forward, back);
        Ok::<_, Refused>(forward)
    };
    let found = engine.queue().write(1, merged).await.unwrap().unwrap();
    assert_eq!(found, ["a=new", "b=old", "d=new", "e=new"]);
}

#[tokio::test]
async fn every_cut_of_the_last_batch_is_recovered() {
    let (image, ends) = crashed(4).await;
    let whole = std::fs::read(journal_file(image.path())).unwrap();
    for keep in ends[2]..ends[3] {
        for filler in [0, 4096] {
            let mut bytes = whole[..keep].to_vec();
            bytes.resize(keep + filler, 0);
            std::fs::write(journal_file(image.path()), &bytes).unwrap();
            let (last, _) = check(image.path(), 3).unwrap();
            assert_eq!(last, 3, "cut at {keep}");
            let left = std::fs::read(journal_file(image.path())).unwrap();
            assert!(keep == ends[2] || left == whole[..ends[2]], "cut at {keep}");
            // Had the cut batch been acknowledged, it would be missed.
            std::fs::write(journal_file(image.path()), &bytes).unwrap();
            assert!(is_corrupt(&check(image.path(), 4)), "cut at {keep}");
            assert_eq!(std::fs::read(journal_file(image.path())).unwrap(), bytes);
        }
    }
}

#[tokio::test]
async fn writes_after_a_torn_end_are_there_after_the_next_opening() {
    let (pristine, ends) = crashed(4).await;
    let whole = std::fs::read(journal_file(pristine.path())).unwrap();
    let cuts = (ends[2]..ends[3]).step_by(7);
    let mut torn: Vec<Vec<u8>> = cuts.map(|keep| whole[..keep].to_vec()).collect();
    for garbage in [vec![0xff], vec![0; 4096], vec![1, 2, 0], b"FJL\x03".to_vec()] {
        torn.push([&whole[..ends[2]], &garbage].concat());
    }
    // Pages of a batch can reach the disk out of order: all of it there, but for a hole.
    let mut hole = whole.clone();
    hole[ends[2] + 30..ends[3] - 20].fill(0);
    torn.push(hole);
    for bytes in torn {
        let image = folder();
        copy(pristine.path(), image.path());
        std::fs::write(journal_file(image.path()), &bytes).unwrap();
        // The crash came before the fourth batch was acknowledged.
        std::fs::remove_file(image.path().join("acknowledged")).unwrap();
        crate::engine::mark::Mark::create(image.path()).unwrap();
        crate::engine::mark::Mark::open(image.path()).unwrap().set(3).unwrap();
        for expected in [3, 5] {
            let engine = open(image.path()).unwrap();
            assert_eq!(counted(&engine), expected);
            add(&engine, 2).await;
        }
    }
}

#[tokio::test]
async fn every_damaged_byte_of_the_journal_is_refused() {
    let (image, ends) = crashed(4).await;
    let whole = std::fs::read(journal_file(image.path())).unwrap();
    for at in 0..ends[3] {
        for bit in [0, 3, 7] {
            let mut bytes = whole[..ends[3]].to_vec();
            bytes[at] ^= 1 << bit;
            std::fs::write(journal_file(image.path()), &bytes).unwrap();
            match check(image.path(), 4) {
                Err(OpenError::Corrupt(_)) => {}
                // A sequence number has no checksum, but it only has to rise.
                Ok((4, 0)) => {
                    let start =
                        [0, ends[0], ends[1], ends[2]].into_iter().rfind(|start| *start <= at).unwrap();
                    assert!((start + 5..start + 13).contains(&at), "byte {at} bit {bit}");
                }
                other => panic!("byte {at} bit {bit}: {other:?}"),
            }
            assert_eq!(std::fs::read(journal_file(image.path())).unwrap(), bytes, "byte {at}");
        }
    }
}

#[tokio::test]
async fn missing_files_are_refused_and_nothing_is_touched() {
    let (pristine, ends) = crashed(3).await;
    type Damage = (&'static str, fn(&Path));
    let damage: [Damage; 5] = [
        ("journal", |d| std::fs::remove_file(journal_file(d)).unwrap()),
        ("mark", |d| std::fs::remove_file(d.join("acknowledged")).unwrap()),
        ("database", |d| std::fs::remove_dir_all(d.join("db")).unwrap()),
        ("keyspace", |d| std::fs::remove_dir_all(d.join("db/keyspaces/2")).unwrap()),
        ("manifest", |d| std::fs::remove_file(d.join("db/keyspaces/2/current")).unwrap()),
    ];
    for (what, damage) in damage {
        let image = folder();
        copy(pristine.path(), image.path());
        damage(image.path());
        let result = open(image.path());
        assert!(is_corrupt(&result), "{what}: {result:?}");
        assert_eq!(image.path().join("db/keyspaces/1").exists(), what != "database", "{what}");
    }
    // The journal's end cut off at a batch: no torn bytes, yet an acknowledged batch is gone.
    let bytes = std::fs::read(journal_file(pristine.path())).unwrap();
    std::fs::write(journal_file(pristine.path()), &bytes[..ends[1]]).unwrap();
    assert!(is_corrupt(&open(pristine.path())));
}

#[tokio::test]
async fn crash_while_the_directory_is_made_is_made_good() {
    for leave in ["db", "db/keyspaces", "db/0.jnl"] {
        let image = folder();
        std::fs::create_dir_all(image.path().join("db")).unwrap();
        match leave {
            "db/0.jnl" => std::fs::write(image.path().join(leave), [0; 100]).unwrap(),
            _ => std::fs::create_dir_all(image.path().join(leave)).unwrap(),
        }
        let engine = open(image.path()).unwrap();
        add(&engine, 1).await;
    }
}

#[tokio::test]
async fn damaged_table_is_reported_with_its_place() {
    let directory = folder();
    let engine = open(directory.path()).unwrap();
    let fill = |tx: &mut Tx<'_>| {
        for key in 0..1000_u32 {
            tx.put(Space::Log, key.to_be_bytes(), vec![7; 100]);
        }
        Ok::<_, Refused>(())
    };
    engine.queue().write(1, fill).await.unwrap().unwrap();
    engine.flush_for_tests(Space::Log);
    drop(engine);
    let tables = directory.path().join("db/keyspaces/1/tables");
    let table = std::fs::read_dir(tables).unwrap().next().unwrap().unwrap().path();
    let mut bytes = std::fs::read(&table).unwrap();
    bytes[2000] ^= 1;
    std::fs::write(&table, bytes).unwrap();
    let engine = open(directory.path()).unwrap();
    let all = (std::ops::Bound::Unbounded, std::ops::Bound::Unbounded);
    let error = engine.view().range(Space::Log, all).find_map(Result::err).unwrap();
    assert!(matches!(&error, ReadError::Corrupt(c) if c.place.starts_with("log ")), "{error:?}");
}
