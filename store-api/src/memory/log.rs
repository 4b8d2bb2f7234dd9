//! The log and the store itself.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, PoisonError, atomic::Ordering},
};

use async_trait::async_trait;
use futures_util::stream::{self, StreamExt as _};

use super::{MemoryStore, State};
use crate::{
    AggregateId, AggregateType, CheckedCommit, CommandId, CommitStream, ContextName, Error, EventLog, Fence,
    Format, Lease, Page, PartitionCount, PartitionId, Position, ReadPage, Receipt, RecordedCommit,
    Reservation, ReservationKey, ReservationOp, ReservationScope, Result, StoreAdmin, SubscriptionName,
    Timer, TimerId, TimerOp, Timestamp, Version, VersionRange, Watcher,
    log::check_append_all,
    rules::{self, reservation::Write},
};

/// Commits that a load takes at a time.
const LOAD_CHUNK: usize = 256;

/// An index into a list from a number that counts from 1.
fn index(number: u64) -> usize {
    usize::try_from(number.saturating_sub(1)).unwrap_or(usize::MAX)
}

fn length<T>(list: &[T]) -> u64 {
    u64::try_from(list.len()).unwrap_or(u64::MAX)
}

impl State {
    fn count(&self, context: &ContextName) -> Option<u32> {
        self.logs.get(context).and_then(|log| u32::try_from(log.len()).ok())
    }

    fn partition(&self, partition: &PartitionId) -> &[RecordedCommit] {
        let slot = usize::try_from(partition.index()).unwrap_or(usize::MAX);
        self.logs.get(partition.context()).and_then(|log| log.get(slot)).map_or(&[], Vec::as_slice)
    }

    pub(super) fn head(&self, aggregate_id: &AggregateId) -> Version {
        self.streams.get(aggregate_id).map_or(0, |stream| length(&stream.positions))
    }

    fn commit(&self, aggregate_id: &AggregateId, version: Version) -> Option<&RecordedCommit> {
        let position = *self.streams.get(aggregate_id)?.positions.get(index(version))?;
        let count = PartitionCount::new(self.count(aggregate_id.context())?).ok()?;
        self.partition(&count.partition_of(aggregate_id)).get(index(position))
    }

    fn receipt(&self, aggregate_id: &AggregateId, command_id: &CommandId) -> Option<Receipt> {
        let version = *self.streams.get(aggregate_id)?.commands.get(command_id)?;
        self.commit(aggregate_id, version).map(|commit| commit.receipt().replay())
    }

    pub(super) fn lose_log_after(&mut self, partition: &PartitionId, after_position: Position) {
        let slot = usize::try_from(partition.index()).unwrap_or(usize::MAX);
        let kept = usize::try_from(after_position).unwrap_or(usize::MAX);
        let Some(log) = self.logs.get_mut(partition.context()).and_then(|log| log.get_mut(slot)) else {
            return;
        };
        let lost = log.split_off(kept.min(log.len()));
        for commit in lost.iter().rev() {
            let Some(stream) = self.streams.get_mut(&commit.aggregate_id) else { continue };
            stream.positions.pop();
            stream.commands.remove(&commit.command_id);
            if stream.positions.is_empty() {
                self.streams.remove(&commit.aggregate_id);
            }
        }
    }

    pub(super) fn fence(&mut self, fence: Option<&Fence>) -> Result<()> {
        let Some(fence) = fence else { return Ok(()) };
        let key = (fence.group.clone(), fence.partition.clone());
        if let Some(lease) = rules::fence::check(fence, self.leases.get(&key))? {
            self.leases.insert(key, lease);
        }
        Ok(())
    }
}

/// An append in the making: its changes, over what is there. Dropped as a whole if any part is refused (L1).
struct Draft<'a> {
    state: &'a State,
    now: Timestamp,
    changes: Changes,
}

#[derive(Default)]
struct Changes {
    counts: BTreeMap<ContextName, PartitionCount>,
    commits: Vec<RecordedCommit>,
    leases: BTreeMap<(SubscriptionName, PartitionId), Lease>,
    reservations: BTreeMap<(ReservationScope, ReservationKey), Option<Reservation>>,
    timers: BTreeMap<(ContextName, TimerId), Option<Timer>>,
}

