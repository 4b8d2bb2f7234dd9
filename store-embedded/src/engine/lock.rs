//! One process at a time: an advisory lock on a file that says who holds it.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use wow_store_api::{Clock, SystemClock};

use crate::engine::error::OpenError;

pub(crate) const FILE: &str = "owner";
/// The file that fjall locks while a database is open.
pub(crate) const DATABASE_FILE: &str = "lock";
/// Who may have a database open in a directory that nobody else has locked: a stream of a handle that is gone, or one
/// whose lock was removed.
pub(crate) const DATABASE_HOLDER: &str = "another process, or a reader of this one";

/// A handle that was just dropped may still be letting go.
const PATIENCE: Duration = Duration::from_millis(300);

/// Held as long as the store is open. The operating system lets go of it when the process dies, however it dies.
#[derive(Debug)]
pub(crate) struct DirectoryLock {
    file: File,
}

impl DirectoryLock {
    pub(crate) fn acquire(directory: &Path) -> Result<Self, OpenError> {
        let path = directory.join(FILE);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(OpenError::io("open", &path))?;
        if !try_lock(&file, &path)? {
            let mut holder = String::new();
            // Where a locked file cannot be read (Windows) the holder stays unnamed.
            let known = file.read_to_string(&mut holder).is_ok() && !holder.trim().is_empty();
            return Err(OpenError::Locked {
                directory: directory.to_path_buf(),
                holder: if known { holder.trim().to_owned() } else { "another process".to_owned() },
            });
        }
        // The lock is what counts: on a full disk the holder stays unnamed.
        let text = format!("{HOLDER}{} on {} since {}\n", std::process::id(), host(), SystemClock.now());
        let _ = file
            .set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| file.write_all(text.as_bytes()))
            .and_then(|()| file.flush());
        Ok(Self { file })
    }
}

impl Drop for DirectoryLock {
    fn drop(&mut self) {
        // The name is only for whoever finds the file locked; closing the file unlocks it in any case.
        let _ = self.file.set_len(0);
        let _ = self.file.unlock();
    }
}

/// How what a holder writes begins.
const HOLDER: &str = "process ";

/// Whether a file that begins like this may be one that says who holds a store. It is not synced, so after a power loss
/// there may be zeros in it.
pub(crate) fn is_ours(start: &[u8]) -> bool {
    start.iter().zip(HOLDER.as_bytes()).all(|(byte, expected)| byte == expected || *byte == 0)
}

/// Takes the lock that a database holds while it is open, if its file is there: given back by dropping it.
pub(crate) fn hold_database(database: &Path) -> Result<Option<File>, OpenError> {
    let path = database.join(DATABASE_FILE);
    let file = match OpenOptions::new().read(true).write(true).open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(OpenError::io("open", &path)(error)),
    };
    if try_lock(&file, &path)? {
        return Ok(Some(file));
    }
    Err(OpenError::Locked { directory: database.to_path_buf(), holder: DATABASE_HOLDER.to_owned() })
}

/// Makes the file of that lock where it has gone missing: it never holds anything.
pub(crate) fn ensure_database(database: &Path) -> Result<(), OpenError> {
    let path = database.join(DATABASE_FILE);
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(&path);
    file.map(drop).map_err(OpenError::io("make", &path))
}

/// What shows that an open directory is still where it was, and nobody else has it: the file that the database has
/// locked stands at its path. If it does not, the directory was moved or removed, or the file was, and somebody else may
/// have opened what is there now.
#[derive(Debug)]
pub(crate) struct Hold {
    path: PathBuf,
    identity: Identity,
}

impl Hold {
    /// Of a database that was just opened.
    pub(crate) fn of_database(database: &Path) -> Result<Self, OpenError> {
        let path = database.join(DATABASE_FILE);
        let identity = identity(&path).map_err(OpenError::io("look at", &path))?;
        Ok(Self { path, identity })
    }

    /// An error if it no longer holds.
    pub(crate) fn check(&self) -> std::io::Result<()> {
        if identity(&self.path).is_ok_and(|found| found == self.identity) {
            return Ok(());
        }
        Err(std::io::Error::other(format!(
            "the directory was moved or removed while it was open, or its lock was: {} is gone or another one",
            self.path.display(),
        )))
    }
}

/// What tells a file from another one that takes its place.
#[cfg(unix)]
type Identity = (u64, u64);

#[cfg(unix)]
fn identity(path: &Path) -> std::io::Result<Identity> {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata(path).map(|metadata| (metadata.dev(), metadata.ino()))
}

/// A file that is open cannot be moved or removed here.
#[cfg(not(unix))]
type Identity = ();

#[cfg(not(unix))]
fn identity(path: &Path) -> std::io::Result<Identity> {
    std::fs::metadata(path).map(drop)
}

/// Whether it could be locked in the time that a handle may need that was just dropped.
fn try_lock(file: &File, path: &Path) -> Result<bool, OpenError> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(true),
            Err(TryLockError::Error(source)) => return Err(OpenError::io("lock", path)(source)),
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(TryLockError::WouldBlock) => return Ok(false),
        }
    }
}

fn host() -> String {
    std::env::var("HOSTNAME")
        .ok()
        .or_else(|| std::fs::read_to_string("/proc/sys/kernel/hostname").ok())
        .map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "an unnamed host".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_holder_is_told_who_has_it() {
        let directory = tempfile::tempdir().unwrap();
        let first = DirectoryLock::acquire(directory.path()).unwrap();
        let error = DirectoryLock::acquire(directory.path()).unwrap_err();
        assert!(
            matches!(&error, OpenError::Locked { holder, .. }
            if holder.starts_with(&format!("process {} on ", std::process::id()))),
            "{error}"
        );
        drop(first);
        DirectoryLock::acquire(directory.path()).unwrap();
    }

    #[test]
    fn leftover_of_a_dead_holder_does_not_lock() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join(FILE), "process 1 on nowhere since the beginning\n").unwrap();
        DirectoryLock::acquire(directory.path()).unwrap();
    }
}
