//! The cursor: where a page ended, as text.

use std::{fmt, str::FromStr};

use twox_hash::XxHash3_64;

use super::{
    path::Target,
    sort::{Key, Sort, SortValue, TieBreaker},
};
use crate::{
    error::{Error, ErrorKind, Result},
    log::MAX_COUNTER,
    name::{AggregateType, MAX_ID_BYTES},
};

/// Longest [`Cursor`] as text, in bytes (inclusive): 1 MiB.
pub const MAX_CURSOR_BYTES: usize = 1024 * 1024;

/// The first byte of every cursor: the version of its layout.
const LAYOUT: u8 = 1;

/// Where a page ended: the sort values and the tie-breaker of its last item.
///
/// Opaque and portable: its text has only letters, digits, `-` and `_`, fits into a URL, and means the same on every
/// backend and every node. It belongs to one target, aggregate type and sort; a filter may change between pages. It is
/// encoded, not encrypted: whoever gets it can read the values that the page was sorted by.
///
/// A cursor that was tampered with is refused or points elsewhere in the same order; it cannot widen the query.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Cursor {
    order: Order,
    values: Vec<SortValue>,
    tie: TieBreaker,
}

/// Identifies the order that a cursor is a place in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Order(u64);

impl Order {
    pub(super) fn of(target: Target, aggregate_type: &AggregateType, sort: &[Sort]) -> Self {
        let target = match target {
            Target::Snapshots => "snapshots",
            Target::Events => "events",
        };
        // No part holds a NUL, so no two orders give the same text.
        let mut text = format!("{target}\0{aggregate_type}");
        for Sort { field, descending } in sort {
            text.push('\0');
            text.push(if *descending { '-' } else { '+' });
            text.push_str(&field.to_string());
        }
        Self(XxHash3_64::oneshot(text.as_bytes()))
    }
}

impl Cursor {
    pub(super) fn new(order: Order, values: Vec<SortValue>, tie: TieBreaker) -> Result<Self> {
        let cursor = Self { order, values, tie };
        let size = encoded_len(cursor.bytes().len());
        if size > MAX_CURSOR_BYTES {
            let kind = ErrorKind::TooLarge {
                what: "cursor (sort by shorter values)",
                size,
                limit: MAX_CURSOR_BYTES,
            };
            return Err(Error::not_applied(kind));
        }
        Ok(cursor)
    }

    /// The values of the sort's fields, in their order. For backends.
    #[must_use]
    pub fn values(&self) -> &[SortValue] {
        &self.values
    }

    /// What breaks ties. For backends.
    #[must_use]
    pub fn tie_breaker(&self) -> &TieBreaker {
        &self.tie
    }

    /// Refuses a cursor of another order.
    pub(super) fn check(&self, order: Order, target: Target, sort: &[Sort]) -> Result<()> {
        let fits = matches!(
            (&self.tie, target),
            (TieBreaker::Snapshot { .. }, Target::Snapshots) | (TieBreaker::Event { .. }, Target::Events)
        );
        if self.order == order && self.values.len() == sort.len() && fits {
            return Ok(());
        }
        Err(Error::invalid_input(
            "the cursor is of another query: use it with the same aggregate type and sort, or start over without it",
        ))
    }

    pub(super) fn key(&self, sort: &[Sort]) -> Key {
        Key::new(sort, self.values.clone(), self.tie.clone())
    }

