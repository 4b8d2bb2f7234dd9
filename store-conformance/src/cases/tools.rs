//! What many cases share: a log read whole, what holds of every log, and tasks that start together.

use std::{
    collections::BTreeMap,
    future::{Future, poll_fn},
    panic::resume_unwind,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::Poll,
};

use futures_util::TryStreamExt as _;
use tokio::{sync::Semaphore, task::unconstrained};
use wow_store_api::{
    AggregateId, Commit, ContextName, Error, EventStore, Fence, PartitionCount, PartitionId, Payload,
    Position, ReadPage, RecordedCommit, StoreExt as _, SubscriptionName, Version,
};

use crate::env::{order, shop, soon};

/// All commits of an aggregate.
pub(crate) async fn load_all(store: &Arc<dyn EventStore>, id: &AggregateId) -> Vec<RecordedCommit> {
    let commits = store.load(id, ..).await.expect("the load starts");
    commits.try_collect().await.expect("the load ends well")
}

/// The versions that a load of a range gives.
pub(crate) async fn versions(
    store: &Arc<dyn EventStore>,
    id: &AggregateId,
    range: impl std::ops::RangeBounds<Version> + Send,
) -> Vec<Version> {
    let commits: Vec<_> =
        store.load(id, range).await.expect("the load starts").try_collect().await.expect("it ends well");
    commits.iter().map(|commit: &RecordedCommit| commit.version).collect()
}

/// All commits of a partition, read in pages.
pub(crate) async fn read_all(store: &Arc<dyn EventStore>, request: ReadPage) -> Vec<RecordedCommit> {
    let (mut commits, mut request) = (Vec::new(), request);
    loop {
        let page = store.read(request.clone()).await.expect("the page is read");
        commits.extend(page.commits);
        if !page.more {
            return commits;
        }
        assert!(page.through > request.after_position, "a page with more behind it advances");
        request.after_position = page.through;
    }
}

/// The positions of commits.
pub(crate) fn positions(commits: &[RecordedCommit]) -> Vec<Position> {
    commits.iter().map(|commit| commit.position).collect()
}

/// Reads a context's whole log and checks what holds of every log: positions gapless from 1 in each partition (L5),
/// versions dense in each aggregate (L2), no command twice (L3), every aggregate in its own partition, instants that
/// never fall, heads and loads that agree with it (L9). Returns the commits by partition.
pub(crate) async fn sound_log(
    store: &Arc<dyn EventStore>,
    context: &ContextName,
) -> Vec<Vec<RecordedCommit>> {
    let count = store.partitions(context).await.expect("the number of partitions");
    let heads = store.heads(context).await.expect("the heads");
    let mut log = Vec::new();
    let mut streams: BTreeMap<AggregateId, Vec<RecordedCommit>> = BTreeMap::new();
    for partition in count.partitions(context) {
        let commits = read_all(store, ReadPage::new(partition.clone(), 0)).await;
        let dense: Vec<Position> = (1..=heads[partition.index() as usize]).collect();
        assert_eq!(positions(&commits), dense, "positions are gapless up to the head");
        assert!(commits.is_sorted_by_key(|commit| commit.committed_at), "instants never fall");
        for commit in &commits {
            let home = count.partition_of(&commit.aggregate_id);
            assert_eq!((&home, commit.partition), (&partition, home.index()), "it is in its partition");
            let stream = streams.entry(commit.aggregate_id.clone()).or_default();
            let twice = stream.iter().any(|earlier| earlier.command_id == commit.command_id);
            assert!(!twice, "a command is stored once");
            assert_eq!(commit.version, stream.len() as u64 + 1, "versions are dense, in order of positions");
            stream.push(commit.clone());
        }
        log.push(commits);
    }
    for (id, stream) in streams {
        assert_eq!(store.head(&id).await.expect("the head"), stream.len() as u64, "the head agrees");
        assert_eq!(load_all(store, &id).await, stream, "a load gives what the log holds");
    }
    log
}

/// How many commits a context's log holds, after [`sound_log`].
pub(crate) async fn stored(store: &Arc<dyn EventStore>, context: &ContextName) -> usize {
    sound_log(store, context).await.iter().map(Vec::len).sum()
}

/// Runs tasks that start together, and returns their results in order. On one thread they start in their order too
/// (a barrier would wake them in any).
pub(crate) async fn race<T, F>(count: usize, mut task: impl FnMut(usize) -> F) -> Vec<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let (start, ready) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicUsize::new(0)));
    let tasks: Vec<_> = (0..count)
        .map(|n| {
            let (start, ready, task) = (Arc::clone(&start), Arc::clone(&ready), task(n));
            tokio::spawn(async move {
                if ready.fetch_add(1, Ordering::SeqCst) + 1 == count {
                    start.add_permits(count);
                }
                start.acquire().await.expect("it is never closed").forget();
                task.await
            })
        })
        .collect();
    let mut results = Vec::new();
    for task in tasks {
        match soon("every task of the race ends", task).await {
            Ok(result) => results.push(result),
            Err(error) => resume_unwind(error.into_panic()),
        }
    }
    results
}

/// `count` aggregates of type `shop.order` in one partition of the context `shop`.
pub(crate) async fn neighbours(
    store: &Arc<dyn EventStore>,
    partition: u32,
    count: usize,
) -> (PartitionId, Vec<AggregateId>) {
    let partitions = store.partitions(&shop()).await.expect("the number of partitions");
    (PartitionId::new(shop(), partition), in_partition(partitions, partition, count))
}

/// The first aggregates `shop.order/0`, `1` … that fall into a partition.
pub(crate) fn in_partition(partitions: PartitionCount, partition: u32, count: usize) -> Vec<AggregateId> {
    let all = (0..).map(|n: u64| order(n.to_string()));
    all.filter(|id| partitions.partition_of(id).index() == partition).take(count).collect()
}

/// A payload from JSON text.
pub(crate) fn json(text: &str) -> Payload {
    Payload::from_json(text).expect("a payload inside the profile")
}

/// A commit with one event with this body.
pub(crate) fn with_body(id: &AggregateId, command: &str, body: Payload) -> Commit {
    let event = wow_store_api::Event::new("Happened", 1, body).expect("a valid event");
    Commit::new(id.clone(), command).with_event(event)
}

/// The subscription that most cases use.
pub(crate) fn mailer() -> SubscriptionName {
    SubscriptionName::new("mailer").expect("a valid name")
}

/// The proof of a lease of `mailer` on partition 0 of `shop`.
pub(crate) fn fence(epoch: u64) -> Fence {
    Fence { group: mailer(), partition: PartitionId::new(shop(), 0), epoch }
}

/// The error of what must be refused.
pub(crate) fn refused<T: std::fmt::Debug>(result: Result<T, Error>) -> Error {
    result.expect_err("it is refused")
}

/// Polls a future once, as far as it gets. Without tokio's budget, which a task that polls many of them uses up: from
/// there on they would stop at their first semaphore, and what is polled first would not arrive first.
pub(crate) async fn poll_once<F: Future>(mut future: Pin<&mut F>) -> Poll<F::Output> {
    poll_fn(|cx| Poll::Ready(pin!(unconstrained(future.as_mut())).poll(cx))).await
}
