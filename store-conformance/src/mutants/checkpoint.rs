//! Faults of checkpoints (C1, C2).

use async_trait::async_trait;
use tokio::task::yield_now;
use wow_store_api::{
    Checkpoint, CheckpointSaved, Checkpoints, ContextName, EventLog as _, PartitionId, Result,
    SaveCheckpoint, SubscriptionName, Timestamp,
};

use super::{Mutant, mutants};

mutants! { CheckpointFault in "checkpoint":
    /// What was never saved is at 0.
    NeverSavedIsZero => [
        "checkpoint::none_was_saved_at_first",
        "checkpoint::a_lease_taken_over_fences_before_anything_was_saved",
    ],
    /// A save moves back.
    GoesBack => [
        "checkpoint::moves_forward_only",
        "checkpoint::the_furthest_of_many_saves_stays",
        "checkpoint::a_save_that_finds_it_ahead_raises_its_epoch",
        "checkpoint::a_save_without_an_epoch_keeps_it",
        "checkpoint::reopen_keeps_checkpoints",
    ],
    /// A save behind the checkpoint says that it was saved.
    AheadIsSaved => [
        "checkpoint::moves_forward_only",
        "checkpoint::a_save_that_finds_it_ahead_raises_its_epoch",
        "checkpoint::a_save_without_an_epoch_keeps_it",
        "checkpoint::reopen_keeps_checkpoints",
    ],
    /// The same position again is behind.
    EqualIsAhead => ["checkpoint::the_same_position_is_saved_again"],
    /// A reset does not go back.
    ResetGoesForwardOnly => [
        "checkpoint::reset_moves_it_anywhere",
        "checkpoint::reset_keeps_the_epoch",
    ],
    /// A save reads first and writes then.
    SavesOverwrite => ["checkpoint::the_furthest_of_many_saves_stays"],
    /// The epoch is only looked at where the checkpoint moves.
    EpochCountsOnlyWhenMoving => ["checkpoint::a_lower_epoch_is_refused_also_behind_the_checkpoint"],
    /// A save that finds the checkpoint ahead leaves its epoch.
    AheadKeepsTheEpoch => [
        "checkpoint::a_save_that_finds_it_ahead_raises_its_epoch",
        "checkpoint::positions_and_epochs_go_up_to_the_last",
    ],
    /// The epoch is compared with that of the checkpoint only.
    OnlyTheCheckpointFences => [
        "checkpoint::a_lease_taken_over_fences_before_anything_was_saved",
        "checkpoint::a_fenced_append_fences_it_and_the_other_way_round",
        "fence::epoch_of_every_fenced_write_is_remembered",
        "fence::epoch_beyond_the_last_is_refused",
        "admin::an_error_names_the_operation_and_the_store",
    ],
    /// A reset forgets the epoch.
    ResetForgetsTheEpoch => [
        "checkpoint::reset_keeps_the_epoch",
        "checkpoint::positions_and_epochs_go_up_to_the_last",
    ],
    /// A save without an epoch forgets it.
    SaveForgetsTheEpoch => [
        "checkpoint::a_save_without_an_epoch_keeps_it",
        "checkpoint::positions_and_epochs_go_up_to_the_last",
    ],
    /// A refused save moves the checkpoint.
    RefusedMovesIt => ["checkpoint::a_lower_epoch_is_refused"],
    /// Subscriptions that differ only in case are one.
    FoldsSubscriptions => [
        "names::strange_subscriptions_come_back_as_they_were",
        "checkpoint::each_subscription_and_partition_has_its_own",
        "checkpoint::checkpoints_are_listed_by_context",
    ],
    /// Blanks around a subscription's name are cut off.
    TrimsSubscriptions => [
        "names::strange_subscriptions_come_back_as_they_were",
        "checkpoint::each_subscription_and_partition_has_its_own",
    ],
    /// All partitions share a checkpoint.
    PartitionsShareIt => [
        "checkpoint::each_subscription_and_partition_has_its_own",
        "checkpoint::checkpoints_are_listed_by_context",
        "fence::epoch_of_every_fenced_write_is_remembered",
        "fence::remembered_epoch_survives_reopen",
    ],
    /// Contexts share their checkpoints.
    ContextsShareIt => [
        "checkpoint::each_subscription_and_partition_has_its_own",
        "checkpoint::checkpoints_are_listed_by_context",
    ],
    /// Those of all contexts that start alike are listed.
    ListsOtherContexts => ["checkpoint::checkpoints_are_listed_by_context"],
    /// They are listed by the text of their keys.
    ListsByText => [
        "names::strange_subscriptions_come_back_as_they_were",
        "checkpoint::checkpoints_are_listed_by_context",
    ],
    /// Positions go through a double.
    PositionsAreDoubles => ["checkpoint::positions_and_epochs_go_up_to_the_last"],
    /// Positions end with 31 bits.
    PositionsAreShort => ["checkpoint::positions_and_epochs_go_up_to_the_last"],
    /// Saving one uses the context's log.
    SavingUsesTheContext => ["checkpoint::positions_need_not_be_in_the_log"],
    /// It says when it was first saved.
    SavedAtIsTheFirst => ["checkpoint::saved_at_is_the_stores_time"],
    /// Checkpoints are gone when the store is opened again.
    ForgottenAtReopen => [
        "checkpoint::reopen_keeps_checkpoints",
        "checkpoint::tail_goes_on_from_the_checkpoint",
    ],
    /// Opened again, the store has the one before the last.
    ReopenLosesTheLast => [
        "checkpoint::reopen_keeps_checkpoints",
        "checkpoint::tail_goes_on_from_the_checkpoint",
    ],
}

