//! Collections, indexes, formats and owners (D1 to D4, N2), and checkpoints in the caller's own transaction (C3).

use futures_util::future::join_all;
use mongodb::bson::{Document, doc};
use wow_store_api::{
    CheckpointSaved, Checkpoints as _, ErrorKind, EventLog as _, PartitionId, SaveCheckpoint,
    StoreAdmin as _, StoreExt as _,
};
use wow_store_mongo::{Ddl, MongoStore};

use crate::support::{Database, commit, order};

async fn open(database: &Database, ddl: Ddl) -> wow_store_api::Result<MongoStore> {
    MongoStore::open(database.config().with_ddl(ddl)).await
}

/// A store with one commit, closed.
async fn used(database: &Database) {
    let store = open(database, Ddl::Auto).await.unwrap();
    store.append(commit(&order("1"), "first")).await.unwrap();
    store.close().await.unwrap();
}

/// What validation finds.
async fn problems(database: &Database) -> Vec<String> {
    match open(database, Ddl::Validate).await {
        Ok(store) => {
            store.close().await.unwrap();
            Vec::new()
        }
        Err(error) => match error.kind() {
            ErrorKind::SchemaMismatch { problems } => problems.clone(),
            other => panic!("another error: {other:?}"),
        },
    }
}

const VERSIONS: &str = "wow_log__shop__order__ver";

