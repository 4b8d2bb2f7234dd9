//! The embedded store, through its public interface.

use std::path::Path;

use anyhow::Result;
use wow_store_api::{
    AggregateId, AggregateType, Commit, ExpectedVersion, PartitionCount, StoreAdmin as _, StoreExt as _,
};
use wow_store_embedded::{EmbeddedConfig, EmbeddedStore};

use crate::{
    load::{Appends, Item, Side},
    sides::{AGGREGATE, CONTEXT, PARTITIONS},
};

#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) store: EmbeddedStore,
    aggregates: AggregateType,
}

impl Store {
    pub(crate) fn id(&self, id: &str) -> Result<AggregateId> {
        Ok(AggregateId::of(self.aggregates.clone(), id)?)
    }
}

impl Appends for Store {
    async fn append(&self, item: Item) -> Result<()> {
        let commit = Commit::new(self.id(&item.id)?, item.command)
            .expect(ExpectedVersion::Exact(item.expected))
            .with_event(item.body.event.clone());
        self.store.append(commit).await?;
        Ok(())
    }
}

impl Side for Store {
    const NAME: &'static str = "wow-store";

    async fn open(directory: &Path) -> Result<Self> {
        let config = EmbeddedConfig::new(directory).with_partitions(PartitionCount::new(PARTITIONS)?);
        let store = EmbeddedStore::open(config).await?;
        Ok(Self { store, aggregates: AggregateType::new(CONTEXT, AGGREGATE)? })
    }

    async fn close(self) -> Result<()> {
        Ok(self.store.close().await?)
    }
}
