//! Concurrent histories: many clients do random things at once, every call is recorded with its begin, its end and what
//! it was told, and afterwards all of it must fit together and fit what is stored.
//!
//! What is checked:
//!
//! - Every acknowledged append is in the log exactly as its receipt says, each command once; what was refused is not
//!   there; what is unknown is there once or not at all; commits that belong together are there together.
//! - An append that was acknowledged before another was begun has the lower version and position. Versions and
//!   positions are dense.
//! - Nobody who reads (head, load, heads, read, tail) sees anything that is not in the log in the end, or goes back.
//! - Nothing is written under an epoch that was overtaken before it was begun.
//! - Leases, reservations and timers answer as one client alone could have been answered, in some order of the calls
//!   that keeps begin and end: no two owners, no epoch twice.
//! - What rides in a commit is there if and only if the commit is.
//!
//! The same random choices are made in every run, those of one seed (`WOW_STORE_SEED` sets another); the order of
//! things is up to the machine.

mod check;
mod client;
mod counter;
mod linear;
mod objects;
mod record;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    fmt, iter,
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::{StreamExt as _, TryStreamExt as _, future::join_all};
use wow_store_api::{
    EventStore, ListReservations, PartitionCount, PartitionId, Position, ReadPage, StoreExt as _,
};

use self::{
    check::Truth,
    client::{Client, follow},
    record::Recorder,
};
use crate::{
    env::soon,
    fault::{Faults, Faulty},
    harness::{Backend, Place, Settings},
    run::contained,
    seed::{Seed, VARIABLE},
};

/// How many partitions there are: so few that aggregates share them.
const PARTITIONS: u32 = 3;

/// Most commits that are read at once: more than any history has.
const MAX_COMMITS: usize = 10_000;

/// How often a shorter history is tried before it counts as right.
const TRIES: u32 = 3;

/// Most histories that are made to find a shorter one.
const SHRINKS: u32 = 200;

/// How long a shorter history is looked for.
const SHRINKING: Duration = Duration::from_secs(60);

/// How many problems of a history are told.
const SHOWN: usize = 12;

/// What a history is like.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    /// How many clients there are at once.
    pub(crate) clients: usize,
    /// How many things each does.
    pub(crate) things: u32,
    /// How many handles they share.
    pub(crate) handles: usize,
    /// How many of a hundred calls go wrong in each way.
    pub(crate) faults: u8,
}

impl Plan {
    /// Shorter histories, the shortest first.
    fn shorter(self) -> Vec<Self> {
        let clients = (1..self.clients).map(|clients| Self { clients, ..self });
        let halves = iter::successors(Some(self.things / 2), |things| Some(things / 2));
        let mut halves: Vec<_> = halves.take_while(|things| *things > 0).collect();
        halves.reverse();
        halves.push(self.things.saturating_sub(1));
        let things = halves.into_iter().filter(|things| (1..self.things).contains(things));
        things.map(|things| Self { things, ..self }).chain(clients).collect()
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { clients, things, handles, faults } = self;
        write!(
            f,
            "clients: {clients}, things that each does: {things}, handles: {handles}, faults: {faults} %"
        )
    }
}

/// Makes one history and checks it. One that is wrong is made shorter, with the same seed, as long as it is wrong.
///
/// # Errors
/// The seed, and what is wrong.
pub(crate) async fn check(plan: Plan, backend: &Arc<dyn Backend>, seed: Seed) -> Result<(), String> {
    let Err(why) = once(plan, backend, seed).await else { return Ok(()) };
    let (mut plan, mut why, mut made, started) = (plan, why, 0, Instant::now());
    // What rests on the order of things does not go wrong every time.
    'shrink: loop {
        for shorter in plan.shorter() {
            for _ in 0..TRIES {
                made += 1;
                if made > SHRINKS || started.elapsed() > SHRINKING {
                    break 'shrink;
                }
                if let Err(wrong) = once(shorter, backend, seed).await {
                    (plan, why) = (shorter, wrong);
                    continue 'shrink;
                }
            }
        }
        break;
    }
    Err(format!("seed {seed} ({VARIABLE} to run it again), {plan}:\n  {why}"))
}

