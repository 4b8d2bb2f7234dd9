//! The formats of what is stored, and whose it is (D3, N2).

use mongodb::bson::doc;
use wow_store_api::{Error, ErrorKind, Format};

use crate::{
    db::{Db, Find},
    document::{Fields as _, int},
    fault::Fault,
    names,
};

/// What this version writes, and the newest that it reads.
const FORMATS: [(&str, u32); 7] = [
    ("checkpoint", 1),
    ("lease", 1),
    ("ledger", 1),
    ("log", 1),
    ("reservation", 1),
    ("snapshot", 1),
    ("timer", 1),
];

/// The document that says whose the database is.
const STORE: &str = "store";
const STORE_FORMAT: u32 = 1;

/// What is recorded, and the owner. Empty where nothing is.
async fn recorded(db: &Db) -> Result<(Vec<Format>, Option<String>), Fault> {
    let (mut formats, mut owner) = (Vec::new(), None);
    for found in db.find(names::FORMAT, Find::new(doc! {}).sorted(doc! { "_id": 1 })).await? {
        let format = Format { structure: found.text("_id")?.to_owned(), version: found.number("version")? };
        if format.structure == STORE {
            owner = found.text_or_none("owner")?.map(str::to_owned);
        }
        formats.push(format);
    }
    Ok((formats, owner))
}

/// The formats of what is stored.
pub(crate) async fn read(db: &Db) -> Result<Vec<Format>, Fault> {
    Ok(recorded(db).await?.0)
}

/// Refuses what this version cannot read, or what is another store's. Nothing recorded is fine.
pub(crate) async fn check(db: &Db, store: &str) -> Result<(), Fault> {
    let (formats, owner) = recorded(db).await?;
    judge(&formats, owner.as_deref(), db, store)
}

fn judge(formats: &[Format], owner: Option<&str>, db: &Db, store: &str) -> Result<(), Fault> {
    for format in formats {
        let known = FORMATS.iter().find(|(structure, _)| *structure == format.structure);
        let supported = match known {
            Some((_, version)) => *version,
            None if format.structure == STORE => STORE_FORMAT,
            // A structure of a later version.
            None => 0,
        };
        if format.version > supported {
            return Err(Fault::from(Error::not_applied(ErrorKind::FormatUnsupported {
                structure: format.structure.clone(),
                found: format.version,
                supported,
            })));
        }
    }
    match owner {
        Some(owner) if owner != store => Err(Fault::misconfigured(format!(
            "database {} belongs to the store {owner:?}, this one is {store:?}: two stores cannot share a database; \
             give this one a database of its own, or its old name",
            db.name()
        ))),
        Some(_) | None => Ok(()),
    }
}

/// Records the formats and the owner where nothing is recorded yet, and checks again: somebody else may have been
/// faster. The owner comes first, so that of two stores only one goes on.
pub(crate) async fn record(db: &Db, store: &str) -> Result<(), Fault> {
    let (formats, owner) = recorded(db).await?;
    judge(&formats, owner.as_deref(), db, store)?;
    if owner.is_some() && FORMATS.iter().all(|(name, _)| formats.iter().any(|it| it.structure == *name)) {
        return Ok(());
    }
    let mut wanted = vec![(STORE, STORE_FORMAT, Some(store))];
    wanted.extend(FORMATS.iter().map(|(name, version)| (*name, *version, None)));
    for (structure, version, owner) in wanted {
        let mut fields = doc! { "version": int(version) };
        if let Some(owner) = owner {
            fields.insert("owner", owner);
        }
        let made = db.update(names::FORMAT, doc! { "_id": structure }, doc! { "$setOnInsert": fields }, true);
        match made.await {
            Err(fault) if fault.is_duplicate() => {}
            done => drop(done?),
        }
        if owner.is_some() {
            let (formats, owner) = recorded(db).await?;
            judge(&formats, owner.as_deref(), db, store)?;
        }
    }
    let (formats, owner) = recorded(db).await?;
    judge(&formats, owner.as_deref(), db, store)
}
