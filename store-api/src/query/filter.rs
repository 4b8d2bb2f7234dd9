//! The filter: what it is made of, how it is built, what is refused.

use std::fmt;

use rust_decimal::Decimal;

use super::path::{Field, FieldKind, MAX_QUERY_STRING_BYTES, Target};
use crate::{
    error::{Error, Result},
    name::{CommandId, EventName},
    payload::Number,
    time::Timestamp,
};

/// How deep a [`Filter`] may be nested (inclusive); a filter without operands that are filters has depth 1.
pub const MAX_FILTER_DEPTH: usize = 32;

/// Most nodes of a [`Filter`] (inclusive). Each filter in it is one, each value of an `In` is another.
pub const MAX_FILTER_NODES: usize = 1_000;

/// Most bytes of all paths, strings and numbers of a [`Filter`] together (inclusive): 1 MiB.
pub const MAX_FILTER_BYTES: usize = 1024 * 1024;

/// A value that a filter compares with. It is data, whatever it looks like (`$gt`, `%`, `1 OR 1=1`).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Scalar {
    /// Null. It equals a null that is there, never a missing value.
    Null,
    /// A boolean.
    Bool(bool),
    /// A number, compared by value: `1.10` is `1.1`.
    Number(Number),
    /// A string, compared by bytes.
    String(String),
}

macro_rules! scalar_from {
    ($($from:ty: $value:ident => $scalar:expr;)*) => {$(
        impl From<$from> for Scalar {
            fn from($value: $from) -> Self {
                $scalar
            }
        }
    )*};
}

scalar_from! {
    bool: value => Self::Bool(value);
    i32: value => Self::Number(i64::from(value).into());
    u32: value => Self::Number(i64::from(value).into());
    i64: value => Self::Number(value.into());
    u64: value => Self::Number(value.into());
    Decimal: value => Self::Number(value.into());
    Number: value => Self::Number(value);
    &str: value => Self::String(value.to_owned());
    String: value => Self::String(value);
    &String: value => Self::String(value.clone());
    // The fixed-width text, as in a payload: its byte order is the order of time.
    Timestamp: value => Self::String(value.to_string());
    &EventName: value => Self::String(value.as_str().to_owned());
    &CommandId: value => Self::String(value.as_str().to_owned());
}

impl Scalar {
    fn bytes(&self) -> usize {
        match self {
            Self::Null | Self::Bool(_) => 0,
            Self::Number(number) => number.as_str().len(),
            Self::String(text) => text.len(),
        }
    }

    fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a boolean",
            Self::Number(_) => "a number",
            Self::String(_) => "a string",
        }
    }
}

/// Which items a query finds (Q1).
///
/// Every filter is true or false for every item, never unknown, and the same on every backend. A value is looked up
/// first; it is *missing* if the path leads nowhere. Then:
///
/// | filter | holds if the value is … |
/// |---|---|
/// | `Eq` | there, of the same kind as the scalar, and equal: numbers by value, strings by bytes |
/// | `Ne` | whatever `Eq` does not hold for: so also where it is missing |
/// | `Lt` `Le` `Gt` `Ge` | of the same kind as the scalar, which must be a number (compared by value) or a string (by bytes) |
/// | `In` | `Eq` to any of the scalars; to none of an empty list |
/// | `Contains` | an array with an element that is `Eq` to the scalar, or a string with the scalar, a string, in it |
/// | `StartsWith` | a string that starts with these bytes |
/// | `Exists` | there, also as a null |
///
/// `Not` turns its operand round, so `Not(Lt(…))` also holds where the value is missing or of another kind. `And` of
/// nothing holds, `Or` of nothing does not.
///
/// Fields of the envelope are stricter, since their kind is known: a scalar of another kind is refused rather than
/// never found. An instant ([`Field::At`]) is compared with a [`Timestamp`] or its exact text, and knows no `Contains`
/// or `StartsWith`; numbers know none either.
///
/// Build it with the functions of this type, read it by matching:
///
/// ```
/// use rust_decimal::dec;
/// use wow_store_api::query::{Field, Filter};
///
/// let status = Field::body(["status"])?;
/// let open_and_large = Filter::one_of(status, ["placed", "paid"])
///     .and(Filter::ge(Field::body(["total"])?, dec!(100.00)))
///     .and(!Filter::exists(Field::Tenant));
/// assert!(matches!(&open_and_large, Filter::And(filters) if filters.len() == 3));
/// # Ok::<_, wow_store_api::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Filter {
    /// Everything.
    #[default]
    All,
    /// The value equals the scalar.
    Eq(Field, Scalar),
    /// The value does not equal the scalar, or is missing.
    Ne(Field, Scalar),
    /// The value is less.
    Lt(Field, Scalar),
    /// The value is less or equal.
    Le(Field, Scalar),
    /// The value is greater.
    Gt(Field, Scalar),
    /// The value is greater or equal.
    Ge(Field, Scalar),
    /// The value equals one of the scalars.
    In(Field, Vec<Scalar>),
    /// The value is an array that holds the scalar, or a string that contains it.
    Contains(Field, Scalar),
    /// The value is a string that starts with this.
    StartsWith(Field, String),
    /// The value is there.
    Exists(Field),
    /// The filter does not hold.
    Not(Box<Self>),
    /// All hold.
    And(Vec<Self>),
    /// At least one holds.
    Or(Vec<Self>),
}

