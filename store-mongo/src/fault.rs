//! What went wrong inside the store, and the one place where the driver's errors get their meaning: by error code, label
//! and kind of error, never by text. Nothing of a server's message is kept, as it may quote data.

use std::{error::Error as StdError, fmt};

use mongodb::error::{
    ErrorKind as DriverError, NO_WRITES_PERFORMED, TRANSIENT_TRANSACTION_ERROR,
    UNKNOWN_TRANSACTION_COMMIT_RESULT, WriteFailure,
};
use wow_store_api::{Error, ErrorKind, Outcome};

/// Whether doing it again may help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Again {
    /// It is an answer, or would fail the same way.
    No,
    /// It was not applied and may work now.
    Safe,
    /// Whether it was applied is unknown.
    Lost,
}

/// A failed step.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) error: Error,
    pub(crate) again: Again,
    /// What the server called it.
    code: Option<i32>,
    /// The same commit may be asked for once more, and nothing else (`UnknownTransactionCommitResult`).
    pub(crate) commit_again: bool,
}

pub(crate) const DUPLICATE_KEY: i32 = 11000;
const WRITE_CONFLICT: i32 = 112;
const LOCK_TIMEOUT: i32 = 24;
/// Not the primary, or recovering.
const NOT_PRIMARY: [i32; 4] = [10107, 13435, 13436, 10058];
/// A read preference that nobody meets; majority reads that are not ready yet.
const NO_SERVER: [i32; 2] = [133, 134];
const NAMESPACE_NOT_FOUND: i32 = 26;
const NAMESPACE_EXISTS: i32 = 48;
const UNAUTHORIZED: i32 = 13;

impl Fault {
    fn new(kind: ErrorKind, again: Again) -> Self {
        let error = match again {
            Again::No | Again::Safe => Error::not_applied(kind),
            Again::Lost => Error::unknown(kind),
        };
        Self { error, again, code: None, commit_again: false }
    }

    /// The server's verdict, by its code.
    pub(crate) fn of_code(code: i32) -> Self {
        let (kind, again) = meaning(code);
        let mut fault = Self::new(kind, again);
        fault.error = fault.error.with_source(Code(code));
        fault.code = Some(code);
        fault
    }

    /// It is written, and it is not known whether it will stay.
    pub(crate) fn unconfirmed(code: i32) -> Self {
        let mut fault = Self::of_code(code);
        if fault.again != Again::Lost {
            fault = Self::new(unavailable("a majority of the servers did not confirm a write"), Again::Lost);
            fault.code = Some(code);
        }
        fault
    }

    /// The error of a write outside a transaction. The driver does such a write a second time where the first had no
    /// answer, and tells only of the second: that a server refused that one says nothing about the first.
    pub(crate) fn of_write(error: mongodb::error::Error) -> Self {
        let nothing_written = error.contains_label(NO_WRITES_PERFORMED);
        let mut fault = Self::from(error);
        let refused = NOT_PRIMARY.into_iter().chain(NO_SERVER).any(|code| fault.is(code));
        if refused && !nothing_written {
            fault.again = Again::Lost;
            fault.error = fault.error.with_outcome(Outcome::Unknown);
        }
        fault
    }

    /// No answer in time.
    pub(crate) fn no_answer() -> Self {
        Self::new(ErrorKind::Timeout, Again::Lost)
    }

    pub(crate) fn closed() -> Self {
        Self::new(ErrorKind::Closed, Again::No)
    }

    pub(crate) fn misconfigured(reason: impl Into<String>) -> Self {
        Self::new(ErrorKind::Misconfigured { reason: reason.into() }, Again::No)
    }

    /// Somebody else changed what was looked at before it could be written.
    pub(crate) fn overtaken() -> Self {
        Self::new(unavailable("another writer was faster"), Again::Safe)
    }

