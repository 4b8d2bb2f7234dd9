//! Reading the log (L5, L9, T5), and the trait itself.

pub(crate) mod commit;
mod load;
mod page;

use std::{collections::BTreeSet, sync::Arc};

use async_trait::async_trait;
use mongodb::bson::doc;
use wow_store_api::{
    AggregateId, AggregateName, AggregateType, CheckedCommit, CommandId, CommitStream, ContextName, Error,
    EventLog, Page, PartitionCount, Position, ReadPage, Receipt, Result, Timestamp, Version, VersionRange,
    Watcher, rules,
};

use self::load::of_aggregate;
use crate::{
    attempts::Kind,
    db::{Find, strange},
    document::Fields as _,
    fault::Fault,
    macros::attempt,
    names,
    store::{Inner, MongoStore},
};

impl Inner {
    /// The last version of an aggregate; 0 if it has none.
    pub(crate) async fn head_of(&self, aggregate_id: &AggregateId) -> Result<Version, Fault> {
        let collection = names::log(aggregate_id.aggregate_type());
        let find =
            Find::new(of_aggregate(aggregate_id)).sorted(doc! { "tenant": -1, "id": -1, "version": -1 });
        let find = find.only(doc! { "_id": 0, "version": 1 });
        let found = self.db.find_one(&collection, find).await?;
        found.map_or(Ok(0), |found| found.counter("version"))
    }

    async fn receipt_of(
        &self,
        aggregate_id: &AggregateId,
        command_id: &CommandId,
    ) -> Result<Option<Receipt>, Fault> {
        let Some(count) = self.partitions_if_used(aggregate_id.context()).await? else { return Ok(None) };
        let mut filter = of_aggregate(aggregate_id);
        filter.insert("command_id", command_id.as_str());
        let find = Find::new(filter).only(doc! { "version": 1, "committed_at": 1 });
        let found = self.db.find_one(&names::log(aggregate_id.aggregate_type()), find).await?;
        let Some(found) = found else { return Ok(None) };
        let position = found.part("_id")?.counter("position")?;
        let (version, at) = (found.counter("version")?, found.instant("committed_at")?);
        let partition = count.partition_of(aggregate_id);
        Ok(Some(rules::append::receipt(partition, version, position, at).replay()))
    }

    /// The last position of each partition; empty where the context was never used.
    pub(crate) async fn heads_of(&self, context: &ContextName) -> Result<Vec<Position>, Fault> {
        let Some(count) = self.partitions_if_used(context).await? else { return Ok(Vec::new()) };
        let mut heads = vec![0; usize::try_from(count.get()).unwrap_or_default()];
        let find = Find::new(doc! {}).only(doc! { "position": 1 });
        for counter in self.db.find(&names::counter(context), find).await? {
            let place = usize::try_from(counter.number("_id")?).unwrap_or(usize::MAX);
            if let Some(head) = heads.get_mut(place) {
                *head = counter.counter("position")?;
            }
        }
        Ok(heads)
    }

    /// The types that have a commit: each counter says which it was raised for.
    async fn types_with_commits(&self) -> Result<BTreeSet<AggregateType>, Fault> {
        let mut types = BTreeSet::new();
        for context in self.registered_types().await?.into_keys() {
            let find = Find::new(doc! { "aggregates": { "$exists": true } }).only(doc! { "aggregates": 1 });
            for counter in self.db.find(&names::counter(&context), find).await? {
                for name in counter.list("aggregates")? {
                    let name = name.ok().and_then(|name| name.as_str()).ok_or_else(strange)?;
                    types.insert(AggregateType::from_names(context.clone(), AggregateName::new(name)?)?);
                }
            }
        }
        Ok(types)
    }
}

#[async_trait]
impl EventLog for MongoStore {
    async fn append_checked(&self, commit: CheckedCommit) -> Result<Receipt> {
        self.append_one(commit).await
    }

    async fn append_all_checked(&self, commits: Vec<CheckedCommit>) -> Result<Vec<Receipt>> {
        self.append_together(commits).await
    }

    async fn receipt(&self, aggregate_id: &AggregateId, command_id: &CommandId) -> Result<Option<Receipt>> {
        self.check_open("receipt")?;
        let inner = &self.inner;
        attempt!(inner, Kind::Read, "receipt", inner.receipt_of(aggregate_id, command_id).await)
    }

    async fn head(&self, aggregate_id: &AggregateId) -> Result<Version> {
        self.check_open("head")?;
        attempt!(self.inner, Kind::Read, "head", self.inner.head_of(aggregate_id).await)
    }

    async fn load_range(&self, aggregate_id: &AggregateId, versions: VersionRange) -> Result<CommitStream> {
        self.check_open("load")?;
        self.stream(aggregate_id, versions, None).await
    }

    async fn load_as_of(&self, aggregate_id: &AggregateId, instant: Timestamp) -> Result<CommitStream> {
        self.check_open("load")?;
        self.stream(aggregate_id, VersionRange::ALL, Some(instant)).await
    }

    async fn partitions(&self, context: &ContextName) -> Result<PartitionCount> {
        self.check_open("partitions")?;
        self.inner.use_context(context).await
    }

    async fn heads(&self, context: &ContextName) -> Result<Vec<Position>> {
        self.check_open("heads")?;
        attempt!(self.inner, Kind::Read, "heads", self.inner.heads_of(context).await)
    }

    async fn read(&self, page: ReadPage) -> Result<Page> {
        self.check_open("read")?;
        let inner = Arc::clone(&self.inner);
        // In a task of its own, so that a read which is begun and then left holds no connection.
        let task = tokio::spawn(async move { attempt!(inner, Kind::Read, "read", inner.page(&page).await) });
        task.await.unwrap_or_else(|_| Err(self.inner.named("read", Error::internal("a read ended early"))))
    }

    async fn aggregate_types(&self) -> Result<Vec<AggregateType>> {
        self.check_open("aggregate_types")?;
        let inner = &self.inner;
        attempt!(inner, Kind::Read, "aggregate_types", {
            Ok(inner.types_with_commits().await?.into_iter().collect())
        })
    }

    async fn watch(&self, context: &ContextName) -> Result<Watcher> {
        self.check_open("watch")?;
        self.inner.wakeups.watch(context).map_err(|error| self.inner.named("watch", error))
    }
}
