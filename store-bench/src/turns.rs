//! Any number of sides that take turns on one server.

use std::{
    future::Future,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Result;
use tokio::task::JoinSet;

use crate::{
    Options,
    duel::rows,
    load::{Appends, Body, Until, Written, write},
    stats::median,
};

/// How long a turn warms up, as a part of the turn.
const WARM_UP: u32 = 4;

/// One side.
pub(crate) trait Contender: Copy + Send + Sync {
    /// As it is called in the tables.
    fn name(self) -> String;

    /// Lets it write for a while, where nothing else is.
    fn turn(
        self,
        url: &str,
        writers: usize,
        body: &Arc<Body>,
        time: Duration,
    ) -> impl Future<Output = Result<Written>> + Send;
}

/// Warms up, and measures.
pub(crate) async fn measure<S: Appends>(
    side: S,
    writers: usize,
    body: &Arc<Body>,
    time: Duration,
) -> Result<Written> {
    let side = Arc::new(side);
    write(&side, body, "warm", writers, Until::Elapsed(time / WARM_UP)).await?;
    write(&side, body, "turn", writers, Until::Elapsed(time)).await
}

/// Something that stores rows in the bare, many at a time.
pub(crate) trait Bulk: Send + 'static {
    type Batch: Send;

    /// Rows that are stored together. Making them is not measured.
    fn batch(&self, rows: usize) -> Result<Self::Batch>;

    fn insert(&mut self, batch: Self::Batch) -> impl Future<Output = Result<()>> + Send;
}

/// Lets all of them store one batch after the other for a while: warms up, and measures.
pub(crate) async fn batches<B: Bulk>(mut bulks: Vec<B>, rows: usize, time: Duration) -> Result<Written> {
    let mut written = Written::default();
    for time in [time / WARM_UP, time] {
        let mut tasks = JoinSet::new();
        let start = Instant::now();
        for mut bulk in bulks.drain(..) {
            tasks.spawn(async move {
                let mut latencies = Vec::new();
                while start.elapsed() < time {
                    let batch = bulk.batch(rows)?;
                    let asked = Instant::now();
                    bulk.insert(batch).await?;
                    latencies.push(asked.elapsed());
                }
                Ok::<_, anyhow::Error>((bulk, latencies))
            });
        }
        let mut latencies = Vec::new();
        while let Some(task) = tasks.join_next().await {
            let (bulk, mut of_it) = task??;
            bulks.push(bulk);
            latencies.append(&mut of_it);
        }
        written = Written::of(latencies.len() * rows, start.elapsed(), latencies);
    }
    Ok(written)
}

/// What several sides did, round by round.
#[derive(Debug)]
pub(crate) struct Turns(Vec<Vec<Written>>);

impl Turns {
    /// Lets all write, in turns on one server. Who begins changes from round to round.
    pub(crate) async fn run<S: Contender>(
        options: &Options,
        url: &str,
        title: &str,
        sides: &[(S, usize)],
    ) -> Result<Self> {
        println!("\n{title}, {} rounds", options.rounds);
        let body = Body::new()?;
        let mut all: Vec<Vec<Written>> = vec![Vec::new(); sides.len()];
        for round in 0..options.rounds {
            for step in 0..sides.len() {
                let place = (round + step) % sides.len();
                if let (Some((who, writers)), Some(written)) = (sides.get(place), all.get_mut(place)) {
                    written.push(who.turn(url, *writers, &body, options.slice()).await?);
                }
            }
        }
        let names: Vec<String> = sides.iter().map(|(who, _)| who.name()).collect();
        println!("{}", rows(names.iter().map(String::as_str).zip(all.iter().map(Vec::as_slice))));
        Ok(Self(all))
    }

    /// The median of one figure over another side's, within each round.
    pub(crate) fn ratio(&self, ours: usize, theirs: usize, figure: fn(&Written) -> f64) -> f64 {
        let of = |side: usize| self.0.get(side).map(Vec::as_slice).unwrap_or_default();
        let rounds = of(ours).iter().zip(of(theirs));
        median(rounds.map(|(ours, theirs)| figure(ours) / figure(theirs).max(f64::MIN_POSITIVE)).collect())
    }

    pub(crate) fn over(&self, ours: usize, theirs: usize) -> f64 {
        self.ratio(ours, theirs, Written::per_second)
    }

    /// Over the better one of others.
    pub(crate) fn over_better(&self, ours: usize, others: &[usize]) -> f64 {
        others.iter().map(|theirs| self.over(ours, *theirs)).fold(f64::INFINITY, f64::min)
    }
}