impl Filter {
    /// `field` equals `value`.
    pub fn eq(field: impl Into<Field>, value: impl Into<Scalar>) -> Self {
        Self::Eq(field.into(), value.into())
    }

    /// `field` does not equal `value`, or is missing.
    pub fn ne(field: impl Into<Field>, value: impl Into<Scalar>) -> Self {
        Self::Ne(field.into(), value.into())
    }

    /// `field` is less than `value`.
    pub fn lt(field: impl Into<Field>, value: impl Into<Scalar>) -> Self {
        Self::Lt(field.into(), value.into())
    }

    /// `field` is at most `value`.
    pub fn le(field: impl Into<Field>, value: impl Into<Scalar>) -> Self {
        Self::Le(field.into(), value.into())
    }

    /// `field` is greater than `value`.
    pub fn gt(field: impl Into<Field>, value: impl Into<Scalar>) -> Self {
        Self::Gt(field.into(), value.into())
    }

    /// `field` is at least `value`.
    pub fn ge(field: impl Into<Field>, value: impl Into<Scalar>) -> Self {
        Self::Ge(field.into(), value.into())
    }

    /// `field` equals one of `values`.
    pub fn one_of<I>(field: impl Into<Field>, values: I) -> Self
    where
        I: IntoIterator,
        I::Item: Into<Scalar>,
    {
        Self::In(field.into(), values.into_iter().map(Into::into).collect())
    }

    /// `field` is an array that holds `value`, or a string that contains it.
    pub fn contains(field: impl Into<Field>, value: impl Into<Scalar>) -> Self {
        Self::Contains(field.into(), value.into())
    }

    /// `field` is a string that starts with `prefix`.
    pub fn starts_with(field: impl Into<Field>, prefix: impl Into<String>) -> Self {
        Self::StartsWith(field.into(), prefix.into())
    }

    /// `field` is there, also as a null.
    pub fn exists(field: impl Into<Field>) -> Self {
        Self::Exists(field.into())
    }

    /// All of `filters` hold.
    pub fn all_of(filters: impl IntoIterator<Item = Self>) -> Self {
        Self::And(filters.into_iter().collect())
    }

    /// At least one of `filters` holds.
    pub fn any_of(filters: impl IntoIterator<Item = Self>) -> Self {
        Self::Or(filters.into_iter().collect())
    }

    /// Both hold. A chain of these is one `And`, however long.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::All, filter) | (filter, Self::All) => filter,
            (Self::And(mut filters), other) => {
                filters.push(other);
                Self::And(filters)
            }
            (filter, other) => Self::And(vec![filter, other]),
        }
    }

    /// At least one holds. A chain of these is one `Or`, however long.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        match self {
            Self::Or(mut filters) => {
                filters.push(other);
                Self::Or(filters)
            }
            filter => Self::Or(vec![filter, other]),
        }
    }

    /// Checks everything that can be checked without the store, so that every backend refuses the same filters.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput):
    /// - nested deeper than [`MAX_FILTER_DEPTH`], more than [`MAX_FILTER_NODES`] or [`MAX_FILTER_BYTES`];
    /// - a string with U+0000 or of more than [`MAX_QUERY_STRING_BYTES`];
    /// - a range with a null or a boolean;
    /// - a field that the target does not have, or a scalar or an operator that does not fit a field of the envelope.
    pub fn check(&self, target: Target) -> Result<()> {
        Checker { target, nodes: 0, bytes: 0 }.filter(self, 1)
    }

    /// Every field that the filter looks at, in any order.
    pub(super) fn visit_fields(&self, visit: &mut impl FnMut(&Field)) {
        match self {
            Self::All => {}
            Self::Eq(field, _)
            | Self::Ne(field, _)
            | Self::Lt(field, _)
            | Self::Le(field, _)
            | Self::Gt(field, _)
            | Self::Ge(field, _)
            | Self::In(field, _)
            | Self::Contains(field, _)
            | Self::StartsWith(field, _)
            | Self::Exists(field) => visit(field),
            Self::Not(filter) => filter.visit_fields(visit),
            Self::And(filters) | Self::Or(filters) => {
                filters.iter().for_each(|filter| filter.visit_fields(visit));
            }
        }
    }
}

