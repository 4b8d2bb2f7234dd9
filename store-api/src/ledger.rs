//! The failure ledger: the aggregates whose events a subscription could not handle (F1 to F3).
//!
//! One entry per subscription and aggregate, in one of three states:
//!
//! ```text
//!              record_attempt             park                    retry / discard
//!   (no entry) ──────────────▶ Trying ──────────▶ Parked ──────────────────────▶ Retrying
//!        ▲                        │                  ▲                               │
//!        │        resolve         │                  └────────────── park ───────────┤
//!        ├────────────────────────┘                                                  │
//!        └───────────────────────────────────── resolve ─────────────────────────────┘
//! ```
//!
//! While an aggregate is *parked*, the subscription leaves its commits out and goes on with the others (F1). While it
//! is *retrying*, the owner of the partition handles the aggregate's commits from `from_version` on, in order, until
//! it has caught up, and then resolves it (F2).

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::{
    error::{Error, Result},
    lease::Fence,
    log::{Epoch, MAX_COUNTER, Position, Version},
    name::{AggregateId, SubscriptionName},
    partition::PartitionId,
    time::Timestamp,
};

/// Longest error text, and longest event name, that is kept, in bytes (inclusive); the rest is cut at a character
/// boundary.
pub const MAX_FAILURE_TEXT_BYTES: usize = 4096;

/// The state of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureState {
    /// A handler is being tried; the aggregate goes on if it succeeds.
    Trying,
    /// It is left out until somebody decides (F1).
    Parked,
    /// It is being handled again from `from_version` on (F2).
    Retrying,
}

/// A commit of which a subscription knows that it failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedCommit {
    /// Its position in the partition, at least 1.
    pub position: Position,
    /// Its version in the aggregate, at least 1.
    pub version: Version,
}

/// An entry of the ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The subscription.
    pub subscription: SubscriptionName,
    /// The aggregate.
    pub aggregate_id: AggregateId,
    /// The aggregate's partition.
    pub partition: PartitionId,
    /// Its state.
    pub state: FailureState,
    /// The commit that was tried or failed last.
    pub commit: FailedCommit,
    /// The first version that still has to be handled. Never beyond the failed commit of a parked aggregate; before it
    /// if it was parked while earlier commits were still to be retried.
    pub from_version: Version,
    /// How often a handler was started since the aggregate last succeeded or was asked to be retried.
    pub attempts: u32,
    /// The event that failed last, cut to [`MAX_FAILURE_TEXT_BYTES`].
    pub event: Option<String>,
    /// The error it failed with, cut to [`MAX_FAILURE_TEXT_BYTES`].
    pub error: Option<String>,
    /// When the entry was made, by the store's clock.
    pub since: Timestamp,
    /// When it last changed, by the store's clock.
    pub updated_at: Timestamp,
}

/// A commit that was discarded, for the record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Discarded {
    /// The subscription.
    pub subscription: SubscriptionName,
    /// The aggregate.
    pub aggregate_id: AggregateId,
    /// The commit that was skipped.
    pub commit: FailedCommit,
    /// The event that had failed.
    pub event: Option<String>,
    /// The error it had failed with.
    pub error: Option<String>,
    /// When it was discarded, by the store's clock.
    pub discarded_at: Timestamp,
}

/// Which commit of which aggregate a handler works on, and under which epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// The subscription.
    pub subscription: SubscriptionName,
    /// The aggregate.
    pub aggregate_id: AggregateId,
    /// The aggregate's partition.
    pub partition: PartitionId,
    /// The commit.
    pub commit: FailedCommit,
    /// The epoch of the lease on the partition.
    pub epoch: Option<Epoch>,
}

impl Attempt {
    /// An attempt on a commit.
    #[must_use]
    pub fn new(subscription: SubscriptionName, commit: &crate::RecordedCommit) -> Self {
        Self {
            subscription,
            aggregate_id: commit.aggregate_id.clone(),
            partition: PartitionId::new(commit.aggregate_id.context().clone(), commit.partition),
            commit: FailedCommit { position: commit.position, version: commit.version },
            epoch: None,
        }
    }

    /// Only while no higher epoch of the lease is known.
    #[must_use]
    pub fn with_epoch(mut self, epoch: Epoch) -> Self {
        self.epoch = Some(epoch);
        self
    }

