//! What went wrong inside the store, and the one place where the driver's errors get their meaning: by SQLSTATE and by
//! the kind of error, never by text. Nothing of a server's message is kept, as it may quote data.

use std::{error::Error as StdError, fmt, io::ErrorKind as IoKind};

use wow_store_api::{Error, ErrorKind, Outcome};

/// Whether doing it again may help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Again {
    /// It is an answer, or would fail the same way.
    No,
    /// It was not applied and may work now.
    Safe,
    /// The connection broke, so whether it was applied is unknown.
    Lost,
}

/// A failed step.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) error: Error,
    pub(crate) again: Again,
    /// What the server called it.
    pub(crate) state: Option<State>,
}

/// A server's verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) code: String,
    pub(crate) constraint: Option<String>,
}

impl Fault {
    fn new(kind: ErrorKind, again: Again) -> Self {
        let error = match again {
            Again::No | Again::Safe => Error::not_applied(kind),
            Again::Lost => Error::unknown(kind),
        };
        Self { error, again, state: None }
    }

    /// No answer in time.
    pub(crate) fn no_answer() -> Self {
        Self::new(ErrorKind::Timeout, Again::Lost)
    }

    /// The time was over before anything was sent.
    pub(crate) fn too_late() -> Self {
        Self::new(ErrorKind::Timeout, Again::Safe)
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

    /// It failed while a connection was being made, so nothing was done on it.
    pub(crate) fn connecting(error: sqlx::Error) -> Self {
        match &error {
            // What the network carried is not what was expected: the handshake of an encrypted connection failed.
            sqlx::Error::Io(cause) if cause.kind() == IoKind::InvalidData => no_encryption(),
            sqlx::Error::Io(cause) => {
                let reason = match cause.kind() {
                    // Also the file of a socket that is not there.
                    IoKind::ConnectionRefused | IoKind::NotFound => {
                        "nothing listens there: start the server, or correct host and port"
                    }
                    IoKind::ConnectionReset | IoKind::ConnectionAborted | IoKind::UnexpectedEof => {
                        "the server ended the connection before it was made"
                    }
                    _ => "the host was not found or cannot be reached: check its name and the network",
                };
                let fault = Self::new(unavailable(reason), Again::Safe);
                Self { error: fault.error.with_source(IoError(cause.kind())), ..fault }
            }
            _ => Self::from(error).before_commit(),
        }
    }

    /// It failed inside a transaction that was not being committed, so nothing of it stays.
    pub(crate) fn before_commit(mut self) -> Self {
        if self.again == Again::Lost {
            self.again = Again::Safe;
            self.error = self.error.with_outcome(Outcome::NotApplied);
        }
        self
    }

    fn is(&self, code: &str) -> bool {
        self.state.as_ref().is_some_and(|state| state.code == code)
    }

    /// A table, schema or function is not there.
    pub(crate) fn is_missing(&self) -> bool {
        ["42P01", "3F000", "42883"].into_iter().any(|code| self.is(code))
    }

    /// A number left the range of its column.
    pub(crate) fn is_out_of_range(&self) -> bool {
        self.is("22003")
    }

    /// Two sessions made the same thing at once: the other one's stands.
    pub(crate) fn is_made_already(&self) -> bool {
        // Duplicate schema, table, object and function; a unique violation in the catalogues; a tuple of the
        // catalogues that another session updated.
        ["42P06", "42P07", "42710", "42723", "23505", "XX000"].into_iter().any(|code| self.is(code))
    }

    /// The connection is of no use any more.
    pub(crate) fn breaks_connection(&self) -> bool {
        self.again == Again::Lost
            || ["25006", "26000", "42P05", "0A000", "25P02", "57P03", "53300"]
                .into_iter()
                .any(|code| self.is(code))
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self { error, again: Again::No, state: None }
    }
}

fn unavailable(reason: &str) -> ErrorKind {
    ErrorKind::Unavailable { reason: reason.to_owned() }
}

fn no_encryption() -> Fault {
    Fault::misconfigured("no encrypted connection could be made: check sslmode and the certificates")
}

impl From<sqlx::Error> for Fault {
    fn from(error: sqlx::Error) -> Self {
        match error {
            sqlx::Error::Database(error) => {
                let code = error.code().unwrap_or_default().into_owned();
                let state = State { code, constraint: error.constraint().map(str::to_owned) };
                let (kind, again) = meaning(&state);
                let mut fault = Self::new(kind, again);
                fault.error = fault.error.with_source(ServerError(state.clone()));
                fault.state = Some(state);
                fault
            }
            sqlx::Error::Io(error) => {
                let mut fault = Self::new(unavailable("the connection broke"), Again::Lost);
                fault.error = fault.error.with_source(IoError(error.kind()));
                fault
            }
            sqlx::Error::Tls(_) => no_encryption(),
            sqlx::Error::Protocol(_) | sqlx::Error::WorkerCrashed => {
                Self::new(unavailable("the connection broke off in the middle of an answer"), Again::Lost)
            }
            sqlx::Error::PoolTimedOut => Self::too_late(),
            sqlx::Error::PoolClosed => Self::closed(),
            sqlx::Error::ColumnDecode { index, .. } => Self::from(Error::corrupt(
                format!("column {index} of a row"),
                "its value does not have the type that was written",
            )),
            sqlx::Error::Configuration(_) | sqlx::Error::InvalidArgument(_) => {
                Self::misconfigured("the options of the connection cannot be used: check the address")
            }
            // Rows, columns and types that the statements here always have.
            _ => Self::from(Error::internal("the driver refused a statement")),
        }
    }
}

/// What an SQLSTATE means.
fn meaning(state: &State) -> (ErrorKind, Again) {
    let code = state.code.as_str();
    match code {
        // A unique index of the log or of a record stopped a race that the locks cannot.
        "23505" => (unavailable("another writer was faster"), Again::Safe),
        // Serialization failure, deadlock, lock not available.
        "40001" | "40P01" => (unavailable("it collided with another transaction"), Again::Safe),
        "55P03" => (ErrorKind::Timeout, Again::Safe),
        // Cancelled, by statement_timeout or by an operator.
        "57014" => (ErrorKind::Timeout, Again::Safe),
        // Shut down by an operator or after a crash; the reply of a commit may have been lost.
        "57P01" | "57P02" | "57P05" | "25P03" => {
            (unavailable("the server ended the connection"), Again::Lost)
        }
        "57P03" => (unavailable("the server is starting up or shutting down"), Again::Safe),
        "57P04" | "3D000" => (misconfigured("the database does not exist: create it"), Again::No),
        "53300" => (unavailable("the server has too many connections"), Again::Safe),
        "53200" => (unavailable("the server is out of memory"), Again::Safe),
        "53100" => (ErrorKind::StorageFull, Again::No),
        "25006" => (unavailable("the server only takes reads: it is a replica"), Again::Safe),
        // A pooler gave us somebody else's session, or a table changed under a prepared statement.
        "26000" | "42P05" | "0A000" => (unavailable("the session lost its prepared statements"), Again::Safe),
        "42501" => (
            misconfigured(
                "the role lacks a privilege: grant it, or let the schema's owner create the tables",
            ),
            Again::No,
        ),
        "42P01" | "3F000" | "42883" | "42703" => (
            ErrorKind::SchemaMismatch {
                problems: vec![
                    "a schema, table, column or function is missing: open the store with \
                                ddl = auto, or create it"
                        .to_owned(),
                ],
            },
            Again::No,
        ),
        "22003" => (ErrorKind::Exhausted { what: "counters" }, Again::No),
        "P0002" => (
            ErrorKind::Corrupt {
                location: "the counters of a context".to_owned(),
                reason: "the counter of a partition is missing".to_owned(),
            },
            Again::No,
        ),
        "XX001" | "XX002" => (
            ErrorKind::Corrupt {
                location: "the database".to_owned(),
                reason: "the server found damaged data".to_owned(),
            },
            Again::No,
        ),
        _ => match code.get(..2) {
            // Connection exceptions.
            Some("08") => (unavailable("the connection broke"), Again::Lost),
            Some("28") => (misconfigured("the server refused the user or the password"), Again::No),
            Some("53") => (unavailable("the server lacks a resource"), Again::Safe),
            Some("58") => (unavailable("the server had a system error"), Again::Safe),
            Some("57") => (unavailable("an operator intervened"), Again::Lost),
            _ => (
                ErrorKind::Internal {
                    reason: format!("the server refused a statement with SQLSTATE {code}"),
                },
                Again::No,
            ),
        },
    }
}

fn misconfigured(reason: &str) -> ErrorKind {
    ErrorKind::Misconfigured { reason: reason.to_owned() }
}

/// What is kept of a server's error.
#[derive(Debug)]
struct ServerError(State);

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SQLSTATE {}", self.0.code)?;
        match &self.0.constraint {
            Some(constraint) => write!(f, " on {constraint}"),
            None => Ok(()),
        }
    }
}

impl StdError for ServerError {}

/// What is kept of a failure of the network.
#[derive(Debug)]
struct IoError(std::io::ErrorKind);

impl fmt::Display for IoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl StdError for IoError {}
