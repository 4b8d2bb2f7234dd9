//! Every name that the store has in the database.
//!
//! A name part never holds `__` and never ends with `_` (see `wow_store_api::name`), so no two collections can be called
//! the same, whatever contexts and aggregates are called.

use wow_store_api::{AggregateType, ContextName, Error, ErrorKind, Result};

pub(crate) const FORMAT: &str = "wow_format";
pub(crate) const LOG_AGGREGATE: &str = "wow_log_aggregate";
pub(crate) const SNAPSHOT_TABLE: &str = "wow_snapshot_table";
pub(crate) const CHECKPOINT: &str = "wow_checkpoint";
pub(crate) const LEASE: &str = "wow_lease";
pub(crate) const LEASE_MEMBER: &str = "wow_lease_member";
pub(crate) const FAILURE_LEDGER: &str = "wow_failure_ledger";
pub(crate) const FAILURE_DISCARDED: &str = "wow_failure_discarded";
pub(crate) const RESERVATION: &str = "wow_reservation";

/// Suffixes of indexes.
pub(crate) const BY_VERSION: &str = "__ver";
pub(crate) const BY_COMMAND: &str = "__cmd";
pub(crate) const BY_REVISION: &str = "__rev";
pub(crate) const BY_CONTEXT: &str = "__ctx";
pub(crate) const BY_DUE: &str = "__due";
pub(crate) const BY_CLAIMABLE: &str = "__clm";

const LOG: &str = "wow_log__";
const PARTITION: &str = "__partition";

pub(crate) fn log(aggregate_type: &AggregateType) -> String {
    format!("{LOG}{}__{}", aggregate_type.context(), aggregate_type.name())
}

pub(crate) fn counter(context: &ContextName) -> String {
    format!("{LOG}{context}{PARTITION}")
}

/// The counters of all contexts, as a regular expression over names.
pub(crate) fn counters() -> String {
    format!("^{LOG}.*{PARTITION}$")
}

/// The context whose counters a collection holds.
pub(crate) fn context_of_counter(collection: &str) -> Option<ContextName> {
    let context = collection.strip_prefix(LOG)?.strip_suffix(PARTITION)?;
    ContextName::new(context).ok()
}

pub(crate) fn snapshot(aggregate_type: &AggregateType) -> String {
    format!("wow_snapshot__{}__{}", aggregate_type.context(), aggregate_type.name())
}

pub(crate) fn timer(context: &ContextName) -> String {
    format!("wow_timer__{context}")
}

/// The longest name of a database, in bytes (inclusive).
const MAX_DATABASE_BYTES: usize = 63;

/// Checks the name of a database as servers on every system do.
pub(crate) fn check_database(name: &str) -> Result<()> {
    let reason = if name.is_empty() {
        "no database is named: write it behind the last `/` of the address, or configure it".to_owned()
    } else if name.len() > MAX_DATABASE_BYTES {
        format!("the database's name has {} bytes: at most {MAX_DATABASE_BYTES} are allowed", name.len())
    } else if name.contains(['/', '\\', '.', ' ', '"', '$', '*', '<', '>', ':', '|', '?', '\0']) {
        "the database's name holds one of / \\ . space \" $ * < > : | ? or U+0000: choose another".to_owned()
    } else if ["admin", "local", "config"].contains(&name) {
        format!("the database {name} is the server's own: choose another")
    } else {
        return Ok(());
    };
    Err(Error::not_applied(ErrorKind::Misconfigured { reason }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_is_found_in_the_name_of_its_counters() {
        let context = ContextName::new("shop").unwrap();
        assert_eq!(context_of_counter(&counter(&context)), Some(context));
        assert_eq!(context_of_counter("wow_log__shop__order"), None);
        assert_eq!(context_of_counter("wow_log__partition"), None);
    }

    #[test]
    fn names_of_databases_are_checked() {
        for name in ["shop", "Shop-1_a"] {
            assert!(check_database(name).is_ok(), "{name}");
        }
        for name in ["", "a.b", "a b", "$a", "admin", "local", "config", &"x".repeat(64)] {
            assert!(check_database(name).is_err(), "{name}");
        }
    }
}
