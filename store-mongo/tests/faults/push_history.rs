//! A stream whose place is no longer in the server's history, for real.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use futures_util::TryStreamExt as _;
use mongodb::{
    Client,
    bson::{Document, Timestamp, doc},
    error::ErrorKind,
};
use wow_store_api::{StoreAdmin as _, StoreExt as _};
use wow_store_conformance::server::{MongoServer, MongoStart};
use wow_store_mongo::{MongoStore, PushState};

use crate::{
    point::switch,
    push::{follows, is_at_rest, tail},
    scene::open,
    support::{Database, commit, eventually, order},
};

/// So long that it is not the poll that finds what is new.
const NEVER: Duration = Duration::from_secs(3600);

/// Holds up whoever asks a cursor for more.
const HELD_UP: &str = "waitAfterPinningCursorBeforeGetMoreBatch";

/// The store whose stream that is.
const WATCHING: &str = "watching";

/// What the server is about.
async fn operations(mongo: &mongodb::Database, which: Document) -> Vec<Document> {
    let all = doc! { "$currentOp": { "allUsers": true, "idleCursors": true } };
    let admin = mongo.client().database("admin");
    let found = admin.aggregate([all, doc! { "$match": which }]).await.unwrap();
    found.try_collect().await.unwrap()
}

/// The cursors of the store: there is no other than its stream's.
async fn cursors(mongo: &mongodb::Database) -> BTreeSet<i64> {
    let found = operations(mongo, doc! { "appName": WATCHING, "cursor.cursorId": { "$exists": true } }).await;
    found.iter().map(|it| it.get_document("cursor").unwrap().get_i64("cursorId").unwrap()).collect()
}

/// The instant of the oldest change that the server still has.
async fn oldest(client: &Client) -> Timestamp {
    let history = client.database("local").collection::<Document>("oplog.rs");
    let first = history.find_one(doc! {}).sort(doc! { "$natural": 1 }).await.unwrap().unwrap();
    first.get_timestamp("ts").unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_history_that_is_over_loses_nothing() {
    let how = MongoStart { history: 1, ..MongoStart::default() };
    let server = Arc::new(tokio::task::spawn_blocking(move || MongoServer::start_as(1, how)).await.unwrap());
    let database = Database::on(Arc::clone(&server));
    let store = MongoStore::open(database.config_named(WATCHING).with_poll_interval(NEVER)).await.unwrap();
    let other = open(database.config().with_push(false)).await;
    let id = order("1");
    other.append(commit(&id, "0")).await.unwrap();
    let mut tail = tail(&store).await;
    follows(&mut tail, 1..=1).await;
    eventually("the stream is open", || async { store.push_state() == PushState::Watching }).await;
    let mongo = database.connect().await;
    // Somebody else's stream, to see what becomes of one.
    let mut watcher = mongo.watch().await.unwrap();
    let place = watcher.resume_token().unwrap();
    drop(watcher.next_if_any().await.unwrap());
    drop(watcher);

    switch(server.ports()[0], HELD_UP, true).await;
    let held_up = doc! { "appName": WATCHING, "failpointMsg": HELD_UP };
    eventually("the stream is held up", || async { !operations(&mongo, held_up.clone()).await.is_empty() })
        .await;
    let before = cursors(&mongo).await;
    is_at_rest(&mut tail).await;
    other.append(commit(&id, "1")).await.unwrap();
    let hello = mongo.run_command(doc! { "hello": 1 }).await.unwrap();
    let appended = hello.get_document("lastWrite").unwrap();
    let appended = appended.get_document("opTime").unwrap().get_timestamp("ts").unwrap();
    let filler = mongo.client().database(&format!("{}-filler", database.name()));
    let filler = filler.collection::<Document>("filler");
    eventually("the change is no longer in the history", || async {
        filler.insert_one(doc! { "text": "x".repeat(500_000) }).await.unwrap();
        oldest(mongo.client()).await > appended
    })
    .await;
    let resumed = mongo.watch().resume_after(place).await.map(drop).unwrap_err();
    let is_over = matches!(&*resumed.kind, ErrorKind::Command(error) if error.code == 286);
    assert!(is_over, "no stream goes on from there: {resumed:?}");

    switch(server.ports()[0], HELD_UP, false).await;
    follows(&mut tail, 2..=2).await;
    eventually("there is another stream", || async {
        let now = cursors(&mongo).await;
        store.push_state() == PushState::Watching && !now.is_empty() && now.is_disjoint(&before)
    })
    .await;
    for version in 3..=5 {
        other.append(commit(&id, format!("{version}"))).await.unwrap();
        follows(&mut tail, version..=version).await;
    }
    filler.drop().await.unwrap();
    store.close().await.unwrap();
    other.close().await.unwrap();
}
