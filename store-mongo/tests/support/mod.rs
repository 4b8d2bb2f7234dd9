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

pub mod load;

use mongodb::{Client, options::ClientOptions};
use wow_store_conformance::server::MongoServer;
use wow_store_mongo::MongoConfig;

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

    pub fn server(&self) -> &MongoServer {
        &self.server
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn url(&self) -> String {
        self.server.url(&self.name)
    }

    /// A store in it.
    pub fn config(&self) -> MongoConfig {
        MongoConfig::new(&self.url()).expect("the server's URL")
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
