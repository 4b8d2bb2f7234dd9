//! What several topics need: names, and tasks that start at one moment.

use std::{future::Future, sync::Arc, time::Duration};

use tokio::sync::Barrier;
use wow_store_api::{
    AggregateId, EventStore, MemberId, PartitionId, RecordedCommit, StoreExt as _, SubscriptionName,
};

use futures_util::TryStreamExt as _;

use crate::env::{append_many, shop, soon};

/// A time to live that no case outlives.
pub(crate) const HOUR: Duration = Duration::from_secs(3_600);

/// A subscription, which is also the group of its members.
pub(crate) fn subscription(name: &str) -> SubscriptionName {
    SubscriptionName::new(name).expect("a valid name")
}

/// A member with a fixed name.
pub(crate) fn member(name: impl AsRef<str>) -> MemberId {
    MemberId::new(name).expect("a valid name")
}

/// A partition of the context `shop`.
pub(crate) fn partition(index: u32) -> PartitionId {
    PartitionId::new(shop(), index)
}

/// Runs `count` tasks that start together, and returns what each came to, in order.
pub(crate) async fn race<T, F>(count: usize, task: impl Fn(usize) -> F) -> Vec<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let start = Arc::new(Barrier::new(count));
    let tasks: Vec<_> = (0..count)
        .map(|n| {
            let (start, work) = (Arc::clone(&start), task(n));
            tokio::spawn(async move {
                start.wait().await;
                work.await
            })
        })
        .collect();
    let mut results = Vec::with_capacity(count);
    for task in tasks {
        results.push(soon("a racing task ends", task).await.expect("a racing task does not panic"));
    }
    results
}

/// Appends commits and returns them as they are stored.
pub(crate) async fn stored_commits(
    store: &Arc<dyn EventStore>,
    id: &AggregateId,
    count: u64,
) -> Vec<RecordedCommit> {
    append_many(store, id, "stored", count).await;
    load(store, id).await
}

/// All commits of an aggregate.
pub(crate) async fn load(store: &Arc<dyn EventStore>, id: &AggregateId) -> Vec<RecordedCommit> {
    let commits = store.load(id, ..).await.expect("the load starts");
    commits.try_collect().await.expect("the load goes through")
}
