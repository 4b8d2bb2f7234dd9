//! The queues of the partitions, and what goes together (L8).

use std::{
    collections::{BTreeSet, HashMap, HashSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::{
    sync::{oneshot, watch},
    time::{Instant, timeout_at},
};
use wow_store_api::{
    AggregateId, AggregateType, CheckedCommit, CommandId, Error, ErrorKind, ExpectedVersion, Outcome,
    PartitionId, Receipt, Result,
};

/// Most commits in a batch.
const MAX_COMMITS: usize = 500;
/// About how many bytes are in a batch at most; one commit may be as large alone.
const MAX_BYTES: usize = 8 * 1024 * 1024;
/// Most aggregate types in a batch: each set of them is a statement of its own.
const MAX_TYPES: usize = 4;

/// All queues of this node.
pub(crate) struct Queues {
    queues: Mutex<HashMap<PartitionId, Arc<Queue>>>,
    running: watch::Sender<usize>,
}

impl Default for Queues {
    fn default() -> Self {
        Self { queues: Mutex::default(), running: watch::Sender::new(0) }
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
            .or_insert_with(|| Arc::new(Queue { partition: partition.clone(), state: Mutex::default() }));
        Arc::clone(queue)
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

/// The queue of a partition.
pub(crate) struct Queue {
    partition: PartitionId,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Pending>,
    writing: bool,
}

/// An append that waits for its answer.
pub(crate) struct Pending {
    commit: CheckedCommit,
    reply: oneshot::Sender<Result<Receipt>>,
    deadline: Instant,
    /// An attempt of unknown outcome was made.
    unknown: bool,
}

impl Pending {
    pub(crate) fn new(
        commit: CheckedCommit,
        reply: oneshot::Sender<Result<Receipt>>,
        deadline: Instant,
    ) -> Self {
        Self { commit, reply, deadline, unknown: false }
    }

    fn answer(self, answer: Result<Receipt>) {
        let context = self.commit.aggregate_id().clone();
        let answer = answer.map_err(|error| super::settled(error, self.unknown).with_context(context));
        // Whoever asked may have gone.
        let _ = self.reply.send(answer);
    }

    /// Nothing rides in it and no lease is to be looked at.
    fn is_plain(&self) -> bool {
        self.commit.fence().is_none()
            && self.commit.reservations().is_empty()
            && self.commit.timers().is_empty()
    }
}

impl Queue {
    pub(crate) fn partition(&self) -> &PartitionId {
        &self.partition
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_idle(&self) -> bool {
        let state = self.state();
        !state.writing && state.waiting.is_empty()
    }

    /// Queues an append; says whether a writer has to be started.
    pub(crate) fn push(&self, pending: Pending) -> bool {
        let mut state = self.state();
        state.waiting.push_back(pending);
        !std::mem::replace(&mut state.writing, true)
    }

    /// What is written next; `None` ends the writer.
    pub(crate) fn take(&self) -> Option<Batch> {
        let mut state = self.state();
        let batch = Batch::from_front(&mut state.waiting);
        if batch.is_empty() && state.waiting.is_empty() {
            state.writing = false;
            return None;
        }
        Some(batch)
    }
}

/// Appends that share a transaction.
pub(crate) struct Batch {
    pending: Vec<Pending>,
    commits: Vec<CheckedCommit>,
    plain: bool,
}

impl Batch {
    fn new(pending: Vec<Pending>) -> Self {
        let commits = pending.iter().map(|pending| pending.commit.clone()).collect();
        let plain = pending.iter().all(Pending::is_plain);
        Self { pending, commits, plain }
    }

    /// Takes what can go together from the front of a queue; what is left keeps its order.
    ///
    /// A plain batch is decided in one statement, so what depends on the outcome of another commit of the batch waits:
    /// a command that is in it already, and an exact version behind another commit of the aggregate. Whatever waits
    /// holds back the later commits of its aggregate.
    fn from_front(waiting: &mut VecDeque<Pending>) -> Self {
        let now = Instant::now();
        let careful = waiting.front().is_some_and(|first| !first.is_plain());
        let mut left = VecDeque::new();
        let mut taken: Vec<Pending> = Vec::new();
        let mut held: HashSet<AggregateId> = HashSet::new();
        let mut seen: HashMap<AggregateId, Vec<(ExpectedVersion, CommandId)>> = HashMap::new();
        let mut types: BTreeSet<AggregateType> = BTreeSet::new();
        let mut bytes = 0;
        while let Some(pending) = waiting.pop_front() {
            if pending.deadline <= now {
                let late = Error::not_applied(ErrorKind::Timeout);
                pending.answer(Err(late));
                continue;
            }
            let size = pending.commit.encoded_size();
            if taken.len() == MAX_COMMITS || (!taken.is_empty() && bytes + size > MAX_BYTES) {
                waiting.push_front(pending);
                break;
            }
            let id = pending.commit.aggregate_id();
            let fits = careful || {
                let earlier = seen.get(id).map(Vec::as_slice).unwrap_or_default();
                let any = ExpectedVersion::Any;
                let independent = earlier.is_empty()
                    || (pending.commit.expected() == any
                        && earlier.iter().all(|(expected, command)| {
                            *expected == any && command != pending.commit.command_id()
                        }));
                let room = types.len() < MAX_TYPES || types.contains(id.aggregate_type());
                pending.is_plain() && independent && room && !held.contains(id)
            };
            if fits {
                bytes += size;
                types.insert(id.aggregate_type().clone());
                let entry = (pending.commit.expected(), pending.commit.command_id().clone());
                seen.entry(id.clone()).or_default().push(entry);
                taken.push(pending);
            } else {
                held.insert(id.clone());
                left.push_back(pending);
            }
        }
        while let Some(pending) = left.pop_back() {
            waiting.push_front(pending);
        }
        Self::new(taken)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.pending.len()
    }

    pub(crate) fn is_plain(&self) -> bool {
        self.plain
    }

    pub(crate) fn commits(&self) -> &[CheckedCommit] {
        &self.commits
    }

    /// When the first of them has to be answered.
    pub(crate) fn deadline(&self) -> Instant {
        self.pending.iter().map(|pending| pending.deadline).min().unwrap_or_else(Instant::now)
    }

    /// Each gets its own answer.
    pub(crate) fn answer(self, answers: Vec<Result<Receipt>>) {
        for (pending, answer) in self.pending.into_iter().zip(answers) {
            pending.answer(answer);
        }
    }

    /// All get the same error.
    pub(crate) fn refuse(self, error: &Error) {
        for pending in self.pending {
            pending.answer(Err(error.clone()));
        }
    }

    /// Each alone.
    pub(crate) fn split(self) -> Vec<Self> {
        self.pending.into_iter().map(|pending| Self::new(vec![pending])).collect()
    }

    /// An attempt failed; `lost` if nobody knows whether it was applied.
    pub(crate) fn note(&mut self, lost: bool) {
        for pending in &mut self.pending {
            pending.unknown |= lost;
        }
    }

    /// Answers those whose time is over at `at` with what kept them from being stored.
    pub(crate) fn expire(&mut self, at: Instant, error: &Error) {
        let (late, rest): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.pending).into_iter().partition(|pending| pending.deadline <= at);
        for pending in late {
            let error = error.clone().with_outcome(Outcome::NotApplied);
            pending.answer(Err(error));
        }
        *self = Self::new(rest);
    }
}
