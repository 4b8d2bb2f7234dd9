//! Checkpoints (C1, C2). The fence is checked first, with [`super::fence::check`], so that a refusal names the highest
//! epoch known: a lease is never behind the checkpoints that were saved with its epochs.

use crate::{
    checkpoint::{Checkpoint, CheckpointSaved, SaveCheckpoint},
    error::{Error, ErrorKind, Result},
    time::Timestamp,
};

/// Forward only: the checkpoint to store, and the answer.
///
/// # Errors
/// [`ErrorKind::Fenced`] if the checkpoint was saved with a higher epoch.
pub fn save(
    save: &SaveCheckpoint,
    stored: Option<&Checkpoint>,
    now: Timestamp,
) -> Result<(Checkpoint, CheckpointSaved)> {
    let mut next = set(save, stored, now)?;
    match stored {
        Some(stored) if stored.position > save.position => {
            next.position = stored.position;
            Ok((next, CheckpointSaved::Ahead(stored.position)))
        }
        Some(_) | None => Ok((next, CheckpointSaved::Saved)),
    }
}

/// To any position: the checkpoint to store.
///
/// # Errors
/// [`ErrorKind::Fenced`] if the checkpoint was saved with a higher epoch.
pub fn set(save: &SaveCheckpoint, stored: Option<&Checkpoint>, now: Timestamp) -> Result<Checkpoint> {
    let known = stored.map_or(0, |stored| stored.epoch);
    if let Some(epoch) = save.epoch.filter(|epoch| *epoch < known) {
        return Err(Error::not_applied(ErrorKind::Fenced {
            group: save.subscription.clone(),
            partition: save.partition.clone(),
            epoch,
            current: known,
        }));
    }
    Ok(Checkpoint {
        subscription: save.subscription.clone(),
        partition: save.partition.clone(),
        position: save.position,
        epoch: save.epoch.unwrap_or(0).max(known),
        saved_at: now,
    })
}
