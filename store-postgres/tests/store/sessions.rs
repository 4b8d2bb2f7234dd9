//! Few connections for many, limits of the server, and other people's sessions.

use std::{sync::Arc, time::Duration};

use futures::future::join_all;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, Row as _};
use wow_store_api::{
    AcquireLease, AggregateId, Due, ErrorKind, Heartbeat, MemberId, Outcome, PartitionCount, PartitionId,
    ReadPage, SaveSnapshot, ScheduleTimer, SubscriptionName, TailRequest, TimerId, prelude::*,
    query::EventQuery,
};
use wow_store_postgres::{Pooler, PostgresConfig, PostgresStore};

use crate::support::{Schema, commit, context, eventually, first_partition, order, orders, url_with};

/// What one of many callers does, from the first use of everything on.
async fn everything(store: &PostgresStore, number: u32) -> wow_store_api::Result<()> {
    let name = ["order", "customer", "parcel"][usize::try_from(number % 3).unwrap()];
    let id = AggregateId::new("shop", name, format!("{number}"))?;
    let group = SubscriptionName::new("totals")?;
    let member = MemberId::new(format!("node {number}"))?;
    let minute = Duration::from_secs(60);
    store.append(commit(&id, "c")).await?;
    store.append_all([commit(&id, "d"), commit(&order("shared"), format!("{number}"))]).await?;
    store.save_snapshot(SaveSnapshot::new(id.clone(), 1, 1, &1)?).await?;
    store.read(ReadPage::new(PartitionId::new(context(), number % 4), 0)).await?;
    store.heartbeat(Heartbeat::new(group.clone(), member.clone(), minute)).await?;
    store
        .acquire_lease(AcquireLease::new(group, PartitionId::new(context(), number % 4), member, minute))
        .await?;
    let timer = TimerId::new(format!("{number}"))?;
    store.schedule_timer(ScheduleTimer::new(context(), timer, Due::After(minute), &1)?).await?;
    store.query_events(EventQuery::new(id.aggregate_type().clone()).with_limit(5)).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn two_connections_serve_two_hundred_callers() {
    let schema = Schema::fresh();
    let config = schema.config().with_partitions(PartitionCount::new(4).unwrap()).with_max_connections(2);
    // What is looked for is a circle of callers that wait for each other, not the speed of this machine.
    let store = PostgresStore::open(config.with_transaction_timeout(Duration::from_secs(60))).await.unwrap();
    let store = Arc::new(store);
    let callers: Vec<_> = (0..200)
        .map(|number| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { everything(&store, number).await })
        })
        .collect();
    for caller in join_all(callers).await {
        caller.unwrap().unwrap();
    }
    assert_eq!(store.head(&order("shared")).await.unwrap(), 200, "everybody's commit is there");
    let sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name = ";
    let name = format!("pool {}", std::process::id());
    let config = PostgresConfig::new(&url_with(schema.url(), &format!("application_name={name}"))).unwrap();
    let config = config.with_schema(schema.name()).with_pooler(Pooler::Direct).with_max_connections(2);
    let counted = PostgresStore::open(config).await.unwrap();
    join_all((0..50).map(|number| counted.append(commit(&order("counted"), format!("{number}"))))).await;
    let open: i64 = schema.value(&format!("{sessions}'{name}'")).await;
    assert!(open <= 3, "two, and the one that listens: {open}");
}

/// A store whose server cancels what takes longer than a moment.
async fn impatient(schema: &Schema) -> PostgresStore {
    let url = url_with(schema.url(), "options[statement_timeout]=300");
    let config = PostgresConfig::new(&url).unwrap().with_schema(schema.name());
    let config = config.with_partitions(PartitionCount::new(1).unwrap());
    PostgresStore::open(config.with_transaction_timeout(Duration::from_secs(4))).await.unwrap()
}

