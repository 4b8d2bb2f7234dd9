//! What breaks the stream of changes: its cursor, its history, its permission.

use std::{sync::Arc, time::Duration};

use mongodb::bson::{Document, doc};
use wow_store_api::{EventStore, StoreAdmin as _, StoreExt as _, Tail, TailRequest};
use wow_store_mongo::{MongoConfig, MongoStore, PushState};

use crate::{
    point::{FailPoint, UNDER_TEST},
    scene::open,
    support::{Database, commit, eventually, order, shop},
};

fn config(database: &Database) -> MongoConfig {
    database.config_named(UNDER_TEST)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tail_hears_of_everything_whatever_happens_to_its_stream() {
    let database = Database::fresh();
    let point = FailPoint::new(&database).await;
    let watching =
        MongoStore::open(config(&database).with_poll_interval(Duration::from_millis(200))).await.unwrap();
    let state = watching.clone();
    let watching: Arc<dyn EventStore> = Arc::new(watching);
    let other = open(database.config()).await;
    let id = order("1");
    let first = other.append(commit(&id, "first")).await.unwrap();
    eventually("the stream is open", || async { state.push_state() == PushState::Watching }).await;
    let mut tail = watching.tail(TailRequest::new(first.partition.context().clone())).await.unwrap();
    let mut next = 1;
    // The history is gone, the cursor was killed or lost, the server steps down.
    for code in [286, 237, 43, 91, 189, 11602, 10107, 50] {
        for (command, times) in [("getMore", 1), ("getMore", 5), ("aggregate", 3)] {
            point.set(&[command], times, doc! { "errorCode": code }).await;
            other.append(commit(&id, format!("{code}-{command}-{times}"))).await.unwrap();
            next += 1;
            let mut last = 0;
            while last < next {
                let batch = tokio::time::timeout(Duration::from_secs(20), tail.next()).await;
                let batch = batch.unwrap_or_else(|_| panic!("in time: {code} {command}")).unwrap();
                last = batch.commits.last().map_or(last, |it| it.version);
            }
        }
    }
    point.off().await;
    eventually("there is a stream again", || async { state.push_state() == PushState::Watching }).await;
    watching.close().await.unwrap();
    other.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_database_ends_no_stream_for_good() {
    let database = Database::fresh();
    let store =
        MongoStore::open(database.config().with_poll_interval(Duration::from_secs(30))).await.unwrap();
    eventually("the stream is open", || async { store.push_state() == PushState::Watching }).await;
    let other = Database::fresh();
    let unrelated = other.connect().await;
    unrelated.collection::<Document>("x").insert_one(doc! {}).await.unwrap();
    unrelated.drop().await.unwrap();
    assert_eq!(store.push_state(), PushState::Watching, "another database is no concern");
    database.connect().await.drop().await.unwrap();
    eventually("the stream is open again", || async { store.push_state() == PushState::Watching }).await;
    store.close().await.unwrap();
}

/// A tail of all there is.
pub(crate) async fn tail(store: &MongoStore) -> Tail<dyn EventStore> {
    let store: Arc<dyn EventStore> = Arc::new(store.clone());
    store.tail(TailRequest::new(shop())).await.unwrap()
}

/// Everything that was committed comes, in order.
pub(crate) async fn follows(tail: &mut Tail<dyn EventStore>, versions: std::ops::RangeInclusive<u64>) {
    let mut next = *versions.start();
    while next <= *versions.end() {
        let batch =
            tokio::time::timeout(Duration::from_secs(20), tail.next()).await.expect("in time").unwrap();
        for commit in batch.commits {
            assert_eq!(commit.version, next, "none is missed, none comes twice");
            next += 1;
        }
    }
}

/// There is nothing more, and no wake-up is left of what came before: what comes next comes by one of its own.
pub(crate) async fn is_at_rest(tail: &mut Tail<dyn EventStore>) {
    let more = tokio::time::timeout(Duration::from_millis(250), tail.next()).await;
    assert!(more.is_err(), "nothing more was appended: {more:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_refuses_streams_is_polled() {
    let database = Database::fresh();
    let other = open(database.config()).await;
    let id = order("1");
    other.append(commit(&id, "0")).await.unwrap();
    let point = FailPoint::new(&database).await;
    // Not authorized.
    point.set(&["aggregate"], 1, doc! { "errorCode": 13 }).await;
    let polling = config(&database).with_poll_interval(Duration::from_millis(100));
    let store = MongoStore::open(polling).await.unwrap();
    eventually("it does without", || async { store.push_state() == PushState::Impossible }).await;
    point.off().await;
    let mut tail = tail(&store).await;
    follows(&mut tail, 1..=1).await;
    for command in 1..=5 {
        other.append(commit(&id, format!("{command}"))).await.unwrap();
        follows(&mut tail, command + 1..=command + 1).await;
    }
    assert_eq!(store.push_state(), PushState::Impossible, "all of that by polling");
    store.close().await.unwrap();
    other.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_cursor_delays_and_loses_nothing() {
    let database = Database::fresh();
    // So long that it is not the poll that finds what is new.
    let slow = Duration::from_secs(3600);
    let store = MongoStore::open(database.config_named("killed").with_poll_interval(slow)).await.unwrap();
    let other = open(database.config()).await;
    let id = order("1");
    other.append(commit(&id, "0")).await.unwrap();
    let mut tail = tail(&store).await;
    follows(&mut tail, 1..=1).await;
    let admin = database.connect().await.client().database("admin");
    for command in 1..=5 {
        eventually("the stream is open", || async { store.push_state() == PushState::Watching }).await;
        is_at_rest(&mut tail).await;
        // What waits for changes, by its client's name.
        let mut killed = false;
        while !killed {
            let reply = admin
                .run_command(doc! { "aggregate": 1, "cursor": {}, "pipeline": [
                    { "$currentOp": { "idleCursors": true, "allUsers": true } },
                    { "$match": { "appName": "killed", "cursor.cursorId": { "$exists": true } } },
                ] })
                .await
                .unwrap();
            let found = reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
            for operation in found {
                let operation = operation.as_document().unwrap();
                let cursor = operation.get_document("cursor").unwrap().get_i64("cursorId").unwrap();
                let namespace = operation.get_str("ns").unwrap();
                let collection = namespace.split_once('.').unwrap().1;
                let kill = doc! { "killCursors": collection, "cursors": [cursor] };
                let kill = database.connect().await.run_command(kill).await.unwrap();
                killed |= !kill.get_array("cursorsKilled").unwrap().is_empty();
            }
        }
        other.append(commit(&id, format!("{command}"))).await.unwrap();
        follows(&mut tail, command + 1..=command + 1).await;
    }
    store.close().await.unwrap();
    other.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalidated_stream_is_opened_again() {
    let database = Database::fresh();
    let slow = Duration::from_secs(3600);
    let store = MongoStore::open(database.config().with_poll_interval(slow)).await.unwrap();
    eventually("the stream is open", || async { store.push_state() == PushState::Watching }).await;
    // Dropping a database invalidates what watches it.
    database.connect().await.drop().await.unwrap();
    let other = open(database.config()).await;
    let id = order("1");
    other.append(commit(&id, "0")).await.unwrap();
    let mut tail = tail(&store).await;
    follows(&mut tail, 1..=1).await;
    eventually("the stream is open again", || async { store.push_state() == PushState::Watching }).await;
    for command in 1..=3 {
        other.append(commit(&id, format!("{command}"))).await.unwrap();
        follows(&mut tail, command + 1..=command + 1).await;
    }
    store.close().await.unwrap();
    other.close().await.unwrap();
}
