//! The suite that proves that a store keeps the contract of `wow-store-api`.
//!
//! A backend's test file gives it a [`Backend`], a factory of fresh, separate places, and runs everything:
//!
//! ```no_run
//! use std::sync::Arc;
//! use wow_store_conformance::{Backend, Place, Settings, async_trait, run};
//! # use wow_store_api::{EventStore, Result};
//!
//! struct MyBackend;
//!
//! #[async_trait]
//! impl Backend for MyBackend {
//!     async fn place(&self, settings: Settings) -> Arc<dyn Place> {
//!         todo!("a fresh directory, schema or database that is gone when the place is dropped")
//!     }
//! }
//!
//! fn main() -> std::process::ExitCode {
//!     run(MyBackend)
//! }
//! ```
//!
//! Every case is reported by its name, checks one behaviour, and says which numbered guarantees it belongs to. A case
//! that a backend cannot pass by design is an [`Exception`]: data, with a reason, shown as ignored; nothing else is ever
//! skipped.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::as_conversions,
    reason = "this crate is test code: a panic is how a case says that the store broke the contract"
)]

mod case;
mod cases;
mod env;
mod fault;
mod guarantee;
mod harness;
mod history;
mod model;
mod mutants;
mod run;
mod seed;

pub use async_trait::async_trait;
pub use case::{Case, CaseFn};
pub use cases::all as cases;
pub use env::Env;
pub use fault::{Faults, Faulty};
pub use guarantee::{GUARANTEES, Guarantee, Status};
pub use harness::{Backend, Exception, Place, Settings};
pub use mutants::run as run_mutants;
pub use run::run;
