//! The tail: a context's log, from a position on, without end (T1 to T5).
//!
//! Built once, here, on [`EventLog::read`] and [`EventLog::watch`]: a wake-up only says *look*, what is delivered is
//! always the log read by position. So a lost, doubled or late wake-up costs time, never a commit.

use std::{
    collections::BTreeMap,
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use futures_core::{Stream, future::BoxFuture};
use futures_util::{
    future::{MaybeDone, maybe_done, poll_fn},
    stream,
};

use crate::{
    RecordedCommit,
    error::{Error, Result},
    log::{CommitFilter, EventLog, Page, Position, ReadPage},
    name::ContextName,
    partition::PartitionId,
    wakeup::{Changed, Watcher},
};

/// What to tail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TailRequest {
    context: ContextName,
    from: TailFrom,
    filter: CommitFilter,
    max_commits: usize,
    max_bytes: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum TailFrom {
    Beginning,
    Now,
    After(BTreeMap<u32, Position>),
}

impl TailRequest {
    /// All partitions of a context, from the beginning.
    #[must_use]
    pub fn new(context: ContextName) -> Self {
        Self {
            context,
            from: TailFrom::Beginning,
            filter: CommitFilter::all(),
            max_commits: ReadPage::DEFAULT_MAX_COMMITS,
            max_bytes: ReadPage::DEFAULT_MAX_BYTES,
        }
    }

    /// Only commits that are stored after the tail was opened.
    #[must_use]
    pub fn from_now(mut self) -> Self {
        self.from = TailFrom::Now;
        self
    }

    /// These partitions (by index) **only**, each from just after a position (exclusive; 0 for the beginning).
    #[must_use]
    pub fn after_positions(mut self, positions: impl IntoIterator<Item = (u32, Position)>) -> Self {
        self.from = TailFrom::After(positions.into_iter().collect());
        self
    }

    /// Only what the filter lets through (T5).
    #[must_use]
    pub fn with_filter(mut self, filter: CommitFilter) -> Self {
        self.filter = filter;
        self
    }

    /// At most so many commits in a batch (T2): 1 to [`ReadPage::LIMIT_MAX_COMMITS`].
    #[must_use]
    pub fn with_max_commits(mut self, max_commits: usize) -> Self {
        self.max_commits = max_commits;
        self
    }

    /// About so many bytes in a batch (T2).
    #[must_use]
    pub fn with_max_bytes(mut self, max_bytes: usize) -> Self {
        self.max_bytes = max_bytes;
        self
    }

    /// The last line of defence of L5: whatever the backend is, nothing out of order and no hole gets past here.
    fn check(&self, partition: &PartitionId, after: Position, page: Page) -> Result<Page> {
        let mut last = after;
        for commit in &page.commits {
            let dense = !self.filter.is_all() || commit.position == last + 1;
            if commit.position <= last || !dense {
                return Err(Error::corrupt(
                    format!("{partition}, position {}", commit.position),
                    format!("it follows position {last} in the log"),
                ));
            }
            last = commit.position;
        }
        let complete = !self.filter.is_all() || page.through == last;
        if page.through < last || !complete {
            return Err(Error::corrupt(
                format!("{partition}, position {}", page.through),
                format!("the page claims to end there, its last commit has position {last}"),
            ));
        }
        Ok(page)
    }
}

/// What a tail delivers: consecutive commits of one partition.
#[derive(Debug, Clone, PartialEq)]
pub struct TailBatch {
    /// The partition.
    pub partition: PartitionId,
    /// The commits, in the order of their positions. Empty if everything up to `through` was filtered out.
    pub commits: Vec<RecordedCommit>,
    /// Everything up to this position (inclusive) is dealt with once this batch is: the checkpoint to save.
    pub through: Position,
}

#[derive(Debug)]
struct Cursor {
    index: u32,
    position: Position,
    /// There may be something behind `position`, and nobody is reading it.
    look: bool,
}

/// A page that is being read, or was and waits to be asked for.
struct Reading {
    slot: usize,
    after: Position,
    page: Pin<Box<MaybeDone<BoxFuture<'static, Result<Page>>>>>,
}

impl Reading {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.page.as_mut().poll(context)
    }
}

/// A running tail. It holds one position per partition and at most one page that it has not delivered: while a batch is
/// handled the next one is on its way, and a slow consumer holds back reading, not memory (T2). Not reading it costs
/// nothing more.
///
/// ```
/// # futures::executor::block_on(async {
/// use std::sync::Arc;
/// use wow_store_api::{AggregateId, Commit, ContextName, MemoryStore, StoreExt, TailRequest};
///
/// let store = Arc::new(MemoryStore::new());
/// let mut tail = store.tail(TailRequest::new(ContextName::new("shop")?)).await?;
///
/// let id = AggregateId::new("shop", "order", "42")?;
/// store.append(Commit::new(id, "cmd-7").event("OrderPlaced", 1, &42)?).await?;
///
/// let batch = tail.next().await?;
/// assert_eq!(batch.commits[0].command_id, "cmd-7");
/// assert_eq!(batch.through, 1, "save this as the checkpoint once the batch is handled");
/// # Ok::<_, wow_store_api::Error>(()) }).unwrap();
/// ```
pub struct Tail<S: ?Sized> {
    store: Arc<S>,
    request: TailRequest,
    watcher: Watcher,
    cursors: Vec<Cursor>,
    /// The cursor to look at first, so that a busy partition does not starve the others.
    next: usize,
    reading: Option<Reading>,
}

