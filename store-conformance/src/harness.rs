//! How a backend is put under the suite.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use wow_store_api::{EventStore, ManualClock, PartitionCount, PartitionId, Position, Result};

/// What a case asks of its place.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// How many partitions a context gets.
    pub partitions: PartitionCount,
}

/// A backend: a factory of places.
#[async_trait]
pub trait Backend: Send + Sync + 'static {
    /// A fresh, empty place that shares nothing with any other: a directory, a schema, a database. What it takes is
    /// given back when the last handle on it is dropped. Never a place that is wiped and used again.
    async fn place(&self, settings: Settings) -> Arc<dyn Place>;

    /// Whether places are so cheap that every case is run once more through the [fault wrapper](crate::Faulty) with no
    /// faults, which must make no difference. Worth it for stores in the same process.
    fn is_in_process(&self) -> bool {
        false
    }

    /// The tests that this backend does not pass by design, each with the reason.
    fn exceptions(&self) -> &'static [Exception] {
        &[]
    }
}

/// The short form: a function that makes places.
#[async_trait]
impl<F> Backend for F
where
    F: Fn(Settings) -> Arc<dyn Place> + Send + Sync + 'static,
{
    async fn place(&self, settings: Settings) -> Arc<dyn Place> {
        self(settings)
    }
}

/// Where a store keeps what it stores.
#[async_trait]
pub trait Place: Send + Sync + fmt::Debug {
    /// Opens the store. Called again after the store was closed, it must find everything that was stored.
    ///
    /// # Errors
    /// What the store refuses to open with.
    async fn open(&self) -> Result<Arc<dyn EventStore>>;

    /// Another handle while `first` is open, as another node has it: opens the place once more. Where the place
    /// belongs to one process, this is to give what another part of the process has: the same store.
    ///
    /// # Errors
    /// What the store refuses to open with.
    async fn second_handle(&self, _first: &Arc<dyn EventStore>) -> Result<Arc<dyn EventStore>> {
        self.open().await
    }

    /// The store's clock, where it can be set.
    fn clock(&self) -> Option<&ManualClock> {
        None
    }

    /// Takes the log of a partition back to this position and leaves everything else as it is, as when the log alone
    /// was restored from a backup that is older than the rest. No handle is open meanwhile. Says whether it can: a
    /// place that cannot lists the cases that need it as [exceptions](Backend::exceptions).
    async fn lose_log_after(&self, _partition: &PartitionId, _after_position: Position) -> bool {
        false
    }
}

/// A test that a backend does not pass by design.
#[derive(Debug, Clone, Copy)]
pub struct Exception {
    /// The name of the case, or of another test of the suite.
    pub case: &'static str,
    /// Why it cannot.
    pub reason: &'static str,
}
