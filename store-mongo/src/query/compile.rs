//! Filters and pages as aggregation.
//!
//! Everything that comes from a query is a literal: no key and no string of it is ever read as an expression. Every
//! condition is true or false. Comparisons here are those of expressions, which know no implicit step into arrays and
//! tell a missing value from a null.

use mongodb::bson::{Bson, Document, doc};
use wow_store_api::query::{Cursor, Field, Filter, Path, Scalar, Sort, TieBreaker};

use super::sort::Order;
use crate::{
    db::literal,
    document::{instant, int, long, number},
};

/// What a query looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source<'a> {
    /// Snapshots of one revision, with the collection of their log.
    Snapshots {
        revision: u32,
        log: &'a str,
    },
    Events,
}

/// Paths of up to so many segments are nested expressions; longer ones are walked.
const MAX_NESTED: usize = 16;

/// An expression of a value in a document; missing where the path leads nowhere.
fn at_path(root: &str, path: &Path) -> Bson {
    let segments = path.segments();
    let is_object = |value: Bson| doc! { "$eq": [{ "$type": value }, "object"] };
    let plain = |segment: &String| !segment.is_empty() && !segment.starts_with('$') && !segment.contains('.');
    if let Some((last, parents)) = segments.split_last()
        && segments.iter().all(plain)
    {
        // A step through an array gives an array, so a parent that is an object was reached through objects.
        let mut parent = format!("${root}");
        for segment in parents {
            parent.push('.');
            parent.push_str(segment);
        }
        let value = format!("{parent}.{last}");
        return doc! { "$cond": [is_object(parent.into()), value, "$$REMOVE"] }.into();
    }
    if segments.len() > MAX_NESTED {
        let entry = doc! { "$first": { "$filter": {
            "input": { "$objectToArray": "$$object" },
            "as": "entry",
            "cond": { "$eq": ["$$entry.k", "$$key"] },
        } } };
        let step = doc! { "$let": {
            "vars": { "object": "$$value", "key": "$$this" },
            "in": { "$cond": [
                is_object("$$object".into()),
                { "$let": { "vars": { "found": entry }, "in": "$$found.v" } },
                "$$REMOVE",
            ] },
        } };
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        let walk = doc! { "input": literal(segments), "initialValue": format!("${root}"), "in": step };
        return doc! { "$reduce": walk }.into();
    }
    segments.iter().fold(Bson::String(format!("${root}")), |value, segment| {
        doc! { "$let": {
            "vars": { "object": value },
            "in": { "$cond": [
                is_object("$$object".into()),
                { "$getField": { "field": literal(segment.as_str()), "input": "$$object" } },
                "$$REMOVE",
            ] },
        } }
        .into()
    })
}