    fn bytes(&self) -> Vec<u8> {
        let mut out = Writer(vec![LAYOUT]);
        out.number(self.order.0);
        // At most MAX_SORT_FIELDS.
        out.byte(u8::try_from(self.values.len()).unwrap_or(u8::MAX));
        for value in &self.values {
            match value {
                SortValue::Missing => out.byte(0),
                SortValue::Null => out.byte(1),
                SortValue::Bool(false) => out.byte(2),
                SortValue::Bool(true) => out.byte(3),
                SortValue::Number(number) => out.text(4, number.as_str()),
                SortValue::String(text) => out.text(5, text),
                SortValue::Array => out.byte(6),
                SortValue::Object => out.byte(7),
            }
        }
        match &self.tie {
            TieBreaker::Snapshot { tenant, id } => {
                out.text(0, tenant);
                out.text(0, id);
            }
            TieBreaker::Event { partition, position, index } => {
                out.byte(1);
                out.number(u64::from(*partition));
                out.number(*position);
                out.number(u64::from(*index));
            }
        }
        let sum = XxHash3_64::oneshot(&out.0);
        out.number(sum);
        out.0
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (body, sum) = bytes.split_at_checked(bytes.len().checked_sub(8)?)?;
        if XxHash3_64::oneshot(body).to_le_bytes() != sum {
            return None;
        }
        let mut from = Reader(body);
        if from.byte()? != LAYOUT {
            return None;
        }
        let order = Order(from.number()?);
        let count = from.byte()?;
        let values: Option<Vec<SortValue>> = (0..count)
            .map(|_| {
                Some(match from.byte()? {
                    0 => SortValue::Missing,
                    1 => SortValue::Null,
                    2 => SortValue::Bool(false),
                    3 => SortValue::Bool(true),
                    4 => SortValue::Number(from.text()?.parse().ok()?),
                    5 => SortValue::String(from.text()?),
                    6 => SortValue::Array,
                    7 => SortValue::Object,
                    _ => return None,
                })
            })
            .collect();
        let tie = match from.byte()? {
            0 => {
                let tenant = from.text()?;
                if from.byte()? != 0 {
                    return None;
                }
                let id = from.text()?;
                if id.is_empty() || id.len() > MAX_ID_BYTES || tenant.len() > MAX_ID_BYTES {
                    return None;
                }
                TieBreaker::Snapshot { tenant, id }
            }
            1 => {
                let partition = u32::try_from(from.number()?).ok()?;
                let position = from.number()?;
                let index = u32::try_from(from.number()?).ok()?;
                if position > MAX_COUNTER {
                    return None;
                }
                TieBreaker::Event { partition, position, index }
            }
            _ => return None,
        };
        from.0.is_empty().then_some(Self { order, values: values?, tie })
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&encode(&self.bytes()))
    }
}

impl fmt::Debug for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cursor({self})")
    }
}

impl FromStr for Cursor {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let cursor = if text.len() > MAX_CURSOR_BYTES { None } else { decode(text) };
        cursor.and_then(|bytes| Self::from_bytes(&bytes)).ok_or_else(|| {
            Error::invalid_input("that is not a cursor: give back what a page gave, or start over without it")
        })
    }
}

struct Writer(Vec<u8>);

impl Writer {
    fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    fn number(&mut self, number: u64) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    fn text(&mut self, tag: u8, text: &str) {
        self.byte(tag);
        self.number(u64::try_from(text.len()).unwrap_or(u64::MAX));
        self.0.extend_from_slice(text.as_bytes());
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    fn number(&mut self) -> Option<u64> {
        self.take(8)?.try_into().ok().map(u64::from_le_bytes)
    }

    /// A text behind its tag. No stored text holds a NUL, and not every backend can compare with one.
    fn text(&mut self) -> Option<String> {
        let length = usize::try_from(self.number()?).ok()?;
        let text = std::str::from_utf8(self.take(length)?).ok()?;
        (!text.contains('\0')).then(|| text.to_owned())
    }
}

/// The alphabet of base64url (RFC 4648), without padding.
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

fn encoded_len(bytes: usize) -> usize {
    bytes.saturating_mul(4).div_ceil(3)
}

fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(encoded_len(bytes.len()));
    for chunk in bytes.chunks(3) {
        let mut padded = [0_u8; 4];
        padded.iter_mut().skip(1).zip(chunk).for_each(|(to, from)| *to = *from);
        let bits = u32::from_be_bytes(padded);
        for shift in [18, 12, 6, 0].into_iter().take(chunk.len() + 1) {
            let digit = usize::try_from((bits >> shift) & 63).unwrap_or_default();
            text.push(char::from(ALPHABET.get(digit).copied().unwrap_or_default()));
        }
    }
    text
}

fn digit(byte: u8) -> Option<u32> {
    let (first, base) = match byte {
        b'A'..=b'Z' => (b'A', 0),
        b'a'..=b'z' => (b'a', 26),
        b'0'..=b'9' => (b'0', 52),
        b'-' => (b'-', 62),
        b'_' => (b'_', 63),
        _ => return None,
    };
    Some(u32::from(byte - first) + base)
}

