//! Embedded backend of wow-store, on fjall.

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
