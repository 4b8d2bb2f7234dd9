//! Everything that is a record under a key: checkpoints, leases, the failure ledger, reservations, timers, snapshots.
//!
//! What is done often is one statement that states the rule in SQL; the rest locks its rows, asks the contract's rules
//! and writes.

mod checkpoint;
mod lease;
mod ledger;
mod reservation;
mod snapshot;
mod timer;

use std::time::Duration;

use wow_store_api::{MAX_TTL, whole_millis};

/// A time to live in milliseconds. It was checked; what is longer than the longest is cut.
fn millis(ttl: Duration) -> i64 {
    i64::try_from(whole_millis(ttl.min(MAX_TTL))).unwrap_or(i64::MAX)
}

/// A limit as SQL takes it.
fn limit(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}
