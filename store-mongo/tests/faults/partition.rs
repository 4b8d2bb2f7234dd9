//! A primary that is cut off from the other members, does not know it yet, and goes on writing.

use std::{sync::Arc, time::Duration};

use mongodb::{Client, bson::doc};
use wow_store_api::Outcome;
use wow_store_conformance::{server::MongoServer, witness::Follower};
use wow_store_mongo::MongoConfig;

use crate::{
    point,
    proxy::Proxy,
    scene::{Scene, open, primary},
    support::{PATIENCE, commit, eventually, order, shop},
};

/// Three members, each behind a proxy by which the others and all clients know it.
async fn behind_proxies() -> (Arc<MongoServer>, Vec<Proxy>) {
    let mut proxies = Vec::new();
    for _ in 0..3 {
        proxies.push(Proxy::start().await);
    }
    let starting = tokio::task::spawn_blocking(move || {
        let server = MongoServer::start_behind(3, |ports| {
            for (proxy, port) in proxies.iter().zip(ports) {
                proxy.lead_to(*port);
            }
            proxies.iter().map(Proxy::port).collect()
        });
        (Arc::new(server), proxies)
    });
    starting.await.unwrap()
}

/// How many documents a member has by itself, whatever the others have.
async fn written(port: u16, database: &str) -> u64 {
    let url = format!("mongodb://127.0.0.1:{port}/?directConnection=true");
    let client = Client::with_uri_str(url).await.unwrap();
    let log = client.database(database).collection::<mongodb::bson::Document>("wow_log__shop__order");
    let local = mongodb::options::ReadConcern::local();
    log.count_documents(doc! {}).read_concern(local).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_primary_that_is_cut_off_acknowledges_nothing_and_shows_nothing_that_goes_away() {
    let (server, proxies) = behind_proxies().await;
    let scene = Scene::on(Arc::clone(&server));
    let old = primary(&server).await;
    let all = open(scene.config().with_transaction_timeout(PATIENCE)).await;
    // A node on the side of the old primary, which sees no other.
    let direct = format!(
        "mongodb://127.0.0.1:{}/{}?directConnection=true",
        proxies[old].port(),
        scene.database.name()
    );
    let beside = MongoConfig::new(&direct).unwrap().with_transaction_timeout(Duration::from_millis(1_500));
    let beside = open(beside).await;
    let stores = [Arc::clone(&all), Arc::clone(&beside)];
    let followers =
        [Follower::start(Arc::clone(&all), shop()).await, Follower::start(Arc::clone(&beside), shop()).await];
    let load = scene.load(&stores, "before");
    scene.acknowledges(100).await;
    load.stop().await;
    scene.check(&all, &[&followers[0], &followers[1]]).await;

    // It is not told of its successor, and does not notice that nobody hears it.
    point::switch(server.ports()[old], "blockHeartbeatStepdown", true).await;
    proxies[old].cut_off_members();
    for (place, proxy) in proxies.iter().enumerate() {
        if place != old {
            proxy.ban(proxies[old].port());
        }
    }
    let before = written(server.ports()[old], scene.database.name()).await;
    let load = scene.load(&stores, "during");
    // The others elect one of themselves, and there appends go on.
    eventually("there is a new primary", || {
        let server = Arc::clone(&server);
        async move { server.primaries().iter().any(|primary| *primary != old) }
    })
    .await;
    scene.acknowledges(200).await;
    // Meanwhile the old one takes writes, of which nobody is told that they are stored.
    let error = scene.witness.append(&beside, commit(&order("beside"), "c")).await.unwrap_err();
    assert_eq!(error.outcome(), Outcome::Unknown, "it may yet be stored: {error:?}");
    let after = written(server.ports()[old], scene.database.name()).await;
    println!("the primary that was cut off had {before} commits of orders, and wrote up to {after}");
    // What a reader is shown there is what a majority has.
    let heads = beside.heads(&shop()).await.unwrap();
    load.stop().await;

    for proxy in &proxies {
        proxy.heal();
    }
    point::switch(server.ports()[old], "blockHeartbeatStepdown", false).await;
    eventually("the old primary has stepped down", || {
        let server = Arc::clone(&server);
        async move { !server.primaries().contains(&old) && server.primary().is_some() }
    })
    .await;
    let now = all.heads(&shop()).await.unwrap();
    assert!(heads.iter().zip(&now).all(|(seen, now)| seen <= now), "{heads:?} were seen, {now:?} are there");
    // The node beside it reaches a secondary now, which does not answer for the set.
    drop(beside);
    let tally = scene.check(&all, &[&followers[0]]).await;
    println!("cut off: {tally}");
    assert!(tally.unknown > 0, "some were told that it is unknown: {tally}");
    let prefix = followers[1].is_behind(&followers[0]);
    assert!(prefix, "whoever read from the old primary was shown nothing that went away");
    all.close().await.unwrap();
}
