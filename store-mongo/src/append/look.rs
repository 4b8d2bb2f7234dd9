//! Looking before a write: the heads of aggregates, and the receipts of commands that are stored already. One question
//! for all aggregates of one type.

use std::collections::BTreeMap;

use mongodb::bson::{Document, RawBsonRef, doc};
use wow_store_api::{AggregateType, CheckedCommit, PartitionId, Version, rules};

use super::draft::Known;
use crate::{
    db::{Work, literal, strange},
    document::Fields as _,
    fault::Fault,
    names,
};

/// Most commands in one question.
const MAX_ASKED: usize = 500;

/// A commit and the partition of its aggregate.
type Placed<'a> = (&'a CheckedCommit, &'a PartitionId);

/// Looks at the aggregates of these commits.
pub(super) async fn look<'a>(
    work: &mut Work<'_>,
    commits: &[Placed<'a>],
    known: &mut Known<'a>,
) -> Result<(), Fault> {
    let mut by_type: BTreeMap<&AggregateType, Vec<Placed<'a>>> = BTreeMap::new();
    for (commit, partition) in commits {
        by_type.entry(commit.aggregate_id().aggregate_type()).or_default().push((commit, partition));
    }
    for (aggregate_type, of_type) in by_type {
        for asked in of_type.chunks(MAX_ASKED) {
            look_at(work, aggregate_type, asked, known).await?;
        }
    }
    Ok(())
}

async fn look_at<'a>(
    work: &mut Work<'_>,
    aggregate_type: &AggregateType,
    asked: &[Placed<'a>],
    known: &mut Known<'a>,
) -> Result<(), Fault> {
    let questions: Vec<Document> = asked
        .iter()
        .map(|(commit, _)| {
            let id = commit.aggregate_id();
            doc! {
                "tenant": id.tenant().unwrap_or_default(),
                "id": id.id(),
                "command_id": commit.command_id().as_str(),
            }
        })
        .collect();
    let of_aggregate = doc! { "$and": [
        { "$eq": ["$tenant", "$$tenant"] },
        { "$eq": ["$id", "$$id"] },
    ] };
    let of_command = doc! { "$and": [
        { "$eq": ["$tenant", "$$tenant"] },
        { "$eq": ["$id", "$$id"] },
        { "$eq": ["$command_id", "$$command_id"] },
    ] };
    let log = names::log(aggregate_type);
    let pipeline = vec![
        // The one document that is always there.
        doc! { "$match": { "_id": 0 } },
        doc! { "$project": { "_id": 0, "asked": literal(questions) } },
        doc! { "$unwind": { "path": "$asked", "includeArrayIndex": "place" } },
        doc! { "$lookup": {
            "from": &log,
            "let": { "tenant": "$asked.tenant", "id": "$asked.id" },
            "pipeline": [
                { "$match": { "$expr": of_aggregate } },
                { "$sort": { "version": -1 } },
                { "$limit": 1 },
                { "$project": { "_id": 0, "version": 1 } },
            ],
            "as": "head",
        } },
        doc! { "$lookup": {
            "from": &log,
            "let": { "tenant": "$asked.tenant", "id": "$asked.id", "command_id": "$asked.command_id" },
            "pipeline": [
                { "$match": { "$expr": of_command } },
                { "$limit": 1 },
                { "$project": { "version": 1, "committed_at": 1 } },
            ],
            "as": "stored",
        } },
        doc! { "$project": { "place": 1, "head": 1, "stored": 1 } },
    ];
    let answers = work.aggregate(&names::counter(aggregate_type.context()), pipeline).await?;
    if answers.len() != asked.len() {
        return Err(strange());
    }
    for answer in &answers {
        let place = usize::try_from(answer.counter("place")?).unwrap_or(usize::MAX);
        let (commit, partition) = asked.get(place).ok_or_else(strange)?;
        let first = |field: &str| -> Result<_, Fault> {
            let found = answer.list(field)?.into_iter().next().transpose();
            Ok(found.map_err(|_| strange())?.and_then(RawBsonRef::as_document))
        };
        let head: Version = first("head")?.map_or(Ok(0), |head| head.counter("version"))?;
        known.heads.insert(commit.aggregate_id(), head);
        if let Some(stored) = first("stored")? {
            let position = stored.part("_id")?.counter("position")?;
            let (version, at) = (stored.counter("version")?, stored.instant("committed_at")?);
            let receipt = rules::append::receipt((*partition).clone(), version, position, at);
            known.receipts.insert((commit.aggregate_id(), commit.command_id()), receipt);
        }
    }
    Ok(())
}
