//! The queues of the partitions on this node (L8). What goes together is decided in [`rules::queue`].

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::{
    sync::{MutexGuard, oneshot, watch},
    time::{Instant, timeout_at},
};
use wow_store_api::{
    PartitionId, Receipt, Result,
    rules::{self, queue::Company},
};

use crate::fault::Fault;

/// A plain batch is decided in one statement, one for each set of aggregate types.
const COMPANY: Company = Company::Independent { max_types: 4 };

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

/// A partition, as this node writes to it.
pub(crate) struct Line {
    pub(crate) queue: Queue,
    /// Whoever holds it is the writer that talks to the database. The other one has its batch ready by then.
    turn: tokio::sync::Mutex<()>,
}

impl Line {
    pub(super) async fn turn(&self, deadline: Instant) -> std::result::Result<MutexGuard<'_, ()>, Fault> {
        timeout_at(deadline, self.turn.lock()).await.map_err(|_| Fault::too_late())
    }
}

/// All queues of this node.
pub(crate) struct Queues {
    lines: Mutex<HashMap<PartitionId, Arc<Line>>>,
    running: watch::Sender<usize>,
}

impl Default for Queues {
    fn default() -> Self {
        Self { lines: Mutex::default(), running: watch::Sender::new(0) }
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
    pub(crate) fn of(&self, partition: &PartitionId) -> Arc<Line> {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(line) = lines.get(partition) {
            return Arc::clone(line);
        }
        let queue = Queue::new(partition.clone(), COMPANY).with_two_writers();
        let line = Arc::new(Line { queue, turn: tokio::sync::Mutex::default() });
        lines.insert(partition.clone(), Arc::clone(&line));
        line
    }

    pub(crate) fn running(&self) -> Running<'_> {
        self.running.send_modify(|running| *running += 1);
        Running(&self.running)
    }

    /// Waits until everything that is queued has been answered.
    pub(crate) async fn finish(&self, deadline: Instant) {
        let idle = || {
            let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
            lines.values().all(|line| line.queue.is_idle())
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