    /// It failed inside a transaction that was not being committed, so nothing of it stays.
    pub(crate) fn before_commit(mut self) -> Self {
        if self.again == Again::Lost {
            self.again = Again::Safe;
            self.error = self.error.with_outcome(Outcome::NotApplied);
        }
        self
    }

    /// Another transaction has changed the same, or is about to.
    pub(crate) fn is_conflict(&self) -> bool {
        [WRITE_CONFLICT, LOCK_TIMEOUT].into_iter().any(|code| self.is(code))
    }

    /// It is the store's own answer, not a failure of the server.
    pub(crate) fn is_refusal(&self) -> bool {
        self.code.is_none() && self.again == Again::No
    }

    /// The server answered, and this is what it answered.
    pub(crate) fn is_of_server(&self) -> bool {
        self.code.is_some()
    }

    fn is(&self, code: i32) -> bool {
        self.code == Some(code)
    }

    /// A collection is not there.
    pub(crate) fn is_missing(&self) -> bool {
        self.is(NAMESPACE_NOT_FOUND)
    }

    /// A unique index refused it.
    pub(crate) fn is_duplicate(&self) -> bool {
        self.is(DUPLICATE_KEY)
    }

    /// Two nodes made the same collection at once: the other one's stands.
    pub(crate) fn is_made_already(&self) -> bool {
        self.is(NAMESPACE_EXISTS)
    }

    /// The user may not do that.
    pub(crate) fn is_forbidden(&self) -> bool {
        self.is(UNAUTHORIZED)
    }

    /// An index of that name or those fields is there, and is another one.
    pub(crate) fn is_other_index(&self) -> bool {
        [67, 68, 85, 86].into_iter().any(|code| self.is(code))
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self { error, again: Again::No, code: None, commit_again: false }
    }
}

fn unavailable(reason: &str) -> ErrorKind {
    ErrorKind::Unavailable { reason: reason.to_owned() }
}

fn misconfigured(reason: &str) -> ErrorKind {
    ErrorKind::Misconfigured { reason: reason.to_owned() }
}

impl From<mongodb::error::Error> for Fault {
    fn from(error: mongodb::error::Error) -> Self {
        let transient = error.contains_label(TRANSIENT_TRANSACTION_ERROR);
        let commit_again = error.contains_label(UNKNOWN_TRANSACTION_COMMIT_RESULT);
        let mut fault = classify(*error.kind);
        if transient && fault.again != Again::Safe {
            fault.again = Again::Safe;
            fault.error = fault.error.with_outcome(Outcome::NotApplied);
        }
        fault.commit_again = commit_again && !transient;
        fault
    }
}

fn classify(kind: DriverError) -> Fault {
    match kind {
        DriverError::Command(error) => Fault::of_code(error.code),
        DriverError::Write(WriteFailure::WriteError(error)) => Fault::of_code(error.code),
        DriverError::Write(WriteFailure::WriteConcernError(error)) => Fault::unconfirmed(error.code),
        DriverError::InsertMany(error) => match (error.write_errors, error.write_concern_error) {
            (Some(errors), _) if !errors.is_empty() => {
                Fault::of_code(errors.first().map_or(0, |error| error.code))
            }
            (_, Some(error)) => Fault::unconfirmed(error.code),
            _ => Fault::from(Error::internal("an insert failed without an error")),
        },
        DriverError::Io(error) => {
            let mut fault = Fault::new(unavailable("the connection broke"), Again::Lost);
            fault.error = fault.error.with_source(IoError(error.kind()));
            fault
        }
        DriverError::ConnectionPoolCleared { .. } => {
            Fault::new(unavailable("a server was lost"), Again::Safe)
        }
        DriverError::ServerSelection { .. } => Fault::new(
            unavailable("no server of the replica set can be reached that may answer"),
            Again::Safe,
        ),
        DriverError::DnsResolve { .. } => {
            Fault::new(unavailable("the servers' names cannot be resolved"), Again::Safe)
        }
        DriverError::InvalidResponse { .. } => {
            Fault::new(unavailable("the server's reply cannot be read"), Again::Lost)
        }
        DriverError::Authentication { .. } => {
            Fault::misconfigured("the server refused the user or the password")
        }
        DriverError::InvalidTlsConfig { .. } => Fault::misconfigured(
            "no encrypted connection can be made: check the address's tls options and the certificates",
        ),
        DriverError::InvalidArgument { .. } => {
            Fault::misconfigured("the options of the connection cannot be used: check the address")
        }
        DriverError::SessionsNotSupported | DriverError::IncompatibleServer { .. } => {
            Fault::misconfigured("the server is too old: use MongoDB 5.0 or later")
        }
        DriverError::Shutdown => Fault::closed(),
        DriverError::BsonDeserialization(_) | DriverError::Bson(_) => {
            Fault::from(Error::corrupt("a document", "its fields do not have the types that were written"))
        }
        _ => Fault::from(Error::internal("the driver refused a command")),
    }
}

