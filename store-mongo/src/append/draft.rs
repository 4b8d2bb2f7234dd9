//! One transaction for commits: decides with the rules of the contract, and writes.
//!
//! Whoever stores a commit in a partition raises the partition's counter in the same transaction, so of two that
//! overlap one is aborted and runs again: what was read is still so when it is committed.
//!
//! A transaction that only read is committed as well: its reads are known to stay only then.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use mongodb::bson::{RawDocumentBuf, doc};
use wow_store_api::{
    AggregateId, AggregateType, CheckedCommit, CommandId, Error, ErrorKind, ExpectedVersion, PartitionId,
    Position, Receipt, Result, Timestamp, Version, rules,
};

use super::{
    Answer,
    look::look,
    riders::{Changes, Riders},
};
use crate::{
    db::{Raw, Work, literal},
    document::{Fields as _, Writer, instant, int, long},
    fault::Fault,
    names,
    store::Inner,
};

/// Whether commits share their fate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// Each has its own outcome (L8).
    Each,
    /// All or nothing (L11).
    Together,
}

/// What an attempt does not take for granted.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Care {
    /// It looks at every aggregate and command.
    look: bool,
    /// It keeps other writers out before it looks.
    lock: bool,
}

impl Care {
    /// What an attempt that failed teaches.
    pub(super) fn take(&mut self, fault: &Fault) {
        if fault.is_conflict() {
            self.lock = true;
        } else {
            *self = Self { look: true, lock: true };
        }
    }
}

/// What is there.
#[derive(Default)]
pub(super) struct Known<'a> {
    pub(super) heads: HashMap<&'a AggregateId, Version>,
    pub(super) receipts: HashMap<(&'a AggregateId, &'a CommandId), Receipt>,
}

/// What becomes of a commit.
enum Decision {
    /// It is stored; where, is known once the counters are raised.
    Stored(usize),
    /// Its command is that of another commit in this transaction.
    SameAs(usize),
    Replayed(Receipt),
    Refused(Error),
}

/// A commit that is to be stored.
struct Stored<'a> {
    commit: &'a CheckedCommit,
    partition: &'a PartitionId,
    version: Version,
}

struct Draft<'a> {
    known: Known<'a>,
    commands: HashMap<(&'a AggregateId, &'a CommandId), usize>,
    riders: Riders,
    now: Timestamp,
    stored: Vec<Stored<'a>>,
}

impl Inner {
    /// Appends commits. The outer error is of the attempt, the inner ones are the commits' own; with
    /// [`Mode::Together`], one of those means that nothing was stored.
    pub(super) async fn draft(
        &self,
        commits: &[CheckedCommit],
        mode: Mode,
        care: Care,
    ) -> std::result::Result<Vec<Answer>, Fault> {
        let mut partitions = Vec::with_capacity(commits.len());
        for commit in commits {
            let id = commit.aggregate_id();
            let count = self.partitions_if_used(id.context()).await?.ok_or_else(Fault::overtaken)?;
            partitions.push(count.partition_of(id));
        }
        let _turn = self.queues.turn(partitions.iter().collect()).await;
        let mut transaction = self.db.begin().await?;
        let drafting = self.draft_in(&mut transaction.work()?, commits, &partitions, mode, care).await;
        let (answers, versions) = match drafting {
            Ok(drafted) => drafted,
            Err(fault) => {
                transaction.abort(&fault).await;
                if !fault.is_conflict() {
                    for commit in commits {
                        self.heads.forget(commit.aggregate_id());
                    }
                }
                return Err(fault.before_commit());
            }
        };
        transaction.commit().await?;
        for (id, version) in versions {
            self.heads.seen(id, version);
        }
        let written: BTreeSet<&PartitionId> = answers
            .iter()
            .flatten()
            .filter(|receipt| !receipt.replayed)
            .map(|receipt| &receipt.partition)
            .collect();
        for partition in written {
            self.wakeups.notify(partition.context(), partition.index());
        }
        Ok(answers)
    }

