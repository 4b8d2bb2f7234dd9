//! The records beside the log: one document each, named by its `_id`.

mod checkpoint;
pub(crate) mod lease;
mod ledger;
pub(crate) mod reservation;
mod snapshot;
pub(crate) mod timer;

use std::time::Duration;

use mongodb::bson::{Bson, DateTime, Document, doc};
use wow_store_api::{Timestamp, expiry};

/// A limit of a list as a number of documents.
pub(crate) fn limit(limit: usize) -> usize {
    limit.min(1 << 30)
}

/// A time to live in whole milliseconds, rounded up.
fn millis(ttl: Duration) -> i64 {
    expiry(Timestamp::UNIX_EPOCH, ttl).as_millis()
}

/// So long after `now`, but no later than the last instant, as an expression.
fn later(now: Bson, ttl: Duration) -> Bson {
    let last = Bson::DateTime(DateTime::from_millis(Timestamp::MAX.as_millis()));
    Bson::Document(doc! { "$min": [{ "$add": [now, millis(ttl)] }, last] })
}

/// All documents whose `_id` starts with these fields. Documents are compared field by field, so that is a range.
fn starting_with(fields: &Document, next: &str) -> Document {
    let (mut first, mut last) = (fields.clone(), fields.clone());
    first.insert(next, Bson::MinKey);
    last.insert(next, Bson::MaxKey);
    doc! { "_id": { "$gt": first, "$lt": last } }
}
