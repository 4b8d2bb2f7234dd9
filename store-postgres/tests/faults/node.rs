//! What these tests share: durable servers, and stores on them.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, Weak},
    thread,
    time::{Duration, Instant},
};

use sqlx::{Connection as _, Executor as _, PgConnection, Row as _};
use wow_store_api::{ContextName, EventStore};
use wow_store_conformance::{
    server::{LocalServer, PostgresServer},
    witness::Witness,
};
use wow_store_postgres::{PostgresConfig, PostgresStore};

use crate::support::Schema;

/// How long anything that must happen may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// What is allowed on top of a bound: these tests share the machine with others.
pub(crate) const GRACE: Duration = Duration::from_secs(2);

/// A server whose commits are on disk, with more settings.
pub(crate) fn start(settings: &[&str]) -> Arc<PostgresServer> {
    Arc::new(PostgresServer::start(&durable(settings)))
}

/// The same on this very machine, so that a test can do something to its disk.
pub(crate) fn start_local(settings: &[&str]) -> Arc<PostgresServer> {
    Arc::new(PostgresServer::start_local(&durable(settings), LocalServer::default()))
}

fn durable<'a>(settings: &[&'a str]) -> Vec<&'a str> {
    ["fsync = on", "full_page_writes = on"].into_iter().chain(settings.iter().copied()).collect()
}

/// Where a server keeps its data.
pub(crate) async fn data_directory(server: &PostgresServer) -> PathBuf {
    let mut connection = PgConnection::connect(server.url()).await.expect("the server answers");
    let row = connection.fetch_one("SHOW data_directory").await.expect("the server says where its data is");
    PathBuf::from(row.get::<String, _>(0))
}

/// Does something that takes a while, away from what else goes on.
pub(crate) async fn blocking(
    server: &Arc<PostgresServer>,
    work: impl FnOnce(&PostgresServer) + Send + 'static,
) {
    let server = Arc::clone(server);
    tokio::task::spawn_blocking(move || work(&server)).await.expect("the server does as it is told");
}

/// Kills a server and all its sessions, and starts it again.
pub(crate) async fn kill_and_start(server: &Arc<PostgresServer>) {
    let lock = data_directory(server).await.join("postmaster.pid");
    blocking(server, move |server| {
        let pid = fs::read_to_string(&lock).unwrap_or_default();
        let process = pid.lines().next().map(|pid| Path::new("/proc").join(pid));
        server.kill();
        // A server does not start where the last one is dead, but not buried.
        let deadline = Instant::now() + PATIENCE;
        while process.as_ref().is_some_and(|process| process.exists()) {
            assert!(Instant::now() < deadline, "the process is gone");
            thread::sleep(Duration::from_millis(5));
        }
        server.start_again();
    })
    .await;
}

/// The one that tests share which leave it running.
pub(crate) fn shared() -> Arc<PostgresServer> {
    static SHARED: Mutex<Weak<PostgresServer>> = Mutex::new(Weak::new());
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    shared.upgrade().unwrap_or_else(|| {
        let server = start(&[]);
        *shared = Arc::downgrade(&server);
        server
    })
}

/// The context of these tests.
pub(crate) fn shop() -> ContextName {
    ContextName::new("shop").unwrap()
}

/// A schema of a test's own, and who watches it.
pub(crate) struct Scene {
    pub(crate) schema: Schema,
    pub(crate) witness: Arc<Witness>,
}

impl Scene {
    pub(crate) fn on(server: Arc<PostgresServer>) -> Self {
        Self { schema: Schema::on(server), witness: Witness::new(shop()) }
    }

    /// A node as it is by default.
    pub(crate) fn config(&self) -> PostgresConfig {
        self.schema.config()
    }

    /// A node at another port, where something stands between it and the server.
    pub(crate) fn config_at(&self, port: u16, name: &str) -> PostgresConfig {
        let rest = format!("sslmode=disable&application_name={name}");
        self.config_to(&format!("postgres://postgres:postgres@127.0.0.1:{port}/postgres?{rest}"))
    }

    /// A node whose sessions the server knows by this name.
    pub(crate) fn config_named(&self, name: &str) -> PostgresConfig {
        self.config_to(&format!("{}?application_name={name}", self.schema.url()))
    }

    fn config_to(&self, url: &str) -> PostgresConfig {
        let config = PostgresConfig::new(url).unwrap().with_schema(self.schema.name());
        config.with_pooler(wow_store_postgres::Pooler::Direct).with_max_connections(8)
    }
}

/// Opens a store.
pub(crate) async fn open(config: PostgresConfig) -> Arc<dyn EventStore> {
    Arc::new(PostgresStore::open(config).await.expect("the store opens"))
}