    /// The fence that the epoch stands for.
    #[must_use]
    pub fn fence(&self) -> Option<Fence> {
        self.epoch.map(|epoch| Fence {
            group: self.subscription.clone(),
            partition: self.partition.clone(),
            epoch,
        })
    }

    /// What every backend checks first.
    ///
    /// # Errors
    /// [`crate::ErrorKind::InvalidInput`] if position or version are 0 or beyond [`MAX_COUNTER`], the epoch is beyond
    /// it, or the partition is of another context than the aggregate.
    pub fn check(&self) -> Result<()> {
        let counter = 1..=MAX_COUNTER;
        if !counter.contains(&self.commit.position) || !counter.contains(&self.commit.version) {
            return Err(Error::invalid_input("positions and versions of failed commits count from 1"));
        }
        if self.epoch.is_some_and(|epoch| epoch > MAX_COUNTER) {
            return Err(Error::invalid_input("the epoch is beyond the last possible one"));
        }
        if self.partition.context() != self.aggregate_id.context() {
            return Err(Error::invalid_input(format!(
                "{} is not in a partition of {}",
                self.aggregate_id,
                self.partition.context()
            )));
        }
        Ok(())
    }
}

/// What a commit failed with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Park {
    /// The attempt that failed.
    pub attempt: Attempt,
    /// The event that failed; cut to [`MAX_FAILURE_TEXT_BYTES`].
    pub event: Option<String>,
    /// The error; cut to [`MAX_FAILURE_TEXT_BYTES`]. No payloads and no credentials, please: operators read it.
    pub error: String,
}

impl Park {
    /// Parks the aggregate of an attempt.
    #[must_use]
    pub fn new(attempt: Attempt, error: impl Into<String>) -> Self {
        Self { attempt, event: None, error: error.into() }
    }

    /// Names the event that failed.
    #[must_use]
    pub fn with_event(mut self, event: impl Into<String>) -> Self {
        self.event = Some(event.into());
        self
    }
}

/// A page of entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListFailures {
    /// The subscription.
    pub subscription: SubscriptionName,
    /// Only aggregates of this partition.
    pub partition: Option<PartitionId>,
    /// Only entries in this state.
    pub state: Option<FailureState>,
    /// Only aggregates behind this one (exclusive).
    pub after: Option<AggregateId>,
    /// At most so many (inclusive); 0: none. There is no largest limit.
    pub limit: usize,
}

impl ListFailures {
    /// The first 1,000 entries of a subscription.
    #[must_use]
    pub fn new(subscription: SubscriptionName) -> Self {
        Self { subscription, partition: None, state: None, after: None, limit: 1_000 }
    }

    /// Only aggregates of this partition.
    #[must_use]
    pub fn with_partition(mut self, partition: PartitionId) -> Self {
        self.partition = Some(partition);
        self
    }

    /// Only entries in this state.
    #[must_use]
    pub fn with_state(mut self, state: FailureState) -> Self {
        self.state = Some(state);
        self
    }

    /// Only aggregates behind this one (exclusive).
    #[must_use]
    pub fn after(mut self, aggregate_id: AggregateId) -> Self {
        self.after = Some(aggregate_id);
        self
    }

    /// At most so many.
    #[must_use]
    pub fn with_limit(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }

    /// Whether this entry belongs in the page, its limit aside.
    #[must_use]
    pub fn matches(&self, failure: &Failure) -> bool {
        self.subscription == failure.subscription
            && self.partition.as_ref().is_none_or(|partition| *partition == failure.partition)
            && self.state.is_none_or(|state| state == failure.state)
            && self.after.as_ref().is_none_or(|after| failure.aggregate_id > *after)
    }
}

/// How many entries and discards a subscription has (F3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FailureCounts {
    /// Entries in [`FailureState::Trying`].
    pub trying: u64,
    /// Entries in [`FailureState::Parked`].
    pub parked: u64,
    /// Entries in [`FailureState::Retrying`].
    pub retrying: u64,
    /// Commits discarded so far.
    pub discarded: u64,
}

