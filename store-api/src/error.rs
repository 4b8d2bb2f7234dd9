//! The one error type.
//!
//! Every error answers four questions: **what** happened ([`Error::kind`]), **did it apply**
//! ([`Error::outcome`], L6), **may it work later** ([`Error::is_transient`]) and **where** (operation, store,
//! context). Its text says what to do; it never holds a payload or a credential (N3).

use std::{error::Error as StdError, fmt, sync::Arc};

use crate::{
    commit::ExpectedVersion,
    log::{Epoch, Version},
    name::{AggregateId, OwnerId, ReservationKey, ReservationScope, SubscriptionName, TimerId},
    partition::PartitionId,
    payload::{Reason, Unrepresentable},
};

/// The result of every operation of a store.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Whether an operation that returned an error changed the store (L6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Nothing was changed, now or later.
    NotApplied,
    /// It may have been applied. Ask again under the same command id, or read what is there.
    Unknown,
}

/// What happened.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A name or id breaks its rule ([`crate::name`]).
    InvalidName {
        /// Which name, e.g. `context name`.
        what: &'static str,
        /// The value (shortened) and the rule.
        reason: String,
    },
    /// A request that no store can carry out, e.g. a commit without events.
    InvalidInput {
        /// What is wrong with it and what to do.
        reason: String,
    },
    /// A payload outside the portable profile ([`crate::payload`]).
    Unrepresentable {
        /// Which payload, e.g. `event 0 (OrderPlaced)`.
        what: String,
        /// RFC 6901 pointer to the value that cannot be kept; empty for the whole document.
        pointer: String,
        /// Why.
        reason: Reason,
    },
    /// More bytes than a store takes in one piece.
    TooLarge {
        /// What is too large, e.g. `commit`.
        what: &'static str,
        /// Its encoded size in bytes.
        size: usize,
        /// The largest allowed size in bytes (inclusive).
        limit: usize,
    },
    /// The aggregate is not at the version that the append expected (L2).
    VersionConflict {
        /// The aggregate.
        aggregate_id: AggregateId,
        /// What the append expected.
        expected: ExpectedVersion,
        /// The version it has; 0 if it has no commit.
        actual: Version,
    },
    /// The writer's lease was taken over: its epoch is lower than the highest known one (L7, C2).
    Fenced {
        /// The group of the lease.
        group: SubscriptionName,
        /// The partition of the lease.
        partition: PartitionId,
        /// The epoch that was offered.
        epoch: Epoch,
        /// The highest epoch known.
        current: Epoch,
    },
    /// A reservation that rides in an append is held by another owner (R1, R5).
    ReservationTaken {
        /// The scope.
        scope: ReservationScope,
        /// The key.
        key: ReservationKey,
        /// Who holds it.
        owner: OwnerId,
    },
    /// A reservation that rides in an append is to be confirmed, released or swapped, but its owner does not hold
    /// it: it expired or was released (R3, R5).
    ReservationNotHeld {
        /// The scope.
        scope: ReservationScope,
        /// The key.
        key: ReservationKey,
    },
    /// A timer that rides in an append is already scheduled, and was not asked to be replaced (M2, R5).
    TimerExists {
        /// The timer.
        id: TimerId,
    },
    /// A counter has reached its last value (`i64::MAX`).
    Exhausted {
        /// Which counter.
        what: &'static str,
    },
    /// What is stored is damaged. Nothing of it is served.
    Corrupt {
        /// Where: file, collection or table, and key.
        location: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A write to disk failed earlier, so what is on disk is uncertain: no more writes until the store is reopened.
    Poisoned {
        /// The failure that poisoned it.
        reason: String,
    },
    /// Another process has the store open.
    Locked {
        /// Who holds it, as far as known.
        holder: String,
    },
    /// The store cannot be opened as it is configured.
    Misconfigured {
        /// What is wrong and what to do.
        reason: String,
    },
    /// A stored structure has a format that this version does not read (D3).
    FormatUnsupported {
        /// The structure.
        structure: String,
        /// The format version found.
        found: u32,
        /// The newest one supported.
        supported: u32,
    },
    /// Collections, tables, columns or indexes are missing or differ (D1).
    SchemaMismatch {
        /// One line for each.
        problems: Vec<String>,
    },
    /// The disk or the quota is full. A store in a directory takes writes again after it is closed and reopened.
    StorageFull,
    /// The store cannot be reached, or is not able to serve now.
    Unavailable {
        /// What was seen.
        reason: String,
    },
    /// The deadline passed.
    Timeout,
    /// The store was closed.
    Closed,
    /// A broken internal invariant: please report it.
    Internal {
        /// Which.
        reason: String,
    },
}

