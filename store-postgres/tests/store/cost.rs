//! How many round trips and statements an operation takes, seen from outside: they are what a network makes slow.

use std::{sync::Arc, time::Duration};

use futures::{TryStreamExt as _, future::join_all};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _};
use wow_store_api::{
    AcquireLease, Attempt, ClaimTimers, Commit, Due, Heartbeat, MemberId, OwnerId, PartitionCount, ReadPage,
    ReservationKey, ReservationOp, ReservationScope, SaveCheckpoint, SaveSnapshot, ScheduleTimer,
    SubscriptionName, TimerId, prelude::*,
};
use wow_store_postgres::{Pooler, PostgresConfig, PostgresStore};

use crate::{
    proxy::{Cost, Proxy},
    support::{Schema, commit, context, first_partition, order},
};

const ONE: Cost = Cost { trips: 1, statements: 1 };

/// A store behind a proxy, with one connection that has prepared nothing yet, and nobody else on the line.
async fn behind_proxy(schema: &Schema) -> (PostgresStore, Proxy) {
    let proxy = Proxy::start(schema.url()).await;
    let config = PostgresConfig::new(&proxy.url(schema.url())).unwrap().with_schema(schema.name());
    let config = config.with_pooler(Pooler::Direct).with_push(false).with_max_connections(1);
    let config =
        config.with_partitions(PartitionCount::new(1).unwrap()).with_poll_interval(Duration::from_secs(3600));
    (PostgresStore::open(config).await.unwrap(), proxy)
}

/// Counts the second time: the first prepares the statement.
macro_rules! assert_cost {
    ($proxy:expr, $cost:expr, $claim:literal, $work:expr) => {{
        $work.unwrap();
        let (done, cost) = $proxy.cost(async { $work }).await;
        done.unwrap();
        assert_eq!(cost, $cost, "{}", $claim);
    }};
}

#[tokio::test]
async fn what_is_done_often_is_one_statement_in_one_round_trip() {
    let schema = Schema::fresh();
    let (store, proxy) = behind_proxy(&schema).await;
    let member = MemberId::new("node").unwrap();
    let group = SubscriptionName::new("totals").unwrap();
    let partition = first_partition();
    let (minute, id) = (Duration::from_secs(60), order("1"));
    let mut number = 0;
    let mut next = || {
        number += 1;
        format!("{number}")
    };
    assert_cost!(proxy, ONE, "append", store.append(commit(&id, next())).await);
    assert_cost!(proxy, ONE, "append of a command that is there", store.append(commit(&id, "1")).await);
    assert_cost!(proxy, ONE, "receipt", store.receipt(&id, &"1".parse().unwrap()).await);
    assert_cost!(proxy, ONE, "head", store.head(&id).await);
    assert_cost!(proxy, ONE, "heads", store.heads(&context()).await);
    assert_cost!(proxy, ONE, "page of the log", store.read(ReadPage::new(partition.clone(), 0)).await);
    for command in 0..500 {
        store.append(commit(&order("long"), format!("{command}"))).await.unwrap();
    }
    assert_cost!(
        proxy,
        ONE,
        "load of an aggregate",
        async { store.load(&order("long"), ..).await?.try_collect::<Vec<_>>().await }.await
    );

    let lease = AcquireLease::new(group.clone(), partition.clone(), member.clone(), minute);
    store.acquire_lease(lease.clone()).await.unwrap();
    let token = store.leases(&group, &context()).await.unwrap()[0].token(&member);
    assert_cost!(proxy, ONE, "renewal of all leases", {
        store.renew_leases(&vec![token.clone(); 100], minute).await
    });
    assert_cost!(proxy, ONE, "leases", store.leases(&group, &context()).await);
    let heartbeat = Heartbeat::new(group.clone(), member.clone(), minute);
    assert_cost!(proxy, ONE, "heartbeat", store.heartbeat(heartbeat.clone()).await);
    assert_cost!(proxy, ONE, "members", store.members(&group).await);
    let save = SaveCheckpoint::new(group.clone(), partition.clone(), 1).with_epoch(token.epoch);
    assert_cost!(proxy, ONE, "save of a fenced checkpoint", store.save_checkpoint(save.clone()).await);
    assert_cost!(proxy, ONE, "checkpoint", store.checkpoint(&group, &partition).await);

    let failed = store.load(&id, 1..=1).await.unwrap().try_next().await.unwrap().unwrap();
    let attempt = Attempt::new(group.clone(), &failed).with_epoch(token.epoch);
    assert_cost!(proxy, ONE, "count of an attempt", store.record_attempt(attempt.clone()).await);

    let due = Due::After(Duration::ZERO);
    assert_cost!(proxy, ONE, "schedule", {
        let timer = ScheduleTimer::new(context(), TimerId::new(next()).unwrap(), due, &1).unwrap();
        store.schedule_timer(timer).await
    });
    assert_cost!(proxy, ONE, "due timers", {
        store.claim_timers(ClaimTimers::new(context(), member.clone(), minute)).await
    });
    assert_cost!(proxy, ONE, "when the next timer is due", store.next_due(&context()).await);
    store.save_snapshot(SaveSnapshot::new(id.clone(), 1, 1, &1).unwrap()).await.unwrap();
    assert_cost!(proxy, ONE, "snapshot", store.snapshot(&id, 1).await);
    assert_eq!(proxy.connections(), 1, "all on one connection");
}

