//! The order of pages: missing < null < false < true < numbers < strings < arrays < objects, then what breaks ties.
//!
//! A value becomes three fields of the item: its rank among the kinds, its number if it is one, its text if it is one.

use mongodb::bson::{Bson, Document, doc};
use wow_store_api::query::{Cursor, Field, Sort, SortValue, TieBreaker};

use super::compile::{Source, is_string};
use crate::{
    db::literal,
    document::{instant, int, long, number},
};

const MISSING: i32 = 0;
const NULL: i32 = 1;
const FALSE: i32 = 2;
const TRUE: i32 = 3;
const NUMBER: i32 = 4;
const STRING: i32 = 5;
const ARRAY: i32 = 6;
const OBJECT: i32 = 7;

/// The order of a query.
pub(super) struct Order<'a> {
    source: Source<'a>,
    sort: &'a [Sort],
}

fn value(place: usize) -> String {
    format!("__value{place}")
}

fn rank(place: usize) -> String {
    format!("__rank{place}")
}

fn numeric(place: usize) -> String {
    format!("__number{place}")
}

fn text(place: usize) -> String {
    format!("__text{place}")
}

impl<'a> Order<'a> {
    pub(super) fn new(source: Source<'a>, sort: &'a [Sort]) -> Self {
        Self { source, sort }
    }

    /// The stages that give every item its keys.
    pub(super) fn keys(&self) -> Vec<Document> {
        let (mut values, mut keys) = (Document::new(), Document::new());
        for (place, sort) in self.sort.iter().enumerate() {
            values.insert(value(place), self.source.expression(&sort.field));
            let found = Bson::String(format!("${}", value(place)));
            if sort.field == Field::At {
                // An instant goes by its text, which has the order of time.
                keys.insert(rank(place), STRING);
                keys.insert(text(place), found);
                continue;
            }
            let case = |kind: &str, then: i32| doc! { "case": { "$eq": [{ "$type": found.clone() }, kind] }, "then": then };
            let branches = vec![
                case("missing", MISSING),
                case("null", NULL),
                doc! { "case": { "$eq": [found.clone(), false] }, "then": FALSE },
                doc! { "case": { "$eq": [found.clone(), true] }, "then": TRUE },
                doc! { "case": { "$isNumber": found.clone() }, "then": NUMBER },
                case("string", STRING),
                case("array", ARRAY),
            ];
            keys.insert(rank(place), doc! { "$switch": { "branches": branches, "default": OBJECT } });
            keys.insert(
                numeric(place),
                doc! { "$cond": [{ "$isNumber": found.clone() }, found.clone(), Bson::Null] },
            );
            keys.insert(text(place), doc! { "$cond": [is_string(&found), found.clone(), Bson::Null] });
        }
        vec![doc! { "$set": values }, doc! { "$set": keys }]
    }

    /// Takes the keys away again.
    pub(super) fn without_keys(&self) -> Document {
        let each =
            (0..self.sort.len()).flat_map(|place| [value(place), rank(place), numeric(place), text(place)]);
        doc! { "$unset": each.collect::<Vec<_>>() }
    }

    /// For `$sort`.
    pub(super) fn by(&self) -> Document {
        let mut by = Document::new();
        for (place, sort) in self.sort.iter().enumerate() {
            let direction = if sort.descending { -1 } else { 1 };
            by.insert(rank(place), direction);
            if sort.field != Field::At {
                by.insert(numeric(place), direction);
            }
            by.insert(text(place), direction);
        }
        by.insert("_id", 1);
        if self.source == Source::Events {
            by.insert("index", 1);
        }
        by
    }

    /// The items behind a cursor.
    pub(super) fn behind(&self, cursor: &Cursor) -> Bson {
        let tie = match cursor.tie_breaker() {
            TieBreaker::Snapshot { tenant, id } => {
                doc! { "$gt": ["$_id", literal(doc! { "tenant": tenant, "id": id })] }
            }
            TieBreaker::Event { partition, position, index } => {
                let key = literal(doc! { "partition": int(*partition), "position": long(*position) });
                doc! { "$or": [
                    { "$gt": ["$_id", key.clone()] },
                    { "$and": [{ "$eq": ["$_id", key] }, { "$gt": ["$index", i64::from(*index)] }] },
                ] }
            }
        };
        // Behind in the first field, or equal there and behind in the next, and so on.
        let each = self.sort.iter().enumerate().zip(cursor.values()).rev();
        each.fold(Bson::Document(tie), |rest, ((place, sort), value)| {
            let (same, behind) = against(place, sort, value);
            doc! { "$or": [behind, { "$and": [same, rest] }] }.into()
        })
    }
}

/// Conditions: the value equals the cursor's, the value comes behind it.
fn against(place: usize, sort: &Sort, value: &SortValue) -> (Bson, Bson) {
    let operator = if sort.descending { "$lt" } else { "$gt" };
    let (kind, column) = match value {
        SortValue::Missing => (MISSING, None),
        SortValue::Null => (NULL, None),
        SortValue::Bool(false) => (FALSE, None),
        SortValue::Bool(true) => (TRUE, None),
        SortValue::Number(value) => (NUMBER, Some((numeric(place), number(value)))),
        SortValue::String(value) if sort.field == Field::At => {
            let at = value.parse().map_or_else(|_| Bson::Null, |at| Bson::DateTime(instant(at)));
            (STRING, Some((text(place), at)))
        }
        SortValue::String(value) => (STRING, Some((text(place), Bson::String(value.clone())))),
        SortValue::Array => (ARRAY, None),
        SortValue::Object => (OBJECT, None),
    };
    let ranked = format!("${}", rank(place));
    let same_rank = doc! { "$eq": [&ranked, kind] };
    let behind_rank = doc! { operator: [&ranked, kind] };
    match column {
        Some((column, value)) => {
            let (column, value) = (format!("${column}"), literal(value));
            let same = doc! { "$and": [same_rank.clone(), { "$eq": [&column, value.clone()] }] };
            let behind = doc! { "$or": [
                behind_rank,
                { "$and": [same_rank, { operator: [&column, value] }] },
            ] };
            (same.into(), behind.into())
        }
        None => (same_rank.into(), behind_rank.into()),
    }
}
