//! An operator ends sessions of the store while it works.

use std::{sync::Arc, time::Duration};

use sqlx::{PgConnection, Row as _};
use tokio::time::{Instant, sleep};
use wow_store_api::{AggregateId, Commit, EventStore};
use wow_store_conformance::witness::{Follower, Load, Plan};
use wow_store_postgres::{PostgresStore, PushState};

use crate::{
    node::{GRACE, PATIENCE, Scene, open, shared, shop},
    proxy::Proxy,
};

const POLL: Duration = Duration::from_secs(1);
/// A poll that never comes.
const NEVER: Duration = Duration::from_secs(3_600);
const ROUNDS: usize = 20;

/// Which sessions.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Whose {
    Listeners,
    Writers,
}

/// Ends sessions; returns how many.
async fn terminate(connection: &mut PgConnection, application: &str, whose: Whose) -> usize {
    let listens = whose == Whose::Listeners;
    let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
               WHERE application_name = $1 AND (query LIKE 'LISTEN%' OR query LIKE '%pg_notify%') = $2 \
                     AND ($2 OR state <> 'idle')";
    let rows = sqlx::query(sql).bind(application).bind(listens).fetch_all(connection).await;
    rows.expect("the test may end sessions").iter().filter(|row| row.get::<bool, _>(0)).count()
}

/// Asks again until something happened.
async fn eventually(what: &str, mut ask: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !ask().await {
        assert!(Instant::now() < deadline, "never happened: {what}");
        sleep(Duration::from_millis(2)).await;
    }
}

async fn listening(store: &PostgresStore) {
    eventually("the store listens", async || store.push_state() == PushState::Listening).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn terminated_writers_lose_nothing() {
    let scene = Scene::on(shared());
    let name = "terminated-writers";
    let stores = [
        open(scene.config_named(name).with_transaction_timeout(PATIENCE)).await,
        open(scene.config_named(name).with_transaction_timeout(Duration::from_millis(100))).await,
    ];
    let follower = Follower::start(Arc::clone(&stores[0]), shop()).await;
    let load = Load::start(&scene.witness, &stores, Plan::default(), "w");
    let mut connection = scene.schema.connect().await;
    let mut ended = 0;
    for _ in 0..ROUNDS {
        scene.witness.acknowledges(20, PATIENCE).await;
        eventually("a session is at work", async || {
            let now = terminate(&mut connection, name, Whose::Writers).await;
            ended += now;
            now > 0
        })
        .await;
    }
    scene.witness.acknowledges(100, PATIENCE).await;
    load.stop().await;
    follower.reaches(&stores[0].heads(&shop()).await.expect("heads"), POLL + GRACE).await;
    let tally = scene.witness.check(&stores[0], &[&follower]).await;
    println!("{ended} sessions ended: {tally}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn terminated_listeners_delay_tails_by_the_poll_interval_at_most() {
    let scene = Scene::on(shared());
    let name = "terminated-listeners";
    let config = || scene.config_named(name).with_poll_interval(POLL);
    let (writer, reader) = (open(config()).await, Arc::new(PostgresStore::open(config()).await.unwrap()));
    let follower = Follower::start(Arc::clone(&reader) as Arc<dyn EventStore>, shop()).await;
    let plan = Plan { writers: 4, ..Plan::default() };
    let load = Load::start(&scene.witness, &[Arc::clone(&writer)], plan, "w");
    let mut connection = scene.schema.connect().await;
    for _ in 0..ROUNDS {
        scene.witness.acknowledges(10, PATIENCE).await;
        eventually("somebody listens", async || terminate(&mut connection, name, Whose::Listeners).await > 0)
            .await;
        // What is there now is delivered in time, however often it happens.
        let heads = writer.heads(&shop()).await.expect("heads");
        follower.reaches(&heads, POLL + GRACE).await;
    }
    load.stop().await;
    listening(&reader).await;
    let heads = writer.heads(&shop()).await.expect("heads");
    follower.reaches(&heads, POLL + GRACE).await;
    println!("{}", scene.witness.check(&writer, &[&follower]).await);
}

/// What was committed while nobody listened is found without a poll.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn listener_that_comes_back_looks_at_everything() {
    let scene = Scene::on(shared());
    let name = "comes-back";
    let writer = Arc::new(PostgresStore::open(scene.config().with_poll_interval(NEVER)).await.unwrap());
    let reader = PostgresStore::open(scene.config_named(name).with_poll_interval(NEVER)).await.unwrap();
    let reader = Arc::new(reader);
    listening(&writer).await;
    listening(&reader).await;
    let writer: Arc<dyn EventStore> = writer;
    let follower = Follower::start(Arc::clone(&reader) as Arc<dyn EventStore>, shop()).await;
    let mut connection = scene.schema.connect().await;
    for n in 0..ROUNDS {
        // One before, one in the gap or behind it.
        append(&scene, &writer, &format!("{n}-a")).await;
        // The store may not have noticed yet that it was ended the last time.
        eventually("somebody listens", async || terminate(&mut connection, name, Whose::Listeners).await > 0)
            .await;
        append(&scene, &writer, &format!("{n}-b")).await;
        let heads = writer.heads(&shop()).await.expect("heads");
        follower.reaches(&heads, PATIENCE).await;
        listening(&reader).await;
    }
    scene.witness.check(&writer, &[&follower]).await;
}

/// Nobody can listen any more; what the poll needs goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tail_moves_by_polling_while_nobody_can_listen() {
    let server = shared();
    let proxy = Proxy::start(server.port()).await;
    let scene = Scene::on(server);
    let name = "cannot-listen";
    let config = scene.config_at(proxy.port(), name).with_poll_interval(POLL);
    let reader = Arc::new(PostgresStore::open(config).await.unwrap());
    let follower = Follower::start(Arc::clone(&reader) as Arc<dyn EventStore>, shop()).await;
    listening(&reader).await;
    let writer = open(scene.config()).await;
    append(&scene, &writer, "0").await;
    follower.reaches(&writer.heads(&shop()).await.expect("heads"), POLL + GRACE).await;

    proxy.refuse(true);
    let mut connection = scene.schema.connect().await;
    let ended = terminate(&mut connection, name, Whose::Listeners).await;
    assert!(ended > 0, "somebody listened");
    eventually("the store notices", async || reader.push_state() == PushState::Connecting).await;
    for n in 1..4 {
        append(&scene, &writer, &format!("{n}")).await;
        let heads = writer.heads(&shop()).await.expect("heads");
        follower.reaches(&heads, POLL + GRACE).await;
    }
    assert_eq!(reader.push_state(), PushState::Connecting, "nobody listened");
    proxy.refuse(false);
    listening(&reader).await;
    scene.witness.check(&writer, &[&follower]).await;
}

async fn append(scene: &Scene, store: &Arc<dyn EventStore>, command: &str) {
    let id = AggregateId::new("shop", "order", "1").unwrap();
    let commit = Commit::new(id, command).event("Happened", 1, &1).unwrap();
    scene.witness.append(store, commit).await.expect("the server is there");
}