/// Makes one history and checks it.
///
/// # Errors
/// What is wrong.
pub(crate) async fn once(plan: Plan, backend: &Arc<dyn Backend>, seed: Seed) -> Result<(), String> {
    let partitions = PartitionCount::new(PARTITIONS).expect("a valid count");
    let place = backend.place(Settings { partitions }).await;
    contained(async move {
        let mut problems = history(plan, place, seed).await;
        if problems.is_empty() {
            return Ok(());
        }
        let more = problems.split_off(problems.len().min(SHOWN)).len();
        if more > 0 {
            problems.push(format!("and {more} more"));
        }
        Err(problems.join("\n  "))
    })
    .await
}

async fn history(plan: Plan, place: Arc<dyn Place>, seed: Seed) -> Vec<String> {
    let first = place.open().await.expect("a fresh place opens");
    let mut bare = vec![Arc::clone(&first)];
    while bare.len() < plan.handles {
        bare.push(place.second_handle(&first).await.expect("a second handle"));
    }
    drop(first);
    let handles: Vec<Arc<dyn EventStore>> = match plan.faults {
        0 => bare.clone(),
        percent => (2..)
            .zip(&bare)
            .map(|(part, store)| -> Arc<dyn EventStore> {
                Arc::new(Faulty::new(Arc::clone(store), Faults::everywhere(seed.part(part), percent)))
            })
            .collect(),
    };
    let recorder = Arc::new(Recorder::default());
    let (stop, until) = tokio::sync::watch::channel(None);
    let followers: Vec<_> = (plan.clients..)
        .zip(&handles)
        .map(|(number, store)| follow(number, Arc::clone(store), Arc::clone(&recorder), until.clone()))
        .map(tokio::spawn)
        .collect();
    let clients: Vec<_> = (0..plan.clients)
        .map(|number| {
            let store = Arc::clone(&handles[number % handles.len()]);
            tokio::spawn(Client::new(number, store, Arc::clone(&recorder), seed).run(plan.things))
        })
        .collect();
    finished(clients).await;
    // Whatever wake-ups were lost: who follows gets to where the log is now.
    let heads: Vec<Position> = bare[0].heads(&client::shop()).await.expect("heads");
    stop.send_replace(Some(heads));
    soon("those who follow the log get to its end", finished(followers)).await;
    drop(handles);
    for store in bare.drain(..) {
        store.close().await.expect("the store closes");
    }
    let store = place.open().await.expect("the place opens again");
    check::check(&recorder.calls(), &truth(&store).await)
}

async fn finished(tasks: Vec<tokio::task::JoinHandle<()>>) {
    for task in join_all(tasks).await {
        if let Err(error) = task {
            std::panic::resume_unwind(error.into_panic());
        }
    }
}

/// What is stored in the end.
async fn truth(store: &Arc<dyn EventStore>) -> Truth {
    let shop = client::shop();
    let mut partitions = Vec::new();
    for index in 0..PARTITIONS {
        let read = ReadPage::new(PartitionId::new(shop.clone(), index), 0).with_max_commits(MAX_COMMITS);
        partitions.push(store.read(read.with_max_bytes(usize::MAX)).await.expect("a page").commits);
    }
    let mut aggregates = BTreeMap::new();
    for id in client::aggregates() {
        let commits: Vec<_> = store
            .load(&id, ..)
            .await
            .expect("a stream")
            .take(MAX_COMMITS)
            .try_collect()
            .await
            .expect("commits");
        if !commits.is_empty() {
            aggregates.insert(id, commits);
        }
    }
    let keys = ListReservations { scope: Some(client::riding()), ..ListReservations::default() };
    let keys = store.reservations(keys).await.expect("reservations");
    let timers = store.timers(&shop, None, 10_000).await.expect("timers");
    Truth {
        partitions,
        heads: store.heads(&shop).await.expect("heads"),
        aggregates,
        keys: keys.into_iter().map(|held| (held.key, held.owner)).collect(),
        timers: timers.into_iter().map(|timer| timer.id).collect(),
    }
}
