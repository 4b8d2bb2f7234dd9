//! Snapshots: the latest state of an aggregate, as a cache (S1 to S4).

use async_trait::async_trait;
use serde::Serialize;

use crate::{
    commit::check_revision,
    error::{Error, Result},
    log::{MAX_COUNTER, Version},
    name::{AggregateId, AggregateType},
    payload::Payload,
    time::Timestamp,
};

/// The state of an aggregate after one of its commits.
#[derive(Debug, Clone, PartialEq)]
pub struct Snapshot {
    /// The aggregate.
    pub aggregate_id: AggregateId,
    /// The state includes the commits up to this version (inclusive), at least 1. Go on with the commits **after** it.
    pub version: Version,
    /// The revision of the state's shape, 0 to [`MAX_REVISION`](crate::MAX_REVISION) (inclusive).
    pub revision: u32,
    /// The state.
    pub state: Payload,
    /// When it was saved, by the store's clock.
    pub saved_at: Timestamp,
}

/// A snapshot to be saved.
#[derive(Debug, Clone, PartialEq)]
pub struct SaveSnapshot {
    /// The aggregate.
    pub aggregate_id: AggregateId,
    /// The state includes the commits up to this version (inclusive), at least 1.
    pub version: Version,
    /// The revision of the state's shape.
    pub revision: u32,
    /// The state.
    pub state: Payload,
}

impl SaveSnapshot {
    /// The state of `aggregate_id` after its commit `version`.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Unrepresentable`] if the state is outside the portable profile.
    pub fn new<T: Serialize + ?Sized>(
        aggregate_id: AggregateId,
        version: Version,
        revision: u32,
        state: &T,
    ) -> Result<Self> {
        let state = Payload::from_serialize(state)
            .map_err(|error| Error::unrepresentable("snapshot state", error))?;
        Ok(Self { aggregate_id, version, revision, state })
    }

    /// What every backend checks first.
    ///
    /// # Errors
    /// [`crate::ErrorKind::InvalidInput`] if the version is 0 or beyond [`MAX_COUNTER`], or the revision is beyond
    /// [`MAX_REVISION`](crate::MAX_REVISION).
    pub fn check(&self) -> Result<()> {
        if self.version == 0 || self.version > MAX_COUNTER {
            return Err(Error::invalid_input(format!(
                "a snapshot of version {}: it must be the version of a commit",
                self.version
            )));
        }
        check_revision(self.revision)
    }

    /// The snapshot, saved at this instant.
    #[must_use]
    pub fn into_snapshot(self, saved_at: Timestamp) -> Snapshot {
        Snapshot {
            aggregate_id: self.aggregate_id,
            version: self.version,
            revision: self.revision,
            state: self.state,
            saved_at,
        }
    }
}

/// What became of a save.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SnapshotSaved {
    /// It is stored.
    Saved,
    /// A newer one is stored, of this revision and version, and stays (S1).
    Kept {
        /// The stored one's revision.
        revision: u32,
        /// The stored one's version.
        version: Version,
    },
}

