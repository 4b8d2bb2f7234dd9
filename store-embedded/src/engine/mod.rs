//! What stores bytes: a directory that is open, one writer, group commit, durable reads. Knows nothing of the
//! contract.

use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use fjall::{CompressionType, Database, Keyspace};
use tokio::sync::{Semaphore, mpsc, watch};
use wow_store_api::{Clock, Wakeups};

use error::{OpenError, WriteError, WriteErrorKind};
use heartbeat::Heartbeat;
use hot::Hot;
use lock::{DirectoryLock, Hold};
use mark::Mark;
use space::{PerSpace, Space};
use view::{Tx, View};
use writer::{Answer, Message, Poison, Writer};

mod directory;
pub(crate) mod error;
mod heartbeat;
mod hot;
mod inspect;
mod journal;
pub(crate) mod keys;
mod lock;
mod manifest;
mod mark;
mod overlay;
pub(crate) mod record;
pub(crate) mod space;
mod tables;
#[cfg(test)]
mod tests;
pub(crate) mod view;
mod writer;

/// The key in the state keyspace that the first batch writes.
pub(crate) const LAST_BATCH: &[u8] = heartbeat::KEY;
const DATABASE: &str = "db";
const DATABASE_FORMAT: u32 = 3;

/// How the directory is used. Nothing in here changes what is stored.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    pub(crate) cache_bytes: u64,
    /// Only for a directory that is new.
    pub(crate) memtable_bytes: u64,
    pub(crate) worker_threads: usize,
    pub(crate) max_journal_bytes: u64,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) wakeups: Wakeups,
}

/// The way to the writer. It keeps nothing open: after the engine is gone it only says so.
#[derive(Debug, Clone)]
pub(crate) struct Queue {
    operations: mpsc::Sender<Message>,
    room: Arc<Semaphore>,
    poison: Poison,
    closing: Arc<AtomicBool>,
}

impl Queue {
    /// Runs `operation` in the writer, in order of arrival, all or nothing.
    ///
    /// What it returns with `Ok` is told to the caller only when its writes, and all that it has read, are durable;
    /// returning `Err` or panicking drops its writes. `bytes` is about what it holds, for back-pressure.
    ///
    /// Cancel-safe: dropped before it was queued nothing happens; later it is applied wholly or not at all.
    pub(crate) async fn write<F, R, E>(&self, bytes: usize, operation: F) -> Answer<R, E>
    where
        F: FnOnce(&mut Tx<'_>) -> Result<R, E> + Send + 'static,
        R: Send + 'static,
        E: Send + 'static,
    {
        if self.closing.load(Ordering::Acquire) {
            return Err(WriteError::closed());
        }
        if let Some(reason) = self.poison.reason() {
            return Err(WriteError::not_applied(WriteErrorKind::Poisoned, &reason));
        }
        let permits = u32::try_from(bytes).unwrap_or(u32::MAX).clamp(1, writer::QUEUE_BYTES);
        let Ok(room) = Arc::clone(&self.room).acquire_many_owned(permits).await else {
            return Err(WriteError::closed());
        };
        let (operation, answer) = writer::call(operation, room);
        if self.operations.send(Some(operation)).await.is_err() {
            return Err(self.gone(false));
        }
        // Without an answer the writer has died with the operation in its hands.
        answer.await.unwrap_or_else(|_| Err(self.gone(true)))
    }

    fn gone(&self, maybe_applied: bool) -> WriteError {
        match self.poison.reason() {
            Some(reason) => WriteError { kind: WriteErrorKind::Poisoned, maybe_applied, reason },
            None => WriteError { maybe_applied, ..WriteError::closed() },
        }
    }
}

/// The open directory. Dropping it finishes what is queued, then closes.
pub(crate) struct Engine {
    database: Database,
    spaces: Arc<PerSpace<Keyspace>>,
    queue: Queue,
    writer: Mutex<Option<JoinHandle<()>>>,
    torn_bytes: u64,
    #[cfg(test)]
    pub(crate) fail_commits: Arc<AtomicBool>,
    /// Let go after the database.
    _lock: DirectoryLock,
    /// Dropped last: whoever waits for it finds the directory free.
    gone: watch::Sender<()>,
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("poison", &self.queue.poison).finish_non_exhaustive()
    }
}

