//! The formats of what is stored (D3): one record per structure.

use std::collections::BTreeMap;

use wow_store_api::{Format, Result};

use crate::{
    access::Records as _,
    codec::FormatRecord,
    engine::{
        error::{Corruption, OpenError},
        view::{Source, Tx},
    },
    places,
    store::EmbeddedStore,
};

/// Every structure, and the newest version of its format, which is what this code writes.
const STRUCTURES: [(&str, u32); 8] = [
    ("checkpoint", 1),
    ("command", 1),
    ("lease", 1),
    ("ledger", 1),
    ("log", 1),
    ("reservation", 1),
    ("snapshot", 1),
    ("timer", 1),
];

/// The formats recorded in the store.
pub(crate) fn stored(source: &impl Source) -> Result<Vec<Format>> {
    source
        .records::<FormatRecord>(&places::formats())
        .map(|record| record.map(|record| Format { structure: record.structure, version: record.version }))
        .collect()
}

/// Checks that all formats are known, and records them in a new store. Here an older format is brought up to date, once
/// there is one.
pub(crate) async fn check(store: &EmbeddedStore) -> Result<()> {
    let found = store.read("open", stored)?;
    if found.is_empty() && store.read("open", is_unused)? {
        return store.write("open", 0, record_all).await;
    }
    let found: BTreeMap<String, u32> = found.into_iter().map(|it| (it.structure, it.version)).collect();
    for (structure, supported) in STRUCTURES {
        match found.get(structure) {
            Some(version) if (1..=supported).contains(version) => {}
            Some(version) => {
                let structure = structure.to_owned();
                return Err(OpenError::Format { structure, found: *version, supported }.into());
            }
            None => {
                let place = format!("state, format of {structure}");
                return Err(Corruption { place, reason: "it is missing".to_owned() }.into());
            }
        }
    }
    match found.into_iter().find(|(structure, _)| STRUCTURES.iter().all(|(known, _)| structure != known)) {
        Some((structure, found)) => Err(OpenError::Format { structure, found, supported: 0 }.into()),
        None => Ok(()),
    }
}

/// Whether nothing was ever written: the formats are the first thing that is.
fn is_unused(source: &impl Source) -> Result<bool> {
    Ok(source.get(crate::engine::space::Space::State, crate::engine::LAST_BATCH)?.is_none())
}

fn record_all(tx: &mut Tx<'_>) -> Result<()> {
    for (structure, version) in STRUCTURES {
        tx.store(places::format(structure), &FormatRecord { structure: structure.to_owned(), version });
    }
    Ok(())
}
