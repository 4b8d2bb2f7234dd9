//! The collections and indexes: what there should be, whether it is, and making it so (D1, D2, D4).

pub(crate) mod collections;
pub(crate) mod formats;

use futures_util::future::try_join_all;
use mongodb::bson::{Bson, Document, doc};
use wow_store_api::{Error, ErrorKind};

use self::collections::{Collection, Index};
use crate::{config::Ddl, db::Db, document, fault::Fault};

/// One line for everything that is missing or different.
pub(crate) async fn problems(db: &Db, collections: &[Collection]) -> Result<Vec<String>, Fault> {
    let names: Vec<&str> = collections.iter().map(|it| it.name.as_str()).collect();
    let found = db.list_collections(&names).await?;
    let each = collections.iter().map(|collection| {
        let found = found.iter().find(|it| it.get_str("name").is_ok_and(|name| name == collection.name));
        problems_of(db, collection, found)
    });
    Ok(try_join_all(each).await?.into_iter().flatten().collect())
}

async fn problems_of(
    db: &Db,
    collection: &Collection,
    found: Option<&Document>,
) -> Result<Vec<String>, Fault> {
    let name = &collection.name;
    let Some(found) = found else { return Ok(vec![format!("collection {name} is missing")]) };
    let mut problems = Vec::new();
    if !found.get_str("type").is_ok_and(|kind| kind == "collection") {
        problems.push(format!("{name} is no ordinary collection"));
        return Ok(problems);
    }
    let options = found.get_document("options").ok();
    for option in ["capped", "collation", "timeseries", "validator", "expireAfterSeconds"] {
        if options.is_some_and(|options| is_set(options, option)) {
            problems.push(format!("collection {name} has the option {option}"));
        }
    }
    if collection.indexes.is_empty() {
        return Ok(problems);
    }
    let indexes = db.list_indexes(name).await?;
    for wanted in &collection.indexes {
        let found = indexes.iter().find(|it| it.get_str("name").is_ok_and(|name| name == wanted.name));
        match found {
            None => problems.push(format!("index {} of collection {name} is missing", wanted.name)),
            Some(found) => {
                if let Some(difference) = difference(wanted, found) {
                    problems.push(format!("index {} of collection {name} {difference}", wanted.name));
                }
            }
        }
    }
    Ok(problems)
}

fn is_set(options: &Document, option: &str) -> bool {
    options.get(option).is_some_and(|value| !matches!(value, Bson::Null | Bson::Boolean(false)))
}

/// How an index differs, if it does.
fn difference(wanted: &Index, found: &Document) -> Option<&'static str> {
    let key = found.get_document("key").ok();
    let fields = key.map(|key| {
        let one = |value: &Bson| {
            let value = mongodb::bson::RawBson::try_from(value.clone()).ok();
            value.and_then(|value| document::integer(value.as_raw_bson_ref())) == Some(1)
        };
        key.iter().map(|(field, value)| (field.as_str(), one(value))).collect::<Vec<_>>()
    });
    let expected: Vec<(&str, bool)> = wanted.fields.iter().map(|field| (*field, true)).collect();
    if fields.as_ref() != Some(&expected) {
        return Some("is over other fields");
    }
    match (wanted.unique, is_set(found, "unique")) {
        (true, false) => return Some("is not unique"),
        (false, true) => return Some("is unique, which it must not be"),
        (true, true) | (false, false) => {}
    }
    for (option, difference) in [
        ("partialFilterExpression", "covers only a part"),
        ("sparse", "is sparse"),
        ("expireAfterSeconds", "removes documents after a time"),
        ("collation", "has a collation"),
        ("hidden", "is hidden"),
    ] {
        if is_set(found, option) {
            return Some(difference);
        }
    }
    None
}

/// Sees to it that collections are there: looks, and creates what is missing if that is allowed. Never inside a
/// transaction; any number of nodes may do so at once.
pub(crate) async fn ensure(db: &Db, collections: &[Collection], ddl: Ddl) -> Result<(), Fault> {
    let found = problems(db, collections).await?;
    if found.is_empty() {
        return Ok(());
    }
    match ddl {
        Ddl::Auto => {
            try_join_all(collections.iter().map(|collection| make(db, collection))).await?;
        }
        Ddl::Validate | Ddl::None => return Err(mismatch(found)),
    }
    let found = problems(db, collections).await?;
    if found.is_empty() { Ok(()) } else { Err(mismatch(found)) }
}

async fn make(db: &Db, collection: &Collection) -> Result<(), Fault> {
    let concern = doc! { "w": "majority", "j": true };
    let command = if collection.indexes.is_empty() {
        doc! { "create": &collection.name, "writeConcern": concern }
    } else {
        let indexes: Vec<Document> = collection.indexes.iter().map(Index::specification).collect();
        doc! { "createIndexes": &collection.name, "indexes": indexes, "writeConcern": concern }
    };
    match db.command(command).await {
        // What is different is looked at, and named, afterwards.
        Err(fault) if fault.is_made_already() || fault.is_other_index() => Ok(()),
        done => done.map(drop),
    }
}

pub(crate) fn mismatch(problems: Vec<String>) -> Fault {
    Fault::from(Error::not_applied(ErrorKind::SchemaMismatch { problems }))
}
