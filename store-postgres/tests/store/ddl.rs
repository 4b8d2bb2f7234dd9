//! What `validate` sees (D1), and names as long as they may be.

use std::time::Duration;

use wow_store_api::{
    AggregateId, AggregateType, ContextName, Due, SaveSnapshot, ScheduleTimer, TimerId, prelude::*,
};
use wow_store_conformance::server::PostgresServer;
use wow_store_postgres::{Ddl, PostgresStore, schema_sql};

use crate::support::{Schema, commit, context, order, problems};

/// A schema with a table of every kind.
async fn used() -> Schema {
    let schema = Schema::fresh();
    let store = schema.open().await;
    store.append(commit(&order("1"), "c")).await.unwrap();
    store.save_snapshot(SaveSnapshot::new(order("1"), 1, 1, &1).unwrap()).await.unwrap();
    let due = Due::After(Duration::from_secs(60));
    let timer = ScheduleTimer::new(context(), TimerId::new("t").unwrap(), due, &1).unwrap();
    store.schedule_timer(timer).await.unwrap();
    store.close().await.unwrap();
    schema
}

async fn validated(schema: &Schema) -> Vec<String> {
    problems(PostgresStore::open(schema.config().with_ddl(Ddl::Validate)).await)
}

/// What is done to the schema, and what the one problem has to name.
const DAMAGES: &[(&str, &[&str])] = &[
    ("DROP TABLE {wow_checkpoint}", &["table wow_checkpoint "]),
    ("DROP TABLE {wow_log__shop__order}", &["table wow_log__shop__order "]),
    ("ALTER TABLE {wow_reservation} SET UNLOGGED", &["table wow_reservation "]),
    ("ALTER TABLE {wow_lease} DROP COLUMN owner", &["column wow_lease.owner "]),
    (
        "ALTER TABLE {wow_log__shop__order} ALTER COLUMN size TYPE bigint",
        &["column wow_log__shop__order.size ", "bigint", "integer"],
    ),
    (
        "ALTER TABLE {wow_log__shop__order} ALTER COLUMN committed_at TYPE timestamptz",
        &["column wow_log__shop__order.committed_at ", "timestamp(3) with time zone"],
    ),
    ("ALTER TABLE {wow_lease} ALTER COLUMN owner SET NOT NULL", &["column wow_lease.owner "]),
    (
        "ALTER TABLE {wow_snapshot__shop__order} ALTER COLUMN state DROP NOT NULL",
        &["column wow_snapshot__shop__order.state "],
    ),
    (
        "ALTER TABLE {wow_checkpoint} ALTER COLUMN subscription TYPE text COLLATE \"ucs_basic\"",
        &["column wow_checkpoint.subscription ", "collation"],
    ),
    ("ALTER TABLE {wow_lease} ADD COLUMN extra integer NOT NULL", &["column wow_lease.extra "]),
    (
        "ALTER TABLE {wow_failure_discarded} ALTER COLUMN number DROP IDENTITY",
        &["column wow_failure_discarded.number "],
    ),
    ("DROP INDEX {wow_timer__shop__due}", &["index wow_timer__shop__due "]),
    (
        "ALTER TABLE {wow_lease_member} DROP CONSTRAINT wow_lease_member__pk",
        &["primary key wow_lease_member__pk "],
    ),
    (
        "ALTER TABLE {wow_log__shop__partition} DROP CONSTRAINT wow_partition__shop",
        &["primary key wow_partition__shop "],
    ),
    (
        "ALTER TABLE {wow_log__shop__order} DROP CONSTRAINT wow_log__shop__order__ver",
        &["unique constraint wow_log__shop__order__ver "],
    ),
    // Of the right name and on the right columns, but it lets everything through.
    (
        "ALTER TABLE {wow_log__shop__order} DROP CONSTRAINT wow_log__shop__order__cmd; \
         CREATE INDEX wow_log__shop__order__cmd ON {wow_log__shop__order} (tenant, id, command_id)",
        &["wow_log__shop__order__cmd ", "not unique"],
    ),
    (
        "ALTER TABLE {wow_log__shop__order} DROP CONSTRAINT wow_log__shop__order__cmd; \
         CREATE UNIQUE INDEX wow_log__shop__order__cmd ON {wow_log__shop__order} (tenant, id, command_id, version)",
        &["wow_log__shop__order__cmd ", "(tenant, id, command_id)"],
    ),
    (
        "ALTER TABLE {wow_log__shop__order} DROP CONSTRAINT wow_log__shop__order__cmd; \
         CREATE UNIQUE INDEX wow_log__shop__order__cmd ON {wow_log__shop__order} (tenant, id, command_id) \
         WHERE version > 1",
        &["wow_log__shop__order__cmd ", "condition"],
    ),
    (
        "ALTER TABLE {wow_log__shop__order} DROP CONSTRAINT wow_log__shop__order__cmd, \
         ADD CONSTRAINT wow_log__shop__order__cmd UNIQUE (tenant, id, command_id) DEFERRABLE",
        &["wow_log__shop__order__cmd ", "deferrable"],
    ),
    // Of the right name, on another table.
    (
        "DROP INDEX {wow_checkpoint__ctx}; CREATE INDEX wow_checkpoint__ctx ON {wow_lease} (context)",
        &["wow_checkpoint__ctx ", "wow_lease", "wow_checkpoint"],
    ),
    ("DROP FUNCTION {wow_append__shop__order}", &["function wow_append__shop__order "]),
    (
        "DO $do$ BEGIN EXECUTE replace(pg_get_functiondef('{wow_append__shop__order}'::regproc), '+ v_count', '+ 1'); \
         END $do$",
        &["function wow_append__shop__order "],
    ),
];

