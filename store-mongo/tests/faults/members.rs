//! Three members: the primary steps down, and dies.

use std::{sync::Arc, time::Duration};

use mongodb::bson::doc;
use wow_store_conformance::{server::MongoServer, witness::Follower};

use crate::{
    scene::{Scene, blocking, open, primary},
    support::{PATIENCE, shop},
};

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_when_the_primary_steps_down_or_dies() {
    let server = Arc::new(MongoServer::start(3, &[]));
    let scene = Scene::on(Arc::clone(&server));
    let patient = open(scene.config().with_transaction_timeout(PATIENCE)).await;
    let hasty = open(scene.config().with_transaction_timeout(Duration::from_millis(500))).await;
    let stores = [Arc::clone(&patient), Arc::clone(&hasty)];
    let followers = [
        Follower::start(Arc::clone(&patient), shop()).await,
        Follower::start(Arc::clone(&hasty), shop()).await,
    ];
    let admin = scene.database.connect().await.client().database("admin");
    let all = [&followers[0], &followers[1]];

    let load = scene.load(&stores, "step-down");
    scene.acknowledges(100).await;
    // The reply is lost with the connections.
    let step_down = doc! { "replSetStepDown": 5, "secondaryCatchUpPeriodSecs": 2, "force": true };
    let _ = admin.run_command(step_down).await;
    scene.acknowledges(100).await;
    load.stop().await;
    println!("stepped down: {}", scene.check(&patient, &all).await);

    for round in 0..2 {
        let load = scene.load(&stores, &format!("kill-{round}"));
        scene.acknowledges(100).await;
        let dead = primary(&server).await;
        blocking(&server, move |server| server.kill(dead)).await;
        scene.acknowledges(100).await;
        blocking(&server, move |server| server.start_again(dead)).await;
        scene.acknowledges(100).await;
        load.stop().await;
        println!("killed, round {round}: {}", scene.check(&patient, &all).await);
    }
    patient.close().await.unwrap();
    hasty.close().await.unwrap();
}
