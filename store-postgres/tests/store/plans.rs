//! The plans that sessions keep: made while a table is small, they must be right when it is large.

use wow_store_api::{PartitionCount, ReadPage, prelude::*};
use wow_store_postgres::PostgresStore;

use crate::support::{Schema, commit, eventually, first_partition, order};

#[tokio::test]
async fn a_plan_made_on_a_small_table_does_not_scan_a_large_one() {
    let schema = Schema::fresh();
    let config = schema.config().with_partitions(PartitionCount::new(1).unwrap()).with_max_connections(1);
    let store = PostgresStore::open(config).await.unwrap();
    let log = schema.at("wow_log__shop__order");
    // The plans are made now: the table is tiny, and looks tiny to the planner for ever.
    for command in 0..10 {
        store.append(commit(&order("small"), format!("{command}"))).await.unwrap();
        store.read(ReadPage::new(first_partition(), 0)).await.unwrap();
        store.head(&order("small")).await.unwrap();
    }
    schema.execute(&format!("ALTER TABLE {log} SET (autovacuum_enabled = off); ANALYZE {log}")).await;
    store.append(commit(&order("small"), "after analyze")).await.unwrap();
    const MANY: i64 = 50_000;
    schema
        .execute(&format!(
            "INSERT INTO {log} SELECT 0, 11 + n, '', 'bulk ' || n, 1, 'c', now(), 10, NULL, l.events \
             FROM generate_series(1, {MANY}) AS n, (SELECT events FROM {log} LIMIT 1) AS l; \
             UPDATE {} SET position = 11 + {MANY}",
            schema.at("wow_log__shop__partition")
        ))
        .await;
    let count = async |what: &str| {
        let sql = format!(
            "SELECT coalesce(sum({what}), 0)::bigint FROM pg_stat_user_tables WHERE relid = '{log}'::regclass"
        );
        schema.value::<i64>(&sql).await
    };
    eventually("the bulk is counted", || async { count("n_tup_ins").await >= MANY }).await;
    let (inserted, scanned, fetched) =
        (count("n_tup_ins").await, count("seq_tup_read").await, count("idx_tup_fetch").await);
    const APPENDS: i64 = 200;
    for command in 0..APPENDS {
        // Where there is nothing yet, and where there is a commit that may be of the same command.
        let id = if command % 2 == 0 { format!("{command}") } else { format!("bulk {}", 1_000 + command) };
        store.append(commit(&order(&id), format!("{command}"))).await.unwrap();
    }
    let page = store.read(ReadPage::new(first_partition(), 30_000).with_max_commits(100)).await.unwrap();
    assert_eq!(page.commits.len(), 100, "a page from the middle");
    assert_eq!(store.head(&order("bulk 7")).await.unwrap(), 1, "a head");
    // What a session did is counted when it ends, at the latest.
    store.close().await.unwrap();
    eventually("the appends are counted", || async { count("n_tup_ins").await >= inserted + APPENDS }).await;
    assert_eq!(count("seq_tup_read").await, scanned, "no row was read by a scan of the table");
    let fetched = count("idx_tup_fetch").await - fetched;
    assert!(fetched <= 20 * APPENDS, "{fetched} rows were fetched for {APPENDS} appends and a page of 100");
}
