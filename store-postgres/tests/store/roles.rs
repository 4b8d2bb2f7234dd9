//! What the store may and may not do with the rights it has.

use wow_store_api::{AggregateId, ErrorKind, SaveSnapshot, prelude::*};
use wow_store_postgres::{Ddl, PostgresConfig, PostgresStore, schema_sql};

use crate::support::{Role, Schema, commit, order, orders, problems};

#[tokio::test]
async fn auto_needs_a_schema_that_the_role_owns_and_nothing_else() {
    let schema = Schema::fresh();
    let role = Role::fresh(&schema).await;
    schema.execute(&format!("CREATE SCHEMA {} AUTHORIZATION {}", schema.quoted(), role.name())).await;
    let database: String = schema.value("SELECT current_database()::text").await;
    let may_create = format!("SELECT has_database_privilege('{}', '{database}', 'CREATE')", role.name());
    assert!(!schema.value::<bool>(&may_create).await, "it may not make a schema");
    let config = PostgresConfig::new(&role.url()).unwrap().with_schema(schema.name());
    let store = PostgresStore::open(config).await.unwrap();
    store.append(commit(&order("1"), "c")).await.unwrap();
    store.save_snapshot(SaveSnapshot::new(order("1"), 1, 1, &1).unwrap()).await.unwrap();
    assert_eq!(store.head(&order("1")).await.unwrap(), 1, "it is all there");
    store.close().await.unwrap();
}

#[tokio::test]
async fn none_issues_no_ddl() {
    let schema = Schema::fresh();
    let role = Role::fresh(&schema).await;
    schema.execute(&schema_sql(schema.name(), &[orders()]).unwrap()).await;
    schema
        .execute(&format!(
            "GRANT USAGE ON SCHEMA {0} TO {1}; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {0} TO {1}",
            schema.quoted(),
            role.name()
        ))
        .await;
    let may_create = format!("SELECT has_schema_privilege('{}', '{}', 'CREATE')", role.name(), schema.name());
    assert!(!schema.value::<bool>(&may_create).await, "it may not make a table");
    for ddl in [Ddl::None, Ddl::Validate, Ddl::Auto] {
        let config = PostgresConfig::new(&role.url()).unwrap().with_schema(schema.name()).with_ddl(ddl);
        // Whatever it would create, alter or drop would be refused.
        let store = PostgresStore::open(config).await.unwrap();
        store.append(commit(&order("1"), format!("{ddl:?}"))).await.unwrap();
        store.save_snapshot(SaveSnapshot::new(order("1"), 1, 1, &1).unwrap()).await.unwrap();
        if ddl == Ddl::None {
            let customer = AggregateId::new("shop", "customer", "1").unwrap();
            let refused = store.append(commit(&customer, "c")).await.unwrap_err();
            let ErrorKind::SchemaMismatch { problems } = refused.kind() else { panic!("{refused}") };
            assert!(problems[0].contains("wow_log__shop__customer"), "it says what is missing: {problems:?}");
        }
        store.close().await.unwrap();
    }
}

#[tokio::test]
async fn a_role_without_rights_is_told_so() {
    let schema = Schema::fresh();
    let role = Role::fresh(&schema).await;
    let config = PostgresConfig::new(&role.url()).unwrap().with_schema(schema.name());
    let refused = PostgresStore::open(config.clone()).await.unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::Misconfigured { .. }), "auto may not: {refused:?}");
    let missing = problems(PostgresStore::open(config.with_ddl(Ddl::Validate)).await);
    assert!(missing[0].contains(schema.name()), "validate says what is missing: {missing:?}");
}