impl std::ops::Not for Filter {
    type Output = Self;

    fn not(self) -> Self {
        match self {
            Self::Not(filter) => *filter,
            filter => Self::Not(Box::new(filter)),
        }
    }
}

struct Checker {
    target: Target,
    nodes: usize,
    bytes: usize,
}

impl Checker {
    fn filter(&mut self, filter: &Filter, depth: usize) -> Result<()> {
        if depth > MAX_FILTER_DEPTH {
            return Err(Error::invalid_input(format!(
                "the filter is nested more than {MAX_FILTER_DEPTH} deep: make it flatter"
            )));
        }
        self.node()?;
        match filter {
            Filter::All => Ok(()),
            Filter::Exists(field) => self.field(field),
            Filter::Eq(field, scalar) | Filter::Ne(field, scalar) => {
                self.field(field)?;
                self.operand(field, scalar)
            }
            Filter::Lt(field, scalar)
            | Filter::Le(field, scalar)
            | Filter::Gt(field, scalar)
            | Filter::Ge(field, scalar) => {
                self.field(field)?;
                match scalar {
                    Scalar::Number(_) | Scalar::String(_) => self.operand(field, scalar),
                    Scalar::Null | Scalar::Bool(_) => Err(Error::invalid_input(format!(
                        "a range of {field} with {}: only numbers and strings have an order",
                        scalar.kind()
                    ))),
                }
            }
            Filter::In(field, scalars) => {
                self.field(field)?;
                scalars.iter().try_for_each(|scalar| {
                    self.node()?;
                    self.operand(field, scalar)
                })
            }
            Filter::Contains(field, scalar) => {
                self.field(field)?;
                has_text(field)?;
                self.operand(field, scalar)
            }
            Filter::StartsWith(field, prefix) => {
                self.field(field)?;
                has_text(field)?;
                self.text(prefix)
            }
            Filter::Not(filter) => self.filter(filter, depth + 1),
            Filter::And(filters) | Filter::Or(filters) => {
                filters.iter().try_for_each(|filter| self.filter(filter, depth + 1))
            }
        }
    }

    fn node(&mut self) -> Result<()> {
        self.nodes += 1;
        if self.nodes > MAX_FILTER_NODES {
            return Err(Error::invalid_input(format!(
                "the filter has more than {MAX_FILTER_NODES} nodes: split the query"
            )));
        }
        Ok(())
    }

    fn bytes(&mut self, bytes: usize) -> Result<()> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > MAX_FILTER_BYTES {
            return Err(Error::invalid_input(format!(
                "the filter has more than {MAX_FILTER_BYTES} bytes: split the query"
            )));
        }
        Ok(())
    }

    fn field(&mut self, field: &Field) -> Result<()> {
        field.check(self.target)?;
        self.bytes(field.bytes())
    }

    fn text(&mut self, text: &str) -> Result<()> {
        if text.len() > MAX_QUERY_STRING_BYTES {
            return Err(Error::invalid_input(format!(
                "a string in the filter has {} bytes, at most {MAX_QUERY_STRING_BYTES} are allowed",
                text.len()
            )));
        }
        if text.contains('\0') {
            return Err(Error::invalid_input(
                "a string in the filter contains U+0000, which no stored string can",
            ));
        }
        self.bytes(text.len())
    }

    fn operand(&mut self, field: &Field, scalar: &Scalar) -> Result<()> {
        match scalar {
            Scalar::String(text) => self.text(text)?,
            Scalar::Null | Scalar::Bool(_) | Scalar::Number(_) => self.bytes(scalar.bytes())?,
        }
        let needed = match (field.kind(), scalar) {
            (FieldKind::Any, _)
            | (FieldKind::Text, Scalar::String(_))
            | (FieldKind::Number, Scalar::Number(_)) => return Ok(()),
            (FieldKind::Instant, Scalar::String(text)) if is_instant(text) => return Ok(()),
            (FieldKind::Text, _) => "a string",
            (FieldKind::Number, _) => "a number",
            (FieldKind::Instant, _) => "a Timestamp, or its text as it is displayed",
        };
        Err(Error::invalid_input(format!(
            "{field} is compared with {}: it needs {needed}, use `exists` to ask whether it is there",
            scalar.kind()
        )))
    }
}

fn is_instant(text: &str) -> bool {
    text.parse::<Timestamp>().is_ok_and(|instant| instant.to_string() == text)
}

fn has_text(field: &Field) -> Result<()> {
    match field.kind() {
        FieldKind::Any | FieldKind::Text => Ok(()),
        FieldKind::Number | FieldKind::Instant => Err(Error::invalid_input(format!(
            "{field} is no text that could contain or start with something: use a range"
        ))),
    }
}

