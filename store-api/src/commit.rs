//! What is appended and what is read back: events, commits, receipts.

use std::{fmt, sync::Arc};

use serde::Serialize;

use crate::{
    error::{Error, ErrorKind, Result},
    lease::Fence,
    log::{Position, Version},
    name::{AggregateId, CommandId, EventName},
    partition::PartitionId,
    payload::Payload,
    reservation::ReservationOp,
    time::Timestamp,
    timer::TimerOp,
};

/// Largest encoded size of one commit, in bytes (inclusive): 8 MiB. See [`CheckedCommit::encoded_size`].
///
/// Half of MongoDB's 16 MiB document: a stored commit, its envelope and a change event about it fit on every backend.
pub const MAX_COMMIT_BYTES: usize = 8 * 1024 * 1024;

/// Largest number of commits in one `append_all` (inclusive).
pub const MAX_COMMITS_PER_APPEND: usize = 1_000;

/// Largest encoded size of all commits of one `append_all` together, in bytes (inclusive): 32 MiB.
pub const MAX_APPEND_BYTES: usize = 32 * 1024 * 1024;

/// Largest number of reservations and timers that ride in one commit (inclusive).
pub const MAX_RIDERS: usize = 100;

/// Largest revision of an event or of a snapshot's state (inclusive): `i32::MAX`.
pub const MAX_REVISION: u32 = i32::MAX.unsigned_abs();

/// What an append counts per event beside name and body: separators, field names and the array's index keys.
const EVENT_OVERHEAD_BYTES: usize = 64;

/// Which version an append expects its aggregate to be at (L2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ExpectedVersion {
    /// The aggregate has no commit yet. The same as `Exact(0)`.
    NoStream,
    /// The aggregate's last commit has this version; 0 if there is none.
    Exact(Version),
    /// Whatever it is: the append goes behind it.
    #[default]
    Any,
}

impl ExpectedVersion {
    /// Whether an aggregate at version `head` meets the expectation.
    #[must_use]
    pub fn is_met_by(self, head: Version) -> bool {
        match self {
            Self::NoStream => head == 0,
            Self::Exact(version) => head == version,
            Self::Any => true,
        }
    }
}

impl fmt::Display for ExpectedVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoStream => f.write_str("no commits"),
            Self::Exact(version) => write!(f, "version {version}"),
            Self::Any => f.write_str("any version"),
        }
    }
}

/// One thing that happened: a name, the revision of the body's shape, and the body.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// What happened, e.g. `OrderPlaced`.
    pub name: EventName,
    /// The revision of the body's shape, 0 to [`MAX_REVISION`] (inclusive).
    pub revision: u32,
    /// The body.
    pub body: Payload,
}

impl Event {
    /// Checks the parts.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidName`] for the name, [`ErrorKind::InvalidInput`] for a revision above [`MAX_REVISION`].
    pub fn new(name: impl AsRef<str>, revision: u32, body: Payload) -> Result<Self> {
        let name = EventName::new(name)?;
        check_revision(revision)?;
        Ok(Self { name, revision, body })
    }

    /// What this event counts in [`CheckedCommit::encoded_size`].
    fn encoded_size(&self) -> usize {
        EVENT_OVERHEAD_BYTES + self.name.as_str().len() + self.body.size()
    }
}

pub(crate) fn check_revision(revision: u32) -> Result<()> {
    if revision > MAX_REVISION {
        return Err(Error::invalid_input(format!("revision {revision} is above {MAX_REVISION}")));
    }
    Ok(())
}

/// A commit to be appended: the events that one command produced on one aggregate.
///
/// Built step by step; checked as a whole when it is appended ([`Commit::check`]).
///
/// ```
/// use rust_decimal::dec;
/// use serde::Serialize;
/// use wow_store_api::{AggregateId, Commit, ExpectedVersion};
///
/// #[derive(Serialize)]
/// struct OrderPlaced {
///     #[serde(with = "wow_store_api::payload::decimal")]
///     total: rust_decimal::Decimal,
/// }
///
/// let commit = Commit::new(AggregateId::new("shop", "order", "42")?, "cmd-7")
///     .expect(ExpectedVersion::NoStream)
///     .event("OrderPlaced", 1, &OrderPlaced { total: dec!(19.90) })?;
/// assert_eq!(commit.check()?.events()[0].body.as_json(), r#"{"total":19.90}"#);
/// # Ok::<_, wow_store_api::Error>(())
/// ```
#[derive(Debug, Clone)]
#[must_use = "a commit does nothing until it is appended"]
pub struct Commit {
    aggregate_id: AggregateId,
    command_id: String,
    expected: ExpectedVersion,
    events: Vec<Event>,
    metadata: Option<Payload>,
    fence: Option<Fence>,
    reservations: Vec<ReservationOp>,
    timers: Vec<TimerOp>,
}

