//! Documents on the wire: typed access to their fields, and payloads in and out without a tree in between.

mod decimal;
mod read;
mod write;

use mongodb::bson::{Bson, DateTime, RawArray, RawBsonRef, RawDocument, Uuid};
use wow_store_api::{Error, Payload, Timestamp, payload::Number};

pub(crate) use self::{read::payload, write::Writer};
use crate::fault::Fault;

/// A counter of the contract as it is stored. What is beyond the last value was refused before.
pub(crate) fn long(counter: u64) -> i64 {
    i64::try_from(counter).unwrap_or(i64::MAX)
}

/// A number of 32 bits as it is stored.
pub(crate) fn int(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// An instant as it is stored.
pub(crate) fn instant(instant: Timestamp) -> DateTime {
    DateTime::from_millis(instant.as_millis())
}

/// A number as it is stored: Int64 where it fits, else Decimal128.
pub(crate) fn number(number: &Number) -> Bson {
    match number.is_integer_i64().then(|| number.to_i64()).flatten() {
        Some(integer) => Bson::Int64(integer),
        None => Bson::Decimal128(decimal::encode(number)),
    }
}

fn damaged(field: &str) -> Fault {
    Fault::from(Error::corrupt(
        format!("field {field} of a document"),
        "it is missing, or holds a value that was never written",
    ))
}

/// Typed access to the fields of a document.
pub(crate) trait Fields {
    /// `None` where it is missing or null.
    fn value(&self, field: &str) -> Result<Option<RawBsonRef<'_>>, Fault>;

    fn text(&self, field: &str) -> Result<&str, Fault>;

    fn text_or_none(&self, field: &str) -> Result<Option<&str>, Fault>;

    fn counter(&self, field: &str) -> Result<u64, Fault>;

    fn number(&self, field: &str) -> Result<u32, Fault>;

    fn instant(&self, field: &str) -> Result<Timestamp, Fault>;

    fn instant_or_none(&self, field: &str) -> Result<Option<Timestamp>, Fault>;

    /// A name or id that was checked when it was written.
    fn name<T: for<'a> TryFrom<&'a str, Error = Error>>(&self, field: &str) -> Result<T, Fault>;

    fn name_or_none<T: for<'a> TryFrom<&'a str, Error = Error>>(
        &self,
        field: &str,
    ) -> Result<Option<T>, Fault>;

    fn part(&self, field: &str) -> Result<&RawDocument, Fault>;

    fn list(&self, field: &str) -> Result<&RawArray, Fault>;

    fn uuid(&self, field: &str) -> Result<uuid::Uuid, Fault>;

    fn payload(&self, field: &str) -> Result<Payload, Fault>;
}

/// An integer, however a client spelled it.
pub(crate) fn integer(value: RawBsonRef<'_>) -> Option<i64> {
    match value {
        RawBsonRef::Int32(value) => Some(i64::from(value)),
        RawBsonRef::Int64(value) => Some(value),
        RawBsonRef::Decimal128(value) => decimal::decode(value)?.to_i64(),
        RawBsonRef::Double(value) => format!("{value}").parse().ok(),
        _ => None,
    }
}

impl Fields for RawDocument {
    fn value(&self, field: &str) -> Result<Option<RawBsonRef<'_>>, Fault> {
        let found = self.get(field).map_err(|_| damaged(field))?;
        Ok(found.filter(|value| !matches!(value, RawBsonRef::Null)))
    }

    fn text(&self, field: &str) -> Result<&str, Fault> {
        self.text_or_none(field)?.ok_or_else(|| damaged(field))
    }

    fn text_or_none(&self, field: &str) -> Result<Option<&str>, Fault> {
        let value = self.value(field)?;
        value.map(|value| value.as_str().ok_or_else(|| damaged(field))).transpose()
    }

    fn counter(&self, field: &str) -> Result<u64, Fault> {
        let value = self.value(field)?.and_then(integer);
        value.and_then(|value| u64::try_from(value).ok()).ok_or_else(|| damaged(field))
    }

    fn number(&self, field: &str) -> Result<u32, Fault> {
        u32::try_from(self.counter(field)?).map_err(|_| damaged(field))
    }

    fn instant(&self, field: &str) -> Result<Timestamp, Fault> {
        self.instant_or_none(field)?.ok_or_else(|| damaged(field))
    }

    fn instant_or_none(&self, field: &str) -> Result<Option<Timestamp>, Fault> {
        let Some(value) = self.value(field)? else { return Ok(None) };
        let instant = value.as_datetime().and_then(|it| Timestamp::from_millis(it.timestamp_millis()).ok());
        instant.map(Some).ok_or_else(|| damaged(field))
    }

    fn name<T: for<'a> TryFrom<&'a str, Error = Error>>(&self, field: &str) -> Result<T, Fault> {
        T::try_from(self.text(field)?).map_err(|_| damaged(field))
    }

    fn name_or_none<T: for<'a> TryFrom<&'a str, Error = Error>>(
        &self,
        field: &str,
    ) -> Result<Option<T>, Fault> {
        let text = self.text_or_none(field)?;
        text.map(|text| T::try_from(text).map_err(|_| damaged(field))).transpose()
    }

    fn part(&self, field: &str) -> Result<&RawDocument, Fault> {
        let value = self.value(field)?;
        value.and_then(RawBsonRef::as_document).ok_or_else(|| damaged(field))
    }

    fn list(&self, field: &str) -> Result<&RawArray, Fault> {
        let value = self.value(field)?;
        value.and_then(RawBsonRef::as_array).ok_or_else(|| damaged(field))
    }

    fn uuid(&self, field: &str) -> Result<uuid::Uuid, Fault> {
        let value = self.value(field)?.and_then(RawBsonRef::as_binary);
        let bytes = value.and_then(|binary| uuid::Uuid::from_slice(binary.bytes).ok());
        bytes.ok_or_else(|| damaged(field))
    }

    fn payload(&self, field: &str) -> Result<Payload, Fault> {
        // A payload may be null: only a missing one is damage.
        let value = self.get(field).map_err(|_| damaged(field))?;
        value.and_then(payload).ok_or_else(|| damaged(field))
    }
}

/// A UUID as it is stored.
pub(crate) fn uuid(uuid: uuid::Uuid) -> Uuid {
    Uuid::from_bytes(uuid.into_bytes())
}
