//! The careful way: locks everything that the commits touch, looks at it, decides with the rules of the contract, and
//! writes.
//!
//! Locks are taken in one order by everybody: counters by context and partition, then leases, then reservations, then
//! timers, each sorted. So two such transactions never wait for each other in a circle (L11).

use std::collections::{BTreeMap, BTreeSet, HashMap};

use tokio::time::{Instant, timeout_at};
use wow_store_api::{
    AggregateId, AggregateType, CheckedCommit, CommandId, ContextName, Error, PartitionId, Position, Receipt,
    Result, Timestamp, Version, rules,
};

use super::{
    Answer, lock_millis,
    riders::{Changes, Riders},
};
use crate::{
    attempts::GRACE,
    fault::Fault,
    jsonb,
    macros::args,
    names,
    pool::{Conn, Sql},
    store::Inner,
    value::{Cells as _, Instant as Stamp, bigint, integer},
};

/// Whether commits share their fate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// Each has its own outcome (L8).
    Each,
    /// All or nothing (L11).
    Together,
}

/// The end of a partition.
#[derive(Debug, Clone, Copy)]
struct Head {
    position: Position,
    committed_at: Timestamp,
}

/// A commit that is to be stored.
struct Stored<'a> {
    commit: &'a CheckedCommit,
    receipt: Receipt,
}

/// What is there, under lock, with what was decided so far on top.
struct Draft<'a> {
    now: Timestamp,
    partitions: BTreeMap<PartitionId, Head>,
    heads: HashMap<&'a AggregateId, Version>,
    receipts: HashMap<(&'a AggregateId, &'a CommandId), Receipt>,
    riders: Riders,
    stored: Vec<Stored<'a>>,
}

impl Inner {
    /// Appends commits the careful way. The outer error is of the attempt, the inner ones are the commits' own; with
    /// [`Mode::Together`], one of those means that nothing was stored.
    pub(super) async fn draft(
        &self,
        commits: &[CheckedCommit],
        mode: Mode,
        deadline: Instant,
    ) -> std::result::Result<Vec<Answer>, Fault> {
        // Before a connection is held: making tables takes one of its own.
        for op in commits.iter().flat_map(CheckedCommit::timers) {
            self.use_timers(op.context()).await?;
        }
        let mut conn = self.pool.take(deadline).await?;
        let work = self.draft_in(&mut conn, commits, mode, deadline);
        let result = timeout_at(deadline + GRACE, work).await.unwrap_or_else(|_| Err(Fault::no_answer()));
        if result.is_err() {
            conn.rollback().await;
        }
        result
    }

    async fn draft_in(
        &self,
        conn: &mut Conn,
        commits: &[CheckedCommit],
        mode: Mode,
        deadline: Instant,
    ) -> std::result::Result<Vec<Answer>, Fault> {
        let partitions =
            commits.iter().map(|commit| self.partition_of(commit)).collect::<Result<Vec<_>>>()?;
        conn.begin_with(&format!("SET LOCAL lock_timeout = {};", lock_millis(deadline))).await?;
        let heads = self.lock_partitions(conn, &partitions).await?;
        let riders = Riders::lock(self, conn, commits).await?;
        let mut draft = Draft {
            now: self.now_in(conn).await?,
            partitions: heads,
            heads: HashMap::new(),
            receipts: HashMap::new(),
            riders,
            stored: Vec::new(),
        };
        self.look(conn, &mut draft, commits, &partitions).await?;
        let mut answers = Vec::with_capacity(commits.len());
        for (commit, partition) in commits.iter().zip(&partitions) {
            let answer = draft.decide(commit, partition);
            let answer = answer.map_err(|error| error.with_context(commit.aggregate_id()));
            if answer.is_err() && mode == Mode::Together {
                conn.rollback().await;
                return Ok(vec![answer]);
            }
            answers.push(answer);
        }
        if draft.stored.is_empty() {
            conn.rollback().await;
            return Ok(answers);
        }
        self.write(conn, &draft).await?;
        conn.commit().await?;
        let written: BTreeSet<&PartitionId> =
            draft.stored.iter().map(|stored| &stored.receipt.partition).collect();
        for partition in written {
            self.announce(partition.context(), partition.index());
        }
        Ok(answers)
    }

    fn partition_of(&self, commit: &CheckedCommit) -> Result<PartitionId> {
        let id = commit.aggregate_id();
        let count = self.catalog.partitions(id.context());
        let count = count.ok_or_else(|| Error::internal("a context that was never used"))?;
        Ok(count.partition_of(id))
    }

