//! The store: a handle on the engine, and how operations get to it.

use std::{
    fmt,
    ops::Deref,
    sync::{Arc, PoisonError, RwLock},
};

use async_trait::async_trait;
use tokio::{runtime::Handle, sync::watch};
use wow_store_api::{
    Clock, Error, ErrorKind, Format, PartitionCount, Result, StoreAdmin, Timestamp, Wakeups,
};

use crate::{
    config::EmbeddedConfig,
    engine::{
        Engine, Options, Queue,
        view::{Tx, View},
    },
    format,
};

/// Bytes of write-ahead journal from which on the database writes tables to be able to drop it.
const MAX_JOURNAL_BYTES: u64 = 512 * 1024 * 1024;
/// Threads that write and merge tables.
const TABLE_THREADS: usize = 2;
/// What an operation counts in the queue beside what it carries.
const OPERATION_BYTES: usize = 512;

/// A store in a directory. Clones are the same store: closing one closes all. Dropping the last one closes it too.
#[derive(Clone)]
pub struct EmbeddedStore(Arc<Inner>);

struct Inner {
    name: Arc<str>,
    partitions: PartitionCount,
    clock: Arc<dyn Clock>,
    wakeups: Wakeups,
    queue: Queue,
    /// Taken out by closing.
    engine: RwLock<Option<Arc<Engine>>>,
    gone: watch::Receiver<()>,
    torn_bytes: u64,
}

/// The durable state, and a claim on the engine: closing waits until it is dropped.
pub(crate) struct Reading {
    view: View,
    _engine: Arc<Engine>,
}

impl Deref for Reading {
    type Target = View;

    fn deref(&self) -> &View {
        &self.view
    }
}

impl EmbeddedStore {
    /// Opens the store of a directory, and makes one where there is none.
    ///
    /// What a crash has left half-written, and nobody was told was stored, is cut off ([`torn_bytes`](Self::torn_bytes)).
    ///
    /// # Errors
    /// - [`Locked`](ErrorKind::Locked): another process, or another handle of this one, has it open; it says which.
    /// - [`Corrupt`](ErrorKind::Corrupt): files are missing or damaged; it says where. Nothing was changed: with what is
    ///   missing put back it opens.
    /// - [`FormatUnsupported`](ErrorKind::FormatUnsupported): a newer version has written it (D3).
    /// - [`Misconfigured`](ErrorKind::Misconfigured): the path cannot be a store's: a file, a directory with other
    ///   files in it, not writable.
    /// - [`StorageFull`](ErrorKind::StorageFull), [`Unavailable`](ErrorKind::Unavailable).
    pub async fn open(config: EmbeddedConfig) -> Result<Self> {
        let name = Arc::clone(&config.name);
        let open = async {
            let store = blocking(move || Self::open_engine(config)).await??;
            format::check(&store).await?;
            Ok(store)
        };
        open.await.map_err(|error: Error| error.with_operation("open").with_store(&name))
    }

    fn open_engine(config: EmbeddedConfig) -> Result<Self> {
        let wakeups = Wakeups::new();
        let options = Options {
            cache_bytes: config.cache_bytes,
            memtable_bytes: config.memtable_bytes,
            worker_threads: TABLE_THREADS,
            max_journal_bytes: MAX_JOURNAL_BYTES,
            clock: Arc::clone(&config.clock),
            wakeups: wakeups.clone(),
        };
        let engine = Engine::open(&config.path, &options)?;
        Ok(Self(Arc::new(Inner {
            name: config.name,
            partitions: config.partitions,
            clock: config.clock,
            wakeups,
            queue: engine.queue().clone(),
            gone: engine.gone(),
            torn_bytes: engine.torn_bytes(),
            engine: RwLock::new(Some(Arc::new(engine))),
        })))
    }

    /// How many bytes opening cut off the end of the journal: a write that was under way when the process or the
    /// machine died, of which nobody was told that it was stored. Usually 0.
    #[must_use]
    pub fn torn_bytes(&self) -> u64 {
        self.0.torn_bytes
    }

