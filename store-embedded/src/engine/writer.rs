//! The writer: one thread through which every write goes.
//!
//! It takes whatever is queued, applies each operation to an overlay, writes the whole batch with one sync and then
//! answers all of them. While a batch is on its way to disk the next one gathers in the queue, so that the batch size
//! follows the load and a lone caller waits for nothing but its own sync; where there were others, see [`Writer::apply`].

use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::fs::File;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use fjall::{AbstractTree, Database, Keyspace, OwnedWriteBatch, PersistMode};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use wow_store_api::{Clock, Timestamp, Wakeups};

use crate::engine::error::{WriteError, WriteErrorKind};
use crate::engine::heartbeat::{self, Heartbeat};
use crate::engine::hot::Hot;
use crate::engine::lock::Hold;
use crate::engine::mark::Mark;
use crate::engine::overlay::Overlay;
use crate::engine::space::{PerSpace, Space};
use crate::engine::view::{Tx, View};

/// Operations taken from the queue at a time.
const BATCH_OPERATIONS: usize = 1024;
/// A batch is written once it is this large.
const BATCH_BYTES: usize = 8 * 1024 * 1024;

/// Operations and bytes that may wait.
pub(crate) const QUEUE_OPERATIONS: usize = 4096;
pub(crate) const QUEUE_BYTES: u32 = 64 * 1024 * 1024;

/// fjall sleeps in long steps, for ever if its workers are gone, from four sealed memtables or thirty runs on. Below
/// these limits, waiting here first, it does not get there.
const MAX_SEALED_MEMTABLES: usize = 2;
const MAX_LEVEL0_RUNS: usize = 20;
const STALL_STEP: Duration = Duration::from_millis(1);

/// At most this part of what it took to write the last batch, and at most this long, is waited for others.
const LINGER_PART: u32 = 2;
const LINGER: Duration = Duration::from_micros(500);

/// A file that is written to see whether any can be.
pub(crate) const PROBE: &str = "probe";
const PROBE_BYTES: usize = 4 * 1024 * 1024;
const PROBE_BYTE: u8 = 1;

/// The outcome of an operation whose batch is durable, or that wrote nothing; or why there is none.
pub(crate) type Answer<R, E> = Result<Result<R, E>, WriteError>;

/// Why the store no longer writes.
#[derive(Debug, Default, Clone)]
pub(crate) struct Poison(Arc<Mutex<Option<Arc<str>>>>);

impl Poison {
    pub(crate) fn reason(&self) -> Option<Arc<str>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The first reason stays.
    fn set(&self, reason: String) -> Arc<str> {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(held.get_or_insert_with(|| Arc::from(reason)))
    }
}

