//! What the example programs share: where the store is ([`open`]) and how they show that they are at work
//! ([`progress`]). The programs themselves are in `src/bin`:
//!
//! - `transfer` moves money between accounts, many transfers at a time, and proves from the log that none was lost.
//! - `replay` stores a real event log case by case, then counts it with a subscription that can be killed at any time.

pub mod open;
pub mod progress;

/// The README's code, so that it is compiled.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