    /// The server's clock.
    pub(crate) async fn now_in(&self, conn: &mut Conn) -> std::result::Result<Timestamp, Fault> {
        let row = conn.row(&self.statements.now, args![]).await?;
        row.ok_or_else(|| Fault::from(Error::internal("the server did not tell the time")))?.instant(0)
    }

    async fn lock_partitions(
        &self,
        conn: &mut Conn,
        partitions: &[PartitionId],
    ) -> std::result::Result<BTreeMap<PartitionId, Head>, Fault> {
        let mut by_context: BTreeMap<&ContextName, BTreeSet<u32>> = BTreeMap::new();
        for partition in partitions {
            by_context.entry(partition.context()).or_default().insert(partition.index());
        }
        let mut heads = BTreeMap::new();
        for (context, indexes) in by_context {
            let sql = Sql::from(format!(
                "SELECT partition, position, committed_at FROM {} WHERE partition = ANY($1) \
                 ORDER BY partition FOR UPDATE",
                self.schema.at(&names::counter(context))
            ));
            let wanted: Vec<i32> = indexes.iter().copied().map(integer).collect();
            for row in conn.rows(&sql, args![&wanted]).await? {
                let head = Head { position: row.counter(1)?, committed_at: row.instant(2)? };
                heads.insert(PartitionId::new(context.clone(), row.number(0)?), head);
            }
        }
        Ok(heads)
    }

