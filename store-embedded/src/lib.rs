//! An event store in a directory, for one process at a time: the embedded backend of wow-store, on fjall. No server.
//!
//! ```
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! use futures_util::TryStreamExt;
//! use wow_store_api::{AggregateId, Commit, ExpectedVersion, StoreAdmin, StoreExt};
//! use wow_store_embedded::{EmbeddedConfig, EmbeddedStore};
//!
//! # let directory = tempfile::tempdir().unwrap();
//! # let path = directory.path().join("orders");
//! let store = EmbeddedStore::open(EmbeddedConfig::new(&path)).await?;
//! let id = AggregateId::new("shop", "order", "42")?;
//! let place = Commit::new(id.clone(), "cmd-7")
//!     .expect(ExpectedVersion::NoStream)
//!     .event("OrderPlaced", 1, &serde_json::json!({"lines": 3}))?;
//! store.append(place).await?; // on disk
//! store.close().await?;
//!
//! let store = EmbeddedStore::open(EmbeddedConfig::new(&path)).await?;
//! let commits: Vec<_> = store.load(&id, ..).await?.try_collect().await?;
//! assert_eq!(commits[0].version, 1);
//! # Ok::<_, wow_store_api::Error>(()) }).unwrap();
//! ```
//!
//! # How the contract is kept
//!
//! All writes go through one thread. It takes what is queued, decides each operation with the contract's own rules
//! ([`wow_store_api::rules`]) on what is stored and on the operations before it, writes the whole batch with one sync,
//! and then answers. Reads are of snapshots of what is durable.
//!
//! | guarantee | kept by |
//! |---|---|
//! | L1, L11, R5 | an operation's writes are kept or dropped as a whole, and are in one batch of the database |
//! | L2, L3, L5, L7 | one writer decides: look-up of the command, fence, version, riders, then the next position |
//! | L4 | a batch is synced before anything of it is answered or can be read |
//! | L5 | positions come from the head that the same batch moves; pages are checked to be gapless up to the head |
//! | L6 | only an operation whose own batch failed is `Unknown`; a failed write or sync poisons the store until it is opened again. There is no deadline: a write waits as long as the disk and the merging of tables take, so nothing becomes `Unknown` by waiting |
//! | L8 | operations of a batch have outcomes of their own; the queue is in order of arrival; a lone caller waits for its own sync only |
//! | L9 | the log by position and again by aggregate and version; a head is one read |
//! | L10 | a type is one record, written with its first commit |
//! | T1, T2 | the tail of `store-api` over pages that are bounded in commits and bytes |
//! | T3, T4 | the writer itself wakes the watchers, in process, after the sync: nothing can get lost |
//! | T5 | names are looked at before bodies are read; a page looks at so many bytes at most |
//! | S1–S4, C1, C2, E1–E3, F1–F3, R1–R4, M1, M2 | the rules, in the writer |
//! | C3 | does not apply: there are no transactions of the caller's |
//! | Q1, Q3 | the queries of `store-api` over a snapshot; every candidate of the aggregate type is looked at |
//! | Q2 | does not apply: there is one node |
//! | D3 | a record per structure, checked when the store is opened |
//! | N2 | a lock on the directory, held from opening to closing, with the holder's process, host and time |
//!
//! The clock is that of [`EmbeddedConfig::with_clock`], read after an operation has come to the writer. Only instants of commits are kept from
//! falling, within their partition.
//!
//! What was torn by a crash is cut off when the store is opened; what is damaged is refused, with the place. What is
//! on disk is described in `FORMAT.md` beside this crate.

mod access;
mod append;
mod checkpoints;
mod codec;
mod commit;
mod config;
mod engine;
mod error;
mod format;
mod leases;
mod ledger;
mod log;
mod pages;
mod places;
mod queries;
mod reservations;
mod snapshots;
mod store;
#[cfg(test)]
mod tests;
mod timers;

pub use config::EmbeddedConfig;
pub use store::EmbeddedStore;
