//! The tail: a context's log, from a position on, without end (T1 to T5).
//!
//! Built once, here, on [`EventLog::read`] and [`EventLog::watch`]: a wake-up only says *look*, what is delivered is
//! always the log read by position. So a lost, doubled or late wake-up costs time, never a commit.

use std::{collections::BTreeMap, fmt, sync::Arc};

use futures_core::Stream;
use futures_util::stream;

use crate::{
    RecordedCommit,
    error::{Error, Result},
    log::{CommitFilter, EventLog, Position, ReadPage},
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
    /// There may be something behind `position`.
    look: bool,
}

/// A running tail. It holds one position per partition and no commits: a slow consumer holds back reading, not
/// memory (T2). Not reading it costs nothing.
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
}

impl<S: EventLog + ?Sized> Tail<S> {
    /// Opens a tail. Opening one on a context that was never used fixes its number of partitions.
    ///
    /// # Errors
    /// [`crate::ErrorKind::InvalidInput`] for a partition that the context does not have, or a position beyond
    /// [`crate::MAX_COUNTER`]; those of [`EventLog::partitions`], [`EventLog::heads`] and [`EventLog::watch`].
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
        Ok(Self { store, request, watcher, cursors, next: 0 })
    }

    /// The next batch; waits if there is none (T1: per partition in order, at least once, without end).
    ///
    /// Cancel-safe: a batch that was not returned is delivered by the next call. After an error it goes on where it
    /// was, so a transient one can be retried by calling again.
    ///
    /// # Errors
    /// Those of [`EventLog::read`]; [`crate::ErrorKind::Corrupt`] if the log has a hole or goes back;
    /// [`crate::ErrorKind::Closed`] once the store is closed.
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
    /// # Errors
    /// As for [`Tail::next`].
    pub async fn try_next(&mut self) -> Result<Option<TailBatch>> {
        while let Some((slot, index, position)) = self.due() {
            let page = self.read(index, position).await?;
            let advanced = page.through > position;
            if let Some(cursor) = self.cursors.get_mut(slot) {
                cursor.position = page.through;
                cursor.look = page.more;
            }
            self.next = slot + 1;
            if advanced {
                return Ok(Some(TailBatch {
                    partition: PartitionId::new(self.request.context.clone(), index),
                    commits: page.commits,
                    through: page.through,
                }));
            }
        }
        Ok(None)
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

    /// The next partition that may have something, round-robin.
    fn due(&self) -> Option<(usize, u32, Position)> {
        let count = self.cursors.len();
        (0..count)
            .map(|step| (self.next + step) % count)
            .filter_map(|slot| self.cursors.get(slot).map(|cursor| (slot, cursor)))
            .find(|(_, cursor)| cursor.look)
            .map(|(slot, cursor)| (slot, cursor.index, cursor.position))
    }

    fn mark(&mut self, changed: &Changed) {
        for cursor in &mut self.cursors {
            cursor.look |= changed.contains(cursor.index);
        }
    }

    async fn read(&self, index: u32, after: Position) -> Result<crate::Page> {
        let partition = PartitionId::new(self.request.context.clone(), index);
        let request = ReadPage::new(partition.clone(), after)
            .with_max_commits(self.request.max_commits)
            .with_max_bytes(self.request.max_bytes)
            .with_filter(self.request.filter.clone());
        let page = self.store.read(request).await?;
        // The last line of defence of L5: whatever the backend is, nothing out of order and no hole gets past here.
        let mut last = after;
        for commit in &page.commits {
            let dense = !self.request.filter.is_all() || commit.position == last + 1;
            if commit.position <= last || !dense {
                return Err(Error::corrupt(
                    format!("{partition}, position {}", commit.position),
                    format!("it follows position {last} in the log"),
                ));
            }
            last = commit.position;
        }
        let complete = !self.request.filter.is_all() || page.through == last;
        if page.through < last || !complete {
            return Err(Error::corrupt(
                format!("{partition}, position {}", page.through),
                format!("the page claims to end there, its last commit has position {last}"),
            ));
        }
        Ok(page)
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
