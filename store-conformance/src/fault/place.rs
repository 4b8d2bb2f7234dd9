//! Places in which every store is wrapped.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use async_trait::async_trait;
use wow_store_api::{EventStore, ManualClock, PartitionId, Position, Result};

use super::{Faults, Faulty};
use crate::harness::{Backend, Exception, Place, Settings};

/// A backend whose stores are wrapped.
pub(crate) struct FaultyBackend {
    backend: Arc<dyn Backend>,
    faults: Faults,
}

impl FaultyBackend {
    pub(crate) fn new(backend: Arc<dyn Backend>, faults: Faults) -> Self {
        Self { backend, faults }
    }
}

#[derive(Debug)]
struct FaultyPlace {
    place: Arc<dyn Place>,
    faults: Faults,
    /// What the store that was opened last wraps.
    opened: Mutex<Option<Weak<dyn EventStore>>>,
}

#[async_trait]
impl Backend for FaultyBackend {
    async fn place(&self, settings: Settings) -> Arc<dyn Place> {
        let place = self.backend.place(settings).await;
        Arc::new(FaultyPlace { place, faults: self.faults, opened: Mutex::default() })
    }

    fn exceptions(&self) -> &'static [Exception] {
        self.backend.exceptions()
    }
}

#[async_trait]
impl Place for FaultyPlace {
    async fn open(&self) -> Result<Arc<dyn EventStore>> {
        let store = self.place.open().await?;
        *self.opened.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::downgrade(&store));
        Ok(Arc::new(Faulty::new(store, self.faults)))
    }

    async fn second_handle(&self, _first: &Arc<dyn EventStore>) -> Result<Arc<dyn EventStore>> {
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let first = opened.and_then(|store| store.upgrade()).expect("a second handle needs a first");
        let second = self.place.second_handle(&first).await?;
        Ok(Arc::new(Faulty::new(second, self.faults)))
    }

    fn clock(&self) -> Option<&ManualClock> {
        self.place.clock()
    }

    async fn lose_log_after(&self, partition: &PartitionId, after_position: Position) -> bool {
        self.place.lose_log_after(partition, after_position).await
    }
}
