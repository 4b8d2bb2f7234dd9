//! Snapshots (S1 to S4).

use async_trait::async_trait;
use fjall::Slice;
use wow_store_api::{
    AggregateId, AggregateType, Outcome, Result, SaveSnapshot, Snapshot, SnapshotSaved, Snapshots, Version,
    rules,
};

use crate::{
    access::Records as _,
    append,
    engine::{space::Space, view::Source},
    places::{self, Place},
    store::EmbeddedStore,
};

/// Other writes come in between: nothing waits for more than so many.
const DROPPED_AT_ONCE: usize = 1000;

/// The version that the log must have for a snapshot to be usable (S3). Versions are dense, so one look-up does.
fn log_reaches(source: &impl Source, snapshot: &Snapshot) -> Result<Version> {
    let reaches = append::has_version(source, &snapshot.aggregate_id, snapshot.version)?;
    Ok(if reaches { snapshot.version } else { 0 })
}

/// The stored snapshot, if it may be returned: of this revision (S2), not ahead of its log (S3).
pub(crate) fn usable(source: &impl Source, snapshot: Snapshot, revision: u32) -> Result<Option<Snapshot>> {
    // Most are refused or taken by what is at hand.
    if snapshot.revision != revision {
        return Ok(None);
    }
    let head = log_reaches(source, &snapshot)?;
    Ok(Some(snapshot).filter(|snapshot| rules::snapshot::is_usable(snapshot, revision, head)))
}

/// The usable snapshot of an aggregate.
pub(crate) fn find(source: &impl Source, id: &AggregateId, revision: u32) -> Result<Option<Snapshot>> {
    match source.record(&places::snapshot(id))? {
        Some(snapshot) => usable(source, snapshot, revision),
        None => Ok(None),
    }
}

/// All snapshots of a type.
pub(crate) fn of_type(aggregate_type: &AggregateType) -> Place {
    Place { space: Space::Snapshot, key: places::of_type(aggregate_type) }
}

#[async_trait]
impl Snapshots for EmbeddedStore {
    async fn save_snapshot(&self, save: SaveSnapshot) -> Result<SnapshotSaved> {
        let bytes = save.state.as_json().len();
        self.write("save_snapshot", bytes, move |tx| {
            save.check()?;
            let place = places::snapshot(&save.aggregate_id);
            // One that is damaged is what the new one is for.
            let stored: Option<Snapshot> = match tx.record(&place) {
                Err(error) if error.is_corrupt() => None,
                stored => stored?,
            };
            let stored = stored.map(|snapshot| (snapshot.revision, snapshot.version));
            let head = append::head(tx, &places::aggregate(&save.aggregate_id))?;
            let answer = rules::snapshot::save(&save, stored, head)?;
            if answer == SnapshotSaved::Saved {
                let snapshot = save.into_snapshot(tx.now());
                tx.store(place, &snapshot);
            }
            Ok(answer)
        })
        .await
    }

    async fn snapshot(&self, aggregate_id: &AggregateId, revision: u32) -> Result<Option<Snapshot>> {
        self.read("snapshot", |view| find(view, aggregate_id, revision))
    }

    async fn delete_snapshot(&self, aggregate_id: &AggregateId) -> Result<bool> {
        let place = places::snapshot(aggregate_id);
        self.write("delete_snapshot", 0, move |tx| {
            let is_there = tx.contains(place.space, place.key.as_slice())?;
            if is_there {
                tx.remove(place);
            }
            Ok(is_there)
        })
        .await
    }

    async fn drop_snapshots(&self, aggregate_type: &AggregateType) -> Result<u64> {
        // Behind the last one, so that it ends however many are saved meanwhile.
        let (mut dropped, mut from): (u64, Option<Slice>) = (0, None);
        loop {
            let under = of_type(aggregate_type);
            let keys = self.write("drop_snapshots", 0, move |tx| {
                let keys = tx.keys_from(&under, from.as_deref(), DROPPED_AT_ONCE)?;
                for key in &keys {
                    tx.delete(under.space, key.clone());
                }
                Ok(keys)
            });
            let keys = keys.await.map_err(|error| match dropped {
                0 => error,
                _ => error.with_outcome(Outcome::Unknown),
            })?;
            dropped = dropped.saturating_add(u64::try_from(keys.len()).unwrap_or(u64::MAX));
            if keys.len() < DROPPED_AT_ONCE {
                return Ok(dropped);
            }
            from = keys.last().cloned();
        }
    }
}
