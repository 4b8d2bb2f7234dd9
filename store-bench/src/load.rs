//! What is written, and by whom: the same for every side.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::Result;
use rust_decimal::{Decimal, dec};
use serde::Serialize;
use tokio::task::JoinSet;
use wow_store_api::{Event, Payload};

use crate::{
    machine::processor_time,
    stats::{percentile, rate, real},
};

/// Commits of one aggregate before a writer goes on with a new one.
const COMMITS_PER_AGGREGATE: u64 = 10;
/// Size of a body, about.
const BODY_BYTES: usize = 400;

/// The body of an event. Its numbers are exact.
#[derive(Serialize)]
struct OrderPlaced {
    order: u64,
    customer: String,
    #[serde(with = "wow_store_api::payload::decimal")]
    total: Decimal,
    note: String,
}

/// An event body in the form of each side. Made once: what serialising costs is nobody's difference.
#[derive(Debug)]
pub(crate) struct Body {
    pub(crate) event: Event,
    pub(crate) json: String,
    pub(crate) value: serde_json::Value,
}

/// The name of the event.
pub(crate) const EVENT: &str = "OrderPlaced";

impl Body {
    pub(crate) fn new() -> Result<Arc<Self>> {
        let mut order = OrderPlaced {
            order: 4711,
            customer: "customer-000042".to_owned(),
            total: dec!(1234.90),
            note: String::new(),
        };
        // Letters that a compressor cannot make little of.
        let mut state = 1_u64;
        while serde_json::to_string(&order)?.len() < BODY_BYTES {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            order.note.push(char::from_digit(u32::try_from((state >> 33) % 36)?, 36).unwrap_or('x'));
        }
        let payload = Payload::from_serialize(&order)?;
        let json = payload.as_json().to_owned();
        let value = serde_json::from_str(&json)?;
        Ok(Arc::new(Self { event: Event::new(EVENT, 1, payload)?, json, value }))
    }
}

/// One commit to be appended.
#[derive(Debug)]
pub(crate) struct Item {
    /// The aggregate.
    pub(crate) id: String,
    /// The command.
    pub(crate) command: String,
    /// The version that the aggregate is at.
    pub(crate) expected: u64,
    pub(crate) body: Arc<Body>,
}

/// Something that appends durably.
pub(crate) trait Appends: Send + Sync + 'static {
    /// Appends; it is durable when this returns.
    fn append(&self, item: Item) -> impl Future<Output = Result<()>> + Send;
}

/// One that lives in a directory.
pub(crate) trait Side: Appends + Sized {
    /// As it is called in the tables.
    const NAME: &'static str;

    /// Opens a new one in an empty directory.
    fn open(directory: &std::path::Path) -> impl Future<Output = Result<Self>> + Send;

    /// Closes it; everything that it did in the background has ended.
    fn close(self) -> impl Future<Output = Result<()>> + Send;
}

/// When writers stop.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Until {
    Elapsed(Duration),
    /// After so many commits in all.
    Commits(usize),
}

/// What came out of a while of writing.
#[derive(Debug, Clone, Default)]
pub(crate) struct Written {
    pub(crate) commits: usize,
    pub(crate) elapsed: Duration,
    /// Processor time of the whole process, callers included.
    processor: Option<Duration>,
    /// Sorted.
    latencies: Vec<Duration>,
}

impl Written {
    /// What was written in other ways than by [`write`].
    pub(crate) fn of(commits: usize, elapsed: Duration, mut latencies: Vec<Duration>) -> Self {
        latencies.sort_unstable();
        Self { commits, elapsed, processor: None, latencies }
    }

    pub(crate) fn per_second(&self) -> f64 {
        rate(self.commits, self.elapsed)
    }

    /// Processor time of one commit in microseconds: what a busy machine changes least. 0 if it is not known.
    pub(crate) fn processor_micros(&self) -> f64 {
        self.processor.map_or(0.0, |time| time.as_secs_f64() * 1e6 / real(self.commits).max(1.0))
    }

    pub(crate) fn p50(&self) -> f64 {
        percentile(&self.latencies, 0.5)
    }

    pub(crate) fn p99(&self) -> f64 {
        percentile(&self.latencies, 0.99)
    }
}

/// So many writers at once, each of which appends as soon as its last append is durable. `tag` keeps their aggregates
/// apart from others.
pub(crate) async fn write<S: Appends>(
    side: &Arc<S>,
    body: &Arc<Body>,
    tag: &str,
    writers: usize,
    until: Until,
) -> Result<Written> {
    let taken = Arc::new(AtomicUsize::new(0));
    let mut tasks = JoinSet::new();
    let (start, used_before) = (Instant::now(), processor_time());
    for writer in 0..writers {
        let (side, body, taken, tag) =
            (Arc::clone(side), Arc::clone(body), Arc::clone(&taken), tag.to_owned());
        tasks.spawn(async move {
            let mut latencies = Vec::new();
            let mut number = 0_u64;
            loop {
                let goes_on = match until {
                    Until::Elapsed(limit) => start.elapsed() < limit,
                    Until::Commits(limit) => taken.fetch_add(1, Ordering::Relaxed) < limit,
                };
                if !goes_on {
                    return Ok::<_, anyhow::Error>(latencies);
                }
                let item = Item {
                    id: format!("{tag}-{writer}-{}", number / COMMITS_PER_AGGREGATE),
                    command: format!("command-{number}"),
                    expected: number % COMMITS_PER_AGGREGATE,
                    body: Arc::clone(&body),
                };
                let asked = Instant::now();
                side.append(item).await?;
                latencies.push(asked.elapsed());
                number += 1;
            }
        });
    }
    let mut latencies = Vec::new();
    while let Some(writer) = tasks.join_next().await {
        latencies.append(&mut writer??);
    }
    let elapsed = start.elapsed();
    let processor = processor_time().zip(used_before).map(|(after, before)| after.saturating_sub(before));
    latencies.sort_unstable();
    Ok(Written { commits: latencies.len(), elapsed, processor, latencies })
}
