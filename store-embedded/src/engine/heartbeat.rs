//! What every batch carries: its number, and to which keyspaces it and those before it have written.
//!
//! fjall removes a journal once all that is in it has gone to tables. Whether one that is not there was removed by it,
//! or is missing, shows here: each keyspace holds the number of the last batch that has written to it, and the batch
//! that comes first in the journals says which number that must be in the tables of each (`inspect.rs`).

use crate::engine::error::Corruption;
use crate::engine::record::{Decoder, Encoder};
use crate::engine::space::{PerSpace, Space};

/// Where it stands in each keyspace; no other key starts with this byte. It is written over and never removed, so
/// merging tables does not lose it.
pub(crate) const KEY: &[u8] = b"\x00batch";
const FORMAT: u8 = 1;
const BYTES: usize = 8 * (1 + Space::ALL.len()) + 1;

/// What a batch writes to the state keyspace, as every one does.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Heartbeat {
    /// Dense from 1: a batch that is missing between two others shows.
    pub(crate) batch: u64,
    /// The last batch before this one that has written to a keyspace; 0 if none has.
    pub(crate) before: PerSpace<u64>,
    /// Whether this one does.
    pub(crate) writes: PerSpace<bool>,
}

impl Heartbeat {
    /// That of the next batch, which writes to these keyspaces and to that of the state.
    pub(crate) fn next(&self, mut writes: PerSpace<bool>) -> Self {
        *writes.get_mut(Space::State) = true;
        Self { batch: self.batch.saturating_add(1), before: self.last(), writes }
    }

    /// The last batch that has written to a keyspace, up to this one.
    pub(crate) fn last(&self) -> PerSpace<u64> {
        let mut last = self.before;
        for space in Space::ALL {
            if *self.writes.get(space) {
                *last.get_mut(space) = self.batch;
            }
        }
        last
    }

    pub(crate) fn encode(&self) -> fjall::Slice {
        let mut encoder = Encoder::new(FORMAT, BYTES);
        encoder.u64(self.batch);
        for space in Space::ALL {
            encoder.u64(*self.before.get(space));
            encoder.u8(u8::from(*self.writes.get(space)));
        }
        encoder.seal(KEY)
    }

    pub(crate) fn decode(value: &[u8]) -> Result<Self, Corruption> {
        let read = || {
            let mut fields = open(value)?;
            let mut heartbeat = Self { batch: fields.u64()?, ..Self::default() };
            for space in Space::ALL {
                *heartbeat.before.get_mut(space) = fields.u64()?;
                *heartbeat.writes.get_mut(space) = fields.u8()? != 0;
            }
            fields.end()?;
            Ok(heartbeat)
        };
        read().map_err(|reason| damage(Space::State, reason))
    }

    /// What it writes to each of the other keyspaces that it writes to: its number.
    pub(crate) fn encode_number(&self) -> fjall::Slice {
        Encoder::new(FORMAT, 8).u64(self.batch).seal(KEY)
    }

    pub(crate) fn decode_number(space: Space, value: &[u8]) -> Result<u64, Corruption> {
        let read = || {
            let mut fields = open(value)?;
            let batch = fields.u64()?;
            fields.end()?;
            Ok(batch)
        };
        read().map_err(|reason| damage(space, reason))
    }

    /// That of a batch, if this is the item of it that holds it.
    pub(crate) fn of(key: &[u8], value: &[u8]) -> Option<Self> {
        if key == KEY { Self::decode(value).ok() } else { None }
    }
}

fn open(value: &[u8]) -> Result<Decoder<'_>, String> {
    match Decoder::open(KEY, value)? {
        (FORMAT, fields) => Ok(fields),
        (format, _) => Err(format!("unknown format {format}")),
    }
}

fn damage(space: Space, reason: String) -> Corruption {
    Corruption { place: format!("{}, last batch", space.name()), reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_before_is_handed_on() {
        let mut writes = PerSpace::default();
        *writes.get_mut(Space::Log) = true;
        let first = Heartbeat::default().next(writes);
        let second = first.next(PerSpace::default());
        assert_eq!(Heartbeat::decode(&second.encode()), Ok(second));
        assert_eq!((second.batch, *second.before.get(Space::Log)), (2, 1));
        assert_eq!((*second.last().get(Space::Log), *second.last().get(Space::State)), (1, 2));
        assert_eq!(*second.last().get(Space::Record), 0);
        assert_eq!(Heartbeat::decode_number(Space::Log, &second.encode_number()), Ok(2));
        assert_eq!(Heartbeat::of(KEY, &second.encode_number()), None, "the number alone is none");
    }
}
