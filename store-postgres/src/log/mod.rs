//! Reading the log (L5, L9, T5), and the trait itself.

mod load;
mod page;

use std::sync::Arc;

use async_trait::async_trait;
use wow_store_api::{
    AggregateId, AggregateType, CheckedCommit, CommandId, CommitStream, ContextName, Error, EventLog, Page,
    PartitionCount, Position, ReadPage, Receipt, Result, Timestamp, Version, VersionRange, Watcher, rules,
};

use crate::{
    attempts::Kind,
    macros::{args, attempt},
    names,
    pool::Sql,
    store::PostgresStore,
    value::Cells as _,
};

#[async_trait]
impl EventLog for PostgresStore {
    async fn append_checked(&self, commit: CheckedCommit) -> Result<Receipt> {
        self.append_one(commit).await
    }

    async fn append_all_checked(&self, commits: Vec<CheckedCommit>) -> Result<Vec<Receipt>> {
        self.append_together(commits).await
    }

    async fn receipt(&self, aggregate_id: &AggregateId, command_id: &CommandId) -> Result<Option<Receipt>> {
        self.check_open("receipt")?;
        let inner = &self.inner;
        let sql = Sql::from(format!(
            "SELECT version, position, committed_at FROM {} \
             WHERE tenant = $1 AND id = $2 AND command_id = $3",
            inner.schema.at(&names::log(aggregate_id.aggregate_type()))
        ));
        attempt!(inner, Kind::Read, "receipt", |conn| {
            let Some(count) = inner.partitions_if_used(conn, aggregate_id.context()).await? else {
                return Ok(None);
            };
            let tenant = aggregate_id.tenant().unwrap_or_default();
            let row = match conn.row(&sql, args![tenant, aggregate_id.id(), command_id.as_str()]).await {
                Err(fault) if fault.is_missing() => None,
                row => row?,
            };
            let Some(row) = row else { return Ok(None) };
            let partition = count.partition_of(aggregate_id);
            let (version, position) = (row.counter(0)?, row.counter(1)?);
            Ok(Some(rules::append::receipt(partition, version, position, row.instant(2)?).replay()))
        })
    }

    async fn head(&self, aggregate_id: &AggregateId) -> Result<Version> {
        self.check_open("head")?;
        let sql = Sql::from(format!(
            "SELECT version FROM {} WHERE tenant = $1 AND id = $2 ORDER BY version DESC LIMIT 1",
            self.inner.schema.at(&names::log(aggregate_id.aggregate_type()))
        ));
        attempt!(self.inner, Kind::Read, "head", |conn| {
            let tenant = aggregate_id.tenant().unwrap_or_default();
            match conn.row(&sql, args![tenant, aggregate_id.id()]).await {
                Err(fault) if fault.is_missing() => Ok(0),
                row => row?.map_or(Ok(0), |row| row.counter(0)),
            }
        })
    }

    async fn load_range(&self, aggregate_id: &AggregateId, versions: VersionRange) -> Result<CommitStream> {
        self.check_open("load")?;
        self.stream(aggregate_id, versions, None).await
    }

    async fn load_as_of(&self, aggregate_id: &AggregateId, instant: Timestamp) -> Result<CommitStream> {
        self.check_open("load")?;
        self.stream(aggregate_id, VersionRange::ALL, Some(instant)).await
    }

    async fn partitions(&self, context: &ContextName) -> Result<PartitionCount> {
        self.check_open("partitions")?;
        self.inner.use_context(context).await
    }

    async fn heads(&self, context: &ContextName) -> Result<Vec<Position>> {
        self.check_open("heads")?;
        attempt!(self.inner, Kind::Read, "heads", |conn| self.inner.heads_of(conn, context).await)
    }

    async fn read(&self, page: ReadPage) -> Result<Page> {
        self.check_open("read")?;
        let inner = Arc::clone(&self.inner);
        // In a task of its own, so that a read which is begun and then left holds no connection.
        let task =
            tokio::spawn(
                async move { attempt!(inner, Kind::Read, "read", |conn| inner.page(conn, &page).await) },
            );
        task.await.unwrap_or_else(|_| Err(self.inner.named("read", Error::internal("a read ended early"))))
    }

    async fn aggregate_types(&self) -> Result<Vec<AggregateType>> {
        self.check_open("aggregate_types")?;
        let inner = &self.inner;
        attempt!(inner, Kind::Read, "aggregate_types", |conn| {
            let mut types = Vec::new();
            for (context, names) in inner.registered_types(conn).await? {
                for name in names {
                    let aggregate_type = AggregateType::from_names(context.clone(), name)?;
                    // Registered before its first commit: there may be none yet.
                    let table = inner.schema.at(&names::log(&aggregate_type));
                    let sql = Sql::from(format!("SELECT 1 FROM {table} LIMIT 1"));
                    match conn.row(&sql, args![]).await {
                        Ok(Some(_)) => types.push(aggregate_type),
                        Ok(None) => {}
                        Err(fault) if fault.is_missing() => {}
                        Err(fault) => return Err(fault),
                    }
                }
            }
            Ok(types)
        })
    }

    async fn watch(&self, context: &ContextName) -> Result<Watcher> {
        self.check_open("watch")?;
        self.inner.wakeups.watch(context).map_err(|error| self.inner.named("watch", error))
    }
}
