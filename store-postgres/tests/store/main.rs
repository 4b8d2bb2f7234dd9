//! What only this backend has, on a real server: its schema, its sessions, its statements.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a panic is how a test says no"
)]

#[path = "../support/mod.rs"]
mod support;

mod cost;
mod ddl;
mod formats;
mod nodes;
mod own_transaction;
mod plans;
mod proxy;
mod push;
mod replica;
mod restored;
mod roles;
mod secrets;
mod sessions;
mod states;
mod tls;