#[tokio::test(flavor = "multi_thread")]
async fn validate_names_what_is_missing_or_different() {
    let database = Database::fresh();
    let nothing = problems(&database).await;
    assert!(
        nothing.iter().any(|it| it.contains("wow_lease")),
        "an empty database lacks everything: {nothing:?}"
    );
    used(&database).await;
    assert_eq!(problems(&database).await, Vec::<String>::new(), "all is there");

    let mongo = database.connect().await;
    let log = mongo.collection::<Document>("wow_log__shop__order");
    log.drop_index(VERSIONS).await.unwrap();
    let found = problems(&database).await;
    assert!(matches!(&found[..], [one] if one.contains(VERSIONS)), "missing: {found:?}");

    let create = |index: Document| {
        let command = doc! { "createIndexes": "wow_log__shop__order", "indexes": [index] };
        mongo.run_command(command)
    };
    let key = doc! { "tenant": 1, "id": 1, "version": 1 };
    create(doc! { "name": VERSIONS, "key": key.clone() }).await.unwrap();
    let found = problems(&database).await;
    assert!(matches!(&found[..], [one] if one.contains(VERSIONS)), "not unique: {found:?}");
    assert!(open(&database, Ddl::Auto).await.is_ok(), "the base is as it should be");

    log.drop_index(VERSIONS).await.unwrap();
    create(doc! { "name": VERSIONS, "key": { "tenant": 1, "version": 1 }, "unique": true }).await.unwrap();
    let found = problems(&database).await;
    assert!(matches!(&found[..], [one] if one.contains(VERSIONS)), "other fields: {found:?}");
    let store = open(&database, Ddl::Auto).await.unwrap();
    let refused = store.append(commit(&order("1"), "second")).await.unwrap_err();
    assert!(
        matches!(refused.kind(), ErrorKind::SchemaMismatch { .. }),
        "no append without its index: {refused:?}"
    );
    store.close().await.unwrap();

    log.drop_index(VERSIONS).await.unwrap();
    create(doc! { "name": VERSIONS, "key": key, "unique": true }).await.unwrap();
    assert_eq!(problems(&database).await, Vec::<String>::new(), "all is there again");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_made_where_it_may_not_be() {
    let database = Database::fresh();
    used(&database).await;
    for ddl in [Ddl::Validate, Ddl::None] {
        let store = open(&database, ddl).await.unwrap();
        store.append(commit(&order("1"), format!("{ddl:?}"))).await.unwrap();
        let cart = wow_store_api::AggregateId::new("shop", "cart", "1").unwrap();
        let refused = store.append(commit(&cart, "first")).await.unwrap_err();
        assert!(matches!(refused.kind(), ErrorKind::SchemaMismatch { .. }), "{ddl:?}: {refused:?}");
        store.close().await.unwrap();
    }
    let names = database.connect().await.list_collection_names().await.unwrap();
    assert!(!names.iter().any(|name| name.contains("cart")), "nothing was made");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_stores_do_not_share_a_database_and_newer_formats_are_refused() {
    let database = Database::fresh();
    used(&database).await;
    let other = MongoStore::open(database.config().with_name("other")).await.unwrap_err();
    assert!(matches!(other.kind(), ErrorKind::Misconfigured { .. }), "another store's: {other:?}");
    let formats = database.connect().await;
    let formats = formats.collection::<Document>("wow_format");
    formats.update_one(doc! { "_id": "log" }, doc! { "$set": { "version": 2 } }).await.unwrap();
    let newer = open(&database, Ddl::Auto).await.unwrap_err();
    assert!(matches!(newer.kind(), ErrorKind::FormatUnsupported { found: 2, .. }), "a newer one: {newer:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_nodes_start_at_once_on_an_empty_database() {
    let database = Database::fresh();
    let nodes = join_all((0..8).map(|_| open(&database, Ddl::Auto))).await;
    let nodes: Vec<MongoStore> = nodes.into_iter().map(|node| node.unwrap()).collect();
    // And make the first use of everything at once.
    let appends = nodes.iter().zip(0..).map(|(node, n)| node.append(commit(&order(n.to_string()), "first")));
    for receipt in join_all(appends).await {
        assert_eq!(receipt.unwrap().version, 1, "each goes through");
    }
    for node in nodes {
        node.close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_address_says_about_concerns_does_not_count() {
    let database = Database::fresh();
    let separator = if database.url().contains('?') { '&' } else { '?' };
    let url = format!(
        "{}{separator}w=1&journal=false&readConcernLevel=local&readPreference=secondary",
        database.url()
    );
    let store = MongoStore::open(wow_store_mongo::MongoConfig::new(&url).unwrap()).await.unwrap();
    let id = order("1");
    store.append(commit(&id, "first")).await.unwrap();
    assert_eq!(store.head(&id).await.unwrap(), 1, "there is no secondary that could have answered");
    store.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_in_the_callers_transaction_stays_or_goes_with_it() {
    let database = Database::fresh();
    let store = open(&database, Ddl::Auto).await.unwrap();
    let subscription: wow_store_api::SubscriptionName = "mailer".parse().unwrap();
    let context = "shop".parse().unwrap();
    let partition = PartitionId::new(context, 0);
    let model = store.client().database(database.name()).collection::<Document>("read_model");
    model.insert_one(doc! { "_id": 0 }).await.unwrap();
    for (position, commits) in [(5_i32, false), (7, true)] {
        let mut session = store.client().start_session().await.unwrap();
        session.start_transaction().await.unwrap();
        model.insert_one(doc! { "_id": position }).session(&mut session).await.unwrap();
        let save =
            SaveCheckpoint::new(subscription.clone(), partition.clone(), position.unsigned_abs().into());
        let saved = store.save_checkpoint_in(&mut session, save.with_epoch(3)).await.unwrap();
        assert_eq!(saved, CheckpointSaved::Saved, "inside the transaction");
        match commits {
            true => session.commit_transaction().await.unwrap(),
            false => session.abort_transaction().await.unwrap(),
        }
        let stored = store.checkpoint(&subscription, &partition).await.unwrap();
        assert_eq!(stored.map(|it| it.position), commits.then_some(7), "together or not at all");
        let found = model.find_one(doc! { "_id": position }).await.unwrap();
        assert_eq!(found.is_some(), commits, "together or not at all");
    }
    let mut session = store.client().start_session().await.unwrap();
    session.start_transaction().await.unwrap();
    let late = SaveCheckpoint::new(subscription.clone(), partition.clone(), 9).with_epoch(2);
    let refused = store.save_checkpoint_in(&mut session, late).await.unwrap_err();
    assert!(refused.is_fenced(), "a lower epoch: {refused:?}");
    session.abort_transaction().await.unwrap();
    store.close().await.unwrap();
}
