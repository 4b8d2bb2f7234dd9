//! The PostgreSQL store of wow-store: the contract of [`wow_store_api`] on PostgreSQL 13 and later.
//!
//! ```no_run
//! # async fn doc() -> wow_store_api::Result<()> {
//! use wow_store_api::{AggregateId, Commit, StoreExt};
//! use wow_store_postgres::{PostgresConfig, PostgresStore};
//!
//! let store = PostgresStore::open(PostgresConfig::new("postgres://shop@localhost/shop")?).await?;
//! let id = AggregateId::new("shop", "order", "42")?;
//! store.append(Commit::new(id, "cmd-7").event("OrderPlaced", 1, &42)?).await?;
//! # Ok(()) }
//! ```
//!
//! # How the guarantees are kept
//!
//! | guarantee | by |
//! |---|---|
//! | L1, L4 | one transaction; asynchronous commit is turned off for it |
//! | L2, L3, L5 | the partition's counter row is locked inside the transaction; then heads and commands are looked at, unless this node wrote the aggregate's last commit itself, and the commits are written; unique indexes judge what was not looked at |
//! | L6 | every statement is tried again within `transaction_timeout`; an append whose reply was lost is sent again, and its command id tells |
//! | L7, C2 | the lease's row is share-locked until the write is committed |
//! | L8 | one queue per partition and node; what arrives while a batch is under way goes in the next, in one round trip; where many wait, the next one is made ready meanwhile |
//! | L9 | keyset pages of bounded size in one statement each |
//! | L10 | a type's table is made on its first use and registered before its first commit; a reader that finds more types registered than it knows looks again |
//! | L11 | one transaction that locks the counters in one order |
//! | T3, T4 | one connection listens and notifies for the whole store; heads of watched contexts are polled besides |
//! | E1, R2, M1 | the server's clock, read after the row is locked |
//! | D4 | tables are made under one advisory lock that ends with its transaction |
//! | N2 | the store's name is recorded in its schema |
//!
//! # Through a pooler
//!
//! A pooler in transaction mode (PgBouncer) is noticed when the store is opened. Nothing is then prepared by name,
//! statements bring their settings along, and other nodes' commits are found by polling. Everything else is the same.

mod append;
mod attempts;
mod catalog;
mod config;
mod fault;
mod jsonb;
mod log;
mod macros;
mod names;
mod pool;
mod pooler;
mod push;
mod query;
mod records;
mod schema;
mod statements;
mod store;
mod value;

pub use config::{Ddl, Pooler, PostgresConfig};
pub use push::PushState;
pub use schema::schema_sql;
pub use store::PostgresStore;
