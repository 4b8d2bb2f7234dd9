//! A user who may not open change streams, on a server that lets in users only.

use std::{sync::Arc, time::Duration};

use mongodb::{Client, bson::doc};
use wow_store_api::{
    AcquireLease, EventStore, LeaseAcquired, MemberId, PartitionId, SaveCheckpoint, StoreAdmin as _,
    StoreExt as _, SubscriptionName,
};
use wow_store_conformance::server::{MongoServer, MongoStart};
use wow_store_mongo::{MongoConfig, MongoStore, PushState};

use crate::{
    push::{follows, tail},
    support::{PATIENCE, commit, eventually, order, shop, whole_log},
};

/// So long that it is not the poll that finds what is new.
const NEVER: Duration = Duration::from_secs(3600);

/// All that a store does in its database, without what only change streams need.
const ACTIONS: [&str; 8] = [
    "find",
    "insert",
    "update",
    "remove",
    "createCollection",
    "createIndex",
    "listCollections",
    "listIndexes",
];

#[tokio::test(flavor = "multi_thread")]
async fn a_user_who_may_not_watch_is_served_by_polling() {
    let how = MongoStart { users_only: true, ..MongoStart::default() };
    let server = tokio::task::spawn_blocking(move || MongoServer::start_as(1, how)).await.unwrap();
    let port = server.ports()[0];
    // The first user is let in without being one.
    let first = Client::with_uri_str(server.url("admin")).await.unwrap().database("admin");
    first.run_command(doc! { "createUser": "root", "pwd": "first", "roles": ["root"] }).await.unwrap();
    let url =
        |user: &str| format!("mongodb://{user}@127.0.0.1:{port}/events?replicaSet=wow&authSource=admin");
    let root = Client::with_uri_str(url("root:first")).await.unwrap().database("admin");
    let resource = doc! { "db": "events", "collection": "" };
    for (user, role, actions) in [
        ("blind", "writer", ACTIONS.to_vec()),
        ("seeing", "watcher", [&ACTIONS[..], &["changeStream"]].concat()),
    ] {
        let privileges = [doc! { "resource": resource.clone(), "actions": actions }];
        root.run_command(doc! { "createRole": role, "privileges": &privileges[..], "roles": [] })
            .await
            .unwrap();
        root.run_command(doc! { "createUser": user, "pwd": "secret", "roles": [role] }).await.unwrap();
    }
    let poll = Duration::from_millis(100);
    let blind = MongoConfig::new(&url("blind:secret")).unwrap().with_poll_interval(poll);
    let blind = MongoStore::open(blind).await.unwrap();
    let seeing = MongoConfig::new(&url("seeing:secret")).unwrap().with_poll_interval(NEVER);
    let seeing = MongoStore::open(seeing).await.unwrap();
    eventually("one does without", || async { blind.push_state() == PushState::Impossible }).await;
    eventually("one has a stream", || async { seeing.push_state() == PushState::Watching }).await;

    // Both hear of what the other does.
    let id = order("1");
    blind.append(commit(&id, "1")).await.unwrap();
    let (mut polled, mut pushed) = (tail(&blind).await, tail(&seeing).await);
    follows(&mut polled, 1..=1).await;
    follows(&mut pushed, 1..=1).await;
    for version in (2..=6).step_by(2) {
        blind.append(commit(&id, format!("{version}"))).await.unwrap();
        follows(&mut pushed, version..=version).await;
        seeing.append(commit(&id, format!("{}", version + 1))).await.unwrap();
        follows(&mut polled, version..=version + 1).await;
        follows(&mut pushed, version + 1..=version + 1).await;
    }
    assert_eq!(blind.push_state(), PushState::Impossible, "all of that by polling");

    // And the rest of a store works.
    let (group, partition) = (SubscriptionName::new("totals").unwrap(), PartitionId::new(shop(), 0));
    let blind: Arc<dyn EventStore> = Arc::new(blind);
    let acquire =
        AcquireLease::new(group.clone(), partition.clone(), MemberId::new("node").unwrap(), PATIENCE);
    let acquired = blind.acquire_lease(acquire).await.unwrap();
    let LeaseAcquired::Acquired(lease) = acquired else { panic!("it is free: {acquired:?}") };
    let save = SaveCheckpoint::new(group, partition, 0).with_epoch(lease.epoch);
    blind.save_checkpoint(save).await.unwrap();
    assert_eq!(whole_log(&blind).await.len(), 7, "all are there");
    blind.close().await.unwrap();
    seeing.close().await.unwrap();
}
