//! What a history is made of.

use std::time::Duration;

use proptest::{collection::vec, option, prelude::*, strategy::Union};
use wow_store_api::{
    AcquireLease, AggregateId, AggregateType, Attempt, ClaimTimers, CommitFilter, ContextName, Event,
    FailureState, Fence, Heartbeat, ListFailures, ListReservations, MAX_CLAIM, MAX_FAILURE_TEXT_BYTES,
    MemberId, Park, PartitionId, ReservationKey, ReservationOp, ReservationScope, SaveCheckpoint,
    SaveSnapshot, ScheduleTimer, SubscriptionName, TimerId, TimerOp, Version,
    query::{EventQuery, SnapshotQuery},
};

use super::{query, values::*};

/// One operation of a history. `second` says through which handle it goes.
#[derive(Debug, Clone)]
pub(super) enum Step {
    Append(Write),
    AppendAll(Vec<Write>),
    Receipt(AggregateId, String),
    Head(AggregateId),
    Load(AggregateId, Version, Version),
    /// At so many seconds after the history's begin.
    LoadAsOf(AggregateId, u64),
    Partitions(ContextName),
    Heads(ContextName),
    Read {
        partition: PartitionId,
        after: u64,
        max_commits: usize,
        max_bytes: usize,
        filter: CommitFilter,
    },
    /// A new tail, read as far as it goes at once.
    Tail {
        context: ContextName,
        max_commits: usize,
        filter: CommitFilter,
    },
    Types,

    SaveCheckpoint(SaveCheckpoint),
    ResetCheckpoint(SaveCheckpoint),
    Checkpoint(SubscriptionName, PartitionId),
    Checkpoints(ContextName),

    Acquire(AcquireLease),
    Renew(Vec<GivenOut>, Duration),
    ReleaseLease(GivenOut),
    Leases(SubscriptionName, ContextName),
    Heartbeat(Heartbeat),
    Members(SubscriptionName),
    Leave(SubscriptionName, MemberId),

    SaveSnapshot(SaveSnapshot),
    Snapshot(AggregateId, u32),
    DeleteSnapshot(AggregateId),
    DropSnapshots(AggregateType),

    RecordAttempt(Attempt),
    Park(Park),
    Retry(SubscriptionName, AggregateId),
    Discard(SubscriptionName, AggregateId, Version),
    Advance(Attempt),
    Resolve(Attempt),
    Failure(SubscriptionName, AggregateId),
    Failures(ListFailures),
    Discarded(SubscriptionName, usize),
    FailureCounts(SubscriptionName),

    Reserve(ReservationOp),
    Reservation(ReservationScope, ReservationKey),
    Reservations(ListReservations),

    Schedule(ScheduleTimer),
    CancelTimer(ContextName, TimerId),
    Claim(ClaimTimers),
    Complete(GivenOut),
    ReleaseTimer(GivenOut, Duration),
    NextDue(ContextName),
    Timers(ContextName, Option<TimerId>, usize),

    /// All pages.
    QuerySnapshots(SnapshotQuery),
    CountSnapshots(SnapshotQuery),
    QueryEvents(EventQuery),
    CountEvents(EventQuery),

    /// Time passes on the store's clock, where it can be set.
    Pass(Duration),
    /// Everything is closed and opened again.
    Reopen,
}

/// A token that was given out earlier.
#[derive(Debug, Clone, Copy)]
pub(super) struct GivenOut {
    /// Counted from the last one.
    pub(super) back: usize,
    /// Made to look like somebody else's.
    pub(super) forged: bool,
}

/// A commit to be.
#[derive(Debug, Clone)]
pub(super) struct Write {
    pub(super) aggregate: AggregateId,
    pub(super) command: String,
    pub(super) expected: Expected,
    pub(super) events: Vec<(wow_store_api::EventName, Doc)>,
    pub(super) metadata: Option<Doc>,
    pub(super) fence: Option<Fence>,
    pub(super) reservations: Vec<ReservationOp>,
    pub(super) timers: Vec<TimerOp>,
}

/// An expected version.
#[derive(Debug, Clone, Copy)]
pub(super) enum Expected {
    Any,
    NoStream,
    Exact(Version),
    /// The version that the aggregate is at.
    Head,
}