/// Snapshots. A store keeps one per aggregate, the latest (S1); the log is the only truth (S4).
#[async_trait]
pub trait Snapshots: Send + Sync {
    /// Saves a snapshot.
    ///
    /// - S1 **The latest wins**: ordered by revision, then version, never by time. An older one than the stored one
    ///   changes nothing, and [`SnapshotSaved::Kept`] says so. One of the same revision and version replaces it.
    /// - S2 **Another revision**: a higher revision replaces a lower one at any version; a lower one is kept out, so
    ///   that old and new nodes of a rolling update do not fight.
    /// - S3 A stored snapshot that is **ahead of its log** (a restored backup) counts as absent: whatever is saved
    ///   replaces it.
    ///
    /// Versions are 1 to the head of the log, revisions 0 to [`MAX_REVISION`](crate::MAX_REVISION) (all inclusive).
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) if the log has no such version yet, or as for
    /// [`SaveSnapshot::check`]; those of any write.
    ///
    /// Cancel-safety: dropping the future leaves the snapshot saved or as it was. Saving again is always right.
    ///
    /// ```
    /// # futures::executor::block_on(async {
    /// use wow_store_api::{AggregateId, Commit, MemoryStore, SaveSnapshot, SnapshotSaved, Snapshots, StoreExt};
    ///
    /// let store = MemoryStore::new();
    /// let id = AggregateId::new("shop", "order", "42")?;
    /// for n in 1..=3 {
    ///     store.append(Commit::new(id.clone(), format!("cmd-{n}")).event("Counted", 1, &n)?).await?;
    /// }
    /// let of = |version| SaveSnapshot::new(id.clone(), version, 1, &version);
    /// assert_eq!(store.save_snapshot(of(3)?).await?, SnapshotSaved::Saved);
    /// assert_eq!(store.save_snapshot(of(2)?).await?, SnapshotSaved::Kept { revision: 1, version: 3 });
    /// assert_eq!(store.snapshot(&id, 1).await?.unwrap().version, 3);
    /// assert!(store.snapshot(&id, 2).await?.is_none(), "another revision: rebuild it from the log");
    /// # Ok::<_, wow_store_api::Error>(()) }).unwrap();
    /// ```
    async fn save_snapshot(&self, save: SaveSnapshot) -> Result<SnapshotSaved>;

    /// The snapshot of an aggregate; `None` where it has to be built from the log.
    ///
    /// - S2 Only of the revision asked for.
    /// - S3 Never one that is ahead of the log. One at the very head is fine.
    ///
    /// # Errors
    /// Those of any read. A stored snapshot that is damaged is [`Corrupt`](crate::ErrorKind::Corrupt): fall back to the
    /// log, and save a new one over it.
    ///
    /// Cancel-safety: dropping the future changes nothing.
    ///
    /// ```
    /// # futures::executor::block_on(async {
    /// # use wow_store_api::{AggregateId, Commit, MemoryStore, SaveSnapshot, Snapshots, StoreExt};
    /// # let (store, id) = (MemoryStore::new(), AggregateId::new("shop", "order", "42")?);
    /// # store.append(Commit::new(id.clone(), "cmd-1").event("Counted", 1, &1)?).await?;
    /// # store.save_snapshot(SaveSnapshot::new(id.clone(), 1, 3, &"the state after commit 1, in shape 3")?).await?;
    /// let snapshot = store.snapshot(&id, 3).await?.unwrap();
    /// let newer = store.load(&id, snapshot.version + 1..).await?; // go on from there
    /// assert!(store.snapshot(&id, 4).await?.is_none(), "another shape: rebuild it");
    /// # drop(newer);
    /// # Ok::<_, wow_store_api::Error>(()) }).unwrap();
    /// ```
    async fn snapshot(&self, aggregate_id: &AggregateId, revision: u32) -> Result<Option<Snapshot>>;

    /// Drops the snapshot of an aggregate, of whatever revision (S4). Says whether one was stored, usable or not.
    ///
    /// # Errors
    /// Those of any write.
    ///
    /// Cancel-safety: dropping the future leaves the snapshot there or gone. Delete again: `false` if it was gone.
    ///
    /// ```
    /// # futures::executor::block_on(async {
    /// # use wow_store_api::{AggregateId, Commit, MemoryStore, SaveSnapshot, Snapshots, StoreExt};
    /// # let (store, id) = (MemoryStore::new(), AggregateId::new("shop", "order", "42")?);
    /// # store.append(Commit::new(id.clone(), "cmd-1").event("Counted", 1, &1)?).await?;
    /// # store.save_snapshot(SaveSnapshot::new(id.clone(), 1, 3, &"the state after commit 1, in shape 3")?).await?;
    /// assert!(store.delete_snapshot(&id).await?);
    /// assert!(store.snapshot(&id, 3).await?.is_none());
    /// # Ok::<_, wow_store_api::Error>(()) }).unwrap();
    /// ```
    async fn delete_snapshot(&self, aggregate_id: &AggregateId) -> Result<bool>;

    /// Drops all snapshots of an aggregate type, of all tenants and revisions (S4). Returns how many there were.
    ///
    /// # Errors
    /// Those of any write.
    ///
    /// Cancel-safety: dropping the future leaves all, some or none of them. Drop them again.
    ///
    /// ```
    /// # futures::executor::block_on(async {
    /// # use wow_store_api::{AggregateId, Commit, MemoryStore, SaveSnapshot, Snapshots, StoreExt};
    /// # let (store, id) = (MemoryStore::new(), AggregateId::new("shop", "order", "42")?);
    /// # store.append(Commit::new(id.clone(), "cmd-1").event("Counted", 1, &1)?).await?;
    /// # store.save_snapshot(SaveSnapshot::new(id.clone(), 1, 3, &"the state after commit 1, in shape 3")?).await?;
    /// assert_eq!(store.drop_snapshots(id.aggregate_type()).await?, 1);
    /// assert_eq!(store.drop_snapshots(id.aggregate_type()).await?, 0);
    /// # Ok::<_, wow_store_api::Error>(()) }).unwrap();
    /// ```
    async fn drop_snapshots(&self, aggregate_type: &AggregateType) -> Result<u64>;
}