/// What an error code means.
fn meaning(code: i32) -> (ErrorKind, Again) {
    match code {
        // A unique index stopped a race.
        DUPLICATE_KEY | 11001 => (unavailable("another writer was faster"), Again::Safe),
        // Write conflict, lock timeout, no such transaction, snapshot unavailable or too old, transaction too old or
        // being prepared.
        WRITE_CONFLICT | LOCK_TIMEOUT | 251 | 246 | 239 | 225 | 267 => {
            (unavailable("it collided with another transaction"), Again::Safe)
        }
        // The server's own time limits.
        50 | 262 => (ErrorKind::Timeout, Again::Lost),
        // Host unreachable or not found, network timeout, socket exception.
        6 | 7 | 89 | 9001 => (unavailable("the connection broke"), Again::Lost),
        // Shut down, stepped down, interrupted: perhaps after the write.
        91 | 189 | 11600 | 11601 | 11602 => {
            (unavailable("the server is going down or steps down"), Again::Lost)
        }
        // Refused at once.
        code if NOT_PRIMARY.contains(&code) => (unavailable("the server is not the primary"), Again::Safe),
        code if NO_SERVER.contains(&code) => (unavailable("no server can answer yet"), Again::Safe),
        // Write concern failed or cannot be satisfied.
        64 | 79 | 100 => (unavailable("a majority of the servers did not confirm a write"), Again::Lost),
        // A cursor that was lost or killed, a change stream's history that is over.
        43 | 237 | 280 | 286 => (unavailable("the server gave up a cursor"), Again::Safe),
        // The collection was dropped or rebuilt under the command; too many of something.
        175 | 202 | 290 => (unavailable("the server broke off a command"), Again::Safe),
        UNAUTHORIZED => (
            misconfigured(
                "the user lacks a privilege: grant it, or let an administrator create the collections",
            ),
            Again::No,
        ),
        11 | 18 | 8000 => (misconfigured("the server refused the user or the password"), Again::No),
        20 | 263 => {
            (misconfigured("the server has no transactions: it must be a member of a replica set"), Again::No)
        }
        NAMESPACE_NOT_FOUND => (
            ErrorKind::SchemaMismatch {
                problems: vec![
                    "a collection is missing: open the store with ddl = auto, or create it".to_owned(),
                ],
            },
            Again::No,
        ),
        67 | 68 | 85 | 86 => (
            ErrorKind::SchemaMismatch { problems: vec!["an index is there with other options".to_owned()] },
            Again::No,
        ),
        // Out of disk space.
        14031 | 39 => (ErrorKind::StorageFull, Again::No),
        _ => (
            ErrorKind::Internal { reason: format!("the server refused a command with code {code}") },
            Again::No,
        ),
    }
}

/// What is kept of a server's error.
#[derive(Debug)]
struct Code(i32);

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error code {}", self.0)
    }
}

impl StdError for Code {}

/// What is kept of a failure of the network.
#[derive(Debug)]
struct IoError(std::io::ErrorKind);

impl fmt::Display for IoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl StdError for IoError {}
