//! What a node has given up is ended on the server: it does not keep others from writing until the server forgets it,
//! which takes a minute.

use std::{sync::Arc, time::Duration};

use futures_util::TryStreamExt as _;
use mongodb::bson::{Document, doc};
use wow_store_api::{EventStore, StoreExt as _};

use crate::{
    cut::behind_proxy,
    point::{FailPoint, UNDER_TEST},
    proxy::Loss,
    scene::open,
    support::{Database, commit, eventually, order, whole_log},
};

/// How long the node waits that gives up.
const HASTY: Duration = Duration::from_millis(700);

/// A node of its own appends where another has given up. Nobody else is on the server.
async fn another_gets_on(database: &Database, command: &str) {
    let other = open(database.config()).await;
    let appended = other.append(commit(&order("1"), format!("after {command}"))).await;
    appended.unwrap_or_else(|error| panic!("{command} was given up, and holds up nobody: {error:?}"));
    whole_log(&other).await;
    other.close().await.unwrap();
}

/// The node has made and learned what comes before an append's transaction.
async fn knows_its_way(store: &Arc<dyn EventStore>) {
    let appends = || async { store.append(commit(&order("1"), "first")).await.is_ok() };
    eventually("an append goes through", appends).await;
}

async fn gives_up(store: &Arc<dyn EventStore>, command: &str) {
    let error = store.append(commit(&order("1"), command)).await.unwrap_err();
    assert!(error.is_transient(), "{command}: {error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_of_which_nothing_more_is_heard_holds_up_nobody() {
    let (database, proxy, config) = behind_proxy().await;
    let hasty = open(config.with_transaction_timeout(HASTY)).await;
    knows_its_way(&hasty).await;
    let mut losses = 0;
    // The first command of a transaction, the second, and the last: each is carried out, and does not arrive.
    for request in ["findAndModify", "insert", "commitTransaction"] {
        for loss in [Loss::NoReply, Loss::NoRequest] {
            let command = format!("{request}, {loss:?}");
            proxy.lose(request.as_bytes(), loss);
            gives_up(&hasty, &command).await;
            losses += 1;
            assert_eq!(proxy.losses(), losses, "it was lost: {command}");
            another_gets_on(&database, &command).await;
        }
    }
    hasty.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_arrives_after_it_was_given_up_holds_up_nobody() {
    let database = Database::fresh();
    let point = FailPoint::new(&database).await;
    let hasty = open(database.config_named(UNDER_TEST).with_transaction_timeout(HASTY)).await;
    knows_its_way(&hasty).await;
    let admin = database.connect().await.client().database("admin");
    for request in ["findAndModify", "insert", "commitTransaction"] {
        // The server carries it out when nobody has waited for it for long.
        let late = doc! { "blockConnection": true, "blockTimeMS": 2_000 };
        point.set(&[request], 1, late).await;
        gives_up(&hasty, request).await;
        eventually("it was carried out", || async {
            let pipeline = [
                doc! { "$currentOp": { "allUsers": true } },
                doc! { "$match": { "appName": UNDER_TEST, "active": true, format!("command.{request}"): { "$exists": true } } },
            ];
            let found: Vec<Document> = admin.aggregate(pipeline).await.unwrap().try_collect().await.unwrap();
            found.is_empty()
        })
        .await;
        another_gets_on(&database, request).await;
    }
    point.off().await;
    hasty.close().await.unwrap();
}
