//! Values on the wire: instants, counters and cells.

use sqlx::{
    Decode, Encode, Postgres, Row as _, Type,
    encode::IsNull,
    error::BoxDynError,
    postgres::{PgArgumentBuffer, PgRow, PgTypeInfo, PgValueRef, types::Oid},
};
use wow_store_api::{Error, Payload, Timestamp};

use crate::fault::Fault;

/// Milliseconds from the Unix epoch to 2000-01-01, from which PostgreSQL counts.
const EPOCH_2000_MILLIS: i64 = 946_684_800_000;

/// `timestamp with time zone`, which is in microseconds on the wire.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Instant(pub(crate) Timestamp);

impl Type<Postgres> for Instant {
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_oid(Oid(1184))
    }
}

impl Encode<'_, Postgres> for Instant {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        let micros = self.0.as_millis().saturating_sub(EPOCH_2000_MILLIS).saturating_mul(1_000);
        Encode::<Postgres>::encode(micros, buffer)
    }
}

impl Decode<'_, Postgres> for Instant {
    fn decode(value: PgValueRef<'_>) -> Result<Self, BoxDynError> {
        let bytes: [u8; 8] = value.as_bytes()?.try_into()?;
        let millis = i64::from_be_bytes(bytes).div_euclid(1_000).saturating_add(EPOCH_2000_MILLIS);
        Ok(Self(Timestamp::from_millis(millis)?))
    }
}

/// A counter of the contract as PostgreSQL keeps it. What is beyond the last value was refused before.
pub(crate) fn bigint(counter: u64) -> i64 {
    i64::try_from(counter).unwrap_or(i64::MAX)
}

/// A number of 32 bits as PostgreSQL keeps it.
pub(crate) fn integer(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

fn damaged(column: usize) -> Fault {
    Fault::from(Error::corrupt(
        format!("column {column} of a row"),
        "it holds a value that was never written",
    ))
}

/// Typed access to the cells of a row, by index.
pub(crate) trait Cells {
    fn cell<'r, T: Decode<'r, Postgres> + Type<Postgres>>(&'r self, column: usize) -> Result<T, Fault>;

    fn counter(&self, column: usize) -> Result<u64, Fault>;

    fn counter_or_none(&self, column: usize) -> Result<Option<u64>, Fault>;

    fn number(&self, column: usize) -> Result<u32, Fault>;

    fn instant(&self, column: usize) -> Result<Timestamp, Fault>;

    fn instant_or_none(&self, column: usize) -> Result<Option<Timestamp>, Fault>;

    /// A name or id that was checked when it was written.
    fn name<T: for<'a> TryFrom<&'a str, Error = Error>>(&self, column: usize) -> Result<T, Fault>;

    /// The same where there may be none.
    fn name_or_none<T: for<'a> TryFrom<&'a str, Error = Error>>(
        &self,
        column: usize,
    ) -> Result<Option<T>, Fault>;

    /// A document that was selected as text.
    fn payload(&self, column: usize) -> Result<Payload, Fault>;
}

impl Cells for PgRow {
    fn cell<'r, T: Decode<'r, Postgres> + Type<Postgres>>(&'r self, column: usize) -> Result<T, Fault> {
        Ok(self.try_get(column)?)
    }

    fn counter(&self, column: usize) -> Result<u64, Fault> {
        u64::try_from(self.cell::<i64>(column)?).map_err(|_| damaged(column))
    }

    fn counter_or_none(&self, column: usize) -> Result<Option<u64>, Fault> {
        let cell = self.cell::<Option<i64>>(column)?;
        cell.map(|counter| u64::try_from(counter).map_err(|_| damaged(column))).transpose()
    }

    fn number(&self, column: usize) -> Result<u32, Fault> {
        u32::try_from(self.cell::<i32>(column)?).map_err(|_| damaged(column))
    }

    fn instant(&self, column: usize) -> Result<Timestamp, Fault> {
        Ok(self.cell::<Instant>(column)?.0)
    }

    fn instant_or_none(&self, column: usize) -> Result<Option<Timestamp>, Fault> {
        Ok(self.cell::<Option<Instant>>(column)?.map(|instant| instant.0))
    }

    fn name<T: for<'a> TryFrom<&'a str, Error = Error>>(&self, column: usize) -> Result<T, Fault> {
        T::try_from(self.cell::<&str>(column)?).map_err(|_| damaged(column))
    }

    fn name_or_none<T: for<'a> TryFrom<&'a str, Error = Error>>(
        &self,
        column: usize,
    ) -> Result<Option<T>, Fault> {
        let cell = self.cell::<Option<&str>>(column)?;
        cell.map(|text| T::try_from(text).map_err(|_| damaged(column))).transpose()
    }

    fn payload(&self, column: usize) -> Result<Payload, Fault> {
        let text = self.cell::<&str>(column)?;
        crate::jsonb::payload(text).ok_or_else(|| damaged(column))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_epoch_of_the_wire_is_the_turn_of_the_millennium() {
        let epoch: Timestamp = "2000-01-01T00:00:00Z".parse().unwrap();
        assert_eq!(epoch.as_millis(), EPOCH_2000_MILLIS);
    }
}