impl Source<'_> {
    fn is_events(self) -> bool {
        self == Self::Events
    }

    /// What a field is.
    pub(super) fn expression(self, field: &Field) -> Bson {
        match field {
            Field::Body(path) if self.is_events() => at_path("events.body", path),
            Field::Body(path) => at_path("state", path),
            Field::Metadata(path) => at_path("metadata", path),
            Field::Id if self.is_events() => "$id".into(),
            Field::Id => "$_id.id".into(),
            Field::Tenant => {
                let tenant = if self.is_events() { "$tenant" } else { "$_id.tenant" };
                doc! { "$cond": [{ "$eq": [tenant, ""] }, "$$REMOVE", tenant] }.into()
            }
            Field::Version => "$version".into(),
            Field::Revision if self.is_events() => "$events.revision".into(),
            Field::Revision => "$revision".into(),
            Field::At if self.is_events() => "$committed_at".into(),
            Field::At => "$saved_at".into(),
            Field::EventName => "$events.name".into(),
            Field::CommandId => "$command_id".into(),
            Field::Partition => "$_id.partition".into(),
            Field::Position => "$_id.position".into(),
            Field::EventIndex => "$index".into(),
        }
    }

    /// A condition. Fields were checked to be those of the target.
    fn filter(self, filter: &Filter) -> Bson {
        match filter {
            Filter::All => true.into(),
            Filter::Eq(field, scalar) => equals(&self.expression(field), value_for(field, scalar)),
            Filter::Ne(field, scalar) => not(equals(&self.expression(field), value_for(field, scalar))),
            Filter::Lt(field, scalar) => self.compares(field, "$lt", scalar),
            Filter::Le(field, scalar) => self.compares(field, "$lte", scalar),
            Filter::Gt(field, scalar) => self.compares(field, "$gt", scalar),
            Filter::Ge(field, scalar) => self.compares(field, "$gte", scalar),
            Filter::In(field, scalars) => {
                let values: Vec<Bson> = scalars.iter().map(|scalar| value_for(field, scalar)).collect();
                doc! { "$in": [self.expression(field), literal(values)] }.into()
            }
            Filter::Contains(field, scalar) => contains(&self.expression(field), scalar),
            Filter::StartsWith(field, prefix) => starts_with(&self.expression(field), prefix),
            Filter::Exists(field) => doc! { "$ne": [{ "$type": self.expression(field) }, "missing"] }.into(),
            Filter::Not(filter) => not(self.filter(filter)),
            Filter::And(filters) => {
                doc! { "$and": filters.iter().map(|filter| self.filter(filter)).collect::<Vec<_>>() }.into()
            }
            Filter::Or(filters) => {
                doc! { "$or": filters.iter().map(|filter| self.filter(filter)).collect::<Vec<_>>() }.into()
            }
        }
    }

    /// A range, of values of the scalar's kind.
    fn compares(self, field: &Field, operator: &str, scalar: &Scalar) -> Bson {
        let expression = self.expression(field);
        let same_kind = match (field, scalar) {
            (Field::At, _) => doc! { "$eq": [{ "$type": expression.clone() }, "date"] }.into(),
            (_, Scalar::Number(_)) => doc! { "$isNumber": expression.clone() }.into(),
            _ => is_string(&expression),
        };
        doc! { "$and": [same_kind, { operator: [expression, literal(value_for(field, scalar))] }] }.into()
    }

    /// The items before any order: those of the revision, or events one by one; from behind the cursor on, where the
    /// order is that of the collection.
    fn items(self, after: Option<&Cursor>, in_order: bool) -> Vec<Document> {
        let behind = after.filter(|_| in_order).map(Cursor::tie_breaker);
        match self {
            Self::Snapshots { revision, .. } => {
                let mut of_revision = doc! { "revision": int(revision) };
                if let Some(TieBreaker::Snapshot { tenant, id }) = behind {
                    of_revision.insert("_id", doc! { "$gt": { "tenant": tenant, "id": id } });
                }
                let mut stages = vec![doc! { "$match": of_revision }];
                if in_order {
                    stages.push(doc! { "$sort": { "_id": 1 } });
                }
                stages
            }
            Self::Events => {
                let mut stages = Vec::new();
                let from = match behind {
                    Some(TieBreaker::Event { partition, position, index }) => {
                        Some((partition, position, index))
                    }
                    _ => None,
                };
                if let Some((partition, position, _)) = from {
                    let key = doc! { "partition": int(*partition), "position": long(*position) };
                    stages.push(doc! { "$match": { "_id": { "$gte": key } } });
                }
                if in_order {
                    stages.push(doc! { "$sort": { "_id": 1 } });
                }
                stages.push(doc! { "$unwind": { "path": "$events", "includeArrayIndex": "index" } });
                if let Some((partition, position, index)) = from {
                    let key = doc! { "partition": int(*partition), "position": long(*position) };
                    stages.push(doc! { "$match": { "$or": [
                        { "_id": { "$gt": key } },
                        { "index": { "$gt": i64::from(*index) } },
                    ] } });
                }
                stages
            }
        }
    }

    /// Which items the query finds. A snapshot that is ahead of its log is none (S3).
    fn conditions(self, filter: &Filter) -> Vec<Document> {
        let mut stages = Vec::new();
        if *filter != Filter::All {
            stages.push(doc! { "$match": { "$expr": self.filter(filter) } });
        }
        if let Self::Snapshots { log, .. } = self {
            stages.push(doc! { "$lookup": {
                "from": log,
                "let": { "tenant": "$_id.tenant", "id": "$_id.id", "version": "$version" },
                "pipeline": [
                    { "$match": { "$expr": { "$and": [
                        { "$eq": ["$tenant", "$$tenant"] },
                        { "$eq": ["$id", "$$id"] },
                        { "$eq": ["$version", "$$version"] },
                    ] } } },
                    { "$limit": 1 },
                    { "$project": { "_id": 1 } },
                ],
                "as": "logged",
            } });
            stages.push(doc! { "$match": { "logged": { "$ne": [] } } });
            stages.push(doc! { "$unset": "logged" });
        }
        stages
    }
}

