//! What a server may answer instead of doing what it was asked for: once and again.

use std::{sync::Arc, time::Duration};

use futures_util::TryStreamExt as _;
use mongodb::bson::doc;
use wow_store_api::{ErrorKind, ExpectedVersion, StoreExt as _};
use wow_store_conformance::server::MongoServer;
use wow_store_mongo::{MongoConfig, MongoStore};

use crate::{
    point::{FailPoint, UNDER_TEST},
    scene::open,
    support::{Database, commit, order, whole_log},
};

fn config(database: &Database) -> MongoConfig {
    database.config_named(UNDER_TEST)
}

/// The codes of the field: write conflict, shutting down, not primary, interrupted by a change of state, stepped down, no
/// such transaction, time limit.
const CODES: [i32; 7] = [112, 91, 10107, 11602, 189, 251, 50];

#[tokio::test(flavor = "multi_thread")]
async fn an_append_survives_what_a_server_answers_once_or_more() {
    let database = Database::fresh();
    let point = FailPoint::new(&database).await;
    let store = open(config(&database)).await;
    let id = order("1");
    store.append(commit(&id, "first")).await.unwrap();
    let mut expected = 1;
    for command in ["findAndModify", "insert", "commitTransaction"] {
        for code in CODES {
            for times in [1, 3] {
                point.set(&[command], times, doc! { "errorCode": code }).await;
                let name = format!("{command}-{code}-{times}");
                let receipt = store.append(commit(&id, name.clone())).await;
                let receipt = receipt.unwrap_or_else(|error| panic!("{name} goes through: {error:?}"));
                expected += 1;
                assert_eq!(receipt.version, expected, "once and next: {name}");
            }
        }
    }
    point.off().await;
    let log = whole_log(&store).await;
    assert_eq!(u64::try_from(log.len()).unwrap(), expected, "one copy of each");
    store.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_is_not_confirmed_ends_in_one_copy() {
    let database = Database::fresh();
    let point = FailPoint::new(&database).await;
    let store = open(config(&database)).await;
    let id = order("1");
    store.append(commit(&id, "first")).await.unwrap();
    // It is committed, and then the server does not say so.
    let unconfirmed = doc! { "writeConcernError": { "code": 91, "errmsg": "going down" } };
    point.set(&["commitTransaction"], 2, unconfirmed).await;
    let receipt = store.append(commit(&id, "second").expect(ExpectedVersion::Exact(1))).await.unwrap();
    assert_eq!(receipt.version, 2, "stored once");
    // The connection is gone, again and again.
    point.set(&["commitTransaction"], 3, doc! { "closeConnection": true }).await;
    let receipt = store.append(commit(&id, "third").expect(ExpectedVersion::Exact(2))).await.unwrap();
    assert_eq!(receipt.version, 3, "stored once");
    point.off().await;
    assert_eq!(whole_log(&store).await.len(), 3, "one copy of each");
    store.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_only_fails_is_reported_in_time() {
    let database = Database::fresh();
    let point = FailPoint::new(&database).await;
    let store = open(config(&database).with_transaction_timeout(Duration::from_millis(700))).await;
    let id = order("1");
    store.append(commit(&id, "first")).await.unwrap();
    point.set(&["insert"], 100_000, doc! { "errorCode": 112 }).await;
    let started = std::time::Instant::now();
    let error = store.append(commit(&id, "second")).await.unwrap_err();
    assert!(started.elapsed() < Duration::from_secs(3), "about its deadline");
    assert!(error.is_transient(), "it may work later: {error:?}");
    assert_eq!(error.outcome(), wow_store_api::Outcome::NotApplied, "no commit was asked for");
    point.off().await;
    let receipt = store.append(commit(&id, "second")).await.unwrap();
    assert_eq!((receipt.version, receipt.replayed), (2, false), "nothing of it was stored");
    store.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_that_is_killed_ends_no_load_early() {
    let database = Database::fresh();
    let point = FailPoint::new(&database).await;
    let store = open(config(&database)).await;
    let id = order("long");
    // More than one reply's worth.
    let body = serde_json::json!({"text": "x".repeat(100_000)});
    for n in 0..250 {
        let commit =
            wow_store_api::Commit::new(id.clone(), format!("{n}")).event("Happened", 1, &body).unwrap();
        store.append(commit).await.unwrap();
    }
    for code in [43, 237, 91, 11602] {
        point.set(&["getMore", "find"], 1, doc! { "errorCode": code }).await;
        let versions: Vec<u64> =
            store.load(&id, ..).await.unwrap().map_ok(|it| it.version).try_collect().await.unwrap();
        assert_eq!(versions, (1..=250).collect::<Vec<_>>(), "all of them, once: {code}");
    }
    point.off().await;
    store.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_a_replica_set_is_refused() {
    let server = Arc::new(MongoServer::start_standalone());
    let database = Database::on(server);
    let refused = MongoStore::open(database.config()).await.unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::Misconfigured { .. }), "{refused:?}");
}