#[tokio::test]
async fn what_is_done_seldom_takes_a_few() {
    let schema = Schema::fresh();
    let (store, proxy) = behind_proxy(&schema).await;
    let id = order("1");
    store.append(commit(&id, "0")).await.unwrap();
    let mut number = 0;
    let mut save = || {
        number += 1;
        SaveSnapshot::new(id.clone(), 1, number, &1).unwrap()
    };
    store.save_snapshot(save()).await.unwrap();
    store.save_snapshot(save()).await.unwrap();
    let again = SaveSnapshot::new(id.clone(), 1, 2, &1).unwrap();
    let (saved, seen) = proxy.cost(store.save_snapshot(again)).await;
    saved.unwrap();
    assert!(seen.trips <= 2, "a look and a write: {seen:?}");
    let reserve = |number: u32| {
        Commit::new(id.clone(), format!("r{number}")).event("Placed", 1, &1).unwrap().reservation(
            ReservationOp::Reserve {
                scope: ReservationScope::new("email").unwrap(),
                key: ReservationKey::new(format!("{number}")).unwrap(),
                owner: OwnerId::new("1").unwrap(),
                expires_in: None,
            },
        )
    };
    store.append(reserve(1)).await.unwrap();
    let (appended, seen) = proxy.cost(store.append(reserve(2))).await;
    appended.unwrap();
    // begin, lock, place, now, look, insert, counter, put, commit
    assert!(seen.trips <= 9, "an append with a reservation: {seen:?}");
}

// On one thread, so that every append is queued when the writer's turn comes.
#[tokio::test]
async fn what_arrives_together_is_one_statement() {
    let schema = Schema::fresh();
    let (store, proxy) = behind_proxy(&schema).await;
    store.append(commit(&order("first"), "c")).await.unwrap();
    let counter = schema.at("wow_log__shop__partition");
    let mut holder = schema.connect().await;
    let mut transaction = holder.begin().await.unwrap();
    transaction.execute(AssertSqlSafe(format!("SELECT * FROM {counter} FOR UPDATE"))).await.unwrap();
    let store = Arc::new(store);
    let (receipts, cost) = proxy
        .cost(async {
            let append = |number: u32| {
                let store = Arc::clone(&store);
                tokio::spawn(async move { store.append(commit(&order(&format!("{number}")), "c")).await })
            };
            let mut appends = vec![append(0)];
            // The writer is busy: what comes now has to wait for it.
            schema.somebody_waits_for(&mut transaction).await;
            appends.extend((1..100).map(append));
            tokio::task::yield_now().await;
            transaction.commit().await.unwrap();
            join_all(appends).await
        })
        .await;
    let positions: Vec<u64> =
        receipts.into_iter().map(|receipt| receipt.unwrap().unwrap().position()).collect();
    assert_eq!(positions.iter().max(), Some(&101), "all are stored");
    assert_eq!(cost, Cost { trips: 2, statements: 2 }, "one for the first, one for the other ninety-nine");
}
