//! The tables as data: what `auto` creates and what `validate` compares with is the same list.

use std::fmt::Write as _;

use wow_store_api::{AggregateType, ContextName};

use crate::names::{self, Schema, quote};

/// A column. Types are spelled as the server spells them back.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Column {
    pub(crate) name: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) nullable: bool,
    /// Numbered by the server.
    pub(crate) identity: bool,
}

/// An index, or the constraint that it stands for.
#[derive(Debug, Clone)]
pub(crate) struct Index {
    pub(crate) name: String,
    pub(crate) kind: IndexKind,
    pub(crate) columns: &'static [&'static str],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IndexKind {
    Primary,
    Unique,
    Plain,
}

/// A table.
#[derive(Debug, Clone)]
pub(crate) struct Table {
    pub(crate) name: String,
    pub(crate) columns: &'static [Column],
    pub(crate) indexes: Vec<Index>,
    pub(crate) options: &'static str,
}

const TEXT: &str = "text";
const BIGINT: &str = "bigint";
const INTEGER: &str = "integer";
const INSTANT: &str = "timestamp(3) with time zone";
/// What is read far more often than it is searched: it comes out as it went in, at no cost. A query that looks into it
/// makes a `jsonb` of it.
const JSON: &str = "json";
const JSONB: &str = "jsonb";
const UUID: &str = "uuid";

const fn column(name: &'static str, kind: &'static str) -> Column {
    Column { name, kind, nullable: false, identity: false }
}

const fn nullable(name: &'static str, kind: &'static str) -> Column {
    Column { name, kind, nullable: true, identity: false }
}

impl Column {
    /// Texts are compared by bytes.
    pub(crate) fn is_text(&self) -> bool {
        self.kind == TEXT
    }
}

fn table(name: &str, columns: &'static [Column], primary: &'static [&'static str]) -> Table {
    let name = name.to_owned();
    let key = Index { name: format!("{name}{}", names::PRIMARY), kind: IndexKind::Primary, columns: primary };
    Table { name, columns, indexes: vec![key], options: "" }
}

impl Table {
    fn with(mut self, suffix: &str, kind: IndexKind, columns: &'static [&'static str]) -> Self {
        self.indexes.push(Index { name: format!("{}{suffix}", self.name), kind, columns });
        self
    }

    /// What creates it where it is missing.
    pub(crate) fn create(&self, schema: &Schema) -> String {
        let at = schema.at(&self.name);
        let mut sql = format!("CREATE TABLE IF NOT EXISTS {at} (");
        for column in self.columns {
            let _ = write!(sql, "{} {}", quote(column.name), column.kind);
            if column.is_text() {
                sql.push_str(" COLLATE \"C\"");
            }
            if !column.nullable {
                sql.push_str(" NOT NULL");
            }
            if column.identity {
                sql.push_str(" GENERATED ALWAYS AS IDENTITY");
            }
            sql.push_str(", ");
        }
        let constraints: Vec<String> = self.indexes.iter().filter_map(Index::constraint).collect();
        let _ = write!(sql, "{}){};", constraints.join(", "), self.options);
        for index in self.indexes.iter().filter(|index| index.kind == IndexKind::Plain) {
            let _ = write!(
                sql,
                "CREATE INDEX IF NOT EXISTS {} ON {at} ({});",
                quote(&index.name),
                index.columns_in_sql()
            );
        }
        sql
    }
}

impl Index {
    fn columns_in_sql(&self) -> String {
        self.columns.iter().map(|column| quote(column)).collect::<Vec<_>>().join(", ")
    }

    fn constraint(&self) -> Option<String> {
        let kind = match self.kind {
            IndexKind::Primary => "PRIMARY KEY",
            IndexKind::Unique => "UNIQUE",
            IndexKind::Plain => return None,
        };
        Some(format!("CONSTRAINT {} {kind} ({})", quote(&self.name), self.columns_in_sql()))
    }
}

/// The tables that every store has.
pub(crate) fn base() -> Vec<Table> {
    vec![
        format(),
        log_aggregate(),
        snapshot_table(),
        checkpoint(),
        lease(),
        lease_member(),
        ledger(),
        discarded(),
        reservation(),
    ]
}

/// The format of each structure; the row `store` also says whose the schema is.
pub(crate) fn format() -> Table {
    const COLUMNS: &[Column] = &[
        column("structure", TEXT),
        column("version", INTEGER),
        nullable("owner", TEXT),
        column("recorded_at", INSTANT),
    ];
    table(names::FORMAT, COLUMNS, &["structure"])
}

fn log_aggregate() -> Table {
    const COLUMNS: &[Column] =
        &[column("context", TEXT), column("aggregate", TEXT), column("created_at", INSTANT)];
    table(names::LOG_AGGREGATE, COLUMNS, &["context", "aggregate"])
}

fn snapshot_table() -> Table {
    const COLUMNS: &[Column] = &[
        column("context", TEXT),
        column("aggregate", TEXT),
        column("revision", INTEGER),
        column("created_at", INSTANT),
    ];
    table(names::SNAPSHOT_TABLE, COLUMNS, &["context", "aggregate"])
}

fn checkpoint() -> Table {
    const COLUMNS: &[Column] = &[
        column("subscription", TEXT),
        column("context", TEXT),
        column("partition", INTEGER),
        column("position", BIGINT),
        column("epoch", BIGINT),
        column("saved_at", INSTANT),
    ];
    table(names::CHECKPOINT, COLUMNS, &["subscription", "context", "partition"]).with(
        names::BY_CONTEXT,
        IndexKind::Plain,
        &["context", "subscription", "partition"],
    )
}

