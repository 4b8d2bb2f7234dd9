//! The directory before there is a store in it: made, or taken over from a first opening that did not end.

use std::path::Path;

use crate::engine::error::OpenError;
use crate::engine::{DATABASE, lock, mark, writer};

/// What fjall puts into its directory, in this order.
const DATABASE_LOCK: &str = lock::DATABASE_FILE;
const KEYSPACES: &str = "keyspaces";
const FIRST_JOURNAL: &str = "0.jnl";
pub(crate) const VERSION: &str = "version";
/// The keyspace in which fjall keeps the names of the others.
const META: &str = "0";
/// The list of tables of a keyspace that never had one.
const FIRST_LIST: &str = "v0";

/// What a file system may put into a directory by itself.
const FOREIGN: [&str; 1] = ["lost+found"];

/// Makes sure that there is a directory, and that it is a store's or empty.
pub(crate) fn prepare(directory: &Path) -> Result<(), OpenError> {
    if directory.as_os_str().is_empty() {
        let reason = "the path is empty: give a directory".to_owned();
        return Err(OpenError::Unsuitable { reason });
    }
    if directory.is_dir() {
        return check_content(directory);
    }
    if directory.exists() {
        let reason = format!("{} is not a directory: give a store one of its own", directory.display());
        return Err(OpenError::Unsuitable { reason });
    }
    std::fs::create_dir_all(directory).map_err(OpenError::io("create", directory))?;
    match directory.parent() {
        Some(parent) if parent.as_os_str().is_empty() => sync(Path::new(".")),
        Some(parent) => sync(parent),
        None => Ok(()),
    }
}

fn check_content(directory: &Path) -> Result<(), OpenError> {
    let ours = [DATABASE, mark::FILE, mark::NEW_FILE, lock::FILE, writer::PROBE];
    let mut foreign = None;
    for name in names(directory)? {
        let name = name?;
        if ours.iter().any(|it| name == *it) {
            // A store, whatever else lies there.
            return Ok(());
        }
        if FOREIGN.iter().all(|it| name != *it) {
            foreign = Some(name);
        }
    }
    match foreign {
        None => Ok(()),
        Some(name) => Err(OpenError::Unsuitable {
            reason: format!(
                "{} holds no store but other files ({name}): give a store a directory of its own",
                directory.display(),
            ),
        }),
    }
}

/// Clears away what a crash during the very first opening has left: fjall cannot go on from there. A database that
/// may hold anything is not that.
pub(crate) fn remove_unfinished(directory: &Path, database: &Path) -> Result<(), OpenError> {
    if !database.try_exists().map_err(OpenError::io("look for", database))? {
        return Ok(());
    }
    if !is_blank(database)? {
        let reason = "the file is missing or damaged, but there is a database that may have been written to";
        return Err(OpenError::corrupt(directory.join(mark::FILE).display(), reason));
    }
    std::fs::remove_dir_all(database).map_err(OpenError::io("remove", database))?;
    sync(directory)
}

/// Whether this is a database that was being made, as far as that had got, and nothing else.
///
/// Its first journal is made before its version and before any keyspace, and stays until another follows it. So what
/// was written to has the first journal, with something in it, or a later one; and if its journal was lost, a version or
/// a keyspace is there without one. In doubt it is not blank.
fn is_blank(database: &Path) -> Result<bool, OpenError> {
    let (mut has_journal, mut has_more) = (false, false);
    for name in names(database)? {
        let name = name?;
        let path = database.join(&name);
        match name.as_str() {
            DATABASE_LOCK => {}
            FIRST_JOURNAL => {
                let bytes = std::fs::read(&path).map_err(OpenError::io("read", &path))?;
                if bytes.iter().any(|byte| *byte != 0) {
                    return Ok(false);
                }
                has_journal = true;
            }
            VERSION => has_more = true,
            KEYSPACES => {
                for keyspace in names(&path)? {
                    let keyspace = keyspace?;
                    has_more = true;
                    if keyspace != META && !is_blank_keyspace(&path.join(keyspace))? {
                        return Ok(false);
                    }
                }
            }
            _ => return Ok(false),
        }
    }
    Ok(has_journal || !has_more)
}

/// Whether a keyspace never had a table.
fn is_blank_keyspace(keyspace: &Path) -> Result<bool, OpenError> {
    if !keyspace.is_dir() {
        return Ok(false);
    }
    for name in names(keyspace)? {
        let name = name?;
        let path = keyspace.join(&name);
        let is_used = if path.is_dir() {
            names(&path)?.next().is_some()
        } else {
            name.starts_with('v') && name != FIRST_LIST
        };
        if is_used {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The names in a directory; one that is no text as it is shown.
fn names(directory: &Path) -> Result<impl Iterator<Item = Result<String, OpenError>> + use<'_>, OpenError> {
    let list = || OpenError::io("list", directory);
    let entries = std::fs::read_dir(directory).map_err(list())?;
    Ok(entries.map(move |entry| Ok(entry.map_err(list())?.file_name().to_string_lossy().into_owned())))
}

#[cfg(not(windows))]
pub(crate) fn sync(directory: &Path) -> Result<(), OpenError> {
    std::fs::File::open(directory)
        .and_then(|directory| directory.sync_all())
        .map_err(OpenError::io("sync", directory))
}

#[cfg(windows)]
pub(crate) fn sync(_: &Path) -> Result<(), OpenError> {
    Ok(())
}
