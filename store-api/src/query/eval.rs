//! What a filter and a sort say about one item: the reference semantics, for stores that evaluate in process and for
//! the comparison of those that do not.

use std::{borrow::Cow, cmp::Ordering};

use super::{
    filter::{Filter, Scalar},
    page::EventItem,
    path::{Field, Path},
    sort::{Sort, SortValue, TieBreaker},
};
use crate::{
    commit::{Event, RecordedCommit},
    name::AggregateId,
    payload::{Number, Payload, Value},
    snapshot::Snapshot,
    time::Timestamp,
};

/// Which payloads of an item have to be decoded.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Needs {
    body: bool,
    metadata: bool,
}

impl Needs {
    pub(super) fn of_filter(filter: &Filter) -> Self {
        let mut needs = Self::default();
        filter.visit_fields(&mut |field| needs.add(field));
        needs
    }

    pub(super) fn of_sort(sort: &[Sort]) -> Self {
        let mut needs = Self::default();
        sort.iter().for_each(|sort| needs.add(&sort.field));
        needs
    }

    fn add(&mut self, field: &Field) {
        self.body |= matches!(field, Field::Body(_));
        self.metadata |= matches!(field, Field::Metadata(_));
    }
}

/// One item, its payloads decoded as far as they were needed so far.
pub(super) struct Item<'a> {
    aggregate_id: &'a AggregateId,
    version: u64,
    revision: u32,
    at: Timestamp,
    body: Lazy<'a>,
    event: Option<EventFields<'a>>,
}

struct EventFields<'a> {
    name: &'a str,
    command_id: &'a str,
    partition: u32,
    position: u64,
    index: u32,
    metadata: Option<Lazy<'a>>,
}

struct Lazy<'a> {
    payload: &'a Payload,
    value: Option<Value>,
}

impl<'a> Lazy<'a> {
    fn new(payload: &'a Payload) -> Self {
        Self { payload, value: None }
    }

    fn decode(&mut self, wanted: bool) {
        if wanted {
            self.value.get_or_insert_with(|| self.payload.to_value());
        }
    }
}

impl<'a> From<&'a Snapshot> for Item<'a> {
    fn from(snapshot: &'a Snapshot) -> Self {
        Self {
            aggregate_id: &snapshot.aggregate_id,
            version: snapshot.version,
            revision: snapshot.revision,
            at: snapshot.saved_at,
            body: Lazy::new(&snapshot.state),
            event: None,
        }
    }
}

impl<'a> From<&'a EventItem> for Item<'a> {
    fn from(item: &'a EventItem) -> Self {
        Self {
            aggregate_id: &item.aggregate_id,
            version: item.version,
            revision: item.revision,
            at: item.committed_at,
            body: Lazy::new(&item.body),
            event: Some(EventFields {
                name: item.name.as_str(),
                command_id: item.command_id.as_str(),
                partition: item.partition,
                position: item.position,
                index: item.index,
                metadata: item.metadata.as_ref().map(Lazy::new),
            }),
        }
    }
}

impl<'a> Item<'a> {
    /// An event that is still part of its commit.
    pub(super) fn of_event(commit: &'a RecordedCommit, event: &'a Event, index: u32) -> Self {
        Self {
            aggregate_id: &commit.aggregate_id,
            version: commit.version,
            revision: event.revision,
            at: commit.committed_at,
            body: Lazy::new(&event.body),
            event: Some(EventFields {
                name: event.name.as_str(),
                command_id: commit.command_id.as_str(),
                partition: commit.partition,
                position: commit.position,
                index,
                metadata: commit.metadata.as_ref().map(Lazy::new),
            }),
        }
    }

    /// Decodes what is needed and is not decoded yet.
    fn prepare(&mut self, needs: Needs) {
        self.body.decode(needs.body);
        if let Some(metadata) = self.event.as_mut().and_then(|event| event.metadata.as_mut()) {
            metadata.decode(needs.metadata);
        }
    }

    /// Whether the filter holds for the item. `needs` are those of the filter.
    pub(super) fn matches(&mut self, filter: &Filter, needs: Needs) -> bool {
        self.prepare(needs);
        self.holds(filter)
    }

    /// The values that the item is sorted by.
    pub(super) fn sort_values(&mut self, sort: &[Sort]) -> Vec<SortValue> {
        self.prepare(Needs::of_sort(sort));
        sort.iter().map(|sort| self.get(&sort.field).into_sort_value()).collect()
    }

    /// What breaks ties.
    pub(super) fn tie_breaker(&self) -> TieBreaker {
        match &self.event {
            None => TieBreaker::Snapshot {
                tenant: self.aggregate_id.tenant().unwrap_or_default().to_owned(),
                id: self.aggregate_id.id().to_owned(),
            },
            Some(event) => {
                TieBreaker::Event { partition: event.partition, position: event.position, index: event.index }
            }
        }
    }

