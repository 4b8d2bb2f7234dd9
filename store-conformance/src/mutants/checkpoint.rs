//! Faults of checkpoints (C1, C2).

use async_trait::async_trait;
use wow_store_api::{
    Checkpoint, CheckpointSaved, Checkpoints, ContextName, PartitionId, Result, SaveCheckpoint,
    SubscriptionName,
};

use super::{Mutant, mutants};

mutants! { CheckpointFault in "checkpoint": }

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Checkpoints for Mutant {
    async fn checkpoint(
        &self,
        subscription: &SubscriptionName,
        partition: &PartitionId,
    ) -> Result<Option<Checkpoint>> {
        self.store().checkpoint(subscription, partition).await
    }

    async fn checkpoints(&self, context: &ContextName) -> Result<Vec<Checkpoint>> {
        self.store().checkpoints(context).await
    }

    async fn save_checkpoint(&self, save: SaveCheckpoint) -> Result<CheckpointSaved> {
        self.save_fenced(save).await
    }

    async fn reset_checkpoint(&self, reset: SaveCheckpoint) -> Result<()> {
        self.reset_fenced(reset).await
    }
}
