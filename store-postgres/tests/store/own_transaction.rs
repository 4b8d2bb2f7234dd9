//! A checkpoint in the caller's own transaction (C3).

use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use wow_store_api::{
    AcquireLease, CheckpointSaved, LeaseAcquired, MemberId, SaveCheckpoint, SubscriptionName, prelude::*,
};
use wow_store_postgres::PostgresStore;

use crate::support::{Schema, first_partition};

fn subscription() -> SubscriptionName {
    SubscriptionName::new("totals").unwrap()
}

fn at(position: u64) -> SaveCheckpoint {
    SaveCheckpoint::new(subscription(), first_partition(), position)
}

/// A read model beside the store.
async fn model() -> (Schema, PostgresStore, PgConnection) {
    let schema = Schema::fresh();
    let store = schema.open().await;
    schema
        .execute(&format!("CREATE TABLE {} (total bigint); INSERT INTO {0} VALUES (0)", schema.at("model")))
        .await;
    let connection = schema.connect().await;
    (schema, store, connection)
}

async fn add(schema: &Schema, connection: &mut PgConnection, amount: i64) {
    let sql = format!("UPDATE {} SET total = total + $1", schema.at("model"));
    sqlx::query(AssertSqlSafe(sql)).bind(amount).execute(connection).await.unwrap();
}

async fn state(schema: &Schema, store: &PostgresStore) -> (i64, u64) {
    let total = schema.value(&format!("SELECT total FROM {}", schema.at("model"))).await;
    let checkpoint = store.checkpoint(&subscription(), &first_partition()).await.unwrap();
    (total, checkpoint.map_or(0, |checkpoint| checkpoint.position))
}

#[tokio::test]
async fn both_or_neither() {
    let (schema, store, mut connection) = model().await;
    let mut transaction = connection.begin().await.unwrap();
    add(&schema, &mut transaction, 5).await;
    assert_eq!(store.save_checkpoint_in(&mut transaction, at(1)).await.unwrap(), CheckpointSaved::Saved);
    assert_eq!(state(&schema, &store).await, (0, 0), "nothing is seen before the commit");
    transaction.commit().await.unwrap();
    assert_eq!(state(&schema, &store).await, (5, 1), "both after it");
    let mut transaction = connection.begin().await.unwrap();
    add(&schema, &mut transaction, 7).await;
    store.save_checkpoint_in(&mut transaction, at(2)).await.unwrap();
    transaction.rollback().await.unwrap();
    assert_eq!(state(&schema, &store).await, (5, 1), "neither after a rollback");
    // The transaction of a process that dies.
    let mut transaction = connection.begin().await.unwrap();
    add(&schema, &mut transaction, 7).await;
    store.save_checkpoint_in(&mut transaction, at(2)).await.unwrap();
    drop(transaction);
    drop(connection);
    assert_eq!(state(&schema, &store).await, (5, 1), "neither after a connection that broke");
}

#[tokio::test]
async fn the_rules_are_those_of_any_save() {
    let (schema, store, mut connection) = model().await;
    let acquire = |member: &str| {
        let ttl = std::time::Duration::from_secs(60);
        AcquireLease::new(subscription(), first_partition(), MemberId::new(member).unwrap(), ttl)
    };
    let LeaseAcquired::Acquired(old) = store.acquire_lease(acquire("a")).await.unwrap() else {
        panic!("free")
    };
    store.release_lease(&old.token(&MemberId::new("a").unwrap())).await.unwrap();
    let LeaseAcquired::Acquired(new) = store.acquire_lease(acquire("b")).await.unwrap() else {
        panic!("free")
    };
    let mut transaction = connection.begin().await.unwrap();
    add(&schema, &mut transaction, 5).await;
    store.save_checkpoint_in(&mut transaction, at(3).with_epoch(new.epoch)).await.unwrap();
    let ahead = store.save_checkpoint_in(&mut transaction, at(2).with_epoch(new.epoch)).await.unwrap();
    assert_eq!(ahead, CheckpointSaved::Ahead(3), "it only goes forward");
    transaction.commit().await.unwrap();
    let mut transaction = connection.begin().await.unwrap();
    add(&schema, &mut transaction, 7).await;
    let fenced = store.save_checkpoint_in(&mut transaction, at(4).with_epoch(old.epoch)).await.unwrap_err();
    assert!(fenced.is_fenced(), "the former owner: {fenced:?}");
    transaction.rollback().await.unwrap();
    assert_eq!(state(&schema, &store).await, (5, 3), "nothing of the former owner stays");
}

#[tokio::test]
async fn whoever_takes_the_lease_meanwhile_waits_for_the_transaction() {
    let (schema, store, mut connection) = model().await;
    let member = |name: &str| MemberId::new(name).unwrap();
    let ttl = std::time::Duration::from_secs(60);
    let acquire = |name: &str| AcquireLease::new(subscription(), first_partition(), member(name), ttl);
    let LeaseAcquired::Acquired(old) = store.acquire_lease(acquire("a")).await.unwrap() else {
        panic!("free")
    };
    let mut transaction = connection.begin().await.unwrap();
    add(&schema, &mut transaction, 5).await;
    store.save_checkpoint_in(&mut transaction, at(1).with_epoch(old.epoch)).await.unwrap();
    // It is given back and taken by another while the transaction is open.
    let other = store.clone();
    let token = old.token(&member("a"));
    let (sent, mut taken) = tokio::sync::oneshot::channel();
    tokio::spawn(async move {
        other.release_lease(&token).await.unwrap();
        let ttl = std::time::Duration::from_secs(60);
        let acquire = AcquireLease::new(subscription(), first_partition(), MemberId::new("b").unwrap(), ttl);
        sent.send(other.acquire_lease(acquire).await).unwrap();
    });
    schema.somebody_waits_for(&mut transaction).await;
    assert!(taken.try_recv().is_err(), "the new owner starts only when the old one's work is decided");
    transaction.commit().await.unwrap();
    assert!(matches!(taken.await.unwrap().unwrap(), LeaseAcquired::Acquired(_)), "then it goes on");
    assert_eq!(state(&schema, &store).await, (5, 1), "on top of what was done");
}
