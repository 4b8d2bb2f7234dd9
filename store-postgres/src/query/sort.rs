//! The order of pages: missing < null < false < true < numbers < strings < arrays < objects, then what breaks ties.
//!
//! A value becomes three columns: its rank among the kinds, its number if it is one, its text if it is one.

use wow_store_api::query::{Cursor, Sort, SortValue, TieBreaker};

use super::compile::{Bound, Expression, Source, string_of};
use crate::value::{bigint, integer};

const MISSING: i64 = 0;
const NULL: i64 = 1;
const FALSE: i64 = 2;
const TRUE: i64 = 3;
const NUMBER: i64 = 4;
const STRING: i64 = 5;
const ARRAY: i64 = 6;
const OBJECT: i64 = 7;

/// A field to sort by, as columns; those that say nothing are left out.
struct Key {
    rank: Option<String>,
    number: Option<String>,
    text: Option<String>,
    descending: bool,
}

impl Key {
    fn new(expression: Expression, descending: bool) -> Self {
        let (rank, number, text) = match expression {
            Expression::Document(sql) => (
                Some(format!(
                    "(CASE WHEN {sql} IS NULL THEN {MISSING} ELSE CASE pg_catalog.jsonb_typeof({sql}) \
                     WHEN 'null' THEN {NULL} WHEN 'boolean' THEN CASE WHEN {sql} = 'true'::jsonb THEN {TRUE} ELSE {FALSE} END \
                     WHEN 'number' THEN {NUMBER} WHEN 'string' THEN {STRING} WHEN 'array' THEN {ARRAY} ELSE {OBJECT} END END)"
                )),
                Some(format!(
                    "(CASE WHEN pg_catalog.jsonb_typeof({sql}) = 'number' THEN ({sql})::numeric END)"
                )),
                Some(format!(
                    "(CASE WHEN pg_catalog.jsonb_typeof({sql}) = 'string' THEN {} END)",
                    string_of(&sql)
                )),
            ),
            Expression::Text(sql) => (
                Some(format!("(CASE WHEN {sql} IS NULL THEN {MISSING} ELSE {STRING} END)")),
                None,
                Some(format!("{sql} COLLATE \"C\"")),
            ),
            Expression::Number(sql) => (None, Some(format!("{sql}::numeric")), None),
            // As its text, which has a fixed width: a cursor holds that.
            Expression::Instant(sql) => (
                None,
                None,
                Some(format!(
                    "pg_catalog.to_char({sql} AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"') COLLATE \"C\""
                )),
            ),
        };
        Self { rank, number, text, descending }
    }

    /// The rank that every value has, where there is no column for it.
    fn only_rank(&self) -> i64 {
        if self.number.is_some() { NUMBER } else { STRING }
    }

    /// Conditions: the value equals the cursor's, the value comes behind it.
    fn against(&self, value: &SortValue, bound: &mut Bound) -> (String, String) {
        let operator = if self.descending { "<" } else { ">" };
        let (rank, column) = match value {
            SortValue::Missing => (MISSING, None),
            SortValue::Null => (NULL, None),
            SortValue::Bool(false) => (FALSE, None),
            SortValue::Bool(true) => (TRUE, None),
            SortValue::Number(number) => {
                (NUMBER, self.number.as_ref().map(|column| (column, bound.number(number))))
            }
            SortValue::String(text) => (STRING, self.text.as_ref().map(|column| (column, bound.text(text)))),
            SortValue::Array => (ARRAY, None),
            SortValue::Object => (OBJECT, None),
        };
        let (same_rank, behind_rank) = match &self.rank {
            Some(column) => (format!("{column} = {rank}"), format!("{column} {operator} {rank}")),
            None => {
                let own = self.only_rank();
                let behind = if self.descending { own < rank } else { own > rank };
                ((own == rank).to_string(), behind.to_string())
            }
        };
        match column {
            Some((column, value)) => (
                format!("({same_rank} AND {column} = {value})"),
                format!("({behind_rank} OR ({same_rank} AND {column} {operator} {value}))"),
            ),
            None => (format!("({same_rank})"), format!("({behind_rank})")),
        }
    }
}

/// The whole order of a query.
pub(super) struct Order<'a> {
    source: &'a Source,
    keys: Vec<Key>,
}

impl<'a> Order<'a> {
    pub(super) fn new(source: &'a Source, sort: &[Sort], bound: &mut Bound) -> Self {
        let keys = sort.iter().map(|sort| Key::new(source.expression(&sort.field, bound), sort.descending));
        Self { source, keys: keys.collect() }
    }

    /// For ORDER BY.
    pub(super) fn in_sql(&self) -> String {
        let mut columns = Vec::new();
        for key in &self.keys {
            let direction = if key.descending { "DESC" } else { "ASC" };
            for column in [&key.rank, &key.number, &key.text].into_iter().flatten() {
                columns.push(format!("{column} {direction}"));
            }
        }
        columns.extend(self.source.tie_columns().map(str::to_owned));
        columns.join(", ")
    }

    /// The items behind a cursor.
    pub(super) fn behind(&self, cursor: &Cursor, bound: &mut Bound) -> String {
        let [first, second, third] = self.source.tie_columns();
        let tie = match cursor.tie_breaker() {
            TieBreaker::Snapshot { tenant, id } => {
                let (tenant, id) = (bound.text(tenant), bound.text(id));
                format!("({first}, {second}) > ({tenant}, {id})")
            }
            TieBreaker::Event { partition, position, index } => {
                let partition = bound.integer(i64::from(integer(*partition)));
                let position = bound.integer(bigint(*position));
                let ordinality = bound.integer(i64::from(*index).saturating_add(1));
                let row = format!("({first}, {second}, {third}) > ({partition}, {position}, {ordinality})");
                if self.keys.is_empty() {
                    // The same again in a form that the index knows.
                    format!("({row} AND ({first}, {second}) >= ({partition}, {position}))")
                } else {
                    row
                }
            }
        };
        // Behind in the first field, or equal there and behind in the next, and so on.
        let mut condition = tie;
        for (key, value) in self.keys.iter().zip(cursor.values()).rev() {
            let (same, behind) = key.against(value, bound);
            condition = format!("({behind} OR ({same} AND {condition}))");
        }
        condition
    }
}
