//! Filters and pages in SQL.
//!
//! A value of a document is reached by `->` with a text, which only ever enters objects (a `0` does not index an
//! array), gives SQL's NULL where there is nothing and the `jsonb` null where there is a null. Every condition is
//! true or false, never NULL; no cast is reached by a value that it would fail on.

use sqlx::{Arguments as _, postgres::PgArguments};
use wow_store_api::{
    Error, Payload, Timestamp,
    payload::Number,
    query::{Cursor, Field, Filter, Path, Scalar, Sort},
};

use super::sort;
use crate::{fault::Fault, pool::Sql, value::Instant};

/// The tables that a query looks at.
pub(super) enum Source {
    Snapshots { snapshots: String, log: String },
    Events { log: String },
}

#[derive(Debug, Clone)]
enum Value {
    Text(String),
    Integer(i64),
    Instant(Timestamp),
}

/// The parameters of a statement, in order.
#[derive(Debug, Clone, Default)]
pub(super) struct Bound(Vec<Value>);

impl Bound {
    fn push(&mut self, value: Value, kind: &str) -> String {
        self.0.push(value);
        format!("${}::{kind}", self.0.len())
    }

    pub(super) fn text(&mut self, text: &str) -> String {
        self.push(Value::Text(text.to_owned()), "text")
    }

    pub(super) fn integer(&mut self, integer: i64) -> String {
        self.push(Value::Integer(integer), "bigint")
    }

    fn instant(&mut self, instant: Timestamp) -> String {
        self.push(Value::Instant(instant), "timestamptz")
    }

    /// A number, digit for digit.
    pub(super) fn number(&mut self, number: &Number) -> String {
        self.push(Value::Text(number.as_str().to_owned()), "text") + "::numeric"
    }

    /// A scalar as a document.
    fn document(&mut self, scalar: &Scalar) -> String {
        let text = match scalar {
            Scalar::Null => "null".to_owned(),
            Scalar::Bool(value) => value.to_string(),
            Scalar::Number(number) => number.as_str().to_owned(),
            // A string was checked to be one that can be stored.
            Scalar::String(text) => match Payload::from_serialize(text) {
                Ok(payload) => payload.as_json().to_owned(),
                Err(_) => "null".to_owned(),
            },
        };
        self.push(Value::Text(text), "text") + "::jsonb"
    }

    pub(super) fn arguments(&self) -> Result<PgArguments, Fault> {
        let mut arguments = PgArguments::default();
        for value in &self.0 {
            let added = match value {
                Value::Text(text) => arguments.add(text),
                Value::Integer(integer) => arguments.add(integer),
                Value::Instant(instant) => arguments.add(Instant(*instant)),
            };
            added.map_err(|_| Fault::from(Error::internal("a parameter was refused")))?;
        }
        Ok(arguments)
    }
}

/// What a field is in SQL.
pub(super) enum Expression {
    /// A `jsonb`; NULL where it is missing.
    Document(String),
    /// A `text`; NULL where it is missing.
    Text(String),
    /// A number that is always there.
    Number(String),
    /// An instant that is always there.
    Instant(String),
}

fn at_path(root: &str, path: &Path, bound: &mut Bound) -> Expression {
    let mut sql = root.to_owned();
    for segment in path.segments() {
        sql = format!("{sql} -> {}", bound.text(segment));
    }
    Expression::Document(format!("({sql})"))
}

impl Source {
    /// The items, in a FROM clause, as `i`.
    fn items(&self) -> String {
        match self {
            Self::Snapshots { snapshots, .. } => format!("{snapshots} AS i"),
            Self::Events { log } => format!(
                "{log} AS i CROSS JOIN LATERAL pg_catalog.jsonb_array_elements(i.events::jsonb) \
                 WITH ORDINALITY AS e(event, ordinality)"
            ),
        }
    }

    /// What every item must be: of the revision, and not ahead of its log.
    fn condition(&self, revision: Option<&str>) -> String {
        match (self, revision) {
            (Self::Snapshots { log, .. }, Some(revision)) => format!(
                "i.revision = {revision} AND EXISTS (SELECT 1 FROM {log} AS l \
                 WHERE l.tenant = i.tenant AND l.id = i.id AND l.version = i.version)"
            ),
            _ => "true".to_owned(),
        }
    }