impl Commit {
    /// A commit on `aggregate_id`, produced by the command `command_id`, the idempotency key within the aggregate
    /// (L3): appending it again stores nothing and returns the first receipt.
    pub fn new(aggregate_id: AggregateId, command_id: impl Into<String>) -> Self {
        Self {
            aggregate_id,
            command_id: command_id.into(),
            expected: ExpectedVersion::Any,
            events: Vec::new(),
            metadata: None,
            fence: None,
            reservations: Vec::new(),
            timers: Vec::new(),
        }
    }

    /// Which version the aggregate must be at (L2); [`ExpectedVersion::Any`] unless set.
    pub fn expect(mut self, expected: ExpectedVersion) -> Self {
        self.expected = expected;
        self
    }

    /// Adds an event with a body that serialises to JSON.
    ///
    /// # Errors
    /// [`ErrorKind::Unrepresentable`] if the body is outside the portable profile, [`ErrorKind::InvalidName`] or
    /// [`ErrorKind::InvalidInput`] as for [`Event::new`].
    pub fn event<T: Serialize + ?Sized>(
        self,
        name: impl AsRef<str>,
        revision: u32,
        body: &T,
    ) -> Result<Self> {
        let what = || format!("event {} ({})", self.events.len(), name.as_ref());
        let body = Payload::from_serialize(body).map_err(|error| Error::unrepresentable(what(), error))?;
        let event = Event::new(name, revision, body)?;
        Ok(self.with_event(event))
    }

    /// Adds an event that is already built.
    pub fn with_event(mut self, event: Event) -> Self {
        self.events.push(event);
        self
    }

    /// Sets the commit's metadata, e.g. correlation id, causation id and user.
    ///
    /// # Errors
    /// [`ErrorKind::Unrepresentable`] if it is outside the portable profile.
    pub fn metadata<T: Serialize + ?Sized>(mut self, metadata: &T) -> Result<Self> {
        self.metadata = Some(
            Payload::from_serialize(metadata).map_err(|error| Error::unrepresentable("metadata", error))?,
        );
        Ok(self)
    }

    /// Sets the commit's metadata to a payload that is already built.
    pub fn with_metadata(mut self, metadata: Payload) -> Self {
        self.metadata = Some(metadata);
        self
    }

    /// The append is refused with [`ErrorKind::Fenced`] once the lease was taken over (L7).
    pub fn fenced(mut self, fence: Fence) -> Self {
        self.fence = Some(fence);
        self
    }

    /// A change of a reservation that is made if and only if the commit is stored (R5).
    pub fn reservation(mut self, op: ReservationOp) -> Self {
        self.reservations.push(op);
        self
    }

    /// A change of a timer that is made if and only if the commit is stored (R5).
    pub fn timer(mut self, op: TimerOp) -> Self {
        self.timers.push(op);
        self
    }

    /// The aggregate.
    #[must_use]
    pub fn aggregate_id(&self) -> &AggregateId {
        &self.aggregate_id
    }

    /// Checks everything that can be checked without the store. Stores take nothing but a [`CheckedCommit`], so
    /// every backend refuses the same commits.
    ///
    /// # Errors
    /// - [`ErrorKind::InvalidName`]: the command id breaks the rule of ids.
    /// - [`ErrorKind::InvalidInput`]: no event, more than [`MAX_RIDERS`] reservations and timers, a reservation as for
    ///   [`ReservationOp::check`], or a timer of another context.
    /// - [`ErrorKind::TooLarge`]: more than [`MAX_COMMIT_BYTES`].
    pub fn check(self) -> Result<CheckedCommit> {
        let command_id = CommandId::new(&self.command_id)?;
        if self.events.is_empty() {
            return Err(Error::invalid_input("the commit has no event: add at least one"));
        }
        let riders = self.reservations.len() + self.timers.len();
        if riders > MAX_RIDERS {
            return Err(Error::invalid_input(format!(
                "{riders} reservations and timers ride in the commit, at most {MAX_RIDERS} may"
            )));
        }
        for event in &self.events {
            check_revision(event.revision)?;
        }
        self.reservations.iter().try_for_each(ReservationOp::check)?;
        if let Some(timer) = self.timers.iter().find(|timer| timer.context() != self.aggregate_id.context()) {
            return Err(Error::invalid_input(format!(
                "a timer of {} cannot ride in a commit on {}: schedule it on its own",
                timer.context(),
                self.aggregate_id
            )));
        }
        let checked = CheckedCommit(Arc::new(Checked {
            aggregate_id: self.aggregate_id,
            command_id,
            expected: self.expected,
            events: self.events,
            metadata: self.metadata,
            fence: self.fence,
            reservations: self.reservations,
            timers: self.timers,
        }));
        let size = checked.encoded_size();
        if size > MAX_COMMIT_BYTES {
            let kind = ErrorKind::TooLarge { what: "commit", size, limit: MAX_COMMIT_BYTES };
            return Err(Error::not_applied(kind).with_context(checked.aggregate_id()));
        }
        Ok(checked)
    }
}

