//! Formats and owners (D3, N2), and what version 1 has written.
//!
//! `WOW_WRITE_FIXTURE=1 cargo test -p wow-store-mongo --test store fixture` writes the fixture, when a format changes;
//! the earlier ones stay as they are.

use std::{collections::BTreeMap, path::PathBuf};

use futures_util::{TryStreamExt as _, future::join_all};
use mongodb::bson::{Bson, Document, doc};
use wow_store_api::{ErrorKind, ManualClock, PartitionCount, prelude::*};
use wow_store_conformance::story;
use wow_store_mongo::{Ddl, MongoStore};

use crate::support::{Database, commit, order};

fn fixture() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures/v1")
}

/// All documents of a database, by collection.
async fn dump(database: &mongodb::Database) -> BTreeMap<String, Vec<Document>> {
    let mut dumped = BTreeMap::new();
    for name in database.list_collection_names().await.unwrap() {
        let found =
            database.collection::<Document>(&name).find(doc! {}).sort(doc! { "_id": 1 }).await.unwrap();
        dumped.insert(name, found.try_collect().await.unwrap());
    }
    dumped
}

/// Names and types of fields, without values.
fn shape(value: &Bson) -> Bson {
    match value {
        Bson::Document(document) => {
            document.iter().map(|(key, value)| (key.clone(), shape(value))).collect::<Document>().into()
        }
        Bson::Array(values) => values.iter().map(shape).collect::<Vec<_>>().into(),
        other => format!("{:?}", other.element_type()).into(),
    }
}

#[tokio::test]
async fn what_is_written_has_the_form_of_the_fixture() {
    let database = Database::fresh();
    let clock = ManualClock::new(story::start());
    let partitions = PartitionCount::new(story::PARTITIONS).unwrap();
    let store = MongoStore::open(database.config().with_clock(clock.clone()).with_partitions(partitions))
        .await
        .unwrap();
    story::tell(&store, &clock).await;
    store.close().await.unwrap();
    let written = dump(&database.connect().await).await;
    if std::env::var_os("WOW_WRITE_FIXTURE").is_some() {
        std::fs::create_dir_all(fixture()).unwrap();
        for (name, documents) in &written {
            let bytes: Vec<u8> = documents.iter().flat_map(|it| it.to_vec().unwrap()).collect();
            std::fs::write(fixture().join(format!("{name}.bson")), bytes).unwrap();
        }
    }
    let stored = stored();
    assert!(written.keys().eq(stored.keys()), "the same collections");
    for (name, documents) in &written {
        let shapes = |documents: &[Document]| -> Vec<Bson> {
            documents.iter().map(|it| shape(&Bson::Document(it.clone()))).collect()
        };
        assert_eq!(shapes(documents), shapes(&stored[name]), "{name}: another form is another format");
    }
}

/// The fixture: a file for each collection, with its documents one behind the other, as `mongodump` writes them.
fn stored() -> BTreeMap<String, Vec<Document>> {
    let files = std::fs::read_dir(fixture()).unwrap().map(|file| file.unwrap().path());
    let collection = |path: PathBuf| {
        let bytes = std::fs::read(&path).unwrap();
        let (mut rest, mut documents) = (&bytes[..], Vec::new());
        while !rest.is_empty() {
            documents.push(Document::from_reader(&mut rest).unwrap());
        }
        (path.file_stem().unwrap().to_str().unwrap().to_owned(), documents)
    };
    files.map(collection).collect()
}

#[tokio::test]
async fn a_store_of_version_1_is_read_and_goes_on() {
    let database = Database::fresh();
    let server = database.connect().await;
    for (name, documents) in stored() {
        if !documents.is_empty() {
            server.collection(&name).insert_many(documents).await.unwrap();
        }
    }
    let clock = ManualClock::new(story::start());
    story::is_read_and_goes_on(&clock, async || {
        MongoStore::open(database.config().with_clock(clock.clone())).await.unwrap()
    })
    .await;
}

#[tokio::test]
async fn a_newer_format_is_refused_whatever_else_is_there() {
    for structure in ["log", "store", "something of tomorrow"] {
        for ddl in [Ddl::Auto, Ddl::Validate, Ddl::None] {
            let database = Database::fresh();
            database.open().await.close().await.unwrap();
            let server = database.connect().await;
            let formats = server.collection::<Document>("wow_format");
            let newer = doc! { "$set": { "version": 9 } };
            formats.update_one(doc! { "_id": structure }, newer).upsert(true).await.unwrap();
            server.collection::<Document>("wow_lease").drop().await.unwrap();
            let refused = MongoStore::open(database.config().with_ddl(ddl)).await.unwrap_err();
            let ErrorKind::FormatUnsupported { structure: named, found, .. } = refused.kind() else {
                panic!("{ddl:?}: {refused:?}")
            };
            assert_eq!((named.as_str(), *found), (structure, 9), "{ddl:?} names it");
            let names = server.list_collection_names().await.unwrap();
            assert!(!names.contains(&"wow_lease".to_owned()), "{ddl:?} touches nothing of a newer version");
        }
    }
}

#[tokio::test]
async fn two_stores_that_start_at_once_do_not_both_get_the_database() {
    let database = Database::fresh();
    let opening =
        (0..4).map(|number| MongoStore::open(database.config().with_name(format!("store {number}"))));
    let opened = join_all(opening).await;
    assert_eq!(opened.iter().filter(|opened| opened.is_ok()).count(), 1, "one of them: {opened:?}");
    for store in opened.into_iter().flatten() {
        store.append(commit(&order("1"), "c")).await.unwrap();
        store.close().await.unwrap();
    }
}
