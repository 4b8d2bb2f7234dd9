//! The log: append, load, read (L1 to L11).

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::stream::{self, StreamExt as _};
use wow_store_api::{
    AggregateId, AggregateType, CheckedCommit, CommandId, CommitStream, ContextName, Error, EventLog, Page,
    PartitionCount, Position, ReadPage, Receipt, RecordedCommit, Result, Timestamp, Version, VersionRange,
    Watcher, check_append_all,
};

use crate::{
    access::Records as _,
    append::{self, Prepared},
    codec::{Head, ReceiptRecord},
    pages::{self, Limits, Pace},
    places,
    store::EmbeddedStore,
};

impl EmbeddedStore {
    /// The commits of an aggregate as long as there are some and `keep` holds.
    fn load_while(
        &self,
        id: &AggregateId,
        versions: VersionRange,
        keep: impl Fn(&RecordedCommit) -> bool + Send + Sync + 'static,
    ) -> Result<CommitStream> {
        let keep: pages::Keep = Arc::new(keep);
        let load = pages::Load { id: id.clone(), versions, keep };
        // What fits in about one block is read in place.
        let first = self.read("load", |view| load.page(view, load.versions.first.max(1), Limits::SMALL))?;
        let head = stream::iter(first.commits.into_iter().map(Ok));
        let Some(from) = first.next else { return Ok(head.boxed()) };
        let (store, load) = (self.clone(), Arc::new(load));
        let pages = stream::unfold(Some(from), move |from| {
            let (store, load) = (store.clone(), Arc::clone(&load));
            async move {
                let from = from?;
                let page = store.scan("load", move |view| load.page(view, from, Limits::LARGE)).await;
                match page {
                    Ok(page) => Some((page.commits.into_iter().map(Ok).collect::<Vec<_>>(), page.next)),
                    Err(error) => Some((vec![Err(error)], None)),
                }
            }
        });
        Ok(head.chain(pages.flat_map(stream::iter)).boxed())
    }
}

#[async_trait]
impl EventLog for EmbeddedStore {
    async fn append_checked(&self, commit: CheckedCommit) -> Result<Receipt> {
        let (mut prepared, count) = (Prepared::new(commit), self.default_partitions());
        self.write("append", prepared.bytes(), move |tx| prepared.append(tx, count)).await
    }

    async fn append_all_checked(&self, commits: Vec<CheckedCommit>) -> Result<Vec<Receipt>> {
        check_append_all(&commits).map_err(self.describe("append_all"))?;
        let count = self.default_partitions();
        let mut prepared: Vec<Prepared> = commits.into_iter().map(Prepared::new).collect();
        let bytes = prepared.iter().map(Prepared::bytes).fold(0, usize::saturating_add);
        self.write("append_all", bytes, move |tx| {
            prepared.iter_mut().map(|commit| commit.append(tx, count)).collect::<Result<Vec<_>>>()
        })
        .await
    }

    async fn receipt(&self, aggregate_id: &AggregateId, command_id: &CommandId) -> Result<Option<Receipt>> {
        let place = places::receipt(aggregate_id, command_id);
        self.read("receipt", |view| {
            let receipt: Option<ReceiptRecord> = view.record(&place)?;
            Ok(receipt.map(|receipt| receipt.replay(aggregate_id)))
        })
    }

    async fn head(&self, aggregate_id: &AggregateId) -> Result<Version> {
        self.read("head", |view| append::head(view, &places::aggregate(aggregate_id)))
    }

    async fn load_range(&self, aggregate_id: &AggregateId, versions: VersionRange) -> Result<CommitStream> {
        self.load_while(aggregate_id, versions, |_| true)
    }

    async fn load_as_of(&self, aggregate_id: &AggregateId, instant: Timestamp) -> Result<CommitStream> {
        self.load_while(aggregate_id, VersionRange::ALL, move |commit| commit.committed_at <= instant)
    }

    async fn partitions(&self, context: &ContextName) -> Result<PartitionCount> {
        let place = places::context(context);
        if let Some(count) = self.read("partitions", |view| view.record(&place))? {
            return Ok(count);
        }
        let count = self.default_partitions();
        self.write("partitions", 0, move |tx| match tx.record(&place)? {
            Some(count) => Ok(count),
            None => {
                tx.store(place, &count);
                Ok(count)
            }
        })
        .await
    }

    async fn heads(&self, context: &ContextName) -> Result<Vec<Position>> {
        self.read("heads", |view| {
            let count: Option<PartitionCount> = view.record(&places::context(context))?;
            let count = count.map_or(0, PartitionCount::get);
            let mut heads = vec![0; usize::try_from(count).unwrap_or_default()];
            for head in view.records::<Head>(&places::heads(context)) {
                let head = head?;
                match usize::try_from(head.partition).ok().and_then(|index| heads.get_mut(index)) {
                    Some(slot) => *slot = head.position,
                    None => {
                        let place = format!("state, head of {context}#{}", head.partition);
                        return Err(Error::corrupt(place, format!("the context has {count} partitions")));
                    }
                }
            }
            Ok(heads)
        })
    }

    async fn read(&self, page: ReadPage) -> Result<Page> {
        let pace = self.read("read", |view| pages::pace(view, &page))?;
        match pace {
            Pace::Done(page) => Ok(page),
            Pace::Short => self.read("read", |view| pages::read(view, &page)),
            Pace::Long => self.scan("read", move |view| pages::read(view, &page)).await,
        }
    }

    async fn aggregate_types(&self) -> Result<Vec<AggregateType>> {
        self.read("aggregate_types", |view| view.records(&places::aggregate_types()).collect())
    }

    async fn watch(&self, context: &ContextName) -> Result<Watcher> {
        self.wakeups().watch(context).map_err(self.describe("watch"))
    }
}
