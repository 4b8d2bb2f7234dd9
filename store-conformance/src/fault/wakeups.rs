//! Wake-ups that get lost and are made up for.

use std::{
    collections::{BTreeMap, BTreeSet},
    pin::pin,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use futures_util::future::{Either, select};
use tokio::{
    task::AbortHandle,
    time::{Instant, sleep_until},
};
use wow_store_api::{Changed, ContextName, Result, Wakeups, Watcher};

use crate::seed::Dice;

/// The poll interval: how late a wake-up may come.
const LATEST: Duration = Duration::from_millis(20);

/// A hub of its own, told by one task per context.
#[derive(Debug)]
pub(super) struct FaultyWakeups {
    hub: Wakeups,
    lost: u8,
    dice: Mutex<Dice>,
    tellers: Mutex<BTreeMap<ContextName, AbortHandle>>,
}

impl FaultyWakeups {
    pub(super) fn new(lost: u8, dice: Dice) -> Self {
        Self { hub: Wakeups::new(), lost, dice: Mutex::new(dice), tellers: Mutex::default() }
    }

    /// A watcher of this hub. `inner` was made by the wrapped store for the same context just now; the first one of
    /// a context is what all are told by.
    pub(super) fn watch(&self, context: &ContextName, inner: Watcher) -> Result<Watcher> {
        let watcher = self.hub.watch(context)?;
        let mut tellers = self.tellers.lock().unwrap_or_else(PoisonError::into_inner);
        if !tellers.contains_key(context) {
            let number = self.dice.lock().unwrap_or_else(PoisonError::into_inner).next();
            let dice = Dice::new(crate::seed::Seed::of(number));
            let tell = tell(inner, self.hub.clone(), context.clone(), self.lost, dice);
            tellers.insert(context.clone(), tokio::spawn(tell).abort_handle());
        }
        Ok(watcher)
    }

    pub(super) fn close(&self) {
        self.hub.close();
    }
}

impl Drop for FaultyWakeups {
    fn drop(&mut self) {
        let tellers = self.tellers.get_mut().unwrap_or_else(PoisonError::into_inner);
        tellers.values().for_each(AbortHandle::abort);
        // Nobody would ever tell the watchers that are left.
        self.hub.close();
    }
}

/// Passes wake-ups on until the store is closed; what got lost is told at the next poll.
async fn tell(mut inner: Watcher, hub: Wakeups, context: ContextName, lost: u8, mut dice: Dice) {
    let mut owed: Option<(Instant, Changed)> = None;
    loop {
        let changed = match owed.take() {
            None => inner.changed().await,
            Some((at, late)) => match select(pin!(inner.changed()), pin!(sleep_until(at))).await {
                Either::Left((changed, _)) => {
                    owed = Some((at, late));
                    changed
                }
                Either::Right(_) => {
                    pass_on(&hub, &context, &late);
                    continue;
                }
            },
        };
        match changed {
            Ok(changed) if dice.percent(lost) => owed = Some(with(owed, changed)),
            Ok(changed) => pass_on(&hub, &context, &changed),
            Err(_) => return hub.close(),
        }
    }
}

/// What is owed, with more; no later than the first of it.
fn with(owed: Option<(Instant, Changed)>, more: Changed) -> (Instant, Changed) {
    match (owed, more) {
        (None, more) => (Instant::now() + LATEST, more),
        (Some((at, Changed::Partitions(mut these))), Changed::Partitions(those)) => {
            these.extend(those);
            (at, Changed::Partitions(these))
        }
        (Some((at, Changed::All)), _) | (Some((at, _)), Changed::All) => (at, Changed::All),
    }
}

fn pass_on(hub: &Wakeups, context: &ContextName, changed: &Changed) {
    match changed {
        Changed::Partitions(partitions) => tell_each(hub, context, partitions),
        Changed::All => hub.notify_all(),
    }
}

fn tell_each(hub: &Wakeups, context: &ContextName, partitions: &BTreeSet<u32>) {
    for partition in partitions {
        hub.notify(context, *partition);
    }
}