fn lease() -> Table {
    const COLUMNS: &[Column] = &[
        column("group", TEXT),
        column("context", TEXT),
        column("partition", INTEGER),
        nullable("owner", TEXT),
        column("epoch", BIGINT),
        column("expires_at", INSTANT),
    ];
    table(names::LEASE, COLUMNS, &["group", "context", "partition"])
}

fn lease_member() -> Table {
    const COLUMNS: &[Column] = &[
        column("group", TEXT),
        column("member", TEXT),
        column("joined_at", INSTANT),
        column("expires_at", INSTANT),
    ];
    table(names::LEASE_MEMBER, COLUMNS, &["group", "member"])
}

fn ledger() -> Table {
    const COLUMNS: &[Column] = &[
        column("subscription", TEXT),
        column("context", TEXT),
        column("aggregate", TEXT),
        column("tenant", TEXT),
        column("id", TEXT),
        column("partition", INTEGER),
        column("state", TEXT),
        column("position", BIGINT),
        column("version", BIGINT),
        column("from_version", BIGINT),
        column("attempts", BIGINT),
        nullable("event", TEXT),
        nullable("error", TEXT),
        column("since", INSTANT),
        column("updated_at", INSTANT),
    ];
    table(names::FAILURE_LEDGER, COLUMNS, &["subscription", "context", "aggregate", "tenant", "id"])
}

fn discarded() -> Table {
    const COLUMNS: &[Column] = &[
        Column { name: "number", kind: BIGINT, nullable: false, identity: true },
        column("subscription", TEXT),
        column("context", TEXT),
        column("aggregate", TEXT),
        column("tenant", TEXT),
        column("id", TEXT),
        column("position", BIGINT),
        column("version", BIGINT),
        nullable("event", TEXT),
        nullable("error", TEXT),
        column("discarded_at", INSTANT),
    ];
    table(names::FAILURE_DISCARDED, COLUMNS, &["number"]).with(
        names::BY_SUBSCRIPTION,
        IndexKind::Plain,
        &["subscription", "number"],
    )
}

fn reservation() -> Table {
    const COLUMNS: &[Column] = &[
        column("scope", TEXT),
        column("key", TEXT),
        column("owner", TEXT),
        nullable("expires_at", INSTANT),
        column("reserved_at", INSTANT),
    ];
    table(names::RESERVATION, COLUMNS, &["scope", "key"])
}

/// The counters of a context: one row for each partition, all made when the context is first used.
pub(crate) fn counter(context: &ContextName) -> Table {
    const COLUMNS: &[Column] =
        &[column("partition", INTEGER), column("position", BIGINT), column("committed_at", INSTANT)];
    let key = Index { name: names::counter_key(context), kind: IndexKind::Primary, columns: &["partition"] };
    // Updated with every batch: room in the page keeps the updates out of the index.
    Table {
        name: names::counter(context),
        columns: COLUMNS,
        indexes: vec![key],
        options: " WITH (fillfactor = 20)",
    }
}

/// The commits of an aggregate type.
pub(crate) fn log(aggregate_type: &AggregateType) -> Table {
    const COLUMNS: &[Column] = &[
        column("partition", INTEGER),
        column("position", BIGINT),
        column("tenant", TEXT),
        column("id", TEXT),
        column("version", BIGINT),
        column("command_id", TEXT),
        column("committed_at", INSTANT),
        column("size", INTEGER),
        nullable("metadata", JSONB),
        column("events", JSON),
    ];
    table(&names::log(aggregate_type), COLUMNS, &["partition", "position"])
        .with(names::BY_VERSION, IndexKind::Unique, &["tenant", "id", "version"])
        .with(names::BY_COMMAND, IndexKind::Unique, &["tenant", "id", "command_id"])
}

/// The snapshots of an aggregate type.
pub(crate) fn snapshot(aggregate_type: &AggregateType) -> Table {
    const COLUMNS: &[Column] = &[
        column("tenant", TEXT),
        column("id", TEXT),
        column("version", BIGINT),
        column("revision", INTEGER),
        column("state", JSONB),
        column("saved_at", INSTANT),
    ];
    table(&names::snapshot(aggregate_type), COLUMNS, &["tenant", "id"])
}

/// The timers of a context.
pub(crate) fn timer(context: &ContextName) -> Table {
    const COLUMNS: &[Column] = &[
        column("id", TEXT),
        column("due_at", INSTANT),
        nullable("target_context", TEXT),
        nullable("target_aggregate", TEXT),
        nullable("target_tenant", TEXT),
        nullable("target_id", TEXT),
        column("body", JSONB),
        column("scheduled_at", INSTANT),
        column("attempts", BIGINT),
        nullable("claim_member", TEXT),
        nullable("claim", UUID),
        nullable("claim_expires_at", INSTANT),
        column("claimable_at", INSTANT),
    ];
    table(&names::timer(context), COLUMNS, &["id"])
        .with(names::BY_DUE, IndexKind::Plain, &["due_at", "id"])
        .with(names::BY_CLAIMABLE, IndexKind::Plain, &["claimable_at"])
}

/// The function that appends to an aggregate type's log: its text, as it creates or replaces it.
pub(crate) fn append_function(schema: &Schema, aggregate_type: &AggregateType) -> String {
    let function = schema.at(&names::append_function(aggregate_type));
    let counter = schema.at(&names::counter(aggregate_type.context()));
    let log = schema.at(&names::log(aggregate_type));
    let insert = schema.sql_with(include_str!("../../sql/insert.sql").trim_end(), &[("log", &log)]);
    let parts = [("function", function.as_str()), ("counter", &counter), ("log", &log), ("insert", &insert)];
    schema.sql_with(include_str!("../../sql/append.sql").trim_end(), &parts) + ";"
}
