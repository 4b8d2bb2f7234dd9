//! The wrong store itself, and the places that it lives in.

use std::{
    any::Any,
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
    future::{Future, poll_fn},
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
};

use async_trait::async_trait;
use wow_store_api::{Clock, EventStore, ManualClock, MemoryStore, PartitionId, Position, Result, Timestamp};

use super::Fault;
use crate::harness::{Backend, Place, Settings};

/// Most calls that a case may make: a wrong answer can make a case ask for ever.
const MAX_CALLS: u64 = 50_000;

thread_local! {
    static BESIDE: Cell<i64> = const { Cell::new(0) };
}

/// The clock of the test, or so many milliseconds beside it.
#[derive(Debug)]
struct BesideClock(ManualClock);

impl Clock for BesideClock {
    fn now(&self) -> Timestamp {
        let millis = self.0.now().as_millis().saturating_add(BESIDE.get());
        let bounds = Timestamp::MIN.as_millis()..=Timestamp::MAX.as_millis();
        Timestamp::from_millis(millis.clamp(*bounds.start(), *bounds.end())).expect("clamped")
    }
}

/// Runs operations of the store so many milliseconds beside its clock.
#[allow(dead_code, reason = "there for the faults that need it")]
pub(super) async fn at_another_time<T>(millis: i64, future: impl Future<Output = T> + Send) -> T {
    let mut future = std::pin::pin!(future);
    // The store reads its clock while it is polled, on this thread.
    poll_fn(|cx| {
        let before = BESIDE.replace(millis);
        let poll = Pin::new(&mut future).poll(cx);
        BESIDE.set(before);
        poll
    })
    .await
}

/// Which faults a right store was asked about.
pub(crate) type Consulted = Arc<Mutex<BTreeSet<Fault>>>;

/// What a fault remembers: numbers and anything else, under names of its choice.
#[allow(dead_code, reason = "there for the faults that need it")]
#[derive(Debug, Default)]
pub(super) struct Memory {
    numbers: Mutex<BTreeMap<String, u64>>,
    things: Mutex<BTreeMap<String, Box<dyn Any + Send>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no fault panics while it remembers")
}

#[allow(dead_code, reason = "there for the faults that need it")]
impl Memory {
    /// Counts: 1 at the first call with this name.
    pub(super) fn count(&self, name: impl Into<String>) -> u64 {
        let mut numbers = lock(&self.numbers);
        let number = numbers.entry(name.into()).or_default();
        *number += 1;
        *number
    }

    /// Remembers a thing; returns what was there before.
    pub(super) fn put<T: Send + 'static>(&self, name: impl Into<String>, thing: T) -> Option<T> {
        let before = lock(&self.things).insert(name.into(), Box::new(thing))?;
        before.downcast().ok().map(|thing| *thing)
    }

    /// What was remembered, if it is of this type.
    pub(super) fn get<T: Clone + Send + 'static>(&self, name: &str) -> Option<T> {
        lock(&self.things).get(name)?.downcast_ref().cloned()
    }
}

/// The in-memory store with one fault, or none.
#[derive(Debug)]
pub(crate) struct Mutant {
    fault: Option<Fault>,
    store: MemoryStore,
    spare: MemoryStore,
    place: Arc<Shared>,
    own: Memory,
    reopened: u64,
    second: bool,
}

/// What all handles on one place share.
#[derive(Debug, Default)]
struct Shared {
    memory: Memory,
    calls: AtomicU64,
    opened: AtomicU64,
    consulted: Consulted,
}

#[allow(dead_code, reason = "there for the faults that need it")]
impl Mutant {
    /// Whether this fault is switched on.
    pub(super) fn is(&self, fault: impl Into<Fault>) -> bool {
        let fault = fault.into();
        if self.fault.is_none() {
            lock(&self.place.consulted).insert(fault);
        }
        self.fault == Some(fault)
    }

    /// The same where it makes no difference yet: for what a fault has done before, and what it needs beside.
    pub(super) fn is_fault(&self, fault: impl Into<Fault>) -> bool {
        self.fault == Some(fault.into())
    }

    /// The right store underneath.
    pub(super) fn store(&self) -> &MemoryStore {
        let calls = self.place.calls.fetch_add(1, Ordering::Relaxed);
        assert!(calls < MAX_CALLS, "asked {MAX_CALLS} times: this would never end");
        &self.store
    }

    /// Another right store, empty at first: the wrong place for things to be in. All handles share it.
    pub(super) fn spare(&self) -> &MemoryStore {
        &self.spare
    }

    /// What all handles on this place remember.
    pub(super) fn shared(&self) -> &Memory {
        &self.place.memory
    }

    /// What this handle remembers.
    pub(super) fn own(&self) -> &Memory {
        &self.own
    }

    /// How often the place was opened before this handle: 0 for the first.
    pub(super) fn reopened(&self) -> u64 {
        self.reopened
    }

    /// Whether this handle was opened beside another.
    pub(super) fn is_second(&self) -> bool {
        self.second
    }
}

/// A backend of mutants with one fault, or none.
#[derive(Debug, Clone, Default)]
pub(crate) struct MutantBackend {
    /// What is wrong with its stores.
    pub(crate) fault: Option<Fault>,
    /// Filled with the faults that a right store was asked about.
    pub(crate) consulted: Consulted,
}

#[derive(Debug)]
struct MutantPlace {
    fault: Option<Fault>,
    clock: ManualClock,
    store: MemoryStore,
    spare: MemoryStore,
    shared: Arc<Shared>,
}

#[async_trait]
impl Backend for MutantBackend {
    async fn place(&self, settings: Settings) -> Arc<dyn Place> {
        let clock = ManualClock::new(Timestamp::from_millis(1_800_000_000_000).expect("an instant"));
        let store = || {
            MemoryStore::builder().partitions(settings.partitions).clock(BesideClock(clock.clone())).build()
        };
        Arc::new(MutantPlace {
            fault: self.fault,
            store: store(),
            spare: store(),
            shared: Arc::new(Shared { consulted: Arc::clone(&self.consulted), ..Shared::default() }),
            clock,
        })
    }
}

impl MutantPlace {
    fn handle(&self, second: bool) -> Arc<dyn EventStore> {
        let opened = match second {
            true => self.shared.opened.load(Ordering::Relaxed).saturating_sub(1),
            false => self.shared.opened.fetch_add(1, Ordering::Relaxed),
        };
        Arc::new(Mutant {
            fault: self.fault,
            store: self.store.reopen(),
            spare: self.spare.reopen(),
            place: Arc::clone(&self.shared),
            own: Memory::default(),
            reopened: opened,
            second,
        })
    }
}

#[async_trait]
impl Place for MutantPlace {
    async fn open(&self) -> Result<Arc<dyn EventStore>> {
        Ok(self.handle(false))
    }

    async fn second_handle(&self, _first: &Arc<dyn EventStore>) -> Result<Arc<dyn EventStore>> {
        Ok(self.handle(true))
    }

    fn clock(&self) -> Option<&ManualClock> {
        Some(&self.clock)
    }

    async fn lose_log_after(&self, partition: &PartitionId, after_position: Position) -> bool {
        self.store.lose_log_after(partition, after_position);
        true
    }
}
