//! Checkpoints (C1 to C3).

use async_trait::async_trait;
use mongodb::{
    ClientSession,
    bson::{Document, RawDocument, doc},
};
use wow_store_api::{
    Checkpoint, CheckpointSaved, Checkpoints, ContextName, Error, ErrorKind, PartitionId, Result,
    SaveCheckpoint, SubscriptionName,
};

use super::lease;
use crate::{
    attempts::Kind,
    db::{Find, Work},
    document::{Fields as _, int, long},
    fault::Fault,
    macros::{attempt, transaction},
    names,
    store::{Inner, MongoStore},
};

fn id(subscription: &SubscriptionName, partition: &PartitionId) -> Document {
    doc! {
        "subscription": subscription.as_str(),
        "context": partition.context().as_str(),
        "partition": int(partition.index()),
    }
}

fn read(found: &RawDocument) -> Result<Checkpoint, Fault> {
    let id = found.part("_id")?;
    Ok(Checkpoint {
        subscription: id.name("subscription")?,
        partition: PartitionId::new(id.name("context")?, id.number("partition")?),
        position: found.counter("position")?,
        epoch: found.counter("epoch")?,
        saved_at: found.instant("saved_at")?,
    })
}

impl Inner {
    /// What sets a checkpoint, in one step.
    fn set(&self, save: &SaveCheckpoint, back: bool) -> (Document, Vec<Document>) {
        let position = long(save.position);
        let position = match back {
            true => doc! { "$literal": position },
            false => doc! { "$max": ["$position", position] },
        };
        let update = doc! { "$set": {
            "position": position,
            "epoch": { "$max": [{ "$ifNull": ["$epoch", 0_i64] }, long(save.epoch.unwrap_or_default())] },
            "saved_at": self.now(),
        } };
        (doc! { "_id": id(&save.subscription, &save.partition) }, vec![update])
    }

    async fn save_alone(&self, save: &SaveCheckpoint, back: bool) -> Result<CheckpointSaved, Fault> {
        let (filter, update) = self.set(save, back);
        let found = self.db.modify(names::CHECKPOINT, filter, update, true).await?;
        saved(&found.ok_or_else(Fault::overtaken)?, save)
    }

    /// With a fence, inside a transaction; an error means that it must be aborted.
    async fn save_in(
        &self,
        work: &mut Work<'_>,
        save: &SaveCheckpoint,
        back: bool,
    ) -> Result<CheckpointSaved, Fault> {
        lease::check_fence(work, save.fence().as_ref()).await?;
        let (filter, update) = self.set(save, back);
        let found = work.modify(names::CHECKPOINT, filter, update, true).await?;
        let found = found.ok_or_else(Fault::overtaken)?;
        let current = found.counter("epoch")?;
        if let Some(epoch) = save.epoch.filter(|epoch| *epoch < current) {
            return Err(Fault::from(Error::not_applied(ErrorKind::Fenced {
                group: save.subscription.clone(),
                partition: save.partition.clone(),
                epoch,
                current,
            })));
        }
        saved(&found, save)
    }
}

/// What became of a save, from what is stored now.
fn saved(found: &RawDocument, save: &SaveCheckpoint) -> Result<CheckpointSaved, Fault> {
    let position = found.counter("position")?;
    Ok(if position > save.position { CheckpointSaved::Ahead(position) } else { CheckpointSaved::Saved })
}

impl MongoStore {
    /// Saves a checkpoint inside the caller's own transaction (C3): what the handler wrote in it and the checkpoint are
    /// committed together or not at all. The session must be one of [`MongoStore::client`], in a transaction with read
    /// concern `snapshot` or `majority` and write concern `majority`.
    ///
    /// The rules are those of [`Checkpoints::save_checkpoint`]. If it is refused, abort the transaction; if it fails with
    /// [`ErrorKind::Unavailable`], the transaction is aborted already, and can be run again.
    ///
    /// # Errors
    /// As for [`Checkpoints::save_checkpoint`].
    pub async fn save_checkpoint_in(
        &self,
        session: &mut ClientSession,
        save: SaveCheckpoint,
    ) -> Result<CheckpointSaved> {
        const OPERATION: &str = "save_checkpoint";
        self.check_open(OPERATION)?;
        save.check().map_err(|error| self.inner.named(OPERATION, error))?;
        let mut work = self.inner.db.work(session);
        let saving = self.inner.save_in(&mut work, &save, false).await;
        // Nothing stays of it unless the caller commits.
        saving.map_err(|fault| self.inner.named(OPERATION, fault.before_commit().error))
    }
}

#[async_trait]
impl Checkpoints for MongoStore {
    async fn checkpoint(
        &self,
        subscription: &SubscriptionName,
        partition: &PartitionId,
    ) -> Result<Option<Checkpoint>> {
        self.check_open("checkpoint")?;
        let find = Find::new(doc! { "_id": id(subscription, partition) });
        attempt!(self.inner, Kind::Read, "checkpoint", {
            let found = self.inner.db.find_one(names::CHECKPOINT, find.clone()).await?;
            found.map(|found| read(&found)).transpose()
        })
    }

    async fn checkpoints(&self, context: &ContextName) -> Result<Vec<Checkpoint>> {
        self.check_open("checkpoints")?;
        let order = doc! { "_id.context": 1, "_id.subscription": 1, "_id.partition": 1 };
        let find = Find::new(doc! { "_id.context": context.as_str() }).sorted(order);
        attempt!(self.inner, Kind::Read, "checkpoints", {
            let found = self.inner.db.find(names::CHECKPOINT, find.clone()).await?;
            found.iter().map(|found| read(found)).collect()
        })
    }

    async fn save_checkpoint(&self, save: SaveCheckpoint) -> Result<CheckpointSaved> {
        const OPERATION: &str = "save_checkpoint";
        self.check_open(OPERATION)?;
        let inner = &self.inner;
        save.check().map_err(|error| inner.named(OPERATION, error))?;
        match save.epoch {
            Some(_) => {
                transaction!(inner, Kind::Repeatable, OPERATION, |work| inner
                    .save_in(work, &save, false)
                    .await)
            }
            None => attempt!(inner, Kind::Repeatable, OPERATION, inner.save_alone(&save, false).await),
        }
    }

    async fn reset_checkpoint(&self, reset: SaveCheckpoint) -> Result<()> {
        const OPERATION: &str = "reset_checkpoint";
        self.check_open(OPERATION)?;
        let inner = &self.inner;
        reset.check().map_err(|error| inner.named(OPERATION, error))?;
        let done: Result<CheckpointSaved> = match reset.epoch {
            Some(_) => {
                transaction!(inner, Kind::Repeatable, OPERATION, |work| inner
                    .save_in(work, &reset, true)
                    .await)
            }
            None => attempt!(inner, Kind::Repeatable, OPERATION, inner.save_alone(&reset, true).await),
        };
        done.map(drop)
    }
}
