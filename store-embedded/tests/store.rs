//! What is particular to a store in a directory: opening, closing, and who holds it.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]

mod support;

use std::{future::Future as _, path::Path, sync::Arc, task::Poll, time::Duration};

use futures_util::{StreamExt as _, TryStreamExt as _};
use support::{check_context, commit, context, order};
use wow_store_api::{
    ErrorKind, EventLog as _, ManualClock, Outcome, PartitionCount, PartitionId, ReadPage, SaveSnapshot,
    Snapshots as _, StoreAdmin as _, StoreExt as _, TailRequest, Timestamp,
};
use wow_store_embedded::{EmbeddedConfig, EmbeddedStore};

async fn open(directory: &Path) -> EmbeddedStore {
    EmbeddedStore::open(EmbeddedConfig::new(directory)).await.unwrap()
}

async fn refusal(path: &Path) -> ErrorKind {
    let error = EmbeddedStore::open(EmbeddedConfig::new(path).with_name("orders")).await.unwrap_err();
    assert_eq!(error.outcome(), Outcome::NotApplied);
    assert_eq!((error.operation(), error.store()), (Some("open"), Some("orders")), "it says which store");
    error.kind().clone()
}

#[tokio::test]
async fn second_opening_is_told_who_has_it() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path()).await;
    let ErrorKind::Locked { holder } = refusal(directory.path()).await else { panic!() };
    assert!(holder.contains(&format!("process {} on ", std::process::id())), "{holder}");
    let ended = holder.split(" since ").nth(1).and_then(|rest| rest.split(',').next());
    assert!(ended.is_some_and(|since| since.parse::<Timestamp>().is_ok()), "since when: {holder}");

    // The first one is unharmed, and once it is closed the next one opens.
    store.append(commit(&order("1"), "c", 10)).await.unwrap();
    store.close().await.unwrap();
    assert_eq!(open(directory.path()).await.head(&order("1")).await.unwrap(), 1);
}

#[tokio::test]
async fn path_that_cannot_be_a_store_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    std::fs::write(&file, "not a store").unwrap();
    assert!(matches!(refusal(&file).await, ErrorKind::Misconfigured { .. }), "a file");
    assert!(matches!(refusal(&file.join("store")).await, ErrorKind::Misconfigured { .. }), "below a file");
    assert!(matches!(refusal(directory.path()).await, ErrorKind::Misconfigured { .. }), "other files");
    assert!(matches!(refusal(Path::new("nul\0")).await, ErrorKind::Misconfigured { .. }), "no path at all");
    let left: Vec<_> = std::fs::read_dir(directory.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "nothing was put beside the other files");

    let new = directory.path().join("a").join("b");
    open(&new).await.append(commit(&order("1"), "c", 10)).await.unwrap();
    assert_eq!(open(&new).await.head(&order("1")).await.unwrap(), 1, "folders on the way are made");
}

#[tokio::test]
async fn count_of_partitions_is_fixed_at_first_use() {
    let directory = tempfile::tempdir().unwrap();
    let with =
        |count| EmbeddedConfig::new(directory.path()).with_partitions(PartitionCount::new(count).unwrap());
    let store = EmbeddedStore::open(with(3)).await.unwrap();
    assert_eq!(store.partitions(&context("shop")).await.unwrap().get(), 3);
    store.close().await.unwrap();
    let store = EmbeddedStore::open(with(5)).await.unwrap();
    assert_eq!(store.partitions(&context("shop")).await.unwrap().get(), 3);
    assert_eq!(store.partitions(&context("bank")).await.unwrap().get(), 5);
}

#[tokio::test]
async fn closing_ends_every_clone_and_frees_the_directory() {
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(open(directory.path()).await);
    for n in 0..200 {
        store.append(commit(&order("1"), format!("c-{n}"), 500)).await.unwrap();
    }
    let mut tail = store.tail(TailRequest::new(context("shop")).from_now()).await.unwrap();
    let mut half_read = store.load(&order("1"), ..).await.unwrap();
    half_read.next().await.unwrap().unwrap();
    let waiting = tokio::spawn(async move { tail.next().await });

    let clone = EmbeddedStore::clone(&store);
    clone.close().await.unwrap();
    // Free at once, although a stream is still held.
    let reopened = open(directory.path()).await;

    let error = waiting.await.unwrap().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Closed), "a tail that waits is ended: {error:?}");
    let rest: Result<Vec<_>, _> = half_read.try_collect().await;
    assert!(matches!(rest.unwrap_err().kind(), ErrorKind::Closed), "a stream does not end as if complete");
    let error = store.append(commit(&order("1"), "late", 10)).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Closed) && error.outcome() == Outcome::NotApplied, "{error:?}");
    assert!(matches!(store.head(&order("1")).await.unwrap_err().kind(), ErrorKind::Closed));
    assert!(matches!(store.watch(&context("shop")).await.unwrap_err().kind(), ErrorKind::Closed));
    store.close().await.unwrap();
    assert_eq!(reopened.head(&order("1")).await.unwrap(), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn closing_finishes_what_is_under_way() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path()).await;
    let appends: Vec<_> = (0..200)
        .map(|n| {
            let store = store.clone();
            tokio::spawn(async move { store.append(commit(&order(n.to_string()), "c", 10)).await.is_ok() })
        })
        .collect();
    let closing =
        [store.clone(), store.clone()].map(|store| tokio::spawn(async move { store.close().await }));
    for closing in closing {
        closing.await.unwrap().unwrap();
    }
    // Both calls have returned only now that the directory is free.
    let reopened = open(directory.path()).await;
    let stored = check_context(&reopened, &context("shop")).await.unwrap();
    let mut acknowledged = 0;
    for append in appends {
        acknowledged += usize::from(append.await.unwrap());
    }
    assert_eq!(stored.len(), acknowledged, "what went in was acknowledged, what was refused did not go in");
}

