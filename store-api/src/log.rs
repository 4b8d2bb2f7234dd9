//! The event log: append, load, read (L1 to L11).
//!
//! ```text
//!  context "shop", 3 partitions           aggregate shop.order/42, in partition 1
//!
//!  partition 0   1 2 3 4 5                version   1    2         3
//!  partition 1   1 2 3 4 5 6 7            position  2    3         7
//!  partition 2   1 2                                │    │         │
//!                ▲           ▲                      └────┴─────────┴─ dense, from 1
//!                │           └ head: the last position
//!                └ gapless, from 1, in commit order; 0 = before the first
//! ```

use std::{
    collections::BTreeSet,
    fmt,
    ops::{Bound, RangeBounds},
};

use async_trait::async_trait;
use futures_core::stream::BoxStream;

use crate::{
    commit::{CheckedCommit, Receipt, RecordedCommit},
    error::{Error, Result},
    name::{AggregateId, AggregateName, AggregateType, CommandId, ContextName, EventName},
    partition::{PartitionCount, PartitionId},
    time::Timestamp,
    wakeup::Watcher,
};

/// The number of a commit in its aggregate: 1, 2, 3 …; 0 where there is none. At most [`MAX_COUNTER`].
pub type Version = u64;

/// The number of a commit in its partition: 1, 2, 3 …; 0 before the first. At most [`MAX_COUNTER`].
pub type Position = u64;

/// The fencing token of a lease: rises with every change of owner. 0 where there was none. At most [`MAX_COUNTER`].
pub type Epoch = u64;

/// The last value of versions, positions and epochs: `i64::MAX`. What would go beyond it is refused with
/// [`crate::ErrorKind::Exhausted`].
pub const MAX_COUNTER: u64 = i64::MAX.unsigned_abs();

/// Commits of one aggregate in the order of their versions. An error ends it; a stream that ends without one is
/// complete.
pub type CommitStream = BoxStream<'static, Result<RecordedCommit>>;

/// Which versions to load, both bounds inclusive. Made from any range of `u64`, also `..`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VersionRange {
    /// The first version (inclusive); there is none below 1.
    pub first: Version,
    /// The last version (inclusive). The range is empty if it is below `first`.
    pub last: Version,
}

impl VersionRange {
    /// All versions.
    pub const ALL: Self = Self { first: 1, last: MAX_COUNTER };

    /// The versions of a range of any form.
    pub fn new(range: impl RangeBounds<Version>) -> Self {
        let first = match range.start_bound() {
            Bound::Included(first) => *first,
            Bound::Excluded(before) => before.saturating_add(1),
            Bound::Unbounded => 1,
        };
        let last = match range.end_bound() {
            Bound::Included(last) => *last,
            Bound::Excluded(0) => return Self { first: 1, last: 0 },
            Bound::Excluded(after) => after - 1,
            Bound::Unbounded => MAX_COUNTER,
        };
        Self { first: first.max(1), last: last.min(MAX_COUNTER) }
    }

    /// Whether it holds no version.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.first > self.last
    }

    /// Whether it holds this version.
    #[must_use]
    pub fn contains(self, version: Version) -> bool {
        (self.first..=self.last).contains(&version)
    }
}

/// Which commits of a context to see (T5). Everything unless restricted; both restrictions must hold.
///
/// A commit is delivered whole: if one of its events is asked for, its other events come with it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CommitFilter {
    aggregates: Option<BTreeSet<AggregateName>>,
    events: Option<BTreeSet<EventName>>,
}

impl CommitFilter {
    /// Every commit.
    #[must_use]
    pub fn all() -> Self {
        Self::default()
    }

    /// Only commits on aggregates with one of these names. Called again, it adds names.
    #[must_use]
    pub fn with_aggregates(mut self, names: impl IntoIterator<Item = AggregateName>) -> Self {
        self.aggregates.get_or_insert_default().extend(names);
        self
    }

    /// Only commits with at least one event with one of these names. Called again, it adds names.
    #[must_use]
    pub fn with_events(mut self, names: impl IntoIterator<Item = EventName>) -> Self {
        self.events.get_or_insert_default().extend(names);
        self
    }

    /// The aggregate names that are let through; `None`: all.
    #[must_use]
    pub fn aggregates(&self) -> Option<&BTreeSet<AggregateName>> {
        self.aggregates.as_ref()
    }