/// A scalar as the field is stored: instants as such.
fn value_for(field: &Field, scalar: &Scalar) -> Bson {
    match (field, scalar) {
        (Field::At, Scalar::String(text)) => match text.parse() {
            Ok(at) => Bson::DateTime(instant(at)),
            // Refused when the query was checked.
            Err(_) => Bson::String(text.clone()),
        },
        (_, Scalar::Null) => Bson::Null,
        (_, Scalar::Bool(value)) => Bson::Boolean(*value),
        (_, Scalar::Number(value)) => number(value),
        (_, Scalar::String(text)) => Bson::String(text.clone()),
    }
}

pub(super) fn is_string(expression: &Bson) -> Bson {
    doc! { "$eq": [{ "$type": expression.clone() }, "string"] }.into()
}

fn not(condition: Bson) -> Bson {
    doc! { "$not": [condition] }.into()
}

fn equals(expression: &Bson, value: Bson) -> Bson {
    doc! { "$eq": [expression.clone(), literal(value)] }.into()
}

fn contains(expression: &Bson, scalar: &Scalar) -> Bson {
    let element = match scalar {
        Scalar::Null => Bson::Null,
        Scalar::Bool(value) => Bson::Boolean(*value),
        Scalar::Number(value) => number(value),
        Scalar::String(text) => Bson::String(text.clone()),
    };
    let in_array = doc! { "$cond": [
        { "$isArray": [expression.clone()] },
        { "$in": [literal(element), expression.clone()] },
        false,
    ] };
    match scalar {
        Scalar::String(text) => {
            let in_string = doc! { "$cond": [
                is_string(expression),
                { "$gte": [{ "$indexOfBytes": [expression.clone(), literal(text.as_str())] }, 0] },
                false,
            ] };
            doc! { "$or": [in_array, in_string] }.into()
        }
        Scalar::Null | Scalar::Bool(_) | Scalar::Number(_) => in_array.into(),
    }
}

fn starts_with(expression: &Bson, prefix: &str) -> Bson {
    if prefix.is_empty() {
        return is_string(expression);
    }
    let end = i64::try_from(prefix.len()).unwrap_or(i64::MAX);
    doc! { "$cond": [
        is_string(expression),
        { "$eq": [{ "$indexOfBytes": [expression.clone(), literal(prefix), 0, end] }, 0] },
        false,
    ] }
    .into()
}

/// One page, and one item more.
pub(super) fn page(
    source: Source<'_>,
    filter: &Filter,
    sort: &[Sort],
    after: Option<&Cursor>,
    limit: usize,
) -> Vec<Document> {
    let limit = doc! { "$limit": i64::try_from(limit.saturating_add(1)).unwrap_or(i64::MAX) };
    let in_order = sort.is_empty();
    let mut stages = source.items(after, in_order);
    stages.extend(source.conditions(filter));
    if !in_order {
        let order = Order::new(source, sort);
        stages.extend(order.keys());
        if let Some(after) = after {
            stages.push(doc! { "$match": { "$expr": order.behind(after) } });
        }
        stages.push(doc! { "$sort": order.by() });
        stages.push(limit);
        stages.push(order.without_keys());
        return stages;
    }
    stages.push(limit);
    stages
}

/// How many there are.
pub(super) fn count(source: Source<'_>, filter: &Filter) -> Vec<Document> {
    let mut stages = source.items(None, false);
    stages.extend(source.conditions(filter));
    stages.push(doc! { "$count": "count" });
    stages
}
