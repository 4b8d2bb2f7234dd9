//! The whole of a store: the sum of its topics, and the comfortable form of it.

use std::{
    ops::{Bound, RangeBounds},
    sync::Arc,
};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::{
    checkpoint::Checkpoints,
    commit::{Commit, Receipt},
    error::Result,
    lease::Leases,
    ledger::FailureLedger,
    log::{CommitStream, EventLog, Version, VersionRange},
    name::AggregateId,
    query::Queries,
    reservation::Reservations,
    snapshot::Snapshots,
    tail::{Tail, TailRequest},
    time::Timestamp,
    timer::Timers,
};

/// A stored structure and the version of its format (D3).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Format {
    /// The structure, e.g. `log`.
    pub structure: String,
    /// The version of its format, from 1.
    pub version: u32,
}

/// What is not about events: who a store is, what time it is there, its formats, and its end.
#[async_trait]
pub trait StoreAdmin: Send + Sync {
    /// The name of this store instance, as configured: what its errors show. Needs no server.
    ///
    /// ```
    /// # use wow_store_api::{MemoryStore, StoreAdmin};
    /// let store = MemoryStore::builder().name("orders").build();
    /// assert_eq!(&**store.name(), "orders");
    /// ```
    fn name(&self) -> &Arc<str>;

    /// The kind of store: `memory`, `embedded`, `postgres` or `mongo`. Needs no server.
    ///
    /// ```
    /// # use wow_store_api::{MemoryStore, StoreAdmin};
    /// assert_eq!(MemoryStore::new().backend(), "memory");
    /// ```
    fn backend(&self) -> &'static str;

    /// The instant now by the clock that the store judges everything by (E1, R2, M1), its server's, cut to the millisecond.
    ///
    /// # Errors
    /// Those of any read.
    ///
    /// Cancel-safety: dropping the future changes nothing.
    ///
    /// ```
    /// # futures::executor::block_on(async {
    /// # use wow_store_api::{AggregateId, Commit, ErrorKind, MemoryStore, StoreAdmin, StoreExt};
    /// # let store = MemoryStore::new();
    /// let lead = store.now().await?.as_millis() - jiff::Timestamp::now().as_millisecond();
    /// assert!(lead.abs() < 60_000, "this store has the clock of the machine");
    /// # Ok::<_, wow_store_api::Error>(()) }).unwrap();
    /// ```
    async fn now(&self) -> Result<Timestamp>;

    /// The formats of what is stored, by structure (D3); versions count from 1. A store with a newer format than this version
    /// knows is refused when it is opened.
    ///
    /// # Errors
    /// Those of any read.
    ///
    /// Cancel-safety: dropping the future changes nothing.
    ///
    /// ```
    /// # futures::executor::block_on(async {
    /// # use wow_store_api::{AggregateId, Commit, ErrorKind, MemoryStore, StoreAdmin, StoreExt};
    /// # let store = MemoryStore::new();
    /// for format in store.formats().await? {
    ///     println!("{} has format {}", format.structure, format.version);
    /// }
    /// # Ok::<_, wow_store_api::Error>(()) }).unwrap();
    /// ```
    async fn formats(&self) -> Result<Vec<Format>>;

    /// Closes the store: appends that are under way are finished (L1), tails end with [`Closed`](crate::ErrorKind::Closed),
    /// and so does every later call. Nothing is stored any more, and what the store holds exclusively is free, when this
    /// returns. Closing twice is fine; clones are the same store.
    ///
    /// # Errors
    /// What kept it from closing cleanly; it is closed all the same.
    ///
    /// Cancel-safety: dropping the future leaves the store closed or closing: later calls may be refused already, while what
    /// is under way is still being finished.
    ///
    /// ```
    /// # futures::executor::block_on(async {
    /// # use wow_store_api::{AggregateId, Commit, ErrorKind, MemoryStore, StoreAdmin, StoreExt};
    /// # let store = MemoryStore::new();
    /// store.close().await?;
    /// let late = Commit::new(AggregateId::new("shop", "order", "42")?, "cmd-7").event("OrderPlaced", 1, &0)?;
    /// assert!(matches!(store.append(late).await.unwrap_err().kind(), ErrorKind::Closed));
    /// # Ok::<_, wow_store_api::Error>(()) }).unwrap();
    /// ```
    async fn close(&self) -> Result<()>;
}

/// Everything that an event-sourced service stores. Object-safe: `Arc<dyn EventStore>`.
pub trait EventStore:
    EventLog
    + Checkpoints
    + Leases
    + Snapshots
    + FailureLedger
    + Reservations
    + Timers
    + Queries
    + StoreAdmin
    + 'static
{
}

impl<S> EventStore for S where
    S: EventLog
        + Checkpoints
        + Leases
        + Snapshots
        + FailureLedger
        + Reservations
        + Timers
        + Queries
        + StoreAdmin
        + ?Sized
        + 'static
{
}

