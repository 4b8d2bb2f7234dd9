//! The few values that random operations are made of: so few that they meet.

use std::{fmt, time::Duration};

use proptest::{collection::vec, option, prelude::*, sample::select};
use wow_store_api::{
    AggregateId, AggregateName, Attempt, CommitFilter, ContextName, Due, EventName, FailedCommit, Fence,
    MAX_COUNTER, MAX_TTL, MemberId, OwnerId, PartitionId, Payload, ReservationKey, ReservationOp,
    ReservationScope, ScheduleTimer, SubscriptionName, TimerId, TimerOp, Timestamp,
};

/// A document that shows itself.
#[derive(Clone)]
pub(super) struct Doc(pub(super) Payload);

impl fmt::Debug for Doc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_json())
    }
}

const DOCUMENTS: &[&str] = &[
    "null",
    "1",
    r#"{"n":1}"#,
    r#"{"n":1.10,"s":"ab"}"#,
    r#"{"n":1.1,"s":"b","tags":["a","b"]}"#,
    r#"{"n":-3,"s":null}"#,
    r#"{"n":12345678901234567890.5,"tags":[]}"#,
    r#"{"n":9223372036854775808,"s":"a"}"#,
    r#"{"s":"$gt","a":{"b":1}}"#,
    r#"{"a":{"b":null},"$x":{"":1},"c.d":2}"#,
    "{}",
    r#"[1,2,{"n":1}]"#,
    r#"{"n":10,"s":"Ab%","tags":["1",1,"ab"]}"#,
    r#"{"n":2,"s":"1","tags":"a","c":{"d":1}}"#,
];

pub(super) fn doc() -> impl Strategy<Value = Doc> + Clone {
    select(DOCUMENTS).prop_map(|text| Doc(Payload::from_json(text).expect("a valid document")))
}

fn id(context: &str, aggregate: &str, id: &str) -> AggregateId {
    AggregateId::new(context, aggregate, id).expect("a valid id")
}

pub(super) fn aggregate() -> impl Strategy<Value = AggregateId> + Clone {
    let order = id("shop", "order", "a");
    let tenant = order.clone().with_tenant("t").expect("a valid tenant");
    let (upper, other) = (id("shop", "order", "A"), id("shop", "order", "b"));
    let twice = [order.clone(), order.clone(), other.clone()];
    let ids = twice.into_iter().chain([order, upper, other, id("shop", "cart", "a"), tenant]);
    prop_oneof![8 => select(ids.collect::<Vec<_>>()).boxed(), 1 => Just(id("bank", "order", "a")).boxed()]
}

pub(super) fn context() -> impl Strategy<Value = ContextName> + Clone {
    let name = |name: &str| ContextName::new(name).expect("a valid name");
    prop_oneof![6 => Just(name("shop")), 1 => Just(name("bank"))]
}

/// Mostly one of the partitions that there are, rarely one that there is not.
pub(super) fn partition() -> impl Strategy<Value = PartitionId> + Clone {
    let index =
        prop_oneof![12 => 0..super::PARTITIONS, 1 => Just(super::PARTITIONS), 1 => Just(u32::MAX / 2)];
    (context(), index).prop_map(|(context, index)| PartitionId::new(context, index))
}

/// A partition of a lease: any name will do, so there are few.
pub(super) fn leased() -> impl Strategy<Value = PartitionId> + Clone {
    let index = prop_oneof![10 => 0..2u32, 1 => Just(2), 1 => Just(10)];
    index.prop_map(|index| PartitionId::new(ContextName::new("shop").expect("a valid name"), index))
}

macro_rules! one_of {
    ($($function:ident -> $name:ident [$($text:literal),+];)+) => {$(
        pub(super) fn $function() -> impl Strategy<Value = $name> + Clone {
            select(&[$($text),+][..]).prop_map(|text| $name::new(text).expect("a valid name"))
        }
    )+};
}

one_of! {
    group -> SubscriptionName ["mailer", "mailer", "mailer", "Mailer", "stats"];
    member -> MemberId ["m1", "m2", "M1"];
    scope -> ReservationScope ["email", "email", "code"];
    key -> ReservationKey ["k1", "k2", "K2", "k2 "];
    owner -> OwnerId ["o1", "o1", "o2", "O1"];
    timer -> TimerId ["t1", "t2", "T1"];
    event -> EventName ["Placed", "Paid"];
    aggregate_name -> AggregateName ["order", "cart"];
}

pub(super) fn command() -> impl Strategy<Value = String> + Clone {
    (0..12u8).prop_map(|n| format!("c{n}"))
}

/// Positions and versions: small, rarely at the end of what there is.
pub(super) fn counter() -> impl Strategy<Value = u64> + Clone {
    prop_oneof![20 => 0..9u64, 1 => Just(MAX_COUNTER), 1 => Just(u64::MAX)]
}

pub(super) fn epoch() -> impl Strategy<Value = u64> + Clone {
    prop_oneof![30 => 0..4u64, 3 => 4..7u64, 1 => Just(MAX_COUNTER), 1 => Just(MAX_COUNTER + 1)]
}

