//! Somebody who reads a tail while things go wrong.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{Instant, timeout},
};
use wow_store_api::{
    ContextName, ErrorKind, EventStore, Position, RecordedCommit, StoreExt as _, TailRequest,
};

/// Follows a context's log from its beginning, through whatever happens, and keeps what it was given.
#[derive(Debug)]
pub struct Follower {
    seen: Arc<Mutex<Vec<Vec<RecordedCommit>>>>,
    positions: watch::Receiver<Vec<Position>>,
    task: JoinHandle<()>,
}

impl Follower {
    /// Opens the tail.
    pub async fn start(store: Arc<dyn EventStore>, context: ContextName) -> Self {
        let mut tail =
            store.tail(TailRequest::new(context).with_max_commits(100)).await.expect("a tail opens");
        let partitions = tail.positions().count();
        let seen = Arc::new(Mutex::new(vec![Vec::new(); partitions]));
        let (at, positions) = watch::channel(vec![0; partitions]);
        let keeps = Arc::clone(&seen);
        let task = tokio::spawn(async move {
            loop {
                match tail.next().await {
                    Ok(batch) => {
                        let index = usize::try_from(batch.partition.index()).expect("small");
                        keeps.lock().unwrap_or_else(PoisonError::into_inner)[index].extend(batch.commits);
                        at.send_modify(|positions| positions[index] = batch.through);
                    }
                    Err(error) if matches!(error.kind(), ErrorKind::Closed) => return,
                    // A tail goes on where it was.
                    Err(error) => {
                        assert!(error.is_transient(), "the tail broke: {error:?}");
                        tokio::task::yield_now().await;
                    }
                }
            }
        });
        Self { seen, positions, task }
    }

    /// Waits until it is at these positions. Returns how long that took.
    ///
    /// # Panics
    /// If it takes longer than `within`, or the tail broke.
    pub async fn reaches(&self, heads: &[Position], within: Duration) -> Duration {
        let start = Instant::now();
        let mut positions = self.positions.clone();
        let is_there = |at: &Vec<Position>| heads.iter().zip(at).all(|(head, at)| at >= head);
        // What is waited for is locked while it is held.
        let reached = timeout(within, positions.wait_for(is_there)).await;
        let reached = reached.is_ok_and(|reached| reached.is_ok());
        let at = self.positions.borrow().clone();
        assert!(!self.task.is_finished(), "the tail goes on");
        assert!(reached, "the tail moves again within {within:?}: it is at {at:?}, the log at {heads:?}");
        start.elapsed()
    }

    /// Whether it was given nothing that the other was not, as far as it came: it read where not all is that is now.
    #[must_use]
    pub fn is_behind(&self, other: &Self) -> bool {
        self.seen().iter().zip(other.seen()).all(|(seen, all)| all.starts_with(seen))
    }

    /// What it was given, by partition.
    pub(super) fn seen(&self) -> Vec<Vec<RecordedCommit>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.task.abort();
    }
}
