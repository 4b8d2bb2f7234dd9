//! The directory before there is a store in it: made, or taken over from a first opening that did not end.

use std::fs::{File, Metadata};
use std::io::Read as _;
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

/// A database that is being removed, as it was never finished.
const DOOMED: &str = "db.unfinished";

/// Makes sure that there is a directory, and that it is a store's or empty.
pub(crate) fn prepare(directory: &Path) -> Result<(), OpenError> {
    if directory.as_os_str().is_empty() {
        let reason = "the path is empty: give a directory".to_owned();
        return Err(OpenError::Unsuitable { reason });
    }
    match std::fs::metadata(directory) {
        Ok(found) if found.is_dir() => check_content(directory),
        Ok(_) => Err(not_a_directory(directory)),
        Err(error) => match std::fs::symlink_metadata(directory) {
            // A link to nothing, or to itself.
            Ok(found) if found.is_symlink() => Err(not_a_directory(directory)),
            _ if error.kind() == std::io::ErrorKind::NotFound => create(directory),
            _ => Err(OpenError::io("look at", directory)(error)),
        },
    }
}

fn not_a_directory(path: &Path) -> OpenError {
    let reason = format!("{} is not a directory: give a store one of its own", path.display());
    OpenError::Unsuitable { reason }
}

/// Makes a directory and those above it, so that a power loss does not take them back.
fn create(directory: &Path) -> Result<(), OpenError> {
    let parent = match directory.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => return Ok(()),
    };
    if !parent.is_dir() {
        create(parent)?;
    }
    match std::fs::create_dir(directory) {
        // Somebody else was faster.
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists && directory.is_dir() => {}
        made => made.map_err(OpenError::io("create", directory))?,
    }
    sync(parent)
}

/// What a store keeps in its directory.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Database,
    /// A file, which may be cut off anywhere, and what the first bytes of it may be.
    File(fn(&[u8]) -> bool),
}

const OURS: [(&str, Kind); 6] = [
    (DATABASE, Kind::Database),
    (DOOMED, Kind::Database),
    (lock::FILE, Kind::File(lock::is_ours)),
    (mark::FILE, Kind::File(mark::is_ours)),
    (mark::NEW_FILE, Kind::File(mark::is_ours)),
    (writer::PROBE, Kind::File(writer::is_probe)),
];
/// How many bytes tell whether a file is ours.
const START_BYTES: u64 = 16;

/// Whether the directory is a store's, empty, or one where a store was being made. Somebody else's files that happen
/// to have our names are not written to.
fn check_content(directory: &Path) -> Result<(), OpenError> {
    let mut is_store = false;
    let mut foreign = None;
    for name in names(directory)? {
        let name = name?;
        let path = directory.join(&name);
        let found = std::fs::metadata(&path).ok();
        match OURS.into_iter().find(|(ours, _)| name == *ours) {
            Some((_, Kind::Database)) if found.as_ref().is_some_and(Metadata::is_dir) => {
                is_store |= is_database(&path)?;
            }
            Some((_, Kind::File(starts))) if found.as_ref().is_some_and(Metadata::is_file) => {
                if !starts(&start(&path)?) {
                    foreign = Some(name);
                }
            }
            // What cannot be opened as what it should be, whatever else there is.
            Some(_) => return Err(occupied(directory, &name)),
            None if FOREIGN.contains(&name.as_str()) => {}
            None => foreign = Some(name),
        }
    }
    match foreign {
        Some(name) if !is_store => Err(occupied(directory, &name)),
        // A store, whatever else lies there, and whatever a crash has made of its own files.
        _ => Ok(()),
    }
}

/// The first bytes of a file.
fn start(path: &Path) -> Result<Vec<u8>, OpenError> {
    let mut start = Vec::new();
    let read = File::open(path).and_then(|file| file.take(START_BYTES).read_to_end(&mut start));
    match read {
        Ok(_) => Ok(start),
        // What somebody has locked cannot be read there; who that is comes out when it is to be locked.
        Err(_) if cfg!(windows) => Ok(Vec::new()),
        Err(error) => Err(OpenError::io("read", path)(error)),
    }
}

/// Whether a directory has anything in it that only a database has.
fn is_database(directory: &Path) -> Result<bool, OpenError> {
    for name in names(directory)? {
        let name = name?;
        if name == VERSION || name == KEYSPACES || name.ends_with(".jnl") {
            return Ok(true);
        }
    }
    Ok(false)
}

fn occupied(directory: &Path, name: &str) -> OpenError {
    let reason = format!(
        "{} holds no store but something else ({name}): give a store a directory of its own",
        directory.display(),
    );
    OpenError::Unsuitable { reason }
}

/// Clears away what a crash during the very first opening has left: fjall cannot go on from there. A database that
/// may hold anything is not that.
pub(crate) fn remove_unfinished(directory: &Path, database: &Path) -> Result<(), OpenError> {
    let doomed = directory.join(DOOMED);
    remove(&doomed)?;
    match std::fs::symlink_metadata(database) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(OpenError::io("look at", database)(error)),
        Ok(found) if !found.is_dir() => return Err(occupied(directory, DATABASE)),
        Ok(_) => {}
    }
    if !is_blank(database)? {
        let reason = "the file is missing or damaged, but there is a database that may have been written to";
        return Err(OpenError::corrupt(directory.join(mark::FILE).display(), reason));
    }
    // At once, and then piece by piece: half of it would not be known as unfinished.
    std::fs::rename(database, &doomed).map_err(OpenError::io("rename", database))?;
    sync(directory)?;
    remove(&doomed)?;
    sync(directory)
}

fn remove(directory: &Path) -> Result<(), OpenError> {
    match std::fs::remove_dir_all(directory) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        removed => removed.map_err(OpenError::io("remove", directory)),
    }
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
    File::open(directory).and_then(|directory| directory.sync_all()).map_err(OpenError::io("sync", directory))
}

#[cfg(windows)]
pub(crate) fn sync(_: &Path) -> Result<(), OpenError> {
    Ok(())
}