/// The comfortable form of [`EventLog`], for every store and for `dyn EventStore`.
#[async_trait]
pub trait StoreExt: EventLog {
    /// Checks a commit and appends it: [`Commit::check`], then [`EventLog::append_checked`] (L1 to L8).
    ///
    /// # Errors
    /// Those of both; nothing is stored if the check refuses it.
    ///
    /// ```
    /// # futures::executor::block_on(async {
    /// # use wow_store_api::{AggregateId, Commit, ErrorKind, ExpectedVersion, MemoryStore, StoreExt};
    /// let store = MemoryStore::new();
    /// let place = Commit::new(AggregateId::new("shop", "order", "42")?, "cmd-7")
    ///     .expect(ExpectedVersion::NoStream)
    ///     .event("OrderPlaced", 1, &42)?;
    /// assert_eq!(store.append(place.clone()).await?.version(), 1);
    /// assert!(store.append(place).await?.replayed, "the same command again stores nothing");
    ///
    /// let none = Commit::new(AggregateId::new("shop", "order", "42")?, "cmd-8");
    /// assert!(matches!(store.append(none).await.unwrap_err().kind(), ErrorKind::InvalidInput { .. }), "no event");
    /// # Ok::<_, wow_store_api::Error>(()) }).unwrap();
    /// ```
    async fn append(&self, commit: Commit) -> Result<Receipt> {
        let commit = commit.check().map_err(|error| error.with_operation("append"))?;
        self.append_checked(commit).await
    }

    /// Checks several commits and appends them, all or nothing: [`EventLog::append_all_checked`] (L11).
    ///
    /// # Errors
    /// Those of both; nothing is stored if the check refuses one.
    ///
    /// ```
    /// # futures::executor::block_on(async {
    /// # use wow_store_api::{AggregateId, Commit, MemoryStore, StoreExt};
    /// let store = MemoryStore::new();
    /// let moved = |account: &str, name: &str| {
    ///     Commit::new(AggregateId::new("bank", "account", account)?, "transfer-9").event(name, 1, &10)
    /// };
    /// let receipts = store.append_all([moved("a", "Debited")?, moved("b", "Credited")?]).await?;
    /// assert_eq!(receipts.len(), 2);
    /// # Ok::<_, wow_store_api::Error>(()) }).unwrap();
    /// ```
    async fn append_all<I>(&self, commits: I) -> Result<Vec<Receipt>>
    where
        I: IntoIterator<Item = Commit> + Send,
        I::IntoIter: Send,
    {
        let commits: Result<Vec<_>> = commits.into_iter().map(Commit::check).collect();
        let commits = commits.map_err(|error| error.with_operation("append_all"))?;
        self.append_all_checked(commits).await
    }

    /// The commits of an aggregate with versions in any range, e.g. `1..`, `..`, `5..=9`:
    /// [`EventLog::load_range`] (L9).
    ///
    /// # Errors
    /// As for [`EventLog::load_range`].
    ///
    /// ```
    /// # futures::executor::block_on(async {
    /// # use wow_store_api::{AggregateId, Commit, MemoryStore, StoreExt};
    /// use futures_util::TryStreamExt;
    ///
    /// let store = MemoryStore::new();
    /// let id = AggregateId::new("shop", "order", "42")?;
    /// store.append(Commit::new(id.clone(), "cmd-7").event("OrderPlaced", 1, &42)?).await?;
    /// let commits: Vec<_> = store.load(&id, 1..).await?.try_collect().await?;
    /// assert_eq!(commits[0].events[0].body.decode::<u32>().unwrap(), 42);
    /// # Ok::<_, wow_store_api::Error>(()) }).unwrap();
    /// ```
    async fn load<R>(&self, aggregate_id: &AggregateId, versions: R) -> Result<CommitStream>
    where
        R: RangeBounds<Version> + Send,
    {
        let bounds: (Bound<&Version>, Bound<&Version>) = (versions.start_bound(), versions.end_bound());
        self.load_range(aggregate_id, VersionRange::new((bounds.0.cloned(), bounds.1.cloned()))).await
    }

    /// Opens a tail: [`Tail::open`] (T1 to T5).
    ///
    /// # Errors
    /// As for [`Tail::open`].
    ///
    /// ```
    /// # futures::executor::block_on(async {
    /// # use wow_store_api::{ContextName, MemoryStore, StoreExt, TailRequest};
    /// let store = std::sync::Arc::new(MemoryStore::new());
    /// let mut tail = store.tail(TailRequest::new(ContextName::new("shop")?)).await?;
    /// assert!(tail.try_next().await?.is_none(), "nothing is there yet");
    /// # Ok::<_, wow_store_api::Error>(()) }).unwrap();
    /// ```
    async fn tail(self: &Arc<Self>, request: TailRequest) -> Result<Tail<Self>>
    where
        Self: 'static,
    {
        Tail::open(Arc::clone(self), request).await
    }
}

impl<S: EventLog + ?Sized> StoreExt for S {}
