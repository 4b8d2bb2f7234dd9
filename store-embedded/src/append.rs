//! The decision about an append, made in the writer: on what is durable and on the appends before it in its batch
//! (L1 to L3, L5, L7, L11, R5).

use fjall::Slice;
use twox_hash::XxHash3_64;
use wow_store_api::{
    AggregateId, CheckedCommit, ExpectedVersion, PartitionCount, Receipt, ReservationOp, Result, TimerOp,
    Version, rules,
};

use crate::{
    access::Records as _,
    codec::{Head, ReceiptRecord, seal, unseal},
    commit::Body,
    engine::{
        keys::Key,
        space::Space,
        view::{Source, Tx},
    },
    leases::fence,
    places, reservations, timers,
};

/// A commit on its way to the writer: what can be done on the caller's thread is done.
#[derive(Debug)]
pub(crate) struct Prepared {
    commit: CheckedCommit,
    body: Body,
    /// The key of its aggregate, to which versions are put.
    stream: Key,
    command: Slice,
}

impl Prepared {
    pub(crate) fn new(commit: CheckedCommit) -> Self {
        let body = Body::new(&commit);
        let id = commit.aggregate_id();
        let command = places::command(id, commit.command_id()).into();
        Self { stream: places::aggregate(id), command, body, commit }
    }

    /// About what it holds until it is written.
    pub(crate) fn bytes(&self) -> usize {
        self.commit.encoded_size().saturating_mul(2)
    }

    /// Decides, and writes if the answer is yes.
    pub(crate) fn append(&mut self, tx: &mut Tx<'_>, default_count: PartitionCount) -> Result<Receipt> {
        let decided = self.decide(tx, default_count);
        decided.map_err(|error| error.with_context(self.commit.aggregate_id()))
    }

    fn decide(&mut self, tx: &mut Tx<'_>, default_count: PartitionCount) -> Result<Receipt> {
        let commit = &self.commit;
        let id = commit.aggregate_id();
        let command = self.command.clone();
        let known = Known::of(tx, &self.stream, commit)?;
        // L3 before everything else.
        if known.may_hold(commit)
            && let Some(value) = tx.get(Space::Command, &command)?
        {
            let receipt: ReceiptRecord = unseal(Space::Command, &command, &value)?;
            return Ok(receipt.replay(id));
        }
        fence(tx, commit.fence())?;
        let version = rules::append::next_version(commit, known.head)?;
        for op in commit.reservations() {
            reserve(tx, op)?;
        }
        for op in commit.timers() {
            timer(tx, op)?;
        }
        let partition = partitions(tx, id, default_count)?.partition_of(id);
        let place = places::head(&partition);
        let head = last_head(tx, &place)?;
        let position = rules::append::next_position(&partition, head.map_or(0, |head| head.position))?;
        let committed_at = rules::append::committed_at(tx.now(), head.map(|head| head.committed_at));
        let head = Head { partition: partition.index(), position, committed_at };
        tx.note(Slice::from(place.key.as_slice()), head.fact());
        tx.store(place, &head);
        if version == 1 {
            first_commit(tx, id)?;
        }
        let receipt = rules::append::receipt(partition, version, position, committed_at);
        let log = places::log_at(&receipt.partition, position);
        let at = self.stream.and_u64(version);
        self.body.place(&receipt);
        tx.put(Space::Stream, at.clone(), self.body.seal(&at));
        let value = self.body.seal(log.as_slice());
        tx.put(Space::Log, log, value);
        let value = seal(&command, &ReceiptRecord::of(&receipt));
        tx.put(Space::Command, command, value);
        tx.touch(&receipt.partition);
        known.note(tx, &self.stream, commit);
        Ok(receipt)
    }
}

fn reserve(tx: &mut Tx<'_>, op: &ReservationOp) -> Result<()> {
    let outcome = reservations::change(tx, op)?;
    rules::reservation::ride(op, outcome)
}

fn timer(tx: &mut Tx<'_>, op: &TimerOp) -> Result<()> {
    match op {
        TimerOp::Schedule(schedule) => {
            rules::timer::ride(timers::schedule(tx, schedule.clone())?)?;
        }
        TimerOp::Cancel { context, id } => {
            timers::cancel(tx, context, id)?;
        }
    }
    Ok(())
}

