//! One page of a partition, merged from the logs of the aggregate types that have commits in it (L5).
//!
//! The counter is read first: it says how far the partition goes and which logs to look into. Whoever sees the counter
//! at p sees every commit up to p afterwards: they were made in one transaction, and all reads here are in one causal
//! order, also across a change of the primary. A hole can then only mean damage.

use std::{collections::BTreeSet, ops::ControlFlow};

use mongodb::bson::{Document, doc};
use wow_store_api::{
    AggregateName, AggregateType, Error, EventName, MAX_COUNTER, Page, PartitionId, Position, ReadPage,
    RecordedCommit,
};

use super::commit;
use crate::{
    db::{Find, Reads, strange},
    document::{Fields as _, int, long},
    fault::Fault,
    names,
    store::Inner,
};

/// How many positions a page looks at for each commit that it may hold, where it filters.
const LOOKED_AT_PER_COMMIT: u64 = 20;
/// The least and the most positions that such a page looks at.
const LOOK_LEAST: u64 = 10_000;
const LOOK_MOST: u64 = 100_000;

/// The counter of a partition.
struct Counter {
    head: Position,
    aggregates: BTreeSet<AggregateName>,
}

impl Inner {
    pub(super) async fn page(&self, page: &ReadPage) -> Result<Page, Fault> {
        let partition = &page.partition;
        let count = self.partitions_if_used(partition.context()).await?;
        let Some(count) = count else { return Ok(Page::empty(page.after_position)) };
        if partition.index() >= count.get() {
            return Err(Fault::from(Error::invalid_input(format!(
                "partition {partition} does not exist: the context has {count}, counted from 0"
            ))));
        }
        if page.after_position >= MAX_COUNTER {
            return Ok(Page::empty(page.after_position));
        }
        let mut reads = self.db.reads().await?;
        let counter = read_counter(&mut reads, partition).await?;
        if counter.head <= page.after_position {
            return Ok(Page::empty(page.after_position));
        }
        let wanted = page.filter.aggregates();
        let types = counter
            .aggregates
            .iter()
            .filter(|name| wanted.is_none_or(|wanted| wanted.contains(*name)))
            .map(|name| AggregateType::from_names(partition.context().clone(), name.clone()))
            .collect::<Result<Vec<_>, _>>()?;
        let mut found = Found { commits: Vec::new(), last: counter.head.min(look_through(page)) };
        for aggregate_type in &types {
            found.add(&mut reads, page, aggregate_type).await?;
        }
        conclude(page, counter.head, found)
    }
}

async fn read_counter(reads: &mut Reads<'_>, partition: &PartitionId) -> Result<Counter, Fault> {
    let filter = doc! { "_id": int(partition.index()) };
    let Some(counter) = reads.find_one(&names::counter(partition.context()), filter).await? else {
        return Ok(Counter { head: 0, aggregates: BTreeSet::new() });
    };
    let mut aggregates = BTreeSet::new();
    if counter.value("aggregates")?.is_some() {
        for name in counter.list("aggregates")? {
            let name = name.ok().and_then(|name| name.as_str()).ok_or_else(strange)?;
            aggregates.insert(AggregateName::new(name)?);
        }
    }
    Ok(Counter { head: counter.counter("position")?, aggregates })
}

/// What was found so far.
struct Found {
    /// With the bytes of their bodies.
    commits: Vec<(RecordedCommit, usize)>,
    /// The last position that is looked at (inclusive): nothing behind it can be in the page.
    last: Position,
}

impl Found {
    /// Reads one log. What is then known to be behind the end of the page is not asked of the next one.
    async fn add(
        &mut self,
        reads: &mut Reads<'_>,
        page: &ReadPage,
        aggregate_type: &AggregateType,
    ) -> Result<(), Fault> {
        let mut filter = between(&page.partition, page.after_position, self.last);
        if let Some(events) = page.filter.events() {
            let names: Vec<&str> = events.iter().map(EventName::as_str).collect();
            filter.insert("events.name", doc! { "$in": names });
        }
        let find = Find::new(filter).sorted(doc! { "_id": 1 }).limited(most_commits(page));
        let (most_bytes, mut bytes) = (page.max_bytes.max(1), 0);
        let mut commits = Vec::new();
        reads
            .each(&names::log(aggregate_type), find, |found| {
                let (commit, size) = commit::read(found, aggregate_type, None)?;
                bytes += size;
                commits.push((commit, size));
                Ok(if bytes < most_bytes { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
            })
            .await?;
        self.commits.append(&mut commits);
        self.commits.sort_by_key(|(commit, _)| commit.position);
        self.cut(page);
        Ok(())
    }

    /// Leaves out what is behind the end of a full page.
    fn cut(&mut self, page: &ReadPage) {
        let mut bytes = 0;
        let full = self.commits.iter().take(most_commits(page)).position(|(_, size)| {
            bytes += size;
            bytes >= page.max_bytes.max(1)
        });
        let kept = full.map_or(most_commits(page), |place| place + 1);
        if kept <= self.commits.len() {
            self.commits.truncate(kept);
            if let Some((last, _)) = self.commits.last() {
                self.last = self.last.min(last.position);
            }
        }
    }
}

/// The commits of a partition with positions from behind `after` to `last` (inclusive).
fn between(partition: &PartitionId, after: Position, last: Position) -> Document {
    let key = |position| doc! { "partition": int(partition.index()), "position": long(position) };
    doc! { "_id": { "$gt": key(after), "$lte": key(last) } }
}

/// More are asked for in vain.
fn most_commits(page: &ReadPage) -> usize {
    page.max_commits.clamp(1, ReadPage::LIMIT_MAX_COMMITS)
}

/// The last position that a page looks at (inclusive). Positions are dense, so without a filter that is as many as the
/// page holds.
fn look_through(page: &ReadPage) -> Position {
    let commits = u64::try_from(most_commits(page)).unwrap_or(u64::MAX);
    let looked_at = match page.filter.is_all() {
        true => commits,
        false => commits.saturating_mul(LOOKED_AT_PER_COMMIT).clamp(LOOK_LEAST, LOOK_MOST),
    };
    page.after_position.saturating_add(looked_at)
}

/// How far the page goes, and that nothing is missing in it.
fn conclude(page: &ReadPage, head: Position, found: Found) -> Result<Page, Fault> {
    let after = page.after_position;
    let through = found.last;
    let mut commits: Vec<RecordedCommit> = found.commits.into_iter().map(|(commit, _)| commit).collect();
    if !page.filter.is_all() {
        return Ok(Page { commits, through, more: through < head });
    }
    // Nothing was left out, so the positions have to be dense.
    let dense =
        (after + 1..).zip(&commits).take_while(|(position, commit)| *position == commit.position).count();
    commits.truncate(dense);
    let reached = commits.last().map_or(after, |commit| commit.position);
    if reached < through && dense == 0 {
        return Err(Fault::from(Error::corrupt(
            format!("{}, position {}", page.partition, after + 1),
            "the counter is at or behind it, but no commit has it",
        )));
    }
    // What comes before a hole is delivered; the next page starts at the hole and says so.
    Ok(Page { commits, through: reached, more: reached < head })
}
