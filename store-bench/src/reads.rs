//! Reading: one aggregate, and the whole log.
#![allow(clippy::future_not_send, reason = "these are awaited where they are made")]

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use futures_util::TryStreamExt as _;
use wow_store_api::{ContextName, EventStore, PartitionId, ReadPage, StoreExt as _, TailRequest};

use crate::{
    Options,
    load::{Appends, Body, Item, Until, write},
    machine::resident_kib,
    report::{count, table},
    sides::{CONTEXT, node::Node},
    stats::{median, percentile, rate, real},
};

/// Commits of the aggregate that is loaded.
const LONG: u64 = 1_000;
/// The aggregate that is loaded.
pub(crate) const LONG_ID: &str = "long";
/// Commits in a page of the tail.
const PAGE: usize = 1_000;

/// Loads one aggregate of 1,000 commits, time and again: how much faster than another side, which says how many it
/// read.
pub(crate) async fn load<S: EventStore, P: Appends>(
    options: &Options,
    store: &Node<S>,
    (name, peer): (&str, &P),
    theirs: &impl AsyncFn() -> Result<usize>,
) -> Result<f64> {
    fill(store).await?;
    fill(peer).await?;
    let id = store.id(LONG_ID)?;
    let ours = async || {
        let commits: Vec<_> = store.store.load(&id, 1..).await?.try_collect().await?;
        Ok::<_, anyhow::Error>(commits.len())
    };
    let (mut our_rates, mut their_rates) = (Vec::new(), Vec::new());
    for _ in 0..options.rounds {
        our_rates.push(repeat(options.slice() / 2, &ours).await?);
        their_rates.push(repeat(options.slice() / 2, theirs).await?);
    }
    println!("\nan aggregate of {LONG} commits, {} rounds", options.rounds);
    println!("{}", rates([("wow-store", &our_rates), (name, &their_rates)]));
    Ok(ratio(&our_rates, &their_rates))
}

async fn fill<S: Appends>(side: &S) -> Result<()> {
    let body = Body::new()?;
    for number in 0..LONG {
        let command = format!("command-{number}");
        let item = Item { id: LONG_ID.to_owned(), command, expected: number, body: Arc::clone(&body) };
        side.append(item).await?;
    }
    Ok(())
}

/// Commits per second.
async fn repeat(time: Duration, read: &impl AsyncFn() -> Result<usize>) -> Result<f64> {
    ensure!(u64::try_from(read().await?)? == LONG, "all commits are read");
    let (start, mut commits) = (Instant::now(), 0);
    while start.elapsed() < time {
        commits += read().await?;
    }
    Ok(rate(commits, start.elapsed()))
}

/// What came out of tailing a long log.
#[derive(Debug)]
pub(crate) struct Tailed {
    /// How much faster than a scan by the driver.
    pub(crate) vs_scan: f64,
    /// By how many MiB this process grew at most.
    pub(crate) growth: f64,
    /// How much longer the last page takes than the first.
    pub(crate) last_vs_first: f64,
}

/// Tails a log of a million commits in one partition. `scan` reads as many in the bare.
pub(crate) async fn tail<S: EventStore>(
    options: &Options,
    store: Node<S>,
    settle: impl AsyncFnOnce() -> Result<()>,
    scan: impl AsyncFn(usize) -> Result<()>,
) -> Result<Tailed> {
    let commits = if options.quick { 100_000 } else { 1_000_000 };
    let store = Arc::new(store);
    let start = Instant::now();
    write(&store, &Body::new()?, "tail", 1_024, Until::Commits(commits)).await?;
    println!("\n{} commits stored in {:.0} s", count(real(commits)), start.elapsed().as_secs_f64());
    settle().await?;
    let (mut ours, mut theirs, mut growth) = (Vec::new(), Vec::new(), 0.0_f64);
    // The first round of each only warms the server's memory.
    for round in 0..=options.rounds.max(3) {
        let (tailed, grew) = tail_once(&store, commits).await?;
        let start = Instant::now();
        scan(commits).await?;
        let scanned = rate(commits, start.elapsed());
        if round > 0 {
            ours.push(tailed);
            theirs.push(scanned);
            growth = growth.max(grew);
        }
    }
    println!("{}", rates([("wow-store tail", &ours), ("keyset scan by the driver", &theirs)]));
    let last_vs_first = pages(&store, commits).await?;
    Ok(Tailed { vs_scan: ratio(&ours, &theirs), growth, last_vs_first })
}

/// Commits per second, and by how many MiB this process grew behind the first tenth.
async fn tail_once<S: EventStore>(store: &Node<S>, commits: usize) -> Result<(f64, f64)> {
    let request = TailRequest::new(ContextName::new(CONTEXT)?).with_max_commits(PAGE);
    let start = Instant::now();
    let mut tail = store.store.tail(request).await?;
    let (mut seen, mut bytes, mut least, mut most) = (0, 0, u64::MAX, 0);
    while seen < commits {
        let batch = tail.next().await?;
        seen += batch.commits.len();
        for commit in &batch.commits {
            bytes += commit.events.iter().map(|event| event.body.as_json().len()).sum::<usize>();
        }
        if seen > commits / 10 {
            let now = resident_kib().unwrap_or_default();
            (least, most) = (least.min(now), most.max(now));
        }
    }
    ensure!(bytes > commits * 100, "payloads were read");
    let grew = real(usize::try_from(most.saturating_sub(least))?) / 1024.0;
    Ok((rate(seen, start.elapsed()), grew))
}

/// A page at the beginning and one at the end, in turns.
async fn pages<S: EventStore>(store: &Node<S>, commits: usize) -> Result<f64> {
    const TIMES: usize = 60;
    let last = u64::try_from(commits - PAGE)?;
    let (mut first_page, mut last_page) = (Vec::new(), Vec::new());
    for _ in 0..TIMES {
        for (after, times) in [(0, &mut first_page), (last, &mut last_page)] {
            let partition = PartitionId::new(ContextName::new(CONTEXT)?, 0);
            let start = Instant::now();
            let page = store.store.read(ReadPage::new(partition, after).with_max_commits(PAGE)).await?;
            times.push(start.elapsed());
            ensure!(page.commits.len() == PAGE, "a whole page");
        }
    }
    first_page.sort_unstable();
    last_page.sort_unstable();
    let (first, last) = (percentile(&first_page, 0.5), percentile(&last_page, 0.5));
    println!("first page {first:.0} µs, last page {last:.0} µs");
    Ok(last / first)
}

fn ratio(ours: &[f64], theirs: &[f64]) -> f64 {
    median(ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect())
}

fn rates<'a, const N: usize>(sides: [(&'a str, &'a Vec<f64>); N]) -> comfy_table::Table {
    let row = |(name, rates): (&str, &Vec<f64>)| {
        let rounds: Vec<_> = rates.iter().map(|rate| count(*rate)).collect();
        [name.to_owned(), count(median(rates.clone())), rounds.join(" ")]
    };
    table(["", "commits/s", "by round"], sides.into_iter().map(row))
}
