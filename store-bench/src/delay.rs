//! From the acknowledgement of an append on one node to the handler on another.
#![allow(clippy::future_not_send, reason = "these are awaited where they are made")]

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use tokio::time::{MissedTickBehavior, interval, timeout};
use wow_store_api::{ContextName, EventStore, StoreExt as _, TailRequest};

use crate::{
    Options,
    load::{Appends as _, Body, Item},
    sides::{CONTEXT, node::Node},
    stats::{median, percentile},
};

/// One append every so often.
const EVERY: Duration = Duration::from_millis(5);
const PATIENCE: Duration = Duration::from_secs(10);

/// The medians over the rounds of p50 and p99, in milliseconds, with push; and shows the same without. `fresh` empties the
/// place, `node` opens a node there that pushes or not and polls that often.
pub(crate) async fn measure<S: EventStore>(
    options: &Options,
    fresh: impl AsyncFn() -> Result<()>,
    node: impl AsyncFn(bool, Duration) -> Result<Node<S>>,
) -> Result<(f64, f64)> {
    let nodes = async |push: bool, poll: Duration| {
        fresh().await?;
        Ok::<_, anyhow::Error>((node(push, poll).await?, node(push, poll).await?))
    };
    let (mut p50s, mut p99s) = (Vec::new(), Vec::new());
    println!(
        "\nacknowledged on one node to handled on another, 200 appends a second, {} rounds",
        options.rounds
    );
    let count = if options.quick { 200 } else { 2_000 };
    for _ in 0..options.rounds {
        let delays = delays(nodes(true, Duration::from_secs(1)).await?, count).await?;
        p50s.push(percentile(&delays, 0.5) / 1e3);
        p99s.push(percentile(&delays, 0.99) / 1e3);
    }
    let shown = |all: &[f64]| all.iter().map(|ms| format!("{ms:.2}")).collect::<Vec<_>>().join(" ");
    println!("p50 {} ms; p99 {} ms", shown(&p50s), shown(&p99s));

    // Without push nothing is missed.
    let count = if options.quick { 200 } else { 500 };
    let delays = delays(nodes(false, Duration::from_millis(100)).await?, count).await?;
    println!(
        "without push, polling every 100 ms: all delivered, p50 {:.0} ms, p99 {:.0} ms",
        percentile(&delays, 0.5) / 1e3,
        percentile(&delays, 0.99) / 1e3
    );
    Ok((median(p50s), median(p99s)))
}

/// The delays of so many appends, sorted. All of them are delivered, in order.
async fn delays<S: EventStore>((writer, reader): (Node<S>, Node<S>), count: usize) -> Result<Vec<Duration>> {
    let mut tail = reader.store.tail(TailRequest::new(ContextName::new(CONTEXT)?)).await?;
    let acknowledged: Arc<Mutex<BTreeMap<String, Instant>>> = Arc::default();
    let body = Body::new()?;
    let warm = 20;
    let writes = {
        let (acknowledged, body) = (Arc::clone(&acknowledged), Arc::clone(&body));
        tokio::spawn(async move {
            let mut ticks = interval(EVERY);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            for number in 0..count + warm {
                ticks.tick().await;
                let (id, command) = (format!("order-{number}"), format!("command-{number}"));
                let item = Item { id, command: command.clone(), expected: 0, body: Arc::clone(&body) };
                writer.append(item).await?;
                let now = Instant::now();
                acknowledged.lock().unwrap_or_else(PoisonError::into_inner).insert(command, now);
            }
            writer.store.close().await?;
            Ok::<_, anyhow::Error>(())
        })
    };
    let mut handled: BTreeMap<String, Instant> = BTreeMap::new();
    while handled.len() < count + warm {
        let batch = timeout(PATIENCE, tail.next()).await.context("a commit never came")??;
        let now = Instant::now();
        for commit in batch.commits {
            let twice = handled.insert(commit.command_id.to_string(), now);
            ensure!(twice.is_none(), "{} came twice", commit.command_id);
        }
    }
    writes.await??;
    reader.store.close().await?;
    let acknowledged = acknowledged.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let mut delays = Vec::new();
    for number in warm..count + warm {
        let command = format!("command-{number}");
        let (Some(asked), Some(seen)) = (acknowledged.get(&command), handled.get(&command)) else { continue };
        delays.push(seen.saturating_duration_since(*asked));
    }
    delays.sort_unstable();
    Ok(delays)
}
