//! Checkpoints: how far a subscription is in each partition (C1 to C3).

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::{
    error::{Error, Result},
    lease::Fence,
    log::{Epoch, MAX_COUNTER, Position},
    name::{ContextName, SubscriptionName},
    partition::PartitionId,
    time::Timestamp,
};

/// How far a subscription is in a partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// The subscription.
    pub subscription: SubscriptionName,
    /// The partition.
    pub partition: PartitionId,
    /// Everything up to here (inclusive) is handled; 0: nothing is.
    pub position: Position,
    /// The highest epoch that it was saved with; 0 if never with one.
    pub epoch: Epoch,
    /// When it was last saved, by the store's clock.
    pub saved_at: Timestamp,
}

/// A checkpoint to be saved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SaveCheckpoint {
    /// The subscription.
    pub subscription: SubscriptionName,
    /// The partition.
    pub partition: PartitionId,
    /// Everything up to here (inclusive) is handled.
    pub position: Position,
    /// The epoch of the lease that the writer holds on this partition in the group of this subscription.
    pub epoch: Option<Epoch>,
}

impl SaveCheckpoint {
    /// Everything up to `position` (inclusive) is handled.
    #[must_use]
    pub fn new(subscription: SubscriptionName, partition: PartitionId, position: Position) -> Self {
        Self { subscription, partition, position, epoch: None }
    }

    /// Only while no higher epoch of the lease is known (C2).
    #[must_use]
    pub fn with_epoch(mut self, epoch: Epoch) -> Self {
        self.epoch = Some(epoch);
        self
    }

    /// The fence that the epoch stands for.
    #[must_use]
    pub fn fence(&self) -> Option<Fence> {
        self.epoch.map(|epoch| Fence {
            group: self.subscription.clone(),
            partition: self.partition.clone(),
            epoch,
        })
    }

    /// What every backend checks first.
    ///
    /// # Errors
    /// [`crate::ErrorKind::InvalidInput`] if position or epoch are beyond [`MAX_COUNTER`].
    pub fn check(&self) -> Result<()> {
        if self.position > MAX_COUNTER || self.epoch.is_some_and(|epoch| epoch > MAX_COUNTER) {
            return Err(Error::invalid_input(
                "the checkpoint's position or epoch is beyond the last possible one",
            ));
        }
        Ok(())
    }
}

/// What became of a save.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckpointSaved {
    /// It is at the position given: it moved there, or was there.
    Saved,
    /// It was already further, at this position, and stays there (C1).
    Ahead(Position),
}

/// The checkpoints of subscriptions.
///
/// A lost update is harmless here: the position that comes back is the last one saved, and what was handled after it
/// is handled again (at least once). A database backend can also save one inside the caller's own transaction (C3):
/// see the backend's own methods.
#[async_trait]
pub trait Checkpoints: Send + Sync {
    /// The checkpoint of a subscription in a partition, as it was last saved (C1); `None` if it never was. Whether there is
    /// such a partition is not looked at.
    ///
    /// # Errors
    /// Those of any read.
    ///
    /// Cancel-safety: dropping the future changes nothing.
    ///
    /// ```
    /// # futures::executor::block_on(async {
    /// # use wow_store_api::{Checkpoints, ContextName, MemoryStore, PartitionId, SaveCheckpoint, SubscriptionName};
    /// # let store = MemoryStore::new();
    /// # let (shop, mailer) = (ContextName::new("shop")?, SubscriptionName::new("mailer")?);
    /// # let partition = PartitionId::new(shop.clone(), 0);
    /// let go_on_after = store.checkpoint(&mailer, &partition).await?.map_or(0, |checkpoint| checkpoint.position);
    /// assert_eq!(go_on_after, 0, "never saved: from the start");
    /// # Ok::<_, wow_store_api::Error>(()) }).unwrap();
    /// ```
    async fn checkpoint(
        &self,
        subscription: &SubscriptionName,
        partition: &PartitionId,
    ) -> Result<Option<Checkpoint>>;