/// A commit that passed [`Commit::check`]: what stores append. Cheap to clone.
#[derive(Debug, Clone)]
pub struct CheckedCommit(Arc<Checked>);

#[derive(Debug)]
struct Checked {
    aggregate_id: AggregateId,
    command_id: CommandId,
    expected: ExpectedVersion,
    events: Vec<Event>,
    metadata: Option<Payload>,
    fence: Option<Fence>,
    reservations: Vec<ReservationOp>,
    timers: Vec<TimerOp>,
}

impl CheckedCommit {
    /// The aggregate.
    #[must_use]
    pub fn aggregate_id(&self) -> &AggregateId {
        &self.0.aggregate_id
    }

    /// The command that produced it.
    #[must_use]
    pub fn command_id(&self) -> &CommandId {
        &self.0.command_id
    }

    /// The version that the aggregate must be at.
    #[must_use]
    pub fn expected(&self) -> ExpectedVersion {
        self.0.expected
    }

    /// The events, at least one.
    #[must_use]
    pub fn events(&self) -> &[Event] {
        &self.0.events
    }

    /// The metadata.
    #[must_use]
    pub fn metadata(&self) -> Option<&Payload> {
        self.0.metadata.as_ref()
    }

    /// The lease that the writer works under.
    #[must_use]
    pub fn fence(&self) -> Option<&Fence> {
        self.0.fence.as_ref()
    }

    /// The reservations that ride in it, in order.
    #[must_use]
    pub fn reservations(&self) -> &[ReservationOp] {
        &self.0.reservations
    }

    /// The timers that ride in it, in order.
    #[must_use]
    pub fn timers(&self) -> &[TimerOp] {
        &self.0.timers
    }

    /// What the commit counts towards [`MAX_COMMIT_BYTES`]: for each event 64 bytes, its name and its body; for the
    /// metadata and for each timer's body their size. A payload's size is the larger of its JSON text and its BSON
    /// encoding ([`Payload::size`]), so that it means the same on every backend.
    #[must_use]
    pub fn encoded_size(&self) -> usize {
        let events: usize = self.events().iter().map(Event::encoded_size).sum();
        let timers: usize = self.timers().iter().map(TimerOp::encoded_size).sum();
        events + timers + self.metadata().map_or(0, Payload::size)
    }

    /// The commit as it is stored, once the store knows where.
    #[must_use]
    pub fn record(&self, receipt: &Receipt) -> RecordedCommit {
        RecordedCommit {
            aggregate_id: self.aggregate_id().clone(),
            version: receipt.version,
            command_id: self.command_id().clone(),
            partition: receipt.partition.index(),
            position: receipt.position,
            committed_at: receipt.committed_at,
            metadata: self.metadata().cloned(),
            events: self.events().to_vec(),
        }
    }
}

/// Where a commit was stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    /// Its version in its aggregate, from 1.
    pub version: Version,
    /// Its partition.
    pub partition: PartitionId,
    /// Its position in the partition, from 1.
    pub position: Position,
    /// When, by the store's clock.
    pub committed_at: Timestamp,
    /// Whether the command had been appended before, so that this append stored nothing (L3).
    pub replayed: bool,
}

impl Receipt {
    /// The commit's version in its aggregate, from 1.
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// The commit's position in its partition, from 1.
    #[must_use]
    pub fn position(&self) -> Position {
        self.position
    }

    /// Whether this append stored nothing as the command had been appended before.
    #[must_use]
    pub fn is_replayed(&self) -> bool {
        self.replayed
    }

    /// The receipt that a replay of this commit gets.
    #[must_use]
    pub fn replay(mut self) -> Self {
        self.replayed = true;
        self
    }
}

/// A commit that is stored.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedCommit {
    /// The aggregate.
    pub aggregate_id: AggregateId,
    /// The version in the aggregate, from 1.
    pub version: Version,
    /// The command that produced it.
    pub command_id: CommandId,
    /// The index of its partition.
    pub partition: u32,
    /// The position in the partition, from 1.
    pub position: Position,
    /// When it was committed, by the store's clock. Never falls along a partition.
    pub committed_at: Timestamp,
    /// The metadata.
    pub metadata: Option<Payload>,
    /// The events, at least one.
    pub events: Vec<Event>,
}

impl RecordedCommit {
    /// The receipt of the append that stored it.
    #[must_use]
    pub fn receipt(&self) -> Receipt {
        Receipt {
            version: self.version,
            partition: PartitionId::new(self.aggregate_id.context().clone(), self.partition),
            position: self.position,
            committed_at: self.committed_at,
            replayed: false,
        }
    }
}
