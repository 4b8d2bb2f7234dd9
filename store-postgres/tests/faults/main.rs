//! Faults of a real server: killed, cut off, terminated, locked, full.
//!
//! The servers are started here, with durable settings. After each fault everything that was acknowledged is there
//! once, positions are gapless, nothing unknown was applied twice, receipts are what is stored, tails that were open
//! have missed nothing and move again, and the stores go on without being reopened.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::as_conversions,
    clippy::print_stdout,
    reason = "test code: a panic is how a test says no"
)]

mod cut;
mod full;
mod kill;
mod late;
mod lock;
mod node;
mod proxy;
#[path = "../support/mod.rs"]
mod support;
mod terminate;
