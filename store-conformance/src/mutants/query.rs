//! Faults of queries (Q1, Q3).

use std::{future::Future, time::Duration};

use async_trait::async_trait;
use tokio::time::Instant;
use wow_store_api::{
    ErrorKind, Queries, Result,
    query::{AtLeast, EventPage, EventQuery, SnapshotPage, SnapshotQuery},
};

use super::{Mutant, mutants};

mutants! { QueryFault in "query": }

/// Asks as the store does, but waits on the clock of the run: `ask` with no time to wait, until there is an answer or
/// the time that the query gave is over.
async fn patiently<T, F>(within: Option<Duration>, ask: impl Fn() -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    let deadline = within.map(|within| Instant::now() + within);
    loop {
        let answer = ask().await;
        let may_come = deadline.is_some_and(|deadline| Instant::now() < deadline);
        match &answer {
            Err(error) if may_come && *error.kind() == ErrorKind::Timeout => {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            _ => return answer,
        }
    }
}

fn take_wait(at_least: &mut Option<AtLeast>) -> Option<Duration> {
    at_least.as_mut().map(|at_least| std::mem::take(&mut at_least.within))
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Queries for Mutant {
    async fn query_snapshots(&self, mut query: SnapshotQuery) -> Result<SnapshotPage> {
        query.check()?;
        let within = take_wait(&mut query.at_least);
        patiently(within, || self.store().query_snapshots(query.clone())).await
    }

    async fn count_snapshots(&self, mut query: SnapshotQuery) -> Result<u64> {
        query.check()?;
        let within = take_wait(&mut query.at_least);
        patiently(within, || self.store().count_snapshots(query.clone())).await
    }

    async fn query_events(&self, mut query: EventQuery) -> Result<EventPage> {
        query.check()?;
        let within = take_wait(&mut query.at_least);
        patiently(within, || self.store().query_events(query.clone())).await
    }

    async fn count_events(&self, mut query: EventQuery) -> Result<u64> {
        query.check()?;
        let within = take_wait(&mut query.at_least);
        patiently(within, || self.store().count_events(query.clone())).await
    }
}
