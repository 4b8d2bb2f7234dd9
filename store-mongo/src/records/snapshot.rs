//! Snapshots (S1 to S4).

use async_trait::async_trait;
use mongodb::bson::{Document, doc};
use wow_store_api::{
    AggregateId, AggregateType, Result, SaveSnapshot, Snapshot, SnapshotSaved, Snapshots, rules,
};

use crate::{
    attempts::Kind,
    db::Find,
    document::{Fields as _, Writer, int, long},
    fault::Fault,
    macros::attempt,
    names,
    store::{Inner, MongoStore},
};

fn id(aggregate_id: &AggregateId) -> Document {
    doc! { "tenant": aggregate_id.tenant().unwrap_or_default(), "id": aggregate_id.id() }
}

impl Inner {
    /// The stored snapshot is read before the head: heads only rise, so one that is ahead of its log then is ahead of
    /// it. The write goes through only if the stored snapshot is still the one that was looked at.
    async fn save_in_place(&self, save: &SaveSnapshot) -> Result<SnapshotSaved, Fault> {
        let aggregate_id = &save.aggregate_id;
        let collection = names::snapshot(aggregate_id.aggregate_type());
        let find = Find::new(doc! { "_id": id(aggregate_id) }).only(doc! { "version": 1, "revision": 1 });
        let stored = match self.db.find_one(&collection, find).await? {
            Some(found) => Some((found.number("revision")?, found.counter("version")?)),
            None => None,
        };
        let head = self.head_of(aggregate_id).await?;
        let answer = rules::snapshot::save(save, stored, head)?;
        if answer != SnapshotSaved::Saved {
            return Ok(answer);
        }
        let mut filter = doc! { "_id": id(aggregate_id) };
        match stored {
            Some((revision, version)) => {
                filter.insert("revision", int(revision));
                filter.insert("version", long(version));
            }
            // Found by nothing that is there, so that only a new one is made.
            None => drop(filter.insert("revision", doc! { "$lt": -1 })),
        }
        let mut fields = Writer::new();
        fields.int64("version", long(save.version));
        fields.int32("revision", int(save.revision));
        fields.payload("state", &save.state)?;
        let fields = Document::try_from(&fields.finish()?).map_err(|_| crate::db::strange())?;
        let literals: Document =
            fields.into_iter().map(|(field, value)| (field, crate::db::literal(value))).collect();
        let mut set = literals;
        set.insert("saved_at", self.now());
        let update = vec![doc! { "$set": set }];
        match self.db.modify(&collection, filter, update, stored.is_none()).await {
            Ok(Some(_)) => Ok(answer),
            Ok(None) => Err(Fault::overtaken()),
            Err(fault) => Err(fault),
        }
    }
}

#[async_trait]
impl Snapshots for MongoStore {
    async fn save_snapshot(&self, save: SaveSnapshot) -> Result<SnapshotSaved> {
        self.check_open("save_snapshot")?;
        let inner = &self.inner;
        save.check().map_err(|error| inner.named("save_snapshot", error))?;
        inner.use_snapshots(save.aggregate_id.aggregate_type(), save.revision).await?;
        attempt!(inner, Kind::Repeatable, "save_snapshot", inner.save_in_place(&save).await)
    }

    async fn snapshot(&self, aggregate_id: &AggregateId, revision: u32) -> Result<Option<Snapshot>> {
        self.check_open("snapshot")?;
        let inner = &self.inner;
        let collection = names::snapshot(aggregate_id.aggregate_type());
        let find = Find::new(doc! { "_id": id(aggregate_id), "revision": int(revision) });
        attempt!(inner, Kind::Read, "snapshot", {
            let Some(found) = inner.db.find_one(&collection, find.clone()).await? else { return Ok(None) };
            let snapshot = Snapshot {
                aggregate_id: aggregate_id.clone(),
                version: found.counter("version")?,
                revision: found.number("revision")?,
                saved_at: found.instant("saved_at")?,
                state: found.payload("state")?,
            };
            // After the snapshot: heads only rise.
            let head = inner.head_of(aggregate_id).await?;
            Ok(Some(snapshot).filter(|snapshot| rules::snapshot::is_usable(snapshot, revision, head)))
        })
    }

    async fn delete_snapshot(&self, aggregate_id: &AggregateId) -> Result<bool> {
        self.check_open("delete_snapshot")?;
        let collection = names::snapshot(aggregate_id.aggregate_type());
        attempt!(self.inner, Kind::Once, "delete_snapshot", {
            let filter = doc! { "_id": id(aggregate_id) };
            Ok(self.inner.db.delete(&collection, filter).await?.is_some())
        })
    }

    async fn drop_snapshots(&self, aggregate_type: &AggregateType) -> Result<u64> {
        self.check_open("drop_snapshots")?;
        let collection = names::snapshot(aggregate_type);
        attempt!(self.inner, Kind::Once, "drop_snapshots", self.inner.db.delete_all(&collection).await)
    }
}