impl<S: EventLog + ?Sized + 'static> Tail<S> {
    /// Opens a tail. Opening one on a context that was never used fixes its number of partitions.
    ///
    /// - T1 It starts just after the positions asked for (exclusive; 0 is the beginning). One that is ahead of the log is
    ///   waited for.
    /// - T3 What is committed from here on wakes it.
    ///
    /// Cancel-safe: nothing has begun until this returns.
    ///
    /// # Errors
    /// [`crate::ErrorKind::InvalidInput`] for a partition that the context does not have, or a position beyond
    /// [`crate::MAX_COUNTER`]; those of [`EventLog::partitions`], [`EventLog::heads`] and [`EventLog::watch`].
    ///
    /// ```
    /// # futures::executor::block_on(async {
    /// # use std::sync::Arc;
    /// # use wow_store_api::{ContextName, ErrorKind, MemoryStore, Tail, TailRequest};
    /// let store = Arc::new(MemoryStore::new());
    /// let shop = ContextName::new("shop")?;
    /// // As a subscription does that has handled partition 3 up to position 120.
    /// let tail = Tail::open(Arc::clone(&store), TailRequest::new(shop.clone()).after_positions([(3, 120)])).await?;
    /// assert_eq!(tail.positions().count(), 1, "this partition only");
    ///
    /// let beyond = Tail::open(store, TailRequest::new(shop).after_positions([(1_000, 0)])).await;
    /// assert!(matches!(beyond.unwrap_err().kind(), ErrorKind::InvalidInput { .. }));
    /// # Ok::<_, wow_store_api::Error>(()) }).unwrap();
    /// ```
    pub async fn open(store: Arc<S>, request: TailRequest) -> Result<Self> {
        // Watch first: what is committed from here on is told; what was committed before is found by reading.
        let watcher = store.watch(&request.context).await?;
        let count = store.partitions(&request.context).await?.get();
        let positions: BTreeMap<u32, Position> = match &request.from {
            TailFrom::Beginning => (0..count).map(|index| (index, 0)).collect(),
            TailFrom::Now => (0..count).zip(store.heads(&request.context).await?).collect(),
            TailFrom::After(positions) => positions.clone(),
        };
        if let Some(index) = positions.keys().find(|index| **index >= count) {
            return Err(Error::invalid_input(format!(
                "partition {index} of {}: it has {count} partitions, counted from 0",
                request.context
            )));
        }
        if let Some(position) = positions.values().find(|position| **position > crate::MAX_COUNTER) {
            return Err(Error::invalid_input(format!("position {position} is beyond the last possible one")));
        }
        let cursors =
            positions.into_iter().map(|(index, position)| Cursor { index, position, look: true }).collect();
        Ok(Self { store, request, watcher, cursors, next: 0, reading: None })
    }

    /// The next batch; waits if there is none.
    ///
    /// - T1 Per partition in order, at least once, without end. Partitions take turns.
    /// - T2 As many commits as there are, up to the number and the bytes asked for; at least one of any size.
    /// - T3 Waits for a notification, and no longer than the store's poll interval if one is lost.
    /// - T5 A batch may hold no commits, where the filter let none of many through: save its position all the same.
    ///
    /// Cancel-safe: a batch that was not returned is delivered by the next call. After an error it goes on where it
    /// was, so a transient one can be retried by calling again.
    ///
    /// # Errors
    /// Those of [`EventLog::read`]; [`crate::ErrorKind::Corrupt`] if the log has a hole or goes back;
    /// [`crate::ErrorKind::Closed`] once the store is closed, perhaps after one more batch that was read before.
    ///
    /// ```
    /// # futures::executor::block_on(async {
    /// # use std::sync::Arc;
    /// # use wow_store_api::{AggregateId, Commit, ContextName, ErrorKind, MemoryStore, StoreAdmin, StoreExt, TailRequest};
    /// let store = Arc::new(MemoryStore::new());
    /// let mut tail = store.tail(TailRequest::new(ContextName::new("shop")?)).await?;
    /// let id = AggregateId::new("shop", "order", "42")?;
    /// store.append(Commit::new(id, "cmd-7").event("OrderPlaced", 1, &42)?).await?;
    ///
    /// let batch = tail.next().await?;
    /// assert_eq!(batch.commits.len(), 1);
    /// store.close().await?;
    /// assert_eq!(*tail.next().await.unwrap_err().kind(), ErrorKind::Closed);
    /// # Ok::<_, wow_store_api::Error>(()) }).unwrap();
    /// ```
    pub async fn next(&mut self) -> Result<TailBatch> {
        loop {
            if let Some(batch) = self.try_next().await? {
                return Ok(batch);
            }
            let changed = self.watcher.changed().await?;
            self.mark(&changed);
        }
    }

    /// The next batch if there is one now; `None` once every partition was read to its head.
    ///
    /// Cancel-safe, and goes on after an error, as [`Tail::next`] does.
    ///
    /// # Errors
    /// As for [`Tail::next`].
    ///
    /// ```
    /// # futures::executor::block_on(async {
    /// # use std::sync::Arc;
    /// # use wow_store_api::{AggregateId, Commit, ContextName, MemoryStore, StoreExt, TailRequest};
    /// let store = Arc::new(MemoryStore::new());
    /// let id = AggregateId::new("shop", "order", "42")?;
    /// store.append(Commit::new(id, "cmd-7").event("OrderPlaced", 1, &42)?).await?;
    ///
    /// let mut tail = store.tail(TailRequest::new(ContextName::new("shop")?)).await?;
    /// let mut commits = 0;
    /// while let Some(batch) = tail.try_next().await? {
    ///     commits += batch.commits.len(); // everything that is there now
    /// }
    /// assert_eq!(commits, 1);
    /// # Ok::<_, wow_store_api::Error>(()) }).unwrap();
    /// ```
    pub async fn try_next(&mut self) -> Result<Option<TailBatch>> {
        loop {
            if self.reading.is_none() {
                self.reading = self.begin();
            }
            let Some(reading) = &mut self.reading else { return Ok(None) };
            poll_fn(|context| reading.poll(context)).await;
            if let Some(batch) = self.conclude()? {
                // The next page is on its way while this one is handled.
                self.reading = self.begin();
                if let Some(reading) = &mut self.reading {
                    poll_fn(|context| Poll::Ready(reading.poll(context).is_ready())).await;
                }
                return Ok(Some(batch));
            }
        }
    }

    /// Begins to read the next partition that may have something, round-robin.
    fn begin(&mut self) -> Option<Reading> {
        let count = self.cursors.len();
        let mut slots = (0..count).map(|step| (self.next + step) % count);
        let slot = slots.find(|slot| self.cursors.get(*slot).is_some_and(|cursor| cursor.look))?;
        let cursor = self.cursors.get_mut(slot)?;
        // What is told from here on is behind what is read now.
        cursor.look = false;
        let after = cursor.position;
        let partition = PartitionId::new(self.request.context.clone(), cursor.index);
        let request = ReadPage::new(partition, after)
            .with_max_commits(self.request.max_commits)
            .with_max_bytes(self.request.max_bytes)
            .with_filter(self.request.filter.clone());
        let store = Arc::clone(&self.store);
        let page: BoxFuture<'static, _> = Box::pin(async move { store.read(request).await });
        self.next = slot + 1;
        Some(Reading { slot, after, page: Box::pin(maybe_done(page)) })
    }

    /// Takes the page that was read, and moves on behind it; `None` if nothing was there.
    fn conclude(&mut self) -> Result<Option<TailBatch>> {
        let Some(Reading { slot, after, mut page }) = self.reading.take() else { return Ok(None) };
        let Some(cursor) = self.cursors.get_mut(slot) else { return Ok(None) };
        let partition = PartitionId::new(self.request.context.clone(), cursor.index);
        let page =
            page.as_mut().take_output().unwrap_or_else(|| Err(Error::internal("a page was taken twice")));
        let page = match page.and_then(|page| self.request.check(&partition, after, page)) {
            Ok(page) => page,
            Err(error) => {
                // The next call tries again, and this partition first.
                cursor.look = true;
                self.next = slot;
                return Err(error);
            }
        };
        cursor.position = page.through;
        cursor.look |= page.more;
        let advanced = page.through > after;
        Ok(advanced.then_some(TailBatch { partition, commits: page.commits, through: page.through }))
    }

    /// Where the tail is: everything up to these positions (inclusive) was delivered.
    pub fn positions(&self) -> impl Iterator<Item = (PartitionId, Position)> + '_ {
        self.cursors
            .iter()
            .map(|cursor| (PartitionId::new(self.request.context.clone(), cursor.index), cursor.position))
    }

    /// The batches as a stream. It ends after the first error.
    pub fn into_stream(self) -> impl Stream<Item = Result<TailBatch>> {
        stream::unfold(Some(self), |tail| async move {
            let mut tail = tail?;
            match tail.next().await {
                Ok(batch) => Some((Ok(batch), Some(tail))),
                Err(error) => Some((Err(error), None)),
            }
        })
    }

    fn mark(&mut self, changed: &Changed) {
        for cursor in &mut self.cursors {
            cursor.look |= changed.contains(cursor.index);
        }
    }
}

impl<S: ?Sized> fmt::Debug for Tail<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tail")
            .field("request", &self.request)
            .field("cursors", &self.cursors)
            .finish_non_exhaustive()
    }
}