impl fmt::Display for Scalar {
    /// As in JSON; for messages.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Bool(value) => write!(f, "{value}"),
            Self::Number(number) => write!(f, "{number}"),
            Self::String(text) => write!(f, "{text:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body() -> Field {
        Field::body(["a"]).unwrap()
    }

    fn refused(filter: &Filter) -> bool {
        filter.check(Target::Events).is_err()
    }

    #[test]
    fn depth_is_limited() {
        let nested =
            |depth: usize| (1..depth).fold(Filter::exists(body()), |inner, _| Filter::Not(Box::new(inner)));
        assert!(!refused(&nested(MAX_FILTER_DEPTH)));
        assert!(refused(&nested(MAX_FILTER_DEPTH + 1)));
        assert!(refused(&nested(2_000)));
    }

    #[test]
    fn nodes_and_bytes_are_limited() {
        let values = |count: i32| Filter::one_of(body(), 0..count);
        assert!(!refused(&values(999)));
        assert!(refused(&values(1_000)));
        let alternatives = |count: usize| Filter::any_of(vec![Filter::exists(body()); count]);
        assert!(!refused(&alternatives(999)));
        assert!(refused(&alternatives(1_000)));
        let long = "x".repeat(MAX_QUERY_STRING_BYTES);
        assert!(!refused(&Filter::one_of(body(), vec![long.as_str(); 15])));
        assert!(refused(&Filter::one_of(body(), vec![long.as_str(); 17])));
        let chained = (0..900).fold(Filter::All, |filter, n| filter.or(Filter::eq(body(), n)));
        assert!(!refused(&chained), "a chain is flat");
    }

    #[test]
    fn strings_are_limited() {
        let long = "x".repeat(MAX_QUERY_STRING_BYTES + 1);
        for text in [long.as_str(), "nul\0"] {
            assert!(refused(&Filter::eq(body(), text)));
            assert!(refused(&Filter::ne(body(), text)));
            assert!(refused(&Filter::lt(body(), text)));
            assert!(refused(&Filter::one_of(body(), [text])));
            assert!(refused(&Filter::contains(body(), text)));
            assert!(refused(&Filter::starts_with(body(), text)));
        }
    }

    #[test]
    fn ranges_need_an_order() {
        let builders: [fn(Field, Scalar) -> Filter; 4] = [Filter::Lt, Filter::Le, Filter::Gt, Filter::Ge];
        for range in builders {
            assert!(refused(&range(body(), Scalar::Null)));
            assert!(refused(&range(body(), true.into())));
            assert!(!refused(&range(body(), 1.into())));
            assert!(!refused(&range(body(), "a".into())));
        }
    }

    #[test]
    fn envelope_fields_fit_target_and_kind() {
        let metadata = Field::metadata(["user"]).unwrap();
        let of_events = [
            Field::EventName,
            Field::CommandId,
            Field::Partition,
            Field::Position,
            Field::EventIndex,
            metadata.clone(),
        ];
        for field in of_events {
            let filter = !Filter::exists(field);
            assert!(filter.check(Target::Snapshots).is_err());
            assert!(filter.check(Target::Events).is_ok());
        }
        for field in [Field::Id, Field::Tenant, Field::EventName, Field::CommandId] {
            assert!(!refused(&Filter::eq(&field, "a")));
            assert!(!refused(&Filter::contains(&field, "a")));
            assert!(refused(&Filter::contains(&field, 1)));
            assert!(refused(&Filter::eq(&field, 1)));
            assert!(refused(&Filter::eq(&field, Scalar::Null)));
        }
        for field in [Field::Version, Field::Revision, Field::Partition, Field::Position, Field::EventIndex] {
            assert!(!refused(&Filter::gt(&field, "1.5".parse::<Number>().unwrap())));
            assert!(refused(&Filter::eq(&field, "1")));
            assert!(refused(&Filter::contains(&field, 1)));
            assert!(refused(&Filter::starts_with(&field, "1")));
        }
        assert!(!refused(&Filter::eq(metadata, Scalar::Null)));
        assert!(!refused(&Filter::ge(Field::At, Timestamp::UNIX_EPOCH)));
        assert!(!refused(&Filter::ge(Field::At, "1970-01-01T00:00:00.000Z")));
        for text in ["1970", "1970-01-01T00:00:00Z", "1970-01-01T01:00:00.000+01:00", "x"] {
            assert!(refused(&Filter::ge(Field::At, text)), "{text}");
        }
        assert!(refused(&Filter::starts_with(Field::At, "1970")));
        assert!(refused(&Filter::one_of(Field::At, [0])));
    }
}
