//! The same small story for any store: something of every topic, and all that can be read of it. What one version of a
//! store has written of it, later ones must be able to read ([`is_read_and_goes_on`]).

use std::time::Duration;

use futures_util::TryStreamExt as _;
use serde_json::json;
use wow_store_api::{
    AcquireLease, AggregateId, AggregateType, Attempt, Checkpoint, ClaimTimers, Clock as _, Commit,
    ContextName, Discarded, Due, EventStore, ExpectedVersion, Failure, FailureCounts, Fence, Heartbeat,
    Lease, LeaseAcquired, ListFailures, ListReservations, ManualClock, Member, MemberId, MemoryStore,
    OwnerId, Park, PartitionCount, PartitionId, Payload, Position, ReadPage, Receipt, RecordedCommit,
    Reservation, ReservationKey, ReservationOp, ReservationScope, SaveCheckpoint, SaveSnapshot,
    ScheduleTimer, Snapshot, StoreExt as _, SubscriptionName, Timer, TimerId, TimerOp, Timestamp,
};

/// How many partitions the contexts of the story have.
pub const PARTITIONS: u32 = 3;
const MINUTE: Duration = Duration::from_secs(60);

/// When it begins.
pub fn start() -> Timestamp {
    "2026-01-01T00:00:00.000Z".parse().unwrap()
}

fn shop() -> ContextName {
    ContextName::new("shop").unwrap()
}

fn bank() -> ContextName {
    ContextName::new("bank").unwrap()
}

fn partition(index: u32) -> PartitionId {
    PartitionId::new(shop(), index)
}

fn mailer() -> SubscriptionName {
    SubscriptionName::new("mailer").unwrap()
}

fn member(name: &str) -> MemberId {
    MemberId::new(name).unwrap()
}

fn emails() -> ReservationScope {
    ReservationScope::new("user.email").unwrap()
}

fn key(key: &str) -> ReservationKey {
    ReservationKey::new(key).unwrap()
}

fn owner(owner: &str) -> OwnerId {
    OwnerId::new(owner).unwrap()
}

fn timer_id(id: &str) -> TimerId {
    TimerId::new(id).unwrap()
}

fn order(id: &str) -> AggregateId {
    AggregateId::new("shop", "order", id).unwrap()
}

fn aggregates() -> Vec<AggregateId> {
    let mut all: Vec<AggregateId> = ["1", "2", "3", "π/日本\u{1F600}", "long"].map(order).into();
    all.push(order("1").with_tenant("acme").unwrap());
    all.push(AggregateId::new("shop", "cart", "1").unwrap());
    all.push(AggregateId::new("bank", "account", "1").unwrap());
    all
}

/// Letters that do not pack well, always the same.
fn letters(seed: u64, count: usize) -> String {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(b'a' + u8::try_from((state >> 33) % 26).unwrap())
    };
    (0..count).map(|_| next()).collect()
}

fn number(text: &str) -> Payload {
    Payload::from_json(text).unwrap()
}

/// Writes something of every topic. The clock moves along.
pub async fn tell(store: &dyn EventStore, clock: &ManualClock) {
    log(store, clock).await;
    subscription(store, clock).await;
    reservations_and_timers(store, clock).await;
}

async fn log(store: &dyn EventStore, clock: &ManualClock) {
    let body =
        json!({"total": 19, "lines": [{"sku": "a\"b", "note": null}, {"sku": ""}], "$set": {"a.b": true}});
    for id in aggregates() {
        clock.advance(MINUTE);
        let place = Commit::new(id.clone(), "place")
            .expect(ExpectedVersion::NoStream)
            .event("OrderPlaced", 1, &body)
            .unwrap()
            .with_event(wow_store_api::Event::new("Priced", 2, number("19.90")).unwrap())
            .metadata(&json!({"user": "ann"}))
            .unwrap();
        store.append(place).await.unwrap();
        for digits in ["1234567890.123456789012345678901234", "-0.0010", "18446744073709551615", "1e-6000"] {
            let counted = wow_store_api::Event::new("Counted", 0, number(digits)).unwrap();
            store
                .append(Commit::new(id.clone(), format!("count {digits}")).with_event(counted))
                .await
                .unwrap();
        }
    }
    // Enough for tables beside the journal.
    for n in 0..180 {
        let commit = Commit::new(order("long"), format!("long-{n}"));
        store.append(commit.event("Written", 1, &letters(n, 400)).unwrap()).await.unwrap();
    }
    let transfer = |id: &str| {
        let id = AggregateId::new("bank", "account", id).unwrap();
        Commit::new(id, "transfer-1").event("Moved", 1, &json!({"cents": 5})).unwrap()
    };
    store.append_all([transfer("2"), transfer("3"), transfer("1")]).await.unwrap();
    for (id, version, revision) in [("1", 3, 1), ("2", 5, 2), ("long", 100, 1)] {
        let state = json!({"id": id, "text": letters(version, 50)});
        store.save_snapshot(SaveSnapshot::new(order(id), version, revision, &state).unwrap()).await.unwrap();
    }
}

