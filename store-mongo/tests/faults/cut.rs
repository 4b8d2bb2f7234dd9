//! The network is cut after the server has done what it was asked for, and before it could say so.

use std::{sync::Arc, time::Duration};

use mongodb::bson::doc;
use wow_store_api::{
    AcquireLease, Due, ExpectedVersion, LeaseAcquired, MemberId, PartitionId, SaveCheckpoint, ScheduleTimer,
    StoreExt as _, SubscriptionName, TimerId,
};
use wow_store_conformance::server::MongoServer;
use wow_store_mongo::MongoConfig;

use crate::{
    proxy::Proxy,
    scene::{Scene, open},
    support::{Database, PATIENCE, commit, order, shop, whole_log},
};

/// A store on the other side of a proxy.
pub(crate) async fn behind_proxy() -> (Database, Proxy, MongoConfig) {
    let server = Arc::new(tokio::task::spawn_blocking(|| MongoServer::start(1, &[])).await.unwrap());
    let proxy = Proxy::start().await;
    proxy.lead_to(server.ports()[0]);
    let database = Database::on(server);
    // By what it is given, not by what the server says it is called.
    let url = format!("mongodb://127.0.0.1:{}/{}?directConnection=true", proxy.port(), database.name());
    let config = MongoConfig::new(&url).unwrap();
    (database, proxy, config)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_append_whose_reply_is_lost_ends_in_one_copy() {
    let (_database, proxy, config) = behind_proxy().await;
    let store = open(config.with_transaction_timeout(PATIENCE)).await;
    let id = order("1");
    store.append(commit(&id, "0")).await.unwrap();
    for (round, request) in
        (1..).zip([&b"commitTransaction"[..], b"findAndModify", b"insert", b"commitTransaction"])
    {
        proxy.lose_reply_to(request);
        let append = commit(&id, format!("{round}")).expect(ExpectedVersion::Exact(round));
        let receipt = store.append(append).await.unwrap();
        assert_eq!(receipt.version, round + 1, "stored once");
        assert_eq!(u64::try_from(proxy.losses()).unwrap(), round, "a reply was lost");
    }
    assert_eq!(whole_log(&store).await.len(), 5, "one copy of each");
    store.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn records_whose_reply_is_lost_are_as_they_were_told() {
    let (_database, proxy, config) = behind_proxy().await;
    let store = open(config.with_transaction_timeout(PATIENCE)).await;
    let group = SubscriptionName::new("totals").unwrap();
    let partition = PartitionId::new(shop(), 0);
    let member = MemberId::new("node").unwrap();
    let lease = AcquireLease::new(group.clone(), partition.clone(), member.clone(), PATIENCE);
    store.acquire_lease(lease.clone()).await.unwrap();
    let token = store.leases(&group, &shop()).await.unwrap()[0].token(&member);
    proxy.lose_reply_to(b"update");
    assert!(store.release_lease(&token).await.unwrap(), "it was ours, and it was given back once");
    proxy.lose_reply_to(b"findAndModify");
    let acquired = store.acquire_lease(lease).await.unwrap();
    let LeaseAcquired::Acquired(lease) = acquired else { panic!("it is free: {acquired:?}") };
    assert_eq!(lease.epoch, token.epoch + 1, "it was acquired once");
    proxy.lose_reply_to(b"commitTransaction");
    let save = SaveCheckpoint::new(group.clone(), partition.clone(), 7).with_epoch(lease.epoch);
    store.save_checkpoint(save).await.unwrap();
    assert_eq!(proxy.losses(), 3, "each lost its reply");
    let saved = store.checkpoint(&group, &partition).await.unwrap().unwrap();
    assert_eq!((saved.position, saved.epoch), (7, lease.epoch), "saved");
    store.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_of_which_the_server_never_hears_is_told_as_unknown() {
    let server = Arc::new(tokio::task::spawn_blocking(|| MongoServer::start(1, &[])).await.unwrap());
    let scene = Scene::on(Arc::clone(&server));
    let store = open(scene.config().with_transaction_timeout(Duration::from_millis(300))).await;
    scene.witness.append(&store, commit(&order("1"), "first")).await.unwrap();
    let admin = scene.database.connect().await.client().database("admin");
    let blocked =
        doc! { "failCommands": ["commitTransaction"], "blockConnection": true, "blockTimeMS": 2_000 };
    let point = doc! { "configureFailPoint": "failCommand", "mode": { "times": 1 }, "data": blocked };
    admin.run_command(point).await.unwrap();
    let error = scene.witness.append(&store, commit(&order("1"), "second")).await.unwrap_err();
    assert_eq!(error.outcome(), wow_store_api::Outcome::Unknown, "nobody knows: {error:?}");
    // It was: the command is found, or stored now.
    let receipt = scene.witness.append(&store, commit(&order("1"), "second")).await;
    let patient = open(scene.config().with_transaction_timeout(PATIENCE)).await;
    let receipt = match receipt {
        Ok(receipt) => receipt,
        Err(_) => scene.witness.append(&patient, commit(&order("1"), "second")).await.unwrap(),
    };
    assert_eq!(receipt.version, 2, "once");
    println!("late: {}", scene.check(&patient, &[]).await);
    store.close().await.unwrap();
    patient.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_was_written_is_not_told_as_not_applied_when_the_second_try_is_refused() {
    let (database, proxy, config) = behind_proxy().await;
    let store = open(config.with_transaction_timeout(Duration::from_millis(500))).await;
    let timer = TimerId::new("1").unwrap();
    let schedule = ScheduleTimer::new(shop(), timer.clone(), Due::After(PATIENCE), &1).unwrap();
    store.schedule_timer(schedule).await.unwrap();
    // The first is carried out and its reply is lost; all that come after it find no primary.
    let admin = database.connect().await.client().database("admin");
    let refused = doc! { "failCommands": ["findAndModify"], "errorCode": 10107 };
    let point = doc! { "configureFailPoint": "failCommand", "mode": { "skip": 1 }, "data": refused };
    admin.run_command(point).await.unwrap();
    proxy.lose_reply_to(b"findAndModify");
    let error = store.cancel_timer(&shop(), &timer).await.unwrap_err();
    assert_eq!(proxy.losses(), 1, "a reply was lost");
    assert_eq!(error.outcome(), wow_store_api::Outcome::Unknown, "it may be gone: {error:?}");
    admin.run_command(doc! { "configureFailPoint": "failCommand", "mode": "off" }).await.unwrap();
    assert!(store.timers(&shop(), None, 10).await.unwrap().is_empty(), "and it is");
    store.close().await.unwrap();
}