#[tokio::test]
async fn dropping_the_last_clone_closes_too() {
    let directory = tempfile::tempdir().unwrap();
    for n in 1..=3 {
        let store = open(directory.path()).await;
        let receipt = store.append(commit(&order("1"), format!("c-{n}"), 10)).await.unwrap();
        assert_eq!(receipt.version, n);
        let mut watcher = store.watch(&context("shop")).await.unwrap();
        drop(store);
        let ended = loop {
            // The append may have been told of only now.
            if let Err(error) = watcher.changed().await {
                break error;
            }
        };
        assert!(matches!(ended.kind(), ErrorKind::Closed), "nobody will wake it any more: {ended:?}");
    }
}

#[test]
fn works_without_a_runtime() {
    let directory = tempfile::tempdir().unwrap();
    let work = async {
        let store = open(directory.path()).await;
        for n in 0..100 {
            store.append(commit(&order("1"), format!("c-{n}"), 1_000)).await.unwrap();
        }
        let loaded: Vec<_> = store.load(&order("1"), ..).await.unwrap().try_collect().await.unwrap();
        assert_eq!(loaded.len(), 100);
        store.close().await.unwrap();
    };
    futures::executor::block_on(work);
}

#[tokio::test]
async fn wrong_clock_does_not_stop_time() {
    let directory = tempfile::tempdir().unwrap();
    let clock = ManualClock::new("2030-01-01T00:00:00.000Z".parse().unwrap());
    let config = EmbeddedConfig::new(directory.path()).with_clock(clock.clone());
    let store = EmbeddedStore::open(config).await.unwrap();
    store.append(commit(&order("1"), "a", 10)).await.unwrap();
    clock.set("2029-01-01T00:00:00.000Z".parse().unwrap());
    let receipt = store.append(commit(&order("1"), "b", 10)).await.unwrap();
    assert_eq!(
        receipt.committed_at.to_string(),
        "2030-01-01T00:00:00.000Z",
        "instants of a partition never fall"
    );
    assert_eq!(
        store.now().await.unwrap(),
        "2029-01-01T00:00:00.000Z".parse().unwrap(),
        "the clock is the clock"
    );
}

#[tokio::test]
async fn page_with_a_rare_filter_is_bounded_and_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let config = EmbeddedConfig::new(directory.path()).with_partitions(PartitionCount::new(1).unwrap());
    let store = EmbeddedStore::open(config).await.unwrap();
    // More than a page looks at.
    for n in 0..24 {
        store.append(commit(&order("1"), format!("c-{n}"), 1_000_000)).await.unwrap();
    }
    let rare = commit(&order("1"), "rare", 10).event("Rare", 1, &1).unwrap();
    store.append(rare).await.unwrap();
    let filter = wow_store_api::CommitFilter::all().with_events(["Rare".parse().unwrap()]);
    let (mut after, mut pages, mut found) = (0, 0, Vec::new());
    loop {
        let page = ReadPage::new(PartitionId::new(context("shop"), 0), after).with_filter(filter.clone());
        let page = store.read(page).await.unwrap();
        assert!(page.through > after, "an empty page has advanced all the same");
        after = page.through;
        pages += 1;
        found.extend(page.commits);
        if !page.more {
            break;
        }
    }
    assert_eq!((found.len(), after), (1, 25), "it is found, and the position went past all others");
    assert!(pages > 1, "no page looks at everything");
}

#[tokio::test]
async fn commit_that_nobody_waits_for_wakes_tails_all_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(open(directory.path()).await);
    let mut tail = store.tail(TailRequest::new(context("shop"))).await.unwrap();
    // Polled once, so that it is queued, and dropped.
    let mut append = Box::pin(store.append(commit(&order("1"), "c", 10)));
    std::future::poll_fn(|cx| {
        let _ = append.as_mut().poll(cx);
        Poll::Ready(())
    })
    .await;
    drop(append);
    store.append(commit(&order("2"), "c", 10)).await.unwrap();
    let expected: u64 = store.heads(&context("shop")).await.unwrap().iter().sum();
    let mut seen = 0;
    while seen < expected {
        let batch = tokio::time::timeout(Duration::from_secs(20), tail.next()).await.unwrap().unwrap();
        seen += u64::try_from(batch.commits.len()).unwrap();
    }
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn snapshots_of_a_type_are_dropped_however_many_there_are() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path()).await;
    let save = |id: String| {
        let store = store.clone();
        async move {
            let id = order(id);
            store.append(commit(&id, "c", 10)).await.unwrap();
            store.save_snapshot(SaveSnapshot::new(id, 1, 1, &1).unwrap()).await.unwrap();
        }
    };
    futures::future::join_all((0..2001).map(|n| save(n.to_string()))).await;
    assert_eq!(store.drop_snapshots(order("0").aggregate_type()).await.unwrap(), 2001);
    for n in [0, 999, 1000, 2000] {
        assert!(store.snapshot(&order(n.to_string()), 1).await.unwrap().is_none(), "it is gone: {n}");
    }
    assert_eq!(store.drop_snapshots(order("0").aggregate_type()).await.unwrap(), 0);
}

#[tokio::test]
async fn conflict_names_the_aggregate_once() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path()).await;
    store.append(commit(&order("only-once"), "a", 10)).await.unwrap();
    let stale = commit(&order("only-once"), "b", 10).expect(wow_store_api::ExpectedVersion::NoStream);
    let error = store.append(stale).await.unwrap_err();
    assert!(error.is_conflict(), "{error:?}");
    assert_eq!(error.to_string().matches("only-once").count(), 1, "{error}");
}