    /// The aggregates' heads, and the receipts of the commands that are stored.
    async fn look<'a>(
        &self,
        conn: &mut Conn,
        draft: &mut Draft<'a>,
        commits: &'a [CheckedCommit],
        partitions: &[PartitionId],
    ) -> std::result::Result<(), Fault> {
        let mut by_type: BTreeMap<&AggregateType, Vec<(&'a CheckedCommit, &PartitionId)>> = BTreeMap::new();
        for (commit, partition) in commits.iter().zip(partitions) {
            let of_type = by_type.entry(commit.aggregate_id().aggregate_type()).or_default();
            of_type.push((commit, partition));
        }
        for (aggregate_type, of_type) in by_type {
            let sql = Sql::from(
                "SELECT a.ord, coalesce(h.version, 0), r.version, r.position, r.committed_at
                 FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS a(tenant, id, command_id, ord)
                 LEFT JOIN LATERAL (
                     SELECT l.version FROM {log} AS l WHERE l.tenant = a.tenant AND l.id = a.id
                     ORDER BY l.version DESC LIMIT 1
                 ) AS h ON true
                 LEFT JOIN LATERAL (
                     SELECT l.version, l.position, l.committed_at FROM {log} AS l
                     WHERE l.tenant = a.tenant AND l.id = a.id AND l.command_id = a.command_id LIMIT 1
                 ) AS r ON true"
                    .replace("{log}", &self.schema.at(&names::log(aggregate_type))),
            );
            let ids = of_type.iter().map(|(commit, _)| commit.aggregate_id());
            let tenants: Vec<&str> = ids.clone().map(|id| id.tenant().unwrap_or_default()).collect();
            let names: Vec<&str> = ids.map(AggregateId::id).collect();
            let commands: Vec<&str> =
                of_type.iter().map(|(commit, _)| commit.command_id().as_str()).collect();
            for row in conn.rows(&sql, args![tenants, names, commands]).await? {
                let place = usize::try_from(row.counter(0)?.saturating_sub(1)).unwrap_or(usize::MAX);
                let Some((commit, partition)) = of_type.get(place) else { continue };
                draft.heads.insert(commit.aggregate_id(), row.counter(1)?);
                if let Some(version) = row.counter_or_none(2)? {
                    let position = row.counter(3)?;
                    let at = row.instant(4)?;
                    let receipt = rules::append::receipt((*partition).clone(), version, position, at);
                    draft.receipts.insert((commit.aggregate_id(), commit.command_id()), receipt);
                }
            }
        }
        Ok(())
    }

    async fn write(&self, conn: &mut Conn, draft: &Draft<'_>) -> std::result::Result<(), Fault> {
        let mut by_type: BTreeMap<&AggregateType, Vec<&Stored<'_>>> = BTreeMap::new();
        for stored in &draft.stored {
            by_type.entry(stored.commit.aggregate_id().aggregate_type()).or_default().push(stored);
        }
        for (aggregate_type, stored) in by_type {
            self.insert(conn, aggregate_type, &stored).await?;
        }
        let moved: BTreeSet<&PartitionId> =
            draft.stored.iter().map(|stored| &stored.receipt.partition).collect();
        for partition in moved {
            let Some(head) = draft.partitions.get(partition) else { continue };
            let sql = Sql::from(format!(
                "UPDATE {} SET position = $2, committed_at = $3 WHERE partition = $1",
                self.schema.at(&names::counter(partition.context()))
            ));
            let (index, position) = (integer(partition.index()), bigint(head.position));
            conn.execute(&sql, args![index, position, Stamp(head.committed_at)]).await?;
        }
        draft.riders.write(self, conn).await
    }

    async fn insert(
        &self,
        conn: &mut Conn,
        aggregate_type: &AggregateType,
        stored: &[&Stored<'_>],
    ) -> std::result::Result<(), Fault> {
        let sql = Sql::from(format!(
            "INSERT INTO {} (partition, position, tenant, id, version, command_id, committed_at, size, metadata, events) \
             SELECT a.partition, a.position, a.tenant, a.id, a.version, a.command_id, \
                    'epoch'::timestamptz + a.at * interval '1 millisecond', a.size, a.metadata::jsonb, a.events::json \
             FROM ROWS FROM (unnest($1::integer[]), unnest($2::bigint[]), unnest($3::text[]), unnest($4::text[]), \
                             unnest($5::bigint[]), unnest($6::text[]), unnest($7::bigint[]), unnest($8::integer[]), \
                             unnest($9::text[]), unnest($10::text[])) \
                  AS a(partition, position, tenant, id, version, command_id, at, size, metadata, events)",
            self.schema.at(&names::log(aggregate_type))
        ));
        let each = || stored.iter().map(|stored| (stored.commit, &stored.receipt));
        let partitions: Vec<i32> = each().map(|(_, receipt)| integer(receipt.partition.index())).collect();
        let positions: Vec<i64> = each().map(|(_, receipt)| bigint(receipt.position)).collect();
        let tenants: Vec<&str> =
            each().map(|(commit, _)| commit.aggregate_id().tenant().unwrap_or_default()).collect();
        let ids: Vec<&str> = each().map(|(commit, _)| commit.aggregate_id().id()).collect();
        let versions: Vec<i64> = each().map(|(_, receipt)| bigint(receipt.version)).collect();
        let commands: Vec<&str> = each().map(|(commit, _)| commit.command_id().as_str()).collect();
        let instants: Vec<i64> = each().map(|(_, receipt)| receipt.committed_at.as_millis()).collect();
        let sizes: Vec<i32> = each()
            .map(|(commit, _)| i32::try_from(jsonb::bodies_size(commit.events())).unwrap_or(i32::MAX))
            .collect();
        let metadata: Vec<Option<&str>> =
            each().map(|(commit, _)| commit.metadata().map(|metadata| metadata.as_json())).collect();
        let events: Vec<String> = each().map(|(commit, _)| jsonb::write_events(commit.events())).collect();
        let arguments =
            args![partitions, positions, tenants, ids, versions, commands, instants, sizes, metadata, events];
        conn.execute(&sql, arguments).await?;
        Ok(())
    }
}

impl<'a> Draft<'a> {
    /// One commit, in the order of the contract: command id, fence, expected version, reservations, timers.
    fn decide(&mut self, commit: &'a CheckedCommit, partition: &PartitionId) -> Answer {
        let id = commit.aggregate_id();
        if let Some(receipt) = self.receipts.get(&(id, commit.command_id())) {
            return Ok(receipt.clone().replay());
        }
        let mut changes = Changes::default();
        if let Some(fence) = commit.fence() {
            self.riders.fence(&mut changes, fence)?;
        }
        let head = self.heads.get(id).copied().unwrap_or_default();
        let version = rules::append::next_version(commit, head)?;
        for op in commit.reservations() {
            self.riders.reserve(&mut changes, op, self.now)?;
        }
        for op in commit.timers() {
            self.riders.timer(&mut changes, op, self.now)?;
        }
        let end = self.partitions.get_mut(partition).ok_or_else(|| {
            Error::corrupt(format!("the counters of {}", partition.context()), "a counter is missing")
        })?;
        let position = rules::append::next_position(partition, end.position)?;
        let committed_at = rules::append::committed_at(self.now, Some(end.committed_at));
        *end = Head { position, committed_at };
        let receipt = rules::append::receipt(partition.clone(), version, position, committed_at);
        self.heads.insert(id, version);
        self.receipts.insert((id, commit.command_id()), receipt.clone());
        self.riders.apply(changes);
        self.stored.push(Stored { commit, receipt: receipt.clone() });
        Ok(receipt)
    }
}
