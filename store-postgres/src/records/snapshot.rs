//! Snapshots (S1 to S4).

use async_trait::async_trait;
use wow_store_api::{
    AggregateId, AggregateType, Error, Result, SaveSnapshot, Snapshot, SnapshotSaved, Snapshots, Version,
    rules,
};

use crate::{
    attempts::Kind,
    fault::Fault,
    macros::{args, attempt},
    names,
    pool::{Conn, Sql},
    store::{Inner, PostgresStore},
    value::{Cells as _, bigint, integer},
};

/// An aggregate's head, as part of a larger statement; parameters 1 and 2 are tenant and id.
const HEAD: &str = "coalesce((SELECT l.version FROM {log} AS l WHERE l.tenant = $1 AND l.id = $2 \
                    ORDER BY l.version DESC LIMIT 1), 0)";

impl Inner {
    /// SQL on an aggregate type's snapshots and log.
    fn snapshot_sql(&self, aggregate_type: &AggregateType, template: &str) -> Sql {
        let snapshot = self.schema.at(&names::snapshot(aggregate_type));
        let log = self.schema.at(&names::log(aggregate_type));
        let head = self.schema.sql_with(HEAD, &[("log", &log)]);
        Sql::from(self.schema.sql_with(template, &[("snapshot", &snapshot), ("log", &log), ("head", &head)]))
    }

    async fn save_in_place(&self, conn: &mut Conn, save: &SaveSnapshot) -> Result<SnapshotSaved, Fault> {
        let id = &save.aggregate_id;
        let (tenant, name) = (id.tenant().unwrap_or_default(), id.id());
        // Snapshot and head as of one moment. Heads only rise, and the write below goes through only if the stored
        // snapshot is still the one that was looked at.
        let look = self.snapshot_sql(
            id.aggregate_type(),
            "SELECT {head}, s.revision, s.version FROM (SELECT 1) AS one \
             LEFT JOIN {snapshot} AS s ON s.tenant = $1 AND s.id = $2",
        );
        let row = match conn.row(&look, args![tenant, name]).await {
            Ok(row) => row.ok_or_else(|| Fault::from(Error::internal("a look without a row")))?,
            // No log, no version that the snapshot could be of.
            Err(fault) if fault.is_missing() => {
                rules::snapshot::save(save, None, 0)?;
                return Err(fault);
            }
            Err(fault) => return Err(fault),
        };
        let head = row.counter(0)?;
        let stored = match row.counter_or_none(2)? {
            Some(version) => Some((row.number(1)?, version)),
            None => None,
        };
        let answer = rules::snapshot::save(save, stored, head)?;
        if answer != SnapshotSaved::Saved {
            return Ok(answer);
        }
        let written = match stored {
            None => {
                let insert = self.snapshot_sql(
                    id.aggregate_type(),
                    "INSERT INTO {snapshot} (tenant, id, version, revision, state, saved_at) \
                     VALUES ($1, $2, $3, $4, $5::text::jsonb, \
                             {now}) \
                     ON CONFLICT DO NOTHING",
                );
                let state = save.state.as_json();
                let (version, revision) = (bigint(save.version), integer(save.revision));
                conn.execute(&insert, args![tenant, name, version, revision, state]).await?
            }
            Some((known_revision, known_version)) => {
                let update = self.snapshot_sql(
                    id.aggregate_type(),
                    "UPDATE {snapshot} SET version = $3, revision = $4, state = $5::text::jsonb, \
                            saved_at = {now} \
                     WHERE tenant = $1 AND id = $2 AND version = $6 AND revision = $7",
                );
                let state = save.state.as_json();
                let (version, revision) = (bigint(save.version), integer(save.revision));
                let (was_version, was_revision) = (bigint(known_version), integer(known_revision));
                let arguments = args![tenant, name, version, revision, state, was_version, was_revision];
                conn.execute(&update, arguments).await?
            }
        };
        if written == 0 { Err(Fault::overtaken()) } else { Ok(answer) }
    }
}

#[async_trait]
impl Snapshots for PostgresStore {
    async fn save_snapshot(&self, save: SaveSnapshot) -> Result<SnapshotSaved> {
        self.check_open("save_snapshot")?;
        let inner = &self.inner;
        save.check().map_err(|error| inner.named("save_snapshot", error))?;
        inner.use_snapshots(save.aggregate_id.aggregate_type(), save.revision).await?;
        attempt!(inner, Kind::Repeatable, "save_snapshot", |conn| inner.save_in_place(conn, &save).await)
    }

    async fn snapshot(&self, aggregate_id: &AggregateId, revision: u32) -> Result<Option<Snapshot>> {
        self.check_open("snapshot")?;
        let sql = self.inner.snapshot_sql(
            aggregate_id.aggregate_type(),
            "SELECT {head}, s.version, s.revision, s.saved_at, s.state::text FROM {snapshot} AS s \
             WHERE s.tenant = $1 AND s.id = $2 AND s.revision = $3",
        );
        attempt!(self.inner, Kind::Read, "snapshot", |conn| {
            let tenant = aggregate_id.tenant().unwrap_or_default();
            let row = conn.row(&sql, args![tenant, aggregate_id.id(), integer(revision)]).await;
            let row = match row {
                Ok(Some(row)) => row,
                Ok(None) => return Ok(None),
                // No table: no snapshot, or no log that it could be of.
                Err(fault) if fault.is_missing() => return Ok(None),
                Err(fault) => return Err(fault),
            };
            let head: Version = row.counter(0)?;
            let snapshot = Snapshot {
                aggregate_id: aggregate_id.clone(),
                version: row.counter(1)?,
                revision: row.number(2)?,
                saved_at: row.instant(3)?,
                state: row.payload(4)?,
            };
            Ok(Some(snapshot).filter(|snapshot| rules::snapshot::is_usable(snapshot, revision, head)))
        })
    }

    async fn delete_snapshot(&self, aggregate_id: &AggregateId) -> Result<bool> {
        self.check_open("delete_snapshot")?;
        let aggregate_type = aggregate_id.aggregate_type();
        let sql =
            self.inner.snapshot_sql(aggregate_type, "DELETE FROM {snapshot} WHERE tenant = $1 AND id = $2");
        attempt!(self.inner, Kind::Once, "delete_snapshot", |conn| {
            let arguments = args![aggregate_id.tenant().unwrap_or_default(), aggregate_id.id()];
            match conn.execute(&sql, arguments).await {
                Err(fault) if fault.is_missing() => Ok(false),
                deleted => Ok(deleted? > 0),
            }
        })
    }

    async fn drop_snapshots(&self, aggregate_type: &AggregateType) -> Result<u64> {
        self.check_open("drop_snapshots")?;
        let sql = self.inner.snapshot_sql(aggregate_type, "DELETE FROM {snapshot}");
        attempt!(self.inner, Kind::Once, "drop_snapshots", |conn| {
            match conn.execute(&sql, args![]).await {
                Err(fault) if fault.is_missing() => Ok(0),
                deleted => deleted,
            }
        })
    }
}
