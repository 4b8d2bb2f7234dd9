//! How many round trips an operation takes: they are what a network makes slow.

use std::time::Duration;

use futures_util::{TryStreamExt as _, future::join_all};
use wow_store_api::{
    AcquireLease, AggregateId, Attempt, ClaimTimers, Due, ExpectedVersion, Heartbeat, MemberId,
    PartitionCount, PartitionId, ReadPage, SaveCheckpoint, SaveSnapshot, ScheduleTimer, SubscriptionName,
    TimerId,
    prelude::*,
    query::{AtLeast, EventQuery, SnapshotQuery},
};
use wow_store_mongo::MongoStore;

use crate::{
    spy::Spy,
    support::{Database, commit, order, shop},
};

/// A transaction on the common path: the counter, the commits, the end.
const WRITE: [&str; 3] = ["findAndModify", "insert", "commitTransaction"];

async fn watched(database: &Database) -> (MongoStore, Spy) {
    let spy = Spy::default();
    let config = spy.config(database).await.with_partitions(PartitionCount::new(1).unwrap());
    (MongoStore::open(config).await.unwrap(), spy)
}

macro_rules! assert_sends {
    ($spy:expr, $commands:expr, $claim:literal, $work:expr) => {{
        let _ = $spy.take();
        $work.unwrap();
        assert_eq!($spy.take_names(), $commands, "{}", $claim);
    }};
}

#[tokio::test]
async fn an_append_is_three_round_trips_and_one_that_is_there_needs_a_look() {
    let database = Database::fresh();
    let (store, spy) = watched(&database).await;
    let id = order("1");
    store.append(commit(&id, "0")).await.unwrap();
    assert_sends!(spy, WRITE, "an append behind what is known", store.append(commit(&id, "1")).await);
    let first = commit(&order("2"), "0").expect(ExpectedVersion::NoStream);
    assert_sends!(spy, WRITE, "the first of an aggregate", store.append(first).await);
    let exact = commit(&id, "2").expect(ExpectedVersion::Exact(2));
    assert_sends!(spy, WRITE, "behind a version", store.append(exact).await);
    let look = ["aggregate", "findAndModify", "insert", "commitTransaction"];
    assert_sends!(
        spy,
        look,
        "to an aggregate that this node has not seen",
        store.append(commit(&order("3"), "0")).await
    );
    let both = vec![commit(&id, "a"), commit(&order("2"), "a")];
    assert_sends!(spy, WRITE, "two of one partition", store.append_all(both).await);
    store.append(commit(&id, "1")).await.unwrap();
    // That one is aborted is told to the server besides.
    let sent: Vec<_> = spy.take_names().into_iter().filter(|name| name != "abortTransaction").collect();
    let refused = ["findAndModify", "insert"];
    let found = ["findAndModify", "aggregate", "commitTransaction"];
    assert_eq!(sent, [&refused[..], &found].concat(), "a command that is there");
}

// On one thread, so that every append is queued when the writer's turn comes.
#[tokio::test]
async fn what_arrives_together_is_one_transaction() {
    let database = Database::fresh();
    let (store, spy) = watched(&database).await;
    store.append(commit(&order("first"), "c")).await.unwrap();
    let _ = spy.take();
    let appends = (0..100).map(|number| {
        let store = store.clone();
        let commit = commit(&order(format!("{number}")), "c").expect(ExpectedVersion::NoStream);
        tokio::spawn(async move { store.append(commit).await })
    });
    let receipts = join_all(appends.collect::<Vec<_>>()).await;
    let last = receipts.into_iter().map(|receipt| receipt.unwrap().unwrap().position).max();
    assert_eq!(last, Some(101), "all are stored");
    let sent = spy.take_names();
    assert!(sent.len() <= 2 * WRITE.len(), "perhaps the first alone, then the rest together: {sent:?}");
}

