//! One page of a partition, merged from the tables of the context's aggregate types (L5).
//!
//! One statement reads the counter, how many types are registered, and the commits, all as of one moment. Positions are
//! handed out under the counter's lock, which is held until the commit, so whoever sees the counter at p sees every
//! commit up to p. A hole can then only mean a type that this node has not heard of, or damage.

use std::collections::BTreeSet;

use sqlx::postgres::PgRow;
use wow_store_api::{
    AggregateId, AggregateName, AggregateType, Error, EventName, Page, PartitionId, Position, ReadPage,
    RecordedCommit,
};

use super::load::commit;
use crate::{
    fault::Fault,
    macros::args,
    names,
    pool::{Conn, Sql},
    store::Inner,
    value::{Cells as _, bigint, integer},
};

/// How many positions a page looks at for each commit that it may hold, where events are filtered.
const LOOKED_AT_PER_COMMIT: u64 = 20;
/// The least and the most positions that such a page looks at.
const LOOK_LEAST: u64 = 10_000;
const LOOK_MOST: u64 = 100_000;

/// What a statement found.
struct Found {
    head: Position,
    /// How many types are registered.
    registered: u64,
    commits: Vec<RecordedCommit>,
    bytes: u64,
}

impl Inner {
    pub(super) async fn page(&self, conn: &mut Conn, page: &ReadPage) -> Result<Page, Fault> {
        let partition = &page.partition;
        let count = self.partitions_if_used(conn, partition.context()).await?;
        let Some(count) = count else { return Ok(Page::empty(page.after_position)) };
        if partition.index() >= count.get() {
            return Err(Fault::from(Error::invalid_input(format!(
                "partition {partition} does not exist: the context has {count}, counted from 0"
            ))));
        }
        if page.after_position >= wow_store_api::MAX_COUNTER {
            return Ok(Page::empty(page.after_position));
        }
        let mut types = self.types_of(conn, partition.context()).await?;
        let mut fresh = false;
        loop {
            let found = self.find(conn, page, &types).await?;
            let complete = found.registered == u64::try_from(types.len()).unwrap_or(u64::MAX);
            if complete {
                return conclude(page, found);
            }
            if fresh {
                // Registered in the very moment between the two statements: try again from the start.
                return Err(Fault::overtaken());
            }
            types = self.refresh_types(conn, partition.context()).await?;
            fresh = true;
        }
    }

    async fn find(
        &self,
        conn: &mut Conn,
        page: &ReadPage,
        known: &BTreeSet<AggregateName>,
    ) -> Result<Found, Fault> {
        let context = page.partition.context();
        let wanted = page.filter.aggregates();
        let types: Vec<AggregateType> = known
            .iter()
            .filter(|name| wanted.is_none_or(|wanted| wanted.contains(*name)))
            .map(|name| AggregateType::from_names(context.clone(), name.clone()))
            .collect::<Result<_, _>>()?;
        let sql = self.page_sql(page, &types);
        let events: Option<Vec<&str>> =
            page.filter.events().map(|names| names.iter().map(EventName::as_str).collect());
        let arguments = args![
            integer(page.partition.index()),
            bigint(page.after_position),
            i64::try_from(most_commits(page)).unwrap_or(i64::MAX),
            i64::try_from(page.max_bytes.max(1)).unwrap_or(i64::MAX),
            context.as_str(),
            bigint(look_through(page)),
            events,
        ];
        let mut found = Found { head: 0, registered: 0, commits: Vec::new(), bytes: 0 };
        let make = |row: PgRow| {
            let place = row.cell::<i32>(0)?;
            if place < 0 {
                (found.head, found.registered) = (row.counter(1)?, row.counter(2)?);
                return Ok(None);
            }
            let aggregate_type = usize::try_from(place).ok().and_then(|place| types.get(place));
            let aggregate_type =
                aggregate_type.ok_or_else(|| Fault::from(Error::internal("an unknown type")))?;
            found.bytes = found.bytes.saturating_add(u64::try_from(row.cell::<i32>(3)?).unwrap_or(0));
            read(&row, aggregate_type).map(Some)
        };
        let commits = conn.each(&sql, arguments, make).await?;
        found.commits = commits.into_iter().flatten().collect();
        // The statement asks for this order; nothing here rests on the plan.
        found.commits.sort_by_key(|commit| commit.position);
        Ok(found)
    }

