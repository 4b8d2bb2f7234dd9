//! A look at the lists of tables before the database believes them.
//!
//! Each keyspace has a folder with a file `v<n>`, which says which tables it consists of, and a file `current`, which
//! says which `v<n>` counts and has its checksum. lsm-tree writes the checksum but does not look at it
//! (`version/recovery.rs`): a damaged list gives a keyspace without some of its tables, and no error. The tables
//! themselves are checked by the database, block by block, when they are read.
//!
//! ```text
//! current: version: u64 LE | xxh3-128 of the file v<version>: u128 LE | kind of checksum: u8 = 0
//! ```

use std::path::{Path, PathBuf};

use twox_hash::XxHash3_128;

use crate::engine::error::OpenError;

pub(crate) const FOLDER: &str = "keyspaces";
const CURRENT: &str = "current";
const XXH3: u8 = 0;

/// The numbers of the keyspaces of a database.
pub(crate) fn keyspaces(database: &Path) -> Result<Vec<u64>, OpenError> {
    let folder = database.join(FOLDER);
    let list = || OpenError::io("list", &folder);
    let mut found = Vec::new();
    for entry in std::fs::read_dir(&folder).map_err(OpenError::io_or_missing("list", &folder))? {
        let path: PathBuf = entry.map_err(list())?.path();
        if path.is_dir() {
            let number = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.parse().ok());
            let foreign = || OpenError::corrupt(path.display(), "not the number of a keyspace");
            found.push(number.ok_or_else(foreign)?);
        }
    }
    Ok(found)
}

/// Checks that every keyspace of a database has a list of tables that is as it was written. A keyspace without a
/// `current` file, fjall would take for a half-made one and delete; ours were all whole before the mark was made.
pub(crate) fn check(database: &Path) -> Result<(), OpenError> {
    for number in keyspaces(database)? {
        keyspace(&database.join(FOLDER).join(number.to_string()))?;
    }
    Ok(())
}

fn keyspace(folder: &Path) -> Result<(), OpenError> {
    let current = folder.join(CURRENT);
    let bytes = read(&current)?;
    let wrong = |reason: &str| OpenError::corrupt(current.display(), reason);
    let (version, rest) = bytes.split_first_chunk().ok_or_else(|| wrong("the file is too short"))?;
    let (sum, kind) = rest.split_first_chunk().ok_or_else(|| wrong("the file is too short"))?;
    if *kind != [XXH3] {
        return Err(wrong("unknown kind of checksum"));
    }
    let list = folder.join(format!("v{}", u64::from_le_bytes(*version)));
    if XxHash3_128::oneshot(&read(&list)?) != u128::from_le_bytes(*sum) {
        return Err(OpenError::corrupt(list.display(), "the checksum of the list of tables does not match"));
    }
    Ok(())
}

fn read(path: &Path) -> Result<Vec<u8>, OpenError> {
    std::fs::read(path).map_err(OpenError::io_or_missing("read", path))
}
