//! Nothing is left behind on the server: no transaction, no session, no connection.

use std::{sync::Arc, time::Duration};

use mongodb::bson::{Document, doc};
use wow_store_api::{EventStore, PartitionCount, StoreExt as _};
use wow_store_conformance::server::MongoServer;
use wow_store_mongo::MongoStore;

use crate::support::{Database, commit, eventually, order, whole_log};

async fn status(admin: &mongodb::Database, part: &str, field: &str) -> i64 {
    let status: Document = admin.run_command(doc! { "serverStatus": 1 }).await.unwrap();
    let value = status.get_document(part).unwrap().get(field).unwrap().clone();
    value.as_i64().or_else(|| value.as_i32().map(i64::from)).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn appends_that_are_dropped_leave_nothing_behind() {
    let server = Arc::new(tokio::task::spawn_blocking(|| MongoServer::start(1, &[])).await.unwrap());
    let database = Database::on(server);
    let config = database.config().with_partitions(PartitionCount::new(4).unwrap());
    let store: Arc<dyn EventStore> = Arc::new(MongoStore::open(config).await.unwrap());
    let admin = database.connect().await.client().database("admin");
    store.append(commit(&order("first"), "c")).await.unwrap();
    for round in 0..300_u64 {
        let id = order(format!("{}", round % 10));
        // Dropped at any point of its way.
        let impatient = Duration::from_micros(round * 17 % 4_000);
        let one = commit(&id, format!("{round}"));
        let many = vec![commit(&id, format!("all-{round}")), commit(&order("other"), format!("{round}"))];
        if round % 3 == 0 {
            let _ = tokio::time::timeout(impatient, store.append_all(many)).await;
        } else {
            let _ = tokio::time::timeout(impatient, store.append(one)).await;
        }
    }
    eventually("no transaction is open", || async {
        status(&admin, "transactions", "currentOpen").await == 0
    })
    .await;
    let sessions = || status(&admin, "logicalSessionRecordCache", "activeSessionsCount");
    let before = sessions().await;
    for round in 0..200 {
        store.append(commit(&order("one by one"), format!("{round}"))).await.unwrap();
    }
    let after = sessions().await;
    assert!(after <= before + 4, "sessions are used again: {before}, then {after}");
    let connections = status(&admin, "connections", "current").await;
    assert!(connections < 60, "so are connections: {connections}");
    // And what is there is whole.
    whole_log(&store).await;
    store.append(commit(&order("last"), "c")).await.unwrap();
    store.close().await.unwrap();
    eventually("its connections are closed", || async {
        status(&admin, "connections", "current").await < 12
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_lasts_too_long_for_the_server_is_run_again() {
    // The server aborts what is older than a second.
    let lifetime = ["transactionLifetimeLimitSeconds=1"];
    let server =
        Arc::new(tokio::task::spawn_blocking(move || MongoServer::start(1, &lifetime)).await.unwrap());
    let database = Database::on(server);
    let patient = database.config_named("slow").with_transaction_timeout(Duration::from_secs(60));
    let store: Arc<dyn EventStore> = Arc::new(MongoStore::open(patient).await.unwrap());
    store.append(commit(&order("1"), "0")).await.unwrap();
    let admin = database.connect().await.client().database("admin");
    // Longer than a transaction may last, before it is committed.
    let slow = doc! {
        "failCommands": ["commitTransaction"], "appName": "slow", "blockConnection": true, "blockTimeMS": 4_000
    };
    let point = doc! { "configureFailPoint": "failCommand", "mode": { "times": 1 }, "data": slow };
    admin.run_command(point).await.unwrap();
    let receipt = store.append(commit(&order("1"), "1")).await.unwrap();
    assert_eq!(receipt.version, 2, "once, in the end");
    assert_eq!(whole_log(&store).await.len(), 2, "one copy");
    store.close().await.unwrap();
}