    fn columns(&self) -> &'static str {
        match self {
            Self::Snapshots { .. } => "i.tenant, i.id, i.version, i.revision, i.saved_at, i.state::text",
            Self::Events { .. } => {
                "i.tenant, i.id, i.version, e.ordinality - 1, i.command_id, i.partition, i.position, i.committed_at, \
                 e.event ->> 'name', (e.event ->> 'revision')::integer, (e.event -> 'body')::text, i.metadata::text"
            }
        }
    }

    pub(super) fn expression(&self, field: &Field, bound: &mut Bound) -> Expression {
        let is_event = matches!(self, Self::Events { .. });
        match field {
            Field::Body(path) if is_event => at_path("e.event -> 'body'", path, bound),
            Field::Body(path) => at_path("i.state", path, bound),
            Field::Metadata(path) => at_path("i.metadata", path, bound),
            Field::Id => Expression::Text("i.id".to_owned()),
            Field::Tenant => Expression::Text("nullif(i.tenant, '')".to_owned()),
            Field::Version => Expression::Number("i.version".to_owned()),
            Field::Revision if is_event => Expression::Number("(e.event ->> 'revision')".to_owned()),
            Field::Revision => Expression::Number("i.revision".to_owned()),
            Field::At if is_event => Expression::Instant("i.committed_at".to_owned()),
            Field::At => Expression::Instant("i.saved_at".to_owned()),
            Field::EventName => Expression::Text("(e.event ->> 'name')".to_owned()),
            Field::CommandId => Expression::Text("i.command_id".to_owned()),
            Field::Partition => Expression::Number("i.partition".to_owned()),
            Field::Position => Expression::Number("i.position".to_owned()),
            Field::EventIndex => Expression::Number("(e.ordinality - 1)".to_owned()),
        }
    }

    /// What breaks ties, as columns.
    pub(super) fn tie_columns(&self) -> [&'static str; 3] {
        match self {
            Self::Snapshots { .. } => ["i.tenant", "i.id", "0::bigint"],
            Self::Events { .. } => ["i.partition", "i.position", "e.ordinality"],
        }
    }

    /// A condition. Fields were checked to be those of the target.
    fn filter(&self, filter: &Filter, bound: &mut Bound) -> String {
        match filter {
            Filter::All => "true".to_owned(),
            Filter::Eq(field, scalar) => equals(&self.expression(field, bound), scalar, bound),
            Filter::Ne(field, scalar) => {
                format!("NOT {}", equals(&self.expression(field, bound), scalar, bound))
            }
            Filter::Lt(field, scalar) => compares(&self.expression(field, bound), "<", scalar, bound),
            Filter::Le(field, scalar) => compares(&self.expression(field, bound), "<=", scalar, bound),
            Filter::Gt(field, scalar) => compares(&self.expression(field, bound), ">", scalar, bound),
            Filter::Ge(field, scalar) => compares(&self.expression(field, bound), ">=", scalar, bound),
            Filter::In(field, scalars) => {
                let expression = self.expression(field, bound);
                any_of(scalars.iter().map(|scalar| equals(&expression, scalar, bound)))
            }
            Filter::Contains(field, scalar) => contains(&self.expression(field, bound), scalar, bound),
            Filter::StartsWith(field, prefix) => starts_with(&self.expression(field, bound), prefix, bound),
            Filter::Exists(field) => match self.expression(field, bound) {
                Expression::Document(sql) | Expression::Text(sql) => format!("({sql} IS NOT NULL)"),
                Expression::Number(_) | Expression::Instant(_) => "true".to_owned(),
            },
            Filter::Not(filter) => format!("NOT {}", self.filter(filter, bound)),
            Filter::And(filters) => all_of(filters.iter().map(|filter| self.filter(filter, bound))),
            Filter::Or(filters) => any_of(filters.iter().map(|filter| self.filter(filter, bound))),
        }
    }
}

fn all_of(conditions: impl Iterator<Item = String>) -> String {
    let conditions: Vec<String> = conditions.collect();
    if conditions.is_empty() { "true".to_owned() } else { format!("({})", conditions.join(" AND ")) }
}

fn any_of(conditions: impl Iterator<Item = String>) -> String {
    let conditions: Vec<String> = conditions.collect();
    if conditions.is_empty() { "false".to_owned() } else { format!("({})", conditions.join(" OR ")) }
}

fn never_null(condition: &str) -> String {
    format!("coalesce({condition}, false)")
}

/// The string of a document that is one.
pub(super) fn string_of(document: &str) -> String {
    format!("({document} #>> '{{}}') COLLATE \"C\"")
}