    fn holds(&self, filter: &Filter) -> bool {
        let compares =
            |field, scalar, wanted: fn(Ordering) -> bool| self.get(field).compare(scalar).is_some_and(wanted);
        match filter {
            Filter::All => true,
            Filter::Eq(field, scalar) => self.get(field).equals(scalar),
            Filter::Ne(field, scalar) => !self.get(field).equals(scalar),
            Filter::Lt(field, scalar) => compares(field, scalar, Ordering::is_lt),
            Filter::Le(field, scalar) => compares(field, scalar, Ordering::is_le),
            Filter::Gt(field, scalar) => compares(field, scalar, Ordering::is_gt),
            Filter::Ge(field, scalar) => compares(field, scalar, Ordering::is_ge),
            Filter::In(field, scalars) => {
                let seen = self.get(field);
                scalars.iter().any(|scalar| seen.equals(scalar))
            }
            Filter::Contains(field, scalar) => self.get(field).contains(scalar),
            Filter::StartsWith(field, prefix) => self.get(field).starts_with(prefix),
            Filter::Exists(field) => !matches!(self.get(field), Seen::Missing),
            Filter::Not(filter) => !self.holds(filter),
            Filter::And(filters) => filters.iter().all(|filter| self.holds(filter)),
            Filter::Or(filters) => filters.iter().any(|filter| self.holds(filter)),
        }
    }

    fn get(&self, field: &Field) -> Seen<'_> {
        let event = self.event.as_ref();
        match field {
            Field::Body(path) => Seen::at(self.body.value.as_ref(), path),
            Field::Id => Seen::text(self.aggregate_id.id()),
            Field::Tenant => self.aggregate_id.tenant().map_or(Seen::Missing, Seen::text),
            Field::Version => Seen::count(self.version),
            Field::Revision => Seen::count(self.revision),
            Field::At => Seen::Text(Cow::Owned(self.at.to_string())),
            Field::EventName => event.map_or(Seen::Missing, |event| Seen::text(event.name)),
            Field::CommandId => event.map_or(Seen::Missing, |event| Seen::text(event.command_id)),
            Field::Partition => event.map_or(Seen::Missing, |event| Seen::count(event.partition)),
            Field::Position => event.map_or(Seen::Missing, |event| Seen::count(event.position)),
            Field::EventIndex => event.map_or(Seen::Missing, |event| Seen::count(event.index)),
            Field::Metadata(path) => {
                let metadata = event.and_then(|event| event.metadata.as_ref());
                Seen::at(metadata.and_then(|metadata| metadata.value.as_ref()), path)
            }
        }
    }
}

/// A value as filters and sorts see it.
#[derive(Debug)]
enum Seen<'a> {
    Missing,
    Null,
    Bool(bool),
    Number(Cow<'a, Number>),
    Text(Cow<'a, str>),
    Array(&'a [Value]),
    Object,
}

impl<'a> Seen<'a> {
    fn text(text: &'a str) -> Self {
        Self::Text(Cow::Borrowed(text))
    }

    fn count(count: impl Into<u64>) -> Self {
        Self::Number(Cow::Owned(count.into().into()))
    }

    fn value(value: &'a Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(value) => Self::Bool(*value),
            Value::Number(number) => Self::Number(Cow::Borrowed(number)),
            Value::String(text) => Self::text(text),
            Value::Array(elements) => Self::Array(elements),
            Value::Object(_) => Self::Object,
        }
    }

    fn at(root: Option<&'a Value>, path: &Path) -> Self {
        let Some(root) = root else {
            return Self::Missing;
        };
        let end = path.segments().iter().try_fold(root, |value, segment| match value {
            Value::Object(entries) => entries.iter().find(|(key, _)| key == segment).map(|(_, value)| value),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => None,
        });
        end.map_or(Self::Missing, Self::value)
    }

    fn equals(&self, scalar: &Scalar) -> bool {
        match (self, scalar) {
            (Self::Null, Scalar::Null) => true,
            (Self::Bool(left), Scalar::Bool(right)) => left == right,
            (Self::Number(left), Scalar::Number(right)) => left.as_ref() == right,
            (Self::Text(left), Scalar::String(right)) => left.as_ref() == right,
            (
                Self::Missing
                | Self::Null
                | Self::Bool(_)
                | Self::Number(_)
                | Self::Text(_)
                | Self::Array(_)
                | Self::Object,
                _,
            ) => false,
        }
    }

    /// How the value compares, if both are numbers or both are strings.
    fn compare(&self, scalar: &Scalar) -> Option<Ordering> {
        match (self, scalar) {
            (Self::Number(left), Scalar::Number(right)) => Some(left.as_ref().cmp(right)),
            (Self::Text(left), Scalar::String(right)) => Some(left.as_bytes().cmp(right.as_bytes())),
            _ => None,
        }
    }

    fn contains(&self, scalar: &Scalar) -> bool {
        match (self, scalar) {
            (Self::Array(elements), scalar) => {
                elements.iter().any(|element| Seen::value(element).equals(scalar))
            }
            (Self::Text(text), Scalar::String(part)) => text.contains(part.as_str()),
            _ => false,
        }
    }

    fn starts_with(&self, prefix: &str) -> bool {
        matches!(self, Self::Text(text) if text.starts_with(prefix))
    }

    fn into_sort_value(self) -> SortValue {
        match self {
            Self::Missing => SortValue::Missing,
            Self::Null => SortValue::Null,
            Self::Bool(value) => SortValue::Bool(value),
            Self::Number(number) => SortValue::Number(number.into_owned()),
            Self::Text(text) => SortValue::String(text.into_owned()),
            Self::Array(_) => SortValue::Array,
            Self::Object => SortValue::Object,
        }
    }
}
