//! The number of the last batch that was acknowledged, beside the database.
//!
//! Written after each sync and not synced itself: what it holds after a crash is a lower bound of what the database
//! must hold. A database that holds less has lost acknowledged commits, and is refused.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use crate::engine::error::OpenError;
use crate::engine::record::{Decoder, Encoder};

pub(crate) const FILE: &str = "acknowledged";
const FORMAT: u8 = 1;
const SLOT_BYTES: usize = 32;

#[derive(Debug)]
pub(crate) struct Mark {
    file: File,
}

fn slot(batch: u64) -> [u8; SLOT_BYTES] {
    let mut encoder = Encoder::new(FORMAT, SLOT_BYTES);
    encoder.u64(batch);
    let mut bytes = [0; SLOT_BYTES];
    for (to, from) in bytes.iter_mut().zip(encoder.seal(FILE.as_bytes()).iter()) {
        *to = *from;
    }
    bytes
}

fn path(directory: &Path) -> PathBuf {
    directory.join(FILE)
}

impl Mark {
    /// Whether the directory has one.
    pub(crate) fn exists(directory: &Path) -> Result<bool, OpenError> {
        let path = path(directory);
        path.try_exists().map_err(OpenError::io("look for", &path))
    }

    /// Makes a new one, at batch 0.
    pub(crate) fn create(directory: &Path) -> Result<(), OpenError> {
        let path = path(directory);
        let mut file = File::create(&path).map_err(OpenError::io("create", &path))?;
        file.write_all(&slot(0))
            .and_then(|()| file.write_all(&slot(0)))
            .and_then(|()| file.sync_all())
            .map_err(OpenError::io("write", &path))
    }

    /// Opens it and gives the last acknowledged batch.
    pub(crate) fn open(directory: &Path) -> Result<(Self, u64), OpenError> {
        let path = path(directory);
        let mut file =
            OpenOptions::new().read(true).write(true).open(&path).map_err(OpenError::io("open", &path))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(OpenError::io("read", &path))?;
        // One slot may be half-written after a power loss, never both.
        let batch = bytes.chunks_exact(SLOT_BYTES).filter_map(read).max();
        match batch {
            Some(batch) => Ok((Self { file }, batch)),
            None => Err(OpenError::corrupt(path.display(), "no slot is readable")),
        }
    }

    /// Moves it forward. A failure leaves it behind, which is still a lower bound.
    pub(crate) fn set(&self, batch: u64) -> std::io::Result<()> {
        write_at(&self.file, &slot(batch), if batch.is_multiple_of(2) { 0 } else { 32 })
    }

    pub(crate) fn sync(&self) -> std::io::Result<()> {
        self.file.sync_all()
    }
}

#[cfg(unix)]
fn write_at(file: &File, bytes: &[u8], offset: u64) -> std::io::Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, bytes, offset)
}

#[cfg(windows)]
fn write_at(file: &File, bytes: &[u8], offset: u64) -> std::io::Result<()> {
    // A short write damages one slot; the other one stands.
    std::os::windows::fs::FileExt::seek_write(file, bytes, offset).map(|_| ())
}

fn read(bytes: &[u8]) -> Option<u64> {
    let (value, _) = bytes.split_at_checked(17)?;
    let (format, mut fields) = Decoder::open(FILE.as_bytes(), value).ok()?;
    if format != FORMAT {
        return None;
    }
    fields.u64().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_batch_comes_back() {
        let directory = tempfile::tempdir().unwrap();
        Mark::create(directory.path()).unwrap();
        let (mark, batch) = Mark::open(directory.path()).unwrap();
        assert_eq!(batch, 0);
        for batch in 1..=5 {
            mark.set(batch).unwrap();
            assert_eq!(Mark::open(directory.path()).unwrap().1, batch);
        }
    }

    #[test]
    fn half_written_slot_falls_back_to_the_other() {
        let directory = tempfile::tempdir().unwrap();
        Mark::create(directory.path()).unwrap();
        let (mark, _) = Mark::open(directory.path()).unwrap();
        mark.set(6).unwrap();
        mark.set(7).unwrap();
        let path = path(directory.path());
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[35] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(Mark::open(directory.path()).unwrap().1, 6);
        bytes[3] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        assert!(matches!(Mark::open(directory.path()), Err(OpenError::Corrupt(_))));
    }
}