    /// The event names that are let through; `None`: all.
    #[must_use]
    pub fn events(&self) -> Option<&BTreeSet<EventName>> {
        self.events.as_ref()
    }

    /// Whether it lets everything through.
    #[must_use]
    pub fn is_all(&self) -> bool {
        self.aggregates.is_none() && self.events.is_none()
    }

    /// Whether it lets this commit through.
    #[must_use]
    pub fn matches(&self, commit: &RecordedCommit) -> bool {
        self.matches_parts(
            commit.aggregate_id.aggregate_type().name(),
            commit.events.iter().map(|event| &event.name),
        )
    }

    /// The same from the parts that it looks at.
    #[must_use]
    pub fn matches_parts<'a>(
        &self,
        aggregate: &AggregateName,
        mut events: impl Iterator<Item = &'a EventName>,
    ) -> bool {
        self.aggregates.as_ref().is_none_or(|names| names.contains(aggregate))
            && self.events.as_ref().is_none_or(|names| events.any(|name| names.contains(name)))
    }
}

/// A request for one page of a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadPage {
    /// The partition.
    pub partition: PartitionId,
    /// Read from just after this position (exclusive); 0 for the beginning.
    pub after_position: Position,
    /// At most so many commits (inclusive), 1 to [`ReadPage::LIMIT_MAX_COMMITS`]; a store moves what is outside to the
    /// nearer bound.
    pub max_commits: usize,
    /// Stop after the commit with which the events' bodies reach this many bytes. The first commit is always
    /// delivered, however large.
    pub max_bytes: usize,
    /// Which commits to deliver.
    pub filter: CommitFilter,
}

impl ReadPage {
    /// Commits in a page unless set otherwise.
    pub const DEFAULT_MAX_COMMITS: usize = 1_000;
    /// Most commits that a page can hold (inclusive); more are asked for in vain.
    pub const LIMIT_MAX_COMMITS: usize = 10_000;
    /// Bytes in a page unless set otherwise.
    pub const DEFAULT_MAX_BYTES: usize = 4 * 1024 * 1024;

    /// A page of everything after `after_position` (exclusive).
    #[must_use]
    pub fn new(partition: PartitionId, after_position: Position) -> Self {
        Self {
            partition,
            after_position,
            max_commits: Self::DEFAULT_MAX_COMMITS,
            max_bytes: Self::DEFAULT_MAX_BYTES,
            filter: CommitFilter::all(),
        }
    }

    /// At most so many commits: 1 to [`ReadPage::LIMIT_MAX_COMMITS`]; what is outside is moved to the nearer bound.
    #[must_use]
    pub fn with_max_commits(mut self, max_commits: usize) -> Self {
        self.max_commits = max_commits.clamp(1, Self::LIMIT_MAX_COMMITS);
        self
    }

    /// Stop at about so many bytes.
    #[must_use]
    pub fn with_max_bytes(mut self, max_bytes: usize) -> Self {
        self.max_bytes = max_bytes;
        self
    }

    /// Only what the filter lets through.
    #[must_use]
    pub fn with_filter(mut self, filter: CommitFilter) -> Self {
        self.filter = filter;
        self
    }
}

/// One page of a partition.
#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    /// The commits, in the order of their positions.
    pub commits: Vec<RecordedCommit>,
    /// Everything up to this position (inclusive) was looked at: what of it is not in `commits` was filtered out.
    /// Never below the position that was asked for.
    pub through: Position,
    /// Whether there was more behind `through` when the page was read.
    pub more: bool,
}

impl Page {
    /// A page that found nothing new.
    #[must_use]
    pub fn empty(after_position: Position) -> Self {
        Self { commits: Vec::new(), through: after_position, more: false }
    }
}