impl Mutant {
    fn stored_subscription(&self, subscription: &SubscriptionName) -> SubscriptionName {
        let text = subscription.as_str();
        let stored = if text != text.to_lowercase() && self.is(CheckpointFault::FoldsSubscriptions) {
            text.to_lowercase()
        } else if text != text.trim() && self.is(CheckpointFault::TrimsSubscriptions) {
            text.trim().to_owned()
        } else {
            return subscription.clone();
        };
        SubscriptionName::new(stored).unwrap_or_else(|_| subscription.clone())
    }

    fn stored_partition(&self, partition: &PartitionId) -> PartitionId {
        if partition.index() > 0 && self.is(CheckpointFault::PartitionsShareIt) {
            return PartitionId::new(partition.context().clone(), 0);
        }
        let shop = ContextName::new("shop").expect("a valid name");
        if *partition.context() != shop && self.is(CheckpointFault::ContextsShareIt) {
            return PartitionId::new(shop, partition.index());
        }
        partition.clone()
    }

    async fn stored_save(&self, mut save: SaveCheckpoint) -> Result<SaveCheckpoint> {
        save.subscription = self.stored_subscription(&save.subscription);
        save.partition = self.stored_partition(&save.partition);
        if save.position > 1 << 53 && save.check().is_ok() && self.is(CheckpointFault::PositionsAreDoubles) {
            save.position = (save.position as f64) as u64;
            save.position = save.position.min(wow_store_api::MAX_COUNTER);
        }
        if save.position > i32::MAX as u64
            && save.check().is_ok()
            && self.is(CheckpointFault::PositionsAreShort)
        {
            save.position &= i32::MAX as u64;
        }
        let unused = self.store().heads(save.partition.context()).await.is_ok_and(|heads| heads.is_empty());
        if unused && self.is(CheckpointFault::SavingUsesTheContext) {
            self.store().partitions(save.partition.context()).await?;
        }
        Ok(save)
    }

    fn served_checkpoint(&self, mut checkpoint: Checkpoint) -> Option<Checkpoint> {
        if self.reopened() > 0 && self.is(CheckpointFault::ForgottenAtReopen) {
            return None;
        }
        if self.reopened() > 0 && self.is(CheckpointFault::ReopenLosesTheLast) {
            checkpoint.position = checkpoint.position.saturating_sub(1);
        }
        let key = format!("saved {:?} {:?}", checkpoint.subscription, checkpoint.partition);
        if let Some(first) = self.shared().get::<Timestamp>(&key) {
            if first != checkpoint.saved_at && self.is(CheckpointFault::SavedAtIsTheFirst) {
                checkpoint.saved_at = first;
            }
        } else {
            self.shared().put(key, checkpoint.saved_at);
        }
        Some(checkpoint)
    }

    /// Takes back what the right store knows of an epoch, by keeping the checkpoint in the spare one.
    async fn save_unfenced(&self, save: SaveCheckpoint) -> Result<CheckpointSaved> {
        self.store().save_checkpoint(SaveCheckpoint { epoch: None, ..save }).await
    }