/// The failure ledger.
///
/// Writes of a subscription carry its epoch and are refused with [`Fenced`](crate::ErrorKind::Fenced) once a higher
/// one is known; `retry` and `discard` are an operator's and carry none.
#[async_trait]
pub trait FailureLedger: Send + Sync {
    /// Counts an attempt **before** the handler runs, so that an event that kills the process is counted too, and returns
    /// the entry.
    ///
    /// - F1 The count rises whatever the version: it is the aggregate's, and starts again only after
    ///   [`resolve`](Self::resolve), [`retry`](Self::retry), [`discard`](Self::discard) or [`advance`](Self::advance).
    /// - F2 An aggregate that is parked stays as it is: the entry that comes back says so, and the handler must not run.
    ///   One that is retrying keeps its `from_version`.
    /// - C2 Refused if the epoch was overtaken.
    ///
    /// Positions, versions and epochs are at most [`MAX_COUNTER`] (inclusive), positions and versions at least 1. Whether
    /// the log has such a commit is not looked at.
    ///
    /// # Errors
    /// [`Fenced`](crate::ErrorKind::Fenced); [`InvalidInput`](crate::ErrorKind::InvalidInput) as for [`Attempt::check`];
    /// those of any write.
    ///
    /// Cancel-safety: dropping the future leaves the attempt counted or not. Asking again counts another one.
    ///
    /// ```
    /// # futures::executor::block_on(async {
    /// # use futures_util::TryStreamExt;
    /// # use wow_store_api::{AggregateId, Attempt, Commit, FailureLedger, FailureState, ListFailures, MemoryStore, Park, StoreExt,
    /// #     SubscriptionName};
    /// # let (store, id) = (MemoryStore::new(), AggregateId::new("shop", "order", "42")?);
    /// # store.append(Commit::new(id.clone(), "cmd-7").event("OrderPlaced", 1, &0)?).await?;
    /// # let commit = store.load(&id, ..).await?.try_next().await?.unwrap();
    /// # let mailer = SubscriptionName::new("mailer")?;
    /// # let attempt = Attempt::new(mailer.clone(), &commit);
    /// let failure = store.record_attempt(attempt.clone()).await?;
    /// if failure.state != FailureState::Parked {
    ///     // Handle the commit, and if that succeeds:
    ///     store.resolve(attempt).await?;
    /// }
    /// # Ok::<_, wow_store_api::Error>(()) }).unwrap();
    /// ```
    async fn record_attempt(&self, attempt: Attempt) -> Result<Failure>;

    /// Parks an aggregate (F1), tried before or not, and returns the entry. If it is parked already, it stays parked at the
    /// commit it was parked at.
    ///
    /// - F2 One that is retrying keeps what it still has to handle: parked at a later commit than its `from_version`, it
    ///   goes on from `from_version` when it is retried; parked at an earlier one, from that. None is skipped.
    /// - C2 Refused if the epoch was overtaken.
    ///
    /// The bounds are those of [`record_attempt`](Self::record_attempt). Error text and event name are cut to
    /// [`MAX_FAILURE_TEXT_BYTES`], and U+0000 is left out of them: no text keeps an aggregate from being parked.
    ///
    /// # Errors
    /// As for [`record_attempt`](Self::record_attempt).
    ///
    /// Cancel-safety: dropping the future leaves the aggregate parked or as it was. Parking again is always right.
    ///
    /// ```
    /// # futures::executor::block_on(async {
    /// # use futures_util::TryStreamExt;
    /// # use wow_store_api::{AggregateId, Attempt, Commit, FailureLedger, FailureState, ListFailures, MemoryStore, Park, StoreExt,
    /// #     SubscriptionName};
    /// # let (store, id) = (MemoryStore::new(), AggregateId::new("shop", "order", "42")?);
    /// # store.append(Commit::new(id.clone(), "cmd-7").event("OrderPlaced", 1, &0)?).await?;
    /// # let commit = store.load(&id, ..).await?.try_next().await?.unwrap();
    /// # let mailer = SubscriptionName::new("mailer")?;
    /// # let attempt = Attempt::new(mailer.clone(), &commit);
    /// let parked = store.park(Park::new(attempt, "no such mailbox").with_event("OrderPlaced")).await?;
    /// assert_eq!((parked.state, parked.from_version), (FailureState::Parked, 1));
    /// assert_eq!(parked.event.as_deref(), Some("OrderPlaced"));
    /// # Ok::<_, wow_store_api::Error>(()) }).unwrap();
    /// ```
    async fn park(&self, park: Park) -> Result<Failure>;