/// The event log.
///
/// Use [`crate::StoreExt`] for the comfortable form of the same (`append(commit)`, `load(&id, 1..)`, `tail`).
///
/// What holds for all methods:
///
/// - L4 **Durable**: what was acknowledged survives a crash of client and server; what a reader has seen is never
///   taken back.
/// - L6 **Every error says whether it applied** ([`Error::outcome`](crate::Error::outcome)). An append settles an
///   unknown outcome itself, by asking for its command id again while its deadline (`transaction_timeout`, 5 s unless
///   configured, retries included) lasts.
/// - **Cancel-safety**: every method may be dropped at any time. A dropped append is applied whole or not at all, as
///   with a lost connection: append the same command again to learn which. Dropping never wedges a connection.
#[async_trait]
pub trait EventLog: Send + Sync + fmt::Debug {
    /// Appends one commit.
    ///
    /// - L1 **Atomic**: the commit with all that rides in it is stored whole or not at all.
    /// - L2 **Dense versions**: it is stored only if the aggregate is at the expected version, and gets the next one.
    ///   Never two commits with one version, never a hole.
    /// - L3 **Idempotent**: if the aggregate already holds the command id, nothing is stored and the first receipt is
    ///   returned, marked as replayed, whatever the expected version, the fence or the events given, however
    ///   concurrent, however long ago.
    /// - L4 **Durable** when it returns `Ok`.
    /// - L5 **Positions**: it gets the next position of its partition. Commit order is position order.
    /// - L7 **Fenced**: with a fence, it is refused if a higher epoch of that lease is known, from the lease itself or
    ///   from an earlier fenced write. The store remembers the highest epoch of each lease.
    /// - L8 **Group commit is invisible**: appends that share a transaction do not share outcomes. Order of arrival
    ///   is kept for one aggregate.
    /// - L10 **New aggregate types** may appear at any time, on many nodes at once.
    /// - R5 **Riders**: reservations and timers in the commit are changed in the same transaction; if one cannot be,
    ///   nothing is stored.
    ///
    /// Looked at in this order: command id (replay), fence, expected version, reservations, timers.
    ///
    /// # Errors
    /// [`VersionConflict`](crate::ErrorKind::VersionConflict), [`Fenced`](crate::ErrorKind::Fenced),
    /// [`ReservationTaken`](crate::ErrorKind::ReservationTaken),
    /// [`ReservationNotHeld`](crate::ErrorKind::ReservationNotHeld),
    /// [`TimerExists`](crate::ErrorKind::TimerExists), [`Exhausted`](crate::ErrorKind::Exhausted): all
    /// `NotApplied`. [`Timeout`](crate::ErrorKind::Timeout) and [`Unavailable`](crate::ErrorKind::Unavailable) may be
    /// `Unknown`.
    ///
    /// ```
    /// # futures::executor::block_on(async {
    /// use wow_store_api::{AggregateId, Commit, ErrorKind, ExpectedVersion, MemoryStore, StoreExt};
    ///
    /// let store = MemoryStore::new();
    /// let order = AggregateId::new("shop", "order", "42")?;
    /// let place = Commit::new(order.clone(), "cmd-7")
    ///     .expect(ExpectedVersion::NoStream)
    ///     .event("OrderPlaced", 1, &serde_json::json!({"lines": 3}))?;
    ///
    /// let receipt = store.append(place.clone()).await?;
    /// assert_eq!((receipt.version, receipt.replayed), (1, false));
    ///
    /// // The reply was lost? Append it again.
    /// let again = store.append(place).await?;
    /// assert_eq!((again.position, again.replayed), (receipt.position, true));
    ///
    /// // Someone else's decision, taken on what is no longer the state:
    /// let late = Commit::new(order, "cmd-8")
    ///     .expect(ExpectedVersion::NoStream)
    ///     .event("OrderPlaced", 1, &serde_json::json!({"lines": 1}))?;
    /// let error = store.append(late).await.unwrap_err();
    /// assert!(matches!(error.kind(), ErrorKind::VersionConflict { actual: 1, .. }));
    /// # Ok::<_, wow_store_api::Error>(()) }).unwrap();
    /// ```
    async fn append_checked(&self, commit: CheckedCommit) -> Result<Receipt>;

