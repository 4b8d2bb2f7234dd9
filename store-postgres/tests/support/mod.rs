//! What the tests of this backend share.

#![allow(dead_code, unreachable_pub, reason = "each test program uses a part of it")]
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a panic is how a test says no")]

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection};
use wow_store_conformance::server::PostgresServer;
use wow_store_postgres::{Pooler, PostgresConfig};

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
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let next = NEXT.fetch_add(1, Ordering::SeqCst);
        Self { server, name: format!("wow test {} {next}", std::process::id()) }
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
        PgConnection::connect(self.url()).await.expect("the server answers")
    }

    /// A table of the schema in SQL.
    pub fn at(&self, table: &str) -> String {
        format!("\"{}\".\"{table}\"", self.name)
    }

    /// Runs SQL.
    pub async fn execute(&self, sql: &str) {
        let mut connection = self.connect().await;
        connection.execute(sqlx::raw_sql(AssertSqlSafe(sql.to_owned()))).await.expect("the test's own SQL");
    }
}

impl Drop for Schema {
    fn drop(&mut self) {
        let (url, sql) = (self.url().to_owned(), format!("DROP SCHEMA IF EXISTS \"{}\" CASCADE", self.name));
        // Wherever it is dropped: on a thread without a runtime around it.
        let dropping = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime
                .block_on(async {
                    let mut connection = PgConnection::connect(&url).await?;
                    connection.execute(sqlx::raw_sql(AssertSqlSafe(sql))).await?;
                    connection.close().await
                })
                .map_err(std::io::Error::other)
        });
        // A server that the test has killed needs no cleaning.
        let _ = dropping.join();
    }
}
