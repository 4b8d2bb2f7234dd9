//! The MongoDB store of wow-store: the contract of [`wow_store_api`] on replica sets of MongoDB 5.0 and later.
//!
//! ```no_run
//! # async fn doc() -> wow_store_api::Result<()> {
//! use wow_store_api::{AggregateId, Commit, StoreExt};
//! use wow_store_mongo::{MongoConfig, MongoStore};
//!
//! let store = MongoStore::open(MongoConfig::new("mongodb://localhost/shop?replicaSet=rs0")?).await?;
//! let id = AggregateId::new("shop", "order", "42")?;
//! store.append(Commit::new(id, "cmd-7").event("OrderPlaced", 1, &42)?).await?;
//! # Ok(()) }
//! ```
//!
//! # How the guarantees are kept
//!
//! | guarantee | by |
//! |---|---|
//! | L1, L4 | one transaction, committed to a majority and its journal |
//! | L2, L3 | unique indexes over version and command; an append that they refuse runs again and looks first |
//! | L5 | the partition's counter is raised in the transaction, so of two that overlap one is aborted; every read is of what a majority has, on the primary, in one causal order |
//! | L6 | where the result of a commit is unknown the commit is asked for again; what stays unknown is settled by the command id; a primary that is cut off is not waited for once there is another |
//! | L7, C2 | the lease is touched in the transaction, so nobody takes it over before the commit |
//! | L8 | one writer per partition and node; what arrives while a transaction is under way goes in the next; nodes that want one partition take turns; a transaction that was given up is ended on the server, which would keep it, and the partition, for a minute |
//! | L9 | keyset pages of bounded size |
//! | L10 | a type's collection and indexes are made before its first append, never inside a transaction; the counter says which types a partition has |
//! | L11 | one transaction that raises the counters in one order |
//! | T3, T4 | one change stream for the whole store; heads of watched contexts are polled besides |
//! | E1, R2, M1 | the server's clock (`$$NOW`), in the step that writes |
//! | Q1 | aggregation pipelines in which everything that comes from a query is a literal |
//! | D4 | collections and indexes are made by commands that any number of nodes may give at once |
//! | D5, N2 | looked at when the store is opened |
//!
//! # A node that dies
//!
//! The server does not end a transaction when the process dies that began it: the partitions that were being written to
//! then take no commits until it does, after `transactionLifetimeLimitSeconds`, 60 unless set. The transactions of the
//! store take milliseconds; where other nodes must not wait that long, set the parameter to a few seconds.

mod append;
mod attempts;
mod catalog;
mod config;
mod db;
mod document;
mod election;
mod ending;
mod fault;
mod log;
mod macros;
mod names;
mod push;
mod query;
mod records;
mod schema;
mod store;

pub use config::{Ddl, MongoConfig};
pub use push::PushState;
pub use store::MongoStore;
