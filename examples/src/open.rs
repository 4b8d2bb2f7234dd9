//! The one place that knows which backends there are.

use std::{borrow::Cow, sync::Arc};

use anyhow::{Result, bail};
use wow_store_api::{EventStore, MemoryStore};
use wow_store_embedded::{EmbeddedConfig, EmbeddedStore};

/// Opens the store that `target` names: a directory, which is made if it is not there, or `memory` for a store that
/// ends with the program.
///
/// Everything else in the examples works with `dyn EventStore`: another backend is another target, not other code.
///
/// # Errors
/// If there is no such backend, or the store cannot be opened.
pub async fn open_store(target: &str) -> Result<Arc<dyn EventStore>> {
    if target == "memory" {
        return Ok(Arc::new(MemoryStore::new()));
    }
    if target.contains("://") {
        bail!("cannot open {}: give a directory, or `memory`", shown(target));
    }
    Ok(Arc::new(EmbeddedStore::open(EmbeddedConfig::new(target)).await?))
}

/// The target as it may be shown: a URL without what may be a credential (user, password, options).
///
/// ```
/// use wow_store_examples::open::shown;
///
/// assert_eq!(shown("postgres://me:secret@db.example/shop?password=secret"), "postgres://db.example/shop");
/// assert_eq!(shown("data/transfer"), "data/transfer");
/// ```
#[must_use]
pub fn shown(target: &str) -> Cow<'_, str> {
    let Some((scheme, place)) = target.split_once("://") else {
        return target.into();
    };
    let place = place.rsplit_once('@').map_or(place, |(_, place)| place);
    let place = place.split_once('?').map_or(place, |(place, _)| place);
    format!("{scheme}://{place}").into()
}
