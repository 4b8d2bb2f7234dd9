//! Members that are behind: a slow one holds up nobody, and a query that names a version waits for it (Q3).

use std::{sync::Arc, time::Duration};

use wow_store_api::{
    ErrorKind, EventStore, SaveSnapshot, StoreExt as _,
    query::{AtLeast, EventQuery, Filter, ReadPreference, SnapshotQuery},
};
use wow_store_conformance::{server::MongoServer, witness::Follower};

use crate::{
    point::switch,
    scene::{Scene, open, primary},
    support::{PATIENCE, commit, order, shop},
};

/// Stops a member from applying what the primary sends, until it is told to go on.
const STOPPED: &str = "rsSyncApplyStop";

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_secondary_holds_up_nobody() {
    let server = Arc::new(tokio::task::spawn_blocking(|| MongoServer::start(3, &[])).await.unwrap());
    let scene = Scene::on(Arc::clone(&server));
    let store = open(scene.config()).await;
    let follower = Follower::start(Arc::clone(&store), shop()).await;
    let slow = (primary(&server).await + 1) % 3;
    switch(server.ports()[slow], STOPPED, true).await;
    let load = scene.load(std::slice::from_ref(&store), "slow");
    scene.acknowledges(300).await;
    load.stop().await;
    println!("one is slow: {}", scene.check(&store, &[&follower]).await);
    switch(server.ports()[slow], STOPPED, false).await;
    store.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_sees_the_version_that_it_names_whichever_member_answers() {
    let server = Arc::new(tokio::task::spawn_blocking(|| MongoServer::start(3, &[])).await.unwrap());
    let scene = Scene::on(Arc::clone(&server));
    let store = open(scene.config()).await;
    let id = order("1");
    store.append(commit(&id, "0")).await.unwrap();
    let first = SaveSnapshot::new(id.clone(), 1, 1, &1).unwrap();
    store.save_snapshot(first).await.unwrap();
    let behind = (primary(&server).await + 1) % 3;
    for round in 2..6_u64 {
        switch(server.ports()[behind], STOPPED, true).await;
        store.append(commit(&id, format!("{round}"))).await.unwrap();
        store.save_snapshot(SaveSnapshot::new(id.clone(), round, 1, &round).unwrap()).await.unwrap();
        // Whichever of the secondaries is asked, now or in the end: one has it, one has not.
        let asking: Vec<_> = (0..8)
            .map(|number| tokio::spawn(ask(Arc::clone(&store), id.clone(), round, number % 2 == 0)))
            .collect();
        tokio::time::sleep(Duration::from_millis(300)).await;
        switch(server.ports()[behind], STOPPED, false).await;
        for asked in asking {
            asked.await.unwrap();
        }
    }
    // A version that never comes is waited for as long as was said.
    let never = AtLeast::new(id.clone(), 99).within(Duration::from_millis(300));
    let query = EventQuery::new(id.aggregate_type().clone()).with_read_preference(ReadPreference::Secondary);
    let started = std::time::Instant::now();
    let error = store.query_events(query.with_at_least(never)).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Timeout), "it is not there in time: {error:?}");
    assert!(started.elapsed() < Duration::from_secs(5), "as long as was said, about");
    store.close().await.unwrap();
}

async fn ask(store: Arc<dyn EventStore>, id: wow_store_api::AggregateId, version: u64, events: bool) {
    let at_least = AtLeast::new(id.clone(), version).within(PATIENCE);
    let from = ReadPreference::Secondary;
    if events {
        let query = EventQuery::new(id.aggregate_type().clone()).with_read_preference(from);
        let found = store.query_events(query.with_limit(100).with_at_least(at_least)).await.unwrap();
        let seen = found.items.iter().map(|item| item.version).max();
        assert!(seen >= Some(version), "version {version} was named: {seen:?}");
    } else {
        let query = SnapshotQuery::new(id.aggregate_type().clone(), 1).with_read_preference(from);
        let query = query.with_filter(Filter::All).with_at_least(at_least);
        let found = store.query_snapshots(query).await.unwrap();
        let seen = found.items.iter().map(|item| item.version).max();
        assert!(seen >= Some(version), "version {version} was named: {seen:?}");
    }
}