    /// Makes the disk fail, or work again.
    #[cfg(test)]
    pub(crate) fn fail_commits(&self, fail: bool) {
        let engine = self.0.engine.read().unwrap();
        engine.as_ref().unwrap().fail_commits.store(fail, std::sync::atomic::Ordering::Release);
    }

    pub(crate) fn default_partitions(&self) -> PartitionCount {
        self.0.partitions
    }

    pub(crate) fn wakeups(&self) -> &Wakeups {
        &self.0.wakeups
    }

    pub(crate) fn clock_now(&self) -> Timestamp {
        self.0.clock.now()
    }

    /// Completes an error with what is known here.
    pub(crate) fn describe(&self, operation: &'static str) -> impl Fn(Error) -> Error + '_ {
        move |error| error.with_operation(operation).with_store(&self.0.name)
    }

    /// The durable state as of now.
    ///
    /// Not to be held over an `await`.
    pub(crate) fn reading(&self) -> Result<Reading> {
        let engine = self.0.engine.read().unwrap_or_else(PoisonError::into_inner).as_ref().map(Arc::clone);
        match engine {
            Some(engine) => Ok(Reading { view: engine.view(), _engine: engine }),
            None => Err(Error::not_applied(ErrorKind::Closed)),
        }
    }

    /// Reads a little, in place: what takes no longer than handing it to another thread would.
    pub(crate) fn read<T>(&self, operation: &'static str, act: impl FnOnce(&View) -> Result<T>) -> Result<T> {
        self.reading().and_then(|reading| act(&reading)).map_err(self.describe(operation))
    }

    /// Reads a lot, on a thread that may block.
    pub(crate) async fn scan<T: Send + 'static>(
        &self,
        operation: &'static str,
        act: impl FnOnce(&View) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let scan = async {
            let reading = self.reading()?;
            blocking(move || act(&reading)).await?
        };
        scan.await.map_err(self.describe(operation))
    }

    /// Changes something: in order of arrival, all or nothing, durable when it returns.
    pub(crate) async fn write<T: Send + 'static>(
        &self,
        operation: &'static str,
        bytes: usize,
        act: impl FnOnce(&mut Tx<'_>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let answer = self.0.queue.write(bytes.saturating_add(OPERATION_BYTES), act).await;
        answer.map_err(Error::from).and_then(|outcome| outcome).map_err(self.describe(operation))
    }
}

/// Runs something that blocks, out of the way of the runtime if there is one.
pub(crate) async fn blocking<T: Send + 'static>(act: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    let Ok(runtime) = Handle::try_current() else { return Ok(act()) };
    runtime.spawn_blocking(act).await.map_err(|error| {
        if error.is_panic() {
            Error::internal("a read panicked").with_source(error)
        } else {
            Error::not_applied(ErrorKind::Unavailable { reason: "the runtime is shutting down".to_owned() })
        }
    })
}

#[async_trait]
impl StoreAdmin for EmbeddedStore {
    fn name(&self) -> &Arc<str> {
        &self.0.name
    }

    fn backend(&self) -> &'static str {
        "embedded"
    }

    async fn now(&self) -> Result<Timestamp> {
        self.read("now", |_| Ok(self.clock_now()))
    }

    async fn formats(&self) -> Result<Vec<Format>> {
        self.read("formats", format::stored)
    }

    async fn close(&self) -> Result<()> {
        let engine = self.0.engine.write().unwrap_or_else(PoisonError::into_inner).take();
        let mut gone = self.0.gone.clone();
        if let Some(engine) = engine {
            engine.refuse();
            let wakeups = self.0.wakeups.clone();
            let close = blocking(move || {
                engine.close();
                wakeups.close();
                drop(engine);
            });
            close.await.map_err(self.describe("close"))?;
        }
        // Reads that are under way hold it a little longer; another call may be closing it.
        while gone.changed().await.is_ok() {}
        Ok(())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Nobody will ever wake these watchers again.
        self.wakeups.close();
    }
}

impl fmt::Debug for EmbeddedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedStore").field("name", &self.0.name).finish_non_exhaustive()
    }
}
