//! Faults of real servers: answers of every bad kind, killed, stepped down, cut off, slow; and of the network.
//!
//! After each fault everything that was acknowledged is there once, positions are gapless, nothing unknown was applied
//! twice, receipts are what is stored, tails that were open have missed nothing and move again, and the stores go on
//! without being reopened.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "test code: a panic is how a test says no"
)]

mod answers;
mod cut;
mod given_up;
mod kill;
mod lag;
mod members;
mod nodes;
mod partition;
mod point;
mod proxy;
mod push;
mod push_history;
mod push_users;
mod scene;
mod state;
#[path = "../support/mod.rs"]
mod support;
