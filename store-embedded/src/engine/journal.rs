//! A look at the write-ahead journal before the database replays it.
//!
//! fjall's own recovery cuts a journal at the first bytes it cannot parse, whatever follows (`journal/reader.rs`), and
//! refuses to open when the last batch has all its bytes but a wrong checksum, as a power loss can leave it
//! (`journal/batch_reader.rs`). Neither is what a log of record wants, so this reads the same bytes first:
//!
//! - damage with no valid batch behind it, and no acknowledged batch missing, is the torn end of a write that nobody
//!   was told about: to be cut off;
//! - anything else is damage to acknowledged commits: refused, with file and offset.
//!
//! A journal file is a sequence of batches, then zeros up to its pre-allocated size. All integers are little-endian.
//!
//! ```text
//! batch: 1 | items: u32 | seqno: u64 | item … | 3 | xxh3-64 of the items: u64 | "FJL" 3
//! item:  2 | value type: u8 | compression: u8 | keyspace: u64 | key bytes: u16 | value bytes: u32
//!          | stored bytes: u32 | key | value
//! ```

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};

use twox_hash::XxHash3_64;

use crate::engine::error::OpenError;
use crate::engine::heartbeat::Heartbeat;

const EXTENSION: &str = "jnl";
const TAG_START: u8 = 1;
const TAG_ITEM: u8 = 2;
const TAG_END: u8 = 3;
const TAG_CLEAR: u8 = 4;
const TRAILER: &[u8] = b"FJL\x03";

/// What the journals hold.
#[derive(Debug)]
pub(crate) struct Journals {
    /// The oldest file.
    pub(crate) first_file: PathBuf,
    /// The first and the last batch, if there is any.
    pub(crate) first: Option<Heartbeat>,
    pub(crate) last: Option<Heartbeat>,
    torn: Option<Torn>,
}

#[derive(Debug)]
struct Torn {
    path: PathBuf,
    keep: usize,
    /// Without the zeros at the end.
    length: usize,
    reason: &'static str,
}

impl Journals {
    /// Cuts off the torn end, if there is one. Says how many bytes that were.
    pub(crate) fn cut(&self) -> Result<u64, OpenError> {
        let Some(torn) = &self.torn else { return Ok(0) };
        let keep = u64::try_from(torn.keep).unwrap_or(u64::MAX);
        OpenOptions::new()
            .write(true)
            .open(&torn.path)
            .and_then(|file| file.set_len(keep).and_then(|()| file.sync_all()))
            .map_err(OpenError::io("cut the torn end off", &torn.path))?;
        Ok(u64::try_from(torn.length.saturating_sub(torn.keep)).unwrap_or(u64::MAX))
    }
}

/// Checks all journals of a database directory. Changes nothing.
pub(crate) fn check(directory: &Path, acknowledged: u64) -> Result<Journals, OpenError> {
    let mut found = Found::default();
    let mut last_id: Option<u64> = None;
    let (mut first_file, mut last_file) = (None, None);
    for (id, path) in files(directory)? {
        if let Some(previous) = last_id
            && previous.checked_add(1) != Some(id)
        {
            return Err(OpenError::corrupt(
                path.display(),
                format!("the journal after {previous}.jnl is missing"),
            ));
        }
        last_id = Some(id);
        found.read(&path)?;
        first_file.get_or_insert_with(|| path.clone());
        last_file = Some(path);
    }
    let (Some(first_file), Some(last_file)) = (first_file, last_file) else {
        return Err(OpenError::corrupt(directory.display(), "there is no journal"));
    };
    let Found { first, last, torn, .. } = found;
    // Without any batch here, the last one has left the journal for the tables.
    if let Some(last) = last
        && last.batch < acknowledged
    {
        let (place, reason) = match torn {
            Some(torn) => (place(&torn.path, torn.keep), torn.reason),
            None => (last_file.display().to_string(), "its end is missing"),
        };
        let last = last.batch;
        let reason = format!("{reason}: batch {acknowledged} was acknowledged, the last valid one is {last}");
        return Err(OpenError::corrupt(place, reason));
    }
    Ok(Journals { first_file, first, last, torn })
}

/// What was found up to now.
#[derive(Default)]
struct Found {
    first: Option<Heartbeat>,
    last: Option<Heartbeat>,
    seqno: Option<u64>,
    torn: Option<Torn>,
}

impl Found {
    /// Goes on with the next file.
    fn read(&mut self, path: &Path) -> Result<(), OpenError> {
        let bytes = std::fs::read(path).map_err(OpenError::io("read", path))?;
        let mut at = 0;
        while let Some(rest) = bytes.get(at..)
            && rest.iter().any(|byte| *byte != 0)
        {
            match batch(rest) {
                Ok(batch) => {
                    self.add(&batch, path, at)?;
                    at = at.saturating_add(batch.length);
                }
                Err(reason) => {
                    let length =
                        bytes.iter().rposition(|byte| *byte != 0).map_or(at, |last| last.saturating_add(1));
                    let this = Torn { path: path.to_path_buf(), keep: at, length, reason };
                    if let Some(next) = resync(&bytes, at) {
                        return Err(damage(&this, path, next));
                    }
                    self.torn.get_or_insert(this);
                    break;
                }
            }
        }
        Ok(())
    }