pub(super) fn limit() -> impl Strategy<Value = usize> + Clone {
    prop_oneof![1 => Just(0), 4 => 1..3usize, 4 => Just(1_000)]
}

/// Times to live, in the seconds that [`Step::Pass`](super::step::Step) passes.
pub(super) fn ttl() -> impl Strategy<Value = Duration> + Clone {
    let odd = [Duration::ZERO, Duration::from_micros(1), MAX_TTL, MAX_TTL + Duration::from_nanos(1)];
    prop_oneof![
        10 => (1..4u64).prop_map(Duration::from_secs).boxed(),
        10 => Just(Duration::from_secs(3_600)).boxed(),
        2 => Just(Duration::from_micros(999_001)).boxed(),
        1 => select(odd.to_vec()).boxed()
    ]
}

fn valid_ttl() -> impl Strategy<Value = Duration> + Clone {
    prop_oneof![
        4 => (1..4u64).prop_map(Duration::from_secs),
        4 => Just(Duration::from_secs(3_600)),
        1 => Just(Duration::from_micros(999_001)),
        1 => Just(MAX_TTL)
    ]
}

pub(super) fn fence() -> impl Strategy<Value = Fence> + Clone {
    (group(), leased(), epoch()).prop_map(|(group, partition, epoch)| Fence { group, partition, epoch })
}

pub(super) fn due() -> impl Strategy<Value = Due> + Clone {
    prop_oneof![
        (0..4u64).prop_map(|seconds| Due::After(Duration::from_secs(seconds))),
        Just(Due::After(Duration::from_micros(999_001))),
        (-1..3i64).prop_map(|second| Due::At(Timestamp::from_millis(second * 1_000).expect("an instant"))),
    ]
}

pub(super) fn schedule() -> impl Strategy<Value = ScheduleTimer> + Clone {
    (context(), timer(), due(), doc(), option::weighted(0.2, aggregate()), any::<bool>()).prop_map(
        |(context, id, due, body, target, replace)| {
            let mut schedule = ScheduleTimer::new(context, id, due, &0).expect("a valid body");
            schedule.body = body.0;
            schedule.target = target;
            schedule.replace = replace;
            schedule
        },
    )
}

pub(super) fn timer_op() -> impl Strategy<Value = TimerOp> + Clone {
    prop_oneof![
        // The fence of a timer that rides does not count.
        3 => (schedule(), option::weighted(0.1, fence()))
            .prop_map(|(schedule, fence)| TimerOp::Schedule(ScheduleTimer { fence, ..schedule }))
            .boxed(),
        1 => (context(), timer()).prop_map(|(context, id)| TimerOp::Cancel { context, id }).boxed()
    ]
}

pub(super) fn reservation_op(
    ttl: impl Strategy<Value = Duration> + Clone + 'static,
) -> impl Strategy<Value = ReservationOp> + Clone {
    let expires_in = option::weighted(0.7, ttl);
    prop_oneof![
        4 => (scope(), key(), owner(), expires_in)
            .prop_map(|(scope, key, owner, expires_in)| ReservationOp::Reserve { scope, key, owner, expires_in })
            .boxed(),
        2 => (scope(), key(), owner())
            .prop_map(|(scope, key, owner)| ReservationOp::Confirm { scope, key, owner })
            .boxed(),
        2 => (scope(), key(), owner())
            .prop_map(|(scope, key, owner)| ReservationOp::Release { scope, key, owner })
            .boxed(),
        2 => (scope(), key(), key(), owner())
            .prop_map(|(scope, from, to, owner)| ReservationOp::Swap { scope, from, to, owner })
            .boxed()
    ]
}

pub(super) fn riding_reservation() -> impl Strategy<Value = ReservationOp> + Clone {
    reservation_op(valid_ttl())
}

pub(super) fn filter() -> impl Strategy<Value = CommitFilter> + Clone {
    let aggregates = option::weighted(0.3, vec(aggregate_name(), 0..2));
    let events = option::weighted(0.3, vec(event(), 0..2));
    (aggregates, events).prop_map(|(aggregates, events)| {
        let filter = CommitFilter::all();
        let filter = match aggregates {
            Some(names) => filter.with_aggregates(names),
            None => filter,
        };
        match events {
            Some(names) => filter.with_events(names),
            None => filter,
        }
    })
}

/// Few aggregates, so that entries of the ledger live long enough.
pub(super) fn failing() -> impl Strategy<Value = AggregateId> + Clone {
    select(vec![id("shop", "order", "a"), id("shop", "order", "a"), id("shop", "order", "b")])
}

pub(super) fn attempt() -> impl Strategy<Value = Attempt> + Clone {
    let counter = || prop_oneof![20 => 1..6u64, 1 => Just(0)];
    (group(), failing(), leased(), counter(), counter(), option::weighted(0.5, epoch())).prop_map(
        |(subscription, aggregate_id, partition, position, version, epoch)| Attempt {
            subscription,
            aggregate_id,
            partition,
            commit: FailedCommit { position, version },
            epoch,
        },
    )
}
