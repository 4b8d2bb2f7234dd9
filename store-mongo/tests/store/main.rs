//! What only this backend has, on a real server: its collections, its commands, its plans, its limits.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a panic is how a test says no"
)]

mod cost;
mod foreign;
mod formats;
mod limits;
mod plans;
mod schema;
mod sessions;
mod spy;
#[path = "../support/mod.rs"]
mod support;
