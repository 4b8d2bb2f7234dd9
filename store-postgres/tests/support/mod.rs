//! What the tests of this backend share.

#![allow(dead_code, unreachable_pub, reason = "each test program uses a part of it")]
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a panic is how a test says no")]

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use sqlx::{
    AssertSqlSafe, ConnectOptions as _, Connection as _, Executor as _, PgConnection, Row as _,
    postgres::PgConnectOptions,
};
use tokio::{
    runtime::{Handle, RuntimeFlavor},
    task::block_in_place,
};
use wow_store_api::{
    AggregateId, AggregateType, Commit, ContextName, ErrorKind, PartitionId, Position, Result,
};
use wow_store_conformance::server::PostgresServer;
use wow_store_postgres::{Pooler, PostgresConfig, PostgresStore};

/// How long anything that must happen may take.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Asks again until the answer is yes.
pub async fn eventually<F: Future<Output = bool>>(what: &str, ask: impl FnMut() -> F) {
    wow_store_conformance::eventually(PATIENCE, what, ask).await;
}

/// A number that no other call here gives.
pub fn next() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    NEXT.fetch_add(1, Ordering::SeqCst)
}

pub fn context() -> ContextName {
    ContextName::new("shop").expect("a name")
}

pub fn orders() -> AggregateType {
    AggregateType::new("shop", "order").expect("a type")
}

pub fn order(id: &str) -> AggregateId {
    AggregateId::new("shop", "order", id).expect("an id")
}

/// The first partition, which is the only one of a store with one.
pub fn first_partition() -> PartitionId {
    PartitionId::new(context(), 0)
}

/// A commit of one event.
pub fn commit(id: &AggregateId, command: impl Into<String>) -> Commit {
    Commit::new(id.clone(), command).event("Placed", 1, &serde_json::json!({"total": 1})).expect("an event")
}

/// What is missing or different, from the error that says so.
pub fn problems(opened: Result<PostgresStore>) -> Vec<String> {
    match opened.expect_err("a store on a schema that is not right").kind() {
        ErrorKind::SchemaMismatch { problems } => problems.clone(),
        other => panic!("another error: {other:?}"),
    }
}

/// A URL with another user, and with more options.
pub fn url_as(url: &str, user: &str, password: &str) -> String {
    let (scheme, rest) = url.split_once("://").expect("a URL");
    let place = rest.rsplit_once('@').map_or(rest, |(_, place)| place);
    format!("{scheme}://{user}:{password}@{place}")
}

/// A URL with one more option.
pub fn url_with(url: &str, option: &str) -> String {
    format!("{url}{}{option}", if url.contains('?') { '&' } else { '?' })
}

/// A schema of its own on a server. Dropped with everything in it.
#[derive(Debug)]
pub struct Schema {
    server: Arc<PostgresServer>,
    name: String,
}

impl Schema {
    /// A schema that does not exist yet, on the server that the tests share.
    pub fn fresh() -> Self {
        Self::on(PostgresServer::shared())
    }

    /// The same on another server.
    pub fn on(server: Arc<PostgresServer>) -> Self {
        let name = format!("wow test {} {}", std::process::id(), next());
        Self::named(server, name)
    }

    /// A schema of this name.
    pub fn named(server: Arc<PostgresServer>, name: impl Into<String>) -> Self {
        Self { server, name: name.into() }
    }

