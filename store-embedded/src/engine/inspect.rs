//! What is looked at before the database is opened, so that what it cannot see, or would make worse, is refused with
//! nothing changed: opening it moves journals into tables and removes them.

use std::path::Path;

use crate::engine::error::OpenError;
use crate::engine::heartbeat::Heartbeat;
use crate::engine::space::Space;
use crate::engine::tables::{self, Tables};
use crate::engine::{DATABASE_FORMAT, directory, journal, manifest};

/// A database that is whole.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Inspected {
    /// The last batch that it has.
    pub(crate) last: Heartbeat,
    /// Bytes of an unacknowledged write that were cut off.
    pub(crate) torn_bytes: u64,
}

/// Looks at everything that the database would believe. Changes nothing of it, but for a torn end that it cuts off when
/// all the rest is well.
pub(crate) fn inspect(database: &Path, acknowledged: u64) -> Result<Inspected, OpenError> {
    if !database.is_dir() {
        return Err(OpenError::corrupt(database.display(), "the directory is missing"));
    }
    check_version(database)?;
    manifest::check(database)?;
    let journals = journal::check(database, acknowledged)?;
    let tables = tables::read(database)?;
    let in_tables = tables.last.unwrap_or_default();
    // All that came before has left the journals.
    let before = journals.first.map_or_else(|| in_tables.last(), |first| first.before);
    for space in Space::ALL {
        let (expected, found) = (*before.get(space), *tables.batches.get(space));
        if found < expected {
            let reason = format!(
                "what batch {expected} wrote to {} is neither in a table nor in a journal: one before this journal, or a \
                 table, is missing",
                space.name(),
            );
            return Err(OpenError::corrupt(journals.first_file.display(), reason));
        }
    }
    let last = journals.last.unwrap_or(in_tables);
    check_end(database, last, &tables, acknowledged)?;
    Ok(Inspected { last, torn_bytes: journals.cut()? })
}

/// Whether nothing is missing at the end.
fn check_end(database: &Path, last: Heartbeat, tables: &Tables, acknowledged: u64) -> Result<(), OpenError> {
    let last = last.batch;
    if last < acknowledged {
        let reason = format!("batch {acknowledged} was acknowledged, the last one that is there is {last}");
        return Err(OpenError::corrupt(database.display(), reason));
    }
    match Space::ALL.iter().map(|space| *tables.batches.get(*space)).max() {
        Some(ahead) if last < ahead => {
            let reason = format!("the tables have batch {ahead}, the last one in the journal is {last}");
            Err(OpenError::corrupt(database.display(), reason))
        }
        _ => Ok(()),
    }
}

/// Whether the database is of the version that is read here: without the marker fjall would make a new one.
fn check_version(database: &Path) -> Result<(), OpenError> {
    let marker = database.join(directory::VERSION);
    let bytes = std::fs::read(&marker).map_err(OpenError::io_or_missing("read", &marker))?;
    match bytes.as_slice() {
        [b'F', b'J', b'L', found] if u32::from(*found) == DATABASE_FORMAT => Ok(()),
        [b'F', b'J', b'L', found] => Err(OpenError::Format {
            structure: "database".to_owned(),
            found: u32::from(*found),
            supported: DATABASE_FORMAT,
        }),
        _ => Err(OpenError::corrupt(marker.display(), "not the marker of a database")),
    }
}
