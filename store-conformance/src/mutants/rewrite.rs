//! Changing a commit on its way into the store.

use wow_store_api::{
    AggregateId, CheckedCommit, Commit, Event, ExpectedVersion, Fence, Payload, ReservationOp, TimerOp,
};

/// The parts of a commit.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) aggregate_id: AggregateId,
    pub(super) command_id: String,
    pub(super) expected: ExpectedVersion,
    pub(super) events: Vec<Event>,
    pub(super) metadata: Option<Payload>,
    pub(super) fence: Option<Fence>,
    pub(super) reservations: Vec<ReservationOp>,
    pub(super) timers: Vec<TimerOp>,
}

/// The commit with some parts changed; as it was if it could not be appended then.
pub(super) fn rewrite(commit: &CheckedCommit, change: impl FnOnce(&mut Parts)) -> CheckedCommit {
    let mut parts = Parts {
        aggregate_id: commit.aggregate_id().clone(),
        command_id: commit.command_id().to_string(),
        expected: commit.expected(),
        events: commit.events().to_vec(),
        metadata: commit.metadata().cloned(),
        fence: commit.fence().cloned(),
        reservations: commit.reservations().to_vec(),
        timers: commit.timers().to_vec(),
    };
    change(&mut parts);
    let mut changed = Commit::new(parts.aggregate_id, parts.command_id).expect(parts.expected);
    for event in parts.events {
        changed = changed.with_event(event);
    }
    if let Some(metadata) = parts.metadata {
        changed = changed.with_metadata(metadata);
    }
    if let Some(fence) = parts.fence {
        changed = changed.fenced(fence);
    }
    for op in parts.reservations {
        changed = changed.reservation(op);
    }
    for op in parts.timers {
        changed = changed.timer(op);
    }
    changed.check().unwrap_or_else(|_| commit.clone())
}
