//! Another session holds a lock that an append needs.

use std::{sync::Arc, time::Duration};

use sqlx::{AssertSqlSafe, Executor as _, PgConnection};
use tokio::time::Instant;
use wow_store_api::{AggregateId, Commit, ErrorKind, EventStore, Outcome, PartitionCount, Result};
use wow_store_conformance::witness::{Follower, Load, Plan, with_rider};

use crate::node::{GRACE, PATIENCE, Scene, open, shared, shop};

const TIMEOUT: Duration = Duration::from_millis(300);
const POLL: Duration = Duration::from_secs(1);

/// What is locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    /// The counter of the partition that the appends go to.
    Counter,
    /// The whole table of the log, for everyone, as for an `ALTER TABLE`.
    Log,
}

async fn lock(scene: &Scene, what: What, partition: u32) -> PgConnection {
    let mut connection = scene.schema.connect().await;
    let sql = match what {
        What::Counter => {
            let counter = scene.schema.at("wow_log__shop__partition");
            format!("BEGIN; SELECT position FROM {counter} WHERE partition = {partition} FOR UPDATE")
        }
        What::Log => {
            format!("BEGIN; LOCK TABLE {} IN ACCESS EXCLUSIVE MODE", scene.schema.at("wow_log__shop__order"))
        }
    };
    connection.execute(sqlx::raw_sql(AssertSqlSafe(sql))).await.expect("the lock is free");
    connection
}

fn commit(id: &AggregateId, command: &str) -> Commit {
    Commit::new(id.clone(), command).event("Happened", 1, &1).unwrap()
}

async fn held_lock(what: What) {
    let scene = Scene::on(shared());
    let config = || scene.config().with_partitions(PartitionCount::new(2).unwrap()).with_poll_interval(POLL);
    let hasty = open(config().with_transaction_timeout(TIMEOUT)).await;
    let patient = open(config().with_transaction_timeout(PATIENCE)).await;
    let follower = Follower::start(Arc::clone(&patient), shop()).await;
    let count = hasty.partitions(&shop()).await.expect("the partitions");
    let order = |n: u32| AggregateId::new("shop", "order", n.to_string()).unwrap();
    let here: Vec<_> =
        (0..200).map(order).filter(|id| count.partition_of(id).index() == 0).take(20).collect();
    let there = (0..200).map(order).find(|id| count.partition_of(id).index() == 1).unwrap();
    for id in here.iter().chain([&there]) {
        scene.witness.append(&hasty, commit(id, "before")).await.expect("nothing is locked yet");
    }

    let locked = lock(&scene, what, 0).await;
    let start = Instant::now();
    let spawn = |store: &Arc<dyn EventStore>, id: &AggregateId, command: &str| {
        let (witness, store, command) = (Arc::clone(&scene.witness), Arc::clone(store), command.to_owned());
        // One in four goes the careful way.
        let careful = id.id().ends_with(['3', '7']);
        let commit = commit(id, &command);
        let commit = if careful { with_rider(commit, &command) } else { commit };
        tokio::spawn(async move { witness.append(&store, commit).await })
    };
    let refused: Vec<_> = here.iter().map(|id| spawn(&hasty, id, "hasty")).collect();
    let waiting: Vec<_> = here.iter().map(|id| spawn(&patient, id, "patient")).collect();
    for refused in refused {
        let answer: Result<_> = refused.await.unwrap();
        let error = answer.expect_err("the lock is held");
        assert!(matches!(error.kind(), ErrorKind::Timeout), "it says that the time was over: {error:?}");
        assert_eq!(error.outcome(), Outcome::NotApplied, "whoever waits for a lock has stored nothing");
    }
    let waited = start.elapsed();
    assert!(waited >= TIMEOUT, "it is waited for: {waited:?}");
    assert!(waited < TIMEOUT + GRACE, "but no longer than the deadline: {waited:?}");
    if what == What::Counter {
        // The other partition does not care.
        scene.witness.append(&hasty, commit(&there, "meanwhile")).await.expect("it is not locked");
    }
    assert!(waiting.iter().all(|waiting| !waiting.is_finished()), "who may wait longer does");

    drop(locked);
    for waiting in waiting {
        waiting.await.unwrap().expect("the lock is free again");
    }
    for id in &here {
        scene.witness.append(&hasty, commit(id, "after")).await.expect("the lock is free again");
    }
    follower.reaches(&hasty.heads(&shop()).await.expect("heads"), POLL + GRACE).await;
    println!("{what:?}: {}", scene.witness.check(&hasty, &[&follower]).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn held_counter_is_waited_for_until_the_deadline() {
    held_lock(What::Counter).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn held_table_is_waited_for_until_the_deadline() {
    held_lock(What::Log).await;
}

/// Somebody takes locks time and again, and stays in a transaction in between, as migrations and consoles do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_that_come_and_go_lose_nothing() {
    let scene = Scene::on(shared());
    let stores = [
        open(scene.config().with_transaction_timeout(PATIENCE)).await,
        open(scene.config().with_transaction_timeout(Duration::from_millis(50))).await,
    ];
    let follower = Follower::start(Arc::clone(&stores[0]), shop()).await;
    let load = Load::start(&scene.witness, &stores, Plan::default(), "l");
    scene.witness.acknowledges(50, PATIENCE).await;
    for n in 0..20_u32 {
        let what = if n % 2 == 0 { What::Counter } else { What::Log };
        let locked = lock(&scene, what, n % 3).await;
        // Somebody gives up, and others, whom the lock does not concern, go on.
        let id = AggregateId::new("shop", "order", "impatient").unwrap();
        let _ = scene.witness.append(&stores[1], commit(&id, &format!("impatient-{n}"))).await;
        drop(locked);
        scene.witness.acknowledges(10, PATIENCE).await;
    }
    load.stop().await;
    follower.reaches(&stores[0].heads(&shop()).await.expect("heads"), POLL + GRACE).await;
    println!("{}", scene.witness.check(&stores[0], &[&follower]).await);
}
