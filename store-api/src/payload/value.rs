//! A payload as a tree.

use std::collections::HashMap;

use serde::ser::{Serialize, SerializeMap, Serializer};

use super::Number;
use super::read::canonical_index;

/// A JSON value with exact numbers and keys in the order they were written.
///
/// Equal by value: the order of keys and the scale of numbers do not count, the order of array elements does.
///
/// A value may be put together by hand; [`Payload::from_value`](super::Payload::from_value) checks it.
#[derive(Debug, Clone)]
pub enum Value {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// An exact decimal.
    Number(Number),
    /// A string.
    String(String),
    /// Values in order.
    Array(Vec<Self>),
    /// Keys and values as written. No key occurs twice in a value that comes from a payload.
    Object(Vec<(String, Self)>),
}

impl Value {
    /// The value at the end of `path`: keys of objects, and indexes of arrays as decimal digits. The empty
    /// path is the value itself.
    #[must_use]
    pub fn at<S: AsRef<str>>(&self, path: impl IntoIterator<Item = S>) -> Option<&Self> {
        path.into_iter().try_fold(self, |value, segment| match value {
            Self::Object(members) => {
                members.iter().find(|(key, _)| key == segment.as_ref()).map(|(_, value)| value)
            }
            Self::Array(items) => items.get(canonical_index(segment.as_ref())?),
            Self::Null | Self::Bool(_) | Self::Number(_) | Self::String(_) => None,
        })
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Bool(left), Self::Bool(right)) => left == right,
            (Self::Number(left), Self::Number(right)) => left == right,
            (Self::String(left), Self::String(right)) => left == right,
            (Self::Array(left), Self::Array(right)) => left == right,
            (Self::Object(left), Self::Object(right)) => same_members(left, right),
            _ => false,
        }
    }
}

impl Eq for Value {}

fn same_members(left: &[(String, Value)], right: &[(String, Value)]) -> bool {
    if left.len() != right.len() {
        return false;
    }
    // Most often the order is the same too.
    if left.iter().map(|(key, _)| key).eq(right.iter().map(|(key, _)| key)) {
        return left.iter().zip(right).all(|((_, left), (_, right))| left == right);
    }
    let right: HashMap<&str, &Value> = right.iter().map(|(key, value)| (key.as_str(), value)).collect();
    // A hand-made object may repeat a key; then fewer keys are left than members.
    right.len() == left.len()
        && left.iter().all(|(key, value)| right.get(key.as_str()).is_some_and(|right| *right == value))
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::Number(value) => value.serialize(serializer),
            Self::String(value) => serializer.serialize_str(value),
            Self::Array(items) => serializer.collect_seq(items),
            Self::Object(members) => {
                let mut map = serializer.serialize_map(Some(members.len()))?;
                for (key, value) in members {
                    map.serialize_entry(key, value)?;
                }
                map.end()
            }
        }
    }
}