/// A queued operation.
pub(crate) trait Operation: Send {
    /// Nobody waits for it any more.
    fn is_abandoned(&self) -> bool;
    /// Runs it. Says whether its writes are to be kept.
    fn apply(&mut self, tx: &mut Tx<'_>) -> bool;
    /// Gives its own outcome to the caller, or the error that took its place.
    fn answer(self: Box<Self>, failure: Option<WriteError>);
}

struct Call<F, R, E> {
    operation: Option<F>,
    outcome: Option<Result<R, E>>,
    reply: oneshot::Sender<Answer<R, E>>,
    _room: OwnedSemaphorePermit,
}

impl<F, R, E> Operation for Call<F, R, E>
where
    F: FnOnce(&mut Tx<'_>) -> Result<R, E> + Send,
    R: Send,
    E: Send,
{
    fn is_abandoned(&self) -> bool {
        self.reply.is_closed()
    }

    fn apply(&mut self, tx: &mut Tx<'_>) -> bool {
        let Some(operation) = self.operation.take() else { return false };
        self.outcome.insert(operation(tx)).is_ok()
    }

    fn answer(self: Box<Self>, failure: Option<WriteError>) {
        let answer = match (failure, self.outcome) {
            (Some(failure), _) => Err(failure),
            (None, Some(outcome)) => Ok(outcome),
            (None, None) => Err(WriteError::closed()),
        };
        // The caller may have gone away; what it asked for stands.
        let _ = self.reply.send(answer);
    }
}

pub(crate) fn call<F, R, E>(
    operation: F,
    room: OwnedSemaphorePermit,
) -> (Box<dyn Operation>, oneshot::Receiver<Answer<R, E>>)
where
    F: FnOnce(&mut Tx<'_>) -> Result<R, E> + Send + 'static,
    R: Send + 'static,
    E: Send + 'static,
{
    let (reply, answer) = oneshot::channel();
    (Box::new(Call { operation: Some(operation), outcome: None, reply, _room: room }), answer)
}

/// `None` only wakes the writer.
pub(crate) type Message = Option<Box<dyn Operation>>;

/// The state that the thread owns.
pub(crate) struct Writer {
    pub(crate) directory: PathBuf,
    pub(crate) database: Database,
    pub(crate) spaces: Arc<PerSpace<Keyspace>>,
    pub(crate) mark: Mark,
    pub(crate) hold: Hold,
    pub(crate) last: Heartbeat,
    pub(crate) hot: Hot,
    pub(crate) poison: Poison,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) wakeups: Wakeups,
    pub(crate) queue: mpsc::Receiver<Message>,
    /// How many waited for an answer when the last batch was written, and how long writing it took.
    pub(crate) callers: usize,
    pub(crate) pace: Duration,
    /// Set before the last message.
    pub(crate) closing: Arc<AtomicBool>,
    #[cfg(test)]
    pub(crate) fail_commits: Arc<AtomicBool>,
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").field("last", &self.last).finish_non_exhaustive()
    }
}

/// What is in the writer's hands.
#[derive(Default)]
struct Round {
    incoming: Vec<Message>,
    /// Received, not yet applied.
    waiting: VecDeque<Box<dyn Operation>>,
    overlay: Overlay,
    /// Applied, not yet answered.
    done: Vec<(Box<dyn Operation>, Step)>,
}

enum Step {
    Refused,
    Kept,
    Panicked(Arc<str>),
}

impl Writer {
    /// Runs until every sender is gone, and finishes what they sent.
    pub(crate) fn run(mut self) {
        let poison = self.poison.clone();
        // Operations are shielded one by one; what unwinds to here is a fault of the writer or of the database.
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.serve())) {
            poison.set(format!("the writer panicked: {}", panic_text(panic.as_ref())));
        }
    }

    fn serve(&mut self) {
        let mut round = Round::default();
        while !self.closing.load(Ordering::Acquire) {
            if round.waiting.is_empty() && !self.receive(&mut round) {
                break;
            }
            self.batch(&mut round);
        }
        self.queue.close();
        loop {
            while let Ok(message) = self.queue.try_recv() {
                round.waiting.extend(message);
            }
            if round.waiting.is_empty() {
                break;
            }
            self.batch(&mut round);
        }
        // A clean end: the mark is exact from here on, power loss or not.
        let _ = self.mark.sync();
    }

    /// Waits for operations; `false` once there will be none.
    fn receive(&mut self, round: &mut Round) -> bool {
        let received = self.queue.blocking_recv_many(&mut round.incoming, BATCH_OPERATIONS) > 0;
        round.waiting.extend(round.incoming.drain(..).flatten());
        received
    }

    /// Applies what waits and what comes meanwhile, writes it, and answers.
    fn batch(&mut self, round: &mut Round) {
        if let Some(reason) = self.poison.reason() {
            for operation in round.waiting.drain(..) {
                operation.answer(Some(WriteError::not_applied(WriteErrorKind::Poisoned, &reason)));
            }
            return;
        }
        self.apply(round);
        let overlay = &mut round.overlay;
        let failure = if overlay.is_empty() { None } else { self.commit(overlay).err() };
        if failure.is_some() {
            // It holds what the batch would have made true.
            self.hot = Hot::default();
        }
        // Before anyone is answered: nobody is in both.
        let queued = self.queue.len().saturating_add(round.waiting.len());
        self.callers = round.done.len().saturating_add(queued);
        for (operation, step) in round.done.drain(..) {
            operation.answer(match (&failure, step) {
                (_, Step::Panicked(reason)) => {
                    Some(WriteError::not_applied(WriteErrorKind::Panicked, &reason))
                }
                (None, _) => None,
                // One that wrote nothing may have answered with what a neighbour wrote.
                (Some(failure), Step::Kept) => Some(failure.clone()),
                (Some(failure), Step::Refused) => {
                    Some(WriteError { maybe_applied: false, ..failure.clone() })
                }
            });
        }
        // Also for those who gave up waiting for their answer: their commits are there.
        let touched = round.overlay.take_touched();
        if failure.is_none() {
            for partition in touched {
                self.wakeups.notify(partition.context(), partition.index());
            }
        }
    }

    /// Applies operations until there are no more, or enough for one batch.
    ///
    /// While one batch is written half of the callers queue, and the other half is only just being answered: taking
    /// what is there would let the two halves sync in turns for ever. So this goes on, for a part of what a batch takes
    /// to be written, until as many have come as waited for an answer last time. A lone caller never waits for others.
    fn apply(&mut self, round: &mut Round) {
        let view = View::new(self.database.snapshot(), &self.spaces);
        // After the operations were queued: none of them sees an instant from before it was asked for.
        let mut now = self.clock.now();
        let mut deadline = None;
        loop {
            while let Some(mut operation) = round.waiting.pop_front() {
                if operation.is_abandoned() {
                    continue;
                }
                let step = step(operation.as_mut(), &view, &self.hot, &mut round.overlay, now);
                round.done.push((operation, step));
                if round.done.len() >= BATCH_OPERATIONS || round.overlay.bytes() >= BATCH_BYTES {
                    return;
                }
            }
            let missing = self.callers.saturating_sub(round.done.len());
            if missing == 0 || !self.gather(&mut round.waiting, missing, &mut deadline) {
                return;
            }
            now = self.clock.now();
        }
    }

    /// Takes more operations, at most so many, and waits for the first until the deadline; `false` if there is none.
    fn gather(
        &mut self,
        waiting: &mut VecDeque<Box<dyn Operation>>,
        missing: usize,
        deadline: &mut Option<Instant>,
    ) -> bool {
        loop {
            while waiting.len() < missing
                && let Ok(message) = self.queue.try_recv()
            {
                waiting.extend(message);
            }
            if !waiting.is_empty() {
                return true;
            }
            let now = Instant::now();
            if now >= *deadline.get_or_insert(now + (self.pace / LINGER_PART).min(LINGER)) {
                return false;
            }
            std::thread::yield_now();
        }
    }

    /// Writes and syncs the overlay. On success its writes are durable and visible.
    fn commit(&mut self, overlay: &mut Overlay) -> Result<(), WriteError> {
        if let Err(error) = self.wait_for_workers().and_then(|()| Ok(self.hold.check()?)) {
            let _ = overlay.drain().count();
            return Err(WriteError { maybe_applied: false, ..self.failed(&error) });
        }
        let start = Instant::now();
        let mut writes = PerSpace::default();
        let batch = OwnedWriteBatch::with_capacity(
            self.database.clone(),
            overlay.len().saturating_add(Space::ALL.len()),
        );
        let mut batch = batch.durability(Some(PersistMode::SyncData));
        let mut state = Vec::new();
        for (space, key, value) in overlay.drain() {
            *writes.get_mut(space) = true;
            if space == Space::State {
                state.push((key.clone(), value.clone()));
            }
            match value {
                Some(value) => batch.insert(self.spaces.get(space), key, value),
                None => batch.remove(self.spaces.get(space), key),
            }
        }
        let next = self.last.next(writes);
        for space in Space::ALL {
            let value = if space == Space::State { next.encode() } else { next.encode_number() };
            if *next.writes.get(space) {
                batch.insert(self.spaces.get(space), heartbeat::KEY, value);
            }
        }

        #[cfg(test)]
        let injected = self.fail_commits.load(Ordering::Acquire);
        #[cfg(not(test))]
        let injected = false;
        let written = if injected {
            Err(std::io::Error::other("injected").into())
        } else {
            // A panic in here may come before or after the write.
            catch_unwind(AssertUnwindSafe(|| batch.commit()))
                .unwrap_or_else(|panic| Err(std::io::Error::other(panic_text(panic.as_ref())).into()))
        };
        // Whoever took the directory over meanwhile may not have seen it.
        if let Err(error) = written.and_then(|()| Ok(self.hold.check()?)) {
            return Err(self.failed(&error));
        }
        self.last = next;
        for (key, value) in state {
            self.hot.set_state(key, value);
        }
        // Left behind, the mark is still a lower bound.
        let _ = self.mark.set(next.batch);
        self.pace = start.elapsed();
        Ok(())
    }

    /// Poisons the store. The error is that of the batch that failed.
    fn failed(&self, error: &fjall::Error) -> WriteError {
        let (full, reason) = match error {
            fjall::Error::Io(error) | fjall::Error::Storage(fjall::LsmError::Io(error)) => {
                (is_full(error), error.to_string())
            }
            // A worker failed earlier. It tells nobody why: find out.
            fjall::Error::Poisoned => match probe(&self.directory) {
                Ok(()) => (false, "writing a table failed".to_owned()),
                Err(error) => (is_full(&error), format!("writing a table failed: {error}")),
            },
            other => (false, other.to_string()),
        };
        let kind = if full { WriteErrorKind::StorageFull } else { WriteErrorKind::CommitFailed };
        WriteError { kind, maybe_applied: true, reason: self.poison.set(reason) }
    }

    /// Holds writes back while flushing and compaction are behind; an error if they have stopped.
    fn wait_for_workers(&self) -> fjall::Result<()> {
        loop {
            let behind = Space::ALL.iter().any(|space| {
                let tree = &self.spaces.get(*space).tree;
                tree.sealed_memtable_count() > MAX_SEALED_MEMTABLES || tree.l0_run_count() > MAX_LEVEL0_RUNS
            });
            if !behind {
                return Ok(());
            }
            // The only public way to ask fjall whether it is poisoned. Writes and syncs nothing.
            self.database.persist(PersistMode::Buffer)?;
            std::thread::sleep(STALL_STEP);
        }
    }
}

