//! What other clients write is read, and what is none of JSON's is told.

use futures_util::TryStreamExt as _;
use mongodb::bson::{Bson, Decimal128, Document, doc};
use wow_store_api::{ErrorKind, PartitionId, ReadPage, prelude::*};

use crate::support::{Database, commit, order, shop};

/// A store with one commit whose body another client has replaced.
async fn with_body(body: Bson) -> (Database, wow_store_mongo::MongoStore) {
    let database = Database::fresh();
    let store = database.open().await;
    store.append(commit(&order("1"), "c")).await.unwrap();
    let log = database.connect().await.collection::<Document>("wow_log__shop__order");
    let stored = log.find_one(doc! {}).await.unwrap().unwrap();
    let mut replaced = stored.clone();
    replaced.insert("events", vec![doc! { "name": "Happened", "revision": 1.0, "body": body }]);
    // The counters of another client's driver are of another type.
    replaced.insert("version", 1_i32);
    log.replace_one(doc! { "_id": stored.get_document("_id").unwrap() }, replaced).await.unwrap();
    (database, store)
}

#[tokio::test]
async fn numbers_of_every_type_are_read() {
    let decimal = |text: &str| Bson::Decimal128(text.parse::<Decimal128>().unwrap());
    for (body, expected) in [
        (Bson::Int32(-7), "-7"),
        (Bson::Int64(i64::MAX), "9223372036854775807"),
        (Bson::Double(1.5), "1.5"),
        (decimal("1.10"), "1.10"),
        (decimal("12E-1"), "1.2"),
        (decimal("-1.234567890123456789012345678901234"), "-1.234567890123456789012345678901234"),
    ] {
        let (_database, store) = with_body(body).await;
        let commits: Vec<_> = store.load(&order("1"), ..).await.unwrap().try_collect().await.unwrap();
        assert_eq!(commits[0].events[0].body.as_json(), expected, "as a number of JSON");
        store.close().await.unwrap();
    }
}

#[tokio::test]
async fn what_no_payload_is_is_damage_and_nothing_else() {
    let not_a_number = Bson::Decimal128("NaN".parse().unwrap());
    for body in [Bson::Double(f64::NAN), not_a_number, Bson::DateTime(mongodb::bson::DateTime::now())] {
        let (_database, store) = with_body(body).await;
        let loaded: Result<Vec<_>, _> = match store.load(&order("1"), ..).await {
            Ok(commits) => commits.try_collect().await,
            Err(error) => Err(error),
        };
        let error = loaded.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Corrupt { .. }), "never a null: {error:?}");
        let partition = store.receipt(&order("1"), &"c".parse().unwrap()).await.unwrap().unwrap().partition;
        let error =
            store.read(ReadPage::new(PartitionId::new(shop(), partition.index()), 0)).await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Corrupt { .. }), "nor in a page: {error:?}");
        store.close().await.unwrap();
    }
}

#[tokio::test]
async fn a_commit_that_was_deleted_is_told_and_not_stepped_over() {
    let database = Database::fresh();
    let one = wow_store_api::PartitionCount::new(1).unwrap();
    let store = wow_store_mongo::MongoStore::open(database.config().with_partitions(one)).await.unwrap();
    for number in 0..10 {
        store.append(commit(&order("1"), format!("{number}"))).await.unwrap();
    }
    let log = database.connect().await.collection::<Document>("wow_log__shop__order");
    log.delete_one(doc! { "_id.position": 5_i64 }).await.unwrap();
    let page = store.read(ReadPage::new(PartitionId::new(shop(), 0), 0)).await.unwrap();
    assert_eq!((page.commits.len(), page.through), (4, 4), "what comes before the hole");
    let error = store.read(ReadPage::new(PartitionId::new(shop(), 0), 4)).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Corrupt { .. }), "then the hole: {error:?}");
    store.close().await.unwrap();
}