    /// All checkpoints in a context (C1), by subscription and partition, however many; none if there are none.
    ///
    /// # Errors
    /// Those of any read.
    ///
    /// Cancel-safety: dropping the future changes nothing.
    ///
    /// ```
    /// # futures::executor::block_on(async {
    /// # use wow_store_api::{Checkpoints, ContextName, MemoryStore, PartitionId, SaveCheckpoint, SubscriptionName};
    /// # let store = MemoryStore::new();
    /// # let (shop, mailer) = (ContextName::new("shop")?, SubscriptionName::new("mailer")?);
    /// # let partition = PartitionId::new(shop.clone(), 0);
    /// store.save_checkpoint(SaveCheckpoint::new(mailer.clone(), partition, 10)).await?;
    /// let all = store.checkpoints(&shop).await?;
    /// assert_eq!((all.len(), &all[0].subscription, all[0].position), (1, &mailer, 10));
    /// # Ok::<_, wow_store_api::Error>(()) }).unwrap();
    /// ```
    async fn checkpoints(&self, context: &ContextName) -> Result<Vec<Checkpoint>>;

    /// Saves a checkpoint.
    ///
    /// - C1 **Forward only**: if it is already further, it stays and [`CheckpointSaved::Ahead`] says where.
    /// - C2 **Fenced**: with an epoch, it is refused if a higher epoch of the lease is known, from the checkpoint,
    ///   from the lease or from another fenced write; the error names the highest. The same epoch goes through, and a
    ///   newer one is remembered. A save that finds the checkpoint ahead still raises its epoch.
    ///
    /// Positions are 0 to [`MAX_COUNTER`] (inclusive). Whether the log has the position is not looked at: the log may
    /// be in another store.
    ///
    /// # Errors
    /// [`Fenced`](crate::ErrorKind::Fenced); [`InvalidInput`](crate::ErrorKind::InvalidInput) beyond [`MAX_COUNTER`];
    /// those of any write.
    ///
    /// Cancel-safety: dropping the future leaves the checkpoint saved or as it was. Saving again is always right.
    ///
    /// ```
    /// # futures::executor::block_on(async {
    /// use wow_store_api::{CheckpointSaved, Checkpoints, ContextName, MemoryStore, PartitionId, SaveCheckpoint,
    ///     SubscriptionName};
    ///
    /// let store = MemoryStore::new();
    /// let mailer = SubscriptionName::new("mailer")?;
    /// let partition = PartitionId::new(ContextName::new("shop")?, 0);
    /// let at = |position| SaveCheckpoint::new(mailer.clone(), partition.clone(), position);
    ///
    /// assert_eq!(store.save_checkpoint(at(10)).await?, CheckpointSaved::Saved);
    /// assert_eq!(store.save_checkpoint(at(7)).await?, CheckpointSaved::Ahead(10));
    /// store.reset_checkpoint(at(7)).await?;
    /// assert_eq!(store.checkpoint(&mailer, &partition).await?.unwrap().position, 7);
    /// # Ok::<_, wow_store_api::Error>(()) }).unwrap();
    /// ```
    async fn save_checkpoint(&self, save: SaveCheckpoint) -> Result<CheckpointSaved>;

    /// Sets a checkpoint to a position, forward or **back** (C1): the way to handle a log again (0: all of it), or to skip.
    /// Fenced as a save is (C2); its epoch never falls. The bounds are those of
    /// [`save_checkpoint`](Self::save_checkpoint).
    ///
    /// # Errors
    /// As for [`save_checkpoint`](Self::save_checkpoint).
    ///
    /// Cancel-safety: dropping the future leaves the checkpoint reset or as it was. Resetting again is fine while nobody
    /// has gone on from there.
    ///
    /// ```
    /// # futures::executor::block_on(async {
    /// # use wow_store_api::{Checkpoints, ContextName, MemoryStore, PartitionId, SaveCheckpoint, SubscriptionName};
    /// # let store = MemoryStore::new();
    /// # let (shop, mailer) = (ContextName::new("shop")?, SubscriptionName::new("mailer")?);
    /// # let partition = PartitionId::new(shop.clone(), 0);
    /// let at = |position| SaveCheckpoint::new(mailer.clone(), partition.clone(), position);
    /// store.save_checkpoint(at(10)).await?;
    /// store.reset_checkpoint(at(0)).await?;
    /// assert_eq!(store.checkpoint(&mailer, &partition).await?.unwrap().position, 0);
    /// # Ok::<_, wow_store_api::Error>(()) }).unwrap();
    /// ```
    async fn reset_checkpoint(&self, reset: SaveCheckpoint) -> Result<()>;
}
