//! The one place that knows which backends there are.

use std::{borrow::Cow, sync::Arc};

use anyhow::{Result, bail};
use wow_store_api::{EventStore, MemoryStore};
use wow_store_embedded::{EmbeddedConfig, EmbeddedStore};
use wow_store_mongo::{MongoConfig, MongoStore};
use wow_store_postgres::{PostgresConfig, PostgresStore};

/// Opens the store that `target` names: a directory, which is made if it is not there; the URL of a database, such as
/// `postgres://user:password@host/database` or `mongodb://host/database?replicaSet=name`; or `memory` for a store that
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
    if let Some(scheme) = misspelt_scheme(target) {
        bail!(
            "`{scheme}:` begins a URL, but is not followed by `//`: give a URL like \
             postgres://user:password@host/database or mongodb://host/database?replicaSet=name, or a directory (one \
             with such a name as ./{scheme}:…)"
        );
    }
    match target.split_once("://") {
        None => Ok(Arc::new(EmbeddedStore::open(EmbeddedConfig::new(target)).await?)),
        Some(("postgres" | "postgresql", _)) => {
            Ok(Arc::new(PostgresStore::open(PostgresConfig::new(target)?).await?))
        }
        Some(("mongodb" | "mongodb+srv", _)) => {
            Ok(Arc::new(MongoStore::open(MongoConfig::new(target)?).await?))
        }
        Some(_) => bail!(
            "cannot open {}: give a directory, a URL like postgres://user:password@host/database or \
             mongodb://host/database?replicaSet=name, or `memory`",
            shown(target)
        ),
    }
}

/// What begins like a URL and is none must not become a directory, nor be shown: it may hold a password.
fn misspelt_scheme(target: &str) -> Option<&str> {
    let (scheme, rest) = target.split_once(':')?;
    // One letter is a drive.
    let is_scheme =
        scheme.len() > 1 && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    (is_scheme && scheme != "." && !rest.starts_with("//")).then_some(scheme)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_looks_like_a_url_is_never_made_a_directory_nor_shown() {
        for target in
            ["postgres:/me:pa55word@host/shop", "mongodb:me:pa55word@host", "mongo://me:pa55word@host/shop"]
        {
            let refused = open_store(target).await.expect_err("it is no place for a store");
            let text = format!("{refused:#} {refused:?}");
            assert!(text.contains("postgres://user:password@host/database"), "it says what to give: {text}");
            assert!(!text.contains("pa55word"), "and shows no password: {text}");
        }
        assert!(!std::path::Path::new("postgres:").exists(), "nothing was made");
        for directory in ["data/shop", "./a:b", "C:\\data", "C:/data"] {
            assert_eq!(misspelt_scheme(directory), None, "{directory} is a directory");
        }
    }
}
