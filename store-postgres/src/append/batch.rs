//! The short way: one call of the database for a whole batch.

use std::collections::{BTreeMap, HashMap};

use sqlx::postgres::PgRow;
use tokio::time::{Instant, timeout_at};
use wow_store_api::{
    AggregateId, AggregateType, CheckedCommit, Error, ErrorKind, ExpectedVersion, PartitionId, Receipt, rules,
};

use super::{Answer, lock_millis, queue::Batch};
use crate::{
    attempts::GRACE,
    fault::Fault,
    jsonb,
    macros::args,
    names,
    pool::Sql,
    store::Inner,
    value::{Cells as _, bigint, integer},
};

/// What the function says of a commit.
const STORED: i32 = 0;
const REPLAYED: i32 = 1;
const CONFLICT: i32 = 2;
/// What it says of all together.
const ALL_STORED: i32 = 3;

/// How an expectation is told to the function: a version, or below 0 for any.
fn expected(expected: ExpectedVersion) -> i64 {
    match expected {
        ExpectedVersion::NoStream => 0,
        // A version that no aggregate can have is never met.
        ExpectedVersion::Exact(version) => bigint(version),
        ExpectedVersion::Any => -1,
    }
}

/// The parameters of one call: column by column.
#[derive(Default)]
struct Columns<'a> {
    /// Where each commit stands in the batch.
    places: Vec<usize>,
    /// How many commits of the same aggregate come before each.
    ranks: Vec<i32>,
    tenants: Vec<&'a str>,
    ids: Vec<&'a str>,
    expected: Vec<i64>,
    commands: Vec<&'a str>,
    sizes: Vec<i32>,
    metadata: Vec<Option<&'a str>>,
    events: Vec<String>,
    seen: HashMap<&'a AggregateId, i32>,
}

impl<'a> Columns<'a> {
    fn push(&mut self, place: usize, commit: &'a CheckedCommit) {
        let id = commit.aggregate_id();
        let seen = self.seen.entry(id).or_insert(-1);
        *seen += 1;
        self.places.push(place);
        self.ranks.push(*seen);
        self.tenants.push(id.tenant().unwrap_or_default());
        self.ids.push(id.id());
        self.expected.push(expected(commit.expected()));
        self.commands.push(commit.command_id().as_str());
        self.sizes.push(i32::try_from(jsonb::bodies_size(commit.events())).unwrap_or(i32::MAX));
        self.metadata.push(commit.metadata().map(|metadata| metadata.as_json()));
        self.events.push(jsonb::write_events(commit.events()));
    }
}

impl Inner {
    /// Appends a plain batch.
    pub(super) async fn append_plain(
        &self,
        partition: &PartitionId,
        batch: &Batch,
        deadline: Instant,
    ) -> Result<Vec<Answer>, Fault> {
        let commits = batch.commits();
        let mut by_type: BTreeMap<&AggregateType, Columns<'_>> = BTreeMap::new();
        for (place, commit) in commits.iter().enumerate() {
            by_type.entry(commit.aggregate_id().aggregate_type()).or_default().push(place, commit);
        }
        let sql = self.append_sql(by_type.keys().copied());
        let mut conn = self.pool.take(deadline).await?;
        let mut arguments = args![integer(partition.index()), lock_millis(deadline)];
        let parts: Vec<Columns<'_>> = by_type.into_values().collect();
        for columns in &parts {
            let more = add(&mut arguments, columns);
            more.map_err(|_| Fault::from(Error::internal("a parameter was refused")))?;
        }
        let rows = timeout_at(deadline + GRACE, conn.rows(&sql, arguments)).await;
        let rows = rows.unwrap_or_else(|_| Err(Fault::no_answer()))?;
        let mut answers: Vec<Option<Answer>> = vec![None; commits.len()];
        for row in &rows {
            let part = usize::try_from(row.number(0)?).ok().and_then(|part| parts.get(part));
            let part = part.ok_or_else(strange)?;
            if row.cell::<i32>(2)? == ALL_STORED {
                all_stored(row, partition, part, &mut answers)?;
                continue;
            }
            let ord = row.counter(1)?.checked_sub(1).and_then(|ord| usize::try_from(ord).ok());
            let place = ord.and_then(|ord| part.places.get(ord).copied());
            let place = place.and_then(|place| Some((answers.get_mut(place)?, commits.get(place)?)));
            let (answer, commit) = place.ok_or_else(strange)?;
            *answer = Some(read(row, partition, commit)?);
        }
        answers.into_iter().map(|answer| answer.ok_or_else(strange)).collect()
    }

    /// One call for each aggregate type, in one statement.
    fn append_sql<'a>(&self, types: impl Iterator<Item = &'a AggregateType>) -> Sql {
        let calls: Vec<String> = types
            .enumerate()
            .map(|(part, aggregate_type)| {
                let first = 3 + part * 8;
                let parameters: Vec<String> = (first..first + 8).map(|number| format!("${number}")).collect();
                format!(
                    "SELECT {part}, a.* FROM {}($1, $2, {}) AS a",
                    self.schema.at(&names::append_function(aggregate_type)),
                    parameters.join(", ")
                )
            })
            .collect();
        Sql::from(calls.join(" UNION ALL "))
    }
}

fn add(
    arguments: &mut sqlx::postgres::PgArguments,
    columns: &Columns<'_>,
) -> Result<(), sqlx::error::BoxDynError> {
    use sqlx::Arguments as _;
    arguments.add(&columns.ranks)?;
    arguments.add(&columns.tenants)?;
    arguments.add(&columns.ids)?;
    arguments.add(&columns.expected)?;
    arguments.add(&columns.commands)?;
    arguments.add(&columns.sizes)?;
    arguments.add(&columns.metadata)?;
    arguments.add(&columns.events)
}

/// All commits of a part were stored, one after the other behind a position, each on top of its aggregate's head.
fn all_stored(
    row: &PgRow,
    partition: &PartitionId,
    part: &Columns<'_>,
    answers: &mut [Option<Answer>],
) -> Result<(), Fault> {
    let (before, at) = (row.counter(4)?, row.instant(5)?);
    let heads: Vec<i64> = row.cell(6)?;
    if heads.len() != part.places.len() {
        return Err(strange());
    }
    for (position, ((head, rank), place)) in
        (before + 1..).zip(heads.iter().zip(&part.ranks).zip(&part.places))
    {
        let version = u64::try_from(head + i64::from(*rank) + 1).map_err(|_| strange())?;
        let receipt = rules::append::receipt(partition.clone(), version, position, at);
        *answers.get_mut(*place).ok_or_else(strange)? = Some(Ok(receipt));
    }
    Ok(())
}

fn read(row: &PgRow, partition: &PartitionId, commit: &CheckedCommit) -> Result<Answer, Fault> {
    let outcome: i32 = row.cell(2)?;
    let version = row.counter(3)?;
    let receipt = |replayed| -> Result<Receipt, Fault> {
        let receipt = rules::append::receipt(partition.clone(), version, row.counter(4)?, row.instant(5)?);
        Ok(if replayed { receipt.replay() } else { receipt })
    };
    match outcome {
        STORED => Ok(Ok(receipt(false)?)),
        REPLAYED => Ok(Ok(receipt(true)?)),
        CONFLICT => Ok(Err(Error::not_applied(ErrorKind::VersionConflict {
            aggregate_id: commit.aggregate_id().clone(),
            expected: commit.expected(),
            actual: version,
        }))),
        _ => Err(strange()),
    }
}

fn strange() -> Fault {
    Fault::from(Error::internal("the append function gave an answer that does not belong to the question"))
}