    /// Appends several commits, of any aggregates, contexts and partitions of this store.
    ///
    /// - L11 **All or nothing**, each with its own expectation. They are looked at in the order given; a later one
    ///   sees the earlier ones (two commits on one aggregate get two versions). Commits whose command is already
    ///   stored are replayed; the others are stored. Partitions are locked in one order, so that two such calls never
    ///   deadlock.
    /// - All of [`append_checked`](Self::append_checked) for each commit.
    ///
    /// No commits at all is fine and gives no receipts. Receipts are in the order of the commits.
    ///
    /// # Errors
    /// As for [`append_checked`](Self::append_checked), the first one found; then nothing of any commit is stored.
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for more than
    /// [`MAX_COMMITS_PER_APPEND`](crate::MAX_COMMITS_PER_APPEND) commits,
    /// [`TooLarge`](crate::ErrorKind::TooLarge) above [`MAX_APPEND_BYTES`](crate::MAX_APPEND_BYTES) together.
    ///
    /// ```
    /// # futures::executor::block_on(async {
    /// use wow_store_api::{AggregateId, Commit, EventLog, ExpectedVersion, MemoryStore, StoreExt};
    ///
    /// let store = MemoryStore::new();
    /// let (from, to) = (AggregateId::new("bank", "account", "a")?, AggregateId::new("bank", "account", "b")?);
    /// let transfer = |id: &AggregateId, name: &str, expected| {
    ///     Commit::new(id.clone(), "transfer-1").expect(expected).event(name, 1, &serde_json::json!({"cents": 5}))
    /// };
    /// let half_stale = [
    ///     transfer(&from, "Debited", ExpectedVersion::NoStream)?,
    ///     transfer(&to, "Credited", ExpectedVersion::Exact(9))?,
    /// ];
    /// assert!(store.append_all(half_stale).await.is_err());
    /// assert_eq!(store.head(&from).await?, 0, "nothing of it is stored");
    /// # Ok::<_, wow_store_api::Error>(()) }).unwrap();
    /// ```
    async fn append_all_checked(&self, commits: Vec<CheckedCommit>) -> Result<Vec<Receipt>>;

    /// The receipt of a command, if the aggregate holds it (L3), marked as replayed.
    ///
    /// # Errors
    /// Those of any read: [`Unavailable`](crate::ErrorKind::Unavailable), [`Timeout`](crate::ErrorKind::Timeout),
    /// [`Corrupt`](crate::ErrorKind::Corrupt), [`Closed`](crate::ErrorKind::Closed).
    ///
    /// ```
    /// # futures::executor::block_on(async {
    /// # use wow_store_api::{AggregateId, Commit, EventLog, MemoryStore, StoreExt};
    /// let store = MemoryStore::new();
    /// let id = AggregateId::new("shop", "order", "42")?;
    /// let command = "cmd-7".parse()?;
    /// assert!(store.receipt(&id, &command).await?.is_none());
    ///
    /// store.append(Commit::new(id.clone(), "cmd-7").event("OrderPlaced", 1, &42)?).await?;
    /// let receipt = store.receipt(&id, &command).await?.expect("it is stored");
    /// assert!(receipt.version() == 1 && receipt.replayed);
    /// # Ok::<_, wow_store_api::Error>(()) }).unwrap();
    /// ```
    async fn receipt(&self, aggregate_id: &AggregateId, command_id: &CommandId) -> Result<Option<Receipt>>;

    /// The aggregate's last version; 0 if it has no commit (L9).
    ///
    /// # Errors
    /// Those of any read.
    ///
    /// ```
    /// # futures::executor::block_on(async {
    /// # use wow_store_api::{AggregateId, Commit, EventLog, MemoryStore, StoreExt};
    /// let store = MemoryStore::new();
    /// let id = AggregateId::new("shop", "order", "42")?;
    /// assert_eq!(store.head(&id).await?, 0);
    /// store.append(Commit::new(id.clone(), "cmd-7").event("OrderPlaced", 1, &42)?).await?;
    /// assert_eq!(store.head(&id).await?, 1);
    /// # Ok::<_, wow_store_api::Error>(()) }).unwrap();
    /// ```
    async fn head(&self, aggregate_id: &AggregateId) -> Result<Version>;

