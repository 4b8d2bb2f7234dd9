//! Checkpoints (C1, C2).

use async_trait::async_trait;
use wow_store_api::{
    Checkpoint, CheckpointSaved, Checkpoints, ContextName, PartitionId, Result, SaveCheckpoint,
    SubscriptionName, rules,
};

use crate::{access::Records as _, leases::fence, places, store::EmbeddedStore};

#[async_trait]
impl Checkpoints for EmbeddedStore {
    async fn checkpoint(
        &self,
        subscription: &SubscriptionName,
        partition: &PartitionId,
    ) -> Result<Option<Checkpoint>> {
        self.read("checkpoint", |view| view.record(&places::checkpoint(subscription, partition)))
    }

    async fn checkpoints(&self, context: &ContextName) -> Result<Vec<Checkpoint>> {
        let under = places::checkpoints(context);
        self.scan("checkpoints", move |view| view.records(&under).collect()).await
    }

    async fn save_checkpoint(&self, save: SaveCheckpoint) -> Result<CheckpointSaved> {
        self.write("save_checkpoint", 0, move |tx| {
            save.check()?;
            fence(tx, save.fence().as_ref())?;
            let place = places::checkpoint(&save.subscription, &save.partition);
            let stored: Option<Checkpoint> = tx.record(&place)?;
            let (next, saved) = rules::checkpoint::save(&save, stored.as_ref(), tx.now())?;
            tx.store(place, &next);
            Ok(saved)
        })
        .await
    }

    async fn reset_checkpoint(&self, reset: SaveCheckpoint) -> Result<()> {
        self.write("reset_checkpoint", 0, move |tx| {
            reset.check()?;
            fence(tx, reset.fence().as_ref())?;
            let place = places::checkpoint(&reset.subscription, &reset.partition);
            let stored: Option<Checkpoint> = tx.record(&place)?;
            let next = rules::checkpoint::set(&reset, stored.as_ref(), tx.now())?;
            tx.store(place, &next);
            Ok(())
        })
        .await
    }
}
