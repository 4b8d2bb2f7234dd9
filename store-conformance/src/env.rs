//! What a case works with: a store in a fresh place, and ways to reopen it and to let time pass.

use std::{future::Future, sync::Arc, time::Duration};

use wow_store_api::{
    AggregateId, Commit, ContextName, EventStore, ManualClock, PartitionId, Position, Receipt, StoreExt,
};

use crate::harness::Place;

/// How long anything that must happen may take before a case gives up.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A store in a place of its own.
#[derive(Debug)]
pub struct Env {
    place: Arc<dyn Place>,
    store: Arc<dyn EventStore>,
}

impl Env {
    /// Opens the place.
    pub async fn open(place: Arc<dyn Place>) -> Self {
        let store = place.open().await.expect("a fresh place opens");
        Self { place, store }
    }

    /// The store.
    pub fn store(&self) -> &Arc<dyn EventStore> {
        &self.store
    }

    /// Another handle on the same place, as another node has it, or another part of the same process where the place
    /// belongs to one process.
    pub async fn second_handle(&self) -> Arc<dyn EventStore> {
        self.place.second_handle(&self.store).await.expect("a second handle on the same place")
    }

    /// Closes the store and opens the place again.
    pub async fn reopen(&mut self) {
        self.store.close().await.expect("the store closes");
        self.store = self.place.open().await.expect("the place opens again");
    }

    /// Closes the store, takes the log of a partition back to this position, and opens the place again.
    pub async fn lose_log_after(&mut self, partition: &PartitionId, after_position: Position) {
        self.store.close().await.expect("the store closes");
        let can = self.place.lose_log_after(partition, after_position).await;
        assert!(
            can,
            "this case loses a part of the log: make that possible, or list the case as an exception"
        );
        self.store = self.place.open().await.expect("the place opens again");
    }

    /// The store's clock, where the test can set it.
    pub fn clock(&self) -> &ManualClock {
        self.place.clock().expect("cases marked `sets_clock` run only where there is one")
    }

    /// A time to live that is long beside one operation and short enough to wait for.
    pub fn ttl(&self) -> Duration {
        match self.place.clock() {
            Some(_) => Duration::from_secs(10),
            None => Duration::from_millis(1_500),
        }
    }

    /// Lets at least so much time pass on the store's clock: sets it, or watches the server's until it has.
    pub async fn pass(&self, time: Duration) {
        match self.place.clock() {
            Some(clock) => clock.advance(time),
            None => {
                let start = self.store.now().await.expect("the store tells the time");
                let target = start.saturating_add(time);
                eventually(PATIENCE, "time passes on the store's clock", || async {
                    self.store.now().await.expect("the store tells the time") >= target
                })
                .await;
            }
        }
    }
}

/// Asks again until the answer is yes.
///
/// # Panics
/// When `patience` is over.
pub async fn eventually<F>(patience: Duration, what: &str, mut ask: impl FnMut() -> F)
where
    F: Future<Output = bool>,
{
    let deadline = tokio::time::Instant::now() + patience;
    while !ask().await {
        assert!(tokio::time::Instant::now() < deadline, "never happened: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Waits for something that must come; panics when [`PATIENCE`] is over.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(value) => value,
        Err(_) => panic!("never happened: {what}"),
    }
}

/// The context that most cases use.
pub(crate) fn shop() -> ContextName {
    ContextName::new("shop").expect("a valid name")
}

/// An aggregate of type `shop.order`.
pub(crate) fn order(id: impl AsRef<str>) -> AggregateId {
    AggregateId::new("shop", "order", id).expect("a valid id")
}

/// A commit with one small event.
pub(crate) fn commit(id: &AggregateId, command: impl Into<String>) -> Commit {
    Commit::new(id.clone(), command)
        .event("Happened", 1, &serde_json::json!({"n": 1}))
        .expect("a valid event")
}

/// Appends commits with one small event each under the commands `<prefix>-1` to `<prefix>-<count>`.
pub(crate) async fn append_many(
    store: &Arc<dyn EventStore>,
    id: &AggregateId,
    prefix: &str,
    count: u64,
) -> Vec<Receipt> {
    let mut receipts = Vec::new();
    for n in 1..=count {
        let receipt = store.append(commit(id, format!("{prefix}-{n}"))).await.expect("the append succeeds");
        receipts.push(receipt);
    }
    receipts
}
