//! Answers, in a form that two stores can be compared by.

use std::collections::BTreeMap;

use uuid::Uuid;
use wow_store_api::{
    Checkpoint, CheckpointSaved, Discarded, Error, ErrorKind, Failure, FailureCounts, Lease, LeaseAcquired,
    LeaseRenewed, Member, Outcome, Page, Position, Receipt, RecordedCommit, Reservation, ReservationOutcome,
    Snapshot, SnapshotSaved, Timer, TimerScheduled, Timestamp,
    query::{EventItem, SnapshotItem},
};

/// What a store answered.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Answer {
    /// There was nothing to do.
    Nothing,
    Bool(bool),
    Number(u64),
    Numbers(Vec<u64>),
    Texts(Vec<String>),
    Receipts(Vec<Receipt>),
    MaybeReceipt(Option<Receipt>),
    Commits(Vec<RecordedCommit>),
    Page(Page),
    /// Per partition, what was delivered and through which position.
    Tail(BTreeMap<u32, (Vec<RecordedCommit>, Position)>),
    Checkpoint(Option<Checkpoint>),
    Checkpoints(Vec<Checkpoint>),
    CheckpointSaved(CheckpointSaved),
    LeaseAcquired(LeaseAcquired),
    LeasesRenewed(Vec<LeaseRenewed>),
    Leases(Vec<Lease>),
    Members(Vec<Member>),
    SnapshotSaved(SnapshotSaved),
    Snapshot(Option<Snapshot>),
    Failure(Option<Failure>),
    Failures(Vec<Failure>),
    Discarded(Vec<Discarded>),
    FailureCounts(FailureCounts),
    ReservationOutcome(ReservationOutcome),
    Reservation(Option<Reservation>),
    Reservations(Vec<Reservation>),
    TimerScheduled(TimerScheduled),
    Timers(Vec<Timer>),
    Instant(Option<Timestamp>),
    /// Page by page.
    Snapshots(Vec<Vec<SnapshotItem>>),
    Events(Vec<Vec<EventItem>>),
    Error(ErrorKind, Outcome),
}

impl From<Error> for Answer {
    fn from(error: Error) -> Self {
        Self::Error(error.kind().clone(), error.outcome())
    }
}

/// Which instants an answer is compared by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Instants {
    /// Both stores have the same time.
    Exact,
    /// Each store has its own time.
    Any,
}

impl Answer {
    /// Without what may differ between two right stores: texts for humans, ids of claims, and instants if the stores
    /// have different clocks.
    pub(super) fn normalised(mut self, instants: Instants) -> Self {
        self.visit_claims(&mut |claim| *claim = Uuid::nil());
        if instants == Instants::Any {
            self.visit_instants(&mut |instant| *instant = Timestamp::UNIX_EPOCH);
        }
        if let Self::Error(kind, _) = &mut self {
            blank(kind);
        }
        self
    }

    fn visit_claims(&mut self, visit: &mut dyn FnMut(&mut Uuid)) {
        let timers = match self {
            Self::Timers(timers) => timers.as_mut_slice(),
            Self::TimerScheduled(TimerScheduled::Scheduled(timer) | TimerScheduled::Exists(timer)) => {
                std::slice::from_mut(timer)
            }
            _ => return,
        };
        for claim in timers.iter_mut().filter_map(|timer| timer.claim.as_mut()) {
            visit(&mut claim.claim);
        }
    }

