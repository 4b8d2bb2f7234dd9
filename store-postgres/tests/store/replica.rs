//! Queries on a standby (Q2) that wait for what they must see (Q3).

use std::{sync::Arc, time::Duration};

use sqlx::{Connection as _, Executor as _, PgConnection};
use wow_store_api::{
    ErrorKind, ReadPreference, SaveSnapshot,
    prelude::*,
    query::{AtLeast, EventQuery, SnapshotQuery},
};
use wow_store_conformance::server::PostgresServer;
use wow_store_postgres::PostgresStore;

use crate::support::{Schema, commit, eventually, order, orders};

/// Makes a streaming standby beside the server, and waits until it answers.
async fn standby(schema: &Schema) -> PgConnection {
    let spare = schema.server().spare();
    let bin: String = schema.value("SELECT setting FROM pg_config WHERE name = 'BINDIR'").await;
    let socket: String =
        schema.value("SELECT split_part(current_setting('unix_socket_directories'), ',', 1)").await;
    let port: String = schema.value("SELECT current_setting('port')").await;
    // A standby has to have as many as its primary, whose settings are not all in files.
    let connections: String = schema.value("SELECT current_setting('max_connections')").await;
    let (directory, own_port) = (&spare.directory, spare.port);
    let script = format!(
        "export PGPASSWORD=postgres; \
         {bin}/pg_basebackup -h {socket} -p {port} -U postgres -D {directory} -R -X stream -c fast >{directory}.log 2>&1 \
         && {bin}/pg_ctl -D {directory} -w -l {directory}.log -o \"-p {own_port} -c listen_addresses=* -c max_connections={connections}\" start \
            >/dev/null 2>&1"
    );
    schema.execute(&format!("COPY (SELECT 1) TO PROGRAM '{script}'")).await;
    eventually("the standby answers", || async { PgConnection::connect(&spare.url).await.is_ok() }).await;
    PgConnection::connect(&spare.url).await.unwrap()
}

async fn totals(store: &PostgresStore, preference: ReadPreference) -> u64 {
    let query = EventQuery::new(orders()).with_read_preference(preference);
    store.count_events(query).await.unwrap()
}

#[tokio::test]
async fn a_query_on_a_standby_waits_for_the_version_it_must_see() {
    let server = PostgresServer::start(&["fsync = off", "wal_level = replica", "max_wal_senders = 10"]);
    let schema = Schema::on(Arc::new(server));
    let first = schema.open().await;
    first.append(commit(&order("1"), "a")).await.unwrap();
    first.save_snapshot(SaveSnapshot::new(order("1"), 1, 1, &"a").unwrap()).await.unwrap();
    let mut standby = standby(&schema).await;
    let config = schema.config().with_replica(&schema.server().spare().url).unwrap();
    let store = PostgresStore::open(config).await.unwrap();
    assert_eq!(totals(&store, ReadPreference::Secondary).await, 1, "the standby has it");

    // The standby stands still: what is asked there is what was there.
    standby.execute("SELECT pg_wal_replay_pause()").await.unwrap();
    store.append(commit(&order("1"), "b")).await.unwrap();
    store.save_snapshot(SaveSnapshot::new(order("1"), 2, 1, &"b").unwrap()).await.unwrap();
    assert_eq!(totals(&store, ReadPreference::Secondary).await, 1, "it is the standby that answers");
    for preference in [ReadPreference::Primary, ReadPreference::PrimaryPreferred] {
        assert_eq!(totals(&store, preference).await, 2, "{preference:?}");
    }
    let by_default = store.count_events(EventQuery::new(orders())).await.unwrap();
    assert_eq!(by_default, 2, "the primary unless asked otherwise");
    let must_see = |within| AtLeast::new(order("1"), 2).within(within);
    let events = |within| {
        let query = EventQuery::new(orders()).with_read_preference(ReadPreference::Secondary);
        query.with_at_least(must_see(within))
    };
    let late = store.query_events(events(Duration::from_millis(200))).await.unwrap_err();
    assert!(matches!(late.kind(), ErrorKind::Timeout), "it does not answer with less: {late:?}");

    let waiting = store.clone();
    let query = SnapshotQuery::new(orders(), 1)
        .with_read_preference(ReadPreference::Secondary)
        .with_at_least(must_see(Duration::from_secs(30)));
    let asked = tokio::spawn(async move { waiting.query_snapshots(query).await });
    let events = tokio::spawn({
        let (waiting, query) = (store.clone(), events(Duration::from_secs(30)));
        async move { waiting.query_events(query).await }
    });
    standby.execute("SELECT pg_wal_replay_resume()").await.unwrap();
    let page = asked.await.unwrap().unwrap();
    assert_eq!(page.items[0].version, 2, "it waits until the standby has it");
    assert_eq!(events.await.unwrap().unwrap().items.len(), 2, "events as well");
    assert_eq!(totals(&store, ReadPreference::Nearest).await, 2, "whoever is nearest");

    // The standby is gone.
    drop(standby);
    let (bin, directory): (String, _) = (
        schema.value("SELECT setting FROM pg_config WHERE name = 'BINDIR'").await,
        &schema.server().spare().directory,
    );
    schema
        .execute(&format!(
            "COPY (SELECT 1) TO PROGRAM '{bin}/pg_ctl -D {directory} -w -m immediate stop >/dev/null 2>&1'"
        ))
        .await;
    assert_eq!(totals(&store, ReadPreference::SecondaryPreferred).await, 2, "the primary steps in");
    let query = EventQuery::new(orders()).with_read_preference(ReadPreference::Secondary);
    let refused = store.count_events(query).await.unwrap_err();
    assert!(refused.is_transient(), "who insists on it is told: {refused:?}");
    assert_eq!(store.append(commit(&order("1"), "c")).await.unwrap().version(), 3, "writes do not mind");
}

#[tokio::test]
async fn a_store_without_replicas_says_so() {
    let schema = Schema::fresh();
    let store = schema.open().await;
    store.append(commit(&order("1"), "a")).await.unwrap();
    let query = EventQuery::new(orders()).with_read_preference(ReadPreference::Secondary);
    let refused = store.count_events(query).await.unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::Unavailable { .. }), "{refused:?}");
    assert_eq!(totals(&store, ReadPreference::SecondaryPreferred).await, 1, "where the primary will do");
}