/// The count of the aggregate's context, recorded now if this is its first use.
///
/// Facts about contexts and partitions are noted under the keys of their records, those about aggregates under theirs:
/// the former start with a byte below that of any name.
fn partitions(tx: &mut Tx<'_>, id: &AggregateId, default_count: PartitionCount) -> Result<PartitionCount> {
    let place = places::context(id.context());
    if let Some(fact) = tx.fact(place.key.as_slice())
        && let Some(count) = fact.first_chunk()
    {
        return PartitionCount::new(u32::from_be_bytes(*count));
    }
    let (key, count) = (Slice::from(place.key.as_slice()), tx.record(&place)?);
    let count = count.unwrap_or_else(|| {
        tx.store(place, &default_count);
        default_count
    });
    tx.note(key, count.get().to_be_bytes());
    Ok(count)
}

/// The end of a partition, if it has a commit.
fn last_head(tx: &Tx<'_>, place: &places::Place) -> Result<Option<Head>> {
    match tx.fact(place.key.as_slice()).and_then(|fact| Head::of_fact(&fact)) {
        Some(head) => Ok(Some(head)),
        None => tx.record(place),
    }
}

fn first_commit(tx: &mut Tx<'_>, id: &AggregateId) -> Result<()> {
    let place = places::aggregate_type(id.aggregate_type());
    if !tx.contains(place.space, place.key.as_slice())? {
        tx.store(place, id.aggregate_type());
    }
    Ok(())
}

/// The last version of an aggregate: that of its last commit.
pub(crate) fn head(source: &impl Source, stream: &Key) -> Result<Version> {
    let under = places::Place { space: Space::Stream, key: stream.clone() };
    match source.entries_back(&under).next() {
        Some(entry) => Ok(version_of(&entry?.0)),
        None => Ok(0),
    }
}

/// Whether an aggregate has this version, where it is not known to have others.
pub(crate) fn has_version(source: &impl Source, id: &AggregateId, version: Version) -> Result<bool> {
    Ok(source.contains(Space::Stream, places::stream_at(id, version).as_slice())?)
}

/// The last part of a key: a version or a position.
pub(crate) fn version_of(key: &[u8]) -> u64 {
    key.last_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

/// As many command ids are remembered of one aggregate.
const COMMANDS: usize = 32;
const HASH_BYTES: usize = 8;

/// What the writer remembers of an aggregate, to spare most appends the look-up of their command id.
struct Known {
    head: Version,
    /// The hashes of the command ids of all its commits; of no use unless there is one for each.
    hashes: Vec<u8>,
}

impl Known {
    fn of(tx: &Tx<'_>, stream: &Key, commit: &CheckedCommit) -> Result<Self> {
        if let Some(fact) = tx.fact(stream.as_slice())
            && let Some((head, hashes)) = fact.split_first_chunk()
        {
            return Ok(Self { head: u64::from_be_bytes(*head), hashes: hashes.to_vec() });
        }
        Ok(Self { head: find_head(tx, stream, commit)?, hashes: Vec::new() })
    }

    fn is_complete(&self) -> bool {
        usize::try_from(self.head).is_ok_and(|head| head.checked_mul(HASH_BYTES) == Some(self.hashes.len()))
    }

    /// Whether the aggregate may hold the commit's command. No is certain.
    fn may_hold(&self, commit: &CheckedCommit) -> bool {
        let hash = hash(commit);
        !self.is_complete() || self.hashes.chunks_exact(HASH_BYTES).any(|known| known == hash)
    }

    /// Remembers what is true once the commit is stored.
    fn note(self, tx: &mut Tx<'_>, stream: &Key, commit: &CheckedCommit) {
        let mut fact = Vec::with_capacity(self.hashes.len().saturating_add(2 * HASH_BYTES));
        fact.extend_from_slice(&self.head.saturating_add(1).to_be_bytes());
        if self.is_complete() && self.hashes.len() < COMMANDS * HASH_BYTES {
            fact.extend_from_slice(&self.hashes);
            fact.extend_from_slice(&hash(commit));
        }
        tx.note(Slice::from(stream.as_slice()), fact);
    }
}

fn hash(commit: &CheckedCommit) -> [u8; HASH_BYTES] {
    XxHash3_64::oneshot(commit.command_id().as_str().as_bytes()).to_be_bytes()
}

/// The head, by what is cheapest to look up: whether a key is there costs less than which is the last.
fn find_head(tx: &Tx<'_>, stream: &Key, commit: &CheckedCommit) -> Result<Version> {
    let id = commit.aggregate_id();
    if !has_version(tx, id, 1)? {
        return Ok(0);
    }
    if let ExpectedVersion::Exact(version) = commit.expected()
        && version > 0
        && has_version(tx, id, version)?
        && !has_version(tx, id, version.saturating_add(1))?
    {
        return Ok(version);
    }
    head(tx, stream)
}
