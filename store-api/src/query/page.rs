//! What a query finds.

use super::cursor::Cursor;
use crate::{
    commit::{Event, RecordedCommit},
    log::{Position, Version},
    name::{AggregateId, CommandId, EventName},
    payload::Payload,
    snapshot::Snapshot,
    time::Timestamp,
};

/// A snapshot that a query found. Not a [`Snapshot`]: with a projection its state is not the whole state.
#[derive(Debug, Clone, PartialEq)]
pub struct SnapshotItem {
    /// The aggregate.
    pub aggregate_id: AggregateId,
    /// The state includes the commits up to this version (inclusive).
    pub version: Version,
    /// The revision of the state's shape: the one asked for.
    pub revision: u32,
    /// When it was saved, by the store's clock.
    pub saved_at: Timestamp,
    /// The state, or what the projection leaves of it.
    pub state: Payload,
}

impl From<Snapshot> for SnapshotItem {
    fn from(snapshot: Snapshot) -> Self {
        Self {
            aggregate_id: snapshot.aggregate_id,
            version: snapshot.version,
            revision: snapshot.revision,
            saved_at: snapshot.saved_at,
            state: snapshot.state,
        }
    }
}

/// An event that a query found, with the envelope of its commit.
#[derive(Debug, Clone, PartialEq)]
pub struct EventItem {
    /// The aggregate.
    pub aggregate_id: AggregateId,
    /// The version of the commit in the aggregate, from 1.
    pub version: Version,
    /// The index of the event in the commit, from 0.
    pub index: u32,
    /// The command that produced the commit.
    pub command_id: CommandId,
    /// The index of the partition.
    pub partition: u32,
    /// The position of the commit in the partition, from 1.
    pub position: Position,
    /// When it was committed, by the store's clock.
    pub committed_at: Timestamp,
    /// What happened.
    pub name: EventName,
    /// The revision of the body's shape.
    pub revision: u32,
    /// The body, or what the projection leaves of it.
    pub body: Payload,
    /// The metadata of the commit, whole.
    pub metadata: Option<Payload>,
}

impl EventItem {
    /// An event of a commit; `index` is that of the event in it.
    #[must_use]
    pub fn new(commit: &RecordedCommit, event: &Event, index: u32) -> Self {
        Self {
            aggregate_id: commit.aggregate_id.clone(),
            version: commit.version,
            index,
            command_id: commit.command_id.clone(),
            partition: commit.partition,
            position: commit.position,
            committed_at: commit.committed_at,
            name: event.name.clone(),
            revision: event.revision,
            body: event.body.clone(),
            metadata: commit.metadata.clone(),
        }
    }
}

/// One page of snapshots, in the order of the query.
#[derive(Debug, Clone, PartialEq)]
pub struct SnapshotPage {
    /// At most as many as the query's limit.
    pub items: Vec<SnapshotItem>,
    /// Where to go on; `None` if there was nothing more.
    pub next: Option<Cursor>,
}

/// One page of events, in the order of the query.
#[derive(Debug, Clone, PartialEq)]
pub struct EventPage {
    /// At most as many as the query's limit.
    pub items: Vec<EventItem>,
    /// Where to go on; `None` if there was nothing more.
    pub next: Option<Cursor>,
}
