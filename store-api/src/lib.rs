//! What a store promises to an event-sourced service, whichever database is under it.
//!
//! An event-sourced service keeps everything in one place: its **event log**, snapshots, checkpoints, leases, failure
//! ledger, reservations and timers. This crate is the contract of that place, topic by topic, each a small trait:
//!
//! | topic | trait | guarantees |
//! |---|---|---|
//! | the log: append, load, read | [`EventLog`] | L1–L11 |
//! | the tail: follow the log | [`Tail`], [`Wakeups`] | T1–T5 |
//! | snapshots | [`Snapshots`] | S1–S4 |
//! | checkpoints | [`Checkpoints`] | C1–C3 |
//! | leases and members | [`Leases`] | E1–E3 |
//! | failure ledger | [`FailureLedger`] | F1–F3 |
//! | reservations | [`Reservations`] | R1–R5 |
//! | timers | [`Timers`] | M1–M2 |
//! | queries | [`Queries`] | Q1–Q3 |
//! | the store itself | [`StoreAdmin`] | D3, N3 |
//!
//! [`EventStore`] is their sum, and object-safe; [`StoreExt`] is the comfortable form. Guarantees are numbered; the
//! number stands at the method that keeps it, and the conformance suite (`wow-store-conformance`) has cases for each.
//!
//! [`MemoryStore`] keeps the whole contract in the plainest way: read it to learn what a method means, use it in tests.
//!
//! # Words
//!
//! | word | meaning |
//! |---|---|
//! | context | a bounded context, e.g. `shop`; owns one partitioned log per store |
//! | aggregate type | `<context>.<aggregate>`, e.g. `shop.order` |
//! | commit | the events that one command produced on one aggregate: the unit of append |
//! | version | the number of a commit in its aggregate: 1, 2, 3 … dense |
//! | command id | the idempotency key within the aggregate |
//! | partition | a fixed slice of a context's log; see [`PartitionCount::partition_of`] |
//! | position | the number of a commit in its partition: 1, 2, 3 … gapless, in commit order |
//! | subscription | a named reader of a context's log with its own checkpoints |
//! | member | one running node of a subscription's group |
//! | lease | which member owns which partition of a group now |
//! | epoch | the fencing token of a lease: rises with every change of owner |
//! | fence | the proof of a lease's epoch that a write carries |
//!
//! # A first look
//!
//! ```
//! # futures::executor::block_on(async {
//! use rust_decimal::{Decimal, dec};
//! use serde::{Deserialize, Serialize};
//! use wow_store_api::{AggregateId, Commit, ExpectedVersion, MemoryStore, StoreExt};
//! use futures_util::TryStreamExt;
//!
//! #[derive(Serialize, Deserialize)]
//! struct OrderPlaced {
//!     #[serde(with = "wow_store_api::payload::decimal")] // exact, with its scale
//!     total: Decimal,
//! }
//!
//! let store = MemoryStore::new();
//! let id = AggregateId::new("shop", "order", "42")?;
//! let receipt = store
//!     .append(
//!         Commit::new(id.clone(), "cmd-7") // command id: safe to send again
//!             .expect(ExpectedVersion::NoStream)
//!             .event("OrderPlaced", 1, &OrderPlaced { total: dec!(19.90) })?, // name, revision, body
//!     )
//!     .await?;
//! assert_eq!(receipt.version(), 1);
//!
//! let mut commits = store.load(&id, 1..).await?;
//! while let Some(commit) = commits.try_next().await? {
//!     let placed: OrderPlaced = commit.events[0].body.decode().unwrap();
//!     assert_eq!(placed.total.to_string(), "19.90");
//! }
//! # Ok::<_, wow_store_api::Error>(()) }).unwrap();
//! ```

/// All traits, so that every method of a store is in scope: `use wow_store_api::prelude::*;`
pub mod prelude {
    pub use crate::{
        Checkpoints, EventLog, EventStore, FailureLedger, Leases, Queries, Reservations, Snapshots,
        StoreAdmin, StoreExt, Timers,
    };
}

mod checkpoint;
mod commit;
mod error;
mod lease;
mod ledger;
mod log;
mod memory;
pub mod name;
mod partition;
pub mod payload;
pub mod query;
mod reservation;
pub mod rules;
mod snapshot;
mod store;
mod tail;
mod time;
mod timer;
mod wakeup;

pub use checkpoint::{Checkpoint, CheckpointSaved, Checkpoints, SaveCheckpoint};
pub use commit::{
    CheckedCommit, Commit, Event, ExpectedVersion, MAX_APPEND_BYTES, MAX_COMMIT_BYTES,
    MAX_COMMITS_PER_APPEND, MAX_REVISION, MAX_RIDERS, Receipt, RecordedCommit,
};
pub use error::{Error, ErrorKind, Outcome, Result};
pub use lease::{
    AcquireLease, Fence, Heartbeat, Lease, LeaseAcquired, LeaseRenewed, LeaseToken, Leases, MAX_TTL, Member,
    check_ttl, expiry, share_out,
};
pub use ledger::{
    Attempt, Discarded, FailedCommit, Failure, FailureCounts, FailureLedger, FailureState, ListFailures,
    MAX_FAILURE_TEXT_BYTES, Park,
};
pub use log::{
    CommitFilter, CommitStream, Epoch, EventLog, MAX_COUNTER, Page, Position, ReadPage, Version,
    VersionRange, check_append_all,
};
pub use memory::{MemoryStore, MemoryStoreBuilder};
pub use name::{
    AggregateId, AggregateName, AggregateType, CommandId, ContextName, EventName, MAX_ID_BYTES,
    MAX_NAME_BYTES, MAX_QUALIFIED_NAME_BYTES, MemberId, OwnerId, ReservationKey, ReservationScope,
    SubscriptionName, TimerId,
};
pub use partition::{PartitionCount, PartitionId};
pub use payload::{Payload, Unrepresentable};
pub use query::{Queries, ReadPreference};
pub use reservation::{ListReservations, Reservation, ReservationOp, ReservationOutcome, Reservations};
pub use snapshot::{SaveSnapshot, Snapshot, SnapshotSaved, Snapshots};
pub use store::{EventStore, Format, StoreAdmin, StoreExt};
pub use tail::{Tail, TailBatch, TailRequest};
pub use time::{Clock, ManualClock, SystemClock, Timestamp, whole_millis};
pub use timer::{
    ClaimTimers, Due, MAX_CLAIM, ScheduleTimer, Timer, TimerClaim, TimerOp, TimerScheduled, TimerToken,
    Timers,
};
pub use wakeup::{Changed, Wakeups, Watcher};
