//! Records as bytes. What is in a record is spelled out field by field, so that a change of a type of the contract
//! never changes what is on disk unseen.

use fjall::Slice;
use uuid::Uuid;
use wow_store_api::{
    AggregateId, AggregateType, Checkpoint, Discarded, Error, FailedCommit, Failure, FailureState, Lease,
    Member, MemberId, OwnerId, PartitionCount, PartitionId, Payload, Position, Receipt, Reservation,
    ReservationKey, ReservationScope, Snapshot, SubscriptionName, Timer, TimerClaim, TimerId, Timestamp,
    Version,
};

use crate::engine::{
    error::{Corruption, Hex},
    record::{Decoder, Encoder},
    space::Space,
};

/// The format of all records of this module.
const FORMAT: u8 = 1;

/// Why bytes are not a record.
pub(crate) type Result<T> = std::result::Result<T, String>;

/// Something that is stored under a key.
pub(crate) trait Record: Sized {
    fn write(&self, to: &mut Encoder);
    fn read(from: &mut Decoder<'_>) -> Result<Self>;
}

/// The bytes of a record under this key.
pub(crate) fn seal<R: Record>(key: &[u8], record: &R) -> Slice {
    let mut encoder = Encoder::new(FORMAT, 128);
    record.write(&mut encoder);
    encoder.seal(key)
}

/// The record in these bytes.
pub(crate) fn unseal<R: Record>(
    space: Space,
    key: &[u8],
    value: &[u8],
) -> std::result::Result<R, Corruption> {
    let read = || {
        let (format, mut fields) = Decoder::open(key, value)?;
        if format != FORMAT {
            return Err(format!("unknown format {format}"));
        }
        let record = R::read(&mut fields)?;
        fields.end()?;
        Ok(record)
    };
    read().map_err(|reason| Corruption { place: format!("{}, key {}", space.name(), Hex(key)), reason })
}

/// Stored names and ids were checked when they were written; one that fails now was damaged.
pub(crate) fn checked<T>(name: std::result::Result<T, Error>) -> Result<T> {
    name.map_err(|error| error.to_string())
}

pub(crate) fn read_instant(from: &mut Decoder<'_>) -> Result<Timestamp> {
    checked(Timestamp::from_millis(from.i64()?))
}

fn write_partition(to: &mut Encoder, partition: &PartitionId) {
    to.text(partition.context().as_str()).u32(partition.index());
}

fn read_partition(from: &mut Decoder<'_>) -> Result<PartitionId> {
    let context = checked(from.text()?.try_into())?;
    Ok(PartitionId::new(context, from.u32()?))
}

fn write_aggregate(to: &mut Encoder, id: &AggregateId) {
    let aggregate_type = id.aggregate_type();
    to.text(aggregate_type.context().as_str()).text(aggregate_type.name().as_str());
    to.optional_text(id.tenant()).text(id.id());
}

fn read_aggregate(from: &mut Decoder<'_>) -> Result<AggregateId> {
    let aggregate_type = checked(AggregateType::new(from.text()?, from.text()?))?;
    let tenant = from.optional_text()?;
    let id = checked(AggregateId::of(aggregate_type, from.text()?))?;
    match tenant {
        Some(tenant) => checked(id.with_tenant(tenant)),
        None => Ok(id),
    }
}

fn read_payload(from: &mut Decoder<'_>) -> Result<Payload> {
    Ok(Payload::from_stored(from.text()?))
}

fn write_optional_instant(to: &mut Encoder, instant: Option<Timestamp>) {
    match instant {
        Some(instant) => to.u8(1).i64(instant.as_millis()),
        None => to.u8(0),
    };
}

fn read_present(from: &mut Decoder<'_>) -> Result<bool> {
    match from.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(format!("presence byte is {other}")),
    }
}

/// When a claimed timer was due; nothing for one that nobody has claimed, which is listed by that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DueRecord(pub(crate) Option<Timestamp>);

impl Record for DueRecord {
    fn write(&self, to: &mut Encoder) {
        if let Some(due_at) = self.0 {
            to.i64(due_at.as_millis());
        }
    }

    fn read(from: &mut Decoder<'_>) -> Result<Self> {
        Ok(Self(if from.is_at_end() { None } else { Some(read_instant(from)?) }))
    }
}

impl Record for u32 {
    fn write(&self, to: &mut Encoder) {
        to.u32(*self);
    }

    fn read(from: &mut Decoder<'_>) -> Result<Self> {
        from.u32()
    }
}

/// The version of a structure's format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FormatRecord {
    pub(crate) structure: String,
    pub(crate) version: u32,
}

impl Record for FormatRecord {
    fn write(&self, to: &mut Encoder) {
        to.text(&self.structure).u32(self.version);
    }

    fn read(from: &mut Decoder<'_>) -> Result<Self> {
        Ok(Self { structure: from.text()?.to_owned(), version: from.u32()? })
    }
}

