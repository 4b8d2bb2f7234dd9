//! Requests that got stuck on the way arrive after the store has given them up.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;
use wow_store_api::{AggregateId, Commit, EventStore, Outcome};
use wow_store_conformance::witness::{Follower, with_rider};

use crate::{
    node::{PATIENCE, Scene, open, shared, shop},
    proxy::{Plan, Proxy},
};

struct Late {
    scene: Scene,
    proxy: Proxy,
    store: Arc<dyn EventStore>,
    reader: Arc<dyn EventStore>,
    follower: Follower,
}

impl Late {
    async fn start(timeout: Duration) -> Self {
        let server = shared();
        let proxy = Proxy::start(server.port()).await;
        let scene = Scene::on(server);
        let config = scene
            .config_at(proxy.port(), "cut")
            .with_push(false)
            .with_poll_interval(Duration::from_secs(3_600));
        let store = open(config.with_max_connections(1).with_transaction_timeout(timeout)).await;
        let reader = scene.config().with_push(false).with_poll_interval(Duration::from_millis(20));
        let reader = open(reader).await;
        let follower = Follower::start(Arc::clone(&reader), shop()).await;
        Self { scene, proxy, store, reader, follower }
    }

    async fn append(&self, commit: Commit) -> wow_store_api::Result<wow_store_api::Receipt> {
        self.scene.witness.append(&self.store, commit).await
    }

    /// Lets the connection be made and the statement be prepared, however long that takes.
    async fn warm(&self, command: &str) {
        let deadline = Instant::now() + PATIENCE;
        while self.append(commit(&format!("{command}-warm"))).await.is_err() {
            assert!(Instant::now() < deadline, "nothing is held back now");
        }
    }

    async fn append_elsewhere(&self, commit: Commit) -> wow_store_api::Result<wow_store_api::Receipt> {
        self.scene.witness.append(&self.reader, commit).await
    }

    async fn check(&self, what: &str) {
        let heads = self.reader.heads(&shop()).await.expect("heads");
        self.follower.reaches(&heads, PATIENCE).await;
        let tally = self.scene.witness.check(&self.reader, &[&self.follower]).await;
        println!("{what}: {tally}");
    }
}

fn commit(command: &str) -> Commit {
    let id = AggregateId::new("shop", "order", "1").unwrap();
    Commit::new(id, command).event("Happened", 1, &1).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_that_arrives_after_its_retry_is_not_applied_again() {
    let late = Late::start(PATIENCE).await;
    late.warm("first").await;
    for after in (0..300).step_by(10) {
        let command = format!("c-{after:05}");
        late.proxy.plan(Plan::Hold(after));
        let receipt = late.append(commit(&command)).await.expect("it is sent again");
        assert!(late.proxy.pass(), "the first was held back");
        assert!(!receipt.replayed, "the second was applied");
        late.proxy.release().await;
    }
    late.check("late requests").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_that_arrives_after_the_deadline_is_applied_once() {
    let late = Late::start(Duration::from_millis(200)).await;
    for after in (0..300).step_by(30) {
        let command = format!("c-{after:05}");
        late.warm(&command).await;
        late.proxy.refuse(true);
        late.proxy.plan(Plan::Hold(after));
        let error = late.append(commit(&command)).await.expect_err("nobody answers");
        assert_eq!(error.outcome(), Outcome::Unknown, "it may arrive yet: {error:?}");
        assert!(late.proxy.pass(), "it was held back");
        late.proxy.release().await;
        late.proxy.refuse(false);
        let receipt = late.append_elsewhere(commit(&command)).await.expect("another node finds it");
        assert!(receipt.replayed, "the first was applied, late");
    }
    late.check("requests after the deadline").await;
}

/// The transaction of the first attempt is open, its COMMIT on the way, while the store asks again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commit_that_arrives_late_is_applied_once() {
    let late = Late::start(Duration::from_millis(300)).await;
    late.warm("first").await;
    for n in 0..5 {
        let command = format!("c-{n}");
        let riding = || with_rider(commit(&command), &command);
        late.proxy.plan(Plan::HoldAt(b"COMMIT\0"));
        let error = late.append(riding()).await.expect_err("the first attempt holds the lock");
        assert_eq!(error.outcome(), Outcome::Unknown, "it may be committed yet: {error:?}");
        assert!(late.proxy.pass(), "the commit was held back");
        late.proxy.release().await;
        let receipt = late.append_elsewhere(riding()).await.expect("another node finds it");
        assert!(receipt.replayed, "the first was applied, late");
    }
    late.check("late commits").await;
}
