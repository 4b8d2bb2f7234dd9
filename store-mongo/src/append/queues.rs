//! The queues of the partitions on this node (L8). What goes together is decided in [`rules::queue`].

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, PoisonError},
};

use tokio::{
    sync::{OwnedMutexGuard, oneshot, watch},
    time::{Instant, timeout_at},
};
use wow_store_api::{
    PartitionId, Receipt, Result,
    rules::{self, queue::Company},
};

/// Who waits for an append.
pub(crate) struct Caller(pub(crate) oneshot::Sender<Result<Receipt>>);

impl rules::queue::Reply for Caller {
    fn answer(self, answer: Result<Receipt>) {
        // Whoever asked may have gone.
        let _ = self.0.send(answer);
    }
}

pub(crate) type Queue = rules::queue::Queue<Caller>;
pub(crate) type Pending = rules::queue::Pending<Caller>;
pub(crate) type Batch = rules::queue::Batch<Caller>;

/// Whoever holds it is the one on this node that writes to a partition. It is given in order of arrival.
type Turn = Arc<tokio::sync::Mutex<()>>;

/// All queues of this node.
pub(crate) struct Queues {
    queues: Mutex<HashMap<PartitionId, Arc<Queue>>>,
    turns: Mutex<HashMap<PartitionId, Turn>>,
    running: watch::Sender<usize>,
}

impl Default for Queues {
    fn default() -> Self {
        Self { queues: Mutex::default(), turns: Mutex::default(), running: watch::Sender::new(0) }
    }
}

/// Counts a writer while it runs.
pub(crate) struct Running<'a>(&'a watch::Sender<usize>);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|running| *running = running.saturating_sub(1));
    }
}

impl Queues {
    pub(crate) fn of(&self, partition: &PartitionId) -> Arc<Queue> {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        let queue = queues
            .entry(partition.clone())
            .or_insert_with(|| Arc::new(Queue::new(partition.clone(), Company::Any)));
        Arc::clone(queue)
    }

    /// Waits for the turn with these partitions: two transactions of one node need not abort each other.
    pub(super) async fn turn(&self, partitions: BTreeSet<&PartitionId>) -> Vec<OwnedMutexGuard<()>> {
        let turns: Vec<Turn> = {
            let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
            partitions.into_iter().map(|it| Arc::clone(turns.entry(it.clone()).or_default())).collect()
        };
        // In one order, so that nobody waits for somebody who waits.
        let mut held = Vec::with_capacity(turns.len());
        for turn in turns {
            held.push(turn.lock_owned().await);
        }
        held
    }

    pub(crate) fn running(&self) -> Running<'_> {
        self.running.send_modify(|running| *running += 1);
        Running(&self.running)
    }

    /// Waits until everything that is queued has been answered.
    pub(crate) async fn finish(&self, deadline: Instant) {
        let idle = || {
            let queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
            queues.values().all(|queue| queue.is_idle())
        };
        let mut running = self.running.subscribe();
        let waiting = async {
            while !idle() {
                if running.changed().await.is_err() {
                    return;
                }
            }
        };
        // Who is still waiting then is told so by the writers.
        let _ = timeout_at(deadline, waiting).await;
    }
}