    /// Asks for a parked aggregate to be handled again, with a new count of attempts: from its `from_version` on (F2),
    /// which is the failed commit unless earlier ones are still to be handled. Says whether it was parked or already
    /// retrying; one that is only being tried, or not there, stays as it is (F3).
    ///
    /// # Errors
    /// Those of any write.
    ///
    /// Cancel-safety: dropping the future leaves it retrying or as it was. Asking again is always right.
    ///
    /// ```
    /// # futures::executor::block_on(async {
    /// # use futures_util::TryStreamExt;
    /// # use wow_store_api::{AggregateId, Attempt, Commit, FailureLedger, FailureState, ListFailures, MemoryStore, Park, StoreExt,
    /// #     SubscriptionName};
    /// # let (store, id) = (MemoryStore::new(), AggregateId::new("shop", "order", "42")?);
    /// # store.append(Commit::new(id.clone(), "cmd-7").event("OrderPlaced", 1, &0)?).await?;
    /// # let commit = store.load(&id, ..).await?.try_next().await?.unwrap();
    /// # let mailer = SubscriptionName::new("mailer")?;
    /// # let attempt = Attempt::new(mailer.clone(), &commit);
    /// store.park(Park::new(attempt, "no such mailbox")).await?;
    /// assert!(store.retry(&mailer, &id).await?);
    /// assert_eq!(store.failure(&mailer, &id).await?.unwrap().state, FailureState::Retrying);
    /// # Ok::<_, wow_store_api::Error>(()) }).unwrap();
    /// ```
    async fn retry(&self, subscription: &SubscriptionName, aggregate_id: &AggregateId) -> Result<bool>;

    /// Skips the failed commit of a parked aggregate for good and asks for the rest to be handled (F3). Says whether it was
    /// parked at this version; otherwise nothing changes, so that asking twice skips one commit.
    ///
    /// - F2 It skips this one commit only: while earlier ones are still to be handled (`from_version` is before it), the
    ///   answer is `false`; [`retry`](Self::retry) it first.
    ///
    /// Any version may be asked for; one that no commit has is not parked at.
    ///
    /// # Errors
    /// Those of any write.
    ///
    /// Cancel-safety: dropping the future leaves the commit skipped, and on record, or parked. Asking again: `false` if it
    /// was skipped.
    ///
    /// ```
    /// # futures::executor::block_on(async {
    /// # use futures_util::TryStreamExt;
    /// # use wow_store_api::{AggregateId, Attempt, Commit, FailureLedger, FailureState, ListFailures, MemoryStore, Park, StoreExt,
    /// #     SubscriptionName};
    /// # let (store, id) = (MemoryStore::new(), AggregateId::new("shop", "order", "42")?);
    /// # store.append(Commit::new(id.clone(), "cmd-7").event("OrderPlaced", 1, &0)?).await?;
    /// # let commit = store.load(&id, ..).await?.try_next().await?.unwrap();
    /// # let mailer = SubscriptionName::new("mailer")?;
    /// # let attempt = Attempt::new(mailer.clone(), &commit);
    /// store.park(Park::new(attempt, "no such mailbox")).await?;
    /// assert!(store.discard(&mailer, &id, 1).await?);
    /// let failure = store.failure(&mailer, &id).await?.unwrap();
    /// assert_eq!((failure.state, failure.from_version), (FailureState::Retrying, 2));
    /// # Ok::<_, wow_store_api::Error>(()) }).unwrap();
    /// ```
    async fn discard(
        &self,
        subscription: &SubscriptionName,
        aggregate_id: &AggregateId,
        version: Version,
    ) -> Result<bool>;

