//! What the tests of this backend share.

#![allow(dead_code, unreachable_pub, reason = "each test program uses a part of it")]
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a panic is how a test says no")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use mongodb::{Client, options::ClientOptions};
use wow_store_api::{AggregateId, Commit, ContextName, EventStore, PartitionId, ReadPage, RecordedCommit};
use wow_store_conformance::server::MongoServer;
use wow_store_mongo::{MongoConfig, MongoStore};

/// How long anything that must happen may take.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A database of its own on a server. Dropped with everything in it.
#[derive(Debug)]
pub struct Database {
    server: Arc<MongoServer>,
    name: String,
}

impl Database {
    /// A database that does not exist yet, on the server that the tests share.
    pub fn fresh() -> Self {
        Self::on(MongoServer::shared())
    }

    /// The same on another server.
    pub fn on(server: Arc<MongoServer>) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let next = NEXT.fetch_add(1, Ordering::SeqCst);
        Self { server, name: format!("wow-test-{}-{next}", std::process::id()) }
    }

    pub fn server(&self) -> &Arc<MongoServer> {
        &self.server
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn url(&self) -> String {
        self.server.url(&self.name)
    }

    /// The URL with one more option.
    pub fn url_with(&self, option: &str) -> String {
        let url = self.url();
        let separator = if url.contains('?') { '&' } else { '?' };
        format!("{url}{separator}{option}")
    }

    /// A store in it.
    pub fn config(&self) -> MongoConfig {
        MongoConfig::new(&self.url()).expect("the server's URL")
    }

    /// A store in it that the server knows by this name.
    pub fn config_named(&self, name: &str) -> MongoConfig {
        MongoConfig::new(&self.url_with(&format!("appName={name}"))).expect("the server's URL")
    }

    /// A store as it is by default.
    pub async fn open(&self) -> MongoStore {
        MongoStore::open(self.config()).await.expect("the store opens")
    }

    /// The database through a client of the test's own.
    pub async fn connect(&self) -> mongodb::Database {
        let client = Client::with_uri_str(self.url()).await.expect("the server's URL");
        client.database(&self.name)
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let (url, name) = (self.url(), self.name.clone());
        // Wherever it is dropped: on a thread without a runtime around it.
        let dropping = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
            runtime.block_on(async {
                let mut options = ClientOptions::parse(url).await.ok()?;
                options.server_selection_timeout = Some(Duration::from_secs(2));
                let client = Client::with_options(options).ok()?;
                client.database(&name).drop().await.ok()?;
                client.shutdown().immediate(true).await;
                Some(())
            })
        });
        // A server that the test has killed needs no cleaning.
        let _ = dropping.join();
    }
}

/// The context of these tests.
pub fn shop() -> ContextName {
    "shop".parse().unwrap()
}

pub fn order(id: impl AsRef<str>) -> AggregateId {
    AggregateId::new("shop", "order", id).unwrap()
}

pub fn commit(id: &AggregateId, command: impl Into<String>) -> Commit {
    Commit::new(id.clone(), command).event("Happened", 1, &serde_json::json!({"n": 1})).unwrap()
}

/// Every commit of the context, with its positions checked.
pub async fn whole_log(store: &Arc<dyn EventStore>) -> Vec<RecordedCommit> {
    let mut log = Vec::new();
    for (index, head) in (0..).zip(store.heads(&shop()).await.unwrap()) {
        let (mut after, mut positions) = (0, Vec::new());
        while after < head {
            let page = store.read(ReadPage::new(PartitionId::new(shop(), index), after)).await.unwrap();
            positions.extend(page.commits.iter().map(|it| it.position));
            log.extend(page.commits);
            after = page.through;
        }
        assert_eq!(positions, (1..=head).collect::<Vec<_>>(), "positions are gapless");
    }
    log
}

/// Asks again until the answer is yes.
pub async fn eventually<F: Future<Output = bool>>(what: &str, ask: impl FnMut() -> F) {
    wow_store_conformance::eventually(PATIENCE, what, ask).await;
}
