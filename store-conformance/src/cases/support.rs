//! What the topics beside the log share: names, and commits to work with.

use std::{sync::Arc, time::Duration};

use wow_store_api::{AggregateId, EventStore, MemberId, PartitionId, RecordedCommit, SubscriptionName};

pub(crate) use super::tools::{load_all as load, race};
use crate::env::{append_many, shop};

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

/// Appends commits and returns them as they are stored.
pub(crate) async fn stored_commits(
    store: &Arc<dyn EventStore>,
    id: &AggregateId,
    count: u64,
) -> Vec<RecordedCommit> {
    append_many(store, id, "stored", count).await;
    load(store, id).await
}