async fn subscription(store: &dyn EventStore, clock: &ManualClock) {
    let acquire =
        |index, name: &str| AcquireLease::new(mailer(), partition(index), member(name), 10 * MINUTE);
    for index in 0..PARTITIONS {
        store.acquire_lease(acquire(index, "a")).await.unwrap();
    }
    store.heartbeat(Heartbeat::new(mailer(), member("a"), 60 * 24 * MINUTE)).await.unwrap();
    clock.advance(10 * MINUTE);
    store.heartbeat(Heartbeat::new(mailer(), member("b"), 60 * 24 * MINUTE)).await.unwrap();
    let LeaseAcquired::Acquired(lease) = store.acquire_lease(acquire(1, "b")).await.unwrap() else {
        panic!()
    };
    assert_eq!(lease.epoch, 2);
    let LeaseAcquired::Acquired(lease) = store.acquire_lease(acquire(2, "b")).await.unwrap() else {
        panic!()
    };
    assert!(store.release_lease(&lease.token(&member("b"))).await.unwrap());
    let fence =
        Fence { group: SubscriptionName::new("elsewhere").unwrap(), partition: partition(0), epoch: 7 };
    let fenced = Commit::new(order("1"), "fenced").event("Checked", 1, &true).unwrap().fenced(fence);
    store.append(fenced).await.unwrap();

    store.save_checkpoint(SaveCheckpoint::new(mailer(), partition(0), 4)).await.unwrap();
    store.save_checkpoint(SaveCheckpoint::new(mailer(), partition(1), 2).with_epoch(2)).await.unwrap();

    for (id, fate) in [("1", "trying"), ("2", "parked"), ("3", "discarded"), ("long", "retrying")] {
        let commits: Vec<_> = store.load(&order(id), 2..=2).await.unwrap().try_collect().await.unwrap();
        let attempt = Attempt::new(mailer(), &commits[0]);
        store.record_attempt(attempt.clone()).await.unwrap();
        if fate != "trying" {
            store.park(Park::new(attempt, "no such mailbox").with_event("Counted")).await.unwrap();
        }
        if fate == "discarded" {
            assert!(store.discard(&mailer(), &order(id), 2).await.unwrap());
        }
        if fate == "retrying" {
            assert!(store.retry(&mailer(), &order(id)).await.unwrap());
        }
    }
}

async fn reservations_and_timers(store: &dyn EventStore, clock: &ManualClock) {
    let reserve = |name: &str, who: &str, expires_in| ReservationOp::Reserve {
        scope: emails(),
        key: key(name),
        owner: owner(who),
        expires_in,
    };
    store.reserve(reserve("ada@example.org", "user-1", None)).await.unwrap();
    store.reserve(reserve("bob@example.org", "user-2", Some(60 * 24 * MINUTE))).await.unwrap();
    store.reserve(reserve("gone@example.org", "user-3", Some(MINUTE))).await.unwrap();
    let riding = Commit::new(order("2"), "riding")
        .event("Registered", 1, &1)
        .unwrap()
        .reservation(reserve("cat@example.org", "user-4", None))
        .timer(TimerOp::Schedule(timer("ride", Due::After(90 * MINUTE))));
    store.append(riding).await.unwrap();
    for (id, minutes) in [("first", 1), ("second", 2), ("later", 600)] {
        let schedule =
            timer(id, Due::After(minutes * MINUTE)).with_target(order("1").with_tenant("acme").unwrap());
        store.schedule_timer(schedule).await.unwrap();
    }
    clock.advance(5 * MINUTE);
    let claim = ClaimTimers::new(shop(), member("a"), 60 * MINUTE).with_limit(1);
    let claimed = store.claim_timers(claim).await.unwrap();
    assert_eq!(claimed[0].id, "first");
}

fn timer(id: &str, due: Due) -> ScheduleTimer {
    ScheduleTimer::new(shop(), timer_id(id), due, &json!({"remind": id, "in": [1, 2]})).unwrap()
}

