//! Every command that looks for something goes by an index: the server explains each as it was sent.

use std::time::Duration;

use futures_util::TryStreamExt as _;
use mongodb::bson::{Bson, Document, doc};
use wow_store_api::{
    AcquireLease, AggregateId, Attempt, ClaimTimers, Commit, CommitFilter, Discarded, Due, Fence, Heartbeat,
    ListFailures, ListReservations, MemberId, OwnerId, Park, PartitionCount, PartitionId, ReadPage,
    ReservationKey, ReservationOp, ReservationScope, SaveCheckpoint, SaveSnapshot, ScheduleTimer,
    SubscriptionName, TimerId,
    prelude::*,
    query::{EventQuery, Field, Filter, SnapshotQuery, Sort},
};
use wow_store_mongo::MongoStore;

use crate::{
    spy::Spy,
    support::{Database, commit, order, shop},
};

/// What belongs to the session and not to the question.
const OF_THE_SESSION: [&str; 9] = [
    "$db",
    "lsid",
    "$clusterTime",
    "txnNumber",
    "startTransaction",
    "autocommit",
    "readConcern",
    "writeConcern",
    "$readPreference",
];

/// Everything in a small collection is wanted: one document for each type, or for each partition.
fn wants_all(command: &Document) -> bool {
    let small = ["wow_log_aggregate", "wow_format"];
    let collection = command.values().next().and_then(Bson::as_str).unwrap_or_default();
    small.contains(&collection) || collection.ends_with("__partition")
}

/// Every stage of a plan, however deep.
fn stages(value: &Bson, found: &mut Vec<Document>) {
    match value {
        Bson::Document(document) => {
            // What was not chosen does not count.
            for (key, value) in document {
                if key != "rejectedPlans" && key != "command" {
                    stages(value, found);
                }
            }
            found.push(document.clone());
        }
        Bson::Array(values) => values.iter().for_each(|value| stages(value, found)),
        _ => {}
    }
}

async fn explain(database: &mongodb::Database, sent: &Document) -> Option<Vec<Document>> {
    let name = sent.keys().next()?.as_str();
    if !["find", "aggregate", "findAndModify", "update", "delete"].contains(&name) {
        return None;
    }
    let mut command = sent.clone();
    for key in OF_THE_SESSION {
        command.remove(key);
    }
    // One of many is explained.
    if let Ok(updates) = command.get_array_mut("updates") {
        updates.truncate(1);
    }
    let explained = database
        .run_command(doc! { "explain": command, "verbosity": "executionStats" })
        .await
        .unwrap_or_else(|error| panic!("{sent}: {error}"));
    let mut found = Vec::new();
    stages(&Bson::Document(explained), &mut found);
    Some(found)
}

/// Nothing is scanned, nothing is sorted in memory.
async fn check(database: &mongodb::Database, what: &str, sent: &[Document], sorts: bool) -> usize {
    let mut checked = 0;
    for command in sent {
        let Some(stages) = explain(database, command).await else { continue };
        checked += 1;
        for stage in stages {
            let name = stage.get_str("stage").unwrap_or_default();
            if !wants_all(command) {
                assert_ne!(name, "COLLSCAN", "{what} goes by an index: {command}");
            }
            assert!(sorts || name != "SORT", "{what} comes in order: {command}");
            if let Some(scans) = stage.get("collectionScans") {
                let none = [Bson::Int64(0), Bson::Int32(0)].contains(scans);
                assert!(none, "{what} looks things up by an index: {command}");
            }
        }
    }
    checked
}