    /// Notes that the commit of this attempt was handled while the aggregate is retrying: `from_version` moves behind it,
    /// never back, and the count of attempts starts again (F2). Says whether the aggregate is retrying. To be called for
    /// each commit, in order: what lies before it counts as handled, too.
    ///
    /// C2 and the bounds are those of [`record_attempt`](Self::record_attempt).
    ///
    /// # Errors
    /// As for [`record_attempt`](Self::record_attempt).
    ///
    /// Cancel-safety: dropping the future leaves `from_version` moved or as it was. Asking again is always right.
    ///
    /// ```
    /// # futures::executor::block_on(async {
    /// # use futures_util::TryStreamExt;
    /// # use wow_store_api::{AggregateId, Attempt, Commit, FailureLedger, FailureState, ListFailures, MemoryStore, Park, StoreExt,
    /// #     SubscriptionName};
    /// # let (store, id) = (MemoryStore::new(), AggregateId::new("shop", "order", "42")?);
    /// # store.append(Commit::new(id.clone(), "cmd-7").event("OrderPlaced", 1, &0)?).await?;
    /// # let commit = store.load(&id, ..).await?.try_next().await?.unwrap();
    /// # let mailer = SubscriptionName::new("mailer")?;
    /// # let attempt = Attempt::new(mailer.clone(), &commit);
    /// store.park(Park::new(attempt.clone(), "no such mailbox")).await?;
    /// store.retry(&mailer, &id).await?;
    /// assert!(store.advance(attempt).await?);
    /// assert_eq!(store.failure(&mailer, &id).await?.unwrap().from_version, 2);
    /// # Ok::<_, wow_store_api::Error>(()) }).unwrap();
    /// ```
    async fn advance(&self, attempt: Attempt) -> Result<bool>;

    /// Removes the entry: the aggregate has caught up with everything up to the commit of this attempt (inclusive, F2). A
    /// parked aggregate stays. So does one of which a later commit was tried, failed or handled: the call is a late one,
    /// and what is to be handled from there on must not be forgotten. Says whether there is no entry any more.
    ///
    /// C2 and the bounds are those of [`record_attempt`](Self::record_attempt).
    ///
    /// # Errors
    /// As for [`record_attempt`](Self::record_attempt).
    ///
    /// Cancel-safety: dropping the future leaves the entry there or gone. Asking again is always right.
    ///
    /// ```
    /// # futures::executor::block_on(async {
    /// # use futures_util::TryStreamExt;
    /// # use wow_store_api::{AggregateId, Attempt, Commit, FailureLedger, FailureState, ListFailures, MemoryStore, Park, StoreExt,
    /// #     SubscriptionName};
    /// # let (store, id) = (MemoryStore::new(), AggregateId::new("shop", "order", "42")?);
    /// # store.append(Commit::new(id.clone(), "cmd-7").event("OrderPlaced", 1, &0)?).await?;
    /// # let commit = store.load(&id, ..).await?.try_next().await?.unwrap();
    /// # let mailer = SubscriptionName::new("mailer")?;
    /// # let attempt = Attempt::new(mailer.clone(), &commit);
    /// store.record_attempt(attempt.clone()).await?;
    /// assert!(store.resolve(attempt).await?, "the handler succeeded");
    /// assert!(store.failure(&mailer, &id).await?.is_none());
    /// # Ok::<_, wow_store_api::Error>(()) }).unwrap();
    /// ```
    async fn resolve(&self, attempt: Attempt) -> Result<bool>;

    /// The entry of an aggregate (F3); `None` if nothing failed that was not resolved.
    ///
    /// # Errors
    /// Those of any read.
    ///
    /// Cancel-safety: dropping the future changes nothing.
    ///
    /// ```
    /// # futures::executor::block_on(async {
    /// # use futures_util::TryStreamExt;
    /// # use wow_store_api::{AggregateId, Attempt, Commit, FailureLedger, FailureState, ListFailures, MemoryStore, Park, StoreExt,
    /// #     SubscriptionName};
    /// # let (store, id) = (MemoryStore::new(), AggregateId::new("shop", "order", "42")?);
    /// # store.append(Commit::new(id.clone(), "cmd-7").event("OrderPlaced", 1, &0)?).await?;
    /// # let commit = store.load(&id, ..).await?.try_next().await?.unwrap();
    /// # let mailer = SubscriptionName::new("mailer")?;
    /// # let attempt = Attempt::new(mailer.clone(), &commit);
    /// assert!(store.failure(&mailer, &id).await?.is_none());
    /// store.park(Park::new(attempt, "no such mailbox")).await?;
    /// assert_eq!(store.failure(&mailer, &id).await?.unwrap().error.as_deref(), Some("no such mailbox"));
    /// # Ok::<_, wow_store_api::Error>(()) }).unwrap();
    /// ```
    async fn failure(
        &self,
        subscription: &SubscriptionName,
        aggregate_id: &AggregateId,
    ) -> Result<Option<Failure>>;