impl Write {
    pub(super) fn events(&self) -> impl Iterator<Item = Event> {
        self.events.iter().map(|(name, body)| Event { name: name.clone(), revision: 1, body: body.0.clone() })
    }
}

/// What a history is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Theme {
    /// The log, alone.
    Log,
    /// Leases and members, alone.
    Leases,
    /// What is fenced by leases.
    Fences,
    /// Snapshots.
    Snapshots,
    /// Queries over snapshots and events.
    Queries,
    /// The failure ledger.
    Ledger,
    /// Reservations, alone and riding in appends.
    Reservations,
    /// Timers, alone and riding in appends.
    Timers,
    /// All of it.
    Everything,
}

impl Theme {
    pub(crate) const ALL: &'static [Self] = &[
        Self::Log,
        Self::Leases,
        Self::Fences,
        Self::Snapshots,
        Self::Queries,
        Self::Ledger,
        Self::Reservations,
        Self::Timers,
        Self::Everything,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::Leases => "leases",
            Self::Fences => "fences",
            Self::Snapshots => "snapshots",
            Self::Queries => "queries",
            Self::Ledger => "ledger",
            Self::Reservations => "reservations",
            Self::Timers => "timers",
            Self::Everything => "everything",
        }
    }

    fn steps(self) -> Union<BoxedStrategy<Step>> {
        let parts: Vec<(u32, BoxedStrategy<Step>)> = match self {
            Self::Log => vec![(10, appends(Riding::Nothing)), (10, reads())],
            Self::Leases => vec![(20, leases())],
            Self::Fences => {
                vec![(8, appends(Riding::Fences)), (2, reads()), (10, checkpoints()), (6, leases())]
            }
            Self::Snapshots => vec![(8, appends(Riding::Nothing)), (12, snapshots())],
            Self::Queries => vec![(8, appends(Riding::Nothing)), (8, snapshots()), (16, queries())],
            Self::Ledger => vec![(20, ledger()), (1, leases())],
            Self::Reservations => vec![(4, appends(Riding::Everything)), (20, reservations())],
            Self::Timers => vec![(4, appends(Riding::Everything)), (20, timers()), (1, leases())],
            Self::Everything => vec![
                (8, appends(Riding::Everything)),
                (4, reads()),
                (3, checkpoints()),
                (3, leases()),
                (3, snapshots()),
                (3, ledger()),
                (3, reservations()),
                (3, timers()),
                (2, queries()),
            ],
        };
        let always = [(3, pass()), (1, Just(Step::Reopen).boxed())];
        Union::new_weighted(parts.into_iter().chain(always).collect())
    }

    /// Histories of up to so many steps, each through the first or the second handle.
    pub(super) fn histories(self, steps: usize) -> impl Strategy<Value = Vec<(Handle, Step)>> {
        vec((prop_oneof![2 => Just(Handle::First), 1 => Just(Handle::Second)], self.steps()), 1..=steps)
    }
}

/// Through which handle a step goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Handle {
    First,
    Second,
}

/// What rides in appends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Riding {
    Nothing,
    Fences,
    Everything,
}

fn write(riding: Riding) -> BoxedStrategy<Write> {
    let expected = prop_oneof![
        4 => Just(Expected::Head),
        3 => Just(Expected::Any),
        1 => Just(Expected::NoStream),
        2 => (0..6u64).prop_map(Expected::Exact),
    ];
    let riders = match riding {
        Riding::Nothing | Riding::Fences => 0..=0,
        Riding::Everything => 0..=2usize,
    };
    let fence = match riding {
        Riding::Nothing => Just(None).boxed(),
        Riding::Fences => option::weighted(0.7, fence()).boxed(),
        Riding::Everything => option::weighted(0.1, fence()).boxed(),
    };
    let told = (aggregate(), command(), expected, vec((event(), doc()), 1..=2), option::weighted(0.2, doc()));
    let rides = (fence, vec(riding_reservation(), riders.clone()), vec(timer_op(), riders));
    (told, rides)
        .prop_map(|((aggregate, command, expected, events, metadata), (fence, reservations, timers))| Write {
            aggregate,
            command,
            expected,
            events,
            metadata,
            fence,
            reservations,
            timers,
        })
        .prop_map(keep_context)
        .boxed()
}