impl Record for PartitionCount {
    fn write(&self, to: &mut Encoder) {
        to.u32(self.get());
    }

    fn read(from: &mut Decoder<'_>) -> Result<Self> {
        checked(Self::new(from.u32()?))
    }
}

impl Record for AggregateType {
    fn write(&self, to: &mut Encoder) {
        to.text(self.context().as_str()).text(self.name().as_str());
    }

    fn read(from: &mut Decoder<'_>) -> Result<Self> {
        checked(Self::new(from.text()?, from.text()?))
    }
}

/// The end of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) partition: u32,
    pub(crate) position: Position,
    /// The instant of the last commit.
    pub(crate) committed_at: Timestamp,
}

impl Head {
    /// As it is kept in memory for the next append: without a checksum.
    pub(crate) fn fact(&self) -> Slice {
        let mut fields = Encoder::part(20);
        self.write(&mut fields);
        Slice::from(fields.into_part())
    }

    pub(crate) fn of_fact(fact: &[u8]) -> Option<Self> {
        Self::read(&mut Decoder::of(fact)).ok()
    }
}

impl Record for Head {
    fn write(&self, to: &mut Encoder) {
        to.u32(self.partition).u64(self.position).i64(self.committed_at.as_millis());
    }

    fn read(from: &mut Decoder<'_>) -> Result<Self> {
        Ok(Self { partition: from.u32()?, position: from.u64()?, committed_at: read_instant(from)? })
    }
}

/// Where the commit of a command is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReceiptRecord {
    pub(crate) version: Version,
    pub(crate) partition: u32,
    pub(crate) position: Position,
    pub(crate) committed_at: Timestamp,
}

impl ReceiptRecord {
    pub(crate) fn of(receipt: &Receipt) -> Self {
        Self {
            version: receipt.version,
            partition: receipt.partition.index(),
            position: receipt.position,
            committed_at: receipt.committed_at,
        }
    }

    /// The receipt that asking again gives.
    pub(crate) fn replay(self, id: &AggregateId) -> Receipt {
        Receipt {
            version: self.version,
            partition: PartitionId::new(id.context().clone(), self.partition),
            position: self.position,
            committed_at: self.committed_at,
            replayed: true,
        }
    }
}

impl Record for ReceiptRecord {
    fn write(&self, to: &mut Encoder) {
        to.u64(self.version).u32(self.partition).u64(self.position).i64(self.committed_at.as_millis());
    }

    fn read(from: &mut Decoder<'_>) -> Result<Self> {
        Ok(Self {
            version: from.u64()?,
            partition: from.u32()?,
            position: from.u64()?,
            committed_at: read_instant(from)?,
        })
    }
}

impl Record for Lease {
    fn write(&self, to: &mut Encoder) {
        to.text(self.group.as_str());
        write_partition(to, &self.partition);
        to.optional_text(self.owner.as_ref().map(MemberId::as_str));
        to.u64(self.epoch).i64(self.expires_at.as_millis());
    }

    fn read(from: &mut Decoder<'_>) -> Result<Self> {
        Ok(Self {
            group: checked(SubscriptionName::new(from.text()?))?,
            partition: read_partition(from)?,
            owner: from.optional_text()?.map(|owner| checked(MemberId::new(owner))).transpose()?,
            epoch: from.u64()?,
            expires_at: read_instant(from)?,
        })
    }
}

impl Record for Member {
    fn write(&self, to: &mut Encoder) {
        to.text(self.group.as_str()).text(self.member.as_str());
        to.i64(self.joined_at.as_millis()).i64(self.expires_at.as_millis());
    }

    fn read(from: &mut Decoder<'_>) -> Result<Self> {
        Ok(Self {
            group: checked(SubscriptionName::new(from.text()?))?,
            member: checked(MemberId::new(from.text()?))?,
            joined_at: read_instant(from)?,
            expires_at: read_instant(from)?,
        })
    }
}

impl Record for Checkpoint {
    fn write(&self, to: &mut Encoder) {
        to.text(self.subscription.as_str());
        write_partition(to, &self.partition);
        to.u64(self.position).u64(self.epoch).i64(self.saved_at.as_millis());
    }

    fn read(from: &mut Decoder<'_>) -> Result<Self> {
        Ok(Self {
            subscription: checked(SubscriptionName::new(from.text()?))?,
            partition: read_partition(from)?,
            position: from.u64()?,
            epoch: from.u64()?,
            saved_at: read_instant(from)?,
        })
    }
}

impl Record for Snapshot {
    fn write(&self, to: &mut Encoder) {
        write_aggregate(to, &self.aggregate_id);
        to.u64(self.version).u32(self.revision).i64(self.saved_at.as_millis()).text(self.state.as_json());
    }

