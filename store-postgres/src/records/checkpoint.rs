//! Checkpoints (C1 to C3).

use async_trait::async_trait;
use sqlx::{
    Postgres, Transaction,
    postgres::{PgArguments, PgRow},
};
use wow_store_api::{
    Checkpoint, CheckpointSaved, Checkpoints, ContextName, PartitionId, Result, SaveCheckpoint,
    SubscriptionName, rules,
};

use crate::{
    attempts::Kind,
    fault::Fault,
    macros::{args, attempt},
    pool::{Conn, Sql},
    store::{Inner, PostgresStore},
    value::{Cells as _, bigint, integer},
};

fn checkpoint(
    row: &PgRow,
    subscription: SubscriptionName,
    partition: PartitionId,
) -> Result<Checkpoint, Fault> {
    Ok(Checkpoint {
        subscription,
        partition,
        position: row.counter(0)?,
        epoch: row.counter(1)?,
        saved_at: row.instant(2)?,
    })
}

fn save_arguments(save: &SaveCheckpoint, back: bool) -> Result<PgArguments, Fault> {
    Ok(args![
        save.subscription.as_str(),
        save.partition.context().as_str(),
        integer(save.partition.index()),
        bigint(save.position),
        save.epoch.map(bigint),
        back,
    ])
}

/// What became of a save, from the position that is stored now.
fn saved(row: &PgRow, save: &SaveCheckpoint) -> Result<CheckpointSaved, Fault> {
    let position = row.counter(0)?;
    Ok(if position > save.position { CheckpointSaved::Ahead(position) } else { CheckpointSaved::Saved })
}

impl Inner {
    async fn checkpoint_in(
        &self,
        conn: &mut Conn,
        subscription: &SubscriptionName,
        partition: &PartitionId,
    ) -> Result<Option<Checkpoint>, Fault> {
        let arguments =
            args![subscription.as_str(), partition.context().as_str(), integer(partition.index())];
        let row = conn.row(&self.statements.checkpoint, arguments).await?;
        row.map(|row| checkpoint(&row, subscription.clone(), partition.clone())).transpose()
    }

    async fn save_in(
        &self,
        conn: &mut Conn,
        save: &SaveCheckpoint,
        back: bool,
    ) -> Result<CheckpointSaved, Fault> {
        let row = conn.row(&self.statements.checkpoint_save, save_arguments(save, back)?).await?;
        if let Some(row) = row {
            return saved(&row, save);
        }
        // A rule refused it: which? Nothing that refuses it ever goes back.
        conn.begin().await?;
        self.check_fence(conn, save.fence().as_ref()).await?;
        let stored = self.checkpoint_in(conn, &save.subscription, &save.partition).await?;
        let now = self.now_in(conn).await?;
        rules::checkpoint::set(save, stored.as_ref(), now)?;
        conn.commit().await?;
        Err(Fault::overtaken())
    }
}

impl PostgresStore {
    /// Saves a checkpoint inside the caller's own transaction (C3): what the handler wrote in it and the checkpoint are
    /// committed together or not at all. The transaction must be on the database that the store is on.
    ///
    /// The rules are those of [`Checkpoints::save_checkpoint`]. If it is refused, roll the transaction back.
    ///
    /// # Errors
    /// As for [`Checkpoints::save_checkpoint`].
    pub async fn save_checkpoint_in(
        &self,
        transaction: &mut Transaction<'_, Postgres>,
        save: SaveCheckpoint,
    ) -> Result<CheckpointSaved> {
        const OPERATION: &str = "save_checkpoint";
        self.check_open(OPERATION)?;
        let saving = async {
            save.check()?;
            let query =
                |sql: &Sql, arguments| sqlx::query_with(sqlx::AssertSqlSafe(Sql::clone(sql)), arguments);
            let statements = &self.inner.statements;
            let arguments = save_arguments(&save, false)?;
            let row =
                query(&statements.checkpoint_save, arguments).fetch_optional(&mut **transaction).await?;
            if let Some(row) = row {
                return saved(&row, &save);
            }
            let (group, partition) = (&save.subscription, &save.partition);
            let key = || -> Result<PgArguments, Fault> {
                Ok(args![group.as_str(), partition.context().as_str(), integer(partition.index())])
            };
            let stored = query(&statements.checkpoint, key()?).fetch_optional(&mut **transaction).await?;
            let lease = query(&statements.lease_get, key()?).fetch_optional(&mut **transaction).await?;
            let stored_epoch = stored.map_or(Ok(0), |row| row.counter(1))?;
            let current = lease.map_or(Ok(0), |row| row.counter(1))?.max(stored_epoch);
            let epoch = save.epoch.unwrap_or_default();
            if epoch < current {
                let kind = wow_store_api::ErrorKind::Fenced {
                    group: group.clone(),
                    partition: partition.clone(),
                    epoch,
                    current,
                };
                return Err(Fault::from(wow_store_api::Error::not_applied(kind)));
            }
            Err(Fault::overtaken())
        };
        // Nothing stays of it unless the caller commits.
        saving.await.map_err(|fault| self.inner.named(OPERATION, fault.before_commit().error))
    }
}

#[async_trait]
impl Checkpoints for PostgresStore {
    async fn checkpoint(
        &self,
        subscription: &SubscriptionName,
        partition: &PartitionId,
    ) -> Result<Option<Checkpoint>> {
        self.check_open("checkpoint")?;
        attempt!(self.inner, Kind::Read, "checkpoint", |conn| {
            self.inner.checkpoint_in(conn, subscription, partition).await
        })
    }

    async fn checkpoints(&self, context: &ContextName) -> Result<Vec<Checkpoint>> {
        self.check_open("checkpoints")?;
        attempt!(self.inner, Kind::Read, "checkpoints", |conn| {
            let rows = conn.rows(&self.inner.statements.checkpoints, args![context.as_str()]).await?;
            rows.iter()
                .map(|row| checkpoint(row, row.name(3)?, PartitionId::new(context.clone(), row.number(4)?)))
                .collect()
        })
    }

    async fn save_checkpoint(&self, save: SaveCheckpoint) -> Result<CheckpointSaved> {
        self.check_open("save_checkpoint")?;
        save.check().map_err(|error| self.inner.named("save_checkpoint", error))?;
        attempt!(self.inner, Kind::Repeatable, "save_checkpoint", |conn| {
            self.inner.save_in(conn, &save, false).await
        })
    }

    async fn reset_checkpoint(&self, reset: SaveCheckpoint) -> Result<()> {
        self.check_open("reset_checkpoint")?;
        reset.check().map_err(|error| self.inner.named("reset_checkpoint", error))?;
        attempt!(self.inner, Kind::Repeatable, "reset_checkpoint", |conn| {
            self.inner.save_in(conn, &reset, true).await.map(|_| ())
        })
    }
}
