//! Every name that the store has in the database, and how names are written in SQL.
//!
//! Names and index suffixes are chosen so that no two of them can be the same, whatever contexts and aggregates are
//! called: a name part never holds `__` and never ends with `_` (see `wow_store_api::name`), so an index
//! `wow_log__shop__order__ver` is never an aggregate's table.

use std::fmt::Write as _;

use wow_store_api::{AggregateType, ContextName, Error, ErrorKind, Result, name::MAX_IDENTIFIER_BYTES};

pub(crate) const FORMAT: &str = "wow_format";
pub(crate) const LOG_AGGREGATE: &str = "wow_log_aggregate";
pub(crate) const SNAPSHOT_TABLE: &str = "wow_snapshot_table";
pub(crate) const CHECKPOINT: &str = "wow_checkpoint";
pub(crate) const LEASE: &str = "wow_lease";
pub(crate) const LEASE_MEMBER: &str = "wow_lease_member";
pub(crate) const FAILURE_LEDGER: &str = "wow_failure_ledger";
pub(crate) const FAILURE_DISCARDED: &str = "wow_failure_discarded";
pub(crate) const RESERVATION: &str = "wow_reservation";

/// Suffixes of constraints and indexes.
pub(crate) const PRIMARY: &str = "__pk";
pub(crate) const BY_VERSION: &str = "__ver";
pub(crate) const BY_COMMAND: &str = "__cmd";
pub(crate) const BY_CONTEXT: &str = "__ctx";
pub(crate) const BY_DUE: &str = "__due";
pub(crate) const BY_CLAIMABLE: &str = "__clm";
pub(crate) const BY_SUBSCRIPTION: &str = "__sub";

pub(crate) fn log(aggregate_type: &AggregateType) -> String {
    format!("wow_log__{}__{}", aggregate_type.context(), aggregate_type.name())
}

pub(crate) fn counter(context: &ContextName) -> String {
    format!("wow_log__{context}__partition")
}

/// The counters' primary key. Their table's name leaves no room for a suffix.
pub(crate) fn counter_key(context: &ContextName) -> String {
    format!("wow_partition__{context}")
}

pub(crate) fn append_function(aggregate_type: &AggregateType) -> String {
    format!("wow_append__{}__{}", aggregate_type.context(), aggregate_type.name())
}

pub(crate) fn snapshot(aggregate_type: &AggregateType) -> String {
    format!("wow_snapshot__{}__{}", aggregate_type.context(), aggregate_type.name())
}

pub(crate) fn timer(context: &ContextName) -> String {
    format!("wow_timer__{context}")
}

/// The channel of a schema: one fixed name for each. A channel has at most 63 bytes and belongs to the whole
/// database, so the schema stands in it as a hash.
pub(crate) fn channel(schema: &str) -> String {
    format!("wow_{:016x}", hash(schema))
}

/// FNV-1a, 64 bits: stable over versions and machines.
pub(crate) fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// An identifier, quoted.
pub(crate) fn quote(identifier: &str) -> String {
    format!("\"{}\"", identifier.replace('"', "\"\""))
}