    fn visit_instants(&mut self, visit: &mut dyn FnMut(&mut Timestamp)) {
        let commit = |commit: &mut RecordedCommit, visit: &mut dyn FnMut(&mut Timestamp)| {
            visit(&mut commit.committed_at);
        };
        let failure = |failure: &mut Failure, visit: &mut dyn FnMut(&mut Timestamp)| {
            visit(&mut failure.since);
            visit(&mut failure.updated_at);
        };
        let reservation = |reservation: &mut Reservation, visit: &mut dyn FnMut(&mut Timestamp)| {
            visit(&mut reservation.reserved_at);
            reservation.expires_at.iter_mut().for_each(visit);
        };
        let timer = |timer: &mut Timer, visit: &mut dyn FnMut(&mut Timestamp)| {
            visit(&mut timer.due_at);
            visit(&mut timer.scheduled_at);
            timer.claim.iter_mut().for_each(|claim| visit(&mut claim.expires_at));
        };
        match self {
            Self::Receipts(receipts) => {
                receipts.iter_mut().for_each(|receipt| visit(&mut receipt.committed_at))
            }
            Self::MaybeReceipt(receipt) => {
                receipt.iter_mut().for_each(|receipt| visit(&mut receipt.committed_at));
            }
            Self::Commits(commits) => commits.iter_mut().for_each(|it| commit(it, visit)),
            Self::Page(page) => page.commits.iter_mut().for_each(|it| commit(it, visit)),
            Self::Tail(partitions) => {
                partitions.values_mut().flat_map(|(commits, _)| commits).for_each(|it| commit(it, visit));
            }
            Self::Checkpoint(checkpoint) => checkpoint.iter_mut().for_each(|it| visit(&mut it.saved_at)),
            Self::Checkpoints(checkpoints) => checkpoints.iter_mut().for_each(|it| visit(&mut it.saved_at)),
            Self::LeaseAcquired(LeaseAcquired::Acquired(lease) | LeaseAcquired::Held(lease)) => {
                visit(&mut lease.expires_at);
            }
            Self::LeasesRenewed(renewed) => renewed.iter_mut().for_each(|renewed| match renewed {
                LeaseRenewed::Renewed(until) => visit(until),
                LeaseRenewed::Lost => {}
            }),
            Self::Leases(leases) => leases.iter_mut().for_each(|lease| visit(&mut lease.expires_at)),
            Self::Members(members) => members.iter_mut().for_each(|member| {
                visit(&mut member.joined_at);
                visit(&mut member.expires_at);
            }),
            Self::Snapshot(snapshot) => snapshot.iter_mut().for_each(|it| visit(&mut it.saved_at)),
            Self::Failure(found) => found.iter_mut().for_each(|it| failure(it, visit)),
            Self::Failures(failures) => failures.iter_mut().for_each(|it| failure(it, visit)),
            Self::Discarded(discarded) => discarded.iter_mut().for_each(|it| visit(&mut it.discarded_at)),
            Self::ReservationOutcome(ReservationOutcome::Held(it) | ReservationOutcome::Taken(it)) => {
                reservation(it, visit);
            }
            Self::Reservation(found) => found.iter_mut().for_each(|it| reservation(it, visit)),
            Self::Reservations(found) => found.iter_mut().for_each(|it| reservation(it, visit)),
            Self::TimerScheduled(TimerScheduled::Scheduled(it) | TimerScheduled::Exists(it)) => {
                timer(it, visit)
            }
            Self::Timers(timers) => timers.iter_mut().for_each(|it| timer(it, visit)),
            Self::Instant(instant) => instant.iter_mut().for_each(visit),
            Self::Snapshots(pages) => pages.iter_mut().flatten().for_each(|it| visit(&mut it.saved_at)),
            Self::Events(pages) => pages.iter_mut().flatten().for_each(|it| visit(&mut it.committed_at)),
            Self::Nothing
            | Self::Bool(_)
            | Self::Number(_)
            | Self::Numbers(_)
            | Self::Texts(_)
            | Self::CheckpointSaved(_)
            | Self::SnapshotSaved(_)
            | Self::FailureCounts(_)
            | Self::ReservationOutcome(ReservationOutcome::Released | ReservationOutcome::NotHeld)
            | Self::Error(..) => {}
        }
    }
}

/// Takes the texts for humans out of an error.
fn blank(kind: &mut ErrorKind) {
    match kind {
        ErrorKind::InvalidName { reason, .. }
        | ErrorKind::InvalidInput { reason }
        | ErrorKind::Corrupt { reason, .. }
        | ErrorKind::Poisoned { reason }
        | ErrorKind::Unavailable { reason }
        | ErrorKind::Misconfigured { reason }
        | ErrorKind::Internal { reason } => reason.clear(),
        ErrorKind::Locked { holder } => holder.clear(),
        _ => {}
    }
}

/// The answer as a text that shows documents too.
pub(super) fn show(answer: &Answer) -> String {
    let commit = |commit: &RecordedCommit| {
        let bodies: Vec<&str> = commit.events.iter().map(|event| event.body.as_json()).collect();
        format!(" {}@{} {}", commit.aggregate_id, commit.version, bodies.join(" "))
    };
    let documents: String = match answer {
        Answer::Commits(commits) => commits.iter().map(commit).collect(),
        Answer::Page(page) => page.commits.iter().map(commit).collect(),
        Answer::Tail(partitions) => {
            partitions.values().flat_map(|(commits, _)| commits).map(commit).collect()
        }
        Answer::Snapshot(Some(snapshot)) => format!(" {}", snapshot.state.as_json()),
        Answer::Timers(timers) => timers.iter().map(|timer| format!(" {}", timer.body.as_json())).collect(),
        Answer::Snapshots(pages) => {
            pages.iter().flatten().map(|item| format!(" {}", item.state.as_json())).collect()
        }
        Answer::Events(pages) => {
            pages.iter().flatten().map(|item| format!(" {}", item.body.as_json())).collect()
        }
        _ => String::new(),
    };
    match documents.is_empty() {
        true => format!("{answer:?}"),
        false => format!("{answer:?}\n      with{documents}"),
    }
}
