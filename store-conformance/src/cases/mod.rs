//! The cases, by topic.

use crate::case::Case;

mod log;

/// Every case, in the order of the topics.
#[must_use]
pub fn all() -> Vec<Case> {
    let topics: &[&[Case]] = &[log::CASES];
    topics.concat()
}