/// A text literal, for the few places that take no parameter.
pub(crate) fn literal(text: &str) -> String {
    if text.contains('\\') {
        format!(" E'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
    } else {
        format!("'{}'", text.replace('\'', "''"))
    }
}

/// The schema that the store lives in. Everything is written with it; nothing depends on `search_path`.
#[derive(Debug, Clone)]
pub(crate) struct Schema {
    name: String,
    quoted: String,
    now: &'static str,
}

/// The server's clock, cut to the millisecond.
const SERVERS_CLOCK: &str = "pg_catalog.date_trunc('milliseconds', pg_catalog.clock_timestamp())";

/// The session setting that stands in for it in tests.
pub(crate) const CLOCK_SETTING: &str = "wow_store.now";
const TESTS_CLOCK: &str = "pg_catalog.current_setting('wow_store.now')::timestamp with time zone";

impl Schema {
    pub(crate) fn new(name: &str) -> Result<Self> {
        let refuse = |reason: String| Err(Error::not_applied(ErrorKind::Misconfigured { reason }));
        if name.is_empty() || name.contains('\0') {
            return refuse("the schema's name is empty or holds U+0000: give it a name".to_owned());
        }
        if name.len() > MAX_IDENTIFIER_BYTES {
            return refuse(format!(
                "the schema's name has {} bytes: at most {MAX_IDENTIFIER_BYTES} are allowed",
                name.len()
            ));
        }
        Ok(Self { name: name.to_owned(), quoted: quote(name), now: SERVERS_CLOCK })
    }

    /// With the clock of a test instead of the server's.
    pub(crate) fn with_clock(mut self, of_test: bool) -> Self {
        self.now = if of_test { TESTS_CLOCK } else { SERVERS_CLOCK };
        self
    }

    /// Its name as it is.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Its name in SQL.
    pub(crate) fn quoted(&self) -> &str {
        &self.quoted
    }

    /// The key of an advisory lock that all nodes take for this. Locks belong to the whole database, so the schema is
    /// part of it.
    pub(crate) fn lock_key(&self, what: &str) -> i64 {
        i64::from_ne_bytes(hash(&format!("wow_store {what} {}", self.name)).to_ne_bytes())
    }

    /// A table or function of the schema in SQL.
    pub(crate) fn at(&self, name: &str) -> String {
        format!("{}.{}", self.quoted, quote(name))
    }

    /// SQL with `{name}` for each table of the schema, e.g. `{wow_lease}`, and `{now}` for the clock.
    pub(crate) fn sql(&self, template: &str) -> String {
        self.sql_with(template, &[])
    }

    /// The same with more that has a name of its own. What is put in is not looked at again, whatever it holds.
    pub(crate) fn sql_with(&self, template: &str, parts: &[(&str, &str)]) -> String {
        let mut sql = String::with_capacity(template.len() + 256);
        let mut rest = template;
        while let Some((before, after)) = rest.split_once('{') {
            sql.push_str(before);
            let Some((name, after)) = after.split_once('}') else {
                sql.push('{');
                rest = after;
                continue;
            };
            match parts.iter().find(|(part, _)| *part == name) {
                Some((_, part)) => sql.push_str(part),
                None if name == "now" => sql.push_str(self.now),
                None => {
                    let _ = write!(sql, "{}", self.at(name));
                }
            }
            rest = after;
        }
        sql.push_str(rest);
        sql
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_and_literals_are_quoted() {
        assert_eq!(quote("a\"b"), "\"a\"\"b\"");
        assert_eq!(literal("it's \\"), " E'it''s \\\\'");
        let schema = Schema::new("app\".t; --").unwrap();
        assert_eq!(schema.sql("SELECT 1 FROM {wow_lease}"), "SELECT 1 FROM \"app\"\".t; --\".\"wow_lease\"");
        let tricky = Schema::new("{now}").unwrap();
        assert_eq!(tricky.sql_with("{a} {wow_lease}", &[("a", "{now}")]), "{now} \"{now}\".\"wow_lease\"");
    }

    #[test]
    fn the_longest_names_fit() {
        let context = "c".repeat(21);
        let longest = AggregateType::new(&context, "a".repeat(21)).unwrap();
        for name in [log(&longest) + BY_VERSION, snapshot(&longest) + PRIMARY, append_function(&longest)] {
            assert!(name.len() <= MAX_IDENTIFIER_BYTES, "{name} is not cut");
        }
        let alone = ContextName::new("c".repeat(41)).unwrap();
        for name in [counter(&alone), counter_key(&alone), timer(&alone) + BY_CLAIMABLE] {
            assert!(name.len() <= MAX_IDENTIFIER_BYTES, "{name} is not cut");
        }
    }
}
