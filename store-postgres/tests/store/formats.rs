//! Formats and owners (D3, N2).

use wow_store_api::{ErrorKind, prelude::*};
use wow_store_postgres::{Ddl, PostgresStore};

use crate::support::{Schema, commit, order};

#[tokio::test]
async fn a_newer_format_is_refused_whatever_else_is_there() {
    for structure in ["log", "store", "something of tomorrow"] {
        for ddl in [Ddl::Auto, Ddl::Validate, Ddl::None] {
            let schema = Schema::fresh();
            schema.open().await.close().await.unwrap();
            schema
                .execute(&format!(
                    "INSERT INTO {} (structure, version, recorded_at) VALUES ('{structure}', 9, now()) \
                     ON CONFLICT (structure) DO UPDATE SET version = 9; \
                     DROP TABLE {}",
                    schema.at("wow_format"),
                    schema.at("wow_lease")
                ))
                .await;
            let refused = PostgresStore::open(schema.config().with_ddl(ddl)).await.unwrap_err();
            let ErrorKind::FormatUnsupported { structure: named, found, .. } = refused.kind() else {
                panic!("{ddl:?}: {refused:?}")
            };
            assert_eq!((named.as_str(), *found), (structure, 9), "{ddl:?} names it");
            let made = format!("SELECT to_regclass('{}') IS NOT NULL", schema.at("wow_lease"));
            assert!(!schema.value::<bool>(&made).await, "{ddl:?} touches nothing of a newer version");
        }
    }
}

#[tokio::test]
async fn a_schema_has_one_store() {
    let schema = Schema::fresh();
    let first = PostgresStore::open(schema.config().with_name("orders")).await.unwrap();
    first.append(commit(&order("1"), "c")).await.unwrap();
    let refused = PostgresStore::open(schema.config().with_name("payments")).await.unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::Misconfigured { .. }), "another name: {refused:?}");
    let again = PostgresStore::open(schema.config().with_name("orders")).await.unwrap();
    assert_eq!(again.head(&order("1")).await.unwrap(), 1, "the same name is the same store");
}

#[tokio::test]
async fn two_stores_that_start_at_once_do_not_both_get_the_schema() {
    let schema = Schema::fresh();
    let opening = (0..4).map(|number| {
        PostgresStore::open(schema.config().with_name(format!("store {number}")).with_max_connections(2))
    });
    let opened = futures::future::join_all(opening).await;
    assert_eq!(opened.iter().filter(|opened| opened.is_ok()).count(), 1, "one of them: {opened:?}");
}
