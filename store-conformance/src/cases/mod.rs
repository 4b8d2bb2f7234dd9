//! The cases, by topic.

use crate::case::Case;

mod admin;
mod append_all;
mod append_races;
mod checkpoint;
mod fence;
mod lease;
mod ledger;
mod log;
mod member;
mod names;
mod payload;
mod query;
mod query_pages;
mod read;
mod reservation;
mod riders;
mod snapshot;
mod support;
mod tail;
mod timer;
mod tools;

/// Every case, in the order of the topics.
#[must_use]
#[rustfmt::skip] // One topic a line.
pub fn all() -> Vec<Case> {
    let topics: &[&[Case]] = &[
        log::CASES,
        read::CASES,
        append_all::CASES,
        append_races::CASES,
        tail::CASES,
        payload::CASES,
        names::CASES,
        checkpoint::CASES,
        lease::CASES,
        member::CASES,
        fence::CASES,
        snapshot::CASES,
        ledger::CASES,
        reservation::CASES,
        timer::CASES,
        riders::CASES,
        query::CASES,
        query_pages::CASES,
        admin::CASES,
    ];
    topics.concat()
}
