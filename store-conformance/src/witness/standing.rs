//! Who waits for what, for whoever asks why nothing moves.

use std::{
    collections::BTreeMap,
    fmt::{self, Write as _},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use wow_store_api::{CheckedCommit, Error, EventStore, Receipt, Result};

/// How many of those who wait at one store are told of.
const SHOWN: usize = 20;

/// How things stand at each store.
#[derive(Debug, Default)]
pub(super) struct Standing(Mutex<Vec<AtStore>>);

/// How things stand at one store.
#[derive(Debug)]
struct AtStore {
    /// Where its handle is: two nodes may have one name.
    address: usize,
    acknowledged: usize,
    /// How many were told something else, and the last of that.
    failed: usize,
    last: Option<(Instant, Error)>,
    waiting: BTreeMap<usize, Waiting>,
    next: usize,
}

#[derive(Debug)]
struct Waiting {
    since: Instant,
    what: String,
}

/// One append that is under way. Forgotten when it is dropped.
#[derive(Debug)]
pub(super) struct UnderWay<'a> {
    standing: &'a Standing,
    address: usize,
    number: usize,
}

impl Standing {
    fn stores(&self) -> MutexGuard<'_, Vec<AtStore>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Somebody asks a store to append.
    pub(super) fn begin(&self, store: &Arc<dyn EventStore>, commits: &[CheckedCommit]) -> UnderWay<'_> {
        let address = Arc::as_ptr(store).cast::<()>().addr();
        let what: Vec<String> = commits
            .iter()
            .map(|commit| {
                let riders = if commit.reservations().is_empty() { "" } else { " with a key" };
                format!("{} {}{riders}", commit.aggregate_id(), commit.command_id())
            })
            .collect();
        let mut stores = self.stores();
        let at = at(&mut stores, address);
        let number = at.next;
        at.next += 1;
        at.waiting.insert(number, Waiting { since: Instant::now(), what: what.join(", ") });
        UnderWay { standing: self, address, number }
    }
}

fn at(stores: &mut Vec<AtStore>, address: usize) -> &mut AtStore {
    let place = stores.iter().position(|it| it.address == address).unwrap_or_else(|| {
        let waiting = BTreeMap::new();
        stores.push(AtStore { address, acknowledged: 0, failed: 0, last: None, waiting, next: 0 });
        stores.len() - 1
    });
    &mut stores[place]
}

impl UnderWay<'_> {
    /// It was answered.
    pub(super) fn end(self, answer: &Result<Vec<Receipt>>) {
        let mut stores = self.standing.stores();
        let at = at(&mut stores, self.address);
        match answer {
            Ok(_) => at.acknowledged += 1,
            Err(error) => {
                at.failed += 1;
                at.last = Some((Instant::now(), error.clone()));
            }
        }
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        at(&mut self.standing.stores(), self.address).waiting.remove(&self.number);
    }
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        for (number, at) in self.stores().iter().enumerate() {
            let AtStore { acknowledged, failed, last, waiting, .. } = at;
            writeln!(text, "store {number}: {acknowledged} appends acknowledged, {failed} not")?;
            if let Some((when, error)) = last {
                writeln!(text, "  the last {:?} ago: {error:?}", when.elapsed())?;
            }
            for Waiting { since, what } in waiting.values().take(SHOWN) {
                writeln!(text, "  waiting for {:?}: {what}", since.elapsed())?;
            }
            if waiting.len() > SHOWN {
                writeln!(text, "  and {} more are waiting", waiting.len() - SHOWN)?;
            }
        }
        f.write_str(&text)
    }
}
