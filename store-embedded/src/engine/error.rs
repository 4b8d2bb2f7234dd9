//! What can go wrong below the contract traits.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Why a store could not be opened.
#[derive(Debug)]
pub(crate) enum OpenError {
    /// Another process, or another handle of this one, holds the directory.
    Locked { directory: PathBuf, holder: String },
    /// Files are missing or damaged.
    Corrupt(Corruption),
    /// The path cannot be a store's.
    Unsuitable { reason: String },
    /// A structure was written by a newer version.
    Format { structure: String, found: u32, supported: u32 },
    /// The file system refused something.
    Io { what: &'static str, path: PathBuf, source: std::io::Error },
    /// The database refused something.
    Database { what: &'static str, directory: PathBuf, source: fjall::Error },
}

impl OpenError {
    pub(crate) fn io(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::Io { what, path, source }
    }

    /// The same of something that a store cannot be without: that it is missing is damage.
    pub(crate) fn io_or_missing(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| match source.kind() {
            std::io::ErrorKind::NotFound => Self::corrupt(path.display(), "it is missing"),
            _ => Self::Io { what, path, source },
        }
    }

    pub(crate) fn database(what: &'static str, directory: &Path) -> impl FnOnce(fjall::Error) -> Self {
        let directory = directory.to_path_buf();
        move |source| Self::Database { what, directory, source }
    }

    pub(crate) fn corrupt(place: impl fmt::Display, reason: impl Into<String>) -> Self {
        Self::Corrupt(Corruption { place: place.to_string(), reason: reason.into() })
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Locked { directory, holder } => {
                write!(f, "store directory {} is in use by {holder}", directory.display())
            }
            Self::Corrupt(corruption) => corruption.fmt(f),
            Self::Unsuitable { reason } => f.write_str(reason),
            Self::Format { structure, found, supported } => {
                write!(f, "{structure} has format {found}, supported is {supported}")
            }
            Self::Io { what, path, source } => write!(f, "cannot {what} {}: {source}", path.display()),
            Self::Database { what, directory, source } => {
                write!(f, "cannot {what} in {}: {source}", directory.display())
            }
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Locked { .. } | Self::Corrupt(_) | Self::Unsuitable { .. } | Self::Format { .. } => None,
            Self::Io { source, .. } => Some(source),
            Self::Database { source, .. } => Some(source),
        }
    }
}

/// Stored bytes that are not what was written: where and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Corruption {
    /// A file and offset, or a keyspace and key.
    pub(crate) place: String,
    pub(crate) reason: String,
}

impl fmt::Display for Corruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "corrupt store: {}: {}", self.place, self.reason)
    }
}

impl std::error::Error for Corruption {}

/// Why a read failed.
#[derive(Debug)]
pub(crate) enum ReadError {
    Corrupt(Corruption),
    Database { place: String, source: fjall::Error },
}

impl ReadError {
    /// Sorts a database error into damage and the rest, and says where it happened.
    pub(crate) fn at(space: &'static str, key: &[u8], source: fjall::Error) -> Self {
        let place = format!("{space} near key {}", Hex(key));
        let damage = match &source {
            fjall::Error::Storage(inner) => match inner {
                fjall::LsmError::ChecksumMismatch { .. }
                | fjall::LsmError::Decompress(_)
                | fjall::LsmError::InvalidTag(_)
                | fjall::LsmError::InvalidTrailer
                | fjall::LsmError::InvalidHeader(_)
                | fjall::LsmError::InvalidVersion(_)
                | fjall::LsmError::Unrecoverable
                | fjall::LsmError::Utf8(_) => Some(source.to_string()),
                // A table shorter than its index says.
                fjall::LsmError::Io(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => {
                    Some(e.to_string())
                }
                _ => None,
            },
            _ => None,
        };
        match damage {
            Some(reason) => Self::Corrupt(Corruption { place, reason }),
            None => Self::Database { place, source },
        }
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Corrupt(corruption) => corruption.fmt(f),
            Self::Database { place, source } => write!(f, "cannot read {place}: {source}"),
        }
    }
}

impl std::error::Error for ReadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Corrupt(corruption) => Some(corruption),
            Self::Database { source, .. } => Some(source),
        }
    }
}

impl From<Corruption> for ReadError {
    fn from(corruption: Corruption) -> Self {
        Self::Corrupt(corruption)
    }
}

/// Why an operation got no answer of its own.
#[derive(Debug, Clone)]
pub(crate) struct WriteError {
    pub(crate) kind: WriteErrorKind,
    /// Whether the operation's writes may be in the store. If not, they certainly are not.
    pub(crate) maybe_applied: bool,
    pub(crate) reason: Arc<str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteErrorKind {
    /// The store was closed.
    Closed,
    /// Writing or syncing this operation's batch failed; the store is poisoned from now on.
    CommitFailed,
    /// The same, as there is no room left.
    StorageFull,
    /// An earlier write failed: nothing is written until the store is opened again.
    Poisoned,
    /// The operation panicked; its writes were dropped.
    Panicked,
}

impl WriteError {
    pub(crate) fn not_applied(kind: WriteErrorKind, reason: &Arc<str>) -> Self {
        Self { kind, maybe_applied: false, reason: Arc::clone(reason) }
    }

    pub(crate) fn closed() -> Self {
        Self { kind: WriteErrorKind::Closed, maybe_applied: false, reason: Arc::from("the store is closed") }
    }
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            WriteErrorKind::Closed => f.write_str("the store is closed"),
            WriteErrorKind::CommitFailed | WriteErrorKind::StorageFull => {
                write!(f, "write to disk failed: {}", self.reason)
            }
            WriteErrorKind::Poisoned => {
                write!(f, "no writes until the store is opened again, an earlier one failed: {}", self.reason)
            }
            WriteErrorKind::Panicked => write!(f, "operation panicked: {}", self.reason),
        }
    }
}

impl std::error::Error for WriteError {}

/// Bytes as hexadecimal digits, text where it is printable.
pub(crate) struct Hex<'a>(pub(crate) &'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}
