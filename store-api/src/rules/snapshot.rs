//! Snapshots (S1 to S3).

use crate::{
    error::{Error, Result},
    log::Version,
    snapshot::{SaveSnapshot, Snapshot, SnapshotSaved},
};

/// Whether to store a snapshot of an aggregate whose log is at `head`, given the revision and version of the one that
/// is stored.
///
/// # Errors
/// [`crate::ErrorKind::InvalidInput`] if the snapshot is ahead of the log.
pub fn save(save: &SaveSnapshot, stored: Option<(u32, Version)>, head: Version) -> Result<SnapshotSaved> {
    if save.version > head {
        return Err(Error::invalid_input(format!(
            "a snapshot of version {}, but the log of {} ends at {head}",
            save.version, save.aggregate_id
        )));
    }
    match stored {
        Some((revision, version))
            if version <= head && (revision, version) > (save.revision, save.version) =>
        {
            Ok(SnapshotSaved::Kept { revision, version })
        }
        Some(_) | None => Ok(SnapshotSaved::Saved),
    }
}

/// Whether a stored snapshot may be returned: of the revision asked for (S2), and not ahead of its log (S3).
#[must_use]
pub fn is_usable(snapshot: &Snapshot, revision: u32, head: Version) -> bool {
    snapshot.revision == revision && snapshot.version <= head
}
