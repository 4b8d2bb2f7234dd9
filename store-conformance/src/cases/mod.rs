//! The cases, by topic.

use crate::case::Case;

mod fence;
mod lease;
mod ledger;
mod log;
mod member;
mod snapshot;
mod support;

/// Every case, in the order of the topics.
#[must_use]
pub fn all() -> Vec<Case> {
    let topics: &[&[Case]] =
        &[log::CASES, lease::CASES, member::CASES, fence::CASES, snapshot::CASES, ledger::CASES];
    topics.concat()
}
