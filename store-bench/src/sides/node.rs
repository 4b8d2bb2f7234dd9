//! A store through its public interface.

use std::sync::Arc;

use anyhow::Result;
use wow_store_api::{AggregateId, AggregateType, Commit, EventStore, ExpectedVersion, StoreExt as _};

use crate::{
    load::{Appends, Item},
    sides::{AGGREGATE, CONTEXT},
};

/// One node.
#[derive(Debug)]
pub(crate) struct Node<S> {
    pub(crate) store: Arc<S>,
    aggregates: AggregateType,
}

impl<S: EventStore> Node<S> {
    pub(crate) fn new(store: S) -> Result<Self> {
        Ok(Self { store: Arc::new(store), aggregates: AggregateType::new(CONTEXT, AGGREGATE)? })
    }

    pub(crate) fn id(&self, id: &str) -> Result<AggregateId> {
        Ok(AggregateId::of(self.aggregates.clone(), id)?)
    }
}

impl<S: EventStore> Appends for Node<S> {
    async fn append(&self, item: Item) -> Result<()> {
        let commit = Commit::new(self.id(&item.id)?, item.command)
            .expect(ExpectedVersion::Exact(item.expected))
            .with_event(item.body.event.clone());
        self.store.append(commit).await?;
        Ok(())
    }
}
