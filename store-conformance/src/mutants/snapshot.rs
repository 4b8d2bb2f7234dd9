//! Faults of snapshots (S1 to S4).

use async_trait::async_trait;
use wow_store_api::{AggregateId, AggregateType, Result, SaveSnapshot, Snapshot, SnapshotSaved, Snapshots};

use super::{Mutant, mutants};

mutants! { SnapshotFault in "snapshot": }

#[deny(clippy::missing_trait_methods)]
#[async_trait]
impl Snapshots for Mutant {
    async fn save_snapshot(&self, mut save: SaveSnapshot) -> Result<SnapshotSaved> {
        save.state = self.stored_payload(save.state);
        self.store().save_snapshot(save).await
    }

    async fn snapshot(&self, aggregate_id: &AggregateId, revision: u32) -> Result<Option<Snapshot>> {
        let found = self.store().snapshot(aggregate_id, revision).await?;
        Ok(found.map(|snapshot| Snapshot { state: self.served_payload(snapshot.state.clone()), ..snapshot }))
    }

    async fn delete_snapshot(&self, aggregate_id: &AggregateId) -> Result<bool> {
        self.store().delete_snapshot(aggregate_id).await
    }

    async fn drop_snapshots(&self, aggregate_type: &AggregateType) -> Result<u64> {
        self.store().drop_snapshots(aggregate_type).await
    }
}