#[tokio::test]
async fn validate_names_whatever_is_missing_or_different() {
    for (damage, words) in DAMAGES {
        let schema = used().await;
        let opened = PostgresStore::open(schema.config().with_ddl(Ddl::Validate)).await;
        // What `auto` made is right.
        opened.unwrap().close().await.unwrap();
        schema.execute(&in_schema(damage, &schema)).await;
        let problems = validated(&schema).await;
        assert_eq!(problems.len(), 1, "{damage}: one problem for one damage: {problems:?}");
        for word in *words {
            assert!(problems[0].contains(word), "{damage}: {word:?} is named in {:?}", problems[0]);
        }
    }
}

fn in_schema(template: &str, schema: &Schema) -> String {
    template.replace('{', &format!("{}.\"", schema.quoted())).replace('}', "\"")
}

#[tokio::test]
async fn validate_names_all_that_is_missing_at_once() {
    let schema = used().await;
    for damage in
        ["DROP TABLE {wow_lease}", "DROP INDEX {wow_checkpoint__ctx}", "DROP TABLE {wow_reservation}"]
    {
        schema.execute(&in_schema(damage, &schema)).await;
    }
    let problems = validated(&schema).await;
    // Whoever repairs it need not try again and again.
    for name in ["wow_lease", "wow_checkpoint__ctx", "wow_reservation"] {
        assert!(problems.iter().any(|problem| problem.contains(name)), "{name}: {problems:?}");
    }
}

#[tokio::test]
async fn validate_and_none_create_nothing() {
    for ddl in [Ddl::Validate, Ddl::None] {
        let schema = Schema::fresh();
        let missing = problems(PostgresStore::open(schema.config().with_ddl(ddl)).await);
        assert!(!missing.is_empty(), "{ddl:?} says what is missing");
        let schemas = "SELECT count(*) FROM pg_catalog.pg_namespace WHERE nspname = ";
        let made: i64 = schema.value(&format!("{schemas}'{}'", schema.name())).await;
        assert_eq!(made, 0, "{ddl:?} makes no schema");
    }
}

#[tokio::test]
async fn auto_repairs_what_is_missing_and_names_what_it_cannot_repair() {
    let schema = used().await;
    schema.execute(&in_schema("DROP TABLE {wow_lease}; DROP INDEX {wow_timer__shop__due}", &schema)).await;
    let store = schema.open().await;
    // The log comes back with the next use of it.
    store.append(commit(&order("1"), "d")).await.unwrap();
    store.close().await.unwrap();
    schema.execute(&in_schema("ALTER TABLE {wow_lease} ALTER COLUMN owner TYPE varchar(10)", &schema)).await;
    let problems = problems(PostgresStore::open(schema.config()).await);
    // Data is never converted behind somebody's back.
    assert!(problems.iter().any(|problem| problem.contains("wow_lease.owner")), "{problems:?}");
}

#[tokio::test]
async fn the_schema_as_sql_is_the_one_that_auto_makes() {
    let schema = Schema::fresh();
    schema.execute(&schema_sql(schema.name(), &[crate::support::orders()]).unwrap()).await;
    let store = PostgresStore::open(schema.config().with_ddl(Ddl::Validate)).await.unwrap();
    let receipt = store.append(commit(&order("1"), "c")).await.unwrap();
    assert_eq!(receipt.position(), 1, "it can be written to");
}

/// Runs through everything that has a name of its own.
async fn use_all(store: &PostgresStore, id: &AggregateId) {
    let aggregate_type = id.aggregate_type();
    store.append(commit(id, "c")).await.unwrap();
    store.save_snapshot(SaveSnapshot::new(id.clone(), 1, 1, &1).unwrap()).await.unwrap();
    let due = Due::After(Duration::from_secs(60));
    let timer = ScheduleTimer::new(aggregate_type.context().clone(), TimerId::new("t").unwrap(), due, &1);
    store.schedule_timer(timer.unwrap()).await.unwrap();
}

#[tokio::test]
async fn the_longest_names_are_not_cut_and_do_not_collide() {
    // 63 bytes, and everything that has to be quoted.
    let name = format!("{:é<1$}", "A \"b\" . ; -- $1 'c' {now} {log}", 47);
    assert_eq!(name.len(), 63, "the longest name that PostgreSQL takes");
    let schema = Schema::named(PostgresServer::shared(), name);
    let store = schema.open().await;
    let long = "c".repeat(21);
    let types: Vec<AggregateType> = ["a", "A", "b"]
        .iter()
        .map(|last| AggregateType::new(&long, format!("{}{last}", "a".repeat(20))).unwrap())
        .collect();
    for (place, aggregate_type) in types.iter().enumerate() {
        let id = AggregateId::of(aggregate_type.clone(), format!("{place}")).unwrap();
        use_all(&store, &id).await;
    }
    for aggregate_type in &types {
        let table = format!("wow_log__{}__{}", aggregate_type.context(), aggregate_type.name());
        let commits: i64 = schema.value(&format!("SELECT count(*) FROM {}", schema.at(&table))).await;
        assert_eq!(commits, 1, "{table} holds its own commits alone");
    }
    let alone = ContextName::new("d".repeat(41)).unwrap();
    use_all(&store, &AggregateId::new(alone.as_str(), "a", "1").unwrap()).await;
    store.close().await.unwrap();
    // Every name is the one that was asked for: none was cut to another.
    let store = PostgresStore::open(schema.config().with_ddl(Ddl::Validate)).await.unwrap();
    assert_eq!(store.aggregate_types().await.unwrap().len(), 4, "all are found again");
}

#[test]
fn a_schema_name_that_would_be_cut_is_refused() {
    assert!(schema_sql(&"s".repeat(64), &[]).is_err(), "64 bytes");
    assert!(schema_sql("", &[]).is_err(), "none");
}