#[tokio::test]
async fn what_is_read_often_takes_as_few_round_trips_as_it_can() {
    let database = Database::fresh();
    let (store, spy) = watched(&database).await;
    let (id, partition) = (order("1"), PartitionId::new(shop(), 0));
    for number in 0..50 {
        store.append(commit(&id, format!("{number}"))).await.unwrap();
    }
    assert_sends!(spy, ["find"], "head", store.head(&id).await);
    assert_sends!(spy, ["find"], "receipt", store.receipt(&id, &"1".parse().unwrap()).await);
    assert_sends!(spy, ["find"], "heads", store.heads(&shop()).await);
    assert_sends!(
        spy,
        ["find"],
        "load",
        async { store.load(&id, ..).await?.try_collect::<Vec<_>>().await }.await
    );
    let page = |after| store.read(ReadPage::new(partition.clone(), after));
    assert_sends!(spy, ["find", "find"], "a page: how far it goes, and what is in it", page(0).await);
    assert_sends!(spy, ["find"], "a page at the end", page(50).await);
    store.append(commit(&AggregateId::new("shop", "cart", "1").unwrap(), "0")).await.unwrap();
    assert_sends!(spy, ["find", "find", "find"], "a page of two types", page(0).await);

    store.save_snapshot(SaveSnapshot::new(id.clone(), 1, 1, &1).unwrap()).await.unwrap();
    assert_sends!(spy, ["find", "find"], "a snapshot, and that its log has it", store.snapshot(&id, 1).await);
    let next = SaveSnapshot::new(id.clone(), 2, 1, &2).unwrap();
    assert_sends!(spy, ["find", "find", "findAndModify"], "a new snapshot", store.save_snapshot(next).await);
    let snapshots = SnapshotQuery::new(id.aggregate_type().clone(), 1);
    assert_sends!(spy, ["aggregate"], "a query", store.query_snapshots(snapshots.clone()).await);
    let sees = snapshots.with_at_least(AtLeast::new(id.clone(), 2));
    assert_sends!(spy, ["aggregate", "aggregate"], "one that waits", store.query_snapshots(sees).await);
    let events = EventQuery::new(id.aggregate_type().clone());
    assert_sends!(spy, ["aggregate"], "a query of events", store.query_events(events).await);
}

#[tokio::test]
async fn records_take_one_round_trip_each_unless_a_transaction_is_needed() {
    let database = Database::fresh();
    let (store, spy) = watched(&database).await;
    let (id, partition) = (order("1"), PartitionId::new(shop(), 0));
    store.append(commit(&id, "0")).await.unwrap();
    let member = MemberId::new("node").unwrap();
    let group = SubscriptionName::new("totals").unwrap();
    let minute = Duration::from_secs(60);

    let lease = AcquireLease::new(group.clone(), partition.clone(), member.clone(), minute);
    store.acquire_lease(lease).await.unwrap();
    let token = store.leases(&group, &shop()).await.unwrap()[0].token(&member);
    let renewal = ["update", "aggregate", "commitTransaction"];
    assert_sends!(spy, renewal, "renewal of many leases", {
        store.renew_leases(&vec![token.clone(); 50], minute).await
    });
    assert_sends!(spy, ["find"], "leases", store.leases(&group, &shop()).await);
    let heartbeat = Heartbeat::new(group.clone(), member.clone(), minute);
    assert_sends!(spy, ["findAndModify"], "heartbeat", store.heartbeat(heartbeat).await);
    assert_sends!(spy, ["find"], "members", store.members(&group).await);

    let save = SaveCheckpoint::new(group.clone(), partition.clone(), 1);
    assert_sends!(spy, ["findAndModify"], "a checkpoint", store.save_checkpoint(save.clone()).await);
    let fenced = ["findAndModify", "findAndModify", "commitTransaction"];
    assert_sends!(spy, fenced, "a fenced one", store.save_checkpoint(save.with_epoch(token.epoch)).await);
    assert_sends!(spy, ["find"], "what it is", store.checkpoint(&group, &partition).await);

    let failed = store.load(&id, 1..=1).await.unwrap().try_next().await.unwrap().unwrap();
    let attempt = ["find", "aggregate", "update", "commitTransaction"];
    assert_sends!(
        spy,
        attempt,
        "an attempt",
        store.record_attempt(Attempt::new(group.clone(), &failed)).await
    );

    let timer = |name: &str, due| {
        ScheduleTimer::new(shop(), TimerId::new(name).unwrap(), Due::After(due), &1).unwrap()
    };
    store.schedule_timer(timer("first", minute)).await.unwrap();
    let claim = ClaimTimers::new(shop(), member.clone(), minute);
    assert_sends!(spy, ["find"], "no timer is due", store.claim_timers(claim.clone()).await);
    assert_sends!(spy, ["findAndModify"], "schedule", {
        store.schedule_timer(timer("second", Duration::ZERO)).await
    });
    let due = ["find", "aggregate", "update", "aggregate", "commitTransaction"];
    assert_sends!(spy, due, "one is due", store.claim_timers(claim).await);
    assert_sends!(spy, ["find"], "when the next is due", store.next_due(&shop()).await);
}
