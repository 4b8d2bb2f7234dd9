//! The store in memory: the contract in its plainest form, the executable specification that the other backends are
//! compared with. Linearizable: every operation happens under one lock. It keeps nothing after the process ends (L4
//! cannot be had), and everything else of the contract.

mod log;
mod query;
mod records;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::{
    RecordedCommit,
    checkpoint::Checkpoint,
    error::{Error, ErrorKind, Result},
    lease::{Lease, Member},
    ledger::{Discarded, Failure},
    log::{Position, Version},
    name::{
        AggregateId, CommandId, ContextName, MemberId, ReservationKey, ReservationScope, SubscriptionName,
        TimerId,
    },
    partition::{PartitionCount, PartitionId},
    reservation::Reservation,
    snapshot::Snapshot,
    time::{Clock, SystemClock, Timestamp},
    timer::Timer,
    wakeup::Wakeups,
};

/// A store in memory. Clones and [`MemoryStore::reopen`] share what is stored.
#[derive(Clone)]
pub struct MemoryStore {
    name: Arc<str>,
    partitions: PartitionCount,
    place: Arc<Place>,
    wakeups: Wakeups,
    closed: Arc<AtomicBool>,
}

/// What handles share.
struct Place {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    /// The hubs of all handles in use: a commit through one wakes the tails of all.
    hubs: Mutex<Vec<Wakeups>>,
}

#[derive(Default)]
struct State {
    /// The partitions of each context, each a list of commits; the commit at index i has position i + 1.
    logs: BTreeMap<ContextName, Vec<Vec<RecordedCommit>>>,
    streams: BTreeMap<AggregateId, Stream>,
    checkpoints: BTreeMap<(SubscriptionName, PartitionId), Checkpoint>,
    leases: BTreeMap<(SubscriptionName, PartitionId), Lease>,
    members: BTreeMap<(SubscriptionName, MemberId), Member>,
    snapshots: BTreeMap<AggregateId, Snapshot>,
    failures: BTreeMap<(SubscriptionName, AggregateId), Failure>,
    discarded: Vec<Discarded>,
    reservations: BTreeMap<(ReservationScope, ReservationKey), Reservation>,
    timers: BTreeMap<(ContextName, TimerId), Timer>,
}

/// One aggregate.
#[derive(Default)]
struct Stream {
    /// The position of each version; version v stands at index v - 1.
    positions: Vec<Position>,
    commands: HashMap<CommandId, Version>,
}

/// How to make a [`MemoryStore`].
#[derive(Debug)]
pub struct MemoryStoreBuilder {
    name: Arc<str>,
    partitions: PartitionCount,
    clock: Arc<dyn Clock>,
}

impl MemoryStoreBuilder {
    /// The name that errors and logs show; `memory` unless set.
    #[must_use]
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = name.into();
        self
    }

    /// How many partitions a context gets when it is first used; [`PartitionCount::DEFAULT`] unless set.
    #[must_use]
    pub fn partitions(mut self, partitions: PartitionCount) -> Self {
        self.partitions = partitions;
        self
    }

    /// The clock; the machine's unless set.
    #[must_use]
    pub fn clock(mut self, clock: impl Clock + 'static) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// The store.
    #[must_use]
    pub fn build(self) -> MemoryStore {
        let place = Place { clock: self.clock, state: Mutex::default(), hubs: Mutex::default() };
        MemoryStore::open(self.name, self.partitions, Arc::new(place))
    }
}

impl MemoryStore {
    /// An empty store with the machine's clock and the default number of partitions.
    #[must_use]
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// An empty store with other settings.
    #[must_use]
    pub fn builder() -> MemoryStoreBuilder {
        MemoryStoreBuilder {
            name: Arc::from("memory"),
            partitions: PartitionCount::DEFAULT,
            clock: Arc::new(SystemClock),
        }
    }

    /// Another handle on what this one stores, also after this one was closed.
    #[must_use]
    pub fn reopen(&self) -> Self {
        Self::open(Arc::clone(&self.name), self.partitions, Arc::clone(&self.place))
    }

    /// Takes the log of a partition back to this position and leaves everything else as it is, as when the log alone was
    /// restored from a backup that is older than the rest: for tests of what happens then (S3).
    pub fn lose_log_after(&self, partition: &PartitionId, after_position: Position) {
        self.lock().lose_log_after(partition, after_position);
    }

    fn open(name: Arc<str>, partitions: PartitionCount, place: Arc<Place>) -> Self {
        let wakeups = Wakeups::new();
        {
            let mut hubs = place.hubs.lock().unwrap_or_else(PoisonError::into_inner);
            hubs.retain(|hub| !hub.is_forgotten());
            hubs.push(wakeups.clone());
        }
        Self { name, partitions, place, wakeups, closed: Arc::default() }
    }

    /// Does one operation: everything under the one lock, with one reading of the clock.
    fn with<T>(
        &self,
        operation: &'static str,
        act: impl FnOnce(&mut State, Timestamp) -> Result<T>,
    ) -> Result<T> {
        let mut state = self.lock();
        // Under the lock: nothing changes any more once `close` has returned.
        if self.closed.load(Ordering::SeqCst) {
            return Err(Error::not_applied(ErrorKind::Closed)
                .with_operation(operation)
                .with_store(&self.name));
        }
        let now = self.place.clock.now();
        act(&mut state, now).map_err(|error| error.with_operation(operation).with_store(&self.name))
    }

    /// A panic under the lock can only come from a bug before anything was changed: changes are plain insertions.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.place.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn notify(&self, partitions: impl IntoIterator<Item = PartitionId>) {
        let hubs = self.place.hubs.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for partition in partitions {
            for hub in &hubs {
                hub.notify(partition.context(), partition.index());
            }
        }
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").field("name", &self.name).finish_non_exhaustive()
    }
}