    /// The commits of an aggregate with versions in the range, both bounds inclusive (L9).
    ///
    /// The stream reads in pages of bounded size, so a long aggregate takes no more memory than a short one. It ends
    /// where the aggregate ended when its last page was read, and it either yields every version of the range up to
    /// there, dense and in order, or ends with an error: never early as if complete. Versions beyond the last are
    /// not an error; the stream just ends.
    ///
    /// # Errors
    /// Those of any read, at once or as the stream's last item.
    ///
    /// ```
    /// # futures::executor::block_on(async {
    /// use futures_util::TryStreamExt;
    /// use wow_store_api::{AggregateId, Commit, MemoryStore, StoreExt};
    ///
    /// let store = MemoryStore::new();
    /// let id = AggregateId::new("shop", "order", "42")?;
    /// for n in 1..=3 {
    ///     store.append(Commit::new(id.clone(), format!("cmd-{n}")).event("Counted", 1, &n)?).await?;
    /// }
    /// let commits: Vec<_> = store.load(&id, 2..).await?.try_collect().await?;
    /// assert_eq!(commits.iter().map(|commit| commit.version).collect::<Vec<_>>(), [2, 3]);
    /// # Ok::<_, wow_store_api::Error>(()) }).unwrap();
    /// ```
    async fn load_range(&self, aggregate_id: &AggregateId, versions: VersionRange) -> Result<CommitStream>;

    /// The commits of an aggregate that were committed at this instant or before (inclusive), by the store's clock
    /// (L9). Instants never fall along a partition, so this is always a prefix.
    ///
    /// # Errors
    /// Those of any read.
    ///
    /// ```
    /// # futures::executor::block_on(async {
    /// # use wow_store_api::{AggregateId, Commit, EventLog, MemoryStore, StoreExt};
    /// use futures_util::TryStreamExt;
    ///
    /// let store = MemoryStore::new();
    /// let id = AggregateId::new("shop", "order", "42")?;
    /// let receipt = store.append(Commit::new(id.clone(), "cmd-7").event("OrderPlaced", 1, &42)?).await?;
    /// let then: Vec<_> = store.load_as_of(&id, receipt.committed_at).await?.try_collect().await?;
    /// assert_eq!(then.len(), 1, "the instant itself is included");
    /// # Ok::<_, wow_store_api::Error>(()) }).unwrap();
    /// ```
    async fn load_as_of(&self, aggregate_id: &AggregateId, instant: Timestamp) -> Result<CommitStream>;

    /// How many partitions the context has. Asking is a first use: if the context was never used, the configured
    /// count is recorded now, and never changes. An append is a first use too, perhaps even one that is refused.
    ///
    /// # Errors
    /// Those of any read or write.
    ///
    /// ```
    /// # futures::executor::block_on(async {
    /// # use wow_store_api::{ContextName, EventLog, MemoryStore, PartitionCount};
    /// let store = MemoryStore::builder().partitions(PartitionCount::new(4)?).build();
    /// assert_eq!(store.partitions(&ContextName::new("shop")?).await?.get(), 4);
    /// # Ok::<_, wow_store_api::Error>(()) }).unwrap();
    /// ```
    async fn partitions(&self, context: &ContextName) -> Result<PartitionCount>;

    /// The last position of each partition of the context, by index; 0 where a partition is empty (L9). Empty if the
    /// context was never used; whether a refused append was a use is the store's to say. Costs one small read per
    /// partition at most, never a count of commits.
    ///
    /// # Errors
    /// Those of any read.
    ///
    /// ```
    /// # futures::executor::block_on(async {
    /// # use wow_store_api::{AggregateId, Commit, ContextName, EventLog, MemoryStore, StoreExt};
    /// let store = MemoryStore::new();
    /// let shop = ContextName::new("shop")?;
    /// assert!(store.heads(&shop).await?.is_empty(), "never used");
    /// store.append(Commit::new(AggregateId::new("shop", "order", "42")?, "cmd-7").event("OrderPlaced", 1, &42)?).await?;
    /// assert_eq!(store.heads(&shop).await?.iter().sum::<u64>(), 1);
    /// # Ok::<_, wow_store_api::Error>(()) }).unwrap();
    /// ```
    async fn heads(&self, context: &ContextName) -> Result<Vec<Position>>;