#[tokio::test]
async fn every_command_goes_by_an_index() {
    let database = Database::fresh();
    let spy = Spy::default();
    let config = spy.config(&database).await.with_partitions(PartitionCount::new(2).unwrap());
    let store = MongoStore::open(config).await.unwrap();
    let server = database.connect().await;
    let (id, partition) = (order("1"), PartitionId::new(shop(), 0));
    let member = MemberId::new("node").unwrap();
    let group = SubscriptionName::new("totals").unwrap();
    let scope = ReservationScope::new("email").unwrap();
    let minute = Duration::from_secs(60);
    let reserve = |number: u32| ReservationOp::Reserve {
        scope: scope.clone(),
        key: ReservationKey::new(format!("{number}")).unwrap(),
        owner: OwnerId::new("1").unwrap(),
        expires_in: None,
    };
    let timer = |name: String| {
        ScheduleTimer::new(shop(), TimerId::new(name).unwrap(), Due::After(Duration::ZERO), &1).unwrap()
    };
    // So much that an index is worth it.
    for number in 0..40 {
        let id = order(format!("{}", number % 10));
        store.append(commit(&id, format!("{number}"))).await.unwrap();
        store.save_snapshot(SaveSnapshot::new(id, 1, 1, &1).unwrap()).await.unwrap();
        store.reserve(reserve(number)).await.unwrap();
        store.schedule_timer(timer(format!("{number}"))).await.unwrap();
    }
    store.append(commit(&AggregateId::new("shop", "cart", "1").unwrap(), "0")).await.unwrap();
    let mut checked = 0;
    macro_rules! check {
        ($what:literal, $work:expr) => {
            check!($what, $work, false)
        };
        ($what:literal, $work:expr, $sorts:expr) => {{
            let _ = spy.take();
            $work.unwrap();
            checked += check(&server, $what, &spy.take(), $sorts).await;
        }};
    }
    check!("an append", store.append(commit(&id, "x")).await);
    check!("an append that looks", store.append(commit(&order("unseen"), "x")).await);
    check!("a command that is there", store.append(commit(&id, "x")).await);
    let rider = Commit::new(id.clone(), "y").event("Happened", 1, &1).unwrap().reservation(reserve(99));
    check!(
        "an append with a rider",
        store
            .append(rider.fenced(Fence { group: group.clone(), partition: partition.clone(), epoch: 1 }))
            .await
    );
    check!("head", store.head(&id).await);
    check!("receipt", store.receipt(&id, &"1".parse().unwrap()).await);
    check!("heads", store.heads(&shop()).await);
    check!("load", async { store.load(&id, 1..3).await?.try_collect::<Vec<_>>().await }.await);
    check!(
        "load as of",
        async {
            let now = store.now().await?;
            store.load_as_of(&id, now).await?.try_collect::<Vec<_>>().await
        }
        .await
    );
    check!("a page", store.read(ReadPage::new(partition.clone(), 1)).await);
    let filter = CommitFilter::all().with_events(["Happened".parse().unwrap()]);
    check!("a page of some", store.read(ReadPage::new(partition.clone(), 1).with_filter(filter)).await);
    check!("the types", store.aggregate_types().await);

    check!("a snapshot", store.snapshot(&id, 1).await);
    check!("a save", store.save_snapshot(SaveSnapshot::new(id.clone(), 2, 1, &2).unwrap()).await);
    let snapshots = || SnapshotQuery::new(id.aggregate_type().clone(), 1);
    check!("all snapshots", store.query_snapshots(snapshots()).await);
    let equal = Filter::eq(Field::Id, "1");
    check!("some snapshots", store.query_snapshots(snapshots().with_filter(equal.clone())).await);
    check!("how many", store.count_snapshots(snapshots()).await);
    let sorted = snapshots().with_sort([Sort::descending(Field::Version)]);
    check!("in an order of one's own", store.query_snapshots(sorted).await, true);
    check!("all events", store.query_events(EventQuery::new(id.aggregate_type().clone())).await);

    let lease = AcquireLease::new(group.clone(), partition.clone(), member.clone(), minute);
    check!("a lease", store.acquire_lease(lease.clone()).await);
    check!("a lease that is held", store.acquire_lease(lease).await);
    let token = store.leases(&group, &shop()).await.unwrap()[0].token(&member);
    check!("renewal", store.renew_leases(std::slice::from_ref(&token), minute).await);
    check!("leases", store.leases(&group, &shop()).await);
    check!("heartbeat", store.heartbeat(Heartbeat::new(group.clone(), member.clone(), minute)).await);
    check!("members", store.members(&group).await);
    check!("leave", store.leave(&group, &member).await);
    let save = SaveCheckpoint::new(group.clone(), partition.clone(), 1);
    check!("a checkpoint", store.save_checkpoint(save.clone().with_epoch(token.epoch)).await);
    check!("a checkpoint without a fence", store.save_checkpoint(save).await);
    check!("checkpoint", store.checkpoint(&group, &partition).await);
    check!("checkpoints", store.checkpoints(&shop()).await);
    check!("release", store.release_lease(&token).await);

    let failed = store.load(&id, 1..=1).await.unwrap().try_next().await.unwrap().unwrap();
    let attempt = || Attempt::new(group.clone(), &failed);
    check!("an attempt", store.record_attempt(attempt()).await);
    check!("park", store.park(Park::new(attempt(), "no")).await);
    check!("failure", store.failure(&group, &id).await);
    check!("failures", store.failures(ListFailures::new(group.clone())).await);
    check!("discard", store.discard(&group, &id, 1).await);
    check!("retry", store.retry(&group, &id).await);
    let discarded: Vec<Discarded> = store.discarded(&group, 10).await.unwrap();
    assert_eq!(discarded.len(), 1, "it was discarded");
    check!("discarded", store.discarded(&group, 10).await);
    check!("counts", store.failure_counts(&group).await);
    check!("resolve", store.resolve(attempt()).await);

    check!("a key", store.reserve(reserve(1)).await);
    let key = ReservationKey::new("1").unwrap();
    check!("who has a key", store.reservation(&scope, &key).await);
    let of_scope = ListReservations { scope: Some(scope.clone()), limit: 10, ..ListReservations::default() };
    check!("keys of a scope", store.reservations(of_scope).await);
    check!("all keys", store.reservations(ListReservations::default()).await);

    check!("schedule", store.schedule_timer(timer("new".to_owned())).await);
    let claim = ClaimTimers::new(shop(), member.clone(), minute).with_limit(2);
    // Those that were claimed are read again and put in order: they are few.
    check!("claim", store.claim_timers(claim).await, true);
    check!("when the next is due", store.next_due(&shop()).await);
    check!("timers", store.timers(&shop(), None, 10).await);
    check!("cancel", store.cancel_timer(&shop(), &TimerId::new("new").unwrap()).await);
    assert!(checked > 60, "that many commands were looked at: {checked}");
}
