//! What this node knows of heads: it saves a look at each aggregate of a batch.
//!
//! A version that was stored once stays stored, so a known head is never too high; that it may not be the last one any
//! more is told by the unique indexes. One thing would make it too high, and a hole of the next version: a database that
//! was replaced by an older copy of itself. So a batch that rests on what is known also names the last commit that was
//! seen stored in the same log, and nothing is believed if that is not there. Positions are in commit order: where that
//! commit is, all that were seen before it are.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use wow_store_api::{
    AggregateType, CheckedCommit, CommandId, ExpectedVersion, PartitionId, Position, Receipt, Timestamp,
    rules::heads::Heads,
};

use super::Answer;

/// For so many batches heads are looked at again after one was not what it was taken for.
const WARY: u32 = 64;

#[derive(Debug, Default)]
pub(crate) struct Known {
    heads: Heads,
    logs: Mutex<HashMap<(PartitionId, AggregateType), Log>>,
}

/// A partition's part of a log.
#[derive(Debug, Default, Clone)]
struct Log {
    seen: Option<Seen>,
    wary: u32,
}

/// A commit that was stored. Nothing that is known was stored behind it.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    pub(super) position: Position,
    pub(super) at: Timestamp,
    pub(super) command: CommandId,
}

/// What is known about the aggregates of one type in a batch.
#[derive(Debug, Default)]
pub(super) struct About {
    /// The head of each commit's aggregate, by its place; empty if nothing is known.
    pub(super) heads: Vec<Option<i64>>,
    pub(super) seen: Option<Seen>,
}

impl Known {
    fn with<T>(&self, work: impl FnOnce(&mut HashMap<(PartitionId, AggregateType), Log>) -> T) -> T {
        work(&mut self.logs.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What is known about the aggregates of some commits, all of one type.
    pub(super) fn about<'a>(
        &self,
        partition: &PartitionId,
        aggregate_type: &AggregateType,
        commits: impl Iterator<Item = &'a CheckedCommit>,
    ) -> About {
        // Heads first: nothing that is found there is behind what was seen by then.
        let mut heads: Vec<Option<i64>> = commits.map(|commit| self.head_for(commit)).collect();
        let log = self.with(|logs| {
            let log = logs.entry((partition.clone(), aggregate_type.clone())).or_default();
            log.wary = log.wary.saturating_sub(1);
            log.clone()
        });
        if log.wary > 0 || heads.iter().all(Option::is_none) {
            heads.clear();
        }
        About { heads, seen: log.seen }
    }

    /// The head that the commit goes on top of, if that is known and not at odds with what is expected.
    fn head_for(&self, commit: &CheckedCommit) -> Option<i64> {
        let known = self.heads.get(commit.aggregate_id());
        let head = match (commit.expected(), known) {
            (ExpectedVersion::NoStream | ExpectedVersion::Exact(0), None) => 0,
            (ExpectedVersion::Exact(version), Some(known)) if version == known => known,
            (ExpectedVersion::Any, Some(known)) => known,
            _ => return None,
        };
        i64::try_from(head).ok()
    }

    /// What came of a batch; whoever has the partition's turn says so before giving it on.
    pub(super) fn note<'a>(
        &self,
        partition: &PartitionId,
        aggregate_type: &AggregateType,
        answers: impl Iterator<Item = (&'a CheckedCommit, &'a Answer)> + Clone,
    ) {
        let stored = answers.clone().filter_map(|(commit, answer)| match answer {
            Ok(receipt) if !receipt.replayed => Some((commit, receipt)),
            _ => None,
        });
        if let Some((commit, receipt)) = stored.clone().max_by_key(|(_, receipt)| receipt.position()) {
            self.with(|logs| {
                let log = logs.entry((partition.clone(), aggregate_type.clone())).or_default();
                log.seen = Some(Seen::new(commit, receipt));
            });
        }
        for (commit, answer) in answers {
            match answer {
                Ok(receipt) if !receipt.replayed => self.heads.seen(commit.aggregate_id(), receipt.version()),
                _ => self.heads.forget(commit.aggregate_id()),
            }
        }
    }

    /// A head was not what it was taken for.
    pub(super) fn be_wary(&self, partition: &PartitionId, aggregate_type: &AggregateType) {
        self.with(|logs| {
            let log = logs.entry((partition.clone(), aggregate_type.clone())).or_default();
            log.wary = WARY;
        });
    }

    /// The database is not the one that it was.
    pub(super) fn forget(&self) {
        self.with(HashMap::clear);
        self.heads.forget_all();
    }
}

impl Seen {
    fn new(commit: &CheckedCommit, receipt: &Receipt) -> Self {
        Self { position: receipt.position(), at: receipt.committed_at, command: commit.command_id().clone() }
    }
}
