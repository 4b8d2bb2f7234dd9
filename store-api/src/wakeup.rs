//! Wake-ups: how a store tells its tails that there may be something new (T3, T4).
//!
//! A store owns one [`Wakeups`] and calls it after each commit that it makes or hears of. A [`Watcher`] remembers what
//! it was told until it is asked, so a notification between two looks is never lost: *watch first, then read, then
//! wait*.
//!
//! No timer lives here. A store whose notifications can get lost (a dropped connection) polls its heads and calls
//! [`Wakeups::notify`] for what moved; in a single process nothing gets lost.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    future::poll_fn,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    task::{Poll, Waker},
};

use crate::{
    error::{Error, ErrorKind, Result},
    name::ContextName,
};

/// What a watcher was told since it last asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Changed {
    /// These partitions (by index) may have new commits.
    Partitions(BTreeSet<u32>),
    /// Any partition may have new commits.
    All,
}

impl Changed {
    /// Whether this partition may have new commits.
    #[must_use]
    pub fn contains(&self, partition: u32) -> bool {
        match self {
            Self::Partitions(partitions) => partitions.contains(&partition),
            Self::All => true,
        }
    }

    fn merge(&mut self, other: Self) {
        match (&mut *self, other) {
            (Self::Partitions(mine), Self::Partitions(theirs)) => mine.extend(theirs),
            (Self::All, _) => {}
            (Self::Partitions(_), Self::All) => *self = Self::All,
        }
    }
}

#[derive(Default)]
struct Slot {
    changed: Option<Changed>,
    waker: Option<Waker>,
    closed: bool,
}

/// A lock is only ever held for a few assignments, none of which can leave a slot half-changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn tell(slot: &Mutex<Slot>, changed: Option<Changed>, close: bool) {
    let waker = {
        let mut slot = lock(slot);
        if let Some(changed) = changed {
            match &mut slot.changed {
                Some(told) => told.merge(changed),
                none => *none = Some(changed),
            }
        }
        slot.closed |= close;
        slot.waker.take()
    };
    if let Some(waker) = waker {
        waker.wake();
    }
}

#[derive(Default)]
struct Hub {
    watchers: BTreeMap<ContextName, Vec<Weak<Mutex<Slot>>>>,
    closed: bool,
}

impl Hub {
    fn slots(&self) -> Vec<Arc<Mutex<Slot>>> {
        self.watchers.values().flatten().filter_map(Weak::upgrade).collect()
    }
}

/// The hub that a store owns. Clones are the same hub.
#[derive(Clone, Default)]
pub struct Wakeups(Arc<Mutex<Hub>>);

impl Wakeups {
    /// A hub without watchers.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A watcher of this context, told of everything from now on.
    ///
    /// # Errors
    /// [`ErrorKind::Closed`] after [`Wakeups::close`].
    pub fn watch(&self, context: &ContextName) -> Result<Watcher> {
        let mut hub = lock(&self.0);
        if hub.closed {
            return Err(Error::not_applied(ErrorKind::Closed));
        }
        let slot = Arc::new(Mutex::new(Slot::default()));
        let slots = hub.watchers.entry(context.clone()).or_default();
        slots.retain(|slot| slot.strong_count() > 0);
        slots.push(Arc::downgrade(&slot));
        Ok(Watcher { slot })
    }

    /// This partition may have new commits.
    pub fn notify(&self, context: &ContextName, partition: u32) {
        for slot in self.slots_of(context) {
            tell(&slot, Some(Changed::Partitions(BTreeSet::from([partition]))), false);
        }
    }

    /// Any partition of any context may have new commits, e.g. after a lost connection came back.
    pub fn notify_all(&self) {
        for slot in self.all_slots() {
            tell(&slot, Some(Changed::All), false);
        }
    }

    /// The contexts that somebody watches: what a poll has to look at.
    #[must_use]
    pub fn watched(&self) -> Vec<ContextName> {
        let mut hub = lock(&self.0);
        hub.watchers.retain(|_, slots| {
            slots.retain(|slot| slot.strong_count() > 0);
            !slots.is_empty()
        });
        hub.watchers.keys().cloned().collect()
    }

    /// Ends all watchers with [`ErrorKind::Closed`]; no new ones are given.
    pub fn close(&self) {
        // Under one lock, so that no watcher is given out in between, which nobody would ever tell.
        let slots = {
            let mut hub = lock(&self.0);
            hub.closed = true;
            hub.slots()
        };
        for slot in slots {
            tell(&slot, None, true);
        }
    }

    /// Whether nothing can come of it any more: it is closed, or this is the last clone and nobody watches.
    pub(crate) fn is_forgotten(&self) -> bool {
        let hub = lock(&self.0);
        hub.closed || Arc::strong_count(&self.0) == 1 && hub.slots().is_empty()
    }

    fn slots_of(&self, context: &ContextName) -> Vec<Arc<Mutex<Slot>>> {
        lock(&self.0).watchers.get(context).into_iter().flatten().filter_map(Weak::upgrade).collect()
    }

    fn all_slots(&self) -> Vec<Arc<Mutex<Slot>>> {
        lock(&self.0).slots()
    }
}

impl fmt::Debug for Wakeups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wakeups").finish_non_exhaustive()
    }
}

/// Waits for new commits of one context. Remembers at most one mark per partition, however much happens.
pub struct Watcher {
    slot: Arc<Mutex<Slot>>,
}

impl Watcher {
    /// Waits until it was told of something, and takes it. Returns at once if it was told since the last call.
    ///
    /// Cancel-safe: nothing is taken unless it is returned.
    ///
    /// # Errors
    /// [`ErrorKind::Closed`] once the store is closed and everything told was taken.
    ///
    /// ```
    /// # futures::executor::block_on(async {
    /// # use wow_store_api::{ContextName, Wakeups};
    /// let (wakeups, shop) = (Wakeups::new(), ContextName::new("shop")?);
    /// let mut watcher = wakeups.watch(&shop)?;
    /// wakeups.notify(&shop, 3);
    /// wakeups.notify(&shop, 3);
    /// let changed = watcher.changed().await?;
    /// assert!(changed.contains(3) && !changed.contains(4), "once, however often it was told");
    /// # Ok::<_, wow_store_api::Error>(()) }).unwrap();
    /// ```
    pub async fn changed(&mut self) -> Result<Changed> {
        poll_fn(|cx| {
            let mut slot = lock(&self.slot);
            if let Some(changed) = slot.changed.take() {
                return Poll::Ready(Ok(changed));
            }
            if slot.closed {
                return Poll::Ready(Err(Error::not_applied(ErrorKind::Closed)));
            }
            match &mut slot.waker {
                Some(waker) => waker.clone_from(cx.waker()),
                none => *none = Some(cx.waker().clone()),
            }
            Poll::Pending
        })
        .await
    }
}

impl fmt::Debug for Watcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watcher").field("changed", &lock(&self.slot).changed).finish_non_exhaustive()
    }
}
