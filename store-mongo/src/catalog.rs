//! What this node knows of contexts and aggregate types: how many partitions, which collections. Nothing of it is
//! ever taken back, so what is known once stays true, unless somebody drops collections under the store.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::{Mutex, MutexGuard, PoisonError},
};

use mongodb::bson::doc;
use wow_store_api::{AggregateName, AggregateType, ContextName, PartitionCount, Timestamp};

use crate::{
    attempts::Kind,
    config::Ddl,
    db::{Find, literal},
    document::{Fields as _, instant, int},
    fault::Fault,
    macros::attempt,
    names,
    schema::{self, collections},
    store::Inner,
};

#[derive(Default)]
pub(crate) struct Catalog {
    known: Mutex<Known>,
    /// Held while collections are made, so that this node does it once.
    making: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Known {
    partitions: HashMap<ContextName, PartitionCount>,
    /// Types whose log can be appended to.
    logs: HashSet<AggregateType>,
    snapshots: HashMap<AggregateType, u32>,
    timers: HashSet<ContextName>,
}

impl Catalog {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Everything is looked for again at its next use.
    pub(crate) fn forget(&self) {
        *self.known() = Known::default();
    }

    /// The partitions of a context that was used before.
    pub(crate) fn partitions(&self, context: &ContextName) -> Option<PartitionCount> {
        self.known().partitions.get(context).copied()
    }
}

impl Inner {
    /// Somebody dropped collections: nothing that is known holds any more.
    pub(crate) fn forget(&self) {
        self.catalog.forget();
        self.heads.forget_all();
    }

    /// The partitions of a context if it was ever used.
    pub(crate) async fn partitions_if_used(
        &self,
        context: &ContextName,
    ) -> Result<Option<PartitionCount>, Fault> {
        if let Some(count) = self.catalog.partitions(context) {
            return Ok(Some(count));
        }
        // The first partition's counter holds how many there are.
        let found = self.db.find_one(&names::counter(context), Find::new(doc! { "_id": 0 })).await?;
        let Some(found) = found else { return Ok(None) };
        let count = PartitionCount::new(found.number("partitions")?)?;
        self.catalog.known().partitions.insert(context.clone(), count);
        Ok(Some(count))
    }

    /// The partitions of a context; this is its first use if it had none.
    pub(crate) async fn use_context(&self, context: &ContextName) -> wow_store_api::Result<PartitionCount> {
        if let Some(count) = self.catalog.partitions(context) {
            return Ok(count);
        }
        attempt!(self, Kind::Schema, "partitions", {
            let _making = self.catalog.making.lock().await;
            match self.partitions_if_used(context).await? {
                Some(count) => Ok(count),
                None => self.first_use(context).await,
            }
        })
    }

    async fn first_use(&self, context: &ContextName) -> Result<PartitionCount, Fault> {
        schema::ensure(&self.db, &[collections::counter(context)], self.config.ddl).await?;
        // Whoever is first says how many there are. The other counters appear with their first commit.
        let counter = doc! {
            "_id": 0,
            "position": 0_i64,
            "committed_at": instant(Timestamp::UNIX_EPOCH),
            "partitions": int(self.config.partitions.get()),
        };
        match self.db.insert(&names::counter(context), counter).await {
            Err(fault) if fault.is_duplicate() => {}
            done => done?,
        }
        self.partitions_if_used(context).await?.ok_or_else(Fault::overtaken)
    }

    /// Sees to it that an aggregate type's log can be appended to (L10).
    pub(crate) async fn use_log(
        &self,
        aggregate_type: &AggregateType,
    ) -> wow_store_api::Result<PartitionCount> {
        let known = {
            let known = self.catalog.known();
            let count = known.partitions.get(aggregate_type.context()).copied();
            count.filter(|_| known.logs.contains(aggregate_type))
        };
        if let Some(count) = known {
            return Ok(count);
        }
        let count = self.use_context(aggregate_type.context()).await?;
        attempt!(self, Kind::Schema, "append", {
            let _making = self.catalog.making.lock().await;
            if self.catalog.known().logs.contains(aggregate_type) {
                return Ok(count);
            }
            self.make_log(aggregate_type).await?;
            self.catalog.known().logs.insert(aggregate_type.clone());
            Ok(count)
        })
    }

    async fn make_log(&self, aggregate_type: &AggregateType) -> Result<(), Fault> {
        let collection = collections::log(aggregate_type);
        match self.config.ddl {
            Ddl::Auto | Ddl::Validate => schema::ensure(&self.db, &[collection], self.config.ddl).await?,
            Ddl::None => {
                if self.db.list_collections(&[&collection.name]).await?.is_empty() {
                    return Err(schema::mismatch(vec![format!("collection {} is missing", collection.name)]));
                }
            }
        }
        let id = doc! {
            "context": aggregate_type.context().as_str(),
            "aggregate": aggregate_type.name().as_str(),
        };
        let update = vec![doc! { "$set": { "created_at": { "$ifNull": ["$created_at", self.now()] } } }];
        self.db.modify(names::LOG_AGGREGATE, doc! { "_id": id }, update, true).await?;
        Ok(())
    }

    /// Every registered type, by context.
    pub(crate) async fn registered_types(
        &self,
    ) -> Result<BTreeMap<ContextName, BTreeSet<AggregateName>>, Fault> {
        let mut types: BTreeMap<ContextName, BTreeSet<AggregateName>> = BTreeMap::new();
        for found in self.db.find(names::LOG_AGGREGATE, Find::new(doc! {})).await? {
            let id = found.part("_id")?;
            types.entry(id.name("context")?).or_default().insert(id.name("aggregate")?);
        }
        Ok(types)
    }

    /// Sees to it that snapshots of an aggregate type can be stored, and that its collection's revision is recorded
    /// (S2).
    pub(crate) async fn use_snapshots(
        &self,
        aggregate_type: &AggregateType,
        revision: u32,
    ) -> wow_store_api::Result<()> {
        let known = self.catalog.known().snapshots.get(aggregate_type).copied();
        if known.is_some_and(|known| known >= revision) {
            return Ok(());
        }
        attempt!(self, Kind::Schema, "save_snapshot", {
            let _making = self.catalog.making.lock().await;
            schema::ensure(&self.db, &[collections::snapshot(aggregate_type)], self.config.ddl).await?;
            let id = doc! {
                "context": aggregate_type.context().as_str(),
                "aggregate": aggregate_type.name().as_str(),
            };
            let update = vec![doc! { "$set": {
                "created_at": { "$ifNull": ["$created_at", self.now()] },
                "revision": { "$max": ["$revision", literal(int(revision))] },
            } }];
            self.db.modify(names::SNAPSHOT_TABLE, doc! { "_id": id }, update, true).await?;
            self.catalog.known().snapshots.insert(aggregate_type.clone(), revision);
            Ok(())
        })
    }

    /// Sees to it that timers of a context can be stored.
    pub(crate) async fn use_timers(&self, context: &ContextName) -> wow_store_api::Result<()> {
        if self.catalog.known().timers.contains(context) {
            return Ok(());
        }
        attempt!(self, Kind::Schema, "schedule_timer", {
            let _making = self.catalog.making.lock().await;
            schema::ensure(&self.db, &[collections::timer(context)], self.config.ddl).await?;
            self.catalog.known().timers.insert(context.clone());
            Ok(())
        })
    }
}