    async fn draft_in<'a>(
        &self,
        work: &mut Work<'_>,
        commits: &'a [CheckedCommit],
        partitions: &'a [PartitionId],
        mode: Mode,
        care: Care,
    ) -> std::result::Result<(Vec<Answer>, Vec<(&'a AggregateId, Version)>), Fault> {
        let mut known = Known::default();
        let unsure = if care.look {
            commits.iter().map(CheckedCommit::aggregate_id).collect()
        } else {
            self.assume(commits, &mut known)
        };
        let placed: Vec<_> = commits
            .iter()
            .zip(partitions)
            .filter(|(commit, _)| unsure.contains(commit.aggregate_id()))
            .collect();
        if care.lock && !placed.is_empty() {
            // In one order, as they are raised.
            for partition in partitions.iter().collect::<BTreeSet<_>>() {
                self.lock(work, partition).await?;
            }
        }
        look(work, &placed, &mut known).await?;
        let (riders, now) = Riders::read(self, work, commits).await?;
        let mut draft = Draft { known, commands: HashMap::new(), riders, now, stored: Vec::new() };
        let mut decisions = Vec::with_capacity(commits.len());
        for (commit, partition) in commits.iter().zip(partitions) {
            match draft.decide(commit, partition) {
                // An earlier one may have been wrong to be taken for granted, and is then the one to be refused.
                Decision::Refused(_) if mode == Mode::Together && !care.look => {
                    return Err(Fault::overtaken());
                }
                Decision::Refused(error) if mode == Mode::Together => {
                    return Ok((vec![Err(error.with_context(commit.aggregate_id()))], Vec::new()));
                }
                decision => decisions.push(decision),
            }
        }
        let receipts = self.write(work, &draft).await?;
        let versions = draft.stored.iter().map(|it| (it.commit.aggregate_id(), it.version)).collect();
        let answer = |decision| match decision {
            Decision::Stored(place) => {
                receipts.get(place).cloned().ok_or_else(|| Error::internal("no receipt"))
            }
            Decision::SameAs(place) => {
                let receipt = receipts.get(place).cloned().map(Receipt::replay);
                receipt.ok_or_else(|| Error::internal("no receipt"))
            }
            Decision::Replayed(receipt) => Ok(receipt.replay()),
            Decision::Refused(error) => Err(error),
        };
        Ok((decisions.into_iter().map(answer).collect(), versions))
    }

    /// Assumes heads where the unique indexes will object if that was wrong; returns the aggregates where it cannot.
    ///
    /// A commit that expects no stream is behind nothing; one that expects a version that is known to be there is behind
    /// that. So no assumption can leave a hole: at worst the next version is taken.
    fn assume<'a>(&self, commits: &'a [CheckedCommit], known: &mut Known<'a>) -> HashSet<&'a AggregateId> {
        let mut unsure = HashSet::new();
        let mut heads: HashMap<&AggregateId, Version> = HashMap::new();
        let mut commands: HashSet<(&AggregateId, &CommandId)> = HashSet::new();
        for commit in commits {
            let id = commit.aggregate_id();
            let seen = || self.heads.get(id);
            let head = match heads.get(id) {
                Some(head) => Some(*head),
                None => {
                    let first = match commit.expected() {
                        ExpectedVersion::NoStream | ExpectedVersion::Exact(0) => Some(0),
                        ExpectedVersion::Exact(version) => Some(version).filter(|_| seen() == Some(version)),
                        ExpectedVersion::Any => seen(),
                    };
                    if let Some(first) = first {
                        known.heads.insert(id, first);
                    }
                    first
                }
            };
            // Riders may refuse a commit, and whoever is refused must not have been a replay.
            let plain =
                commit.fence().is_none() && commit.reservations().is_empty() && commit.timers().is_empty();
            let fits = head.filter(|head| plain && commit.expected().is_met_by(*head));
            match fits {
                Some(head) if commands.insert((id, commit.command_id())) => {
                    heads.insert(id, head.saturating_add(1));
                }
                Some(_) | None => drop(unsure.insert(id)),
            }
        }
        unsure
    }

    /// Raises the counters, stores the commits and what rides in them.
    async fn write(
        &self,
        work: &mut Work<'_>,
        draft: &Draft<'_>,
    ) -> std::result::Result<Vec<Receipt>, Fault> {
        let mut by_partition: BTreeMap<&PartitionId, Vec<&Stored<'_>>> = BTreeMap::new();
        for stored in &draft.stored {
            by_partition.entry(stored.partition).or_default().push(stored);
        }
        let mut ends: HashMap<&PartitionId, (Position, Timestamp)> = HashMap::new();
        // In one order, so that two transactions that want the same partitions meet at the first.
        for (partition, stored) in by_partition {
            ends.insert(partition, self.raise(work, partition, &stored).await?);
        }
        let mut receipts = Vec::with_capacity(draft.stored.len());
        let mut by_type: BTreeMap<&AggregateType, Vec<Raw>> = BTreeMap::new();
        for stored in &draft.stored {
            let end = ends.get_mut(stored.partition);
            let (position, at) = end.ok_or_else(|| Fault::from(Error::internal("no counter")))?;
            *position += 1;
            let receipt = rules::append::receipt(stored.partition.clone(), stored.version, *position, *at);
            let of_type = by_type.entry(stored.commit.aggregate_id().aggregate_type()).or_default();
            of_type.push(document(stored.commit, &receipt)?);
            receipts.push(receipt);
        }
        for (aggregate_type, documents) in by_type {
            work.insert(&names::log(aggregate_type), &documents).await?;
        }
        draft.riders.write(work).await?;
        Ok(receipts)
    }

    /// Keeps everybody else from raising a partition's counter until the transaction ends.
    async fn lock(&self, work: &mut Work<'_>, partition: &PartitionId) -> std::result::Result<(), Fault> {
        let update = doc! { "$set": {
            "position": { "$ifNull": ["$position", 0_i64] },
            "committed_at": { "$ifNull": ["$committed_at", instant(Timestamp::UNIX_EPOCH)] },
            "touched": { "$add": [{ "$ifNull": ["$touched", 0_i64] }, 1_i64] },
        } };
        let filter = doc! { "_id": int(partition.index()) };
        work.modify(&names::counter(partition.context()), filter, vec![update], true).await?;
        Ok(())
    }

    /// Raises a partition's counter: the position before the first of the commits, and their instant.
    async fn raise(
        &self,
        work: &mut Work<'_>,
        partition: &PartitionId,
        stored: &[&Stored<'_>],
    ) -> std::result::Result<(Position, Timestamp), Fault> {
        let count = u64::try_from(stored.len()).unwrap_or(u64::MAX);
        let aggregates: BTreeSet<&str> =
            stored.iter().map(|it| it.commit.aggregate_id().aggregate_type().name().as_str()).collect();
        let aggregates: Vec<&str> = aggregates.into_iter().collect();
        let update = doc! { "$set": {
            "position": { "$add": [{ "$ifNull": ["$position", 0_i64] }, long(count)] },
            "committed_at": { "$max": ["$committed_at", self.now()] },
            // Which logs a reader has to look into.
            "aggregates": { "$setUnion": [{ "$ifNull": ["$aggregates", []] }, literal(aggregates)] },
        } };
        let filter = doc! { "_id": int(partition.index()) };
        let counter = work.modify(&names::counter(partition.context()), filter, vec![update], true).await?;
        let counter = counter.ok_or_else(Fault::overtaken)?;
        let exhausted = || {
            let exhausted = Error::not_applied(ErrorKind::Exhausted { what: "positions" });
            Fault::from(exhausted.with_context(partition))
        };
        // Beyond the last Int64 the sum is a Double.
        let end = counter.value("position")?.and_then(mongodb::bson::RawBsonRef::as_i64);
        let end = end.and_then(|end| u64::try_from(end).ok()).ok_or_else(exhausted)?;
        Ok((end.saturating_sub(count), counter.instant("committed_at")?))
    }
}

impl<'a> Draft<'a> {
    /// One commit, in the order of the contract: command id, fence, expected version, reservations, timers.
    fn decide(&mut self, commit: &'a CheckedCommit, partition: &'a PartitionId) -> Decision {
        let id = commit.aggregate_id();
        let command = (id, commit.command_id());
        if let Some(receipt) = self.known.receipts.get(&command) {
            return Decision::Replayed(receipt.clone());
        }
        if let Some(place) = self.commands.get(&command) {
            return Decision::SameAs(*place);
        }
        let mut changes = Changes::default();
        let head = self.known.heads.get(id).copied().unwrap_or_default();
        match self.version(commit, head, &mut changes) {
            Ok(version) => {
                let place = self.stored.len();
                self.known.heads.insert(id, version);
                self.commands.insert(command, place);
                self.riders.apply(changes);
                self.stored.push(Stored { commit, partition, version });
                Decision::Stored(place)
            }
            Err(error) => Decision::Refused(error),
        }
    }

    fn version(&self, commit: &CheckedCommit, head: Version, changes: &mut Changes) -> Result<Version> {
        if let Some(fence) = commit.fence() {
            self.riders.fence(changes, fence)?;
        }
        let version = rules::append::next_version(commit, head)?;
        for op in commit.reservations() {
            self.riders.reserve(changes, op, self.now)?;
        }
        for op in commit.timers() {
            self.riders.timer(changes, op, self.now)?;
        }
        Ok(version)
    }
}

/// A commit as it is stored.
fn document(commit: &CheckedCommit, receipt: &Receipt) -> std::result::Result<RawDocumentBuf, Fault> {
    let id = commit.aggregate_id();
    let bodies: usize = commit.events().iter().map(|event| event.body.as_json().len()).sum();
    let mut to = Writer::with_capacity(512 + bodies + bodies / 4);
    to.begin_document("_id");
    to.int32("partition", int(receipt.partition.index()));
    to.int64("position", long(receipt.position));
    to.close();
    to.text("tenant", id.tenant().unwrap_or_default());
    to.text("id", id.id());
    to.int64("version", long(receipt.version));
    to.text("command_id", commit.command_id().as_str());
    to.instant("committed_at", receipt.committed_at);
    if let Some(metadata) = commit.metadata() {
        to.payload("metadata", metadata)?;
    }
    to.begin_array("events");
    for (index, event) in commit.events().iter().enumerate() {
        to.begin_document(&index.to_string());
        to.text("name", event.name.as_str());
        to.int32("revision", int(event.revision));
        to.payload("body", &event.body)?;
        to.close();
    }
    to.close();
    to.finish()
}
