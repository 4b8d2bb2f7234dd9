//! A database that is replaced by an older copy of itself under a running node. What the node knows of heads must not
//! make a hole of what was lost.

use wow_store_api::{ErrorKind, ExpectedVersion, PartitionCount, prelude::*};
use wow_store_postgres::PostgresStore;

use crate::support::{Schema, commit, order};

/// A node that has written five commits of one order and three of another, one after the other, each batch on top of what
/// it knew; then everything behind the seventh commit is gone, and the counter with it.
async fn restored() -> (Schema, PostgresStore) {
    let schema = Schema::fresh();
    let config = schema.config().with_partitions(PartitionCount::new(1).unwrap());
    let store = PostgresStore::open(config).await.unwrap();
    for n in 0..3 {
        store.append(commit(&order("1"), format!("c{n}"))).await.unwrap();
        store.append(commit(&order("2"), format!("c{n}"))).await.unwrap();
    }
    for n in 3..5 {
        store.append(commit(&order("1"), format!("c{n}"))).await.unwrap();
    }
    schema
        .execute(&format!(
            "DELETE FROM {} WHERE position > 7; UPDATE {} SET position = 7",
            schema.at("wow_log__shop__order"),
            schema.at("wow_log__shop__partition")
        ))
        .await;
    (schema, store)
}

#[tokio::test]
async fn an_exact_version_that_was_lost_is_refused() {
    let (_schema, store) = restored().await;
    let exact = |version| commit(&order("1"), "next").expect(ExpectedVersion::Exact(version));
    let refused = store.append(exact(5)).await.unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::VersionConflict { actual: 4, .. }), "{refused:?}");
    assert_eq!(store.append(exact(4)).await.unwrap().position(), 8, "what is there is gone on with");
    assert_eq!(store.head(&order("1")).await.unwrap(), 5);
}

#[tokio::test]
async fn any_version_goes_on_top_of_what_is_there() {
    let (_schema, store) = restored().await;
    let receipt = store.append(commit(&order("1"), "next")).await.unwrap();
    assert_eq!((receipt.version(), receipt.position()), (5, 8));
    let again = store.append(commit(&order("1"), "c4")).await.unwrap();
    assert!(!again.replayed, "the command that was lost is stored anew");
    assert_eq!((again.version(), again.position()), (6, 9));
}

#[tokio::test]
async fn positions_that_were_written_anew_by_another_node_do_not_hide_it() {
    let (schema, store) = restored().await;
    let another = PostgresStore::open(schema.config()).await.unwrap();
    // The position that the node saw last is there again, and is another commit's.
    for n in 0..3 {
        another.append(commit(&order("3"), format!("c{n}"))).await.unwrap();
    }
    let exact = commit(&order("1"), "next").expect(ExpectedVersion::Exact(5));
    let refused = store.append(exact).await.unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::VersionConflict { actual: 4, .. }), "{refused:?}");
}