/// A commit's timers are of its own context.
fn keep_context(mut write: Write) -> Write {
    let own = write.aggregate.context().clone();
    for op in &mut write.timers {
        match op {
            TimerOp::Schedule(schedule) => schedule.context = own.clone(),
            TimerOp::Cancel { context, .. } => *context = own.clone(),
        }
    }
    write
}

fn appends(riding: Riding) -> BoxedStrategy<Step> {
    prop_oneof![
        5 => write(riding).prop_map(Step::Append),
        2 => vec(write(riding), 0..=3).prop_map(Step::AppendAll),
    ]
    .boxed()
}

fn reads() -> BoxedStrategy<Step> {
    let page =
        (partition(), counter(), 1..4usize, prop_oneof![Just(1usize), Just(60), Just(1 << 20)], filter());
    prop_oneof![
        (aggregate(), command()).prop_map(|(id, command)| Step::Receipt(id, command)),
        aggregate().prop_map(Step::Head),
        (aggregate(), counter(), counter()).prop_map(|(id, first, last)| Step::Load(id, first, last)),
        (aggregate(), 0..8u64).prop_map(|(id, seconds)| Step::LoadAsOf(id, seconds)),
        context().prop_map(Step::Heads),
        context().prop_map(Step::Partitions),
        page.prop_map(|(partition, after, max_commits, max_bytes, filter)| Step::Read {
            partition,
            after,
            max_commits,
            max_bytes,
            filter
        }),
        (context(), 1..4usize, filter()).prop_map(|(context, max_commits, filter)| Step::Tail {
            context,
            max_commits,
            filter
        }),
        Just(Step::Types),
    ]
    .boxed()
}

fn given_out() -> impl Strategy<Value = GivenOut> {
    let forged = prop_oneof![6 => Just(false), 1 => Just(true)];
    (0..3usize, forged).prop_map(|(back, forged)| GivenOut { back, forged })
}

fn checkpoints() -> BoxedStrategy<Step> {
    let save = || {
        (group(), leased(), counter(), option::weighted(0.6, epoch())).prop_map(
            |(subscription, partition, position, epoch)| SaveCheckpoint {
                subscription,
                partition,
                position,
                epoch,
            },
        )
    };
    prop_oneof![
        5 => save().prop_map(Step::SaveCheckpoint),
        2 => save().prop_map(Step::ResetCheckpoint),
        2 => (group(), leased()).prop_map(|(group, partition)| Step::Checkpoint(group, partition)),
        1 => context().prop_map(Step::Checkpoints),
    ]
    .boxed()
}

fn leases() -> BoxedStrategy<Step> {
    prop_oneof![
        6 => (group(), leased(), member(), ttl())
            .prop_map(|(group, partition, member, ttl)| Step::Acquire(AcquireLease::new(group, partition, member, ttl))),
        3 => (vec(given_out(), 0..3), ttl()).prop_map(|(tokens, ttl)| Step::Renew(tokens, ttl)),
        3 => given_out().prop_map(Step::ReleaseLease),
        2 => (group(), context()).prop_map(|(group, context)| Step::Leases(group, context)),
        3 => (group(), member(), ttl())
            .prop_map(|(group, member, ttl)| Step::Heartbeat(Heartbeat::new(group, member, ttl))),
        4 => group().prop_map(Step::Members),
        1 => (group(), member()).prop_map(|(group, member)| Step::Leave(group, member)),
    ]
    .boxed()
}

fn snapshots() -> BoxedStrategy<Step> {
    let version = prop_oneof![1 => Just(0), 12 => 1..4u64, 1 => 4..6u64];
    let revision = || prop_oneof![1 => Just(0u32), 4 => Just(1), 2 => Just(2)];
    let save =
        (aggregate(), version, revision(), doc()).prop_map(|(aggregate_id, version, revision, state)| {
            SaveSnapshot { aggregate_id, version, revision, state: state.0 }
        });
    let order = || AggregateType::new("shop", "order").expect("a valid type");
    prop_oneof![
        6 => save.prop_map(Step::SaveSnapshot),
        4 => (aggregate(), revision()).prop_map(|(id, revision)| Step::Snapshot(id, revision)),
        2 => aggregate().prop_map(Step::DeleteSnapshot),
        1 => Just(Step::DropSnapshots(order())),
    ]
    .boxed()
}