    /// One page of a partition, in the order of positions (L9).
    ///
    /// - L5 **A reader that sees position p can see all of 1..=p**, now and for ever. A page stops before a position
    ///   that is not visible yet and never steps over it. Nothing rests on the age of anything.
    /// - T2 At most `max_commits`, and about `max_bytes`.
    /// - T5 The filter is evaluated by the store; `through` advances past what it leaves out. A page may be empty and
    ///   still have advanced.
    ///
    /// A context that was never used reads as empty.
    ///
    /// A read may be begun ahead of its need and polled again much later: meanwhile it holds nothing that others wait
    /// for, neither a connection nor a lock.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for a partition that the context does not have;
    /// [`Corrupt`](crate::ErrorKind::Corrupt) where a position at or below the head is missing or damaged; those of
    /// any read.
    ///
    /// ```
    /// # futures::executor::block_on(async {
    /// # use wow_store_api::{AggregateId, Commit, EventLog, MemoryStore, ReadPage, StoreExt};
    /// let store = MemoryStore::new();
    /// let id = AggregateId::new("shop", "order", "42")?;
    /// let receipt = store.append(Commit::new(id.clone(), "cmd-7").event("OrderPlaced", 1, &42)?).await?;
    ///
    /// let page = store.read(ReadPage::new(receipt.partition.clone(), 0)).await?;
    /// assert_eq!(page.commits[0].position, receipt.position());
    /// assert_eq!(page.through, receipt.position(), "the next page starts after it");
    /// assert!(!page.more);
    /// # Ok::<_, wow_store_api::Error>(()) }).unwrap();
    /// ```
    async fn read(&self, page: ReadPage) -> Result<Page>;

    /// The aggregate types that have at least one commit, in order. A type appears with its first commit (L10).
    ///
    /// # Errors
    /// Those of any read.
    ///
    /// ```
    /// # futures::executor::block_on(async {
    /// # use wow_store_api::{AggregateId, Commit, EventLog, MemoryStore, StoreExt};
    /// let store = MemoryStore::new();
    /// assert!(store.aggregate_types().await?.is_empty());
    /// store.append(Commit::new(AggregateId::new("shop", "order", "42")?, "cmd-7").event("OrderPlaced", 1, &42)?).await?;
    /// assert_eq!(store.aggregate_types().await?, ["shop.order".parse()?]);
    /// # Ok::<_, wow_store_api::Error>(()) }).unwrap();
    /// ```
    async fn aggregate_types(&self) -> Result<Vec<AggregateType>>;

    /// Watches a context for new commits: what a tail sleeps on (T3, T4).
    ///
    /// The watcher is woken after every commit that becomes visible after this call returned, or at the latest one
    /// poll interval later where a notification was lost. It may be woken for nothing. All watchers of a store share
    /// one notification connection.
    ///
    /// # Errors
    /// [`Closed`](crate::ErrorKind::Closed).
    ///
    /// ```
    /// # futures::executor::block_on(async {
    /// # use wow_store_api::{AggregateId, Commit, ContextName, EventLog, MemoryStore, StoreExt};
    /// let store = MemoryStore::new();
    /// let mut watcher = store.watch(&ContextName::new("shop")?).await?;
    /// let commit = Commit::new(AggregateId::new("shop", "order", "42")?, "cmd-7").event("OrderPlaced", 1, &42)?;
    /// let receipt = store.append(commit).await?;
    /// assert!(watcher.changed().await?.contains(receipt.partition.index()));
    /// # Ok::<_, wow_store_api::Error>(()) }).unwrap();
    /// ```
    async fn watch(&self, context: &ContextName) -> Result<Watcher>;
}

/// Checks what every backend checks of an `append_all` before it touches anything (L11).
///
/// # Errors
/// [`InvalidInput`](crate::ErrorKind::InvalidInput) or [`TooLarge`](crate::ErrorKind::TooLarge) beyond
/// [`MAX_COMMITS_PER_APPEND`](crate::MAX_COMMITS_PER_APPEND) or [`MAX_APPEND_BYTES`](crate::MAX_APPEND_BYTES).
pub fn check_append_all(commits: &[CheckedCommit]) -> Result<()> {
    if commits.len() > crate::MAX_COMMITS_PER_APPEND {
        return Err(Error::invalid_input(format!(
            "{} commits in one append, at most {} may be",
            commits.len(),
            crate::MAX_COMMITS_PER_APPEND
        )));
    }
    let size: usize = commits.iter().map(CheckedCommit::encoded_size).sum();
    if size > crate::MAX_APPEND_BYTES {
        return Err(Error::not_applied(crate::ErrorKind::TooLarge {
            what: "append of several commits",
            size,
            limit: crate::MAX_APPEND_BYTES,
        }));
    }
    Ok(())
}