fn decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    for chunk in text.as_bytes().chunks(4) {
        let mut bits = 0_u32;
        for (byte, shift) in chunk.iter().zip([18, 12, 6, 0]) {
            bits |= digit(*byte)? << shift;
        }
        let count = chunk.len().checked_sub(1).filter(|count| *count > 0)?;
        let all = bits.to_be_bytes();
        let (whole, rest) = all.split_at_checked(count + 1)?;
        if rest.iter().any(|byte| *byte != 0) {
            return None;
        }
        bytes.extend(whole.iter().skip(1));
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::Field;

    fn orders() -> Vec<Order> {
        let order: AggregateType = "shop.order".parse().unwrap();
        let cart: AggregateType = "shop.cart".parse().unwrap();
        let by = |path: &str| Sort::ascending(Field::Body(path.parse().unwrap()));
        vec![
            Order::of(Target::Snapshots, &order, &[]),
            Order::of(Target::Events, &order, &[]),
            Order::of(Target::Snapshots, &cart, &[]),
            Order::of(Target::Snapshots, &order, &[by("/a/b")]),
            Order::of(Target::Snapshots, &order, &[by("/a"), by("/b")]),
            Order::of(Target::Snapshots, &order, &[by("/b"), by("/a")]),
            Order::of(Target::Snapshots, &order, &[Sort::descending(Field::Id)]),
            Order::of(Target::Snapshots, &order, &[Sort::ascending(Field::Id)]),
        ]
    }

    fn ties() -> [TieBreaker; 3] {
        [
            TieBreaker::Snapshot { tenant: String::new(), id: "42".into() },
            TieBreaker::Snapshot { tenant: "acme %$".into(), id: "ключ".into() },
            TieBreaker::Event { partition: 4095, position: MAX_COUNTER, index: u32::MAX },
        ]
    }

    fn values() -> Vec<SortValue> {
        vec![
            SortValue::Missing,
            SortValue::Null,
            SortValue::Bool(false),
            SortValue::Bool(true),
            SortValue::Number("-1.10".parse().unwrap()),
            SortValue::String("a.b/$gt\n\"é".into()),
            SortValue::Array,
            SortValue::Object,
        ]
    }

    #[test]
    fn base64_round_trips() {
        for length in 0..70_u8 {
            let bytes: Vec<u8> = (0..length).map(|byte| byte.wrapping_mul(37)).collect();
            let text = encode(&bytes);
            assert_eq!(text.len(), encoded_len(bytes.len()));
            assert_eq!(decode(&text), Some(bytes));
        }
        assert_eq!(encode(b"\xfb\xff\xfe"), "-__-");
        assert_eq!(encode(b"fo"), "Zm8");
        for text in ["A", "AAAAA", "Zm9", "Zm8=", "Zm 8", "+/+/"] {
            assert_eq!(decode(text), None, "{text}");
        }
    }

    #[test]
    fn cursor_round_trips() {
        for order in orders() {
            for tie in ties() {
                for count in 0..=8 {
                    let values = values().into_iter().take(count).collect();
                    let cursor = Cursor::new(order, values, tie.clone()).unwrap();
                    let text = cursor.to_string();
                    assert!(text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_'));
                    assert_eq!(text.parse::<Cursor>().unwrap(), cursor);
                }
            }
        }
    }

    #[test]
    fn orders_differ() {
        let orders = orders();
        for (i, left) in orders.iter().enumerate() {
            for (j, right) in orders.iter().enumerate() {
                assert_eq!(left == right, i == j, "{i} {j}");
            }
        }
    }

    #[test]
    fn damaged_text_is_refused() {
        let [tie, ..] = ties();
        let text = Cursor::new(Order(7), values(), tie).unwrap().to_string();
        for text in ["", "A", "====", "null", "../../etc", &"A".repeat(MAX_CURSOR_BYTES + 1)] {
            assert!(text.parse::<Cursor>().is_err());
        }
        for at in 0..text.len() {
            assert!(text[..at].parse::<Cursor>().is_err(), "cut at {at}");
            let mut bytes = text.clone().into_bytes();
            bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
            assert!(String::from_utf8(bytes).unwrap().parse::<Cursor>().is_err(), "changed at {at}");
        }
    }

    #[test]
    fn forged_content_is_refused() {
        let forge = |values: Vec<SortValue>, tie: TieBreaker| {
            Cursor { order: Order(7), values, tie }.to_string().parse::<Cursor>()
        };
        let snapshot = |tenant: &str, id: &str| TieBreaker::Snapshot { tenant: tenant.into(), id: id.into() };
        assert!(forge(vec![], snapshot("", "a")).is_ok());
        assert!(forge(vec![], snapshot("", "")).is_err());
        assert!(forge(vec![], snapshot("", &"a".repeat(256))).is_err());
        assert!(forge(vec![], snapshot("\0", "a")).is_err());
        assert!(forge(vec![SortValue::String("\0".into())], snapshot("", "a")).is_err());
        let event = |position| TieBreaker::Event { partition: 0, position, index: 0 };
        assert!(forge(vec![], event(MAX_COUNTER)).is_ok());
        assert!(forge(vec![], event(MAX_COUNTER + 1)).is_err());
    }

    #[test]
    fn long_values_make_no_cursor() {
        let [tie, ..] = ties();
        let with = |length| {
            Cursor::new(Order(7), vec![SortValue::String("x".repeat(length))], tie.clone()).map(drop)
        };
        assert!(with(700_000).is_ok());
        assert!(matches!(with(800_000).unwrap_err().kind(), ErrorKind::TooLarge { .. }));
    }
}