    /// A page of entries, by aggregate id, from behind `after` (exclusive), at most `limit` (F3). A limit of 0 gives none;
    /// there is no largest one, and all that it lets through is in memory at once: go in pages.
    ///
    /// # Errors
    /// Those of any read.
    ///
    /// Cancel-safety: dropping the future changes nothing.
    ///
    /// ```
    /// # futures::executor::block_on(async {
    /// # use futures_util::TryStreamExt;
    /// # use wow_store_api::{AggregateId, Attempt, Commit, FailureLedger, FailureState, ListFailures, MemoryStore, Park, StoreExt,
    /// #     SubscriptionName};
    /// # let (store, id) = (MemoryStore::new(), AggregateId::new("shop", "order", "42")?);
    /// # store.append(Commit::new(id.clone(), "cmd-7").event("OrderPlaced", 1, &0)?).await?;
    /// # let commit = store.load(&id, ..).await?.try_next().await?.unwrap();
    /// # let mailer = SubscriptionName::new("mailer")?;
    /// # let attempt = Attempt::new(mailer.clone(), &commit);
    /// store.park(Park::new(attempt, "no such mailbox")).await?;
    /// let page = store.failures(ListFailures::new(mailer.clone()).with_limit(100)).await?;
    /// let Some(last) = page.last() else { panic!("one is parked") };
    /// assert!(store.failures(ListFailures::new(mailer).after(last.aggregate_id.clone())).await?.is_empty());
    /// # Ok::<_, wow_store_api::Error>(()) }).unwrap();
    /// ```
    async fn failures(&self, list: ListFailures) -> Result<Vec<Failure>>;

    /// The newest discarded commits of a subscription, newest first, at most `limit` (F3). A limit of 0 gives none; there is
    /// no largest one, and all that it lets through is in memory at once.
    ///
    /// # Errors
    /// Those of any read.
    ///
    /// Cancel-safety: dropping the future changes nothing.
    ///
    /// ```
    /// # futures::executor::block_on(async {
    /// # use futures_util::TryStreamExt;
    /// # use wow_store_api::{AggregateId, Attempt, Commit, FailureLedger, FailureState, ListFailures, MemoryStore, Park, StoreExt,
    /// #     SubscriptionName};
    /// # let (store, id) = (MemoryStore::new(), AggregateId::new("shop", "order", "42")?);
    /// # store.append(Commit::new(id.clone(), "cmd-7").event("OrderPlaced", 1, &0)?).await?;
    /// # let commit = store.load(&id, ..).await?.try_next().await?.unwrap();
    /// # let mailer = SubscriptionName::new("mailer")?;
    /// # let attempt = Attempt::new(mailer.clone(), &commit);
    /// store.park(Park::new(attempt, "no such mailbox")).await?;
    /// store.discard(&mailer, &id, 1).await?;
    /// let newest = store.discarded(&mailer, 1).await?;
    /// assert_eq!((&newest[0].aggregate_id, newest[0].commit.version), (&id, 1));
    /// # Ok::<_, wow_store_api::Error>(()) }).unwrap();
    /// ```
    async fn discarded(&self, subscription: &SubscriptionName, limit: usize) -> Result<Vec<Discarded>>;

    /// How many entries there are in each state, and how many commits were discarded (F3); all 0 for a subscription of which
    /// nothing is known.
    ///
    /// # Errors
    /// Those of any read.
    ///
    /// Cancel-safety: dropping the future changes nothing.
    ///
    /// ```
    /// # futures::executor::block_on(async {
    /// # use futures_util::TryStreamExt;
    /// # use wow_store_api::{AggregateId, Attempt, Commit, FailureLedger, FailureState, ListFailures, MemoryStore, Park, StoreExt,
    /// #     SubscriptionName};
    /// # let (store, id) = (MemoryStore::new(), AggregateId::new("shop", "order", "42")?);
    /// # store.append(Commit::new(id.clone(), "cmd-7").event("OrderPlaced", 1, &0)?).await?;
    /// # let commit = store.load(&id, ..).await?.try_next().await?.unwrap();
    /// # let mailer = SubscriptionName::new("mailer")?;
    /// # let attempt = Attempt::new(mailer.clone(), &commit);
    /// store.park(Park::new(attempt, "no such mailbox")).await?;
    /// let counts = store.failure_counts(&mailer).await?;
    /// assert_eq!((counts.parked, counts.discarded), (1, 0));
    /// # Ok::<_, wow_store_api::Error>(()) }).unwrap();
    /// ```
    async fn failure_counts(&self, subscription: &SubscriptionName) -> Result<FailureCounts>;
}
