//! A look at what has gone to tables, before the database adds what is in its journals.
//!
//! Opened with the library that the database keeps its keyspaces in, one by one and without the journals, only to be
//! read. What that does to the files is what the database would do next in any case: those that no list of tables
//! names, which a crash has left half-made, are removed. A table that is missing is refused.

use std::path::Path;

use lsm_tree::{AbstractTree as _, AnyTree, Config, SeqNo, SequenceNumberCounter};

use crate::engine::error::OpenError;
use crate::engine::heartbeat::{self, Heartbeat};
use crate::engine::manifest::{self, FOLDER};
use crate::engine::space::{PerSpace, Space};

/// The keyspace in which fjall keeps the names of the others. It is never written through the journal.
const NAMES: u64 = 0;

/// What is in the tables of a database.
#[derive(Debug)]
pub(crate) struct Tables {
    /// The last batch that they have all of the state of; none if they have nothing.
    pub(crate) last: Option<Heartbeat>,
    /// For each keyspace the last batch that has written to it, of those that are in its tables; 0 if none is.
    pub(crate) batches: PerSpace<u64>,
}

pub(crate) fn read(database: &Path) -> Result<Tables, OpenError> {
    let ids = manifest::keyspaces(database)?;
    let folder = database.join(FOLDER);
    let names = Tree::open(&folder, NAMES)?;
    let mut known = PerSpace::<Option<u64>>::default();
    for id in ids.into_iter().filter(|id| *id != NAMES) {
        let path = folder.join(id.to_string());
        let name = names.get(&[b"n".as_slice(), &id.to_be_bytes()].concat())?;
        // fjall would remove one without a name.
        let space = Space::ALL.into_iter().find(|space| name.as_deref() == Some(space.name().as_bytes()));
        let space =
            space.ok_or_else(|| OpenError::corrupt(path.display(), "not one of a store's keyspaces"))?;
        *known.get_mut(space) = Some(id);
    }
    let mut tables = Tables { last: None, batches: PerSpace::default() };
    for space in Space::ALL {
        let id = known.get(space).ok_or_else(|| {
            OpenError::corrupt(folder.display(), format!("keyspace {} is missing", space.name()))
        })?;
        let Some(value) = Tree::open(&folder, id)?.get(heartbeat::KEY)? else { continue };
        *tables.batches.get_mut(space) = match space {
            Space::State => {
                let last = Heartbeat::decode(&value).map_err(OpenError::Corrupt)?;
                tables.last = Some(last);
                last.batch
            }
            _ => Heartbeat::decode_number(space, &value).map_err(OpenError::Corrupt)?,
        };
    }
    Ok(tables)
}

/// One keyspace, to be read.
struct Tree<'a> {
    folder: &'a Path,
    id: u64,
    tree: AnyTree,
}

impl<'a> Tree<'a> {
    fn open(folder: &'a Path, id: u64) -> Result<Self, OpenError> {
        // Where new sequence numbers would come from.
        let numbers = SequenceNumberCounter::default;
        let tree = Config::new(folder.join(id.to_string()), numbers(), numbers()).open();
        Ok(Self { folder, id, tree: tree.map_err(|error| failed(folder, id, error))? })
    }

    fn get(&self, key: &[u8]) -> Result<Option<lsm_tree::Slice>, OpenError> {
        self.tree.get(key, SeqNo::MAX).map_err(|error| failed(self.folder, self.id, error))
    }
}

fn failed(folder: &Path, id: u64, error: lsm_tree::Error) -> OpenError {
    OpenError::database("read the tables", &folder.join(id.to_string()))(error.into())
}