impl ErrorKind {
    fn is_transient(&self) -> bool {
        match self {
            Self::StorageFull | Self::Unavailable { .. } | Self::Timeout | Self::Locked { .. } => true,
            Self::InvalidName { .. }
            | Self::InvalidInput { .. }
            | Self::Unrepresentable { .. }
            | Self::TooLarge { .. }
            | Self::VersionConflict { .. }
            | Self::Fenced { .. }
            | Self::ReservationTaken { .. }
            | Self::ReservationNotHeld { .. }
            | Self::TimerExists { .. }
            | Self::Exhausted { .. }
            | Self::Corrupt { .. }
            | Self::Poisoned { .. }
            | Self::Misconfigured { .. }
            | Self::FormatUnsupported { .. }
            | Self::SchemaMismatch { .. }
            | Self::Closed
            | Self::Internal { .. } => false,
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidName { what, reason } => write!(f, "invalid {what}: {reason}"),
            Self::InvalidInput { reason } => write!(f, "invalid request: {reason}"),
            Self::Unrepresentable { what, pointer, reason } => {
                write!(f, "{what} cannot be stored: at {pointer:?}: {reason}")
            }
            Self::TooLarge { what, size, limit } => {
                write!(f, "{what} has {size} bytes when encoded, at most {limit} are allowed: split it")
            }
            Self::VersionConflict { aggregate_id, expected, actual } => {
                write!(
                    f,
                    "{aggregate_id} is at version {actual}, expected {expected}: load it again and decide anew"
                )
            }
            Self::Fenced { group, partition, epoch, current } => write!(
                f,
                "the lease of {group} on {partition} with epoch {epoch} was overtaken by epoch {current}: stop \
                 working on this partition"
            ),
            Self::ReservationTaken { scope, key, owner } => {
                write!(f, "{key:?} in {scope:?} is held by {owner:?}")
            }
            Self::ReservationNotHeld { scope, key } => {
                write!(
                    f,
                    "{key:?} in {scope:?} is not held by this owner (any more): it expired or was released"
                )
            }
            Self::TimerExists { id } => {
                write!(f, "timer {id:?} is already scheduled: replace or cancel it")
            }
            Self::Exhausted { what } => write!(f, "the {what} has reached its last value"),
            Self::Corrupt { location, reason } => {
                write!(f, "stored data is damaged at {location}: {reason}: restore it from a backup")
            }
            Self::Poisoned { reason } => {
                write!(f, "the store takes no more writes since one failed ({reason}): close and reopen it")
            }
            Self::Locked { holder } => {
                write!(f, "the store is open elsewhere ({holder}): close it there first")
            }
            Self::Misconfigured { reason } => f.write_str(reason),
            Self::FormatUnsupported { structure, found, supported } => write!(
                f,
                "{structure} has format {found}, this version reads up to {supported}: use a newer version"
            ),
            Self::SchemaMismatch { problems } => {
                write!(f, "the schema does not match: {}", problems.join("; "))
            }
            Self::StorageFull => f.write_str(
                "the storage is full: make room, reopen the store if it is in a directory, and try again",
            ),
            Self::Unavailable { reason } => write!(f, "the store is not available: {reason}"),
            Self::Timeout => f.write_str("the deadline passed"),
            Self::Closed => f.write_str("the store was closed"),
            Self::Internal { reason } => write!(f, "internal error: {reason}: please report it"),
        }
    }
}