fn ledger() -> BoxedStrategy<Step> {
    let long = "€".repeat(MAX_FAILURE_TEXT_BYTES / 3 + 1);
    let error =
        prop_oneof![6 => Just("no".to_owned()), 2 => Just("broken\0 pipe".to_owned()), 1 => Just(long)];
    let park = (attempt(), option::of(Just("Placed".to_owned())), error)
        .prop_map(|(attempt, event, error)| Park { attempt, event, error });
    let state =
        prop_oneof![Just(FailureState::Trying), Just(FailureState::Parked), Just(FailureState::Retrying)];
    let list = (
        group(),
        option::weighted(0.3, leased()),
        option::weighted(0.5, state),
        option::weighted(0.3, aggregate()),
        limit(),
    )
        .prop_map(|(subscription, partition, state, after, limit)| ListFailures {
            subscription,
            partition,
            state,
            after,
            limit,
        });
    prop_oneof![
        4 => attempt().prop_map(Step::RecordAttempt),
        4 => park.prop_map(Step::Park),
        3 => (group(), failing()).prop_map(|(group, id)| Step::Retry(group, id)),
        3 => (group(), failing(), 1..4u64).prop_map(|(group, id, version)| Step::Discard(group, id, version)),
        3 => attempt().prop_map(Step::Advance),
        3 => attempt().prop_map(Step::Resolve),
        1 => (group(), failing()).prop_map(|(group, id)| Step::Failure(group, id)),
        1 => list.prop_map(Step::Failures),
        2 => (group(), limit()).prop_map(|(group, limit)| Step::Discarded(group, limit)),
        1 => group().prop_map(Step::FailureCounts),
    ]
    .boxed()
}

fn reservations() -> BoxedStrategy<Step> {
    let list = (option::of(scope()), option::of((scope(), key())), limit())
        .prop_map(|(scope, after, limit)| ListReservations { scope, after, limit });
    prop_oneof![
        8 => reservation_op(ttl()).prop_map(Step::Reserve),
        2 => (scope(), key()).prop_map(|(scope, key)| Step::Reservation(scope, key)),
        1 => list.prop_map(Step::Reservations),
    ]
    .boxed()
}

fn timers() -> BoxedStrategy<Step> {
    let schedule = (schedule(), option::weighted(0.2, fence()))
        .prop_map(|(schedule, fence)| ScheduleTimer { fence, ..schedule });
    let claimed = prop_oneof![20 => 0..4usize, 1 => Just(MAX_CLAIM), 1 => Just(MAX_CLAIM + 1)];
    let claim = (context(), member(), ttl(), claimed).prop_map(|(context, member, ttl, limit)| ClaimTimers {
        context,
        member,
        ttl,
        limit,
    });
    let retry_in = prop_oneof![Just(Duration::ZERO), Just(Duration::from_secs(2))];
    prop_oneof![
        5 => schedule.prop_map(Step::Schedule),
        1 => (context(), timer()).prop_map(|(context, id)| Step::CancelTimer(context, id)),
        5 => claim.prop_map(Step::Claim),
        2 => given_out().prop_map(Step::Complete),
        2 => (given_out(), retry_in).prop_map(|(claim, retry_in)| Step::ReleaseTimer(claim, retry_in)),
        1 => context().prop_map(Step::NextDue),
        1 => (context(), option::of(timer()), limit())
            .prop_map(|(context, after, limit)| Step::Timers(context, after, limit)),
    ]
    .boxed()
}

fn queries() -> BoxedStrategy<Step> {
    prop_oneof![
        3 => query::snapshots().prop_map(Step::QuerySnapshots),
        1 => query::snapshots().prop_map(Step::CountSnapshots),
        3 => query::events().prop_map(Step::QueryEvents),
        1 => query::events().prop_map(Step::CountEvents),
    ]
    .boxed()
}

fn pass() -> BoxedStrategy<Step> {
    let millis = prop_oneof![Just(1_000), Just(999), Just(1), Just(2_000), Just(4_000)];
    millis.prop_map(|millis| Step::Pass(Duration::from_millis(millis))).boxed()
}
