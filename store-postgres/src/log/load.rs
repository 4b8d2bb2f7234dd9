//! The commits of one aggregate.

use futures_util::stream::{self, StreamExt as _};
use sqlx::postgres::PgRow;
use wow_store_api::{
    AggregateId, CommitStream, Error, RecordedCommit, Result, Timestamp, Version, VersionRange,
};

use crate::{
    attempts::Kind,
    fault::Fault,
    jsonb,
    macros::{args, attempt},
    names,
    pool::{Conn, Sql},
    store::{Inner, PostgresStore},
    value::{Cells as _, Instant, bigint},
};

/// Commits in a page.
const PAGE_COMMITS: usize = 2_000;
/// Bytes of bodies in a page, about.
const PAGE_BYTES: i64 = 4 * 1024 * 1024;

/// The columns of a commit that come after what finds it: `command_id, partition, position, committed_at, metadata,
/// events`, from this one on.
pub(super) fn commit(
    row: &PgRow,
    first: usize,
    aggregate_id: AggregateId,
    version: Version,
) -> Result<RecordedCommit, Fault> {
    let metadata = match row.cell::<Option<&str>>(first + 4)? {
        Some(text) => Some(jsonb::payload(text).ok_or_else(|| damaged(&aggregate_id, version))?),
        None => None,
    };
    let events = row.cell::<&str>(first + 5)?;
    let events = jsonb::read_events(events).ok_or_else(|| damaged(&aggregate_id, version))?;
    Ok(RecordedCommit {
        version,
        command_id: row.name(first)?,
        partition: row.number(first + 1)?,
        position: row.counter(first + 2)?,
        committed_at: row.instant(first + 3)?,
        metadata,
        events,
        aggregate_id,
    })
}

fn damaged(aggregate_id: &AggregateId, version: Version) -> Fault {
    Fault::from(Error::corrupt(
        format!("{aggregate_id}, version {version}"),
        "its document is not one that was written",
    ))
}

/// One page, and where the next one starts.
type LoadedPage = (Vec<RecordedCommit>, Option<Version>);

impl Inner {
    async fn load_page(
        &self,
        conn: &mut Conn,
        sql: &Sql,
        id: &AggregateId,
        versions: VersionRange,
        as_of: Option<Timestamp>,
    ) -> Result<LoadedPage, Fault> {
        let (first, last) = (bigint(versions.first), bigint(versions.last));
        let arguments = args![
            id.tenant().unwrap_or_default(),
            id.id(),
            first,
            last,
            i64::try_from(PAGE_COMMITS).unwrap_or(i64::MAX),
            PAGE_BYTES,
            as_of.map(Instant),
        ];
        let mut version = versions.first;
        let mut bytes = 0;
        let read = |row: PgRow| {
            let found = row.counter(0)?;
            if found != version {
                return Err(Fault::from(Error::corrupt(
                    format!("{id}, version {version}"),
                    format!("it is missing: version {found} comes next"),
                )));
            }
            bytes += row.cell::<i32>(1).map(i64::from)?;
            version = found.saturating_add(1);
            commit(&row, 2, id.clone(), found)
        };
        let commits = match conn.each(sql, arguments, read).await {
            Err(fault) if fault.is_missing() => return Ok((Vec::new(), None)),
            commits => commits?,
        };
        // A page that is neither full nor heavy ended where the aggregate did.
        let more = (commits.len() == PAGE_COMMITS || bytes >= PAGE_BYTES) && version <= versions.last;
        Ok((commits, more.then_some(version)))
    }
}

impl PostgresStore {
    pub(super) async fn stream(
        &self,
        aggregate_id: &AggregateId,
        versions: VersionRange,
        as_of: Option<Timestamp>,
    ) -> Result<CommitStream> {
        // A range that was put together by hand may start before the first version.
        let versions = VersionRange { first: versions.first.max(1), ..versions };
        if versions.is_empty() {
            return Ok(stream::empty().boxed());
        }
        let table = self.inner.schema.at(&names::log(aggregate_id.aggregate_type()));
        let sql = Sql::from(format!(
            "SELECT b.version, b.size, b.command_id, b.partition, b.position, b.committed_at, b.metadata::text, \
                    b.events::text \
             FROM (SELECT a.*, sum(a.size) OVER (ORDER BY a.version ROWS UNBOUNDED PRECEDING) - a.size AS before \
                   FROM (SELECT * FROM {table} AS l \
                         WHERE l.tenant = $1 AND l.id = $2 AND l.version >= $3 AND l.version <= $4 \
                               AND ($7::timestamptz IS NULL OR l.committed_at <= $7) \
                         ORDER BY l.version LIMIT $5) AS a) AS b \
             WHERE b.before < $6 ORDER BY b.version"
        ));
        let first = self.load(&sql, aggregate_id, versions, as_of).await?;
        let (store, aggregate_id) = (self.clone(), aggregate_id.clone());
        let pages = stream::unfold(Some(Ok(first)), move |page: Option<Result<LoadedPage>>| {
            let (store, sql, aggregate_id) = (store.clone(), Sql::clone(&sql), aggregate_id.clone());
            async move {
                match page? {
                    Ok((commits, next)) => {
                        let items: Vec<Result<RecordedCommit>> = commits.into_iter().map(Ok).collect();
                        let next = match next {
                            Some(first) => {
                                let rest = VersionRange { first, ..versions };
                                Some(store.load(&sql, &aggregate_id, rest, as_of).await)
                            }
                            None => None,
                        };
                        Some((items, next))
                    }
                    Err(error) => Some((vec![Err(error)], None)),
                }
            }
        });
        Ok(pages.flat_map(stream::iter).boxed())
    }

    async fn load(
        &self,
        sql: &Sql,
        aggregate_id: &AggregateId,
        versions: VersionRange,
        as_of: Option<Timestamp>,
    ) -> Result<LoadedPage> {
        self.check_open("load")?;
        attempt!(self.inner, Kind::Read, "load", |conn| {
            self.inner.load_page(conn, sql, aggregate_id, versions, as_of).await
        })
    }
}