    /// `place, position, version, size, tenant, id, command_id, partition, position, committed_at, metadata, events`;
    /// the first row has place -1, the counter and the number of types.
    fn page_sql(&self, page: &ReadPage, types: &[AggregateType]) -> Sql {
        let counter = self.schema.at(&names::counter(page.partition.context()));
        let registry = self.schema.at(names::LOG_AGGREGATE);
        let meta = format!(
            "SELECT -1 AS place, c.position, (SELECT pg_catalog.count(*) FROM {registry} AS r WHERE r.context = $5) AS version, \
                    0 AS size, '' AS tenant, '' AS id, '' AS command_id, 0 AS partition, 0::bigint AS at, \
                    c.committed_at, NULL::text AS metadata, NULL::text AS events \
             FROM {counter} AS c WHERE c.partition = $1"
        );
        // Every parameter is mentioned, whatever is asked for: the statement always has the same ones.
        let unused = "($3::bigint IS NULL OR $4::bigint IS NULL OR $6::bigint IS NULL OR $7::text[] IS NULL)";
        if types.is_empty() {
            return Sql::from(format!("{meta} AND ({unused} OR true) AND $2::bigint IS NOT NULL"));
        }
        let filter = match page.filter.events() {
            Some(_) => {
                " AND EXISTS (SELECT 1 FROM pg_catalog.json_array_elements(l.events) AS e \
                              WHERE e.value ->> 'name' = ANY($7))"
            }
            None => "",
        };
        let tables: Vec<String> = types
            .iter()
            .enumerate()
            .map(|(place, aggregate_type)| {
                format!(
                    "SELECT {place} AS place, l.position, l.version, l.size, l.tenant, l.id, l.command_id, \
                            l.partition, l.committed_at, l.metadata, l.events FROM {} AS l \
                     WHERE l.partition = $1 AND l.position > $2 AND l.position <= $6{filter}",
                    self.schema.at(&names::log(aggregate_type))
                )
            })
            .collect();
        Sql::from(format!(
            "{meta} AND ($7::text[] IS NULL OR true) \
             UNION ALL \
             (SELECT b.place, b.position, b.version, b.size, b.tenant, b.id, b.command_id, b.partition, b.position, \
                     b.committed_at, b.metadata::text, b.events::text \
              FROM (SELECT a.*, sum(a.size) OVER (ORDER BY a.position ROWS UNBOUNDED PRECEDING) - a.size AS before \
                    FROM (SELECT * FROM ({}) AS u ORDER BY u.position LIMIT $3) AS a) AS b \
              WHERE b.before < $4 ORDER BY b.position)",
            tables.join(" UNION ALL ")
        ))
    }
}

/// More are asked for in vain.
fn most_commits(page: &ReadPage) -> usize {
    page.max_commits.clamp(1, ReadPage::LIMIT_MAX_COMMITS)
}

/// The last position that a page looks at (inclusive).
fn look_through(page: &ReadPage) -> Position {
    let looked_at = match page.filter.events() {
        Some(_) => {
            let commits = u64::try_from(most_commits(page)).unwrap_or(u64::MAX);
            commits.saturating_mul(LOOKED_AT_PER_COMMIT).clamp(LOOK_LEAST, LOOK_MOST)
        }
        None => u64::MAX,
    };
    page.after_position.saturating_add(looked_at)
}

fn read(row: &PgRow, aggregate_type: &AggregateType) -> Result<RecordedCommit, Fault> {
    let id = AggregateId::of(aggregate_type.clone(), row.cell::<&str>(5)?)?;
    let id = match row.cell::<&str>(4)? {
        "" => id,
        tenant => id.with_tenant(tenant)?,
    };
    commit(row, 6, id, row.counter(2)?)
}

/// How far the page goes, and that nothing is missing in it.
fn conclude(page: &ReadPage, found: Found) -> Result<Page, Fault> {
    let after = page.after_position;
    let Found { head, mut commits, bytes, .. } = found;
    let last = commits.last().map_or(after, |commit| commit.position);
    let max_bytes = u64::try_from(page.max_bytes.max(1)).unwrap_or(u64::MAX);
    let full = commits.len() >= most_commits(page) || bytes >= max_bytes;
    if !page.filter.is_all() {
        let through = if full { last } else { head.min(look_through(page)).max(after) };
        return Ok(Page { commits, through, more: through < head });
    }
    // Nothing was left out, so the positions have to be dense.
    let dense =
        (after + 1..).zip(&commits).take_while(|(position, commit)| *position == commit.position).count();
    let whole = dense == commits.len() && (full || last >= head);
    if !whole && dense == 0 {
        return Err(missing(&page.partition, after + 1));
    }
    // What comes before a hole is delivered; the next page starts at the hole and says so.
    commits.truncate(dense);
    let through = commits.last().map_or(after, |commit| commit.position);
    Ok(Page { commits, through, more: through < head })
}

fn missing(partition: &PartitionId, position: Position) -> Fault {
    Fault::from(Error::corrupt(
        format!("{partition}, position {position}"),
        "the counter is at or behind it, but no commit has it",
    ))
}