impl Draft<'_> {
    fn commit(&mut self, commit: &CheckedCommit, default_count: PartitionCount) -> Result<Receipt> {
        let aggregate_id = commit.aggregate_id();
        // L3 before everything else.
        if let Some(receipt) = self.replay(aggregate_id, commit.command_id()) {
            return Ok(receipt);
        }
        if let Some(fence) = commit.fence() {
            self.fence(fence)?;
        }
        let version = rules::append::next_version(commit, self.head(aggregate_id))?;
        for op in commit.reservations() {
            self.reserve(op)?;
        }
        for op in commit.timers() {
            self.timer(op)?;
        }
        let context = aggregate_id.context();
        let count = match self.state.count(context) {
            Some(count) => PartitionCount::new(count)?,
            None => *self.changes.counts.entry(context.clone()).or_insert(default_count),
        };
        let partition = count.partition_of(aggregate_id);
        let (head, last) = self.partition_head(&partition);
        let position = rules::append::next_position(&partition, head)?;
        let committed_at = rules::append::committed_at(self.now, last);
        let receipt = rules::append::receipt(partition, version, position, committed_at);
        self.changes.commits.push(commit.record(&receipt));
        Ok(receipt)
    }

    fn replay(&self, aggregate_id: &AggregateId, command_id: &CommandId) -> Option<Receipt> {
        self.state.receipt(aggregate_id, command_id).or_else(|| {
            let earlier = self
                .changes
                .commits
                .iter()
                .find(|commit| commit.aggregate_id == *aggregate_id && commit.command_id == *command_id);
            earlier.map(|commit| commit.receipt().replay())
        })
    }

    fn head(&self, aggregate_id: &AggregateId) -> Version {
        let here = self.changes.commits.iter().rev().find(|commit| commit.aggregate_id == *aggregate_id);
        here.map_or_else(|| self.state.head(aggregate_id), |commit| commit.version)
    }

    fn partition_head(&self, partition: &PartitionId) -> (Position, Option<Timestamp>) {
        let last = self
            .changes
            .commits
            .iter()
            .rev()
            .find(|commit| {
                commit.partition == partition.index() && commit.aggregate_id.context() == partition.context()
            })
            .or_else(|| self.state.partition(partition).last());
        last.map_or((0, None), |commit| (commit.position, Some(commit.committed_at)))
    }

    fn fence(&mut self, fence: &Fence) -> Result<()> {
        let key = (fence.group.clone(), fence.partition.clone());
        let known = self.changes.leases.get(&key).or_else(|| self.state.leases.get(&key));
        if let Some(lease) = rules::fence::check(fence, known)? {
            self.changes.leases.insert(key, lease);
        }
        Ok(())
    }

    fn reserve(&mut self, op: &ReservationOp) -> Result<()> {
        let scope = op.scope();
        let (writes, outcome) = rules::reservation::decide(op, self.now, |key| {
            let key = (scope.clone(), key.clone());
            Ok(match self.changes.reservations.get(&key) {
                Some(here) => here.clone(),
                None => self.state.reservations.get(&key).cloned(),
            })
        })?;
        rules::reservation::ride(op, outcome)?;
        for write in writes {
            match write {
                Write::Put(put) => {
                    self.changes.reservations.insert((scope.clone(), put.key.clone()), Some(put));
                }
                Write::Delete(key) => {
                    self.changes.reservations.insert((scope.clone(), key), None);
                }
            }
        }
        Ok(())
    }

    fn timer(&mut self, op: &TimerOp) -> Result<()> {
        match op {
            TimerOp::Schedule(schedule) => {
                let key = (schedule.context.clone(), schedule.id.clone());
                let known = match self.changes.timers.get(&key) {
                    Some(here) => here.as_ref(),
                    None => self.state.timers.get(&key),
                };
                let outcome = rules::timer::schedule(schedule.clone(), known, self.now);
                let timer = rules::timer::ride(outcome)?;
                self.changes.timers.insert(key, Some(timer));
            }
            TimerOp::Cancel { context, id } => {
                self.changes.timers.insert((context.clone(), id.clone()), None);
            }
        }
        Ok(())
    }
}

