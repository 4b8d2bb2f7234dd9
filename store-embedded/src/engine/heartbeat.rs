//! The record that every batch carries: its number.

use crate::engine::error::Corruption;
use crate::engine::record::{Decoder, Encoder};

/// No other key of the state keyspace starts with this byte.
pub(crate) const KEY: &[u8] = b"\x00batch";
const FORMAT: u8 = 1;

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Heartbeat {
    /// Dense from 1: a batch that is missing between two others shows.
    pub(crate) batch: u64,
}

impl Heartbeat {
    pub(crate) fn encode(self) -> fjall::Slice {
        Encoder::new(FORMAT, 8).u64(self.batch).seal(KEY)
    }

    pub(crate) fn decode(value: &[u8]) -> Result<Self, Corruption> {
        let read = || {
            let (format, mut fields) = Decoder::open(KEY, value)?;
            if format != FORMAT {
                return Err(format!("unknown format {format}"));
            }
            let heartbeat = Self { batch: fields.u64()? };
            fields.end()?;
            Ok(heartbeat)
        };
        read().map_err(|reason| Corruption { place: "state, last batch".to_owned(), reason })
    }

    /// The batch number, if this is the item of a batch that holds it.
    pub(crate) fn number(key: &[u8], value: &[u8]) -> Option<u64> {
        if key == KEY { Self::decode(value).ok().map(|heartbeat| heartbeat.batch) } else { None }
    }
}
