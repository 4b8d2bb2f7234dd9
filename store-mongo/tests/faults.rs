//! What goes wrong on real servers, and what must hold all the same.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a panic is how a test says no")]

mod support;

use std::{sync::Arc, time::Duration};

use futures_util::TryStreamExt as _;
use mongodb::{
    Client,
    bson::{Document, doc},
};
use support::{
    Database,
    load::{Load, commit, eventually, order, whole_log},
};
use tokio::sync::{Mutex, MutexGuard};
use wow_store_api::{ErrorKind, EventStore, ExpectedVersion, StoreAdmin as _, StoreExt as _, TailRequest};
use wow_store_conformance::server::MongoServer;
use wow_store_mongo::{MongoConfig, MongoStore, PushState};

/// A server has one such fail point: tests that set it take turns.
static TURN: Mutex<()> = Mutex::const_new(());

struct FailPoint {
    admin: mongodb::Database,
    _turn: MutexGuard<'static, ()>,
}

impl FailPoint {
    async fn new(database: &Database) -> Self {
        let turn = TURN.lock().await;
        let client = Client::with_uri_str(database.url()).await.unwrap();
        Self { admin: client.database("admin"), _turn: turn }
    }

    /// Only commands of the store fail, which has an application name of its own.
    async fn set(&self, commands: &[&str], times: i32, how: Document) {
        let mut data = doc! { "failCommands": commands, "appName": "under-test" };
        data.extend(how);
        let point = doc! { "configureFailPoint": "failCommand", "mode": { "times": times }, "data": data };
        self.admin.run_command(point).await.unwrap();
    }

    async fn off(&self) {
        self.admin.run_command(doc! { "configureFailPoint": "failCommand", "mode": "off" }).await.unwrap();
    }
}

fn config(database: &Database) -> MongoConfig {
    let url = database.url();
    let separator = if url.contains('?') { '&' } else { '?' };
    MongoConfig::new(&format!("{url}{separator}appName=under-test")).unwrap()
}

async fn open(config: MongoConfig) -> Arc<dyn EventStore> {
    Arc::new(MongoStore::open(config).await.unwrap())
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
async fn a_killed_server_loses_nothing_that_was_acknowledged() {
    let server = Arc::new(MongoServer::start(1, &[]));
    let database = Database::on(Arc::clone(&server));
    let store = open(database.config()).await;
    let load = Load::start(&store, 8);
    for _ in 0..3 {
        load.more(50).await;
        server.kill(0);
        server.start_again(0);
    }
    load.more(50).await;
    let found = load.check(&store).await;
    assert!(found.stored >= 200, "{found:?}");
    println!("killed three times: {found:?}");
    store.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn three_members_lose_nothing_when_the_primary_steps_down_or_dies() {
    let server = Arc::new(MongoServer::start(3, &[]));
    let database = Database::on(Arc::clone(&server));
    let store = open(database.config().with_transaction_timeout(Duration::from_secs(10))).await;
    let load = Load::start(&store, 8);
    load.more(50).await;
    let admin = database.connect().await.client().database("admin");
    // The reply is lost with the connections.
    let _ = admin
        .run_command(doc! { "replSetStepDown": 5, "secondaryCatchUpPeriodSecs": 2, "force": true })
        .await;
    load.more(50).await;
    let mut primary = None;
    eventually("there is a primary", || {
        primary = server.primary();
        async move { primary.is_some() }
    })
    .await;
    let primary = primary.unwrap();
    server.kill(primary);
    load.more(50).await;
    server.start_again(primary);
    load.more(50).await;
    let found = load.check(&store).await;
    assert!(found.stored >= 200, "{found:?}");
    println!("stepped down and killed: {found:?}");
    store.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_a_replica_set_is_refused() {
    let server = Arc::new(MongoServer::start_standalone());
    let database = Database::on(server);
    let refused = MongoStore::open(database.config()).await.unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::Misconfigured { .. }), "{refused:?}");
}
