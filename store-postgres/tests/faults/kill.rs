//! The server is killed while it is written to, and started again.

use std::{env, sync::Arc, time::Duration};

use wow_store_api::{AggregateId, Commit, EventStore};
use wow_store_conformance::witness::{Follower, Load, Plan};

use crate::node::{GRACE, PATIENCE, Scene, kill_and_start, open, shop, start};

const ROUNDS: &str = "WOW_FAULT_ROUNDS";
const POLL: Duration = Duration::from_secs(1);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_server_loses_nothing_it_acknowledged() {
    let rounds: usize = env::var(ROUNDS).map_or(5, |rounds| rounds.parse().expect("a number"));
    // Sessions that do not ask for it are acknowledged before their commits are on disk, and that takes long.
    let server = start(&["synchronous_commit = off", "wal_writer_delay = 10s"]);
    let scene = Scene::on(Arc::clone(&server));
    let config = || scene.config().with_poll_interval(POLL);
    // One that waits until the server is back, and one that tells its callers before.
    let patient = open(config().with_transaction_timeout(PATIENCE)).await;
    let hasty = open(config().with_transaction_timeout(Duration::from_millis(200))).await;
    let stores = [Arc::clone(&patient), Arc::clone(&hasty)];
    let followers = [
        Follower::start(Arc::clone(&patient), shop()).await,
        Follower::start(Arc::clone(&hasty), shop()).await,
    ];
    for round in 0..rounds {
        let load = Load::start(&scene.witness, &stores, Plan::default(), &format!("round-{round}"));
        scene.witness.acknowledges(100 + round * 70, PATIENCE).await;
        kill_and_start(&server).await;
        scene.witness.acknowledges(200, PATIENCE).await;
        load.stop().await;
        let heads = patient.heads(&shop()).await.expect("the server is back");
        for follower in &followers {
            follower.reaches(&heads, POLL + GRACE).await;
        }
        let tally = scene.witness.check(&hasty, &[&followers[0], &followers[1]]).await;
        println!("round {round}: {tally}");
    }
}

/// A node that nobody writes to has nothing but dead connections when the server is back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_reader_moves_again_after_a_restart_within_its_poll_interval() {
    let server = start(&[]);
    let scene = Scene::on(Arc::clone(&server));
    // So many connections that one found out in each look is too slow.
    let config = scene.config().with_push(false).with_poll_interval(POLL).with_max_connections(40);
    let reader = open(config).await;
    let follower = Follower::start(Arc::clone(&reader), shop()).await;
    let writer = open(scene.config()).await;
    let order = |n: usize| AggregateId::new("shop", "order", format!("{n}")).unwrap();
    for n in 0..20 {
        append(&scene, &writer, &order(n), "before").await;
    }
    // As many at once as the pool has connections.
    let looks = (0..400).map(|n| {
        let reader = Arc::clone(&reader);
        tokio::spawn(async move { reader.head(&order(n % 20)).await })
    });
    for look in looks.collect::<Vec<_>>() {
        assert_eq!(look.await.unwrap().expect("a head"), 1, "one commit each");
    }
    follower.reaches(&reader.heads(&shop()).await.expect("heads"), PATIENCE).await;

    kill_and_start(&server).await;
    let fresh = open(scene.config()).await;
    append(&scene, &fresh, &order(0), "after").await;
    let heads = fresh.heads(&shop()).await.expect("heads");
    follower.reaches(&heads, POLL + GRACE).await;
    scene.witness.check(&reader, &[&follower]).await;
}

async fn append(scene: &Scene, store: &Arc<dyn EventStore>, id: &AggregateId, command: &str) {
    let commit = Commit::new(id.clone(), command).event("Happened", 1, &1).unwrap();
    scene.witness.append(store, commit).await.expect("the server is there");
}