impl State {
    fn apply(&mut self, changes: Changes) {
        for (context, count) in changes.counts {
            self.first_use(&context, count);
        }
        for commit in changes.commits {
            let stream = self.streams.entry(commit.aggregate_id.clone()).or_default();
            stream.positions.push(commit.position);
            stream.commands.insert(commit.command_id.clone(), commit.version);
            let slot = usize::try_from(commit.partition).unwrap_or(usize::MAX);
            let log = self.logs.get_mut(commit.aggregate_id.context());
            if let Some(partition) = log.and_then(|log| log.get_mut(slot)) {
                partition.push(commit);
            }
        }
        self.leases.extend(changes.leases);
        for (key, reservation) in changes.reservations {
            match reservation {
                Some(reservation) => self.reservations.insert(key, reservation),
                None => self.reservations.remove(&key),
            };
        }
        for (key, timer) in changes.timers {
            match timer {
                Some(timer) => self.timers.insert(key, timer),
                None => self.timers.remove(&key),
            };
        }
    }

    fn first_use(&mut self, context: &ContextName, count: PartitionCount) {
        self.logs
            .entry(context.clone())
            .or_insert_with(|| vec![Vec::new(); usize::try_from(count.get()).unwrap_or_default()]);
    }
}

impl MemoryStore {
    fn append_drafted(&self, operation: &'static str, commits: &[CheckedCommit]) -> Result<Vec<Receipt>> {
        let receipts = self.with(operation, |state, now| {
            let mut draft = Draft { state, now, changes: Changes::default() };
            let receipts = commits
                .iter()
                .map(|commit| {
                    draft
                        .commit(commit, self.partitions)
                        .map_err(|error| error.with_context(commit.aggregate_id()))
                })
                .collect::<Result<Vec<_>>>()?;
            let changes = draft.changes;
            state.apply(changes);
            Ok(receipts)
        })?;
        let changed = receipts.iter().filter(|receipt| !receipt.replayed);
        self.notify(changed.map(|receipt| receipt.partition.clone()));
        Ok(receipts)
    }

    fn load_while(
        &self,
        aggregate_id: &AggregateId,
        versions: VersionRange,
        keep: impl Fn(&RecordedCommit) -> bool + Send + Sync + 'static,
    ) -> Result<CommitStream> {
        self.with("load", |_, _| Ok(()))?;
        let (store, aggregate_id) = (self.clone(), aggregate_id.clone());
        let chunks = stream::unfold(Some(versions.first.max(1)), move |from| {
            let chunk = from.map(|from| {
                store.with("load", |state, _| {
                    let chunk: Vec<RecordedCommit> = (from..=versions.last)
                        .map_while(|version| state.commit(&aggregate_id, version))
                        .take(LOAD_CHUNK)
                        .take_while(|commit| keep(commit))
                        .cloned()
                        .collect();
                    Ok(chunk)
                })
            });
            async move {
                match chunk? {
                    Ok(commits) if commits.is_empty() => None,
                    Ok(commits) => {
                        let next = commits.last().map(|commit| commit.version + 1);
                        Some((commits.into_iter().map(Ok).collect::<Vec<_>>(), next))
                    }
                    Err(error) => Some((vec![Err(error)], None)),
                }
            }
        });
        Ok(chunks.flat_map(stream::iter).boxed())
    }
}

#[async_trait]
impl EventLog for MemoryStore {
    async fn append_checked(&self, commit: CheckedCommit) -> Result<Receipt> {
        let receipts = self.append_drafted("append", &[commit])?;
        receipts.into_iter().next().ok_or_else(|| Error::internal("an append without a receipt"))
    }

