//! The number of the last batch that was acknowledged, beside the database.
//!
//! Written after each sync and not synced itself: what it holds after a crash is a lower bound of what the database
//! must hold. A database that holds less has lost acknowledged commits, and is refused.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::engine::error::OpenError;
use crate::engine::record::{Decoder, Encoder};

pub(crate) const FILE: &str = "acknowledged";
/// Its name while it is made.
pub(crate) const NEW_FILE: &str = "acknowledged.new";
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

/// Whether a file that begins like this may be one; a newer format has another number.
pub(crate) fn is_ours(start: &[u8]) -> bool {
    start.first().is_none_or(|format| *format <= FORMAT)
}

fn path(directory: &Path) -> PathBuf {
    directory.join(FILE)
}

impl Mark {
    /// The last acknowledged batch; `None` if there is no mark, or none that can be read.
    pub(crate) fn read(directory: &Path) -> Result<Option<u64>, OpenError> {
        let path = path(directory);
        match std::fs::read(&path) {
            Ok(bytes) => Ok(last(&bytes)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(OpenError::io("read", &path)(error)),
        }
    }

    /// Makes a new one, at batch 0. It is there as a whole or not at all.
    pub(crate) fn create(directory: &Path) -> Result<(), OpenError> {
        let new = directory.join(NEW_FILE);
        File::create(&new)
            .and_then(|mut file| {
                file.write_all(&slot(0))?;
                file.write_all(&slot(0))?;
                file.sync_all()
            })
            .and_then(|()| std::fs::rename(&new, path(directory)))
            .map_err(OpenError::io("make", &path(directory)))
    }

    /// Opens it, to move it forward.
    pub(crate) fn open(directory: &Path) -> Result<Self, OpenError> {
        let path = path(directory);
        let file = OpenOptions::new().read(true).write(true).open(&path);
        Ok(Self { file: file.map_err(OpenError::io("open", &path))? })
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

/// One slot may be half-written after a power loss, never both.
fn last(bytes: &[u8]) -> Option<u64> {
    bytes.chunks_exact(SLOT_BYTES).filter_map(read).max()
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
        assert_eq!(Mark::read(directory.path()).unwrap(), None);
        Mark::create(directory.path()).unwrap();
        let mark = Mark::open(directory.path()).unwrap();
        assert_eq!(Mark::read(directory.path()).unwrap(), Some(0));
        for batch in 1..=5 {
            mark.set(batch).unwrap();
            assert_eq!(Mark::read(directory.path()).unwrap(), Some(batch));
        }
    }

    #[test]
    fn half_written_slot_falls_back_to_the_other() {
        let directory = tempfile::tempdir().unwrap();
        Mark::create(directory.path()).unwrap();
        let mark = Mark::open(directory.path()).unwrap();
        mark.set(6).unwrap();
        mark.set(7).unwrap();
        let path = path(directory.path());
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[35] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(Mark::read(directory.path()).unwrap(), Some(6));
        bytes[3] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(Mark::read(directory.path()).unwrap(), None);
    }
}
