//! The embedded store.

use std::path::Path;

use anyhow::Result;
use wow_store_api::{PartitionCount, StoreAdmin as _};
use wow_store_embedded::{EmbeddedConfig, EmbeddedStore};

use crate::{
    load::Side,
    sides::{PARTITIONS, node::Node},
};

pub(crate) type Store = Node<EmbeddedStore>;

impl Side for Store {
    const NAME: &'static str = "wow-store";

    async fn open(directory: &Path) -> Result<Self> {
        let config = EmbeddedConfig::new(directory).with_partitions(PartitionCount::new(PARTITIONS)?);
        Self::new(EmbeddedStore::open(config).await?)
    }

    async fn close(self) -> Result<()> {
        Ok(self.store.close().await?)
    }
}