    fn read(from: &mut Decoder<'_>) -> Result<Self> {
        Ok(Self {
            aggregate_id: read_aggregate(from)?,
            version: from.u64()?,
            revision: from.u32()?,
            saved_at: read_instant(from)?,
            state: read_payload(from)?,
        })
    }
}

fn write_failed(to: &mut Encoder, commit: &FailedCommit) {
    to.u64(commit.position).u64(commit.version);
}

fn read_failed(from: &mut Decoder<'_>) -> Result<FailedCommit> {
    Ok(FailedCommit { position: from.u64()?, version: from.u64()? })
}

impl Record for Failure {
    fn write(&self, to: &mut Encoder) {
        to.text(self.subscription.as_str());
        write_aggregate(to, &self.aggregate_id);
        write_partition(to, &self.partition);
        to.u8(match self.state {
            FailureState::Trying => 1,
            FailureState::Parked => 2,
            FailureState::Retrying => 3,
        });
        write_failed(to, &self.commit);
        to.u64(self.from_version).u32(self.attempts);
        to.optional_text(self.event.as_deref()).optional_text(self.error.as_deref());
        to.i64(self.since.as_millis()).i64(self.updated_at.as_millis());
    }

    fn read(from: &mut Decoder<'_>) -> Result<Self> {
        Ok(Self {
            subscription: checked(SubscriptionName::new(from.text()?))?,
            aggregate_id: read_aggregate(from)?,
            partition: read_partition(from)?,
            state: match from.u8()? {
                1 => FailureState::Trying,
                2 => FailureState::Parked,
                3 => FailureState::Retrying,
                other => return Err(format!("state of a failure is {other}")),
            },
            commit: read_failed(from)?,
            from_version: from.u64()?,
            attempts: from.u32()?,
            event: from.optional_text()?.map(str::to_owned),
            error: from.optional_text()?.map(str::to_owned),
            since: read_instant(from)?,
            updated_at: read_instant(from)?,
        })
    }
}

impl Record for Discarded {
    fn write(&self, to: &mut Encoder) {
        to.text(self.subscription.as_str());
        write_aggregate(to, &self.aggregate_id);
        write_failed(to, &self.commit);
        to.optional_text(self.event.as_deref()).optional_text(self.error.as_deref());
        to.i64(self.discarded_at.as_millis());
    }

    fn read(from: &mut Decoder<'_>) -> Result<Self> {
        Ok(Self {
            subscription: checked(SubscriptionName::new(from.text()?))?,
            aggregate_id: read_aggregate(from)?,
            commit: read_failed(from)?,
            event: from.optional_text()?.map(str::to_owned),
            error: from.optional_text()?.map(str::to_owned),
            discarded_at: read_instant(from)?,
        })
    }
}

impl Record for Reservation {
    fn write(&self, to: &mut Encoder) {
        to.text(self.scope.as_str()).text(self.key.as_str()).text(self.owner.as_str());
        write_optional_instant(to, self.expires_at);
        to.i64(self.reserved_at.as_millis());
    }

    fn read(from: &mut Decoder<'_>) -> Result<Self> {
        Ok(Self {
            scope: checked(ReservationScope::new(from.text()?))?,
            key: checked(ReservationKey::new(from.text()?))?,
            owner: checked(OwnerId::new(from.text()?))?,
            expires_at: if read_present(from)? { Some(read_instant(from)?) } else { None },
            reserved_at: read_instant(from)?,
        })
    }
}

impl Record for Timer {
    fn write(&self, to: &mut Encoder) {
        to.text(self.context.as_str()).text(self.id.as_str()).i64(self.due_at.as_millis());
        match &self.target {
            Some(target) => write_aggregate(to.u8(1), target),
            None => {
                to.u8(0);
            }
        }
        to.i64(self.scheduled_at.as_millis()).u32(self.attempts);
        match &self.claim {
            Some(claim) => {
                to.u8(1).text(claim.member.as_str()).bytes(claim.claim.as_bytes());
                to.i64(claim.expires_at.as_millis());
            }
            None => {
                to.u8(0);
            }
        }
        to.text(self.body.as_json());
    }

    fn read(from: &mut Decoder<'_>) -> Result<Self> {
        Ok(Self {
            context: checked(from.text()?.try_into())?,
            id: checked(TimerId::new(from.text()?))?,
            due_at: read_instant(from)?,
            target: if read_present(from)? { Some(read_aggregate(from)?) } else { None },
            scheduled_at: read_instant(from)?,
            attempts: from.u32()?,
            claim: if read_present(from)? {
                Some(TimerClaim {
                    member: checked(MemberId::new(from.text()?))?,
                    claim: Uuid::from_slice(from.bytes()?).map_err(|error| error.to_string())?,
                    expires_at: read_instant(from)?,
                })
            } else {
                None
            },
            body: read_payload(from)?,
        })
    }
}
