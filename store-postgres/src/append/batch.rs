//! The short way: one call of the database for a whole batch.

use std::collections::{BTreeMap, HashMap};

use sqlx::{Arguments as _, postgres::PgRow};
use tokio::time::{Instant, timeout_at};
use wow_store_api::{
    AggregateId, AggregateType, CheckedCommit, Error, ErrorKind, ExpectedVersion, PartitionId, Receipt, rules,
};

use super::{
    Answer,
    known::About,
    lock_millis,
    queue::{Batch, Line},
};
use crate::{
    attempts::GRACE,
    fault::Fault,
    jsonb,
    macros::args,
    names,
    pool::Sql,
    store::Inner,
    value::{Cells as _, Instant as Stamp, bigint, integer},
};

/// What the function says of a commit.
const STORED: i32 = 0;
const REPLAYED: i32 = 1;
const CONFLICT: i32 = 2;
/// What it says of all together.
const ALL_STORED: i32 = 3;
/// The commit that was seen last is not there.
const REPLACED: i32 = 4;
/// Some head was not the known one, or some command was stored: everything was looked at.
const LOOKED: i32 = 5;

/// Parameters of a call for one aggregate type.
const PARAMETERS: usize = 12;

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
    ranks_of: HashMap<&'a AggregateId, i32>,
    about: About,
}

impl<'a> Columns<'a> {
    fn push(&mut self, place: usize, commit: &'a CheckedCommit) {
        let id = commit.aggregate_id();
        let rank = self.ranks_of.entry(id).or_insert(-1);
        *rank += 1;
        self.places.push(place);
        self.ranks.push(*rank);
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
        line: &Line,
        batch: &Batch,
        deadline: Instant,
    ) -> Result<Vec<Answer>, Fault> {
        let partition = line.queue.partition();
        let commits = batch.commits();
        let mut by_type: BTreeMap<&AggregateType, Columns<'_>> = BTreeMap::new();
        for (place, commit) in commits.iter().enumerate() {
            by_type.entry(commit.aggregate_id().aggregate_type()).or_default().push(place, commit);
        }
        let sql = self.append_sql(by_type.keys().copied());
        let mut arguments = args![];
        for (aggregate_type, columns) in &mut by_type {
            let of_type = columns.places.iter().filter_map(|place| commits.get(*place));
            columns.about = self.known.about(partition, aggregate_type, of_type);
            add(&mut arguments, columns).map_err(|_| refused())?;
        }
        // From here on this node sends nothing else to the partition; all of the above did not wait for that.
        let _turn = line.turn(deadline).await?;
        arguments.add(integer(partition.index())).map_err(|_| refused())?;
        arguments.add(lock_millis(deadline)).map_err(|_| refused())?;
        let mut conn = self.pool.take(deadline).await?;
        let rows = timeout_at(deadline + GRACE, conn.rows(&sql, arguments)).await;
        let rows = rows.unwrap_or_else(|_| Err(Fault::no_answer()))?;
        drop(conn);
        let parts: Vec<(&AggregateType, Columns<'_>)> = by_type.into_iter().collect();
        let mut answers: Vec<Option<Answer>> = vec![None; commits.len()];
        for row in &rows {
            let part = usize::try_from(row.number(0)?).ok().and_then(|part| parts.get(part));
            let (aggregate_type, part) = part.ok_or_else(strange)?;
            match row.cell::<i32>(2)? {
                ALL_STORED => all_stored(row, partition, part, &mut answers)?,
                REPLACED => self.known.forget(),
                LOOKED => self.known.be_wary(partition, aggregate_type),
                outcome => {
                    let ord = row.counter(1)?.checked_sub(1).and_then(|ord| usize::try_from(ord).ok());
                    let place = ord.and_then(|ord| part.places.get(ord).copied());
                    let place = place.and_then(|place| Some((answers.get_mut(place)?, commits.get(place)?)));
                    let (answer, commit) = place.ok_or_else(strange)?;
                    *answer = Some(read(row, outcome, partition, commit)?);
                }
            }
        }
        let answers: Vec<Answer> =
            answers.into_iter().map(|answer| answer.ok_or_else(strange)).collect::<Result<_, _>>()?;
        for (aggregate_type, part) in &parts {
            let of_type =
                part.places.iter().filter_map(|place| Some((commits.get(*place)?, answers.get(*place)?)));
            self.known.note(partition, aggregate_type, of_type);
        }
        Ok(answers)
    }

    /// One call for each aggregate type, in one statement.
    fn append_sql<'a>(&self, types: impl ExactSizeIterator<Item = &'a AggregateType>) -> Sql {
        let common = types.len() * PARAMETERS;
        let calls: Vec<String> = types
            .enumerate()
            .map(|(part, aggregate_type)| {
                let first = 1 + part * PARAMETERS;
                let parameters: Vec<String> =
                    (first..first + PARAMETERS).map(|number| format!("${number}")).collect();
                format!(
                    "SELECT {part}, a.* FROM {}(${}, ${}, {}) AS a",
                    self.schema.at(&names::append_function(aggregate_type)),
                    common + 1,
                    common + 2,
                    parameters.join(", ")
                )
            })
            .collect();
        Sql::from(calls.join(" UNION ALL "))
    }
}

fn refused() -> Fault {
    Fault::from(Error::internal("a parameter was refused"))
}

fn add(
    arguments: &mut sqlx::postgres::PgArguments,
    columns: &Columns<'_>,
) -> Result<(), sqlx::error::BoxDynError> {
    arguments.add(&columns.ranks)?;
    arguments.add(&columns.tenants)?;
    arguments.add(&columns.ids)?;
    arguments.add(&columns.expected)?;
    arguments.add(&columns.commands)?;
    arguments.add(&columns.sizes)?;
    arguments.add(&columns.metadata)?;
    arguments.add(&columns.events)?;
    let About { heads, seen } = &columns.about;
    arguments.add((!heads.is_empty()).then_some(heads))?;
    arguments.add(seen.as_ref().map(|seen| bigint(seen.position)))?;
    arguments.add(seen.as_ref().map(|seen| Stamp(seen.at)))?;
    arguments.add(seen.as_ref().map(|seen| seen.command.as_str()))
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

fn read(row: &PgRow, outcome: i32, partition: &PartitionId, commit: &CheckedCommit) -> Result<Answer, Fault> {
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
