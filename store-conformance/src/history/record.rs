//! What clients did and what they were told.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use wow_store_api::{
    AggregateId, CommandId, Error, ErrorKind, Event, ExpectedVersion, Outcome, Position, Receipt,
    RecordedCommit, ReservationKey, TimerId, Version,
};

use super::objects::{LeaseCall, ReservationCall, TimerCall};

/// What a call came to.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Told<T> {
    /// This is the answer.
    Done(T),
    /// It was not applied, for this reason.
    NotApplied(ErrorKind),
    /// It may have been applied, now or later, or not.
    Unknown,
}

impl<T> From<Result<T, Error>> for Told<T> {
    fn from(result: Result<T, Error>) -> Self {
        match result {
            Ok(answer) => Self::Done(answer),
            Err(error) => match error.outcome() {
                Outcome::NotApplied => Self::NotApplied(error.kind().clone()),
                Outcome::Unknown => Self::Unknown,
            },
        }
    }
}

/// A commit as a client asked for it.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    pub(super) aggregate: AggregateId,
    pub(super) command: CommandId,
    pub(super) expected: ExpectedVersion,
    pub(super) events: Vec<Event>,
    /// The partition of a lease and the epoch of the fence on it.
    pub(super) fence: Option<(u32, u64)>,
    /// The key that it reserves for its command, for ever.
    pub(super) key: Option<ReservationKey>,
    /// The timer that it schedules.
    pub(super) timer: Option<TimerId>,
}

/// One call.
#[derive(Debug, Clone)]
pub(super) enum What {
    Append(Asked, Told<Receipt>),
    /// All or nothing.
    AppendAll(Vec<Asked>, Told<Vec<Receipt>>),
    Receipt(AggregateId, CommandId, Option<Receipt>),
    Head(AggregateId, Version),
    /// From version 1 to the end.
    Load(AggregateId, Vec<RecordedCommit>),
    /// By partition.
    Heads(Vec<Position>),
    /// All that is behind a position, and how far was looked.
    Read {
        partition: u32,
        after: Position,
        commits: Vec<RecordedCommit>,
        through: Position,
    },
    /// The next batch of a tail.
    Tail {
        partition: u32,
        after: Position,
        commits: Vec<RecordedCommit>,
        through: Position,
    },
    Lease(u32, LeaseCall),
    Reservation(ReservationCall),
    Timer(TimerCall),
}

/// One call, and when: stamps are given out in one order for all clients. A call that was answered before another was
/// begun has the lower stamps.
#[derive(Debug, Clone)]
pub(super) struct Call {
    pub(super) client: usize,
    pub(super) begun: u64,
    pub(super) ended: u64,
    pub(super) what: What,
}

/// Most calls of one history, many times what a right store is asked: those who follow a log that leads them round in
/// circles would follow it for ever.
pub(super) const MAX_CALLS: usize = 50_000;

/// Collects the calls of all clients.
#[derive(Debug, Default)]
pub(super) struct Recorder {
    stamps: AtomicU64,
    calls: Mutex<Vec<Call>>,
}

impl Recorder {
    /// The next stamp.
    pub(super) fn stamp(&self) -> u64 {
        self.stamps.fetch_add(1, Ordering::SeqCst)
    }

    /// A call that was begun at this stamp and is answered now.
    pub(super) fn ended(&self, client: usize, begun: u64, what: What) {
        let ended = self.stamp();
        self.ended_at(client, begun, ended, what);
    }

    /// A call that was answered at this stamp.
    pub(super) fn ended_at(&self, client: usize, begun: u64, ended: u64, what: What) {
        let mut calls = self.lock();
        assert!(calls.len() < MAX_CALLS, "{MAX_CALLS} calls were answered: this would never end");
        calls.push(Call { client, begun, ended, what });
    }

    /// All calls, in the order in which they were begun.
    pub(super) fn calls(&self) -> Vec<Call> {
        let mut calls = self.lock().clone();
        calls.sort_by_key(|call| call.begun);
        calls
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Call>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