#[tokio::test]
async fn what_statement_timeout_cancels_is_tried_again() {
    let schema = Schema::fresh();
    let store = impatient(&schema).await;
    store.append(commit(&order("1"), "a")).await.unwrap();
    let mut holder = schema.connect().await;
    let mut transaction = holder.begin().await.unwrap();
    let lock = format!("SELECT * FROM {} FOR UPDATE", schema.at("wow_log__shop__partition"));
    transaction.execute(AssertSqlSafe(lock.clone())).await.unwrap();
    let waiting = store.clone();
    let append = tokio::spawn(async move { waiting.append(commit(&order("1"), "b")).await });
    schema.somebody_waits_for(&mut transaction).await;
    let pid: i32 = transaction.fetch_one("SELECT pg_backend_pid()").await.unwrap().get(0);
    let waits_since = format!(
        "SELECT coalesce(max(extract(epoch FROM query_start)), 0)::float8 FROM pg_stat_activity \
         WHERE {pid} = ANY(pg_blocking_pids(pid))"
    );
    let first: f64 = schema.value(&waits_since).await;
    eventually("it was cancelled and waits again", || async {
        schema.value::<f64>(&waits_since).await > first
    })
    .await;
    transaction.commit().await.unwrap();
    assert_eq!(append.await.unwrap().unwrap().version(), 2, "it goes through once the lock is gone");
    let mut transaction = holder.begin().await.unwrap();
    transaction.execute(AssertSqlSafe(lock)).await.unwrap();
    let refused = store.append(commit(&order("1"), "c")).await.unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::Timeout), "a lock that is never given up: {refused:?}");
    assert_eq!(refused.outcome(), Outcome::NotApplied, "the server says that nothing was done");
    assert!(refused.is_transient(), "it may work later");
    transaction.commit().await.unwrap();
    assert_eq!(store.head(&order("1")).await.unwrap(), 2, "nothing of it is there");
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_that_idle_in_a_transaction_hold_nothing_up() {
    let schema = Schema::fresh();
    let store = Arc::new(schema.open().await);
    store.append(commit(&order("1"), "a")).await.unwrap();
    // One that has written something of its own long ago and forgot about it, and one that keeps an old view of the log.
    schema.execute(&format!("CREATE TABLE {} (a int)", schema.at("mine"))).await;
    let (mut writer, mut reader) = (schema.connect().await, schema.connect().await);
    let mut writing = writer.begin().await.unwrap();
    writing.execute(AssertSqlSafe(format!("INSERT INTO {} VALUES (1)", schema.at("mine")))).await.unwrap();
    let mut reading = reader.begin_with("BEGIN ISOLATION LEVEL SERIALIZABLE").await.unwrap();
    reading
        .execute(AssertSqlSafe(format!("SELECT * FROM {}", schema.at("wow_log__shop__order"))))
        .await
        .unwrap();
    reading
        .execute(AssertSqlSafe(format!("SELECT * FROM {}", schema.at("wow_log__shop__partition"))))
        .await
        .unwrap();
    let mut tail = store.tail(TailRequest::new(context())).await.unwrap();
    for number in 0..20 {
        // Types that are new as well.
        let id = AggregateId::new("shop", format!("kind{}", number % 4), "1").unwrap();
        store.append(commit(&id, format!("{number}"))).await.unwrap();
    }
    let mut seen = 0;
    while seen < 21 {
        let batch = tokio::time::timeout(Duration::from_secs(20), tail.next()).await;
        seen += batch.expect("the tail does not wait for them").unwrap().commits.len();
    }
    assert_eq!(seen, 21, "the tail has seen all while they idle");
    writing.rollback().await.unwrap();
    reading.rollback().await.unwrap();
}

#[tokio::test]
async fn asynchronous_commit_is_turned_on_for_nobody() {
    let schema = Schema::fresh();
    // Whoever has turned it off for a role or a database did not mean the log.
    let url = url_with(schema.url(), "options[synchronous_commit]=off");
    let config = PostgresConfig::new(&url).unwrap().with_schema(schema.name()).with_max_connections(1);
    let store = PostgresStore::open(config.with_partitions(PartitionCount::new(1).unwrap())).await.unwrap();
    store.append(commit(&order("1"), "a")).await.unwrap();
    // What the session of the appends has: a trigger tells.
    schema
        .execute(&format!(
            "CREATE TABLE {0} (setting text); \
             CREATE FUNCTION {1}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
                 INSERT INTO {0} VALUES (current_setting('synchronous_commit')); RETURN NEW; END $$; \
             CREATE TRIGGER tell BEFORE INSERT ON {2} FOR EACH ROW EXECUTE FUNCTION {1}()",
            schema.at("told"),
            schema.at("tell"),
            schema.at("wow_log__shop__order")
        ))
        .await;
    store.append(commit(&order("1"), "b")).await.unwrap();
    store.append_all([commit(&order("1"), "c")]).await.unwrap();
    let told = format!("SELECT string_agg(DISTINCT setting, ',') FROM {}", schema.at("told"));
    assert_eq!(schema.value::<String>(&told).await, "on", "what is acknowledged is on disk");
    assert_eq!(store.read(ReadPage::new(first_partition(), 0)).await.unwrap().commits.len(), 3);
    assert_eq!(store.aggregate_types().await.unwrap(), [orders()]);
}