/// What went wrong, whether it applied, and where.
///
/// ```
/// use wow_store_api::{AggregateId, ErrorKind, Outcome};
///
/// let error = AggregateId::new("shop", "order", "").unwrap_err();
/// assert!(matches!(error.kind(), ErrorKind::InvalidName { .. }));
/// assert_eq!(error.outcome(), Outcome::NotApplied);
/// assert!(!error.is_transient());
/// ```
#[derive(Clone)]
pub struct Error(Box<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    outcome: Outcome,
    operation: Option<&'static str>,
    store: Option<Arc<str>>,
    context: Option<String>,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

impl Error {
    fn new(kind: ErrorKind, outcome: Outcome) -> Self {
        Self(Box::new(Inner { kind, outcome, operation: None, store: None, context: None, source: None }))
    }

    /// An error of an operation that changed nothing.
    #[must_use]
    pub fn not_applied(kind: ErrorKind) -> Self {
        Self::new(kind, Outcome::NotApplied)
    }

    /// An error of an operation that may have been applied.
    #[must_use]
    pub fn unknown(kind: ErrorKind) -> Self {
        Self::new(kind, Outcome::Unknown)
    }

    /// Shorthand for [`ErrorKind::InvalidInput`].
    #[must_use]
    pub fn invalid_input(reason: impl Into<String>) -> Self {
        Self::not_applied(ErrorKind::InvalidInput { reason: reason.into() })
    }

    /// Shorthand for [`ErrorKind::Corrupt`].
    #[must_use]
    pub fn corrupt(location: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::not_applied(ErrorKind::Corrupt { location: location.into(), reason: reason.into() })
    }

    /// A payload was refused: [`ErrorKind::Unrepresentable`], or [`ErrorKind::TooLarge`]. `what` says which payload.
    #[must_use]
    pub fn unrepresentable(what: impl Into<String>, refusal: Unrepresentable) -> Self {
        if let Reason::TooLarge { size, limit } = *refusal.reason() {
            let kind = ErrorKind::TooLarge { what: "payload", size, limit };
            return Self::not_applied(kind).with_context(what.into());
        }
        Self::not_applied(ErrorKind::Unrepresentable {
            what: what.into(),
            pointer: refusal.pointer().to_owned(),
            reason: refusal.reason().clone(),
        })
    }

    /// Shorthand for [`ErrorKind::Internal`].
    #[must_use]
    pub fn internal(reason: impl Into<String>) -> Self {
        Self::not_applied(ErrorKind::Internal { reason: reason.into() })
    }

    /// Names the operation that failed, unless an inner layer already did.
    #[must_use]
    pub fn with_operation(mut self, operation: &'static str) -> Self {
        self.0.operation.get_or_insert(operation);
        self
    }

    /// Names the store that failed, unless an inner layer already did.
    #[must_use]
    pub fn with_store(mut self, store: &Arc<str>) -> Self {
        self.0.store.get_or_insert_with(|| Arc::clone(store));
        self
    }

    /// Says what the operation was working on (no payloads, no credentials), unless an inner layer already did.
    #[must_use]
    pub fn with_context(mut self, context: impl fmt::Display) -> Self {
        self.0.context.get_or_insert_with(|| context.to_string());
        self
    }

    /// Keeps the error that caused this one. Its text must not hold a credential.
    #[must_use]
    pub fn with_source(mut self, source: impl StdError + Send + Sync + 'static) -> Self {
        self.0.source.get_or_insert_with(|| Arc::new(source));
        self
    }

    /// The same error with another outcome, for layers that know better than the one below.
    #[must_use]
    pub fn with_outcome(mut self, outcome: Outcome) -> Self {
        self.0.outcome = outcome;
        self
    }

    /// What happened.
    #[must_use]
    pub fn kind(&self) -> &ErrorKind {
        &self.0.kind
    }

    /// Whether it changed the store.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        self.0.outcome
    }

    /// Whether the same request may succeed later without any change by the caller.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        self.0.kind.is_transient()
    }

    /// The operation, e.g. `append`.
    #[must_use]
    pub fn operation(&self) -> Option<&'static str> {
        self.0.operation
    }

    /// The name of the store.
    #[must_use]
    pub fn store(&self) -> Option<&str> {
        self.0.store.as_deref()
    }

    /// What the operation was working on.
    #[must_use]
    pub fn context(&self) -> Option<&str> {
        self.0.context.as_deref()
    }

    /// Whether the append found another version than it expected.
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        matches!(self.0.kind, ErrorKind::VersionConflict { .. })
    }

    /// Whether the writer's lease was overtaken.
    #[must_use]
    pub fn is_fenced(&self) -> bool {
        matches!(self.0.kind, ErrorKind::Fenced { .. })
    }

    /// Whether stored data is damaged.
    #[must_use]
    pub fn is_corrupt(&self) -> bool {
        matches!(self.0.kind, ErrorKind::Corrupt { .. })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = &self.0;
        let kind = inner.kind.to_string();
        if let Some(operation) = inner.operation {
            write!(f, "{operation}")?;
            if let Some(store) = &inner.store {
                write!(f, " on store {store}")?;
            }
            // What the kind itself begins with is not said twice.
            if let Some(context) =
                inner.context.as_ref().filter(|context| !kind.starts_with(context.as_str()))
            {
                write!(f, " ({context})")?;
            }
            f.write_str(": ")?;
        }
        f.write_str(&kind)?;
        if inner.outcome == Outcome::Unknown {
            f.write_str(" (it may have been applied)")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = &self.0;
        f.debug_struct("Error")
            .field("kind", &inner.kind)
            .field("outcome", &inner.outcome)
            .field("operation", &inner.operation)
            .field("store", &inner.store)
            .field("context", &inner.context)
            .field("source", &inner.source)
            .finish()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_ref().map(|source| {
            let source: &(dyn StdError + 'static) = source.as_ref();
            source
        })
    }
}