    async fn append_all_checked(&self, commits: Vec<CheckedCommit>) -> Result<Vec<Receipt>> {
        check_append_all(&commits)
            .map_err(|error| error.with_operation("append_all").with_store(&self.name))?;
        self.append_drafted("append_all", &commits)
    }

    async fn receipt(&self, aggregate_id: &AggregateId, command_id: &CommandId) -> Result<Option<Receipt>> {
        self.with("receipt", |state, _| Ok(state.receipt(aggregate_id, command_id)))
    }

    async fn head(&self, aggregate_id: &AggregateId) -> Result<Version> {
        self.with("head", |state, _| Ok(state.head(aggregate_id)))
    }

    async fn load_range(&self, aggregate_id: &AggregateId, versions: VersionRange) -> Result<CommitStream> {
        self.load_while(aggregate_id, versions, |_| true)
    }

    async fn load_as_of(&self, aggregate_id: &AggregateId, instant: Timestamp) -> Result<CommitStream> {
        self.load_while(aggregate_id, VersionRange::ALL, move |commit| commit.committed_at <= instant)
    }

    async fn partitions(&self, context: &ContextName) -> Result<PartitionCount> {
        self.with("partitions", |state, _| {
            state.first_use(context, self.partitions);
            PartitionCount::new(state.count(context).unwrap_or_default())
        })
    }

    async fn heads(&self, context: &ContextName) -> Result<Vec<Position>> {
        self.with("heads", |state, _| {
            let log = state.logs.get(context);
            Ok(log.into_iter().flatten().map(|partition| length(partition)).collect())
        })
    }

    async fn read(&self, page: ReadPage) -> Result<Page> {
        self.with("read", |state, _| {
            let partition = &page.partition;
            if let Some(count) = state.count(partition.context()).filter(|count| partition.index() >= *count)
            {
                return Err(Error::invalid_input(format!(
                    "partition {partition} does not exist: the context has {count}, counted from 0"
                )));
            }
            let log = state.partition(partition);
            let mut found = Page::empty(page.after_position);
            let mut bytes = 0;
            let max_commits = page.max_commits.clamp(1, ReadPage::LIMIT_MAX_COMMITS);
            for commit in log.iter().skip(usize::try_from(page.after_position).unwrap_or(usize::MAX)) {
                if found.commits.len() >= max_commits || bytes >= page.max_bytes.max(1) {
                    found.more = true;
                    break;
                }
                found.through = commit.position;
                if page.filter.matches(commit) {
                    bytes += commit.events.iter().map(|event| event.body.as_json().len()).sum::<usize>();
                    found.commits.push(commit.clone());
                }
            }
            Ok(found)
        })
    }

    async fn aggregate_types(&self) -> Result<Vec<AggregateType>> {
        self.with("aggregate_types", |state, _| {
            let types: BTreeSet<_> = state.streams.keys().map(|id| id.aggregate_type().clone()).collect();
            Ok(types.into_iter().collect())
        })
    }

    async fn watch(&self, context: &ContextName) -> Result<Watcher> {
        self.wakeups.watch(context).map_err(|error| error.with_operation("watch").with_store(&self.name))
    }
}

#[async_trait]
impl StoreAdmin for MemoryStore {
    fn name(&self) -> &Arc<str> {
        &self.name
    }

    fn backend(&self) -> &'static str {
        "memory"
    }

    async fn now(&self) -> Result<Timestamp> {
        self.with("now", |_, now| Ok(now))
    }

    async fn formats(&self) -> Result<Vec<Format>> {
        self.with("formats", |_, _| Ok(vec![Format { structure: "memory".to_owned(), version: 1 }]))
    }

    async fn close(&self) -> Result<()> {
        {
            // What has the lock now is finished; what comes later sees that it is closed.
            let _state = self.lock();
            self.closed.store(true, Ordering::SeqCst);
        }
        self.wakeups.close();
        Ok(())
    }
}

impl Drop for super::Place {
    fn drop(&mut self) {
        // The last handle is gone: nobody will ever wake these watchers again.
        for hub in self.hubs.get_mut().unwrap_or_else(PoisonError::into_inner).drain(..) {
            hub.close();
        }
    }
}