    async fn faulty_save(&self, save: SaveCheckpoint) -> Result<CheckpointSaved> {
        let known = self.store().checkpoint(&save.subscription, &save.partition).await?;
        let Some(known) = known else {
            if save.epoch.is_some() && self.is(CheckpointFault::OnlyTheCheckpointFences) {
                let answer = self.save_unfenced(save.clone()).await?;
                let _ = self.store().save_checkpoint(save).await;
                return Ok(answer);
            }
            return self.save_last(save).await;
        };
        if known.position > save.position {
            if self.is(CheckpointFault::GoesBack) {
                self.store().reset_checkpoint(save).await?;
                return Ok(CheckpointSaved::Saved);
            }
            if self.is(CheckpointFault::AheadIsSaved) {
                self.save_last(save).await?;
                return Ok(CheckpointSaved::Saved);
            }
            if save.epoch.is_some_and(|epoch| epoch < known.epoch)
                && self.is(CheckpointFault::EpochCountsOnlyWhenMoving)
            {
                return Ok(CheckpointSaved::Ahead(known.position));
            }
            if save.epoch.is_some_and(|epoch| epoch > known.epoch)
                && self.is(CheckpointFault::AheadKeepsTheEpoch)
            {
                return Ok(CheckpointSaved::Ahead(known.position));
            }
        }
        if known.position == save.position && self.is(CheckpointFault::EqualIsAhead) {
            self.save_last(save).await?;
            return Ok(CheckpointSaved::Ahead(known.position));
        }
        if known.position < save.position && self.is(CheckpointFault::SavesOverwrite) {
            yield_now().await;
            self.store().reset_checkpoint(save).await?;
            return Ok(CheckpointSaved::Saved);
        }
        if save.epoch.is_none() && known.epoch > 0 && self.is(CheckpointFault::SaveForgetsTheEpoch) {
            self.shared().put(format!("epochless {:?} {:?}", save.subscription, save.partition), true);
        }
        let outcome = self.save_last(save.clone()).await;
        if outcome.as_ref().is_err_and(|error| error.is_fenced()) && self.is(CheckpointFault::RefusedMovesIt)
        {
            self.save_unfenced(save).await?;
        }
        outcome
    }

    async fn save_last(&self, save: SaveCheckpoint) -> Result<CheckpointSaved> {
        self.save_fenced(save).await
    }

    async fn reset_last(&self, reset: SaveCheckpoint) -> Result<()> {
        self.reset_fenced(reset).await
    }

    fn without_epoch(&self, mut checkpoint: Checkpoint) -> Checkpoint {
        let key = format!("epochless {:?} {:?}", checkpoint.subscription, checkpoint.partition);
        if self.shared().get(&key) == Some(true) {
            checkpoint.epoch = 0;
        }
        checkpoint
    }
}

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Checkpoints for Mutant {
    async fn checkpoint(
        &self,
        subscription: &SubscriptionName,
        partition: &PartitionId,
    ) -> Result<Option<Checkpoint>> {
        let (stored, place) = (self.stored_subscription(subscription), self.stored_partition(partition));
        let found = self.store().checkpoint(&stored, &place).await?;
        if found.is_none() && self.is(CheckpointFault::NeverSavedIsZero) {
            let (subscription, partition) = (subscription.clone(), partition.clone());
            let saved_at = Timestamp::UNIX_EPOCH;
            return Ok(Some(Checkpoint { subscription, partition, position: 0, epoch: 0, saved_at }));
        }
        Ok(found.and_then(|it| self.served_checkpoint(it)).map(|it| self.without_epoch(it)))
    }

    async fn checkpoints(&self, context: &ContextName) -> Result<Vec<Checkpoint>> {
        let mut found = self.store().checkpoints(context).await?;
        if found.len() > 1 && self.is(CheckpointFault::ListsByText) {
            found.sort_by_key(|it| format!("{} {}", it.subscription.as_str().to_lowercase(), it.partition));
        }
        if !found.is_empty() && self.is(CheckpointFault::ListsOtherContexts) {
            let longer = ContextName::new(format!("{context}s"))?;
            found.extend(self.store().checkpoints(&longer).await?);
        }
        Ok(found.into_iter().filter_map(|it| self.served_checkpoint(it)).collect())
    }

    async fn save_checkpoint(&self, save: SaveCheckpoint) -> Result<CheckpointSaved> {
        let save = self.stored_save(save).await?;
        self.faulty_save(save).await.map_err(|error| self.told(error, None))
    }

    async fn reset_checkpoint(&self, reset: SaveCheckpoint) -> Result<()> {
        let reset = self.stored_save(reset).await?;
        let known = self.store().checkpoint(&reset.subscription, &reset.partition).await?;
        if known.as_ref().is_some_and(|known| known.position > reset.position)
            && self.is(CheckpointFault::ResetGoesForwardOnly)
        {
            return self.save_last(reset).await.map(|_| ()).map_err(|error| self.told(error, None));
        }
        if known.is_some_and(|known| known.epoch > 0)
            && reset.epoch.is_none()
            && self.is(CheckpointFault::ResetForgetsTheEpoch)
        {
            self.shared().put(format!("epochless {:?} {:?}", reset.subscription, reset.partition), true);
        }
        self.reset_last(reset).await.map_err(|error| self.told(error, None))
    }
}
