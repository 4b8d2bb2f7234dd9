//! Reading: one aggregate, and the whole log.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use cqrs_es::persist::PersistedEventRepository as _;
use futures_util::TryStreamExt as _;
use sqlx::{Connection as _, PgConnection, Row as _};
use wow_store_api::{
    ContextName, EventLog as _, PartitionId, ReadPage, StoreAdmin as _, StoreExt as _, TailRequest,
};

use super::{
    peer::Order,
    read_slice,
    who::{Peer, Store, fresh},
};
use crate::{
    Options,
    load::{Appends, Body, Item, Until, write},
    machine::resident_kib,
    report::{Op, Report, count, table},
    sides::CONTEXT,
    stats::{median, percentile, rate, real},
};

/// Commits of the aggregate that is loaded.
const LONG: u64 = 1_000;
/// Commits in a page of the tail.
const PAGE: usize = 1_000;

/// Loads one aggregate of 1,000 commits, time and again.
pub(crate) async fn load(options: &Options, url: &str, report: &mut Report) -> Result<()> {
    fresh(url).await?;
    let (store, peer) = (Store::open(url, 1, false).await?, Peer::open(url, 10).await?);
    fill(&store).await?;
    fill(&peer).await?;
    let id = store.id("long")?;
    let ours = async || {
        let commits: Vec<_> = store.store.load(&id, 1..).await?.try_collect().await?;
        Ok::<_, anyhow::Error>(commits.len())
    };
    let theirs = async || Ok::<_, anyhow::Error>(peer.0.get_events::<Order>("long").await?.len());
    let (mut our_rates, mut their_rates) = (Vec::new(), Vec::new());
    for _ in 0..options.rounds {
        our_rates.push(repeat(read_slice(options), &ours).await?);
        their_rates.push(repeat(read_slice(options), &theirs).await?);
    }
    println!("\nan aggregate of {LONG} commits, {} rounds", options.rounds);
    println!("{}", rates([("wow-store", &our_rates), ("postgres-es 0.5", &their_rates)]));
    report.goal("postgres-load-vs-postgres-es", ratio(&our_rates, &their_rates), Op::AtLeast, 1.1);
    store.store.close().await?;
    Ok(())
}

async fn fill<S: Appends>(side: &S) -> Result<()> {
    let body = Body::new()?;
    for number in 0..LONG {
        let command = format!("command-{number}");
        let item = Item { id: "long".to_owned(), command, expected: number, body: Arc::clone(&body) };
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

/// Tails a log of a million commits.
pub(crate) async fn tail(options: &Options, url: &str, report: &mut Report) -> Result<()> {
    let commits = if options.quick { 100_000 } else { 1_000_000 };
    fresh(url).await?;
    let store = Arc::new(Store::open(url, 1, false).await?);
    let start = Instant::now();
    write(&store, &Body::new()?, "tail", 1_024, Until::Commits(commits)).await?;
    println!("\n{} commits stored in {:.0} s", count(real(commits)), start.elapsed().as_secs_f64());
    let mut connection = PgConnection::connect(url).await?;
    sqlx::raw_sql("VACUUM ANALYZE").execute(&mut connection).await?;
    let (mut ours, mut theirs, mut growth) = (Vec::new(), Vec::new(), 0.0_f64);
    // The first round of each only warms the server's memory.
    for round in 0..=options.rounds.max(3) {
        let (tailed, grew) = tail_once(&store, commits).await?;
        let scanned = scan_once(&mut connection, commits).await?;
        if round > 0 {
            ours.push(tailed);
            theirs.push(scanned);
            growth = growth.max(grew);
        }
    }
    println!("{}", rates([("wow-store tail", &ours), ("keyset scan by the driver", &theirs)]));
    report.goal("postgres-tail-vs-scan", ratio(&ours, &theirs), Op::AtLeast, 0.9);
    report.goal("postgres-tail-memory-growth-mib", growth, Op::AtMost, 32.0);
    pages(&store, commits, report).await?;
    store.store.close().await?;
    connection.close().await?;
    Ok(())
}

/// Commits per second, and by how many MiB this process grew behind the first tenth.
async fn tail_once(store: &Store, commits: usize) -> Result<(f64, f64)> {
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

/// The same columns of the same table, by keyset, without anything made of them.
async fn scan_once(connection: &mut PgConnection, commits: usize) -> Result<f64> {
    const SCAN: &str = "
        SELECT position, tenant, id, version, command_id, committed_at::text, metadata::text, events::text
        FROM wow.wow_log__shop__order WHERE partition = 0 AND position > $1 ORDER BY position LIMIT 1000";
    let start = Instant::now();
    let (mut after, mut seen, mut bytes) = (0_i64, 0, 0);
    while seen < commits {
        let rows = sqlx::query(SCAN).bind(after).fetch_all(&mut *connection).await?;
        seen += rows.len();
        for row in &rows {
            bytes += row.try_get::<&str, _>(2)?.len() + row.try_get::<&str, _>(7)?.len();
        }
        after = rows.last().context("a page is not empty")?.try_get(0)?;
    }
    ensure!(bytes > commits * 100, "payloads were read");
    Ok(rate(seen, start.elapsed()))
}

/// A page at the beginning and one at the end, in turns.
async fn pages(store: &Store, commits: usize, report: &mut Report) -> Result<()> {
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
    report.goal("postgres-last-page-vs-first", last / first, Op::AtMost, 1.25);
    Ok(())
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
