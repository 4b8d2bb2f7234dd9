//! The order of a page: the fields it goes by, the total order of values, and what breaks ties.

use std::cmp::Reverse;

use super::path::{Field, Target};
use crate::{
    error::{Error, Result},
    payload::Number,
};

/// Most fields that a query sorts by (inclusive).
pub const MAX_SORT_FIELDS: usize = 8;

/// A field to sort by.
///
/// Values of all kinds have one order, see [`SortValue`]. Behind the last field of a query always comes what breaks
/// ties, see [`TieBreaker`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Sort {
    /// The field.
    pub field: Field,
    /// Whether the greatest value comes first. Missing values then come last.
    pub descending: bool,
}

impl Sort {
    /// Least value first.
    pub fn ascending(field: impl Into<Field>) -> Self {
        Self { field: field.into(), descending: false }
    }

    /// Greatest value first.
    pub fn descending(field: impl Into<Field>) -> Self {
        Self { field: field.into(), descending: true }
    }
}

pub(super) fn check(sort: &[Sort], target: Target) -> Result<()> {
    if sort.len() > MAX_SORT_FIELDS {
        return Err(Error::invalid_input(format!(
            "the query sorts by {} fields, at most {MAX_SORT_FIELDS} are allowed",
            sort.len()
        )));
    }
    sort.iter().try_for_each(|sort| sort.field.check(target))
}

/// A value as it is sorted. Its [`Ord`] is the order of the contract:
///
/// missing < null < false < true < numbers (by value) < strings (by bytes) < arrays < objects
///
/// All arrays tie with each other, and so do all objects.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SortValue {
    /// There is no value.
    Missing,
    /// Null.
    Null,
    /// A boolean.
    Bool(bool),
    /// A number.
    Number(Number),
    /// A string; also an instant, as its fixed-width text.
    String(String),
    /// Any array.
    Array,
    /// Any object.
    Object,
}

/// What orders items whose sort values all tie. Always ascending, also behind a descending field; no two items of a
/// query have the same.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TieBreaker {
    /// Snapshots go by tenant, then id, both by bytes.
    Snapshot {
        /// The tenant; empty if there is none.
        tenant: String,
        /// The id.
        id: String,
    },
    /// Events go by partition, then position, then index in the commit: the order of the log.
    Event {
        /// The index of the partition.
        partition: u32,
        /// The position of the commit.
        position: u64,
        /// The index of the event in its commit.
        index: u32,
    },
}

/// Where an item comes in the order of a query. Made for one list of [`Sort`]: keys of different lists do not compare.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    values: Vec<Directed>,
    tie: TieBreaker,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Directed {
    Ascending(SortValue),
    Descending(Reverse<SortValue>),
}

impl Key {
    pub(super) fn new(sort: &[Sort], values: Vec<SortValue>, tie: TieBreaker) -> Self {
        let directed = sort.iter().zip(values).map(|(sort, value)| {
            if sort.descending { Directed::Descending(Reverse(value)) } else { Directed::Ascending(value) }
        });
        Self { values: directed.collect(), tie }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every kind of value, least first; the last of two ties is marked.
    pub(crate) fn ascending() -> Vec<SortValue> {
        let number = |text: &str| SortValue::Number(text.parse().unwrap());
        let string = |text: &str| SortValue::String(text.to_owned());
        vec![
            SortValue::Missing,
            SortValue::Null,
            SortValue::Bool(false),
            SortValue::Bool(true),
            number("-1E6144"),
            number("-9223372036854775809"),
            number("-1"),
            number("-1E-6176"),
            number("0"),
            number("1E-6176"),
            number("1.1"),
            number("1.100000000000000000000000000000001"),
            number("1.2"),
            number("10"),
            number("9999999999999999999999999999999999"),
            number("1E34"),
            number("9.999999999999999999999999999999999E6144"),
            string(""),
            string("10"),
            string("9"),
            string("A"),
            string("Z"),
            string("a"),
            string("a\u{1}"),
            string("aa"),
            string("\u{e9}"),
            string("\u{ffff}"),
            string("\u{10000}"),
            SortValue::Array,
            SortValue::Object,
        ]
    }

    #[test]
    fn values_have_one_total_order() {
        let values = ascending();
        for (i, left) in values.iter().enumerate() {
            for (j, right) in values.iter().enumerate() {
                assert_eq!(left.cmp(right), i.cmp(&j), "{left:?} {right:?}");
            }
        }
        let number = |text: &str| SortValue::Number(text.parse().unwrap());
        assert_eq!(number("1.10"), number("1.1"), "numbers tie by value");
        assert_eq!(number("0.00"), number("-0"));
    }

    #[test]
    fn ties_are_broken_upwards_in_both_directions() {
        let key = |descending, value: &str, id: &str| {
            let sort = [Sort { field: Field::Id, descending }];
            let tie = TieBreaker::Snapshot { tenant: String::new(), id: id.to_owned() };
            Key::new(&sort, vec![SortValue::String(value.to_owned())], tie)
        };
        assert!(key(false, "a", "2") < key(false, "b", "1"));
        assert!(key(true, "b", "2") < key(true, "a", "1"));
        assert!(key(false, "a", "1") < key(false, "a", "2"));
        assert!(key(true, "a", "1") < key(true, "a", "2"));
    }

    #[test]
    fn tie_breakers_go_by_their_parts_in_order() {
        let snapshot = |tenant: &str, id: &str| TieBreaker::Snapshot { tenant: tenant.into(), id: id.into() };
        assert!(snapshot("", "b") < snapshot("a", "a"));
        assert!(snapshot("a", "B") < snapshot("a", "a"));
        let event = |partition, position, index| TieBreaker::Event { partition, position, index };
        assert!(event(0, 9, 9) < event(1, 1, 0));
        assert!(event(1, 2, 9) < event(1, 10, 0));
        assert!(event(1, 2, 1) < event(1, 2, 2));
    }

    #[test]
    fn sort_is_checked() {
        let by = |count| vec![Sort::ascending(Field::Id); count];
        assert!(check(&by(MAX_SORT_FIELDS), Target::Snapshots).is_ok());
        assert!(check(&by(MAX_SORT_FIELDS + 1), Target::Snapshots).is_err());
        let by_position = [Sort::descending(Field::Position)];
        assert!(check(&by_position, Target::Events).is_ok());
        assert!(check(&by_position, Target::Snapshots).is_err());
    }
}
