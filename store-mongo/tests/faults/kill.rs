//! The only member is killed while it is written to, and started again.

use std::{sync::Arc, time::Duration};

use wow_store_conformance::{server::MongoServer, witness::Follower};

use crate::{
    scene::{Scene, blocking, open},
    support::{PATIENCE, shop},
};

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_server_loses_nothing_that_was_acknowledged() {
    let server = Arc::new(MongoServer::start(1, &[]));
    let scene = Scene::on(Arc::clone(&server));
    // One that waits until the server is back, and one that tells its callers before.
    let patient = open(scene.config().with_transaction_timeout(PATIENCE)).await;
    let hasty = open(scene.config().with_transaction_timeout(Duration::from_millis(300))).await;
    let stores = [Arc::clone(&patient), Arc::clone(&hasty)];
    let followers = [
        Follower::start(Arc::clone(&patient), shop()).await,
        Follower::start(Arc::clone(&hasty), shop()).await,
    ];
    for round in 0..3 {
        let load = scene.load(&stores, &format!("round-{round}"));
        scene.acknowledges(50 + round * 40).await;
        blocking(&server, |server| {
            server.kill(0);
            server.start_again(0);
        })
        .await;
        scene.acknowledges(100).await;
        load.stop().await;
        let tally = scene.check(&patient, &[&followers[0], &followers[1]]).await;
        println!("round {round}: {tally}");
    }
    patient.close().await.unwrap();
    hasty.close().await.unwrap();
}