    pub fn server(&self) -> &PostgresServer {
        &self.server
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn url(&self) -> &str {
        self.server.url()
    }

    /// A store in it.
    pub fn config(&self) -> PostgresConfig {
        let config = PostgresConfig::new(self.url()).expect("the server's URL");
        config.with_schema(&self.name).with_pooler(Pooler::Direct).with_max_connections(8)
    }

    /// A connection of the test's own.
    pub async fn connect(&self) -> PgConnection {
        let options: PgConnectOptions = self.url().parse().expect("the server's URL");
        options.disable_statement_logging().connect().await.expect("the server answers")
    }

    /// Takes the log of orders back to an earlier position, as a restored backup does.
    pub async fn lose_log_after(&self, partition: &PartitionId, after_position: Position) {
        let (log, counter) = (self.at("wow_log__shop__order"), self.at("wow_log__shop__partition"));
        let sql = format!(
            "DELETE FROM {log} WHERE partition = {0} AND position > {after_position}; \
             UPDATE {counter} SET position = {after_position} WHERE partition = {0}",
            partition.index()
        );
        self.execute(&sql).await;
    }

    /// Waits until somebody waits for what this connection has locked.
    pub async fn somebody_waits_for(&self, connection: &mut PgConnection) {
        let pid: i32 = connection.fetch_one("SELECT pg_backend_pid()").await.expect("its number").get(0);
        eventually("somebody waits for the lock", || async {
            let waiting = "SELECT count(*) > 0 FROM pg_stat_activity WHERE";
            self.value::<bool>(&format!("{waiting} {pid} = ANY(pg_blocking_pids(pid))")).await
        })
        .await;
    }

    /// A table of the schema in SQL.
    pub fn at(&self, table: &str) -> String {
        format!("{}.\"{table}\"", self.quoted())
    }

    /// Its name in SQL.
    pub fn quoted(&self) -> String {
        format!("\"{}\"", self.name.replace('"', "\"\""))
    }

    /// A store in it, opened as it is.
    pub async fn open(&self) -> PostgresStore {
        PostgresStore::open(self.config()).await.expect("the store opens")
    }

    /// The only value of the only row of a query.
    pub async fn value<T>(&self, sql: &str) -> T
    where
        T: for<'r> sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres>,
    {
        let mut connection = self.connect().await;
        let row = connection.fetch_one(sqlx::raw_sql(AssertSqlSafe(sql.to_owned()))).await;
        row.expect("the test's own SQL").get(0)
    }

    /// Runs SQL.
    pub async fn execute(&self, sql: &str) {
        let mut connection = self.connect().await;
        connection.execute(sqlx::raw_sql(AssertSqlSafe(sql.to_owned()))).await.expect("the test's own SQL");
    }
}

/// A role of its own that may log in and owns nothing. Dropped in the end, with what was granted to it.
#[derive(Debug)]
pub struct Role {
    name: String,
    url: String,
}

impl Role {
    pub const PASSWORD: &str = "pa55-word";

    pub async fn fresh(schema: &Schema) -> Self {
        let name = format!("wow_role_{}_{}", std::process::id(), next());
        schema.execute(&format!("CREATE ROLE {name} LOGIN PASSWORD '{}'", Self::PASSWORD)).await;
        Self { name, url: schema.url().to_owned() }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// The server's URL for this role.
    pub fn url(&self) -> String {
        url_as(&self.url, &self.name, Self::PASSWORD)
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        run_aside(&self.url, format!("DROP OWNED BY {0} CASCADE; DROP ROLE {0}", self.name));
    }
}

impl Drop for Schema {
    fn drop(&mut self) {
        run_aside(self.url(), format!("DROP SCHEMA IF EXISTS {} CASCADE", self.quoted()));
    }
}

/// Runs SQL wherever this is: on a thread without a runtime around it. A server that the test has killed needs no
/// cleaning.
fn run_aside(url: &str, sql: String) {
    let (url, sql) = (url.to_owned(), format!("SET lock_timeout = '20s'; {sql}"));
    let running = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime
            .block_on(async {
                let mut connection = PgConnection::connect(&url).await?;
                connection.execute(sqlx::raw_sql(AssertSqlSafe(sql))).await?;
                connection.close().await
            })
            .map_err(std::io::Error::other)
    });
    let wait = || drop(running.join());
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        // What the SQL waits for may be a task that this thread would have run.
        Ok(RuntimeFlavor::MultiThread) => block_in_place(wait),
        _ => wait(),
    }
}