impl Engine {
    /// Opens the directory, creating what is missing. Blocks: reads the journal.
    pub(crate) fn open(directory: &Path, options: &Options) -> Result<Self, OpenError> {
        directory::prepare(directory)?;
        let lock = DirectoryLock::acquire(directory)?;
        let path = directory.join(DATABASE);
        // Somebody may have removed the file of our own lock. Held until the database takes it, so that nobody reads,
        // cuts or removes what another one is writing.
        let held = lock::hold_database(&path)?;
        // The mark is made last, before the first batch: without it there is no whole store here.
        let known = Mark::read(directory)?;
        let inspected = match known {
            None => {
                directory::remove_unfinished(directory, &path)?;
                None
            }
            Some(acknowledged) => Some(inspect::inspect(&path, acknowledged)?),
        };
        drop(held);
        if inspected.is_some() {
            lock::ensure_database(&path)?;
        }
        let database = open_database(&path, options)?;
        let hold = Hold::of_database(&path)?;
        let spaces = Arc::new(PerSpace::open(&database, &path, options.memtable_bytes)?);
        let last = last_batch(&database, &spaces)?;
        let expected = inspected.map_or_else(Heartbeat::default, |inspected| inspected.last);
        if last != expected {
            let reason =
                format!("opened, the last batch is {}, it was {} before", last.batch, expected.batch);
            return Err(OpenError::corrupt(path.display(), reason));
        }

        if inspected.is_none() {
            for made in [&path.join(manifest::FOLDER), &path, directory] {
                directory::sync(made)?;
            }
            Mark::create(directory)?;
            directory::sync(directory)?;
        }
        let mark = Mark::open(directory)?;

        let (operations, receiver) = mpsc::channel(writer::QUEUE_OPERATIONS);
        let queue = Queue {
            operations,
            room: Arc::new(Semaphore::new(usize::try_from(writer::QUEUE_BYTES).unwrap_or(usize::MAX))),
            poison: Poison::default(),
            closing: Arc::default(),
        };
        #[cfg(test)]
        let fail_commits = Arc::new(AtomicBool::new(false));
        let writer = Writer {
            directory: directory.to_path_buf(),
            database: database.clone(),
            spaces: Arc::clone(&spaces),
            mark,
            hold,
            last,
            hot: Hot::default(),
            poison: queue.poison.clone(),
            clock: Arc::clone(&options.clock),
            wakeups: options.wakeups.clone(),
            queue: receiver,
            callers: 0,
            pace: Duration::ZERO,
            closing: Arc::clone(&queue.closing),
            #[cfg(test)]
            fail_commits: Arc::clone(&fail_commits),
        };
        let thread = std::thread::Builder::new()
            .name("wow-store-writer".to_owned())
            .spawn(move || writer.run())
            .map_err(OpenError::io("start the writer of", directory))?;
        Ok(Self {
            database,
            spaces,
            queue,
            writer: Mutex::new(Some(thread)),
            torn_bytes: inspected.map_or(0, |inspected| inspected.torn_bytes),
            #[cfg(test)]
            fail_commits,
            _lock: lock,
            gone: watch::Sender::new(()),
        })
    }

    /// The durable state as of now.
    pub(crate) fn view(&self) -> View {
        View::new(self.database.snapshot(), &self.spaces)
    }

    /// The way to the writer.
    pub(crate) fn queue(&self) -> &Queue {
        &self.queue
    }

    /// Errs once the engine is dropped and the directory free.
    pub(crate) fn gone(&self) -> watch::Receiver<()> {
        self.gone.subscribe()
    }

    /// Bytes of an unacknowledged write that opening cut off.
    pub(crate) fn torn_bytes(&self) -> u64 {
        self.torn_bytes
    }

    #[cfg(test)]
    pub(crate) fn flush_for_tests(&self, space: Space) {
        self.spaces.get(space).rotate_memtable_and_wait().unwrap();
    }

    /// Refuses writes from now on.
    pub(crate) fn refuse(&self) {
        self.queue.closing.store(true, Ordering::Release);
    }

    /// Finishes what is queued and stops the writer. Later writes are refused, reads go on. Blocks.
    pub(crate) fn close(&self) {
        self.refuse();
        // Wakes an idle writer; one with a full queue is awake and looks by itself.
        let _ = self.queue.operations.try_send(None);
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(writer) = writer
            && writer.thread().id() != std::thread::current().id()
        {
            let _ = writer.join();
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.close();
    }
}

fn open_database(path: &Path, options: &Options) -> Result<Database, OpenError> {
    Database::builder(path)
        .cache_size(options.cache_bytes)
        .worker_threads(options.worker_threads.max(1))
        .max_journaling_size(options.max_journal_bytes.max(64 * 1024 * 1024))
        // The check before opening reads the journal's items as they are.
        .journal_compression(CompressionType::None)
        .manual_journal_persist(true)
        .open()
        .map_err(|source| match source {
            fjall::Error::Locked => {
                OpenError::Locked { directory: path.to_path_buf(), holder: lock::DATABASE_HOLDER.to_owned() }
            }
            source => OpenError::database("open the database", path)(source),
        })
}

fn last_batch(database: &Database, spaces: &Arc<PerSpace<Keyspace>>) -> Result<Heartbeat, OpenError> {
    let value = View::new(database.snapshot(), spaces)
        .get(Space::State, heartbeat::KEY)
        .map_err(|e| OpenError::corrupt("state, last batch", e.to_string()))?;
    match value {
        Some(value) => Heartbeat::decode(&value).map_err(OpenError::Corrupt),
        None => Ok(Heartbeat::default()),
    }
}
