//! The collections as data: what `auto` creates and what `validate` compares with is the same list.

use mongodb::bson::{Document, doc};
use wow_store_api::{AggregateType, ContextName};

use crate::names;

/// An index beside the one of `_id`.
#[derive(Debug, Clone)]
pub(crate) struct Index {
    pub(crate) name: String,
    pub(crate) fields: &'static [&'static str],
    pub(crate) unique: bool,
}

impl Index {
    pub(crate) fn key(&self) -> Document {
        self.fields.iter().map(|field| ((*field).to_owned(), 1.into())).collect()
    }

    /// As `createIndexes` takes it.
    pub(crate) fn specification(&self) -> Document {
        let mut index = doc! { "name": &self.name, "key": self.key() };
        if self.unique {
            index.insert("unique", true);
        }
        index
    }
}

/// A collection.
#[derive(Debug, Clone)]
pub(crate) struct Collection {
    pub(crate) name: String,
    pub(crate) indexes: Vec<Index>,
}

impl Collection {
    fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), indexes: Vec::new() }
    }

    fn with(mut self, suffix: &str, unique: bool, fields: &'static [&'static str]) -> Self {
        self.indexes.push(Index { name: format!("{}{suffix}", self.name), fields, unique });
        self
    }
}

/// What every store has. The `_id` of a record is a document of all that names it, in the order of its fields, so that
/// the index of `_id` finds one record and lists many.
pub(crate) fn base() -> Vec<Collection> {
    vec![
        Collection::new(names::FORMAT),
        Collection::new(names::LOG_AGGREGATE),
        Collection::new(names::SNAPSHOT_TABLE),
        Collection::new(names::CHECKPOINT).with(
            names::BY_CONTEXT,
            false,
            &["_id.context", "_id.subscription", "_id.partition"],
        ),
        Collection::new(names::LEASE),
        Collection::new(names::LEASE_MEMBER),
        Collection::new(names::FAILURE_LEDGER),
        Collection::new(names::FAILURE_DISCARDED),
        Collection::new(names::RESERVATION),
    ]
}

/// The counters of a context: `_id` is the index of the partition.
pub(crate) fn counter(context: &ContextName) -> Collection {
    Collection::new(names::counter(context))
}

/// The log of an aggregate type: `_id` is partition and position.
pub(crate) fn log(aggregate_type: &AggregateType) -> Collection {
    Collection::new(names::log(aggregate_type))
        .with(names::BY_VERSION, true, &["tenant", "id", "version"])
        .with(names::BY_COMMAND, true, &["tenant", "id", "command_id"])
}

/// The snapshots of an aggregate type: `_id` is tenant and id.
pub(crate) fn snapshot(aggregate_type: &AggregateType) -> Collection {
    Collection::new(names::snapshot(aggregate_type)).with(names::BY_REVISION, false, &["revision", "_id"])
}

/// The timers of a context: `_id` is the timer's id.
pub(crate) fn timer(context: &ContextName) -> Collection {
    Collection::new(names::timer(context)).with(names::BY_DUE, false, &["due_at", "_id"]).with(
        names::BY_CLAIMABLE,
        false,
        &["claimable_at"],
    )
}