/// A condition on a document of one type; false for others.
fn of_type(document: &str, kind: &str, condition: &str) -> String {
    format!("(CASE WHEN pg_catalog.jsonb_typeof({document}) = '{kind}' THEN {condition} ELSE false END)")
}

fn equals(expression: &Expression, scalar: &Scalar, bound: &mut Bound) -> String {
    match (expression, scalar) {
        // Documents are equal by type and value: numbers whatever their scale, strings by their bytes.
        (Expression::Document(sql), _) => never_null(&format!("{sql} = {}", bound.document(scalar))),
        (Expression::Text(_) | Expression::Number(_) | Expression::Instant(_), _) => {
            compares(expression, "=", scalar, bound)
        }
    }
}

fn compares(expression: &Expression, operator: &str, scalar: &Scalar, bound: &mut Bound) -> String {
    match (expression, scalar) {
        (Expression::Document(sql), Scalar::Number(number)) => {
            let condition = format!("({sql})::numeric {operator} {}", bound.number(number));
            of_type(sql, "number", &condition)
        }
        (Expression::Document(sql), Scalar::String(text)) => {
            let condition = format!("{} {operator} {}", string_of(sql), bound.text(text));
            of_type(sql, "string", &condition)
        }
        (Expression::Text(sql), Scalar::String(text)) => {
            never_null(&format!("{sql} COLLATE \"C\" {operator} {}", bound.text(text)))
        }
        (Expression::Number(sql), Scalar::Number(number)) => {
            format!("({sql}::numeric {operator} {})", bound.number(number))
        }
        (Expression::Instant(sql), Scalar::String(text)) => match text.parse() {
            Ok(instant) => format!("({sql} {operator} {})", bound.instant(instant)),
            Err(_) => "false".to_owned(),
        },
        // Refused when the query was checked.
        _ => "false".to_owned(),
    }
}

fn contains(expression: &Expression, scalar: &Scalar, bound: &mut Bound) -> String {
    match (expression, scalar) {
        (Expression::Document(sql), _) => {
            let element = format!(
                "EXISTS (SELECT 1 FROM pg_catalog.jsonb_array_elements({sql}) AS a(value) WHERE a.value = {})",
                bound.document(scalar)
            );
            let in_array = of_type(sql, "array", &element);
            match scalar {
                Scalar::String(text) => {
                    let part = format!("pg_catalog.strpos({}, {}) > 0", string_of(sql), bound.text(text));
                    format!("({in_array} OR {})", of_type(sql, "string", &part))
                }
                Scalar::Null | Scalar::Bool(_) | Scalar::Number(_) => in_array,
            }
        }
        (Expression::Text(sql), Scalar::String(text)) => {
            never_null(&format!("pg_catalog.strpos({sql} COLLATE \"C\", {}) > 0", bound.text(text)))
        }
        _ => "false".to_owned(),
    }
}

fn starts_with(expression: &Expression, prefix: &str, bound: &mut Bound) -> String {
    match expression {
        Expression::Document(sql) => {
            let condition = format!("pg_catalog.starts_with({}, {})", string_of(sql), bound.text(prefix));
            of_type(sql, "string", &condition)
        }
        Expression::Text(sql) => {
            never_null(&format!("pg_catalog.starts_with({sql}, {})", bound.text(prefix)))
        }
        Expression::Number(_) | Expression::Instant(_) => "false".to_owned(),
    }
}

/// One page, and one item more.
pub(super) fn page(
    source: &Source,
    bound: &mut Bound,
    revision: Option<&str>,
    filter: &Filter,
    sort: &[Sort],
    after: Option<&Cursor>,
    limit: usize,
) -> Sql {
    let filter = source.filter(filter, bound);
    let order = sort::Order::new(source, sort, bound);
    let behind = after.map_or_else(|| "true".to_owned(), |cursor| order.behind(cursor, bound));
    let limit = bound.integer(i64::try_from(limit.saturating_add(1)).unwrap_or(i64::MAX));
    Sql::from(format!(
        "SELECT {} FROM {} WHERE {} AND {filter} AND {behind} ORDER BY {} LIMIT {limit}",
        source.columns(),
        source.items(),
        source.condition(revision),
        order.in_sql()
    ))
}

/// How many there are.
pub(super) fn count(source: &Source, bound: &mut Bound, revision: Option<&str>, filter: &Filter) -> Sql {
    let filter = source.filter(filter, bound);
    Sql::from(format!(
        "SELECT pg_catalog.count(*) FROM {} WHERE {} AND {filter}",
        source.items(),
        source.condition(revision)
    ))
}
