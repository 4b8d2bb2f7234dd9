//! Whether a store with a million commits is as fast as one with ten thousand.

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use futures_util::TryStreamExt as _;
use wow_store_api::{AggregateId, ContextName, StoreExt as _, TailRequest};

use crate::{
    Options,
    embedded::{WRITERS, memory},
    load::{Appends as _, Body, Item, Side as _, Until, Written, write},
    report::{Op, Report, count, table},
    sides::{CONTEXT, store::Store},
    stats::{median, rate},
};

const SMALL: usize = 10_000;
const LARGE: usize = 1_000_000;
const LARGE_IF_QUICK: usize = 100_000;
/// Commits of the aggregate that is loaded. Between every two of them lie as many others as fit.
const LOADED: usize = 1_000;
const LOADED_ID: &str = "loaded";

/// Appends of one window, and windows of a round. A store of ten thousand commits does not stay one for longer.
const WINDOW: usize = 20_000;
const WINDOWS: usize = 5;

/// One figure of both stores, round by round.
#[derive(Default)]
struct Rates {
    small: Vec<f64>,
    large: Vec<f64>,
}

impl Rates {
    fn ratio(&self) -> f64 {
        median(self.small.iter().zip(&self.large).map(|(small, large)| large / small).collect())
    }

    fn row(&self, name: &str) -> [String; 3] {
        let shown = |rates: &[f64]| count(median(rates.to_vec()));
        [name.to_owned(), shown(&self.small), shown(&self.large)]
    }
}

pub(crate) async fn run(options: &Options, scratch: &Path, report: &mut Report) -> Result<()> {
    let commits = if options.quick { LARGE_IF_QUICK } else { LARGE };
    let body = Body::new()?;
    println!("\n{} and {} commits, {} rounds", count_of(SMALL), count_of(commits), options.rounds);
    let directory = scratch.join("large");
    let written = fill(&directory, &body, commits).await?;
    println!(
        "{} commits written by {WRITERS} at {} commits/s",
        count_of(commits),
        count(written.per_second())
    );
    memory::measure(&directory, report)?;

    let small_directory = scratch.join("small");
    fill(&small_directory, &body, SMALL).await?;
    let small = Store::open(&small_directory).await?;
    let large = Store::open(&directory).await?;
    let (mut loads, mut tails, mut appends) = (Rates::default(), Rates::default(), Rates::default());
    for _ in 0..options.rounds {
        loads.small.push(load(&small, options.slice() / 2).await?);
        loads.large.push(load(&large, options.slice() / 2).await?);
        tails.small.push(tail(&small, SMALL, options.slice() / 2).await?);
        tails.large.push(tail(&large, commits, Duration::ZERO).await?);
    }
    small.close().await?;
    let large = Arc::new(large);
    for round in 0..options.rounds {
        let (small, large) = append(&large, scratch, &body, round).await?;
        appends.small.push(small);
        appends.large.push(large);
    }
    Arc::into_inner(large).context("a writer still runs")?.close().await?;

    let (small, large) = (format!("at {}", count_of(SMALL)), format!("at {}", count_of(commits)));
    let rows = [
        loads.row(&format!("load of {LOADED} commits, commits/s")),
        tails.row("tail from the beginning, commits/s"),
        appends.row(&format!("append by {WRITERS} writers, commits/s")),
    ];
    println!("{}", table(["", &small, &large], rows));
    report.goal("embedded-load-commits-per-s", median(loads.large.clone()), Op::Above, 400_000.0);
    report.goal("embedded-load-large-vs-small", loads.ratio(), Op::AtLeast, 0.8);
    report.goal("embedded-tail-large-vs-small", tails.ratio(), Op::AtLeast, 0.8);
    report.goal("embedded-append-large-vs-small", appends.ratio(), Op::AtLeast, 0.8);
    Ok(())
}

fn count_of(commits: usize) -> String {
    count(crate::stats::real(commits))
}

/// Makes a store with so many commits, those of the aggregate to be loaded spread evenly among them.
async fn fill(directory: &Path, body: &Arc<Body>, commits: usize) -> Result<Written> {
    let store = Arc::new(Store::open(directory).await?);
    let others = (commits / LOADED).saturating_sub(1);
    let mut written = Written::default();
    for number in 0..LOADED {
        let tag = format!("fill-{number}");
        let chunk = write(&store, body, &tag, WRITERS, Until::Commits(others)).await?;
        written.commits += chunk.commits;
        written.elapsed += chunk.elapsed;
        let item = Item {
            id: LOADED_ID.to_owned(),
            command: format!("command-{number}"),
            expected: u64::try_from(number)?,
            body: Arc::clone(body),
        };
        store.append(item).await?;
    }
    Arc::into_inner(store).context("a writer still runs")?.close().await?;
    Ok(written)
}

/// Loads the aggregate again and again.
async fn load(store: &Store, at_least: Duration) -> Result<f64> {
    let id: AggregateId = store.id(LOADED_ID)?;
    let (start, mut commits) = (Instant::now(), 0);
    while start.elapsed() < at_least {
        let mut loaded = store.store.load(&id, ..).await?;
        let mut version = 0;
        while let Some(commit) = loaded.try_next().await? {
            version += 1;
            ensure!(commit.version == version, "version {} follows {}", commit.version, version - 1);
        }
        ensure!(version == u64::try_from(LOADED)?, "{version} commits where there are {LOADED}");
        commits += LOADED;
    }
    Ok(rate(commits, start.elapsed()))
}

/// Tails the whole log, again and again.
async fn tail(store: &Store, expected: usize, at_least: Duration) -> Result<f64> {
    let shared = Arc::clone(&store.store);
    let (start, mut commits) = (Instant::now(), 0);
    loop {
        let mut tail = shared.tail(TailRequest::new(ContextName::new(CONTEXT)?)).await?;
        let mut seen = 0;
        while let Some(batch) = tail.try_next().await? {
            seen += batch.commits.len();
        }
        ensure!(seen == expected, "the tail saw {seen} commits of {expected}");
        commits += seen;
        if start.elapsed() >= at_least {
            return Ok(rate(commits, start.elapsed()));
        }
    }
}

/// Appends to the large store and to small ones, in turns of one window. Sums, not medians: a pause of the large one
/// counts.
async fn append(large: &Arc<Store>, scratch: &Path, body: &Arc<Body>, round: usize) -> Result<(f64, f64)> {
    let (mut of_small, mut of_large) = (Duration::ZERO, Duration::ZERO);
    for window in 0..WINDOWS {
        let directory = tempfile::tempdir_in(scratch)?;
        let small = Arc::new(Store::open(&directory.path().join("store")).await?);
        write(&small, body, "fill", WRITERS, Until::Commits(SMALL)).await?;
        of_small += write(&small, body, "window", WRITERS, Until::Commits(WINDOW)).await?.elapsed;
        Arc::into_inner(small).context("a writer still runs")?.close().await?;
        directory.close()?;
        let tag = format!("window-{round}-{window}");
        of_large += write(large, body, &tag, WRITERS, Until::Commits(WINDOW)).await?.elapsed;
    }
    Ok((rate(WINDOW * WINDOWS, of_small), rate(WINDOW * WINDOWS, of_large)))
}