/// All that can be read of the story.
#[derive(Debug, PartialEq)]
pub struct Told {
    partitions: Vec<PartitionCount>,
    heads: Vec<Vec<Position>>,
    log: Vec<RecordedCommit>,
    streams: Vec<Vec<RecordedCommit>>,
    receipts: Vec<Option<Receipt>>,
    types: Vec<AggregateType>,
    snapshots: Vec<Option<Snapshot>>,
    leases: Vec<Lease>,
    members: Vec<Member>,
    checkpoints: Vec<Checkpoint>,
    failures: Vec<Failure>,
    discarded: Vec<Discarded>,
    counts: FailureCounts,
    reservations: Vec<Reservation>,
    timers: Vec<Timer>,
    next_due: Option<Timestamp>,
}

/// Reads all of it.
pub async fn read(store: &dyn EventStore) -> Told {
    let mut told = Told {
        partitions: Vec::new(),
        heads: Vec::new(),
        log: Vec::new(),
        streams: Vec::new(),
        receipts: Vec::new(),
        types: store.aggregate_types().await.unwrap(),
        snapshots: Vec::new(),
        leases: store.leases(&mailer(), &shop()).await.unwrap(),
        members: store.members(&mailer()).await.unwrap(),
        checkpoints: store.checkpoints(&shop()).await.unwrap(),
        failures: store.failures(ListFailures::new(mailer())).await.unwrap(),
        discarded: store.discarded(&mailer(), 10).await.unwrap(),
        counts: store.failure_counts(&mailer()).await.unwrap(),
        reservations: store.reservations(ListReservations::default()).await.unwrap(),
        timers: store.timers(&shop(), None, 100).await.unwrap(),
        next_due: store.next_due(&shop()).await.unwrap(),
    };
    let elsewhere = SubscriptionName::new("elsewhere").unwrap();
    told.leases.extend(store.leases(&elsewhere, &shop()).await.unwrap());
    for timer in &mut told.timers {
        if let Some(claim) = &mut timer.claim {
            // Made at random.
            claim.claim = Default::default();
        }
    }
    for context in [shop(), bank()] {
        told.partitions.push(store.partitions(&context).await.unwrap());
        told.heads.push(store.heads(&context).await.unwrap());
        for index in 0..PARTITIONS {
            let page = ReadPage::new(PartitionId::new(context.clone(), index), 0).with_max_commits(10_000);
            told.log.extend(store.read(page).await.unwrap().commits);
        }
    }
    for id in aggregates() {
        let commits: Vec<_> = store.load(&id, ..).await.unwrap().try_collect().await.unwrap();
        for commit in &commits {
            told.receipts.push(store.receipt(&id, &commit.command_id).await.unwrap());
        }
        told.streams.push(commits);
        for revision in 1..=2 {
            told.snapshots.push(store.snapshot(&id, revision).await.unwrap());
        }
    }
    told
}

/// Goes on with the story where it stopped.
pub async fn go_on(store: &dyn EventStore, clock: &ManualClock) {
    clock.advance(120 * MINUTE);
    for id in aggregates() {
        let head = store.head(&id).await.unwrap();
        let next = Commit::new(id, "next").expect(ExpectedVersion::Exact(head));
        store.append(next.event("WentOn", 1, &head).unwrap()).await.unwrap();
    }
    let claim = ClaimTimers::new(shop(), member("b"), 60 * MINUTE);
    let due: Vec<String> =
        store.claim_timers(claim).await.unwrap().iter().map(|timer| timer.id.to_string()).collect();
    assert_eq!(due, ["first", "second", "ride"], "the claim that expired is due again");
    store.save_checkpoint(SaveCheckpoint::new(mailer(), partition(0), 9)).await.unwrap();
    let LeaseAcquired::Acquired(lease) =
        store.acquire_lease(AcquireLease::new(mailer(), partition(1), member("c"), MINUTE)).await.unwrap()
    else {
        panic!("the lease has expired")
    };
    assert_eq!(lease.epoch, 3, "epochs go on where they were");
}

/// Checks that a store that an earlier version has written, and that `open` opens with this clock at [`start`], has all
/// of the story, and goes on as the store in memory does, which the contract is written in; also after it was opened
/// again.
pub async fn is_read_and_goes_on<S: EventStore>(clock: &ManualClock, open: impl AsyncFn() -> S) {
    let partitions = PartitionCount::new(PARTITIONS).unwrap();
    let memory = MemoryStore::builder().partitions(partitions).clock(clock.clone()).build();
    tell(&memory, clock).await;
    let store = open().await;
    assert_eq!(read(&store).await, read(&memory).await, "all of it is there");
    // One clock for both: each gets it as it was.
    let paused = clock.now();
    go_on(&memory, clock).await;
    clock.set(paused);
    go_on(&store, clock).await;
    store.close().await.unwrap();
    let store = open().await;
    assert_eq!(read(&store).await, read(&memory).await, "and what came after it");
    store.close().await.unwrap();
}
