//! What the engine says, in the words of the contract. The only place where its errors are judged.

use std::io;

use wow_store_api::{Error, ErrorKind, Outcome};

use crate::engine::error::{Corruption, OpenError, ReadError, WriteError, WriteErrorKind};

impl From<Corruption> for Error {
    fn from(corruption: Corruption) -> Self {
        Self::corrupt(corruption.place, corruption.reason)
    }
}

impl From<ReadError> for Error {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Corrupt(corruption) => corruption.into(),
            ReadError::Database { place, source } => {
                let reason = format!("cannot read {place}: {source}");
                Self::not_applied(ErrorKind::Unavailable { reason }).with_source(source)
            }
        }
    }
}

impl From<WriteError> for Error {
    fn from(error: WriteError) -> Self {
        let reason = error.reason.as_ref().to_owned();
        let kind = match error.kind {
            WriteErrorKind::Closed => ErrorKind::Closed,
            WriteErrorKind::StorageFull => ErrorKind::StorageFull,
            WriteErrorKind::CommitFailed | WriteErrorKind::Poisoned => ErrorKind::Poisoned { reason },
            WriteErrorKind::Panicked => ErrorKind::Internal { reason },
        };
        let outcome = if error.maybe_applied { Outcome::Unknown } else { Outcome::NotApplied };
        Self::not_applied(kind).with_outcome(outcome)
    }
}

impl From<OpenError> for Error {
    fn from(error: OpenError) -> Self {
        let kind = match &error {
            OpenError::Locked { directory, holder } => {
                ErrorKind::Locked { holder: format!("{holder}, directory {}", directory.display()) }
            }
            OpenError::Corrupt(corruption) => return corruption.clone().into(),
            OpenError::Unsuitable { reason } => ErrorKind::Misconfigured { reason: reason.clone() },
            OpenError::Format { structure, found, supported } => ErrorKind::FormatUnsupported {
                structure: structure.clone(),
                found: *found,
                supported: *supported,
            },
            OpenError::Io { source, .. } => of_io(source, error.to_string()),
            OpenError::Database {
                source: fjall::Error::Io(source) | fjall::Error::Storage(fjall::LsmError::Io(source)),
                ..
            } if !is_damage(source) => of_io(source, error.to_string()),
            OpenError::Database { directory, source, .. } => {
                let location = directory.display().to_string();
                ErrorKind::Corrupt { location, reason: source.to_string() }
            }
        };
        match error {
            OpenError::Io { source, .. } => Self::not_applied(kind).with_source(source),
            OpenError::Database { source, .. } => Self::not_applied(kind).with_source(source),
            _ => Self::not_applied(kind),
        }
    }
}

/// Whether an error on a file of the database means that the file is not what was written: the database only asks for
/// files that it has written.
fn is_damage(error: &io::Error) -> bool {
    use io::ErrorKind as Io;
    [Io::NotFound, Io::UnexpectedEof, Io::InvalidData, Io::InvalidInput].contains(&error.kind())
}

/// What keeps a directory from being opened.
fn of_io(error: &io::Error, reason: String) -> ErrorKind {
    use io::ErrorKind as Io;
    // Any other kind may pass.
    let is_permanent = [
        Io::NotFound,
        Io::PermissionDenied,
        Io::NotADirectory,
        Io::IsADirectory,
        Io::ReadOnlyFilesystem,
        Io::InvalidInput,
        Io::InvalidFilename,
    ];
    let is_full = [Io::StorageFull, Io::QuotaExceeded, Io::FileTooLarge];
    if is_permanent.contains(&error.kind()) {
        ErrorKind::Misconfigured { reason }
    } else if is_full.contains(&error.kind()) {
        ErrorKind::StorageFull
    } else {
        ErrorKind::Unavailable { reason }
    }
}