    fn add(&mut self, batch: &Batch, path: &Path, at: usize) -> Result<(), OpenError> {
        if let Some(torn) = &self.torn {
            return Err(damage(torn, path, at));
        }
        if self.seqno.is_some_and(|last| batch.seqno <= last) {
            return Err(OpenError::corrupt(place(path, at), "sequence numbers do not rise"));
        }
        if let (Some(last), Some(this)) = (self.last, batch.heartbeat)
            && last.batch.checked_add(1) != Some(this.batch)
        {
            let reason = format!("batch {} follows batch {}", this.batch, last.batch);
            return Err(OpenError::corrupt(place(path, at), reason));
        }
        self.seqno = Some(batch.seqno);
        self.first = self.first.or(batch.heartbeat);
        self.last = batch.heartbeat.or(self.last);
        Ok(())
    }
}

fn files(directory: &Path) -> Result<Vec<(u64, PathBuf)>, OpenError> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(OpenError::io("list", directory))? {
        let path = entry.map_err(OpenError::io("list", directory))?.path();
        if path.extension().is_none_or(|extension| extension != EXTENSION) {
            continue;
        }
        match path.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.parse().ok()) {
            Some(id) => found.push((id, path)),
            None => return Err(OpenError::corrupt(path.display(), "not the name of a journal")),
        }
    }
    found.sort_unstable();
    Ok(found)
}

fn place(path: &Path, offset: usize) -> String {
    format!("{} at byte {offset}", path.display())
}

fn damage(torn: &Torn, path: &Path, next: usize) -> OpenError {
    let reason =
        format!("{}, with valid batches behind it from byte {next} of {}", torn.reason, path.display());
    OpenError::corrupt(place(&torn.path, torn.keep), reason)
}

/// The next offset after `from` where a whole batch with a right checksum lies.
fn resync(bytes: &[u8], from: usize) -> Option<usize> {
    let mut at = from.checked_add(1)?;
    loop {
        let rest = bytes.get(at..)?;
        at = at.checked_add(rest.iter().position(|byte| *byte == TAG_START)?)?;
        if batch(bytes.get(at..)?).is_ok() {
            return Some(at);
        }
        at = at.checked_add(1)?;
    }
}

struct Batch {
    length: usize,
    seqno: u64,
    heartbeat: Option<Heartbeat>,
}

fn batch(bytes: &[u8]) -> Result<Batch, &'static str> {
    const SHORT: &str = "a batch ends early";
    let mut input = Input { bytes, at: 0 };
    if input.u8().ok_or(SHORT)? != TAG_START {
        return Err("not the start of a batch");
    }
    let items = input.u32().ok_or(SHORT)?;
    let seqno = input.u64().ok_or(SHORT)?;
    let items_from = input.at;
    let mut found = None;
    for _ in 0..items {
        match input.u8().ok_or(SHORT)? {
            TAG_ITEM => {
                let _value_type = input.u8().ok_or(SHORT)?;
                let compression = input.u8().ok_or(SHORT)?;
                let _keyspace = input.u64().ok_or(SHORT)?;
                let key_length = input.u16().ok_or(SHORT)?;
                let _value_length = input.u32().ok_or(SHORT)?;
                let stored_length = input.u32().ok_or(SHORT)?;
                let key = input.take(key_length.into()).ok_or(SHORT)?;
                let value = input.take(usize::try_from(stored_length).unwrap_or(usize::MAX)).ok_or(SHORT)?;
                if compression == 0 && found.is_none() {
                    found = Heartbeat::of(key, value);
                }
            }
            TAG_CLEAR => {
                input.u64().ok_or(SHORT)?;
            }
            _ => return Err("an item of a batch has an unknown tag"),
        }
    }
    let content = bytes.get(items_from..input.at).ok_or(SHORT)?;
    if input.u8().ok_or(SHORT)? != TAG_END {
        return Err("a batch has no end where it should");
    }
    let checksum = input.u64().ok_or(SHORT)?;
    if input.take(TRAILER.len()).ok_or(SHORT)? != TRAILER {
        return Err("a batch has a wrong trailer");
    }
    if XxHash3_64::oneshot(content) != checksum {
        return Err("the checksum of a batch does not match");
    }
    Ok(Batch { length: input.at, seqno, heartbeat: found })
}

struct Input<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Input<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let end = self.at.checked_add(count)?;
        let taken = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(taken)
    }

    fn chunk<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn u8(&mut self) -> Option<u8> {
        self.chunk().map(u8::from_le_bytes)
    }

    fn u16(&mut self) -> Option<u16> {
        self.chunk().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.chunk().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.chunk().map(u64::from_le_bytes)
    }
}