fn is_full(error: &std::io::Error) -> bool {
    use std::io::ErrorKind;
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge)
}

/// Whether a file that begins like this may be such a file.
pub(crate) fn is_probe(start: &[u8]) -> bool {
    start.iter().all(|byte| *byte <= PROBE_BYTE)
}

/// Whether a file can be written here.
fn probe(directory: &Path) -> std::io::Result<()> {
    let path = directory.join(PROBE);
    let written = File::create(&path).and_then(|mut file| {
        let chunk = vec![PROBE_BYTE; PROBE_BYTES];
        file.write_all(&chunk).and_then(|()| file.sync_all())
    });
    let removed = std::fs::remove_file(&path);
    written.and(removed)
}

fn step(
    operation: &mut dyn Operation,
    view: &View,
    hot: &Hot,
    overlay: &mut Overlay,
    now: Timestamp,
) -> Step {
    let result = catch_unwind(AssertUnwindSafe(|| operation.apply(&mut Tx::new(view, hot, overlay, now))));
    match result {
        Ok(true) => {
            overlay.keep();
            Step::Kept
        }
        Ok(false) => {
            overlay.take_back(hot);
            Step::Refused
        }
        Err(panic) => {
            overlay.take_back(hot);
            Step::Panicked(panic_text(panic.as_ref()).into())
        }
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned())
}
